//! Goal: replies are as caches, slow lines and browsers need them. Method: the routes themselves, with the headers that matter.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::io::Read as _;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use common::app::{Answer, TestApp, runtime};
use http_body_util::BodyExt as _;
use standings_table::SystemClock;
use tower::ServiceExt as _;

async fn app(folder: &std::path::Path) -> TestApp {
    TestApp::in_folder(folder, Arc::new(SystemClock)).await
}

async fn get(app: &TestApp, path: &str, header: (&str, &str)) -> Answer {
    let request = Request::builder().uri(path).header(header.0, header.1);
    app.send(request.body(Body::empty()).unwrap()).await
}

async fn play(app: &TestApp, user: &str, points: i64) {
    app.post("/v1/scores", &format!(r#"{{"user_id":"{user}","points":{points}}}"#)).await.good();
}

#[test]
fn a_list_has_a_tag_that_holds_until_a_score_or_a_name_or_a_rule_changes() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let app = app(folder.path()).await;
        play(&app, "ada", 5).await;
        let mut last = String::new();
        for change in ["nothing yet", "a score", "a name", "a rule", "a new user"] {
            match change {
                "a score" => play(&app, "ada", 5).await,
                "a name" => {
                    app.ask(Method::PUT, "/v1/users/ada", r#"{"name":"Ada"}"#).await.good();
                }
                "a rule" => {
                    app.ask(Method::PATCH, "/v1/boards/default", r#"{"ties":"first"}"#).await.good();
                }
                "a new user" => play(&app, "bob", 10).await,
                _ => {}
            }
            let first = app.get("/v1/scores").await;
            let tag = first.headers["etag"].to_str().unwrap().to_owned();
            assert_ne!(tag, last, "{change}");
            assert_eq!(app.get("/v1/scores").await.body, first.body);
            let again = get(&app, "/v1/scores", ("if-none-match", &tag)).await;
            assert_eq!((again.status, again.body.as_str()), (304, ""));
            if !last.is_empty() {
                assert_eq!(get(&app, "/v1/scores", ("if-none-match", &last)).await.status, 200, "{change}");
            }
            last = tag;
        }
        let list = app.get("/v1/scores").await.body;
        assert!(list.contains(r#"{"user_id":"ada","user_name":"Ada","rank":1,"score":10}"#), "{list}");
        assert!(list.contains(r#"{"user_id":"bob","user_name":null,"rank":2,"score":10}"#), "{list}");
    });
}

#[test]
fn a_long_list_is_compressed_for_those_who_take_it() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let app = app(folder.path()).await;
        let plays: Vec<String> =
            (0..200).map(|at| format!(r#"{{"user_id":"user-{at}","points":{at}}}"#)).collect();
        let body = format!(r#"{{"plays":[{}]}}"#, plays.join(","));
        app.post("/v1/boards/default/scores/batch", &body).await.good();
        let plain = app.get("/v1/scores?limit=200").await;
        assert!(!plain.headers.contains_key("content-encoding"));
        let request = Request::builder().uri("/v1/scores?limit=200").header("accept-encoding", "gzip");
        let answer = app.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-encoding"], "gzip");
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(bytes.len() < plain.body.len() / 2);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
        assert_eq!(text, plain.body);
        let short = get(&app, "/v1/scores", ("accept-encoding", "gzip")).await;
        assert!(!short.headers.contains_key("content-encoding"), "not worth it");
    });
}

#[test]
fn without_keys_only_names_of_this_machine_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let app = app(folder.path()).await;
        for host in ["localhost", "localhost:7700", "127.0.0.1:7700", "[::1]:7700", "LOCALHOST"] {
            assert_eq!(get(&app, "/v1/scores", ("host", host)).await.status, 200, "{host}");
        }
        for host in
            ["evil.example", "evil.example:7700", "localhost.evil.example", "192.168.0.7", "[2001:db8::1]:80"]
        {
            let answer = get(&app, "/v1/scores", ("host", host)).await;
            assert_eq!((answer.status, answer.code().as_str()), (403, "forbidden"), "{host}");
        }
    });
}
