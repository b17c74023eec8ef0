//! Goal: a season that is over answers as it did while it ran, and for good; snapshots are what the board was at that moment.
//! Method: the real routes over the embedded store with a clock that the test moves; the same questions before and after. For what is seen
//! while a snapshot is being written, a table that holds its rows back. At last the real program, started after a long time.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Method, Request};
use common::app::{Answer, TestApp, router_within, runtime, seed, table_in};
use common::exact::Exact;
use common::held::HeldTable;
use common::program::Program;
use common::{PATIENCE, POLL};
use standings_table::{ManualClock, Table};

fn ms(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

const NOW: &str = "2026-11-13T10:00:00Z";

async fn play(app: &TestApp, board: &str, user: &str, points: &str) -> Answer {
    let body = format!(r#"{{"user_id":"{user}","points":{points}}}"#);
    app.post(&format!("/v1/boards/{board}/scores"), &body).await
}

/// Answers to every kind of question about a season, in full.
async fn answers(app: &TestApp, board: &str, season: &str, users: usize) -> Vec<(String, String)> {
    let scores = format!("/v1/boards/{board}/scores");
    let mut paths = vec![
        format!("{scores}?season={season}"),
        format!("{scores}?season={season}&limit=1000"),
        format!("/v1/boards/{board}/distribution?season={season}"),
        format!("/v1/boards/{board}/distribution?season={season}&buckets=7"),
        format!("{scores}?season={season}&min_score=2&max_score=4.5&limit=100"),
        format!("{scores}?season={season}&min_score=3"),
        format!("{scores}?season={season}&max_score=-1"),
        format!("{scores}?season={season}&min_score=1000"),
    ];
    for from in [1, 20, 37, users, users + 1] {
        paths.push(format!("{scores}?season={season}&from_rank={from}&limit=5"));
    }
    for user in 0..users {
        paths.push(format!("{scores}/u{user}?season={season}"));
        paths.push(format!("{scores}/u{user}/around?season={season}&above={}&below=3", user % 9));
    }
    let mut answers = Vec::new();
    for path in paths {
        let answer = app.get(&path).await;
        answer.good();
        answers.push((path, answer.body));
    }
    for range in ["", "&min_score=1&max_score=6"] {
        let mut next = format!("{scores}?season={season}&limit=7{range}");
        loop {
            let answer = app.get(&next).await;
            let cursor = answer.good().get("next_cursor").text().map(str::to_owned);
            answers.push((next, answer.body));
            let Some(cursor) = cursor else { break };
            next = format!("{scores}?season={season}&limit=7{range}&cursor={cursor}");
        }
    }
    let body = r#"{"user_ids":["u3","nobody","u0","u3","other","u17"]}"#;
    let path = format!("{scores}/lookup?season={season}");
    answers.push((path.clone(), app.post(&path, body).await.body));
    for missing in ["nobody", "other"] {
        let path = format!("{scores}/{missing}?season={season}");
        answers.push((path.clone(), app.get(&path).await.code()));
    }
    answers
}

#[test]
fn a_finished_season_answers_as_the_live_one_did() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(ms(NOW)));
        let app = TestApp::in_folder(folder.path(), clock.clone()).await;
        let mut random = fastrand::Rng::with_seed(seed());
        let mut before = Vec::new();
        for ties in ["shared", "dense", "first"] {
            for order in ["high", "low"] {
                let board = format!("{ties}-{order}");
                let rules = format!(
                    r#"{{"ties":"{ties}","order":"{order}","score":"best","resets":"monthly","decimals":1}}"#
                );
                assert_eq!(app.put(&format!("/v1/boards/{board}"), &rules).await.status, 201);
                for user in 0..45 {
                    clock.advance_ms(random.i64(0..2));
                    let points = format!("{}.5", random.i64(-3..9));
                    play(&app, &board, &format!("u{user}"), &points).await.good();
                }
                play(&app, "default", "other", "1").await.good();
                for user in [0, 5, 17] {
                    app.put(&format!("/v1/users/u{user}"), r#"{"name":"Änn"}"#).await.good();
                }
                let live = answers(&app, &board, "2026-11", 45).await;
                before.push((board, live));
            }
        }
        // One is closed by hand, the others by time.
        let closed = app.post("/v1/boards/shared-high/seasons/2026-11/close", "").await.good();
        assert_eq!(closed.get("state"), &"final".into());
        clock.set_ms(ms("2026-12-01T00:05:00Z"));
        assert_eq!(app.settle_due().await, 6, "five boards and the default one");
        assert_eq!(app.settle_due().await, 0);
        for (board, live) in &before {
            let past = answers(&app, board, "2026-11", 45).await;
            for (live, past) in live.iter().zip(&past) {
                assert_eq!(live, past, "{board}");
            }
            assert_eq!(live.len(), past.len());
        }
        app.assert_consistent().await;
        drop(app);
        let app = TestApp::in_folder(folder.path(), clock.clone()).await;
        for (board, live) in &before {
            // Another name now does not change what was, nor do other ties.
            app.put("/v1/users/u5", r#"{"name":"Renamed"}"#).await.good();
            app.ask(Method::PATCH, &format!("/v1/boards/{board}"), r#"{"ties":"dense"}"#).await.good();
            assert_eq!(answers(&app, board, "2026-11", 45).await, *live, "{board}");
        }
    });
}

#[test]
fn a_season_is_closed_by_hand_once_and_for_all() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(ms(NOW)));
        let app = TestApp::in_folder(folder.path(), clock.clone()).await;
        let close = "/v1/boards/default/seasons/2026-11/close";
        assert_eq!(app.post(close, "").await.code(), "unknown_season", "nobody has played in it");
        for (user, points) in [("ada", "5"), ("bob", "7")] {
            play(&app, "default", user, points).await.good();
        }
        let open = app.get("/v1/boards/default/seasons/2026-11").await.good();
        let reply = |state: &str, at: Option<&str>| {
            Exact::from([
                ("season", "2026-11".into()),
                ("starts_at", "2026-11-01T00:00:00Z".into()),
                ("ends_at", "2026-12-01T00:00:00Z".into()),
                ("state", state.into()),
                ("takes_plays", (state == "open").into()),
                ("players", 2.into()),
                ("closing", Exact::null()),
                ("closed_at", at.into()),
                ("final_at", at.into()),
                ("swept", (state == "final").into()),
            ])
        };
        assert_eq!(open, reply("open", None));
        let closed = app.post(close, "").await;
        assert_eq!((closed.status, closed.json()), (200, reply("final", Some(NOW))));
        clock.advance_ms(60_000);
        assert_eq!(app.post(close, "").await.good(), reply("final", Some(NOW)), "it stays as it is");
        let late = play(&app, "default", "ada", "1").await;
        assert_eq!((late.status, late.code().as_str()), (409, "season_closed"));
        assert!(late.body.contains(&format!("until {NOW}")), "{}", late.body);
        // What is asked for without a season is the one of this moment, which is this one.
        let top = app.get("/v1/scores").await.good();
        assert_eq!((top.get("season"), top.get("players").number()), (&"2026-11".into(), 2));
        clock.set_ms(ms("2026-12-01T00:00:00Z"));
        assert_eq!(app.get("/v1/scores").await.good().get("players").number(), 0, "the next one is empty");
        assert_eq!(play(&app, "default", "ada", "1").await.good().get("season"), &"2026-12".into());
        let seasons = app.get("/v1/boards/default/seasons").await.good();
        let names: Vec<_> = seasons.get("data").list().iter().map(|one| one.get("season").clone()).collect();
        assert_eq!(names, ["2026-12".into(), Exact::from("2026-11")]);
        let official = app.get("/v1/boards/default/snapshots/2026-11/official").await.good();
        assert_eq!(official.get("label"), &"2026-11".into());
        let first = Exact::from([
            ("user_id", "bob".into()),
            ("user_name", Exact::null()),
            ("rank", 1.into()),
            ("place", 1.into()),
            ("score", 7.into()),
        ]);
        assert_eq!(official.get("data").list()[0], first);
        assert_eq!(app.get("/v1/boards/default/snapshots").await.good().get("data"), &vec![].into());
        let info = app.get("/v1/boards/default/snapshots/2026-11").await.good();
        assert_eq!((info.get("state"), info.get("due_at")), (&"complete".into(), &Exact::null()));
        app.assert_consistent().await;
    });
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !done().await {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(POLL).await;
    }
}

#[test]
fn what_takes_long_is_answered_202_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let table = Arc::new(HeldTable::new(table_in(folder.path())));
        let clock = Arc::new(ManualClock::new(ms(NOW)));
        let app = TestApp::open(table.clone() as Arc<dyn Table>, clock.clone(), None).await;
        for user in 0..20 {
            play(&app, "default", &format!("u{user}"), "5").await.good();
        }
        table.hold(true);
        let hurried = TestApp {
            router: router_within(&app.boards, Duration::from_millis(200)),
            boards: app.boards.clone(),
        };
        let answer = hurried.post("/v1/boards/default/seasons/2026-11/close", "").await;
        assert_eq!(answer.status, 202, "{}", answer.body);
        let reply = answer.json();
        assert_eq!((reply.get("state"), reply.get("takes_plays")), (&"closing".into(), &false.into()));
        assert_eq!(reply.get("closing").get("players").number(), 20);
        assert_eq!((reply.get("closed_at"), reply.get("final_at")), (&NOW.into(), &Exact::null()));
        // Meanwhile it answers as before, takes no plays, and is no snapshot yet.
        let top = app.get("/v1/scores").await.good();
        assert_eq!(top.get("players").number(), 20);
        assert_eq!(play(&app, "default", "u0", "1").await.code(), "season_closed");
        let early = app.get("/v1/boards/default/snapshots/2026-11/official").await;
        assert_eq!((early.status, early.code().as_str()), (503, "snapshot_not_ready"));
        assert_eq!(early.headers["retry-after"], "1");
        let counts = app.boards.season_counts();
        let (_, counts) = counts.iter().find(|(board, _)| board.as_str() == "default").unwrap();
        assert_eq!(counts.map(|(_, count)| count), [0, 1, 0]);
        let progress = app.boards.snapshots_under_way();
        assert_eq!((progress.len(), progress[0].label.as_str(), progress[0].players), (1, "2026-11", 20));
        table.hold(false);
        until("the season becomes final", async || {
            let season = app.get("/v1/boards/default/seasons/2026-11").await.good();
            season.get("state") == &"final".into()
        })
        .await;
        assert_eq!(app.get("/v1/scores?season=2026-11").await.good(), top);
        until("its entries are gone", async || app.boards.snapshots_under_way().is_empty()).await;
    });
}

#[test]
fn a_snapshot_is_taken_now_and_deleted_again() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let table = Arc::new(HeldTable::new(table_in(folder.path())));
        let clock = Arc::new(ManualClock::new(ms(NOW)));
        let app = TestApp::open(table.clone() as Arc<dyn Table>, clock.clone(), None).await;
        app.put("/v1/boards/laps", r#"{"score":"best","order":"low","decimals":3,"official":2}"#)
            .await
            .good();
        let snapshots = "/v1/boards/laps/snapshots";
        let empty = app.post(snapshots, "").await;
        assert_eq!((empty.status, empty.code().as_str()), (404, "unknown_season"), "nobody has played");
        for (user, points) in [("ada", "12.345"), ("bob", "11"), ("eve", "12.345")] {
            clock.advance_ms(1_000);
            play(&app, "laps", user, points).await.good();
        }
        table.hold(true);
        let taking = app.post(snapshots, r#"{"label":"before-the-patch"}"#).await;
        assert_eq!(taking.status, 202, "{}", taking.body);
        let taken_at = "2026-11-13T10:00:03Z";
        let reply = |finished_at: Option<&str>| {
            Exact::from([
                ("label", "before-the-patch".into()),
                ("season", "all".into()),
                ("state", if finished_at.is_some() { "complete" } else { "taking" }.into()),
                ("due_at", Exact::null()),
                ("taken_at", taken_at.into()),
                ("finished_at", finished_at.into()),
                ("players", 3.into()),
                ("done", if finished_at.is_some() { 3 } else { 0 }.into()),
                ("official", 2.into()),
            ])
        };
        assert_eq!(taking.json(), reply(None));
        let one = format!("{snapshots}/before-the-patch");
        for part in ["official", "scores"] {
            let answer = app.get(&format!("{one}/{part}")).await;
            assert_eq!((answer.status, answer.code().as_str()), (503, "snapshot_not_ready"));
            assert_eq!(answer.headers["retry-after"], "1");
        }
        assert_eq!(app.get(&format!("{snapshots}/latest")).await.code(), "unknown_snapshot");
        assert_eq!(app.ask(Method::DELETE, &one, "").await.code(), "invalid_snapshot", "it is being taken");
        let again = app.post(snapshots, r#"{"label":"before-the-patch"}"#).await;
        assert_eq!((again.status, again.code().as_str()), (409, "snapshot_exists"));
        // What happens from now on is not in it.
        clock.advance_ms(2_000);
        play(&app, "laps", "eve", "1").await.good();
        table.hold(false);
        until("the snapshot is complete", async || {
            app.get(&one).await.good().get("state") == &"complete".into()
        })
        .await;
        let finished_at = "2026-11-13T10:00:05Z";
        assert_eq!(app.get(&one).await.good(), reply(Some(finished_at)));
        assert_eq!(app.get(&format!("{snapshots}/latest")).await.good(), reply(Some(finished_at)));
        let listed = Exact::from([("data", vec![reply(Some(finished_at))].into())]);
        assert_eq!(app.get(snapshots).await.good(), listed);
        let row = |user: &str, place: usize, rank: usize, score: &str| {
            Exact::from([
                ("user_id", user.into()),
                ("user_name", Exact::null()),
                ("rank", rank.into()),
                ("place", place.into()),
                ("score", Exact::Literal(score.to_owned())),
            ])
        };
        let all = [row("bob", 1, 1, "11.000"), row("ada", 2, 2, "12.345"), row("eve", 3, 2, "12.345")];
        let mut official = Exact::from([
            ("board", "laps".into()),
            ("label", "before-the-patch".into()),
            ("taken_at", taken_at.into()),
            ("due_at", Exact::null()),
            ("players", 3.into()),
            ("data", all[..2].to_vec().into()),
        ]);
        assert_eq!(
            app.get(&format!("{one}/official")).await.good(),
            official,
            "the first two places, ties or not"
        );
        official.replace("data", all[2..].to_vec().into());
        official.replace("total", 3.into());
        official.replace("next_cursor", Exact::null());
        assert_eq!(app.get(&format!("{one}/scores")).await.good(), official, "and the rest");
        assert_eq!(app.post(snapshots, r#"{"label":"before-the-patch"}"#).await.code(), "snapshot_exists");
        let unnamed = app.post(snapshots, "").await.good();
        assert_eq!(unnamed.get("label"), &"2026-11-13T100005Z".into());
        let gone = app.ask(Method::DELETE, &one, "").await;
        assert_eq!((gone.status, gone.body.as_str()), (202, ""));
        assert_eq!(app.get(&one).await.code(), "unknown_snapshot");
        assert_eq!(app.get(&format!("{one}/official")).await.code(), "unknown_snapshot");
        assert_eq!(app.ask(Method::DELETE, &one, "").await.code(), "unknown_snapshot");
        until("the label is free again", async || {
            app.post(snapshots, r#"{"label":"before-the-patch"}"#).await.status == 202
        })
        .await;
        until("all are complete", async || app.boards.snapshots_under_way().is_empty()).await;
        app.assert_consistent().await;
    });
}

#[test]
fn days_that_were_missed_are_taken_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(ms("2026-02-19T10:00:00Z")));
        let app = TestApp::in_folder(folder.path(), clock.clone()).await;
        app.put("/v1/boards/level", r#"{"score":"latest","snapshots":"daily","time_zone":"Asia/Seoul"}"#)
            .await
            .good();
        play(&app, "level", "ada", "50").await.good();
        clock.set_ms(ms("2026-02-19T14:59:59Z"));
        assert_eq!(app.settle_due().await, 0);
        clock.set_ms(ms("2026-02-19T15:00:00Z"));
        assert_eq!(app.settle_due().await, 1, "midnight in Seoul");
        play(&app, "level", "ada", "60").await.good();
        drop(app);
        clock.set_ms(ms("2026-02-22T16:00:00Z"));
        let app = TestApp::in_folder(folder.path(), clock.clone()).await;
        assert_eq!(app.settle_due().await, 3);
        assert_eq!(app.settle_due().await, 0);
        let all = app.get("/v1/boards/level/snapshots").await.good();
        let days = all.get("data").list().iter();
        let days: Vec<_> = days
            .map(|day| ["label", "due_at", "taken_at"].map(|name| day.get(name).text().unwrap().to_owned()))
            .collect();
        let late = "2026-02-22T16:00:00Z";
        let expected = [
            ["2026-02-22", "2026-02-22T15:00:00Z", late],
            ["2026-02-21", "2026-02-21T15:00:00Z", late],
            ["2026-02-20", "2026-02-20T15:00:00Z", late],
            ["2026-02-19", "2026-02-19T15:00:00Z", "2026-02-19T15:00:00Z"],
        ];
        assert_eq!(days, expected);
        let history = app.get("/v1/users/ada/history?board=level").await.good();
        let levels: Vec<_> = history.get("data").list().iter().map(|day| day.get("level").number()).collect();
        assert_eq!(levels, [60, 60, 60, 50]);
    });
}

#[test]
fn final_answers_may_be_kept_and_others_not() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(ms("2026-11-30T10:00:00Z")));
        let app = TestApp::in_folder(folder.path(), clock.clone()).await;
        for user in ["ada", "bob"] {
            play(&app, "default", user, "5").await.good();
        }
        app.put("/v1/boards/level", r#"{"score":"latest","snapshots":"daily"}"#).await.good();
        play(&app, "level", "ada", "5").await.good();
        let one_board = "/v1/boards/default";
        let about = |season: &str| {
            ["/scores?limit=5&", "/scores/ada?", "/scores/ada/around?", "/distribution?"]
                .map(|path| format!("{one_board}{path}season={season}"))
        };
        let control = |answer: &Answer| {
            answer.headers.get("cache-control").map(|value| value.to_str().unwrap().to_owned())
        };
        let kept = Some("public, max-age=86400, s-maxage=1".to_owned());
        for path in about("2026-11") {
            assert_ne!(control(&app.get(&path).await), kept, "{path} may change");
        }
        app.post("/v1/boards/default/seasons/2026-11/close", "").await.good();
        assert_ne!(control(&app.get("/v1/scores").await), kept, "this moment's season is another one soon");
        clock.set_ms(ms("2026-12-01T00:05:00Z"));
        app.settle_due().await;
        let mut paths = about("2026-11").to_vec();
        paths.extend(["official", "scores"].map(|part| format!("{one_board}/snapshots/2026-11/{part}")));
        paths.extend(
            ["official", "scores"].map(|part| format!("/v1/boards/level/snapshots/2026-11-30/{part}")),
        );
        let mut tags = Vec::new();
        for path in &paths {
            let answer = app.get(path).await;
            answer.good();
            assert_eq!(control(&answer), kept, "{path}");
            assert_eq!(answer.headers["vary"], "accept-encoding, authorization, x-api-key", "{path}");
            tags.push(answer.headers["etag"].clone());
        }
        for part in ["official", "scores"] {
            let answer = app.get(&format!("/v1/boards/level/snapshots/latest/{part}")).await;
            assert!(answer.headers.contains_key("etag"));
            assert_ne!(control(&answer), kept, "the latest one is another one tomorrow");
        }
        drop(app);
        let app = TestApp::in_folder(folder.path(), clock.clone()).await;
        for (path, tag) in paths.iter().zip(tags) {
            let request = Request::get(path).header("if-none-match", tag).body(Body::empty()).unwrap();
            let answer = app.send(request).await;
            assert_eq!((answer.status, answer.body.as_str()), (304, ""), "{path} holds across a restart");
            assert_eq!(control(&answer), kept, "{path}");
        }
        let absent = app.get(&format!("{one_board}/scores/nobody?season=2026-11")).await;
        assert_eq!((absent.status, control(&absent)), (404, None), "a refusal is not kept");
    });
}

#[test]
fn keys_open_what_they_are_for() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(ms(NOW)));
        let app = TestApp::in_folder(folder.path(), clock.clone()).await;
        for board in ["eu-level", "us-level"] {
            let rules = r#"{"score":"latest","snapshots":"daily"}"#;
            app.put(&format!("/v1/boards/{board}"), rules).await.good();
            play(&app, board, "ada", "5").await.good();
        }
        clock.set_ms(ms("2026-11-14T00:00:00Z"));
        app.settle_due().await;
        let ask = async |key: &str, method: &str, path: &str, body: &str| {
            let mut request = Request::builder().method(method).uri(path).header("x-api-key", key);
            if !body.is_empty() {
                request = request.header("content-type", "application/json");
            }
            app.send(request.body(Body::from(body.to_owned())).unwrap()).await
        };
        let made = app.post("/v1/keys", r#"{"name":"root","role":"admin"}"#).await.good();
        let root = made.get("key").text().unwrap().to_owned();
        let make = async |body: &str| {
            let made = ask(&root, "POST", "/v1/keys", body).await.good();
            made.get("key").text().unwrap().to_owned()
        };
        let read = make(r#"{"name":"read","role":"read"}"#).await;
        let write = make(r#"{"name":"write","role":"write"}"#).await;
        let eu = make(r#"{"name":"eu","role":"admin","boards":["eu-"]}"#).await;
        let readable = |board: &str| {
            [
                format!("/v1/boards/{board}/seasons/all"),
                format!("/v1/boards/{board}/snapshots"),
                format!("/v1/boards/{board}/snapshots/latest"),
                format!("/v1/boards/{board}/snapshots/latest/official"),
                format!("/v1/boards/{board}/snapshots/latest/scores"),
                format!("/v1/users/ada/seasons?board={board}"),
                format!("/v1/users/ada/best?board={board}"),
                format!("/v1/users/ada/plays?board={board}"),
                format!("/v1/users/ada/history?board={board}"),
            ]
        };
        for path in readable("us-level") {
            assert_eq!(app.get(&path).await.status, 401, "{path}");
            assert_eq!(ask(&read, "GET", &path, "").await.status, 200, "{path}");
            let other = ask(&eu, "GET", &path, "").await;
            assert_eq!((other.status, other.code().as_str()), (403, "forbidden"), "{path}");
        }
        for path in readable("eu-level") {
            assert_eq!(ask(&eu, "GET", &path, "").await.status, 200, "{path}");
        }
        // Without a board it is those that the key may see.
        let all = ask(&read, "GET", "/v1/users/ada/history", "").await;
        assert!(all.body.contains("eu-level") && all.body.contains("us-level"), "{}", all.body);
        let some = ask(&eu, "GET", "/v1/users/ada/history", "").await;
        assert!(some.body.contains("eu-level") && !some.body.contains("us-level"), "{}", some.body);
        let mixed = ask(&eu, "GET", "/v1/users/ada/history?board=eu-level&board=us-level", "").await;
        assert_eq!(mixed.status, 403);
        assert_eq!(
            ask(&eu, "GET", "/v1/users/ada/plays", "").await.status,
            403,
            "the default board is another"
        );
        let asia = make(r#"{"name":"asia","role":"read","boards":["asia-"]}"#).await;
        let none = ask(&asia, "GET", "/v1/users/ada/history", "").await;
        assert_eq!((none.status, none.code().as_str()), (400, "invalid_query"), "no board to see");
        assert_eq!(
            ask(&eu, "GET", "/v1/users?name=ada", "").await.status,
            200,
            "users are shared by all boards"
        );
        for (method, path, body, status) in [
            ("POST", "/v1/boards/eu-level/snapshots", r#"{"label":"x"}"#, 202),
            ("DELETE", "/v1/boards/eu-level/snapshots/2026-11-13", "", 202),
            ("POST", "/v1/boards/eu-level/seasons/all/close", "", 200),
        ] {
            for key in [&read, &write] {
                let refused = ask(key, method, path, body).await;
                assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"), "{path}");
            }
            let elsewhere = path.replace("eu-level", "us-level");
            assert_eq!(ask(&eu, method, &elsewhere, body).await.status, 403, "{elsewhere}");
            let done = ask(&eu, method, path, body).await;
            assert_eq!(done.status, status, "{path}: {}", done.body);
        }
    });
}

/// A server that was down over resets and midnights settles them when it is up again, by itself.
#[test]
fn the_program_settles_what_was_due_while_it_was_down() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let runtime = runtime();
    let day_ms = 86_400_000;
    let long_ago = jiff::Timestamp::now().as_millisecond() - 40 * day_ms;
    runtime.block_on(async {
        let clock = Arc::new(ManualClock::new(long_ago));
        let app = TestApp::in_folder(&data, clock.clone()).await;
        app.put("/v1/boards/daily", r#"{"resets":"daily"}"#).await.good();
        app.put("/v1/boards/level", r#"{"score":"latest","snapshots":"daily"}"#).await.good();
        for _ in 0..3 {
            play(&app, "daily", "ada", "5").await.good();
            clock.advance_ms(day_ms);
        }
        play(&app, "level", "ada", "50").await.good();
    });
    // Every task of the first server has ended with its runtime, and the folder is free.
    drop(runtime);
    let program = Program::start(&data);
    let mut connection = program.connect();
    let begin = Instant::now();
    loop {
        let seasons = connection.get("/v1/boards/daily/seasons").unwrap().json();
        let last = connection.get("/v1/boards/level/snapshots/latest").unwrap();
        let finished =
            seasons.get("data").list().iter().filter(|one| one.get("state") == &"final".into()).count();
        if finished == 3 && last.status == 200 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{seasons:?} {}", last.body);
        std::thread::sleep(POLL);
    }
    let numbers = connection.get("/metrics").unwrap().body;
    for line in [
        "standings_seasons_closed_total 3",
        r#"standings_seasons{board="daily",state="final"} 3"#,
        r#"standings_seasons{board="level",state="open"} 1"#,
    ] {
        assert!(numbers.lines().any(|found| found == line), "{line} in\n{numbers}");
    }
    let begin = Instant::now();
    program.ask_to_end();
    assert!(program.wait_for_end().success());
    assert!(begin.elapsed() < Duration::from_secs(5), "a stop does not wait for what is due");
}
