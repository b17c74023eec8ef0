//! Goal: the questions that games ask of the product are answered: those of the acceptance list that apply today, each by its number.
//! Method: the routes a game calls, over the embedded store, with a clock that the test moves. Those about days are in `access_patterns/days.rs`.

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

/// The board of a casual mobile game: the best of the week, from Friday to Thursday in Seoul.
const WEEKLY: &str = r#"{"score":"best","resets":"weekly","week_starts":"friday","time_zone":"Asia/Seoul","max_points":99999}"#;
const SCORES: &str = "/v1/boards/weekly/scores";

async fn weekly(app: &TestApp, clock: &ManualClock, more: &str) {
    clock.set_ms(ms("2014-05-01T00:00:00Z"));
    put(app, "/v1/boards/weekly", &WEEKLY.replace('}', &format!("{more}}}"))).await;
}

/// Plays of a week, given by its first day, in the middle of it; then the week is over and settled.
async fn week(app: &TestApp, clock: &ManualClock, first_day: &str, plays: &[(&str, i64)]) {
    let start = ms(&format!("{first_day}T00:00:00+09:00"));
    clock.set_ms(start + 3 * 86_400_000);
    for (user, points) in plays {
        clock.advance_ms(1_000);
        assert_eq!(play(app, SCORES, user, *points).await.get("season"), &first_day.into());
    }
    clock.set_ms(start + 7 * 86_400_000 + 300_000);
    assert!(app.settle_due().await > 0, "a season is over");
}

#[test]
fn a1_this_weeks_ranking_highest_first() {
    with_app(|app, clock| async move {
        weekly(&app, &clock, "").await;
        // From Friday to Thursday, as 2014-05-09 … 2014-05-15.
        clock.set_ms(ms("2014-05-09T00:00:00+09:00"));
        assert_eq!(play(&app, SCORES, "ada", 99_999).await.get("season"), &"2014-05-09".into());
        play(&app, SCORES, "bob", 50_000).await;
        clock.set_ms(ms("2014-05-15T23:59:59+09:00"));
        play(&app, SCORES, "eve", 70_000).await;
        play(&app, SCORES, "bob", 80_000).await;
        play(&app, SCORES, "bob", 10).await;
        let list = app.get(SCORES).await.good();
        assert_eq!(rows(&list), ["ada 1 99999", "bob 2 80000", "eve 3 70000"]);
        clock.set_ms(ms("2014-05-16T00:00:00+09:00"));
        assert_eq!(app.settle_due().await, 0, "late plays are still taken");
        assert_eq!(rows(&app.get(SCORES).await.good()), [""; 0], "a new week begins empty");
        assert_eq!(play(&app, SCORES, "bob", 5).await.get("season"), &"2014-05-16".into());
        let last_week = format!("{SCORES}?season=2014-05-09");
        assert_eq!(app.get(&last_week).await.good().get("data"), list.get("data"));
        let late = r#"{"user_id":"eve","points":71000,"played_at":"2014-05-15T23:59:59+09:00"}"#;
        assert_eq!(app.post(SCORES, late).await.good().get("season"), &"2014-05-09".into());
        clock.set_ms(ms("2014-05-16T00:05:00+09:00"));
        assert_eq!(app.settle_due().await, 1);
        let late = app.post(SCORES, &late.replace("71000", "72000")).await;
        assert_eq!((late.status, late.code().as_str()), (409, "season_closed"));
        assert_eq!(rows(&app.get(&last_week).await.good()), ["ada 1 99999", "bob 2 80000", "eve 3 71000"]);
        assert_eq!(rows(&app.get(SCORES).await.good()), ["bob 1 5"]);
        let too_much = app.post(SCORES, r#"{"user_id":"eve","points":100000}"#).await;
        assert_eq!(too_much.code(), "points_out_of_bounds");
    });
}

/// Seasons as `season state rank score of players`.
fn seasons(reply: &Exact) -> Vec<String> {
    let text = |row: &Exact| {
        format!(
            "{} {} {:?} {:?} of {:?}",
            row.get("season").text().unwrap(),
            row.get("state").text().unwrap(),
            row.get("rank"),
            row.get("score"),
            row.get("players")
        )
    };
    reply.get("data").list().iter().map(text).collect()
}

#[test]
fn a3_recent_seasons_newest_first() {
    with_app(|app, clock| async move {
        weekly(&app, &clock, "").await;
        week(&app, &clock, "2014-05-09", &[("ada", 500), ("bob", 700)]).await;
        week(&app, &clock, "2014-05-16", &[("ada", 900), ("bob", 100), ("eve", 100)]).await;
        week(&app, &clock, "2014-05-23", &[("bob", 300)]).await;
        week(&app, &clock, "2014-05-30", &[("ada", 300), ("bob", 300)]).await;
        clock.set_ms(ms("2014-06-07T00:00:00Z"));
        play(&app, SCORES, "eve", 40).await;
        play(&app, SCORES, "ada", 20).await;
        let path = "/v1/users/ada/seasons?board=weekly";
        let all = app.get(path).await.good();
        let expected = [
            "2014-06-06 open 2 20 of 2",
            "2014-05-30 final 1 300 of 2",
            "2014-05-16 final 1 900 of 3",
            "2014-05-09 final 2 500 of 2",
        ];
        assert_eq!(seasons(&all), expected);
        assert_eq!(all.get("next_cursor"), &Exact::null());
        for limit in 1..=4 {
            let (mut found, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = app.get(&format!("{path}&limit={limit}{cursor}")).await.good();
                found.extend(seasons(&page));
                let Some(next) = page.get("next_cursor").text() else { break };
                cursor = format!("&cursor={next}");
            }
            assert_eq!(found, expected, "{limit} at a time");
        }
        // Plays, newest first, page by page.
        let plays = app.get("/v1/users/ada/plays?board=weekly&limit=3").await.good();
        let points = |reply: &Exact| {
            let rows = reply.get("data").list().iter();
            rows.map(|row| format!("{:?} {:?}", row.get("season"), row.get("points"))).collect::<Vec<_>>()
        };
        assert_eq!(points(&plays), [r#""2014-06-06" 20"#, r#""2014-05-30" 300"#, r#""2014-05-16" 900"#]);
        let next = plays.get("next_cursor").text().unwrap();
        let plays = app.get(&format!("/v1/users/ada/plays?board=weekly&limit=3&cursor={next}")).await.good();
        assert_eq!(points(&plays), [r#""2014-05-09" 500"#]);
        assert_eq!(seasons(&app.get("/v1/users/nobody/seasons?board=weekly").await.good()), [""; 0]);
        app.assert_consistent().await;
    });
}

#[test]
fn a4_my_best_week_ever() {
    with_app(|app, clock| async move {
        weekly(&app, &clock, r#","keep_seasons":2"#).await;
        let best = async |user: &str| {
            let best = app.get(&format!("/v1/users/{user}/best?board=weekly")).await.good();
            (best.get("season").text().unwrap().to_owned(), best.get("score").number(), best)
        };
        week(&app, &clock, "2014-05-09", &[("ada", 900), ("bob", 950)]).await;
        week(&app, &clock, "2014-05-16", &[("ada", 100), ("bob", 970)]).await;
        let (season, score, reply) = best("ada").await;
        assert_eq!((season.as_str(), score), ("2014-05-09", 900));
        assert_eq!((reply.get("rank").number(), reply.get("players").number()), (2, 2));
        // A running week counts as soon as it is better; an equal one came later.
        clock.set_ms(ms("2014-05-24T00:00:00Z"));
        play(&app, SCORES, "ada", 900).await;
        assert_eq!(best("ada").await.0, "2014-05-09");
        let now = play(&app, SCORES, "ada", 901).await;
        let (season, score, reply) = best("ada").await;
        assert_eq!((season.as_str(), score, reply.get("rank")), ("2014-05-23", 901, now.get("rank")));
        assert_eq!(reply.get("state"), &"open".into());
        // A best week outlives the weeks that are kept.
        week(&app, &clock, "2014-05-30", &[("ada", 1)]).await;
        assert_eq!(app.get(&format!("{SCORES}?season=2014-05-09")).await.code(), "unknown_season");
        assert_eq!(app.get(&format!("{SCORES}?season=2014-05-16")).await.code(), "unknown_season");
        let (season, score, reply) = best("bob").await;
        assert_eq!((season.as_str(), score), ("2014-05-16", 970));
        assert_eq!((reply.get("rank").number(), reply.get("players")), (1, &Exact::null()));
        assert_eq!(seasons(&app.get("/v1/users/bob/seasons?board=weekly").await.good()), [""; 0]);
        assert_eq!(app.get("/v1/users/bob/best").await.code(), "no_entry", "another board");
        assert_eq!(app.get("/v1/users/nobody/best?board=weekly").await.code(), "unknown_user");
        app.assert_consistent().await;
    });
}

#[test]
fn a5_past_weeks_need_no_memory_and_a_final_standing_is_one_read() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(ms("2014-05-01T00:00:00Z")));
        let table = Arc::new(MeteredTable::new(table_in(folder.path()), SystemClock));
        let app = TestApp::open(table.clone() as Arc<dyn Table>, clock.clone(), None).await;
        weekly(&app, &clock, "").await;
        for first_day in ["2014-05-09", "2014-05-16", "2014-05-23"] {
            week(&app, &clock, first_day, &[("ada", 5), ("bob", 7), ("eve", 6)]).await;
        }
        assert_eq!(app.boards.memory().seasons().len(), 0);
        let before = calls(&table);
        let found = app.get(&format!("{SCORES}/ada?season=2014-05-16")).await.good();
        assert_eq!(found.get("user_info").get("rank").number(), 3);
        assert_eq!(calls(&table) - before, 1);
    });
}

/// Requests to a table so far.
fn calls<T: Table>(table: &MeteredTable<T>) -> u64 {
    meter::KINDS.iter().map(|kind| table.meter().totals(*kind).calls).sum()
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
        let reads = || calls(&table);
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

#[path = "access_patterns/days.rs"]
mod days;
