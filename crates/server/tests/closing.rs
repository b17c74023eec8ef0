//! Goal: a season that closes and a snapshot that is taken survive a kill at any moment.
//! Method: the real program is killed a random while after it was told to close or to copy, started again, and left to finish by itself; the whole
//! list is then what it was before. Where exactly a kill can strike is gone through write by write in the tests of the rules; here it is
//! the real program, with its own threads and files.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::time::{Duration, Instant};

use common::app::{TestApp, quick, runtime, seed};
use common::exact::Exact;
use common::program::{Connection, Program};
use common::{PATIENCE, POLL};
use fastrand::Rng;
use standings_table::SystemClock;

const USERS: usize = 2_000;

fn fill(connection: &mut Connection, board: &str, random: &mut Rng) {
    for first in (0..USERS).step_by(1_000) {
        let play = |user| format!(r#"{{"user_id":"user-{user}","points":{}}}"#, random.u32(..500));
        let plays: Vec<String> = (first..first + 1_000).map(play).collect();
        let body = format!(r#"{{"plays":[{}]}}"#, plays.join(","));
        connection.post(&format!("/v1/boards/{board}/scores/batch"), &body).unwrap().good();
    }
}

/// The whole list, page by page: user, score, rank.
fn whole(connection: &mut Connection, path: &str) -> Vec<(String, i64, i64)> {
    let mut rows = Vec::new();
    for page in 0..USERS / 1_000 {
        let from = page * 1_000 + 1;
        let list = connection.get(&format!("{path}from_rank={from}")).unwrap().good();
        rows.extend(list.get("data").list().iter().map(|row| {
            let user = row.get("user_id").text().unwrap().to_owned();
            (user, row.get("score").number(), row.get("rank").number())
        }));
    }
    assert_eq!(rows.len(), USERS);
    rows
}

fn wait_for(connection: &mut Connection, path: &str, done: impl Fn(&Exact) -> bool) {
    let begin = Instant::now();
    loop {
        let reply = connection.get(path).unwrap();
        if reply.status == 200 && done(&reply.json()) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{path}: {}", reply.body);
        std::thread::sleep(POLL);
    }
}

#[test]
fn a_killed_server_goes_on_with_closing_and_copying_and_the_list_is_what_it_was() {
    let mut random = Rng::with_seed(seed());
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut program = Program::start(&data);
    let mut interrupted = 0;
    for round in 0..if quick() { 2 } else { 6 } {
        let mut connection = program.connect();
        let board = format!("race-{round}");
        let rules = r#"{"resets":"monthly","ties":"first"}"#;
        assert_eq!(connection.ask("PUT", &format!("/v1/boards/{board}"), rules).unwrap().status, 201);
        fill(&mut connection, &board, &mut random);
        let scores = format!("/v1/boards/{board}/scores");
        let season = connection.get(&scores).unwrap().good().get("season").text().unwrap().to_owned();
        let before = whole(&mut connection, &format!("{scores}?limit=1000&"));
        let closes = round % 2 == 0;
        let (post, get) = if closes {
            let path = format!("/v1/boards/{board}/seasons/{season}");
            (format!("{path}/close"), path)
        } else {
            let path = format!("/v1/boards/{board}/snapshots");
            (path.clone(), format!("{path}/killed"))
        };
        connection.send("POST", &post, if closes { "" } else { r#"{"label":"killed"}"# }).unwrap();
        std::thread::sleep(Duration::from_micros(random.u64(..250_000)));
        program.kill();
        program = Program::start(&data);
        let mut connection = program.connect();
        let unfinished = |reply: &Exact| {
            if closes {
                reply.get("state") != &"final".into()
            } else {
                reply.get("finished_at") == &Exact::null()
            }
        };
        let found = connection.get(&get).unwrap();
        interrupted += usize::from(found.status == 404 || unfinished(&found.json()));
        // The kill may have come before anything was begun: then it is told once more.
        let begun = found.status == 200 && found.json().get("state") != &"open".into();
        if !begun {
            let again = connection.post(&post, if closes { "" } else { r#"{"label":"killed"}"# }).unwrap();
            assert!([200, 202].contains(&again.status), "{}", again.body);
        }
        wait_for(&mut connection, &get, |reply| !unfinished(reply));
        let path = if closes {
            format!("{scores}?season={season}&limit=1000&")
        } else {
            format!("{get}/scores?page_size=1000&")
        };
        assert_eq!(whole(&mut connection, &path), before, "round {round}");
    }
    program.ask_to_end();
    assert!(program.wait_for_end().success());
    println!("{interrupted} kills came before the end");
    runtime().block_on(async {
        let app = TestApp::in_folder(&data, std::sync::Arc::new(SystemClock)).await;
        let report = app.boards.check(false, |_| {}).await.unwrap();
        assert_eq!(report.differences, 0, "{:#?}", report.named);
    });
}
