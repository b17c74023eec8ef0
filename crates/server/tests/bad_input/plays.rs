//! Bad plays: alone, in batches, and where a board does not take them.

use axum::http::HeaderValue;

use super::*;

#[test]
fn a_bad_play_is_refused_for_what_is_wrong_with_it() {
    let long = "x".repeat(65);
    let long_id = format!(r#"{{"user_id":"{long}","points":1}}"#);
    let long_play = format!(r#"{{"user_id":"ada","points":1,"play_id":"{long}"}}"#);
    // 64 bytes are allowed, not 64 characters.
    let wide_id = format!(r#"{{"user_id":"{}","points":1}}"#, "ü".repeat(33));
    let huge = format!(r#"{{"user_id":"ada","points":{}}}"#, "9".repeat(5_000));
    let tiny = format!(r#"{{"user_id":"ada","points":0.{}1}}"#, "0".repeat(5_000));
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let deep_points = format!(r#"{{"user_id":"ada","points":{deep}}}"#);
    let deep_object = r#"{"user_id":"#.repeat(5_000);
    let invalid_body: &[&str] = &[
        "null",
        "[]",
        "7",
        "\"ada\"",
        "{}",
        r#"{"user_id":"ada"}"#,
        r#"{"points":1}"#,
        r#"{"user_id":7,"points":1}"#,
        r#"{"user_id":null,"points":1}"#,
        r#"{"user_id":["ada"],"points":1}"#,
        r#"{"user_id":"ada","points":"1"}"#,
        r#"{"user_id":"ada","points":null}"#,
        r#"{"user_id":"ada","points":true}"#,
        r#"{"user_id":"ada","points":[1]}"#,
        r#"{"user_id":"ada","points":{"value":1}}"#,
        r#"{"user_id":"ada","points":1,"play_id":7}"#,
        r#"{"user_id":"ada","points":1,"played_at":1794000000}"#,
        r#"{"user_id":"ada","points":1,"score":9}"#,
        r#"{"user_id":"ada","points":1,"points":2}"#,
        r#"{"user_id":"ada","user_id":"bob","points":1}"#,
        r#"{"User_id":"ada","points":1}"#,
        r#"["ada",1,null,null]"#,
        r#"{"user_id":"\ud800","points":1}"#,
        &deep,
        &deep_points,
        &deep_object,
    ];
    let invalid_json: &[&str] = &[
        "{",
        r#"{"user_id":"ada","points":1}}"#,
        r#"{"user_id":"ada","points":1"#,
        r#"{"user_id":"ada","points":1,}"#,
        r#"{"user_id":"ada","points":+1}"#,
        r#"{"user_id":"ada","points":01}"#,
        r#"{"user_id":"ada","points":.5}"#,
        r#"{"user_id":"ada","points":1.}"#,
        r#"{"user_id":"ada","points":0x10}"#,
        r#"{"user_id":"ada","points":NaN}"#,
        r#"{"user_id":"ada","points":Infinity}"#,
        r#"{"user_id":"ada","points":-}"#,
        r#"{"user_id":"a	b","points":1}"#,
        r#"{'user_id':'ada','points':1}"#,
        r#"{"user_id":"ada","points":1} {"user_id":"ada","points":1}"#,
        "user_id=ada&points=1",
        "\u{feff}{}",
        "[",
    ];
    let others: &[(&str, &str)] = &[
        (r#"{"user_id":"","points":1}"#, "invalid_id"),
        (&long_id, "invalid_id"),
        (&wide_id, "invalid_id"),
        (&long_play, "invalid_id"),
        (r#"{"user_id":"a#b","points":1}"#, "invalid_id"),
        (r#"{"user_id":"a/b","points":1}"#, "invalid_id"),
        (r#"{"user_id":"a\nb","points":1}"#, "invalid_id"),
        (r#"{"user_id":"a\u0000b","points":1}"#, "invalid_id"),
        (r#"{"user_id":"\u007f","points":1}"#, "invalid_id"),
        (r#"{"user_id":"\u0085","points":1}"#, "invalid_id"),
        (r#"{"user_id":"ada","points":1,"play_id":""}"#, "invalid_id"),
        (r#"{"user_id":"ada","points":1,"play_id":"a#b"}"#, "invalid_id"),
        (r#"{"user_id":"ada","points":1.5}"#, "invalid_points"),
        (r#"{"user_id":"ada","points":1e-1}"#, "invalid_points"),
        (r#"{"user_id":"ada","points":9223372036854775808}"#, "invalid_points"),
        (r#"{"user_id":"ada","points":-9223372036854775809}"#, "invalid_points"),
        (r#"{"user_id":"ada","points":1e19}"#, "invalid_points"),
        (r#"{"user_id":"ada","points":1e400}"#, "invalid_points"),
        (r#"{"user_id":"ada","points":1e-400}"#, "invalid_points"),
        (r#"{"user_id":"ada","points":1e99999999999999999999}"#, "invalid_points"),
        (&huge, "invalid_points"),
        (&tiny, "invalid_points"),
        (r#"{"user_id":"ada","points":1,"played_at":""}"#, "invalid_time"),
        (r#"{"user_id":"ada","points":1,"played_at":"yesterday"}"#, "invalid_time"),
        (r#"{"user_id":"ada","points":1,"played_at":"2026-11-06"}"#, "invalid_time"),
        (r#"{"user_id":"ada","points":1,"played_at":"2026-11-06T20:00:00"}"#, "invalid_time"),
        (r#"{"user_id":"ada","points":1,"played_at":"2026-02-30T20:00:00Z"}"#, "invalid_time"),
        (r#"{"user_id":"ada","points":1,"played_at":"1969-12-31T23:59:59Z"}"#, "invalid_time"),
        (r#"{"user_id":"ada","points":1,"played_at":"-000001-01-01T00:00:00Z"}"#, "invalid_time"),
        (r#"{"user_id":"ada","points":1,"played_at":"2026-11-06T21:20:06Z"}"#, "played_in_future"),
        (r#"{"user_id":"ada","points":1,"played_at":"9998-01-01T00:00:00Z"}"#, "played_in_future"),
    ];
    let mut cases = Vec::new();
    for path in ["POST /v1/scores", "POST /v1/boards/sums/scores"] {
        cases.extend(invalid_body.iter().map(|body| case(path, body, 400, "invalid_body")));
        cases.extend(invalid_json.iter().map(|body| case(path, body, 400, "invalid_json")));
        cases.extend(others.iter().map(|(body, code)| case(path, body, 400, code)));
    }
    let raw = |content_type, body, status, code| Case {
        request: "POST /v1/scores",
        content_type,
        body,
        status,
        code,
    };
    let good: &[u8] = br#"{"user_id":"ada","points":1}"#;
    cases.push(raw(JSON, b"", 400, "invalid_json"));
    cases.push(raw(JSON, b"{\"user_id\":\"a\xffb\",\"points\":1}", 400, "invalid_json"));
    cases.push(raw(JSON, b"\xff\xfe{\x00}\x00", 400, "invalid_json"));
    cases.push(raw(JSON, b"\x1f\x8b\x08", 400, "invalid_json"));
    for content_type in ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json"] {
        cases.push(raw(content_type, good, 415, "unsupported_media_type"));
    }
    refuse_all(&cases);
}

#[test]
fn a_play_is_refused_where_the_board_does_not_take_it() {
    refuse_all(&[
        case(
            "POST /v1/boards/laps/scores",
            r#"{"user_id":"ada","points":0.999}"#,
            400,
            "points_out_of_bounds",
        ),
        case(
            "POST /v1/boards/laps/scores",
            r#"{"user_id":"ada","points":100.501}"#,
            400,
            "points_out_of_bounds",
        ),
        case("POST /v1/boards/laps/scores", r#"{"user_id":"ada","points":-5}"#, 400, "points_out_of_bounds"),
        case("POST /v1/boards/laps/scores", r#"{"user_id":"ada","points":12.3456}"#, 400, "invalid_points"),
        case("POST /v1/boards/laps/scores", r#"{"user_id":"ada","points":1e16}"#, 400, "invalid_points"),
        case("POST /v1/boards/sums/scores", r#"{"user_id":"rich","points":1}"#, 422, "score_overflow"),
        case("POST /v1/boards/sums/scores", r#"{"user_id":"poor","points":-1}"#, 422, "score_overflow"),
        case(
            "POST /v1/boards/sums/scores",
            r#"{"user_id":"rich","points":2,"play_id":"first"}"#,
            409,
            "play_id_reused",
        ),
        case(
            "POST /v1/boards/weeks/scores",
            r#"{"user_id":"ada","points":1,"played_at":"2026-10-29T14:59:59Z"}"#,
            409,
            "season_closed",
        ),
        case(
            "POST /v1/scores",
            r#"{"user_id":"ada","points":1,"played_at":"1970-01-01T00:00:00Z"}"#,
            409,
            "season_closed",
        ),
        case("POST /v1/boards/nowhere/scores", r#"{"user_id":"ada","points":1}"#, 404, "unknown_board"),
        case("POST /v1/boards/nowhere/scores/batch", r#"{"plays":[]}"#, 404, "unknown_board"),
        case("POST /v1/boards/a%20b/scores", r#"{"user_id":"ada","points":1}"#, 400, "invalid_id"),
        case("POST /v1/boards/%ff/scores", r#"{"user_id":"ada","points":1}"#, 400, "invalid_path"),
        case("POST /v1/boards/sums%23x/scores", r#"{"user_id":"ada","points":1}"#, 400, "invalid_id"),
    ]);
}

#[test]
fn a_bad_batch_or_lookup_is_refused_as_a_whole() {
    let plays = |count: usize| {
        format!(r#"{{"plays":[{}]}}"#, vec![r#"{"user_id":"ada","points":1}"#; count].join(","))
    };
    let users = |count: usize| format!(r#"{{"user_ids":[{}]}}"#, vec![r#""ada""#; count].join(","));
    let (too_many_plays, too_many_users) = (plays(1_001), users(1_001));
    let batch = "POST /v1/boards/sums/scores/batch";
    let lookup = "POST /v1/boards/sums/scores/lookup";
    refuse_all(&[
        case(batch, &too_many_plays, 400, "too_many"),
        case(batch, r#"{"plays":{}}"#, 400, "invalid_body"),
        case(batch, r#"{"plays":null}"#, 400, "invalid_body"),
        case(batch, r#"[{"user_id":"ada","points":1}]"#, 400, "invalid_body"),
        case(batch, r#"{"plays":[],"plays":[]}"#, 400, "invalid_body"),
        case(batch, r#"{"plays":[],"atomic":true}"#, 400, "invalid_body"),
        case(batch, r#"{"plays":[{"user_id":"ada","points":1}"#, 400, "invalid_json"),
        case(batch, r#"{"plays":[{"user_id":"ada","points":1},]}"#, 400, "invalid_json"),
        case(lookup, &too_many_users, 400, "too_many"),
        case(lookup, r#"{"user_ids":"ada"}"#, 400, "invalid_body"),
        case(lookup, r#"{"user_ids":[1]}"#, 400, "invalid_body"),
        case(lookup, r#"{"user_ids":["a#b"]}"#, 400, "invalid_id"),
        case(lookup, r#"{"user_ids":[""]}"#, 400, "invalid_id"),
        case(lookup, r#"{}"#, 400, "invalid_body"),
        case(
            "POST /v1/boards/sums/scores/lookup?season=2026-11",
            r#"{"user_ids":[]}"#,
            400,
            "invalid_season",
        ),
        case("POST /v1/boards/nowhere/scores/lookup", r#"{"user_ids":[]}"#, 404, "unknown_board"),
    ]);
}

#[test]
fn a_key_in_the_header_that_is_not_the_plays_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let app = prepared(folder.path()).await;
        let before = everything(&app).await;
        let long = "x".repeat(65);
        for (header, body, code) in [
            (&b"other"[..], r#"{"user_id":"ada","points":1,"play_id":"mine"}"#, "invalid_body"),
            (b"", r#"{"user_id":"ada","points":1}"#, "invalid_id"),
            (b"\"\"", r#"{"user_id":"ada","points":1}"#, "invalid_id"),
            (b"a/b", r#"{"user_id":"ada","points":1}"#, "invalid_id"),
            (b"\xc3\xbc", r#"{"user_id":"ada","points":1}"#, "invalid_id"),
            (long.as_bytes(), r#"{"user_id":"ada","points":1}"#, "invalid_id"),
        ] {
            let request = Request::post("/v1/boards/sums/scores")
                .header("content-type", JSON)
                .header("idempotency-key", HeaderValue::from_bytes(header).unwrap());
            let answer = app.send(request.body(Body::from(body)).unwrap()).await;
            assert_eq!((answer.status, answer.code().as_str()), (400, code), "{header:?}: {}", answer.body);
        }
        assert_eq!(everything(&app).await, before);
    });
}

#[test]
fn a_bad_play_in_a_batch_is_refused_alone() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let app = prepared(folder.path()).await;
        let body = r#"{"plays":[
            {"user_id":"new","points":1}, 7, {"user_id":"new","points":"1"}, {"user_id":"","points":1}, {"user_id":"rich","points":1},
            {"user_id":"rich","points":5,"play_id":"first"}, {"user_id":"new","points":1.5}, null, {"user_id":"new","points":2},
            {"user_id":"new","points":1,"played_at":"soon"}, {"user_id":"rich","points":9223372036854775807,"play_id":"first"}
        ]}"#;
        let reply = app.post("/v1/boards/sums/scores/batch", body).await.good();
        let codes: Vec<String> = reply
            .get("results")
            .list()
            .iter()
            .map(|result| match result {
                common::exact::Exact::Object(fields) if fields.contains_key("code") => {
                    result.get("code").text().unwrap().to_owned()
                }
                _ => format!("{:?} {:?}", result.get("score"), result.get("duplicate")),
            })
            .collect();
        let expected = [
            "1 false",
            "invalid_body",
            "invalid_body",
            "invalid_id",
            "score_overflow",
            "play_id_reused",
            "invalid_points",
            "invalid_body",
            "3 false",
            "invalid_time",
            "9223372036854775807 true",
        ];
        assert_eq!(codes, expected);
        app.assert_consistent().await;
    });
}
