//! Seasons that end, over HTTP: how long it takes to close one and to copy one, what plays feel of it, and what a finished one costs to read.
//!
//! There is no rival here: Redis has no seasons. What is compared is ours before and meanwhile, and finished beside live. Plays on another board go on all the
//! time, once at a steady rate, where their latency tells, and once as many as there can be, where their number does.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::http::load::{Load, Measured};
use crate::http::ours::{HttpFill, HttpTalk, get_once, post_once};
use crate::http::question::{Asked, Question};
use crate::http::server::{self, OurServer};
use crate::http::{BATCH_CONNECTIONS, pin};
use crate::report::{Report, Row, progress};

/// Entries a second that are to be closed.
const CLOSE_GOAL: f64 = 100_000.0;
/// How much of their rate plays must keep while a season closes.
const PLAYS_KEPT: f64 = 0.8;
/// Connections of the steady plays.
const STEADY_CONNECTIONS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(1_200);

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many users the season has that ends
    #[arg(long, default_value_t = 1_000_000)]
    users: u64,
    /// How many connections ask at a time
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// Steady plays a second on another board
    #[arg(long, default_value_t = 2_500)]
    plays: u32,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Where the server writes; must be on a real disk
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// The server to measure; without it, the program `standings` beside this one
    #[arg(long)]
    server: Option<PathBuf>,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.users >= 10 && arguments.connections > 0, "at least 10 users and a connection");
    ensure!(arguments.seconds > 0.0 && arguments.seconds <= 3_600.0, "--seconds must be up to an hour");
    ensure!((1..=100_000).contains(&arguments.plays), "--plays must be 1 to 100000");
    let program = server::program(arguments.server.as_deref())?;
    let (core, pinned) = pin()?;
    let folder = std::path::absolute(&arguments.folder)?;
    let server = OurServer::start(&program, &folder, core)?;
    let mut report = Report::new(arguments.json);
    let bench = Bench { arguments, address: server.address(), server: &server };
    for board in ["steady", "busy", "copied"] {
        bench.make(board)?;
        bench.fill(board)?;
    }
    bench.fill("default")?;
    bench.reads("live", "steady", &mut report)?;

    let before = bench.steady(|| bench.sleep())?;
    let mut closed = Closed::default();
    let meanwhile = bench.steady(|| {
        closed = bench.close("steady")?;
        Ok(())
    })?;
    report.add(Row::more("close", closed.per_second(), Some(CLOSE_GOAL), "users/s").reach(1.0));
    report.add(Row::less("close_seconds", closed.closing.as_secs_f64(), None, "s"));
    report.add(Row::less("sweep_seconds", closed.sweeping.as_secs_f64(), None, "s"));
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let milliseconds = |latencies: &Latencies| latencies.quantile(quantile).as_secs_f64() * 1e3;
        report.add(Row::less(
            format!("steady_play_{name}"),
            milliseconds(&meanwhile),
            Some(milliseconds(&before)),
            "ms",
        ));
    }
    bench.reads("past", "steady", &mut report)?;

    let before = bench.busy()?;
    let (meanwhile, closed) = bench.busy_while_closing("busy")?;
    report.add(
        Row::more("busy_play", meanwhile.per_second(), Some(before.per_second()), "/s").reach(PLAYS_KEPT),
    );
    report.add(Row::more("busy_close", closed, Some(CLOSE_GOAL), "users/s"));

    let mut took = Duration::ZERO;
    bench.steady(|| {
        took = bench.copy("copied", "meanwhile")?;
        Ok(())
    })?;
    let rate = arguments.users as f64 / took.as_secs_f64();
    report.add(Row::more("snapshot", rate, Some(CLOSE_GOAL), "users/s").reach(1.0));
    let rate = arguments.users as f64 / bench.copy("copied", "alone")?.as_secs_f64();
    report.add(Row::more("snapshot_alone", rate, Some(CLOSE_GOAL), "users/s"));
    let resident = server.process().resident_bytes()? as f64 / f64::from(1 << 20);
    report.add(Row::less("memory", resident, None, "MiB"));
    let title = format!("{} users, {} connections; {pinned}", arguments.users, arguments.connections);
    report.print(&title, "beside");
    if !arguments.json {
        println!(
            "\nclose, snapshot: while {} plays a second go on; beside: what is to be reached; snapshot_alone: without plays. steady_play: latency of those plays, beside the same\n\
             without a closing. busy_play: as many plays as there can be, beside the same without a closing. past_*: beside the live season before.",
            arguments.plays
        );
    }
    Ok(())
}

/// How long a season took to close.
#[derive(Debug, Default)]
struct Closed {
    users: u64,
    /// Until everybody had their final rank.
    closing: Duration,
    /// Until the live entries were gone, after that.
    sweeping: Duration,
}

impl Closed {
    fn per_second(&self) -> f64 {
        self.users as f64 / self.closing.as_secs_f64()
    }
}

#[derive(Debug, Default)]
struct Latencies(Vec<Duration>);

impl Latencies {
    fn quantile(&self, quantile: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = ((sorted.len() as f64 * quantile) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or_default()
    }
}

struct Bench<'a> {
    arguments: &'a Arguments,
    address: SocketAddr,
    server: &'a OurServer,
}

impl Bench<'_> {
    fn sleep(&self) -> Result<()> {
        std::thread::sleep(Duration::from_secs_f64(self.arguments.seconds));
        Ok(())
    }

    fn make(&self, board: &str) -> Result<()> {
        let path = format!("/v1/boards/{board}");
        let (status, body) = post_once(self.address, "PUT", &path, r#"{"resets":"monthly"}"#)?;
        ensure!(status == 201, "making a board was answered {status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }

    fn fill(&self, board: &str) -> Result<()> {
        let users = self.arguments.users;
        let bar = progress(users, "filling a board");
        let mut fill = HttpFill { board, users, next: 0, bar: &bar };
        let load = Load { connections: BATCH_CONNECTIONS, time: None, ..self.load() };
        load.run(&mut fill)?;
        bar.finish_and_clear();
        Ok(())
    }

    fn load(&self) -> Load {
        Load {
            address: self.address,
            process: self.server.process().id(),
            connections: self.arguments.connections,
            sleeps: false,
            time: Some(Duration::from_secs_f64(self.arguments.seconds)),
        }
    }

    /// Rank, top and around, of the live season or of the same season once it is final.
    fn reads(&self, when: &str, board: &str, report: &mut Report) -> Result<()> {
        let season = match when {
            "past" => format!("?season={}", self.season(board)?),
            _ => String::new(),
        };
        for (what, question) in
            [("rank", Question::Rank), ("top10", Question::Top), ("around", Question::Around)]
        {
            let asked = Asked::new(question, self.arguments.users, self.arguments.connections, 7);
            let measured = self.load().run(&mut HttpTalk::of(asked, board, &season))?;
            report.add(Row::more(format!("{when}_{what}"), measured.per_second(), None, "/s"));
            let p99 = measured.quantile(0.99).as_secs_f64() * 1e3;
            report.add(Row::less(format!("{when}_{what}_p99"), p99, None, "ms"));
        }
        Ok(())
    }

    /// As many plays as there can be, for a while.
    fn busy(&self) -> Result<Measured> {
        let asked = Asked::new(Question::Play, self.arguments.users, self.arguments.connections, 9);
        self.load().run(&mut HttpTalk::of(asked, "default", ""))
    }

    /// The same while a season closes, and how many users a second were closed meanwhile. A large season is not done by then: it has given way.
    fn busy_while_closing(&self, board: &str) -> Result<(Measured, f64)> {
        let season = self.season(board)?;
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| self.close(board));
            let begin = Instant::now();
            let meanwhile = self.busy()?;
            let info = self.get(&format!("/v1/boards/{board}/seasons/{season}"))?;
            let took = begin.elapsed().as_secs_f64();
            let closed = closing.join().map_err(|_| anyhow::anyhow!("closing failed"))??;
            let rate = match info["closing"]["done"].as_u64() {
                Some(done) => done as f64 / took,
                None => closed.per_second(),
            };
            Ok((meanwhile, rate))
        })
    }

    /// Plays at a steady rate while something is done; their latencies, counted from when each was due.
    fn steady(&self, work: impl FnOnce() -> Result<()>) -> Result<Latencies> {
        let stop = AtomicBool::new(false);
        let interval = Duration::from_secs_f64(STEADY_CONNECTIONS as f64 / f64::from(self.arguments.plays));
        std::thread::scope(|scope| {
            let players: Vec<_> = (0..STEADY_CONNECTIONS)
                .map(|connection| {
                    let stop = &stop;
                    let users = self.arguments.users;
                    scope.spawn(move || {
                        let mut asked = Asked::new(Question::Play, users, 1, 100 + connection as u64);
                        let mut latencies = Vec::new();
                        let mut due =
                            Instant::now() + interval.mul_f64(connection as f64 / STEADY_CONNECTIONS as f64);
                        let mut stream = crate::http::ours::connect(self.address)?;
                        while !stop.load(Ordering::Relaxed) {
                            std::thread::sleep(due.saturating_duration_since(Instant::now()));
                            let body = format!(r#"{{"user_id":"{}","points":1}}"#, asked.draw(0));
                            let status = crate::http::ours::post_on(&mut stream, "/v1/scores", &body)?;
                            ensure!(status == 200, "a play was answered {status}");
                            latencies.push(due.elapsed());
                            due += interval;
                        }
                        Ok(latencies)
                    })
                })
                .collect();
            let worked = work();
            stop.store(true, Ordering::Relaxed);
            let mut all = Latencies::default();
            for player in players {
                all.0.extend(player.join().map_err(|_| anyhow::anyhow!("a player failed"))??);
            }
            worked.map(|()| all)
        })
    }

    /// The season that a board is in.
    fn season(&self, board: &str) -> Result<String> {
        let list = self.get(&format!("/v1/boards/{board}/scores?limit=1"))?;
        list["season"].as_str().map(str::to_owned).context("a list without a season")
    }

    fn get(&self, path: &str) -> Result<Value> {
        let (status, body) = get_once(self.address, path)?;
        ensure!(status == 200, "{path} was answered {status}: {}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice(&body)?)
    }

    fn close(&self, board: &str) -> Result<Closed> {
        let season = self.season(board)?;
        let path = format!("/v1/boards/{board}/seasons/{season}");
        let begin = Instant::now();
        let (status, body) = post_once(self.address, "POST", &format!("{path}/close"), "")?;
        ensure!(
            [200, 202].contains(&status),
            "closing was answered {status}: {}",
            String::from_utf8_lossy(&body)
        );
        let mut closing = None;
        loop {
            let info = self.get(&path)?;
            if info["state"] == "final" && closing.is_none() {
                // By the server's own times: asking now and then would add to it.
                let time = |field: &str| -> Result<jiff::Timestamp> {
                    Ok(info[field].as_str().context("a final season without times")?.parse()?)
                };
                let took = time("final_at")?.duration_since(time("closed_at")?);
                closing = Some(Duration::try_from(took)?);
            }
            if let (Some(closing), true) = (closing, info["swept"] == true) {
                let users = info["players"].as_u64().context("a season without players")?;
                ensure!(users == self.arguments.users, "{users} users in the finished season");
                return Ok(Closed { users, closing, sweeping: begin.elapsed().saturating_sub(closing) });
            }
            ensure!(begin.elapsed() < PATIENCE, "the season does not become final: {info}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// How long a snapshot took.
    fn copy(&self, board: &str, label: &str) -> Result<Duration> {
        let path = format!("/v1/boards/{board}/snapshots");
        let begin = Instant::now();
        let body = format!(r#"{{"label":"{label}"}}"#);
        let (status, body) = post_once(self.address, "POST", &path, &body)?;
        ensure!(status == 202, "a snapshot was answered {status}: {}", String::from_utf8_lossy(&body));
        loop {
            if self.get(&format!("{path}/{label}"))?["finished_at"].is_string() {
                return Ok(begin.elapsed());
            }
            ensure!(begin.elapsed() < PATIENCE, "the snapshot is not finished");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
