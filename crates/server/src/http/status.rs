//! `/readyz`, `/openapi.json` and `/docs`: what the server says about itself.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use utoipa::openapi::{OpenApi, PathItem, RefOr};
use utoipa::{OpenApi as _, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::{App, json};
use super::error::{Code, PROBLEM_MEDIA_TYPE, Problem};
use super::wire::ProblemBody;

/// How far a start has come.
#[derive(Debug, Serialize, ToSchema)]
struct ReadyReply {
    /// Whether every ranking is complete.
    ready: bool,
    /// Seasons to load.
    seasons: u64,
    /// Seasons that are complete.
    seasons_done: u64,
    /// Users loaded.
    users: u64,
    /// Plays read again because they are newer than a checkpoint.
    plays: u64,
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Standings",
        description = "A real-time leaderboard server for games. Errors are `application/problem+json` with a stable `code`.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    modifiers(&KeyScheme),
    tags(
        (name = "scores", description = "Plays in, standings out"),
        (name = "boards", description = "Boards and their seasons"),
        (name = "users", description = "Profiles"),
        (name = "keys", description = "API keys, for admins"),
        (name = "server", description = "The server about itself")
    )
)]
struct Document;

struct KeyScheme;

impl utoipa::Modify for KeyScheme {
    fn modify(&self, document: &mut OpenApi) {
        use utoipa::openapi::security::{
            ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
        };
        let components = document.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        let header = ApiKey::Header(ApiKeyValue::new("X-API-Key"));
        components.add_security_scheme("header", SecurityScheme::ApiKey(header));
        // Without keys a server on its own machine needs none of them: hence the empty alternative.
        document.security = Some(vec![
            SecurityRequirement::new("bearer", Vec::<String>::new()),
            SecurityRequirement::new("header", Vec::<String>::new()),
            SecurityRequirement::default(),
        ]);
    }
}

/// All routes of the API with their description, and the description itself.
pub fn routes(app: Arc<App>) -> Router {
    let (router, mut document) = OpenApiRouter::with_openapi(Document::openapi())
        .merge(super::scores::routes())
        .merge(super::boards::routes())
        .merge(super::users::routes())
        .merge(super::keys::routes())
        .routes(routes!(ready))
        .split_for_parts();
    complete(&mut document);
    let text: Arc<str> = document.to_pretty_json().expect("a description is plain data").into();
    let page: Arc<str> = page(&document).into();
    let problems: Arc<str> = problems_page().into();
    let shown = async move || {
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text.to_string())
    };
    router
        .with_state(app)
        .route("/openapi.json", get(shown))
        .route("/docs", get(async move || Html(page.to_string())))
        .route("/docs/problems", get(async move || Html(problems.to_string())))
}

/// Adds what every operation has in common, so that no handler has to say it: an id of its own (handlers of different nouns share
/// their names), the media type of problems, and words for responses that need no explanation.
fn complete(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let all = [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        for operation in all.into_iter().flatten() {
            let noun = operation.tags.iter().flatten().next();
            if let (Some(id), Some(noun)) = (&operation.operation_id, noun) {
                operation.operation_id = Some(format!("{noun}_{id}"));
            }
            for (status, response) in &mut operation.responses.responses {
                let RefOr::T(response) = response else { continue };
                let words = match status.as_bytes().first() {
                    Some(b'4') => "Refused: `code` says why",
                    Some(b'5') => "Not done: `code` says whether to try again",
                    _ => "Done",
                };
                if response.description.is_empty() {
                    words.clone_into(&mut response.description);
                }
                if matches!(status.as_bytes().first(), Some(b'4' | b'5'))
                    && let Some(content) = response.content.shift_remove("application/json")
                {
                    response.content.insert(PROBLEM_MEDIA_TYPE.to_owned(), content);
                }
            }
        }
    }
}

/// Whether every ranking is complete: 200 if so, else 503 with how far it is
#[utoipa::path(get, path = "/readyz", tag = "server",
    responses((status = 200, body = ReadyReply), (status = 503, body = ProblemBody)))]
async fn ready(app: State<Arc<App>>) -> Response {
    let now = app.boards.readiness();
    let reply = ReadyReply {
        ready: now.ready,
        seasons: now.seasons,
        seasons_done: now.seasons_done,
        users: now.users,
        plays: now.plays,
    };
    if now.ready {
        return json(StatusCode::OK, &reply);
    }
    let detail = format!(
        "{} of {} seasons are complete, {} users loaded, {} plays followed",
        now.seasons_done, now.seasons, now.users, now.plays
    );
    let problem = Problem::new(Code::NotReady, detail).retry_after_seconds(1);
    let progress = serde_json::to_value(&reply).unwrap_or_default();
    problem.with("progress", progress).into_response()
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#1c1e21;background:#fff}code{font-family:ui-monospace,monospace}h2{margin-top:2.5rem}\
section{border-top:1px solid #ccc;padding:.5rem 0}b.m{display:inline-block;min-width:4.5rem}\
table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}\
@media(prefers-color-scheme:dark){body{color:#e4e6eb;background:#18191a}a{color:#8ab4f8}section{border-color:#444}}";

fn head(title: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>{title}</title><style>{STYLE}</style><h1>{title}</h1>"
    )
}

/// The description as a page to read, made from the same data. No script, nothing from elsewhere.
fn page(document: &OpenApi) -> String {
    let mut page = head("Standings API");
    page.push_str(
        "<p>JSON over HTTP. Send a key as <code>Authorization: Bearer …</code> or <code>X-API-Key: …</code>; a server \
         without keys serves its own machine only and needs none. Errors are \
         <a href='/docs/problems'>problems</a> with a stable <code>code</code>. For programs: \
         <a href='/openapi.json'>openapi.json</a>.</p>\
         <pre><code>curl -X POST localhost:7700/v1/scores -H 'content-type: application/json' \\\n     \
         -d '{\"user_id\": \"ada\", \"points\": 10}'\ncurl localhost:7700/v1/scores</code></pre>",
    );
    for tag in document.tags.iter().flatten() {
        let _ = write!(
            page,
            "<h2>{}</h2><p>{}</p>",
            escape(&tag.name),
            escape(tag.description.as_deref().unwrap_or_default())
        );
        for (path, item) in &document.paths.paths {
            for (method, operation) in operations(item) {
                if operation.tags.iter().flatten().any(|name| *name == tag.name) {
                    section(&mut page, method, path, operation);
                }
            }
        }
    }
    page
}

fn operations(item: &PathItem) -> impl Iterator<Item = (&'static str, &utoipa::openapi::path::Operation)> {
    let all = [
        ("GET", &item.get),
        ("POST", &item.post),
        ("PUT", &item.put),
        ("PATCH", &item.patch),
        ("DELETE", &item.delete),
    ];
    all.into_iter().filter_map(|(method, operation)| operation.as_ref().map(|operation| (method, operation)))
}

fn section(page: &mut String, method: &str, path: &str, operation: &utoipa::openapi::path::Operation) {
    let summary = operation.summary.as_deref().unwrap_or_default();
    let _ = write!(
        page,
        "<section><p><b class=m>{method}</b> <code>{}</code></p><p>{}</p>",
        escape(path),
        escape(summary)
    );
    if let Some(description) = operation.description.as_deref().filter(|text| !text.is_empty()) {
        let _ = write!(page, "<p>{}</p>", escape(description));
    }
    let parameters = operation.parameters.iter().flatten();
    let rows: Vec<String> = parameters
        .map(|parameter| {
            let about = parameter.description.as_deref().unwrap_or_default();
            format!("<tr><td><code>{}</code><td>{}", escape(&parameter.name), escape(about))
        })
        .collect();
    if !rows.is_empty() {
        let _ = write!(page, "<table>{}</table>", rows.concat());
    }
    page.push_str("</section>");
}

/// Every code with its status and what to do, from the one table.
fn problems_page() -> String {
    let mut page = head("Problems");
    page.push_str("<p>Programs match <code>code</code>; people read <code>detail</code>.</p><table><tr><th>code<th>status<th>what<th>what to do");
    for code in Code::ALL {
        let (name, status) = (code.as_str(), code.status().as_u16());
        let (title, remedy) = (escape(code.title()), escape(code.remedy()));
        let _ = write!(page, "<tr id={name}><td><code>{name}</code><td>{status}<td>{title}<td>{remedy}");
    }
    page.push_str("</table>");
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
