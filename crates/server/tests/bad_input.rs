//! Goal: whatever is wrong with a request, it gets its own status and code, writes nothing, and the next request is answered.
//! Method: a table of bad requests against the real routes over the embedded store; the whole table of items is compared before and
//! after each. What breaks below the routes (broken HTTP, slow and oversized bodies) is in `bounds.rs`.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use common::app::{Answer, TestApp, runtime};
use standings_table::{Consistency, Item, ManualClock, Scan};

const NOW_MS: i64 = 1_794_000_000_000; // 2026-11-06T21:20:00Z

const JSON: &str = "application/json";

/// An application with a few boards and plays in it.
async fn prepared(folder: &std::path::Path) -> TestApp {
    let app = TestApp::in_folder(folder, Arc::new(ManualClock::new(NOW_MS))).await;
    for (board, rules) in [
        ("sums", r#"{}"#),
        ("laps", r#"{"score":"best","order":"low","decimals":3,"min_points":1,"max_points":100.5}"#),
        ("weeks", r#"{"resets":"weekly","week_starts":"friday","time_zone":"Asia/Seoul"}"#),
        ("empty", r#"{"resets":"monthly"}"#),
        ("date", r#"{}"#),
        ("sums_rank", r#"{}"#),
    ] {
        let answer = app.ask(axum::http::Method::PUT, &format!("/v1/boards/{board}"), rules).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    for (board, body) in [
        ("sums", r#"{"user_id":"rich","points":9223372036854775807,"play_id":"first"}"#),
        ("sums", r#"{"user_id":"poor","points":-9223372036854775808}"#),
        ("sums", r#"{"user_id":"ada","points":1}"#),
        ("laps", r#"{"user_id":"ada","points":12.345}"#),
        ("laps", r#"{"user_id":"bob","points":13}"#),
        ("weeks", r#"{"user_id":"ada","points":5}"#),
        ("default", r#"{"user_id":"ada","points":5}"#),
    ] {
        let answer = app.post(&format!("/v1/boards/{board}/scores"), body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    for label in ["taken", "other"] {
        let body = format!(r#"{{"label":"{label}"}}"#);
        assert_eq!(app.post("/v1/boards/sums/snapshots", &body).await.status, 202);
    }
    while !app.boards.snapshots_under_way().is_empty() {
        tokio::task::yield_now().await;
    }
    app
}

async fn everything(app: &TestApp) -> Vec<Item> {
    let mut scan = Scan { consistency: Consistency::Strong, ..Scan::all() };
    let mut items = Vec::new();
    loop {
        let page = app.boards.table().scan(&scan).await.unwrap();
        items.extend(page.items);
        match page.next {
            Some(next) => scan.start_after = Some(next),
            None => return items,
        }
    }
}

struct Case<'a> {
    request: &'a str,
    content_type: &'a str,
    body: &'a [u8],
    status: u16,
    code: &'a str,
}

fn case<'a>(request: &'a str, body: &'a str, status: u16, code: &'a str) -> Case<'a> {
    Case {
        request,
        content_type: if body.is_empty() { "" } else { JSON },
        body: body.as_bytes(),
        status,
        code,
    }
}

async fn send(app: &TestApp, case: &Case<'_>) -> Answer {
    let (method, path) = case.request.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(path);
    if !case.content_type.is_empty() {
        request = request.header("content-type", case.content_type);
    }
    app.send(request.body(Body::from(case.body.to_vec())).unwrap()).await
}

/// Each is refused as it says, changes nothing, and harms nobody after it.
fn refuse_all(cases: &[Case<'_>]) {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let app = prepared(folder.path()).await;
        let before = everything(&app).await;
        let list = app.get("/v1/boards/sums/scores").await.body;
        for case in cases {
            let what = format!("{} {:.200}", case.request, String::from_utf8_lossy(case.body));
            let answer = send(&app, case).await;
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (case.status, case.code),
                "{what}: {}",
                answer.body
            );
            assert_eq!(answer.headers["content-type"], "application/problem+json", "{what}");
            assert!(answer.body.len() < 2_000, "a refusal does not repeat what it was sent: {what}");
            assert_eq!(everything(&app).await, before, "{what} wrote something");
            assert_eq!(app.get("/v1/boards/sums/scores").await.body, list, "{what} changed the ranking");
        }
        app.assert_consistent().await;
    });
}

#[test]
fn a_bad_question_is_refused_for_what_is_wrong_with_it() {
    let (sums, weeks) = ("GET /v1/boards/sums/scores", "GET /v1/boards/weeks/scores");
    let mut cases: Vec<(String, u16, &str)> = Vec::new();
    for query in [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=ten",
        "limit=1.0",
        "limit=99999999999999999999",
        "limit=1&limit=2",
        "from_rank=0",
        "from_rank=-1",
        "from_rank=x",
        "min_score=x",
        "min_score=",
        "min_score=1.5",
        "max_score=9223372036854775808",
        "min_score=2&max_score=1",
        "from_rank=1&min_score=1",
        "page=2",
        "Limit=3",
        "%00=1",
    ] {
        cases.push((format!("{sums}?{query}"), 400, "invalid_query"));
        cases.push((format!("GET /v1/scores?{query}"), 400, "invalid_query"));
    }
    for cursor in ["x", "%00", "AAAA", "AQAAAAAAAAAAAAAAAAAAAAAAAAAA", "~", "a%20b", "", &"A".repeat(4_000)] {
        cases.push((format!("{sums}?cursor={cursor}"), 400, "invalid_cursor"));
    }
    for season in ["2026-11", "ALL", "all%20", "", "%ff", "2026-11-06"] {
        cases.push((format!("{sums}?season={season}"), 400, "invalid_season"));
    }
    for season in ["2026-11-05", "2026-11", "2026-02-30", "2026-11-06T00:00:00Z", "today"] {
        cases.push((format!("{weeks}?season={season}"), 400, "invalid_season"));
    }
    for season in ["2026-10-30", "2026-11-13", "1969-12-26", "9998-01-02"] {
        cases.push((format!("{weeks}?season={season}"), 404, "unknown_season"));
    }
    let more: &[(&str, u16, &str)] = &[
        ("GET /v1/boards/nowhere/scores", 404, "unknown_board"),
        ("GET /v1/boards/nowhere/scores/ada", 404, "unknown_board"),
        ("GET /v1/boards/nowhere/distribution", 404, "unknown_board"),
        ("GET /v1/boards/nowhere/seasons", 404, "unknown_board"),
        ("GET /v1/boards/nowhere", 404, "unknown_board"),
        ("DELETE /v1/boards/nowhere", 404, "unknown_board"),
        ("DELETE /v1/boards/default", 409, "default_board_stays"),
        ("GET /v1/boards/sums/seasons/2026-11", 400, "invalid_season"),
        ("GET /v1/boards/weeks/seasons/2026-10-30", 404, "unknown_season"),
        ("GET /v1/boards/sums/scores/nobody", 404, "unknown_user"),
        ("GET /v1/boards/sums/scores/bob", 404, "no_entry"),
        ("GET /v1/boards/sums/scores/nobody/around", 404, "unknown_user"),
        ("GET /v1/boards/sums/scores/a%23b", 400, "invalid_id"),
        ("GET /v1/boards/sums/scores/a%2Fb", 400, "invalid_id"),
        ("GET /v1/boards/sums/scores/%0a", 400, "invalid_id"),
        ("GET /v1/boards/sums/scores/%ff", 400, "invalid_path"),
        ("GET /v1/boards/sums/scores/ada?limit=1", 400, "invalid_query"),
        ("GET /v1/boards/sums/scores/ada/around?above=501", 400, "invalid_query"),
        ("GET /v1/boards/sums/scores/ada/around?below=-1", 400, "invalid_query"),
        ("GET /v1/boards/sums/distribution?buckets=0", 400, "invalid_query"),
        ("GET /v1/boards/sums/distribution?buckets=1001", 400, "invalid_query"),
        ("GET /v1/users/nobody", 404, "unknown_user"),
        ("POST /v1/users", 405, "method_not_allowed"),
        ("DELETE /v1/users/nobody", 404, "unknown_user"),
        ("GET /v1/users/a%23b", 400, "invalid_id"),
        ("GET /v2/scores", 404, "not_found"),
        ("GET /v1/scores/", 404, "not_found"),
        ("GET /v1/boards/sums/scores/ada/above", 404, "not_found"),
        ("PUT /v1/scores", 405, "method_not_allowed"),
        ("DELETE /v1/boards/sums/scores", 405, "method_not_allowed"),
        ("GET /v1/boards/sums/scores/batch/around", 404, "unknown_user"),
        ("POST /v1/boards", 405, "method_not_allowed"),
        ("POST /openapi.json", 405, "method_not_allowed"),
    ];
    cases.extend(more.iter().map(|(request, status, code)| ((*request).to_owned(), *status, *code)));
    let cases: Vec<Case<'_>> =
        cases.iter().map(|(request, status, code)| case(request, "", *status, code)).collect();
    refuse_all(&cases);
}

#[test]
fn bad_rules_and_profiles_are_refused() {
    let (put, patch, user) = ("PUT /v1/boards/new", "PATCH /v1/boards/sums", "PUT /v1/users/ada");
    let long_name = format!(r#"{{"name":"{}"}}"#, "x".repeat(257));
    let mut cases = Vec::new();
    for (body, code) in [
        (r#"{"score":"most"}"#, "invalid_body"),
        (r#"{"score":7}"#, "invalid_body"),
        (r#"{"colour":"red"}"#, "invalid_body"),
        (r#"{"decimals":-1}"#, "invalid_body"),
        (r#"{"decimals":256}"#, "invalid_body"),
        (r#"{"decimals":10}"#, "invalid_rules"),
        (r#"{"time_zone":"Mars/Olympus"}"#, "invalid_rules"),
        (r#"{"time_zone":""}"#, "invalid_rules"),
        (r#"{"min_points":2,"max_points":1}"#, "invalid_rules"),
        (r#"{"min_points":1.5}"#, "invalid_rules"),
        (r#"{"max_points":9223372036854775808}"#, "invalid_rules"),
        (r#"{"max_points":"7"}"#, "invalid_body"),
        (r#"{"late_seconds":604801}"#, "invalid_rules"),
        (r#"{"official":1001}"#, "invalid_rules"),
        (r#"{"ties":"shared","ties":"first"}"#, "invalid_body"),
        ("[]", "invalid_body"),
        ("{", "invalid_json"),
    ] {
        cases.push(case(put, body, 400, code));
        cases.push(case(patch, body, 400, code));
    }
    for body in [r#"{"score":"best"}"#, r#"{"order":"low"}"#, r#"{"decimals":2}"#, r#"{"resets":"daily"}"#] {
        cases.push(case(patch, body, 409, "rule_fixed"));
        cases.push(case("PUT /v1/boards/sums", body, 409, "rule_fixed"));
    }
    cases.push(case("PATCH /v1/boards/weeks", r#"{"week_starts":"monday"}"#, 409, "rule_fixed"));
    cases.push(case("PATCH /v1/boards/weeks", r#"{"time_zone":"UTC"}"#, 409, "rule_fixed"));
    cases.push(case("PATCH /v1/boards/nowhere", "{}", 404, "unknown_board"));
    cases.push(case("PUT /v1/boards/-x", "{}", 400, "invalid_id"));
    cases.push(case("PUT /v1/boards/%C3%BC", "{}", 400, "invalid_id"));
    for (body, code) in [
        (r#"{"name":""}"#, "invalid_profile"),
        (r#"{"name":" Ada"}"#, "invalid_profile"),
        (r#"{"name":"A\u0000"}"#, "invalid_profile"),
        (long_name.as_str(), "invalid_profile"),
        (r#"{"name":7}"#, "invalid_body"),
        (r#"{"name":"Ada","admin":true}"#, "invalid_body"),
    ] {
        cases.push(case(user, body, 400, code));
    }
    cases.push(case("PUT /v1/users/a%23b", r#"{"name":"Ada"}"#, 400, "invalid_id"));
    cases.push(case("PATCH /v1/users/nobody", r#"{"name":"Ada"}"#, 404, "unknown_user"));
    refuse_all(&cases);
}

#[test]
fn a_count_without_a_value_is_as_if_it_were_left_out() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let app = prepared(folder.path()).await;
        let plain = app.get("/v1/boards/sums/scores").await;
        let empty = app.get("/v1/boards/sums/scores?limit=&from_rank=").await;
        assert_eq!((empty.status, empty.body), (200, plain.body));
    });
}

#[test]
fn a_cursor_serves_its_own_board_and_season_only() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let app = prepared(folder.path()).await;
        let page = app.get("/v1/boards/laps/scores?limit=1").await.good();
        let cursor = page.get("next_cursor").text().unwrap().to_owned();
        assert_eq!(app.get(&format!("/v1/boards/laps/scores?cursor={cursor}")).await.status, 200);
        let cut = &cursor[..cursor.len() - 1];
        for path in [
            format!("/v1/boards/sums/scores?cursor={cursor}"),
            format!("/v1/scores?cursor={cursor}"),
            format!("/v1/boards/laps/scores?cursor={cut}"),
            format!("/v1/boards/laps/scores?cursor={cursor}A"),
        ] {
            assert_eq!(app.get(&path).await.code(), "invalid_cursor", "{path}");
        }
        let both = app.get(&format!("/v1/boards/laps/scores?cursor={cursor}&from_rank=1")).await;
        assert_eq!(both.code(), "invalid_query");
    });
}

#[path = "bad_input/history.rs"]
mod history;
#[path = "bad_input/plays.rs"]
mod plays;
