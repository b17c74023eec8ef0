//! Our server over HTTP beside redis-server: the same users, the same questions, as a game's back end asks them.
//!
//! Each server has one core to itself and the load has another. Many connections, one request under way on each, no pipelining:
//! what counts is then mostly the way to the server and back, on both sides. Redis runs twice, once with its log synced before
//! each answer (`appendfsync always`), which promises what our 200 promises, and once without a log.
//!
//! Ours and the rival are measured in turn, in several rounds, and the rounds are taken together: what disturbs the machine
//! disturbs both. Before each measurement all servers come to rest, so that nobody pays for what another has put off.

pub(crate) mod load;
pub(crate) mod ours;
pub(crate) mod question;
mod resp;
pub(crate) mod server;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::load::{Load, Measured, processor_time};
use self::ours::{HttpFill, HttpTalk};
use self::question::{Asked, Question};
use self::resp::{RedisFill, RedisTalk};
use self::server::OurServer;
use crate::report::{Report, Row, progress};
use crate::rival::{Process, RedisOptions, RedisServer};

/// Plays in a batch: as many as our server takes.
const BATCH: u64 = 1_000;
/// Connections that send batches.
pub(crate) const BATCH_CONNECTIONS: usize = 4;
/// Durable plays a second in batches that are to be reached.
const BATCH_GOAL: f64 = 60_000.0;
const ROUNDS: u64 = 2;
/// A server that does background work for longer than this is measured with it.
const REST_MAX: Duration = Duration::from_secs(20);

/// What is measured by asking, and the ratio to reach.
const QUESTIONS: [(&str, Question, Option<f64>); 5] = [
    ("empty", Question::Empty, None),
    ("rank", Question::Rank, Some(0.8)),
    ("top10", Question::Top, Some(0.8)),
    ("around", Question::Around, Some(1.2)),
    ("play_durable", Question::Play, Some(1.0)),
];

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many users
    #[arg(long, default_value_t = 1_000_000)]
    users: u64,
    /// How many connections ask at a time
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// Seconds for each measurement and round
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Where the servers write; must be on a real disk
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// The server to measure; without it, the program `standings` beside this one
    #[arg(long)]
    server: Option<PathBuf>,
    /// Only these: empty, rank, top10, around, play_durable, restart; the servers are filled in any case
    #[arg(long, value_delimiter = ',', value_parser = ["empty", "rank", "top10", "around", "play_durable", "restart"])]
    only: Vec<String>,
    /// Only our side: quicker when trying something out
    #[arg(long)]
    no_rival: bool,
    /// Let the load sleep while it waits, so that the servers have to wake it
    #[arg(long)]
    sleeping_load: bool,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn wants(&self, what: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == what)
    }

    fn say(&self, text: &str) {
        if !self.json {
            println!("{text}");
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.users >= 10 && arguments.connections > 0, "at least 10 users and a connection");
    ensure!(arguments.seconds > 0.0 && arguments.seconds <= 3_600.0, "--seconds must be up to an hour");
    let program = server::program(arguments.server.as_deref())?;
    let (server_core, pinned) = pin()?;
    let mut bench = Bench::start(arguments, &program, server_core)?;
    let mut report = Report::new(arguments.json);
    bench.fill(&mut report)?;
    for (what, question, reach) in QUESTIONS {
        if arguments.wants(what) {
            bench.compare(what, question, reach, &mut report)?;
        }
    }
    if arguments.wants("restart") {
        bench.restart(&mut report)?;
    }
    let version = bench.rivals.as_ref().map_or(String::new(), |rivals| rivals.plain.version.clone());
    let title = format!("{} users, {} connections; {pinned}", arguments.users, arguments.connections);
    report.print(&title, &format!("redis {version}"));
    arguments.say(
        "\nredis without a log but in play_*, play_durable and restart_after_kill, where it has appendfsync always. play_batch: beside\n\
         pipelined ZINCRBY. empty: GET /healthz beside PING. around: one request beside two trips. restart: beside its RDB file;\n\
         restart_after_kill: beside its log. *_cpu: processor time of the server for an operation, which other work on the machine disturbs least.",
    );
    Ok(())
}

/// Keeps this thread, which is the load, on one core, and names another for the servers.
pub(crate) fn pin() -> Result<(Option<usize>, String)> {
    let allowed = sched_getaffinity(None).context("asking for the cores")?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let (Some(first), Some(second)) = (cores.next(), cores.next()) else {
        return Ok((None, "servers and load on the same core, for there is no other".to_owned()));
    };
    let mut load = CpuSet::new();
    load.set(second);
    sched_setaffinity(None, &load).context("choosing a core")?;
    Ok((Some(first), "each server on one core, the load on another".to_owned()))
}

struct Rivals {
    /// Each write is on the disk before it is answered.
    durable: RedisServer,
    /// Nothing is written.
    plain: RedisServer,
}

struct Bench<'a> {
    arguments: &'a Arguments,
    ours: OurServer,
    rivals: Option<Rivals>,
    seed: u64,
}

impl<'a> Bench<'a> {
    fn start(arguments: &'a Arguments, program: &std::path::Path, core: Option<usize>) -> Result<Self> {
        let folder = std::path::absolute(&arguments.folder)?;
        let ours = OurServer::start(program, &folder, core)?;
        let redis = |append_always| {
            let port = free_port()?;
            RedisServer::start_with(&folder, RedisOptions { port, core, append_always })
        };
        let rivals = match arguments.no_rival {
            true => None,
            false => Some(Rivals { durable: redis(true)?, plain: redis(false)? }),
        };
        Ok(Bench { arguments, ours, rivals, seed: 1 })
    }

    /// Gives every user their points, in batches; this is the measurement of batches, too.
    fn fill(&mut self, report: &mut Report) -> Result<()> {
        let users = self.arguments.users;
        let sleeps = self.arguments.sleeping_load;
        let load =
            |address, process| Load { address, process, connections: BATCH_CONNECTIONS, sleeps, time: None };
        let rate = |measured: &Measured| users as f64 / measured.time().as_secs_f64();
        let microseconds = |measured: &Measured| measured.server().as_secs_f64() * 1e6 / users as f64;

        let bar = progress(users, "filling our server");
        let mut fill = HttpFill { board: "default", users, next: 0, bar: &bar };
        let ours = load(self.ours.address(), self.ours.process().id()).run(&mut fill)?;
        bar.finish_and_clear();
        let players = self.ours.players()?;
        ensure!(players == users, "{players} of {users} users were counted");

        let (mut rival_rate, mut rival_microseconds) = (None, None);
        if let Some(rivals) = &self.rivals {
            for redis in [&rivals.durable, &rivals.plain] {
                let bar = progress(users, "filling redis-server");
                let waiting = vec![0; BATCH_CONNECTIONS];
                let mut fill = RedisFill { users, next: 0, waiting, bar: &bar };
                let measured = load(loopback(redis.port()), redis.process().id()).run(&mut fill)?;
                bar.finish_and_clear();
                let count: u64 = redis::cmd("ZCARD").arg("board").query(&mut redis.connect()?)?;
                ensure!(count == users, "{count} of {users} users were counted by redis-server");
                rival_rate.get_or_insert(rate(&measured));
                rival_microseconds.get_or_insert(microseconds(&measured));
            }
        }
        report.add(Row::more("play_batch", rate(&ours), rival_rate, "/s"));
        report.add(Row::more("play_batch_goal", rate(&ours), Some(BATCH_GOAL), "/s").reach(1.0));
        report.add(Row::less("play_batch_cpu", microseconds(&ours), rival_microseconds, "µs"));
        self.rest()?;
        self.memory("memory", report)
    }

    fn memory(&self, what: &str, report: &mut Report) -> Result<()> {
        let mebibytes =
            |process: &Process| -> Result<f64> { Ok(process.resident_bytes()? as f64 / (1 << 20) as f64) };
        let rival = self.rivals.as_ref().map(|rivals| mebibytes(rivals.plain.process())).transpose()?;
        report.add(Row::less(what, mebibytes(self.ours.process())?, rival, "MiB"));
        Ok(())
    }

    /// Asks ours and the rivals the same, in turn.
    fn compare(
        &mut self,
        what: &str,
        question: Question,
        reach: Option<f64>,
        report: &mut Report,
    ) -> Result<()> {
        let (mut ours, mut rival, mut plain) =
            (Measured::default(), Measured::default(), Measured::default());
        let durable = question == Question::Play;
        let bar = progress(ROUNDS, "asking");
        for _ in 0..ROUNDS {
            self.seed += 1;
            ours.add(self.ask_ours(question)?);
            if let Some(rivals) = &self.rivals {
                if durable {
                    plain.add(self.ask_redis(&rivals.plain, question)?);
                }
                rival.add(self.ask_redis(if durable { &rivals.durable } else { &rivals.plain }, question)?);
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.arguments.say(what);
        self.arguments.say(&ours.line("ours"));
        let has_rival = self.rivals.is_some();
        if has_rival {
            self.arguments.say(&rival.line("redis"));
        }
        let row = Row::more(what, ours.per_second(), has_rival.then(|| rival.per_second()), "/s");
        report.add(Row { reach, ..row });
        if durable && has_rival {
            self.arguments.say(&plain.line("redis, no log"));
            report.add(Row::more("play_vs_no_aof", ours.per_second(), Some(plain.per_second()), "/s"));
        }
        let mut less = |name: &str, unit, of: fn(&Measured) -> f64| {
            let row = Row::less(format!("{what}_{name}"), of(&ours), has_rival.then(|| of(&rival)), unit);
            report.add(row.reach_if(name == "p99" && reach.is_some(), 1.0));
        };
        less("p99", "ms", |measured| measured.quantile(0.99).as_secs_f64() * 1e3);
        less("cpu", "µs", Measured::server_microseconds);
        Ok(())
    }

    fn load(&self, address: SocketAddr, process: &Process) -> Load {
        let time = Some(Duration::from_secs_f64(self.arguments.seconds));
        let sleeps = self.arguments.sleeping_load;
        Load { address, process: process.id(), connections: self.arguments.connections, sleeps, time }
    }

    fn asked(&self, question: Question) -> Asked {
        Asked::new(question, self.arguments.users, self.arguments.connections, self.seed)
    }

    fn ask_ours(&self, question: Question) -> Result<Measured> {
        self.rest()?;
        self.load(self.ours.address(), self.ours.process())
            .run(&mut HttpTalk::new(self.asked(question)))
            .with_context(|| format!("asking our server: {question:?}"))
    }

    fn ask_redis(&self, redis: &RedisServer, question: Question) -> Result<Measured> {
        self.rest()?;
        self.load(loopback(redis.port()), redis.process())
            .run(&mut RedisTalk::new(self.asked(question), self.arguments.connections))
            .with_context(|| format!("asking redis-server: {question:?}"))
    }

    /// How long each server takes until it answers again, after a clean end and after a sudden one.
    fn restart(&mut self, report: &mut Report) -> Result<()> {
        self.memory("memory_after_load", report)?;
        let bar = progress(4, "restarting");
        let begin = Instant::now();
        self.ours.terminate()?;
        let stopped = begin.elapsed();
        let ours = self.ours.start_again()?;
        self.still_there()?;
        bar.inc(1);
        let (mut rival, mut rival_save) = (None, None);
        if let Some(rivals) = &mut self.rivals {
            let begin = Instant::now();
            redis::cmd("SAVE").query::<String>(&mut rivals.plain.connect()?)?;
            rival_save = Some(begin.elapsed().as_secs_f64());
            rival = Some(restart_redis(&mut rivals.plain, self.arguments.users)?);
        }
        bar.inc(1);
        report.add(Row::less("restart", ours.as_secs_f64(), rival, "s"));
        report.add(Row::less("stop", stopped.as_secs_f64(), rival_save, "s"));

        // What came after the last checkpoint has to be read again, so something has to come.
        let plays = self.ask_ours(Question::Play)?;
        let ours = self.ours.start_again()?;
        self.still_there()?;
        bar.inc(1);
        let rival = match &mut self.rivals {
            Some(rivals) => Some(restart_redis(&mut rivals.durable, self.arguments.users)?),
            None => None,
        };
        bar.finish_and_clear();
        self.arguments
            .say(&format!("killed after {:.0} plays", plays.per_second() * plays.time().as_secs_f64()));
        report.add(Row::less("restart_after_kill", ours.as_secs_f64(), rival, "s"));
        Ok(())
    }

    fn still_there(&self) -> Result<()> {
        let (players, users) = (self.ours.players()?, self.arguments.users);
        ensure!(players == users, "the server came back with {players} of {users} users");
        Ok(())
    }

    /// Waits until no server does anything, or one of them seems never to stop.
    fn rest(&self) -> Result<()> {
        let mut processes = vec![self.ours.process().id()];
        if let Some(rivals) = &self.rivals {
            processes.extend([rivals.durable.process().id(), rivals.plain.process().id()]);
        }
        let used = || processes.iter().map(|process| processor_time(*process)).sum::<Result<Duration>>();
        let deadline = Instant::now() + REST_MAX;
        loop {
            let before = used()?;
            std::thread::sleep(Duration::from_millis(200));
            // What the clock of the processor time cannot tell from nothing.
            if used()? - before <= Duration::from_millis(20) || Instant::now() > deadline {
                return Ok(());
            }
        }
    }
}

/// Seconds until a redis-server that was killed answers again, with all its users.
fn restart_redis(redis: &mut RedisServer, users: u64) -> Result<f64> {
    let begin = Instant::now();
    redis.restart()?;
    let mut connection = redis.connect()?;
    let took = begin.elapsed().as_secs_f64();
    let count: u64 = redis::cmd("ZCARD").arg("board").query(&mut connection)?;
    ensure!(count == users, "redis-server came back with {count} of {users} users");
    Ok(took)
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A port that nobody has at this moment.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(loopback(0)).context("looking for a free port")?;
    Ok(listener.local_addr()?.port())
}
