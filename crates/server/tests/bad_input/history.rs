//! Seasons, snapshots and what has been, badly asked for.

use super::*;

#[test]
fn bad_questions_about_seasons_and_snapshots_are_refused() {
    let mut cases: Vec<(String, u16, &str)> = Vec::new();
    let many = "board=a&".repeat(21).trim_end_matches('&').to_owned();
    let boards: Vec<String> = (0..21).map(|at| format!("board=b{at}")).collect();
    let long = "x".repeat(65);
    // Whatever is asked of a board that is not there.
    for request in [
        "POST /v1/boards/nowhere/seasons/all/close",
        "GET /v1/boards/nowhere/snapshots",
        "POST /v1/boards/nowhere/snapshots",
        "GET /v1/boards/nowhere/snapshots/latest",
        "DELETE /v1/boards/nowhere/snapshots/x",
        "GET /v1/boards/nowhere/snapshots/x/official",
        "GET /v1/boards/nowhere/snapshots/x/scores",
        "GET /v1/users/ada/seasons?board=nowhere",
        "GET /v1/users/ada/best?board=nowhere",
        "GET /v1/users/ada/plays?board=nowhere",
        "GET /v1/users/ada/history?board=nowhere",
        &format!("GET /v1/users/ada/history?{many}"),
    ] {
        cases.push((request.to_owned(), 404, "unknown_board"));
    }
    for season in ["2026-11", "ALL", "x", "all%20", "%20"] {
        cases.push((format!("POST /v1/boards/sums/seasons/{season}/close"), 400, "invalid_season"));
    }
    for season in ["2026-10-30", "2026-11-13", "1969-12-26"] {
        cases.push((format!("POST /v1/boards/weeks/seasons/{season}/close"), 404, "unknown_season"));
    }
    // The month that runs, on a board that nobody has played on.
    cases.push(("POST /v1/boards/empty/seasons/2026-11/close".to_owned(), 404, "unknown_season"));
    for label in ["a%23b", "a%2Fb", "%C3%BC", "-x", "a%20b", &long] {
        for part in ["", "/official", "/scores"] {
            cases.push((format!("GET /v1/boards/sums/snapshots/{label}{part}"), 400, "invalid_id"));
        }
        cases.push((format!("DELETE /v1/boards/sums/snapshots/{label}"), 400, "invalid_id"));
    }
    for label in ["nothing", "2026-11-06", "all", "latest"] {
        // Weeks have seasons, and no snapshot of a running one.
        for part in ["", "/official", "/scores"] {
            cases.push((format!("GET /v1/boards/weeks/snapshots/{label}{part}"), 404, "unknown_snapshot"));
        }
        cases.push((format!("DELETE /v1/boards/weeks/snapshots/{label}"), 404, "unknown_snapshot"));
    }
    for query in [
        "page_size=0",
        "page_size=1001",
        "page_size=-1",
        "page_size=ten",
        "limit=5",
        "season=all",
        "from_rank=0",
        "from_rank=x",
        "min_score=x",
        "min_score=1.5",
        "min_score=2&max_score=1",
        "max_score=9223372036854775808",
        "from_rank=1&min_score=1",
    ] {
        cases.push((format!("GET /v1/boards/sums/snapshots/taken/scores?{query}"), 400, "invalid_query"));
    }
    for list in ["/v1/users/ada/seasons?", "/v1/users/ada/plays?", "/v1/users/ada/history?board=sums&"] {
        for query in ["limit=0", "limit=1001", "limit=x", "page_size=5", "limit=1&limit=2"] {
            cases.push((format!("GET {list}{query}"), 400, "invalid_query"));
        }
        for cursor in ["x", "%00", "AAAA", "", &"A".repeat(4_000)] {
            cases.push((format!("GET {list}cursor={cursor}"), 400, "invalid_cursor"));
        }
    }
    for part in ["seasons", "best", "plays", "history"] {
        cases.push((format!("GET /v1/users/a%23b/{part}?board=sums"), 400, "invalid_id"));
        cases.push((format!("GET /v1/users/ada/{part}?board=%C3%BC"), 400, "invalid_id"));
        cases.push((format!("GET /v1/users/ada/{part}?board="), 400, "invalid_id"));
    }
    for query in ["board=sums&board=laps", "limit=5", "cursor=x"] {
        cases.push((format!("GET /v1/users/ada/best?{query}"), 400, "invalid_query"));
    }
    for query in [
        "from=2026-02-22&to=2026-02-21",
        "from=2026-02-30",
        "from=yesterday",
        "to=2026-2-1",
        "to=",
        "from=%00",
        "to=2026-02-21T00:00:00Z",
        "from=2026-02-21&from=2026-02-22",
        "day=2026-02-21",
    ] {
        cases.push((format!("GET /v1/users/ada/history?board=sums&{query}"), 400, "invalid_query"));
    }
    cases.push((format!("GET /v1/users/ada/history?{}", boards.join("&")), 400, "too_many"));
    for query in ["", "board=date", "board=sums&board=sums_rank"] {
        cases.push((format!("GET /v1/users/ada/history?{query}"), 400, "invalid_query"));
    }
    for query in [
        "",
        "name=",
        "prefix=a",
        "prefix=",
        "name=ada&prefix=ad",
        "name=ada&limit=0",
        "prefix=ad&limit=1001",
        "id=ada",
        &format!("name={}", "x".repeat(257)),
        &format!("prefix={}", "x".repeat(1_500)),
    ] {
        cases.push((format!("GET /v1/users?{query}"), 400, "invalid_query"));
    }
    let cases: Vec<Case<'_>> =
        cases.iter().map(|(request, status, code)| case(request, "", *status, code)).collect();
    refuse_all(&cases);
}

#[test]
fn bad_labels_are_refused() {
    let take = "POST /v1/boards/sums/snapshots";
    let long = format!(r#"{{"label":"{}"}}"#, "x".repeat(65));
    let mut cases = Vec::new();
    for label in ["2026-11-06", "2026-11", "all", "latest"] {
        cases.push((format!(r#"{{"label":"{label}"}}"#), 400, "invalid_snapshot"));
    }
    for label in ["", "a b", "a/b", "-x", "ü", "a#b"] {
        cases.push((format!(r#"{{"label":"{label}"}}"#), 400, "invalid_id"));
    }
    cases.push((long, 400, "invalid_id"));
    cases.push((r#"{"label":"taken"}"#.to_owned(), 409, "snapshot_exists"));
    for body in [r#"{"label":7}"#, r#"{"name":"x"}"#, r#"["x"]"#, "7"] {
        cases.push((body.to_owned(), 400, "invalid_body"));
    }
    cases.push(("{".to_owned(), 400, "invalid_json"));
    let mut cases: Vec<Case<'_>> =
        cases.iter().map(|(body, status, code)| case(take, body, *status, code)).collect();
    let text =
        Case { content_type: "text/plain", ..case(take, r#"{"label":"x"}"#, 415, "unsupported_media_type") };
    cases.push(text);
    refuse_all(&cases);
}

#[test]
fn a_cursor_serves_its_own_list_only() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let app = prepared(folder.path()).await;
        for (board, points) in [("sums", 1), ("sums", 2), ("laps", 12)] {
            for user in ["ada", "bob"] {
                let body = format!(r#"{{"user_id":"{user}","points":{points}}}"#);
                app.post(&format!("/v1/boards/{board}/scores"), &body).await.good();
            }
        }
        let cursor = async |path: &str| {
            app.get(path).await.good().get("next_cursor").text().expect("there is more").to_owned()
        };
        let scores = cursor("/v1/boards/sums/scores?limit=1").await;
        let taken = cursor("/v1/boards/sums/snapshots/taken/scores?page_size=1&from_rank=1").await;
        let plays = cursor("/v1/users/ada/plays?board=sums&limit=1").await;
        for (path, own) in [
            ("/v1/boards/sums/scores?", &scores),
            ("/v1/boards/sums/snapshots/taken/scores?", &taken),
            ("/v1/users/ada/plays?board=sums&", &plays),
        ] {
            assert_eq!(app.get(&format!("{path}cursor={own}")).await.status, 200, "{path}");
        }
        let lists = [
            "/v1/boards/sums/scores?",
            "/v1/boards/laps/scores?",
            "/v1/boards/sums/snapshots/taken/scores?",
            "/v1/boards/sums/snapshots/other/scores?",
            "/v1/users/ada/plays?board=sums&",
            "/v1/users/ada/plays?board=laps&",
            "/v1/users/bob/plays?board=sums&",
            "/v1/users/ada/seasons?board=sums&",
            "/v1/users/ada/history?board=sums&",
        ];
        for (cursor, own) in [(&scores, 0), (&taken, 2), (&plays, 4)] {
            for (at, list) in lists.iter().enumerate().filter(|(at, _)| *at != own) {
                let answer = app.get(&format!("{list}cursor={cursor}")).await;
                assert_eq!(answer.code(), "invalid_cursor", "{at} {list}: {}", answer.body);
            }
        }
        let both = format!("/v1/boards/sums/snapshots/taken/scores?cursor={taken}&from_rank=1");
        assert_eq!(app.get(&both).await.code(), "invalid_query");
    });
}
