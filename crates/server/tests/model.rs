//! Goal: every reply of the server is the right one, whatever came before.
//! Method: thousands of random requests through the real routes, and the same questions to a model that keeps plays in a list and
//! sorts (`model/naive.rs`); each reply is compared in full. The clock is moved by the test, over days and months too. In
//! between, seasons are closed, checkpoints are written and the server starts anew. Over the embedded store, and over one whose indexes lag.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use common::app::{Answer, TestApp, quick, runtime, seed};
use common::exact::Exact;
use fastrand::Rng;
use jiff::Timestamp;
use naive::{Board, Expected, From, Mark, Naive, NewPlay, Refused, Rules, Season, WEEKDAYS, written};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use standings_boards::records;
use standings_table::{DelayedTable, ManualClock, ReferenceTable, Table};

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
const BOARDS: [&str; 7] = ["default", "laps", "level", "weekly.best", "power-2", "A_b", "wins"];

#[test]
fn every_reply_is_the_models_on_the_embedded_store() {
    let folder = tempfile::tempdir().unwrap();
    run(Store::Embedded(folder), if quick() { 500 } else { 3_000 });
}

#[test]
fn every_reply_is_the_models_where_indexes_lag() {
    let clock = Arc::new(ManualClock::new(START_MS));
    let table = ReferenceTable::new(records::schema(), clock.clone());
    run(Store::Lagging(Arc::new(DelayedTable::new(table, clock, 20))), if quick() { 300 } else { 1_500 });
}

/// A spring day before daylight saving begins in Europe.
const START_MS: i64 = 1_774_000_000_000;

enum Store {
    Embedded(tempfile::TempDir),
    Lagging(Arc<DelayedTable<ReferenceTable>>),
}

impl Store {
    async fn open(&self, clock: &Arc<ManualClock>) -> TestApp {
        match self {
            Store::Embedded(folder) => TestApp::in_folder(folder.path(), clock.clone()).await,
            Store::Lagging(table) => {
                let table: Arc<dyn Table> = table.clone();
                TestApp::open(table, clock.clone(), None).await
            }
        }
    }
}

struct World {
    store: Store,
    clock: Arc<ManualClock>,
    now_ms: i64,
    /// Nothing only while it starts anew.
    app: Option<TestApp>,
    model: Naive,
    random: Rng,
    users: Vec<String>,
    cursors: Vec<(String, Mark)>,
    /// What lists came with which tag.
    tags: HashMap<String, (String, Exact)>,
    /// When the oldest checkpoint that is still in use was written.
    checkpoint_ms: Option<i64>,
    replies: HashMap<&'static str, u32>,
}

fn run(store: Store, requests: usize) {
    let seed = seed();
    let runtime = runtime();
    runtime.block_on(async {
        let clock = Arc::new(ManualClock::new(START_MS));
        let app = store.open(&clock).await;
        let mut model = Naive::default();
        model.boards.insert("default".to_owned(), Board::new(Rules::of_default_board(), START_MS * 1_000));
        let odd = ["Ünïcödé ☃", "with space", "a.b-c_d", "%41?&=", "0", "\"quoted\\", "naïve"];
        let mut users: Vec<String> = (0..14).map(|at| format!("user-{at}")).collect();
        users.extend(odd.map(str::to_owned));
        users.push("x".repeat(64));
        let mut world = World {
            store,
            clock,
            now_ms: START_MS,
            app: Some(app),
            model,
            random: Rng::with_seed(seed),
            users,
            cursors: Vec::new(),
            tags: HashMap::new(),
            checkpoint_ms: None,
            replies: HashMap::new(),
        };
        for board in BOARDS {
            world.put_board(board).await;
        }
        for _ in 0..requests {
            world.step().await;
        }
        world.restart().await;
        world.app().assert_consistent().await;
        for board in BOARDS {
            world.list(board).await;
        }
        let plays: usize = world.model.boards.values().map(Board::plays).sum();
        println!("{plays} plays counted; replies by kind: {:?}", world.replies);
        assert!(plays > requests / 10, "the mix of requests is too tame");
    });
}

impl World {
    async fn step(&mut self) {
        self.pass_time();
        let board = BOARDS[self.random.usize(..BOARDS.len())];
        if !self.model.boards.contains_key(board) && self.random.u32(..3) == 0 {
            return self.put_board(board).await;
        }
        match self.random.u32(..1_000) {
            0..350 => self.play(board).await,
            350..440 => self.batch(board).await,
            440..580 => self.list(board).await,
            580..670 => self.user(board).await,
            670..750 => self.around(board).await,
            750..790 => self.lookup(board).await,
            790..830 => self.distribution(board).await,
            830..850 => self.user_seasons(board).await,
            850..870 => self.seasons(board).await,
            870..886 => self.settle().await,
            886..890 => self.close_season(board).await,
            890..910 => self.read_boards(board).await,
            910..930 => self.patch_board(board).await,
            930..940 => self.put_board(board).await,
            940..945 => self.delete_board(board).await,
            945..980 => self.profile().await,
            980..993 => self.checkpoint().await,
            _ => self.restart().await,
        }
    }

    fn pass_time(&mut self) {
        self.now_ms += match self.random.u32(..1_000) {
            0..400 => 0,
            400..950 => self.random.i64(1..2_000),
            950..985 => self.random.i64(1..120) * MINUTE_MS,
            985..998 => self.random.i64(1..30) * DAY_MS / 10,
            _ => self.random.i64(1..40) * DAY_MS,
        };
        self.clock.set_ms(self.now_ms);
    }

    fn app(&self) -> &TestApp {
        self.app.as_ref().expect("it has started")
    }

    fn now(&self) -> i64 {
        self.now_ms * 1_000
    }

    fn user_id(&mut self) -> String {
        if self.random.u32(..50) == 0 {
            return format!("nobody-{}", self.random.u32(..5));
        }
        // A few play often.
        let at = self.random.usize(..self.users.len()).min(self.random.usize(..self.users.len()));
        self.users[at].clone()
    }

    /// The path of a board's scores; the default board has two.
    fn scores(&mut self, board: &str) -> String {
        if board == "default" && self.random.bool() {
            return "/v1/scores".to_owned();
        }
        format!("/v1/boards/{board}/scores")
    }

    async fn ask(&mut self, method: Method, path: &str, body: &str) -> Answer {
        self.app().ask(method, path, body).await
    }

    /// Compares a reply in full.
    fn compare(&mut self, what: &str, answer: &Answer, expected: Expected) {
        let kind = match &expected {
            Ok(_) => "good",
            Err((_, code)) => code,
        };
        *self.replies.entry(kind).or_default() += 1;
        match expected {
            Ok((status, json)) => {
                assert_eq!(answer.status, status, "{what}: {}", answer.body);
                let found = answer.json();
                assert!(found == json, "{what}\nfound    {found:?}\nexpected {json:?}");
            }
            Err(refused) => {
                assert_eq!(answer.status, refused.0, "{what}: {}", answer.body);
                assert_eq!(answer.headers["content-type"], "application/problem+json", "{what}");
                let json = answer.json();
                assert!(json.get("request_id").text().is_some(), "{what}: {json:?}");
                assert_problem(what, &json, refused);
            }
        }
    }

    /// A play, perhaps one that was sent before, perhaps one that is refused.
    fn new_play(&mut self, board: &str) -> NewPlay {
        let now = self.now();
        let rules = self.model.boards.get(board).map_or_else(Rules::default, |board| board.rules.clone());
        let unit = 10_i64.pow(rules.decimals);
        let points = match self.random.u32(..100) {
            0..70 => self.random.i64(-3..12) * unit,
            70..95 => self.random.i64(-20_000..20_000),
            95..98 => self.random.i64(..),
            _ => *self.random.choice([i64::MAX, i64::MIN, i64::MAX - 1, 0].iter()).unwrap(),
        };
        let played_at = match self.random.u32(..100) {
            0..60 => None,
            60..80 => Some(now - self.random.i64(0..20_000_000)),
            80..90 => Some(now - self.random.i64(0..3_600_000_000)),
            90..96 => Some(now - self.random.i64(0..40 * DAY_MS * 1_000)),
            _ => Some(now + self.random.i64(0..9_000_000)),
        };
        let play_id = match self.random.u32(..100) {
            0..45 => None,
            _ => Some(format!("p{}", self.random.u32(..100_000))),
        };
        let mut play = NewPlay { user: self.user_id(), points, play_id, played_at, broken: None };
        let known = self.model.boards.get(board).filter(|board| board.plays() > 0);
        if let Some(known) = known.filter(|_| self.random.u32(..100) < 18) {
            let (user, play_id, points) = known.play_ids().nth(self.random.usize(..known.plays())).unwrap();
            (play.user, play.play_id) = (user.to_owned(), Some(play_id.to_owned()));
            if self.random.u32(..100) < 75 {
                play.points = points;
            }
        }
        play
    }

    /// The play as JSON, in one of the ways to write it.
    fn written(&mut self, board: &str, play: &mut NewPlay, with_id: bool) -> String {
        let decimals = self.model.boards.get(board).map_or(0, |board| board.rules.decimals);
        let exact = written(play.points, decimals);
        let mut points = match self.random.u32(..4) {
            0 if decimals > 0 => exact.trim_end_matches('0').trim_end_matches('.').to_owned(),
            1 => format!("{}e-{decimals}", play.points),
            2 if decimals == 0 => format!("{exact}.0"),
            _ => exact,
        };
        let mut fields = Vec::new();
        let mut user = play.user.clone();
        match self.random.u32(..100) {
            0 => (user, play.broken) = ("a#b".to_owned(), Some((400, "invalid_id"))),
            1 => (points, play.broken) = ("\"7\"".to_owned(), Some((400, "invalid_body"))),
            2 => {
                points = format!("0.{}1", "0".repeat(decimals as usize));
                play.broken = Some((400, "invalid_points"));
            }
            3 => {
                fields.push("\"cheat\":true".to_owned());
                play.broken = Some((400, "invalid_body"));
            }
            _ => {}
        }
        // A board that is not there is found out only after the play could be read.
        fields.push(format!("\"user_id\":{}", serde_json::to_string(&user).unwrap()));
        fields.push(format!("\"points\":{points}"));
        if let Some(play_id) = play.play_id.as_ref().filter(|_| with_id) {
            fields.push(format!("\"play_id\":\"{play_id}\""));
        }
        if let Some(played_at) = play.played_at {
            let time = Timestamp::from_microsecond(played_at).unwrap();
            let text = match self.random.bool() {
                true => time.to_string(),
                false => time.in_tz("Asia/Seoul").unwrap().strftime("%Y-%m-%dT%H:%M:%S.%6f%:z").to_string(),
            };
            fields.push(format!("\"played_at\":\"{text}\""));
        }
        self.random.shuffle(&mut fields);
        format!("{{{}}}", fields.join(","))
    }

    async fn play(&mut self, board: &str) {
        let mut play = self.new_play(board);
        let in_header = play.play_id.is_some() && self.random.u32(..4) == 0;
        let in_body = !in_header || self.random.bool();
        let body = self.written(board, &mut play, in_body);
        let path = self.scores(board);
        let mut request = Request::post(&path)
            .header("content-type", "application/json")
            .body(Body::from(body.clone()))
            .unwrap();
        if in_header {
            let key = play.play_id.as_ref().unwrap();
            let value = if self.random.bool() { key.clone() } else { format!("\"{key}\"") };
            request.headers_mut().insert("idempotency-key", value.parse().unwrap());
        }
        let answer = self.app().send(request).await;
        self.fill_in(&mut play, &answer.body, Exact::clone);
        let now = self.now();
        let expected = match (self.model.boards.get_mut(board), play.broken) {
            // Points are read by the board's decimals, so not before the board is known.
            (None, Some(refused)) if refused.1 != "invalid_points" => Err(refused),
            (None, _) => Err((404, "unknown_board")),
            (Some(board), _) => board.submit(&[play], now).remove(0).map(|json| (200, json)),
        };
        self.compare(&format!("POST {path} {body}"), &answer, expected);
    }

    /// A play without an id was given one; it must be one that nobody has.
    fn fill_in(&mut self, play: &mut NewPlay, body: &str, find: impl Fn(&Exact) -> Exact) {
        if play.play_id.is_none() {
            let Exact::Object(fields) = find(&Exact::parse(body)) else { panic!("no object in {body}") };
            let made = fields.get("play_id").and_then(Exact::text).unwrap_or("none was made").to_owned();
            assert!(!fields.contains_key("play_id") || made.len() == 32, "{body}");
            play.play_id = Some(made);
        }
    }

    async fn batch(&mut self, board: &str) {
        let count = if self.random.u32(..25) == 0 { 130 } else { self.random.usize(0..9) };
        let mut plays: Vec<NewPlay> = Vec::new();
        let (mut texts, mut same_user) = (Vec::new(), None);
        for _ in 0..count {
            let mut play = self.new_play(board);
            if count > 100 {
                // More of one user than a transaction takes.
                play.user = same_user.get_or_insert(play.user.clone()).clone();
            }
            // One id in two seasons at once: which of them counts is not promised.
            let twin = plays.iter().find(|other| other.user == play.user && other.play_id == play.play_id);
            match twin.filter(|twin| twin.play_id.is_some()).cloned() {
                Some(twin) => play = NewPlay { points: play.points, broken: None, ..twin },
                None if self.random.u32(..12) == 0 && !plays.is_empty() => {
                    let twin = self.random.choice(&plays).unwrap();
                    play = NewPlay { broken: None, ..twin.clone() };
                }
                None => {}
            }
            texts.push(self.written(board, &mut play, true));
            plays.push(play);
        }
        let body = format!("{{\"plays\":[{}]}}", texts.join(","));
        let path = format!("/v1/boards/{board}/scores/batch");
        let answer = self.ask(Method::POST, &path, &body).await;
        let what = format!("POST {path} {body}");
        let now = self.now();
        if !self.model.boards.contains_key(board) {
            return self.compare(&what, &answer, Err((404, "unknown_board")));
        }
        for (at, play) in plays.iter_mut().enumerate() {
            self.fill_in(play, &answer.body, |json| json.get("results").list()[at].clone());
        }
        let expected = self.model.boards.get_mut(board).unwrap().submit(&plays, now);
        assert_eq!(answer.status, 200, "{what}: {}", answer.body);
        let found = answer.json();
        let results = found.get("results").list();
        assert_eq!(results.len(), plays.len(), "{what}: {found:?}");
        for ((text, found), expected) in texts.iter().zip(results).zip(expected) {
            *self.replies.entry("in a batch").or_default() += 1;
            match expected {
                Ok(json) => {
                    assert!(*found == json, "{text} in {what}\nfound    {found:?}\nexpected {json:?}");
                }
                Err(refused) => assert_problem(&format!("{text} in {what}"), found, refused),
            }
        }
    }

    /// A season to ask for: mostly none, else one that was, is, or cannot be.
    fn season(&mut self, board: &str) -> Option<String> {
        let board = self.model.boards.get(board)?;
        match self.random.u32(..100) {
            0..60 => None,
            60..85 => {
                let seasons: Vec<&Season> = board.seasons.iter().collect();
                self.random.choice(seasons).map(|season| season.name.clone())
            }
            85..95 => {
                let days = self.random.i64(-40..3);
                Some(Season::at(&board.rules, (self.now_ms + days * DAY_MS) * 1_000).name)
            }
            _ => Some(
                (*self.random.choice(["2026-13", "all", "2026-04", "2026-04-01", "", "x"].iter()).unwrap())
                    .to_owned(),
            ),
        }
    }
}

fn with_season(mut path: String, season: Option<&str>) -> String {
    if let Some(season) = season {
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(&format!("season={season}"));
    }
    path
}

fn in_path(id: &str) -> String {
    utf8_percent_encode(id, NON_ALPHANUMERIC).to_string()
}

/// A problem as RFC 9457 has it, of this status and code. What `detail` says is for people.
fn assert_problem(what: &str, json: &Exact, (status, code): Refused) {
    assert_eq!(json.get("code"), &Exact::from(code), "{what}: {json:?}");
    assert_eq!(json.get("status").number(), i64::from(status), "{what}");
    assert_eq!(json.get("type"), &Exact::from(format!("/docs/problems#{code}")), "{what}");
    for field in ["title", "detail"] {
        assert!(json.get(field).text().is_some_and(|text| !text.is_empty()), "{what}: {json:?}");
    }
}

#[path = "model/naive.rs"]
mod naive;
#[path = "model/reads.rs"]
mod reads;
#[path = "model/rules.rs"]
mod rules;
