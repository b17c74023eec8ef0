//! The pages to read: made from the same data as `/openapi.json` and from the table of problems. No script, nothing from elsewhere.

use std::fmt::Write as _;

use serde_json::Value;

use super::error::Code;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#1c1e21;background:#fff}code{font-family:ui-monospace,monospace}h2{margin-top:2.5rem}\
section{border-top:1px solid #ccc;padding:.5rem 0}b.m{display:inline-block;min-width:4.5rem}\
table{border-collapse:collapse;margin:.5rem 0}td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}\
th{font-weight:600;color:#666}pre{overflow-x:auto}\
@media(prefers-color-scheme:dark){body{color:#e4e6eb;background:#18191a}a{color:#8ab4f8}section{border-color:#444}th{color:#aaa}}";

const INTRODUCTION: &str = "<p>JSON over HTTP. Send a key as <code>Authorization: Bearer …</code> or <code>X-API-Key: …</code>; a server \
without keys serves its own machine only and needs none. Errors are <a href='/docs/problems'>problems</a> with a stable \
<code>code</code>. For programs: <a href='/openapi.json'>openapi.json</a>.</p>\
<pre><code>curl -X POST localhost:7700/v1/scores -H 'content-type: application/json' \\\n     \
-d '{\"user_id\": \"ada\", \"points\": 10}'\ncurl localhost:7700/v1/scores</code></pre>";

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// Every route with its parameters, body and reply.
pub(super) fn api(document: &Value) -> String {
    let mut page = head("Standings API");
    page.push_str(INTRODUCTION);
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations: Vec<(&str, &str, &Value)> = paths
        .flat_map(|(path, item)| METHODS.map(|method| (method, path.as_str(), &item[method])))
        .filter(|(_, _, operation)| operation.is_object())
        .collect();
    for tag in document["tags"].as_array().into_iter().flatten() {
        let _ = write!(page, "<h2>{}</h2><p>{}</p>", text(&tag["name"]), text(&tag["description"]));
        for (method, path, operation) in &operations {
            if operation["tags"].as_array().is_some_and(|tags| tags.contains(&tag["name"])) {
                section(&mut page, document, method, path, operation);
            }
        }
    }
    page
}

fn section(page: &mut String, document: &Value, method: &str, path: &str, operation: &Value) {
    let (method, path) = (method.to_uppercase(), escape(path));
    let _ = write!(
        page,
        "<section><p><b class=m>{method}</b> <code>{path}</code></p><p>{}</p>",
        text(&operation["summary"])
    );
    if operation["description"].as_str().is_some_and(|description| !description.is_empty()) {
        let _ = write!(page, "<p>{}</p>", text(&operation["description"]));
    }
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    // The parts of the path explain themselves.
    let rows = parameters
        .filter(|parameter| parameter["in"] == "query")
        .map(|parameter| (text(&parameter["name"]), text(&parameter["description"])));
    table(page, "Query", rows.collect());
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    table(page, "Body", fields(document, schema, 0));
    let replies = operation["responses"].as_object().into_iter().flatten();
    for (status, reply) in replies.filter(|(status, _)| status.starts_with('2')) {
        let schema = &reply["content"]["application/json"]["schema"];
        table(page, &format!("Reply {}", escape(status)), fields(document, schema, 0));
    }
    page.push_str("</section>");
}

/// The fields of a schema, those of inner objects indented behind them.
fn fields(document: &Value, schema: &Value, depth: usize) -> Vec<(String, String)> {
    let schema = resolve(document, schema);
    let mut rows = Vec::new();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        rows.extend(fields(document, part, depth));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let resolved = resolve(document, field);
        let about = if field["description"].is_string() { field } else { resolved };
        rows.push((format!("{}{}", "&emsp;".repeat(depth), escape(name)), text(&about["description"])));
        if depth < 2 {
            rows.extend(fields(document, resolve(document, &resolved["items"]), depth + 1));
            rows.extend(fields(document, resolved, depth + 1));
        }
    }
    rows
}

fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str().and_then(|name| name.strip_prefix('#')) {
        Some(pointer) => document.pointer(pointer).unwrap_or(&Value::Null),
        None => schema,
    }
}

fn table(page: &mut String, title: &str, rows: Vec<(String, String)>) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(page, "<table><tr><th colspan=2>{title}");
    for (name, about) in rows {
        let _ = write!(page, "<tr><td><code>{name}</code><td>{about}");
    }
    page.push_str("</table>");
}

/// Every code with its status and what to do, from the one table.
pub(super) fn problems() -> String {
    let mut page = head("Problems");
    page.push_str("<p>Programs match <code>code</code>; people read <code>detail</code>.</p><table><tr><th>code<th>status<th>what<th>what to do");
    for code in Code::ALL {
        let (name, status) = (code.as_str(), code.status().as_u16());
        let (title, remedy) = (marked(code.title()), marked(code.remedy()));
        let _ = write!(page, "<tr id={name}><td><code>{name}</code><td>{status}<td>{title}<td>{remedy}");
    }
    page.push_str("</table>");
    page
}

fn head(title: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>{title}</title><style>{STYLE}</style><h1>{title}</h1>"
    )
}

fn text(value: &Value) -> String {
    marked(value.as_str().unwrap_or_default())
}

/// Text with words in backticks set as code.
fn marked(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(at, part)| if at % 2 == 1 { format!("<code>{}</code>", escape(part)) } else { escape(part) })
        .collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_fields_and_escapes_everything() {
        let document = serde_json::json!({
            "tags": [{ "name": "scores", "description": "<b>" }],
            "paths": { "/a": { "post": { "tags": ["scores"], "summary": "Send `x`",
                "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Body" } } } } } } },
            "components": { "schemas": { "Body": { "properties": { "points": { "description": "How many" } } } } }
        });
        let page = api(&document);
        assert!(page.contains("&lt;b&gt;") && page.contains("Send <code>x</code>"), "{page}");
        assert!(page.contains("<td><code>points</code><td>How many"), "{page}");
        assert!(problems().contains("<tr id=no_entry>"));
    }
}
