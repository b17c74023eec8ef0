//! The rank tree beside redis-server: the same users, the same questions, no network on either side.
//!
//! Redis is timed by a Lua loop inside the server, less the same loop around a command that does nothing; ours by a loop over ids
//! made beforehand. Both run on one thread.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufReader, BufWriter};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use rank_tree::{Entry, Order, RankTree, Ties, Update, Users};

use crate::data::{self, IdShape, Random, Scores};
use crate::report::{Report, Row};
use crate::rival::{RedisServer, resident_bytes};

/// A size at which much still fits the caches, to show how times grow.
const SMALL_USERS: u64 = 1_000_000;
/// Updates before memory is measured, at most; a small tree gets as many as it has users.
const CHURN_MAX: u64 = 10_000_000;
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
    /// Do without huge pages, which `standings serve` uses where the system has them
    #[arg(long)]
    no_huge_pages: bool,
}

/// Microseconds an operation.
#[derive(Debug, Clone, Copy)]
struct Times {
    rank_first: f64,
    rank_shared: f64,
    rank_dense: f64,
    get: f64,
    add_point: f64,
    set: f64,
    set_batched: f64,
    top10: f64,
    around: f64,
}

#[derive(Debug, Clone, Copy)]
struct RedisTimes {
    rank: f64,
    get: f64,
    add_point: f64,
    top10: f64,
    around: f64,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if !arguments.no_huge_pages {
        crate::huge_pages::ensure()?;
    }
    anyhow::ensure!(arguments.users > 1_000, "--users must be more than 1000");
    let mut report = Report::new(arguments.json);
    let base = resident_bytes("self")?;
    let small = SMALL_USERS.min(arguments.users);
    let ours_small = measure_small(arguments, small, Scores::Skewed)?;
    let ours_distinct_small = measure_small(arguments, small, Scores::Distinct)?;
    let redis_small = if arguments.no_rival { None } else { Some(redis_times(arguments, small)?.0) };

    let mut tree = load(arguments, arguments.users, Scores::Skewed)?;
    let ours = measure(arguments, &mut tree, arguments.users);
    churn(arguments, &mut tree);
    let bytes = (resident_bytes("self")? - base) as f64 / arguments.users as f64;
    let memory = tree.memory();
    let (write_seconds, load_seconds, file_bytes) = checkpoint(&mut tree, arguments)?;
    drop(tree);
    let mut tree = load(arguments, arguments.users, Scores::Distinct)?;
    let distinct = measure(arguments, &mut tree, arguments.users);
    let distinct_memory = tree.memory();
    drop(tree);
    let redis = if arguments.no_rival { None } else { Some(redis_times(arguments, arguments.users)?) };

    let times = redis.as_ref().map(|redis| redis.0);
    report.add(Row::less("rank_first", ours.rank_first, times.map(|times| times.rank), "µs").reach(8.0));
    report.add(Row::less("rank_shared", ours.rank_shared, times.map(|times| times.rank), "µs").reach(12.0));
    report.add(Row::less("rank_dense", ours.rank_dense, times.map(|times| times.rank), "µs"));
    report.add(Row::less("add_point", ours.add_point, times.map(|times| times.add_point), "µs").reach(10.0));
    // Beside our own single changes: the rival has no batch that is more than a sequence.
    report.add(Row::less("batch_of_1000", ours.set_batched, Some(ours.set), "µs"));
    report.add(Row::less("get", ours.get, times.map(|times| times.get), "µs"));
    report.add(Row::less("top10", ours.top10, times.map(|times| times.top10), "µs"));
    report.add(Row::less("around", ours.around, times.map(|times| times.around), "µs"));
    report.add(Row::less("bytes_per_user", bytes, redis.as_ref().map(|redis| redis.1), "B"));
    report
        .add(Row::less("checkpoint_load", load_seconds, redis.as_ref().map(|redis| redis.2), "s").reach(4.0));
    report.add(Row::less("checkpoint_write", write_seconds, redis.as_ref().map(|redis| redis.3), "s"));
    report.add(Row::less("checkpoint_bytes", file_bytes, redis.as_ref().map(|redis| redis.4), "B/user"));
    report.add(Row::less("distinct_rank_first", distinct.rank_first, times.map(|times| times.rank), "µs"));
    report.add(Row::less("distinct_rank_shared", distinct.rank_shared, times.map(|times| times.rank), "µs"));
    report.add(Row::less("distinct_add_point", distinct.add_point, times.map(|times| times.add_point), "µs"));
    report.add(Row::less("distinct_around", distinct.around, times.map(|times| times.around), "µs"));
    let growth = |large: f64, small: f64| large / small;
    let rival_growth = |of: fn(&RedisTimes) -> f64| Some(growth(of(&times?), of(&redis_small?)));
    report.add(Row::less(
        "growth_rank_first",
        growth(ours.rank_first, ours_small.rank_first),
        rival_growth(|times| times.rank),
        "×",
    ));
    report.add(Row::less(
        "growth_rank_shared",
        growth(ours.rank_shared, ours_small.rank_shared),
        rival_growth(|times| times.rank),
        "×",
    ));
    report.add(Row::less(
        "growth_add_point",
        growth(ours.add_point, ours_small.add_point),
        rival_growth(|times| times.add_point),
        "×",
    ));
    report.add(Row::less(
        "growth_distinct_rank_first",
        growth(distinct.rank_first, ours_distinct_small.rank_first),
        rival_growth(|times| times.rank),
        "×",
    ));

    let rival = redis.map_or("redis".to_owned(), |redis| format!("redis {}", redis.5));
    report.print(&format!("{} users, ids {:?}", arguments.users, arguments.ids), &rival);
    if !arguments.json {
        let each = |bytes: usize| bytes as f64 / arguments.users as f64;
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
            "growth_*: time at {} users over time at {small}. distinct_*: every score another, beside the rival's tied ones. \
             batch_of_1000: beside our own changes one by one.",
            arguments.users
        );
    }
    Ok(())
}

fn measure_small(arguments: &Arguments, users: u64, scores: Scores) -> anyhow::Result<Times> {
    let mut tree = load(arguments, users, scores)?;
    Ok(measure(arguments, &mut tree, users))
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

fn measure(arguments: &Arguments, tree: &mut RankTree, users: u64) -> Times {
    let count = arguments.operations;
    let mut random = Random(7);
    let mut ids = |count: u64| -> Vec<String> {
        (0..count).map(|_| data::id(arguments.ids, random.below(users))).collect()
    };
    let bar = progress(9, "measuring the tree");
    let each = |count: u64, operation: &mut dyn FnMut()| {
        let start = Instant::now();
        operation();
        bar.inc(1);
        start.elapsed().as_secs_f64() * 1e6 / count as f64
    };
    let asked = ids(count);
    let rank_first = each(count, &mut || {
        asked.iter().for_each(|id| {
            black_box(tree.rank(id, Ties::First));
        });
    });
    let asked = ids(count);
    let rank_shared = each(count, &mut || {
        asked.iter().for_each(|id| {
            black_box(tree.rank(id, Ties::Shared));
        });
    });
    let asked = ids(count);
    let rank_dense = each(count, &mut || {
        asked.iter().for_each(|id| {
            black_box(tree.rank(id, Ties::Dense));
        });
    });
    let asked = ids(count);
    let get = each(count, &mut || {
        asked.iter().for_each(|id| {
            black_box(tree.get(id));
        });
    });
    let asked = ids(count);
    let mut now = START + users;
    let add_point = each(count, &mut || {
        for id in &asked {
            now += 1;
            add_point(tree, id, now);
        }
    });
    let mut entry = |id: &String| {
        now += 1;
        (id.clone(), Entry { score: data::score(Scores::Skewed, now, users), reached_at: now })
    };
    let changes: Vec<(String, Entry)> = ids(count).iter().map(&mut entry).collect();
    let set = each(count, &mut || {
        for (id, entry) in &changes {
            tree.set(id, *entry).expect("the user is known");
        }
    });
    let changes: Vec<(String, Entry)> = ids(count).iter().map(&mut entry).collect();
    let set_batched = each(count, &mut || {
        for changes in changes.chunks(1_000) {
            let updates: Vec<Update<'_>> =
                changes.iter().map(|(user, entry)| Update { user, entry: Some(*entry) }).collect();
            tree.apply(&updates).expect("the users are known");
        }
    });
    let few = count / 10;
    let top10 = each(few, &mut || {
        for _ in 0..few {
            tree.standings(0, Ties::Shared).take(10).for_each(|standing| read(tree, standing));
        }
    });
    let asked = ids(few);
    let around = each(few, &mut || {
        for id in &asked {
            let around = tree.around(id, 4, 4, Ties::Shared).expect("the user is known");
            around.into_iter().for_each(|standing| read(tree, standing));
        }
    });
    bar.finish_and_clear();
    Times { rank_first, rank_shared, rank_dense, get, add_point, set, set_batched, top10, around }
}

/// Reads a row as a reply would: with the id.
fn read(tree: &RankTree, standing: rank_tree::Standing) {
    tree.users().with_id(standing.user, |id| {
        black_box((id.len(), standing.rank, standing.entry.score));
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

/// Seconds to write, seconds to load, bytes a user.
fn checkpoint(tree: &mut RankTree, arguments: &Arguments) -> anyhow::Result<(f64, f64, f64)> {
    let bar = progress(2, "checkpoint");
    // A file without a name is gone with the process, however it ends.
    let mut file = tempfile::tempfile().context("a temporary file")?;
    let start = Instant::now();
    tree.write_checkpoint(BufWriter::with_capacity(1 << 20, &mut file))?;
    file.sync_data()?;
    let written = start.elapsed().as_secs_f64();
    let bytes = file.metadata()?.len() as f64 / arguments.users as f64;
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
    let loaded = start.elapsed().as_secs_f64();
    anyhow::ensure!(
        before == (tree.len(), tree.distinct_scores(), tree.score_span()),
        "the loaded tree differs"
    );
    bar.finish_and_clear();
    Ok((written, loaded, bytes))
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

/// Times, bytes a user, seconds to load and to write a snapshot, its bytes a user, and the version.
fn redis_times(
    arguments: &Arguments,
    users: u64,
) -> anyhow::Result<(RedisTimes, f64, f64, f64, f64, String)> {
    let mut server = RedisServer::start()?;
    let mut connection = server.connect()?;
    let base = server.resident_bytes()?;
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

    let bar = progress(6, "measuring redis-server");
    let script = redis::Script::new(LUA);
    let mut seed = 1;
    let mut each = |kind: &str, count: u64| -> anyhow::Result<f64> {
        seed += 7_919;
        let start = Instant::now();
        let mut call = script.prepare_invoke();
        call.key("board").arg(users).arg(count).arg(seed).arg(kind);
        call.invoke::<u64>(&mut connection)?;
        bar.inc(1);
        Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
    };
    let count = (arguments.operations / 5).max(1_000);
    each("nothing", 1_000)?;
    let nothing = each("nothing", count)?;
    let mut net = |kind: &str, count: u64| each(kind, count).map(|time| time - nothing);
    let times = RedisTimes {
        rank: net("rank", count)?,
        get: net("get", count)?,
        add_point: net("add", count)?,
        top10: net("top", count / 5)?,
        around: net("around", count / 5)?,
    };
    bar.finish_and_clear();
    let bytes = (server.resident_bytes()? - base) as f64 / users as f64;

    if users != arguments.users {
        return Ok((times, bytes, 0.0, 0.0, 0.0, server.version.clone()));
    }
    let bar = progress(2, "redis-server: snapshot and restart");
    let start = Instant::now();
    redis::cmd("SAVE").query::<String>(&mut connection)?;
    let written = start.elapsed().as_secs_f64();
    bar.inc(1);
    let start = Instant::now();
    server.restart()?;
    let mut connection = server.connect()?;
    let loaded = start.elapsed().as_secs_f64();
    let count: u64 = redis::cmd("ZCARD").arg("board").query(&mut connection)?;
    anyhow::ensure!(count == users, "redis-server came back with {count} users");
    let file_bytes = server.snapshot_bytes()? as f64 / users as f64;
    bar.finish_and_clear();
    Ok((times, bytes, loaded, written, file_bytes, server.version.clone()))
}

/// A bar on a terminal, nothing elsewhere.
fn progress(length: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:36} {bar:30} {human_pos}/{human_len} {elapsed}");
    let bar = ProgressBar::new(length).with_message(what);
    style.map_or(bar.clone(), |style| bar.with_style(style))
}
