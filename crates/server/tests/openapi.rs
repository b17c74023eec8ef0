//! Goal: /openapi.json is valid OpenAPI 3.1, and every operation in it answers as it says.
//! Method: a validator from the registry (`roas`) with nothing switched off. Then each operation is called, well and badly:
//! the status must be one that is listed, the media type the one that is listed, and the body must have the fields of its
//! schema, of their types, and no others. Whoever adds a route without a call here fails the test.
//!
//! `roas` checks the document by the rules of the specification, written by hand. The official JSON Schema of OpenAPI 3.1 is in no
//! package of the registry.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use common::app::{Answer, TestApp, runtime};
use roas::validation::{Options, Validate as _};
use serde_json::Value;
use standings_table::ManualClock;

const NOW_MS: i64 = 1_794_000_000_000;

async fn open(folder: &std::path::Path) -> (TestApp, Arc<ManualClock>, Value) {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let app = TestApp::in_folder(folder, clock.clone()).await;
    let answer = app.get("/openapi.json").await;
    assert_eq!((answer.status, answer.headers["content-type"].as_bytes()), (200, &b"application/json"[..]));
    let document = serde_json::from_str(&answer.body).unwrap();
    (app, clock, document)
}

#[test]
fn the_description_is_valid_openapi() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let (_, _, document) = open(folder.path()).await;
        assert_eq!(document["openapi"], "3.1.0");
        let spec: roas::v3_1::spec::Spec = serde_json::from_value(document).unwrap();
        if let Err(errors) = spec.validate(Options::new(), None) {
            panic!("{errors}");
        }
    });
}

/// Calls in an order in which each finds what it needs: operation, path, body, status.
const CALLS: &[(&str, &str, &str, u16)] = &[
    ("GET /readyz", "/readyz", "", 200),
    (
        "PUT /v1/boards/{board}",
        "/v1/boards/laps",
        r#"{"score":"best","order":"low","decimals":3,"min_points":1.5}"#,
        201,
    ),
    ("PUT /v1/boards/{board}", "/v1/boards/laps", r#"{"score":"best","order":"low","decimals":3}"#, 200),
    ("PATCH /v1/boards/{board}", "/v1/boards/laps", r#"{"ties":"first","max_points":null}"#, 200),
    ("GET /v1/boards/{board}", "/v1/boards/laps", "", 200),
    ("GET /v1/boards", "/v1/boards", "", 200),
    ("POST /v1/scores", "/v1/scores", r#"{"user_id":"ada","points":10}"#, 200),
    (
        "POST /v1/scores",
        "/v1/scores",
        r#"{"user_id":"bob","points":7,"play_id":"m-1","played_at":"2026-11-06T21:00:00Z"}"#,
        200,
    ),
    ("POST /v1/boards/{board}/scores", "/v1/boards/laps/scores", r#"{"user_id":"ada","points":12.345}"#, 200),
    (
        "POST /v1/boards/{board}/scores/batch",
        "/v1/boards/laps/scores/batch",
        r#"{"plays":[{"user_id":"bob","points":13},{"user_id":"bob","points":13.0005}]}"#,
        200,
    ),
    ("PUT /v1/users/{user_id}", "/v1/users/ada", r#"{"name":"Ada"}"#, 201),
    ("PUT /v1/users/{user_id}", "/v1/users/ada", r#"{"name":"Lovelace"}"#, 200),
    ("PATCH /v1/users/{user_id}", "/v1/users/ada", r#"{"name":null}"#, 200),
    ("GET /v1/users/{user_id}", "/v1/users/ada", "", 200),
    ("GET /v1/scores", "/v1/scores?limit=1", "", 200),
    ("GET /v1/scores/{user_id}", "/v1/scores/ada", "", 200),
    ("GET /v1/boards/{board}/scores", "/v1/boards/laps/scores?min_score=1.5&max_score=99.125", "", 200),
    ("GET /v1/boards/{board}/scores/{user_id}", "/v1/boards/laps/scores/bob?season=all", "", 200),
    (
        "GET /v1/boards/{board}/scores/{user_id}/around",
        "/v1/boards/laps/scores/bob/around?above=1&below=0",
        "",
        200,
    ),
    (
        "POST /v1/boards/{board}/scores/lookup",
        "/v1/boards/laps/scores/lookup",
        r#"{"user_ids":["ada","eve"]}"#,
        200,
    ),
    ("GET /v1/boards/{board}/distribution", "/v1/boards/laps/distribution?buckets=3", "", 200),
    ("GET /v1/boards/{board}/distribution", "/v1/boards/default/distribution?season=2026-11", "", 200),
    ("GET /v1/boards/{board}/seasons", "/v1/boards/default/seasons", "", 200),
    ("GET /v1/boards/{board}/seasons/{season}", "/v1/boards/laps/seasons/all", "", 200),
    ("PUT /v1/boards/{board}", "/v1/boards/level", r#"{"score":"latest","snapshots":"daily"}"#, 201),
    ("POST /v1/boards/{board}/scores", "/v1/boards/level/scores", r#"{"user_id":"ada","points":50}"#, 200),
    ("POST /v1/boards/{board}/snapshots", "/v1/boards/laps/snapshots", r#"{"label":"now"}"#, 202),
    // The clock goes on to the day after: the level of a day.
    ("GET /v1/boards/{board}/snapshots", "<the day after>/v1/boards/level/snapshots", "", 200),
    ("GET /v1/boards/{board}/snapshots/{label}", "/v1/boards/level/snapshots/latest", "", 200),
    ("GET /v1/boards/{board}/snapshots/{label}/official", "/v1/boards/laps/snapshots/now/official", "", 200),
    (
        "GET /v1/boards/{board}/snapshots/{label}/scores",
        "/v1/boards/laps/snapshots/now/scores?from_rank=1&page_size=1",
        "",
        200,
    ),
    ("GET /v1/users/{user_id}/history", "/v1/users/ada/history?board=level&board=laps", "", 200),
    ("GET /v1/users/{user_id}/seasons", "/v1/users/ada/seasons?board=laps", "", 200),
    ("GET /v1/users/{user_id}/plays", "/v1/users/ada/plays?board=laps&limit=1", "", 200),
    ("GET /v1/users/{user_id}/best", "/v1/users/ada/best?board=laps", "", 200),
    ("PUT /v1/users/{user_id}", "/v1/users/ada", r#"{"name":"Ada"}"#, 200),
    ("GET /v1/users", "/v1/users?name=ada", "", 200),
    ("GET /v1/users", "/v1/users?prefix=ad", "", 200),
    ("POST /v1/boards/{board}/seasons/{season}/close", "/v1/boards/default/seasons/2026-11/close", "", 200),
    ("GET /v1/boards/{board}/seasons/{season}", "/v1/boards/default/seasons/2026-11", "", 200),
    ("GET /v1/users/{user_id}/best", "/v1/users/ada/best", "", 200),
    ("GET /v1/scores", "/v1/scores?season=2026-11", "", 200),
    ("DELETE /v1/boards/{board}/snapshots/{label}", "/v1/boards/laps/snapshots/now", "", 202),
    ("DELETE /v1/users/{user_id}", "/v1/users/ada", "", 204),
    // And badly.
    ("POST /v1/scores", "/v1/scores", r#"{"user_id":"ada","points":1}"#, 409),
    ("POST /v1/boards/{board}/seasons/{season}/close", "/v1/boards/laps/seasons/x/close", "", 400),
    ("POST /v1/boards/{board}/snapshots", "/v1/boards/laps/snapshots", r#"{"label":"2026-11"}"#, 400),
    ("GET /v1/boards/{board}/snapshots", "/v1/boards/nowhere/snapshots", "", 404),
    ("GET /v1/boards/{board}/snapshots/{label}", "/v1/boards/laps/snapshots/none", "", 404),
    ("DELETE /v1/boards/{board}/snapshots/{label}", "/v1/boards/laps/snapshots/none", "", 404),
    ("GET /v1/boards/{board}/snapshots/{label}/official", "/v1/boards/laps/snapshots/none/official", "", 404),
    (
        "GET /v1/boards/{board}/snapshots/{label}/scores",
        "/v1/boards/level/snapshots/latest/scores?page_size=0",
        "",
        400,
    ),
    ("GET /v1/users/{user_id}/history", "/v1/users/ada/history?from=x", "", 400),
    ("GET /v1/users/{user_id}/seasons", "/v1/users/ada/seasons?cursor=x", "", 400),
    ("GET /v1/users/{user_id}/plays", "/v1/users/ada/plays?board=nowhere", "", 404),
    ("GET /v1/users/{user_id}/best", "/v1/users/nobody/best", "", 404),
    ("GET /v1/users", "/v1/users", "", 400),
    ("GET /v1/boards/{board}", "/v1/boards/nowhere", "", 404),
    ("PUT /v1/boards/{board}", "/v1/boards/laps", r#"{"score":"sum"}"#, 409),
    ("PATCH /v1/boards/{board}", "/v1/boards/laps", r#"{"decimals":12}"#, 400),
    ("DELETE /v1/boards/{board}", "/v1/boards/default", "", 409),
    ("POST /v1/scores", "/v1/scores", r#"{"user_id":"a#b","points":1}"#, 400),
    (
        "POST /v1/boards/{board}/scores",
        "/v1/boards/laps/scores",
        r#"{"user_id":"ada","points":1.00001}"#,
        400,
    ),
    ("POST /v1/boards/{board}/scores/batch", "/v1/boards/nowhere/scores/batch", r#"{"plays":[]}"#, 404),
    (
        "POST /v1/boards/{board}/scores/lookup",
        "/v1/boards/laps/scores/lookup?season=x",
        r#"{"user_ids":[]}"#,
        400,
    ),
    ("GET /v1/scores", "/v1/scores?limit=0", "", 400),
    ("GET /v1/scores/{user_id}", "/v1/scores/nobody", "", 404),
    ("GET /v1/boards/{board}/scores", "/v1/boards/laps/scores?cursor=x", "", 400),
    ("GET /v1/boards/{board}/scores/{user_id}", "/v1/boards/laps/scores/nobody", "", 404),
    (
        "GET /v1/boards/{board}/scores/{user_id}/around",
        "/v1/boards/laps/scores/bob/around?above=501",
        "",
        400,
    ),
    ("GET /v1/boards/{board}/distribution", "/v1/boards/laps/distribution?buckets=0", "", 400),
    ("GET /v1/boards/{board}/seasons", "/v1/boards/nowhere/seasons", "", 404),
    ("GET /v1/boards/{board}/seasons/{season}", "/v1/boards/laps/seasons/x", "", 400),
    ("GET /v1/users/{user_id}", "/v1/users/nobody", "", 404),
    ("PATCH /v1/users/{user_id}", "/v1/users/nobody", r#"{"name":"N"}"#, 404),
    ("PUT /v1/users/{user_id}", "/v1/users/ada", r#"{"name":""}"#, 400),
    ("DELETE /v1/users/{user_id}", "/v1/users/nobody", "", 404),
    ("POST /v1/keys", "/v1/keys", r#"{"name":"first","role":"write"}"#, 400),
    ("DELETE /v1/keys/{id}", "/v1/keys/none", "", 404),
    ("DELETE /v1/boards/{board}", "/v1/boards/laps", "", 202),
    // The first key closes the server: from here on it is sent along.
    ("POST /v1/keys", "/v1/keys", r#"{"name":"root","role":"admin"}"#, 201),
    ("POST /v1/keys", "/v1/keys", r#"{"name":"eu","role":"write","boards":["laps"]}"#, 201),
    ("GET /v1/keys", "/v1/keys", "", 200),
    ("DELETE /v1/keys/{id}", "/v1/keys/<the last>", "", 200),
];

#[test]
fn every_operation_answers_as_it_says() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let (app, clock, document) = open(folder.path()).await;
        let (mut key, mut last_id) = (String::new(), String::new());
        let mut called = BTreeSet::new();
        for (operation, path, body, status) in CALLS {
            let mut path = path.replace("<the last>", &last_id);
            if let Some(rest) = path.strip_prefix("<the day after>") {
                clock.advance_ms(86_400_000);
                app.settle_due().await;
                path = rest.to_owned();
            }
            let (method, template) = operation.split_once(' ').unwrap();
            let described = &document["paths"][template][method.to_lowercase()];
            assert!(described.is_object(), "{operation} is not described");
            let mut request = Request::builder().method(method).uri(&path);
            if !key.is_empty() {
                request = request.header("x-api-key", &key);
            }
            if !body.is_empty() {
                request = request.header("content-type", "application/json");
                let schema = &described["requestBody"]["content"]["application/json"]["schema"];
                let misfit = fits(&document, schema, &serde_json::from_str(body).unwrap(), true);
                assert_eq!(misfit, Ok(()), "the body of {operation} is not described: {body}");
            }
            let answer = app.send(request.body(Body::from(*body)).unwrap()).await;
            assert_eq!(answer.status, *status, "{operation} {path}: {}", answer.body);
            assert_described(&document, operation, described, &answer);
            called.insert(((*operation).to_owned(), *status < 300));
            if let Some(made) =
                serde_json::from_str::<Value>(&answer.body).ok().filter(|made| made["key"].is_string())
            {
                if key.is_empty() {
                    made["key"].as_str().unwrap().clone_into(&mut key);
                }
                made["id"].as_str().unwrap().clone_into(&mut last_id);
            }
        }
        // Nobody without a key gets in now, and that too is described.
        for (operation, described) in operations(&document) {
            assert!(called.contains(&(operation.clone(), true)), "{operation} is never called here");
            let (method, template) = operation.split_once(' ').unwrap();
            if template == "/readyz" {
                continue;
            }
            let path = template.replace("{board}", "laps").replace(['{', '}'], "");
            let answer = app.ask(method.parse().unwrap(), &path, "").await;
            assert_eq!(answer.status, 401, "{operation} lets everybody in");
            assert_described(&document, &operation, described, &answer);
        }
    });
}

#[test]
fn a_list_that_has_not_changed_answers_304_as_described() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let (app, _, document) = open(folder.path()).await;
        for (template, path) in
            [("/v1/scores", "/v1/scores"), ("/v1/boards/{board}/scores", "/v1/boards/default/scores")]
        {
            let tag = app.get(path).await.headers["etag"].clone();
            let request = Request::get(path).header("if-none-match", tag).body(Body::empty()).unwrap();
            let answer = app.send(request).await;
            assert_eq!((answer.status, answer.body.as_str()), (304, ""));
            assert_described(&document, path, &document["paths"][template]["get"], &answer);
        }
    });
}

fn operations(document: &Value) -> BTreeMap<String, &Value> {
    let mut all = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            all.insert(format!("{} {path}", method.to_uppercase()), operation);
        }
    }
    all
}

/// The status is listed, the media type is listed for it, and the body is what its schema says.
fn assert_described(document: &Value, operation: &str, described: &Value, answer: &Answer) {
    let responses = &described["responses"];
    let class = format!("{}XX", answer.status / 100);
    let exact = &responses[answer.status.to_string()];
    let response = if exact.is_object() { exact } else { &responses[class] };
    assert!(response.is_object(), "{operation} answers {} and does not say so", answer.status);
    let Some(content) = response["content"].as_object() else {
        assert_eq!(answer.body, "", "{operation} has a body and does not say so");
        return;
    };
    let media_type = answer.headers["content-type"].to_str().unwrap();
    let media = content
        .get(media_type)
        .unwrap_or_else(|| panic!("{operation} answers {media_type}, and says {content:?}"));
    let value = serde_json::from_str(&answer.body).unwrap();
    // RFC 9457 lets problems say more than all of them do.
    let closed = answer.status < 400;
    let misfit = fits(document, &media["schema"], &value, closed);
    assert_eq!(misfit, Ok(()), "{operation} {}: {}", answer.status, answer.body);
}

/// Whether a value is what a schema says; if `closed`, without fields that it does not name. Says where it is not.
fn fits(document: &Value, schema: &Value, value: &Value, closed: bool) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.strip_prefix('#').unwrap());
        return fits(document, target.ok_or(format!("{reference} leads nowhere"))?, value, closed);
    }
    for several in ["oneOf", "anyOf"] {
        if let Some(options) = schema[several].as_array() {
            let fitting =
                options.iter().filter(|option| fits(document, option, value, closed).is_ok()).count();
            let enough = if several == "oneOf" { fitting == 1 } else { fitting > 0 };
            return if enough { Ok(()) } else { Err(format!("{fitting} of {several} fit {value}")) };
        }
    }
    let (mut properties, mut required) = (BTreeMap::new(), BTreeSet::new());
    gather(document, schema, &mut properties, &mut required);
    if !properties.is_empty() {
        let Some(object) = value.as_object() else { return Err(format!("no object: {value}")) };
        if let Some(missing) = required.iter().find(|name| !object.contains_key(**name)) {
            return Err(format!("`{missing}` is missing"));
        }
        for (name, value) in object {
            match properties.get(name.as_str()) {
                Some(property) => {
                    fits(document, property, value, closed).map_err(|why| format!("{name}: {why}"))?;
                }
                None if schema["additionalProperties"].is_object() => {
                    let others = &schema["additionalProperties"];
                    fits(document, others, value, closed).map_err(|why| format!("{name}: {why}"))?;
                }
                None if closed => return Err(format!("`{name}` is not described")),
                None => {}
            }
        }
        return Ok(());
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return Err(format!("a schema without a type: {schema}")),
    };
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "array" => value.is_array(),
        _ => false,
    };
    if !types.iter().any(|name| is(name)) {
        return Err(format!("{value} is none of {types:?}"));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        return Err(format!("{value} is less than {least}"));
    }
    for item in value.as_array().into_iter().flatten() {
        fits(document, &schema["items"], item, closed)?;
    }
    Ok(())
}

/// The fields of an object, those of all its parts together.
fn gather<'a>(
    document: &'a Value,
    schema: &'a Value,
    properties: &mut BTreeMap<&'a str, &'a Value>,
    required: &mut BTreeSet<&'a str>,
) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target =
            document.pointer(reference.strip_prefix('#').unwrap()).expect("references lead somewhere");
        return gather(document, target, properties, required);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        gather(document, part, properties, required);
    }
    properties.extend(
        schema["properties"].as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value)),
    );
    required.extend(schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str));
}
