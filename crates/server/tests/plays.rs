//! Goal: plays that come at the same time neither get lost nor count twice, and whoever reads meanwhile sees a list that was true
//! at some moment.
//! Method: many tasks on the real routes over the embedded store, on several threads; afterwards the ranking is checked
//! against the table, and the table's entries against their plays.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::http::Request;
use common::app::{Answer, TestApp, quick, runtime, seed};
use common::exact::Exact;
use fastrand::Rng;
use standings_table::SystemClock;
use tower::ServiceExt as _;

/// Runs a test on an application of its own.
fn with_app<F: Future<Output = ()>>(test: impl FnOnce(TestApp) -> F) {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let app = TestApp::in_folder(folder.path(), Arc::new(SystemClock)).await;
        test(app).await;
    });
}

async fn make_board(app: &TestApp, board: &str, rules: &str) {
    let answer = app.ask(axum::http::Method::PUT, &format!("/v1/boards/{board}"), rules).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
}

/// Asks all of it at once.
async fn at_once(app: &TestApp, path: &str, bodies: Vec<String>) -> Vec<Answer> {
    let asked: Vec<_> = bodies
        .into_iter()
        .map(|body| {
            let (app, path) = (app.clone(), path.to_owned());
            tokio::spawn(async move { app.post(&path, &body).await })
        })
        .collect();
    let mut answers = Vec::new();
    for one in asked {
        answers.push(one.await.unwrap());
    }
    answers
}

#[test]
fn the_same_play_sent_a_hundred_times_at_once_counts_once_and_all_answers_agree() {
    with_app(|app| async move {
        make_board(&app, "wins", "{}").await;
        for round in 1..=5 {
            let body = format!(r#"{{"user_id":"ada","points":7,"play_id":"match-{round}"}}"#);
            let answers = at_once(&app, "/v1/boards/wins/scores", vec![body; 100]).await;
            let mut replies: Vec<Exact> = answers.iter().map(Answer::good).collect();
            let first = |reply: &Exact| *reply.get("duplicate") == Exact::from(false);
            assert_eq!(replies.iter().filter(|reply| first(reply)).count(), 1, "exactly one is the first");
            for reply in &mut replies {
                reply.replace("duplicate", true.into());
            }
            assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
            assert_eq!(replies[0].get("score").number(), 7 * round);
        }
        let found = app.get("/v1/boards/wins/scores/ada").await.good();
        assert_eq!(found.get("user_info").get("score").number(), 35);
        app.assert_consistent().await;
    });
}

#[test]
fn one_id_with_different_points_at_once_counts_one_of_them_and_refuses_the_others() {
    with_app(|app| async move {
        make_board(&app, "wins", "{}").await;
        let bodies = (1..=50).map(|points| format!(r#"{{"user_id":"ada","points":{points},"play_id":"m"}}"#));
        let answers = at_once(&app, "/v1/boards/wins/scores", bodies.collect()).await;
        let counted: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 200).collect();
        assert_eq!(counted.len(), 1);
        assert!(answers.iter().all(|answer| answer.status == 200 || answer.code() == "play_id_reused"));
        let found = app.get("/v1/boards/wins/scores/ada").await.good();
        assert_eq!(found.get("user_info").get("score"), counted[0].good().get("score"));
        app.assert_consistent().await;
    });
}

#[test]
fn concurrent_plays_of_one_user_lose_none() {
    with_app(|app| async move {
        make_board(&app, "wins", "{}").await;
        let single = (0..300).map(|_| r#"{"user_id":"ada","points":1}"#.to_owned()).collect();
        let batch = r#"{"plays":[{"user_id":"ada","points":10},{"user_id":"bob","points":1},{"user_id":"ada","points":10}]}"#;
        let (singles, batches) = tokio::join!(
            at_once(&app, "/v1/boards/wins/scores", single),
            at_once(&app, "/v1/boards/wins/scores/batch", vec![batch.to_owned(); 40]),
        );
        let scores: BTreeSet<i64> = singles.iter().map(|one| one.good().get("score").number()).collect();
        assert_eq!(scores.len(), 300, "each play saw a score of its own");
        for one in &batches {
            assert!(one.good().get("results").list().iter().all(|one| one.get("score").number() > 0));
        }
        let found = app.get("/v1/boards/wins/scores").await.good();
        let rows: Vec<i64> = found.get("data").list().iter().map(|row| row.get("score").number()).collect();
        assert_eq!(rows, [300 + 40 * 20, 40]);
        app.assert_consistent().await;
    });
}

#[test]
fn a_caller_who_goes_away_leaves_ranking_and_table_in_agreement() {
    with_app(|app| async move {
        make_board(&app, "wins", "{}").await;
        let mut random = Rng::with_seed(seed());
        for number in 0..if quick() { 100 } else { 400 } {
            let body = format!(
                r#"{{"plays":[{{"user_id":"user-{}","points":1}},{{"user_id":"user-{}","points":1}}]}}"#,
                random.u32(..9),
                random.u32(..9)
            );
            let request =
                Request::post("/v1/boards/wins/scores/batch").header("content-type", "application/json");
            let request = request.body(Body::from(body)).unwrap();
            let mut asked = Box::pin(app.router.clone().oneshot(request));
            // The future of the request is dropped where it happens to be after a few polls, as a broken connection drops it.
            for _ in 0..random.u32(1..5) {
                let polled =
                    std::future::poll_fn(|context| std::task::Poll::Ready(asked.as_mut().poll(context)));
                if polled.await.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(asked);
            if number % 20 == 0 {
                app.settle().await;
                app.assert_consistent().await;
            }
        }
        app.settle().await;
        app.assert_consistent().await;
        let found = app.get("/v1/boards/wins/scores").await.good();
        let scores: i64 = found.get("data").list().iter().map(|row| row.get("score").number()).sum();
        let report = app.boards.check(false, |_| {}).await.unwrap();
        assert_eq!(scores as u64, report.plays, "every play in the table is in the ranking");
        assert!(report.plays > 0, "no play came through");
    });
}

/// A page as it must be at any moment: nobody twice, in order, each rank what the tie rule makes of the scores before.
fn assert_page_is_possible(ties: &str, order: &str, page: &Exact, first_place: i64) {
    let rows: Vec<(&str, i64, i64)> = page
        .get("data")
        .list()
        .iter()
        .map(|row| (row.get("user_id").text().unwrap(), row.get("score").number(), row.get("rank").number()))
        .collect();
    let users: BTreeSet<&str> = rows.iter().map(|row| row.0).collect();
    assert_eq!(users.len(), rows.len(), "somebody stands twice in {page:?}");
    for (at, pair) in rows.windows(2).enumerate() {
        let ((_, score, rank), (_, next_score, next_rank)) = (pair[0], pair[1]);
        let worse = if order == "high" { next_score < score } else { next_score > score };
        assert!(worse || next_score == score, "out of order: {page:?}");
        let place = first_place + at as i64 + 1;
        let expected = match ties {
            "first" => rank + 1,
            _ if !worse => rank,
            "dense" => rank + 1,
            _ => place,
        };
        assert_eq!(next_rank, expected, "{ties}, place {place}: {page:?}");
    }
    if let (1, Some((_, _, rank))) = (first_place, rows.first()) {
        assert_eq!(*rank, 1, "a top list begins at the top: {page:?}");
    }
    assert_eq!(page.get("total"), page.get("players"), "{page:?}");
    assert!(page.get("players").number() >= rows.len() as i64, "{page:?}");
}

#[test]
fn reads_during_writes_show_lists_that_were_true_at_some_moment() {
    with_app(|app| async move {
        let mut random = Rng::with_seed(seed());
        let boards = [
            ("shared", "high", r#"{"ties":"shared"}"#),
            ("dense", "low", r#"{"ties":"dense","order":"low"}"#),
            ("first", "high", r#"{"ties":"first","score":"latest"}"#),
        ];
        for (board, _, rules) in boards {
            make_board(&app, board, rules).await;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..6)
            .map(|_| {
                let (app, stop, mut random) = (app.clone(), stop.clone(), random.fork());
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        let board = boards[random.usize(..3)].0;
                        let plays: Vec<String> = (0..random.usize(1..6))
                            .map(|_| {
                                let (user, points) = (random.u32(..40), random.i64(-3..6));
                                format!(r#"{{"user_id":"user-{user}","points":{points}}}"#)
                            })
                            .collect();
                        let body = format!(r#"{{"plays":[{}]}}"#, plays.join(","));
                        app.post(&format!("/v1/boards/{board}/scores/batch"), &body).await.good();
                    }
                })
            })
            .collect();
        let mut players_seen: HashMap<&str, i64> = HashMap::new();
        for number in 0..if quick() { 300 } else { 1_500 } {
            let (board, order, _) = boards[number % 3];
            let path = format!("/v1/boards/{board}/scores");
            let page = match random.u32(..3) {
                0 => {
                    let page = app.get(&format!("{path}?limit=1000")).await.good();
                    assert_page_is_possible(board, order, &page, 1);
                    assert_eq!(
                        page.get("players").number(),
                        page.get("data").list().len() as i64,
                        "{page:?}"
                    );
                    page
                }
                1 => {
                    let from = random.i64(1..20);
                    let page = app.get(&format!("{path}?limit=7&from_rank={from}")).await.good();
                    assert_page_is_possible(board, order, &page, from);
                    page
                }
                _ => {
                    let user = random.u32(..40);
                    let page = app.get(&format!("{path}/user-{user}/around")).await;
                    if page.status == 404 {
                        continue;
                    }
                    let page = page.good();
                    let user = Exact::from(format!("user-{user}"));
                    let rows = page.get("data").list();
                    assert_eq!(rows.iter().filter(|row| *row.get("user_id") == user).count(), 1, "{page:?}");
                    // Which place the list begins at is not said; by `first` it is the first rank.
                    if board == "first" {
                        assert_page_is_possible(board, order, &page, rows[0].get("rank").number());
                    }
                    page
                }
            };
            let (players, seen) = (page.get("players").number(), players_seen.entry(board).or_default());
            assert!(players >= *seen, "nobody ever leaves: {players} after {seen}");
            *seen = players;
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.unwrap();
        }
        app.assert_consistent().await;
    });
}
