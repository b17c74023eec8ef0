//! Goal: the questions that games ask of the product are answered: those of the acceptance list that apply today, each by its number.
//! Method: the routes a game calls, over the embedded store, with a clock that the test moves.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::future::Future;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use common::app::{TestApp, runtime, table_in};
use common::exact::Exact;
use standings_table::{ManualClock, MeteredTable, SystemClock, Table, meter};

/// A time in the tests' month, 2026-11.
fn ms(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

fn with_app<F: Future<Output = ()>>(test: impl FnOnce(TestApp, Arc<ManualClock>) -> F) {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(ms("2026-11-13T10:00:00Z")));
        let app = TestApp::in_folder(folder.path(), clock.clone()).await;
        test(app, clock).await;
    });
}

async fn put(app: &TestApp, path: &str, body: &str) {
    let answer = app.ask(Method::PUT, path, body).await;
    assert!([200, 201].contains(&answer.status), "{}", answer.body);
}

async fn play(app: &TestApp, path: &str, user: &str, points: i64) -> Exact {
    app.post(path, &format!(r#"{{"user_id":"{user}","points":{points}}}"#)).await.good()
}

/// Rows of a list as `user rank score`.
fn rows(list: &Exact) -> Vec<String> {
    let text = |row: &Exact| {
        format!("{} {:?} {:?}", row.get("user_id").text().unwrap(), row.get("rank"), row.get("score"))
    };
    list.get("data").list().iter().map(text).collect()
}

#[test]
fn a1_this_weeks_ranking_highest_first() {
    with_app(|app, clock| async move {
        let rules = r#"{"score":"best","resets":"weekly","week_starts":"friday","max_points":99999}"#;
        put(&app, "/v1/boards/weekly", rules).await;
        let scores = "/v1/boards/weekly/scores";
        // From Friday to Thursday, as 2014-05-09 … 2014-05-15.
        clock.set_ms(ms("2014-05-09T00:00:00Z"));
        assert_eq!(play(&app, scores, "ada", 99_999).await.get("season"), &"2014-05-09".into());
        play(&app, scores, "bob", 50_000).await;
        clock.set_ms(ms("2014-05-15T23:59:59Z"));
        play(&app, scores, "eve", 70_000).await;
        play(&app, scores, "bob", 80_000).await;
        play(&app, scores, "bob", 10).await;
        let list = app.get(scores).await.good();
        assert_eq!(rows(&list), ["ada 1 99999", "bob 2 80000", "eve 3 70000"]);
        clock.set_ms(ms("2014-05-16T00:00:00Z"));
        assert_eq!(rows(&app.get(scores).await.good()), [""; 0], "a new week begins empty");
        assert_eq!(play(&app, scores, "bob", 5).await.get("season"), &"2014-05-16".into());
        assert_eq!(
            app.get(&format!("{scores}?season=2014-05-09")).await.good().get("data"),
            list.get("data")
        );
        let too_much = app.post(scores, r#"{"user_id":"eve","points":100000}"#).await;
        assert_eq!(too_much.code(), "points_out_of_bounds");
    });
}

#[test]
fn c1_a_play_is_200_when_counted_and_400_when_the_arguments_are_wrong() {
    with_app(|app, _| async move {
        let reply = play(&app, "/v1/scores", "ada", 1).await;
        let Exact::Object(fields) = &reply else { panic!("no object") };
        let names: Vec<&str> = fields.keys().map(String::as_str).collect();
        let expected =
            ["duplicate", "improved", "play_id", "previous_rank", "rank", "score", "season", "user_id"];
        assert_eq!(names, expected);
        assert_eq!((reply.get("score").number(), reply.get("rank").number()), (1, 1));
        assert_eq!(reply.get("season"), &"2026-11".into());
        for wrong in [r#"{"user_id":"ada"}"#, r#"{"points":1}"#, r#"{"user_id":"ada","points":"1"}"#, "", "{"]
        {
            let request = Request::post("/v1/scores").header("content-type", "application/json");
            let answer = app.send(request.body(Body::from(wrong)).unwrap()).await;
            assert_eq!(answer.status, 400, "{wrong}: {}", answer.body);
        }
        // Only game servers: a key that may read may not write.
        let make = |body: &'static str| {
            Request::post("/v1/keys")
                .header("content-type", "application/json")
                .body(Body::from(body))
                .unwrap()
        };
        let admin = app.send(make(r#"{"name":"root","role":"admin"}"#)).await.good();
        let mut second = make(r#"{"name":"page","role":"read"}"#);
        second.headers_mut().insert("x-api-key", admin.get("key").text().unwrap().parse().unwrap());
        let reader = app.send(second).await.good();
        let body = r#"{"user_id":"ada","points":1}"#;
        for (key, status) in [(None, 401), (reader.get("key").text(), 403), (admin.get("key").text(), 200)] {
            let mut request = Request::post("/v1/scores").header("content-type", "application/json");
            if let Some(key) = key {
                request = request.header("authorization", format!("Bearer {key}"));
            }
            assert_eq!(app.send(request.body(Body::from(body)).unwrap()).await.status, status);
        }
    });
}

#[test]
fn c2_the_top_ten_with_names_and_total() {
    with_app(|app, _| async move {
        for user in 0..25 {
            play(&app, "/v1/scores", &format!("u{user:02}"), user).await;
        }
        put(&app, "/v1/users/u24", r#"{"name":"Ada"}"#).await;
        let list = app.get("/v1/scores").await.good();
        let expected: Vec<String> =
            (0..10).map(|at| format!("u{} {} {}", 24 - at, at + 1, 24 - at)).collect();
        assert_eq!(rows(&list), expected);
        assert_eq!(list.get("total").number(), 25);
        let first = &list.get("data").list()[0];
        assert_eq!(
            *first,
            [
                ("user_id", "u24".into()),
                ("user_name", "Ada".into()),
                ("rank", 1.into()),
                ("score", 24.into())
            ]
            .into()
        );
    });
}

#[test]
fn c3_one_user_with_score_and_rank() {
    with_app(|app, _| async move {
        for (user, points) in [("ada", 3), ("bob", 5), ("eve", 1)] {
            play(&app, "/v1/scores", user, points).await;
        }
        let found = app.get("/v1/scores/ada").await.good();
        let info = found.get("user_info");
        assert_eq!(info.get("user_id"), &"ada".into());
        assert_eq!((info.get("score").number(), info.get("rank").number()), (3, 2));
        assert_eq!(app.get("/v1/scores/nobody").await.code(), "unknown_user");
    });
}

#[test]
fn c4_the_four_above_and_the_four_below() {
    with_app(|app, _| async move {
        for user in 0..30 {
            play(&app, "/v1/scores", &format!("u{user:02}"), 100 - user).await;
        }
        let around = async |user: &str| {
            let path = format!("/v1/boards/default/scores/{user}/around");
            let found = app.get(&path).await.good();
            let users =
                found.get("data").list().iter().map(|row| row.get("user_id").text().unwrap().to_owned());
            users.collect::<Vec<_>>()
        };
        let users =
            |from: usize, to: usize| (from..=to).map(|user| format!("u{user:02}")).collect::<Vec<_>>();
        assert_eq!(around("u15").await, users(11, 19));
        assert_eq!(around("u01").await, users(0, 8), "filled up below");
        assert_eq!(around("u29").await, users(21, 29), "filled up above");
    });
}

#[test]
fn c5_equal_scores_share_a_rank_or_whoever_was_first_is_ahead() {
    with_app(|app, clock| async move {
        put(&app, "/v1/boards/first", r#"{"ties":"first"}"#).await;
        for board in ["default", "first"] {
            let scores = format!("/v1/boards/{board}/scores");
            for (user, points) in [("late", 5), ("top", 9), ("low", 1), ("early", 7)] {
                clock.advance_ms(1_000);
                play(&app, &scores, user, points).await;
            }
            clock.advance_ms(1_000);
            play(&app, &scores, "late", 2).await;
            let expected = match board {
                "default" => ["top 1 9", "early 2 7", "late 2 7", "low 4 1"],
                _ => ["top 1 9", "early 2 7", "late 3 7", "low 4 1"],
            };
            assert_eq!(rows(&app.get(&scores).await.good()), expected);
        }
    });
}

#[test]
fn c6_a_change_shows_at_once() {
    with_app(|app, _| async move {
        play(&app, "/v1/scores", "ada", 5).await;
        for points in 1..=20 {
            let reply = play(&app, "/v1/scores", "bob", 1).await;
            assert_eq!(reply.get("score").number(), points);
            let info = app.get("/v1/scores/bob").await.good();
            assert_eq!(info.get("user_info").get("rank"), reply.get("rank"));
            let list = app.get("/v1/scores").await.good();
            let bob = format!("bob {:?} {points}", reply.get("rank"));
            assert!(rows(&list).contains(&bob), "{list:?}");
            put(&app, "/v1/users/bob", &format!(r#"{{"name":"Bob {points}"}}"#)).await;
            let named = app.get("/v1/scores/bob").await.good();
            assert_eq!(named.get("user_info").get("user_name"), &Exact::from(format!("Bob {points}")));
        }
    });
}

#[test]
fn c8_the_ranking_is_rebuilt_from_the_durable_record_to_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(ms("2026-11-13T10:00:00Z")));
        let app = TestApp::in_folder(folder.path(), clock.clone()).await;
        let mut random = fastrand::Rng::with_seed(common::app::seed());
        for number in 0..400 {
            clock.advance_ms(random.i64(0..1_000));
            play(&app, "/v1/scores", &format!("u{}", random.u32(..50)), random.i64(-2..9)).await;
            if number == 200 {
                app.boards.write_checkpoints().await.unwrap();
            }
        }
        let list = app.get("/v1/scores?limit=1000").await.body;
        app.assert_consistent().await;
        drop(app);
        let checkpoints = folder.path().join("checkpoints");
        // From a checkpoint and the plays since; from a damaged one; without any.
        for harm in ["none", "damage", "loss"] {
            match harm {
                "damage" => {
                    for file in std::fs::read_dir(&checkpoints).unwrap() {
                        let path = file.unwrap().path();
                        let mut bytes = std::fs::read(&path).unwrap();
                        let middle = bytes.len() / 2;
                        bytes[middle] ^= 1;
                        std::fs::write(&path, bytes).unwrap();
                    }
                }
                "loss" => std::fs::remove_dir_all(&checkpoints).unwrap(),
                _ => {}
            }
            let app = TestApp::in_folder(folder.path(), clock.clone()).await;
            assert_eq!(app.get("/v1/scores?limit=1000").await.body, list, "checkpoints: {harm}");
            // Play by play: what every entry is made of.
            let report = app.boards.check(false, |_| {}).await.unwrap();
            assert_eq!((report.differences, report.plays), (0, 400), "{:#?}", report.named);
        }
    });
}

#[test]
fn c13_names_come_without_a_read_per_row() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let table = Arc::new(MeteredTable::new(table_in(folder.path()), SystemClock));
        let app = TestApp::open(table.clone() as Arc<dyn Table>, Arc::new(SystemClock), None).await;
        for user in 0..150 {
            play(&app, "/v1/scores", &format!("u{user:03}"), user).await;
            put(&app, &format!("/v1/users/u{user:03}"), &format!(r#"{{"name":"User {user}"}}"#)).await;
        }
        // Another start: nothing is at hand yet.
        let app = TestApp::open(table.clone() as Arc<dyn Table>, Arc::new(SystemClock), None).await;
        let reads = || {
            let requests = meter::KINDS.iter().map(|kind| table.meter().totals(*kind).calls);
            requests.sum::<u64>()
        };
        let before = reads();
        let first = app.get("/v1/scores?limit=150").await.good();
        assert!(reads() - before <= 2, "150 names took {} requests", reads() - before);
        let before = reads();
        let again = app.get("/v1/scores?limit=150").await.good();
        assert_eq!((reads(), &again), (before, &first), "known names take no request at all");
        let name = |row: &Exact| row.get("user_name").text().unwrap().to_owned();
        let names: Vec<String> = again.get("data").list().iter().map(name).collect();
        assert_eq!(names, (0..150).rev().map(|user| format!("User {user}")).collect::<Vec<_>>());
    });
}
