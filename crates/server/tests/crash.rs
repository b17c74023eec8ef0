//! Goal: what was acknowledged is there after a crash, once; what was not is there at most once; every rank is right.
//! Method: the real program under load from many connections, killed at a random moment, started again on the same
//! folder, and compared with the plays that were sent. Each play has an id, so what had no answer is sent again: the reply says
//! whether it had counted before the crash, which tells exactly what must have been there.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use common::app::{TestApp, quick, runtime, seed};
use common::program::{Connection, Program, Reply};
use common::{PATIENCE, POLL};
use fastrand::Rng;
use standings_table::SystemClock;

const CONNECTIONS: usize = 12;
const USERS: usize = 60;
const BATCH: usize = 15;
/// A board that adds up, where equal scores share a rank; and one that keeps the best, where whoever was first is ahead.
const BOARDS: [(&str, &str); 2] = [
    ("wins", r#"{"score":"sum","ties":"shared"}"#),
    ("laps", r#"{"score":"best","order":"low","ties":"first"}"#),
];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Play {
    board: &'static str,
    user: String,
    points: i64,
    /// Microseconds since 1970.
    played_at: i64,
    play_id: String,
}

impl Play {
    fn body(&self) -> String {
        let time = jiff::Timestamp::from_microsecond(self.played_at).unwrap();
        let (user, points, id) = (&self.user, self.points, &self.play_id);
        format!(r#"{{"user_id":"{user}","points":{points},"play_id":"{id}","played_at":"{time}"}}"#)
    }

    fn path(&self) -> String {
        format!("/v1/boards/{}/scores", self.board)
    }
}

/// What was sent in a round, by what became of it.
#[derive(Default)]
struct Sent {
    acknowledged: Vec<Play>,
    unanswered: Vec<Play>,
}

/// Plays from one connection until it breaks or `stop` is set.
fn writer(address: SocketAddr, name: &str, mut random: Rng, stop: &AtomicBool, acks: &AtomicUsize) -> Sent {
    let mut sent = Sent::default();
    let Ok(mut connection) = Connection::open(address) else { return sent };
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let board = BOARDS[random.usize(..BOARDS.len())].0;
        let count = if random.u32(..10) == 0 { BATCH } else { 1 };
        let plays: Vec<Play> = (0..count)
            .map(|at| Play {
                board,
                user: format!("user-{}", random.usize(..USERS)),
                points: random.i64(1..30),
                played_at: 1_700_000_000_000_000 + random.i64(0..1_000_000_000_000),
                play_id: format!("{name}-{number}-{at}"),
            })
            .collect();
        let reply = match &plays[..] {
            [play] => connection.post(&play.path(), &play.body()),
            plays => {
                let bodies: Vec<String> = plays.iter().map(Play::body).collect();
                let body = format!(r#"{{"plays":[{}]}}"#, bodies.join(","));
                connection.post(&format!("/v1/boards/{board}/scores/batch"), &body)
            }
        };
        match reply {
            Ok(Reply { status: 200, body }) => {
                assert_eq!(body.matches(r#""duplicate":false"#).count(), plays.len(), "{body}");
                acks.fetch_add(plays.len(), Ordering::Relaxed);
                sent.acknowledged.extend(plays);
            }
            // The only refusal there may be.
            Ok(Reply { status: 503, body }) if body.contains("shutting_down") => break,
            Ok(Reply { status, body }) => panic!("{status} {body}"),
            Err(_) => {
                sent.unanswered.extend(plays);
                break;
            }
        }
    }
    sent
}

/// Load from many connections until so many plays are acknowledged; then `end`, while the load goes on.
fn load(program: Program, name: &str, random: &mut Rng, acks_min: usize, end: impl FnOnce(Program)) -> Sent {
    let (stop, acks, address) = (AtomicBool::new(false), AtomicUsize::new(0), program.address);
    let all = Mutex::new(Sent::default());
    std::thread::scope(|scope| {
        for at in 0..CONNECTIONS {
            let (name, random) = (format!("{name}-{at}"), random.fork());
            let (stop, acks, all) = (&stop, &acks, &all);
            scope.spawn(move || {
                let sent = writer(address, &name, random, stop, acks);
                let mut all = all.lock().unwrap();
                all.acknowledged.extend(sent.acknowledged);
                all.unanswered.extend(sent.unanswered);
            });
        }
        let begin = Instant::now();
        while acks.load(Ordering::Relaxed) < acks_min && begin.elapsed() < PATIENCE {
            std::thread::sleep(POLL);
        }
        end(program);
        // Those who could connect to a dead server's successor by chance, or hold a connection that does not break.
        stop.store(true, Ordering::Relaxed);
    });
    let sent = all.into_inner().unwrap();
    assert!(sent.acknowledged.len() >= acks_min, "the load came to a halt");
    sent
}

/// Rows of a board as plays make them: user, score, rank.
fn expected(board: &str, plays: &[Play]) -> Vec<(String, i64, i64)> {
    let mut by_user: BTreeMap<&str, Vec<&Play>> = BTreeMap::new();
    for play in plays.iter().filter(|play| play.board == board) {
        by_user.entry(&play.user).or_default().push(play);
    }
    let users = by_user.into_iter();
    if board == "wins" {
        let latest = |plays: &[&Play]| plays.iter().map(|play| play.played_at).max().unwrap();
        let sum = |plays: &[&Play]| plays.iter().map(|play| play.points).sum::<i64>();
        let mut rows: Vec<_> =
            users.map(|(user, plays)| (Reverse(sum(&plays)), latest(&plays), user)).collect();
        rows.sort();
        let rank = |score| 1 + rows.iter().filter(|row| row.0 < score).count() as i64;
        rows.iter().map(|(score, _, user)| ((*user).to_owned(), score.0, rank(*score))).collect()
    } else {
        let best = |plays: &[&Play]| plays.iter().map(|play| (play.points, play.played_at)).min().unwrap();
        let mut rows: Vec<_> = users.map(|(user, plays)| (best(&plays), user)).collect();
        rows.sort();
        let ranked = rows.iter().zip(1..);
        ranked.map(|(((score, _), user), rank)| ((*user).to_owned(), *score, rank)).collect()
    }
}

type Tables = BTreeMap<&'static str, Vec<(String, i64, i64)>>;

fn expected_tables(plays: &[Play]) -> Tables {
    BOARDS.iter().map(|(board, _)| (*board, expected(board, plays))).collect()
}

/// What the server shows: the whole list, each user by themselves, and the counts.
fn tables(connection: &mut Connection) -> Tables {
    let mut tables = Tables::new();
    for (board, _) in BOARDS {
        let list = connection.get(&format!("/v1/boards/{board}/scores?limit=1000")).unwrap().good();
        let row = |row: &common::exact::Exact| {
            let user = row.get("user_id").text().unwrap().to_owned();
            (user, row.get("score").number(), row.get("rank").number())
        };
        let rows: Vec<_> = list.get("data").list().iter().map(row).collect();
        for count in ["total", "players"] {
            assert_eq!(list.get(count).number(), rows.len() as i64, "{count} of {board}");
        }
        for (user, score, rank) in &rows {
            let found = connection.get(&format!("/v1/boards/{board}/scores/{user}")).unwrap().good();
            let info = found.get("user_info");
            assert_eq!((info.get("score").number(), info.get("rank").number()), (*score, *rank), "{user}");
        }
        tables.insert(board, rows);
    }
    tables
}

/// Sends a play again; says whether it had counted before.
fn resend(connection: &mut Connection, play: &Play) -> bool {
    let reply = connection.post(&play.path(), &play.body()).unwrap().good();
    *reply.get("duplicate") == common::exact::Exact::from(true)
}

/// Compares a server that was started again with what was sent before, and settles what had no answer.
fn verify(program: &Program, plays: &mut Vec<Play>, sent: Sent, random: &mut Rng) {
    let mut connection = program.connect();
    let found = tables(&mut connection);
    for play in random.choose_multiple(sent.acknowledged.iter(), 20) {
        assert!(resend(&mut connection, play), "{play:?} was acknowledged, and counted again");
    }
    plays.extend(sent.acknowledged);
    let (counted, new): (Vec<Play>, Vec<Play>) =
        sent.unanswered.into_iter().partition(|play| resend(&mut connection, play));
    plays.extend(counted);
    assert_eq!(found, expected_tables(plays), "after the start");
    plays.extend(new);
    assert_eq!(tables(&mut connection), expected_tables(plays), "after sending again what had no answer");
}

fn first_start(data: &std::path::Path) -> Program {
    let program = Program::start(data);
    for (board, rules) in BOARDS {
        assert_eq!(program.connect().ask("PUT", &format!("/v1/boards/{board}"), rules).unwrap().status, 201);
    }
    program
}

/// The table by itself: every entry is the fold of its plays.
fn check_folder(data: &std::path::Path, plays: &[Play]) {
    runtime().block_on(async {
        let app = TestApp::in_folder(data, std::sync::Arc::new(SystemClock)).await;
        let report = app.boards.check(false, |_| {}).await.unwrap();
        assert_eq!((report.differences, report.plays), (0, plays.len() as u64), "{:#?}", report.named);
    });
}

#[test]
fn a_killed_server_comes_back_with_every_acknowledged_play_once_and_every_rank_right() {
    let mut random = Rng::with_seed(seed());
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (mut program, mut plays) = (first_start(&data), Vec::new());
    let (mut unanswered, rounds) = (0, if quick() { 4 } else { 20 });
    for round in 0..rounds {
        let acks_min = random.usize(20..900);
        let sent = load(program, &format!("r{round}"), &mut random, acks_min, Program::kill);
        unanswered += sent.unanswered.len();
        program = Program::start(&data);
        verify(&program, &mut plays, sent, &mut random);
    }
    program.kill();
    println!("{} plays, {unanswered} of them without an answer", plays.len());
    assert!(unanswered > 0, "no kill came while plays were under way");
    check_folder(&data, &plays);
}

#[test]
fn a_server_asked_to_end_under_load_ends_cleanly_and_has_everything_at_the_next_start() {
    let mut random = Rng::with_seed(seed());
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (mut program, mut plays) = (first_start(&data), Vec::new());
    for round in 0..3 {
        let sent = load(program, &format!("t{round}"), &mut random, 300, |program| {
            program.ask_to_end();
            assert!(program.wait_for_end().success(), "a clean end is success");
        });
        program = Program::start(&data);
        verify(&program, &mut plays, sent, &mut random);
    }
    program.kill();
    check_folder(&data, &plays);
}
