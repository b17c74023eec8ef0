//! The rank tree beside redis-server: the same users, the same questions, no network on either side.
//!
//! Redis is timed by a Lua loop inside the server, less the same loop around a command that does nothing; ours by a loop over ids
//! made beforehand. Both run on one thread, in turn, and the best of several rounds counts: what disturbs the machine disturbs both.

use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufReader, BufWriter};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use rank_tree::{Entry, Order, RankTree, Standing, Ties, Update, Users};

use crate::data::{self, IdShape, Random, Scores};
use crate::report::{Report, Row, progress};
use crate::rival::{RedisServer, resident_bytes};

/// A size at which much still fits the caches, to show how times grow.
const SMALL_USERS: u64 = 1_000_000;
/// Updates before memory is measured, at most; a small tree gets as many as it has users.
const CHURN_MAX: u64 = 10_000_000;
/// Every measurement is made so often, and the best counts: the one that was disturbed least.
const ROUNDS: u64 = 3;
/// How often the empty loop runs in a round.
const NOTHING_RUNS: usize = 5;
const START: u64 = 1_750_000_000_000_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many users
    #[arg(long, default_value_t = 25_000_000)]
    users: u64,
    /// What their ids look like
    #[arg(long, value_enum, default_value = "numbered")]
    ids: IdShape,
    /// Operations of each kind on our side; Redis does a fifth of them
    #[arg(long, default_value_t = 2_000_000)]
    operations: u64,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    /// Only our side: quicker when trying something out
    #[arg(long)]
    no_rival: bool,
}

/// Microseconds an operation, by name; of several rounds the best.
#[derive(Debug, Clone, Default)]
struct Times(BTreeMap<&'static str, f64>);

impl Times {
    fn take(&mut self, what: &'static str, microseconds: f64) {
        let best = self.0.entry(what).or_insert(f64::INFINITY);
        *best = best.min(microseconds);
    }

    fn of(&self, what: &str) -> f64 {
        self.0.get(what).copied().unwrap_or(f64::NAN)
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    anyhow::ensure!(arguments.users > 1_000, "--users must be more than 1000");
    let users = arguments.users;
    // Memory first, while the process has done nothing else.
    let base = resident_bytes("self")?;
    let mut tree = load(arguments, users, Scores::Skewed)?;
    churn(arguments, &mut tree);
    let bytes = (resident_bytes("self")? - base) as f64 / users as f64;
    let memory = tree.memory();

    let mut redis = if arguments.no_rival { None } else { Some(Redis::load(users)?) };
    let (ours, rival) = side_by_side(arguments, Scores::Skewed, &mut tree, redis.as_mut())?;
    let (our_file, rival_file) = (checkpoint(&mut tree)?, redis.as_mut().map(Redis::snapshot).transpose()?);
    let (rival_bytes, version) = redis
        .as_ref()
        .map_or((None, String::new()), |redis| (Some(redis.bytes), redis.server.version.clone()));
    drop((tree, redis));

    let mut tree = load(arguments, users, Scores::Distinct)?;
    let (distinct, _) = side_by_side(arguments, Scores::Distinct, &mut tree, None)?;
    let distinct_memory = tree.memory();
    drop(tree);

    let small = SMALL_USERS.min(users);
    let mut tree = load(arguments, small, Scores::Skewed)?;
    let mut redis = if arguments.no_rival { None } else { Some(Redis::load(small)?) };
    let (ours_small, rival_small) = side_by_side(arguments, Scores::Skewed, &mut tree, redis.as_mut())?;
    drop((tree, redis));

    let mut report = Report::new(arguments.json);
    let rival_time = |what: &str| rival.as_ref().map(|times| times.of(what));
    let time = |what: &str, rival: &str| Row::less(what, ours.of(what), rival_time(rival), "µs");
    report.add(time("rank_first", "rank").reach(8.0));
    report.add(time("rank_shared", "rank").reach(12.0));
    report.add(time("rank_dense", "rank"));
    report.add(time("add_point", "add_point").reach(10.0));
    report.add(time("get", "get"));
    report.add(time("top10", "top10"));
    report.add(time("around", "around"));
    // Beside our own single changes: the rival has no batch that is more than a sequence.
    report.add(Row::less("batch_of_1000", ours.of("set_batched"), Some(ours.of("set")), "µs"));
    report.add(Row::less("bytes_per_user", bytes, rival_bytes, "B"));
    report.add(Row::less("checkpoint_load", our_file.load, rival_file.map(|file| file.load), "s").reach(4.0));
    report.add(Row::less("checkpoint_write", our_file.write, rival_file.map(|file| file.write), "s"));
    report.add(Row::less("checkpoint_bytes", our_file.bytes, rival_file.map(|file| file.bytes), "B/user"));
    for (what, rival) in
        [("rank_first", "rank"), ("rank_shared", "rank"), ("add_point", "add_point"), ("around", "around")]
    {
        report.add(Row::less(format!("distinct_{what}"), distinct.of(what), rival_time(rival), "µs"));
    }
    for (what, rival_what) in [("rank_first", "rank"), ("rank_shared", "rank"), ("add_point", "add_point")] {
        let growth = |large: &Times, small: &Times, what: &str| large.of(what) / small.of(what);
        let rival = rival.as_ref().zip(rival_small.as_ref());
        let rival = rival.map(|(large, small)| growth(large, small, rival_what));
        report.add(Row::less(format!("growth_{what}"), growth(&ours, &ours_small, what), rival, "×"));
    }
    report.print(&format!("{users} users, ids {:?}", arguments.ids), &format!("redis {version}"));
    if !arguments.json {
        let each = |bytes: usize| bytes as f64 / users as f64;
        println!(
            "\nours, bytes a user: ids {:.1}, id table {:.1}, entries {:.1}, index {:.1} (distinct scores: entries {:.1}, index {:.1})",
            each(memory.ids),
            each(memory.id_table),
            each(memory.entries),
            each(memory.index),
            each(distinct_memory.entries),
            each(distinct_memory.index)
        );
        println!(
            "times: the best of {ROUNDS} rounds, ours and the rival's in turn. growth_*: time at {users} users over time at {small}.\n\
             distinct_*: every score another, beside the rival's tied ones. batch_of_1000: beside our own changes one by one.\n\
             Ours runs with huge pages where the system gives them (mimalloc asks for them); Redis switches them off for itself. Redis has numbered ids whatever --ids says."
        );
    }
    Ok(())
}

/// Measures ours and the rival in turn, so that what disturbs the machine disturbs both.
fn side_by_side(
    arguments: &Arguments,
    scores: Scores,
    tree: &mut RankTree,
    mut redis: Option<&mut Redis>,
) -> anyhow::Result<(Times, Option<Times>)> {
    let (mut ours, mut rival) = (Times::default(), Times::default());
    for round in 0..ROUNDS {
        measure(arguments, scores, tree, round, &mut ours);
        if let Some(redis) = &mut redis {
            redis.measure((arguments.operations / ROUNDS / 5).max(1_000), &mut rival)?;
        }
    }
    Ok((ours, redis.map(|_| rival)))
}

fn load(arguments: &Arguments, users: u64, scores: Scores) -> anyhow::Result<RankTree> {
    let bar = progress(users, "loading the tree");
    let rows = (0..users).map(|user| {
        if user.is_multiple_of(65_536) {
            bar.set_position(user);
        }
        (
            data::id(arguments.ids, user),
            Entry { score: data::score(scores, user, users), reached_at: START + user },
        )
    });
    let tree = RankTree::from_unsorted(Order::High, Arc::new(Users::new()), rows)?;
    bar.finish_and_clear();
    Ok(tree)
}

fn measure(arguments: &Arguments, scores: Scores, tree: &mut RankTree, round: u64, times: &mut Times) {
    let users = tree.len();
    let count = (arguments.operations / ROUNDS).max(1_000);
    let mut random = Random(7 + round);
    let mut ids = |count: u64| -> Vec<String> {
        (0..count).map(|_| data::id(arguments.ids, random.below(users))).collect()
    };
    let bar = progress(9, "measuring the tree");
    let mut each = |what: &'static str, count: u64, operation: &mut dyn FnMut()| {
        let start = Instant::now();
        operation();
        bar.inc(1);
        times.take(what, start.elapsed().as_secs_f64() * 1e6 / count as f64);
    };
    for (what, ties) in
        [("rank_first", Ties::First), ("rank_shared", Ties::Shared), ("rank_dense", Ties::Dense)]
    {
        let asked = ids(count);
        each(what, count, &mut || {
            for id in &asked {
                black_box(tree.rank(id, ties));
            }
        });
    }
    let asked = ids(count);
    each("get", count, &mut || {
        for id in &asked {
            black_box(tree.get(id));
        }
    });
    let asked = ids(count);
    let mut now = START + users * (2 + round);
    each("add_point", count, &mut || {
        for id in &asked {
            now += 1;
            add_point(tree, id, now);
        }
    });
    let mut entry = |id: &String| {
        now += 1;
        let score = match scores {
            Scores::Skewed => data::score(scores, now, users),
            // As good as distinct: drawn from all 31 bits.
            Scores::Distinct => (Random(now).next() >> 33) as i64,
        };
        (id.clone(), Entry { score, reached_at: now })
    };
    let changes: Vec<(String, Entry)> = ids(count).iter().map(&mut entry).collect();
    each("set", count, &mut || {
        for (id, entry) in &changes {
            tree.set(id, *entry).expect("the user is known");
        }
    });
    let changes: Vec<(String, Entry)> = ids(count).iter().map(&mut entry).collect();
    each("set_batched", count, &mut || {
        for changes in changes.chunks(1_000) {
            let updates: Vec<Update<'_>> =
                changes.iter().map(|(user, entry)| Update { user, entry: Some(*entry) }).collect();
            tree.apply(&updates).expect("the users are known");
        }
    });
    let few = count / 10;
    each("top10", few, &mut || {
        for _ in 0..few {
            read(tree, &tree.page(0, 10, Ties::Shared));
        }
    });
    let asked = ids(few);
    each("around", few, &mut || {
        for id in &asked {
            let around = tree.around(id, 4, 4, Ties::Shared).expect("the user is known");
            read(tree, &around);
        }
    });
    bar.finish_and_clear();
}

/// Reads rows as a reply would: with the ids.
fn read(tree: &RankTree, rows: &[Standing]) {
    tree.users().with_ids(rows.iter().map(|row| row.user), |at, id| {
        black_box((id.len(), rows[at].rank, rows[at].entry.score));
    });
}

fn add_point(tree: &mut RankTree, id: &str, now: u64) {
    let added = tree.update(id, |before| {
        Some(Entry { score: before.map_or(0, |entry| entry.score) + 1, reached_at: now })
    });
    added.expect("the user is known");
}

fn churn(arguments: &Arguments, tree: &mut RankTree) {
    let churn = CHURN_MAX.min(arguments.users);
    let bar = progress(churn, "updating before memory is measured");
    let mut random = Random(11);
    for update in 0..churn {
        if update.is_multiple_of(65_536) {
            bar.set_position(update);
        }
        let id = data::id(arguments.ids, random.below(arguments.users));
        add_point(tree, &id, START + arguments.users * 2 + update);
    }
    bar.finish_and_clear();
}

/// Seconds to write a tree to a file and to load it, and the file's bytes a user.
#[derive(Debug, Clone, Copy)]
struct FileTimes {
    write: f64,
    load: f64,
    bytes: f64,
}

fn checkpoint(tree: &mut RankTree) -> anyhow::Result<FileTimes> {
    let bar = progress(2, "checkpoint");
    // A file without a name is gone with the process, however it ends.
    let mut file = tempfile::tempfile().context("a temporary file")?;
    let start = Instant::now();
    tree.write_checkpoint(BufWriter::with_capacity(1 << 20, &mut file))?;
    file.sync_data()?;
    let write = start.elapsed().as_secs_f64();
    let bytes = file.metadata()?.len() as f64 / tree.len() as f64;
    bar.inc(1);
    let before = (tree.len(), tree.distinct_scores(), tree.score_span());
    // The loaded tree takes the place of the old one, so that memory for two is not needed.
    tree.clear();
    rewind(&mut file)?;
    let start = Instant::now();
    *tree = RankTree::read_checkpoint(
        Order::High,
        Arc::new(Users::new()),
        BufReader::with_capacity(1 << 20, &file),
    )?;
    let load = start.elapsed().as_secs_f64();
    anyhow::ensure!(
        before == (tree.len(), tree.distinct_scores(), tree.score_span()),
        "the loaded tree differs"
    );
    bar.finish_and_clear();
    Ok(FileTimes { write, load, bytes })
}

fn rewind(file: &mut File) -> anyhow::Result<()> {
    use std::io::Seek as _;
    file.rewind().context("going back to the start of the file")
}

const LUA: &str = r"
local users, count, seed, kind = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local call, format = redis.call, string.format
for i = 1, count do
  seed = (seed * 16807) % 2147483647
  local id = format('user-%019d', seed % users)
  if kind == 'rank' then call('ZREVRANK', KEYS[1], id)
  elseif kind == 'get' then call('ZSCORE', KEYS[1], id)
  elseif kind == 'add' then call('ZINCRBY', KEYS[1], 1, id)
  elseif kind == 'top' then call('ZREVRANGE', KEYS[1], 0, 9, 'WITHSCORES')
  elseif kind == 'around' then
    local rank = call('ZREVRANK', KEYS[1], id)
    call('ZREVRANGE', KEYS[1], math.max(rank - 4, 0), rank + 4, 'WITHSCORES')
  else call('ECHO', id) end
end
return count
";

/// A redis-server with the users of the bench.
struct Redis {
    server: RedisServer,
    connection: redis::Connection,
    users: u64,
    /// Resident bytes without users, and with them, a user.
    base: u64,
    bytes: f64,
    seed: u64,
    /// Microseconds a turn of the empty loop, at best.
    nothing: f64,
}

impl Redis {
    fn load(users: u64) -> anyhow::Result<Self> {
        let server = RedisServer::start()?;
        let mut connection = server.connect()?;
        let base = server.process().resident_bytes()?;
        let bar = progress(users, "loading redis-server");
        for start in (0..users).step_by(1_000) {
            let mut command = redis::cmd("ZADD");
            command.arg("board");
            for user in start..users.min(start + 1_000) {
                // Redis always gets the numbered ids: its Lua loop can make those.
                command.arg(data::score(Scores::Skewed, user, users)).arg(data::id(IdShape::Numbered, user));
            }
            command.query::<u64>(&mut connection)?;
            bar.set_position(start);
        }
        bar.finish_and_clear();
        let bytes = (server.process().resident_bytes()? - base) as f64 / users as f64;
        Ok(Redis { server, connection, users, base, bytes, seed: 1, nothing: f64::INFINITY })
    }

    fn measure(&mut self, count: u64, times: &mut Times) -> anyhow::Result<()> {
        let bar = progress(6, "measuring redis-server");
        self.script("nothing", 1_000)?;
        // The best of many, over all rounds: the best of several differences would be the one from which most was taken away
        // because the empty loop was disturbed.
        for _ in 0..NOTHING_RUNS {
            self.nothing = self.nothing.min(self.script("nothing", count)?);
        }
        let nothing = self.nothing;
        for (what, kind, count) in [
            ("rank", "rank", count),
            ("get", "get", count),
            ("add_point", "add", count),
            ("top10", "top", count / 5),
            ("around", "around", count / 5),
        ] {
            times.take(what, self.script(kind, count)? - nothing);
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.bytes = (self.server.process().resident_bytes()? - self.base) as f64 / self.users as f64;
        Ok(())
    }

    /// Microseconds a turn of the loop inside the server.
    fn script(&mut self, kind: &str, count: u64) -> anyhow::Result<f64> {
        self.seed += 7_919;
        let script = redis::Script::new(LUA);
        let mut call = script.prepare_invoke();
        call.key("board").arg(self.users).arg(count).arg(self.seed).arg(kind);
        let start = Instant::now();
        call.invoke::<u64>(&mut self.connection)?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
    }

    /// Saves, and starts again on what was saved.
    fn snapshot(&mut self) -> anyhow::Result<FileTimes> {
        let bar = progress(2, "redis-server: snapshot and restart");
        let start = Instant::now();
        redis::cmd("SAVE").query::<String>(&mut self.connection)?;
        let write = start.elapsed().as_secs_f64();
        bar.inc(1);
        let start = Instant::now();
        self.server.restart()?;
        self.connection = self.server.connect()?;
        let load = start.elapsed().as_secs_f64();
        let count: u64 = redis::cmd("ZCARD").arg("board").query(&mut self.connection)?;
        anyhow::ensure!(count == self.users, "redis-server came back with {count} users");
        bar.finish_and_clear();
        Ok(FileTimes { write, load, bytes: self.server.snapshot_bytes()? as f64 / self.users as f64 })
    }
}
