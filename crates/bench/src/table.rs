//! The embedded table beside SQLite and beside a bare file.
//!
//! The work is what one play really writes: the play, put if absent, with its `ByTime` and `Recent` rows, and the
//! user's entry, put if its version is as read. Writers are async tasks, as in the server; each waits for its
//! answer before its next play. All three contenders get the same writers and the same group commit, so what is
//! compared is the storage:
//!
//! - *ours*: [`EmbeddedTable`], with its own committer;
//! - *SQLite*: WAL, `synchronous=FULL`, the same items in one table with the same two indexes; one thread takes
//!   whatever waits into one transaction;
//! - *the bare file*: one thread appends whatever waits and calls `fdatasync`. Nothing durable can be faster.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::report::{Report, Row};
use crate::rival::Scratch;
use anyhow::{Context, Result, ensure};
use standings_table::contract::Random;
use standings_table::embedded::Options;
use standings_table::{
    Condition, Consistency, EmbeddedTable, Index, Item, Key, Operation, Projection, Scan, Schema, SortType,
    Table,
};
use tokio::sync::oneshot;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Numbers of waiting writers to measure with.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
    writers: Vec<usize>,
    /// Where to write; must be on a real disk.
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// Entries in the table that is scanned; 0 leaves the scan out.
    #[arg(long, default_value_t = 1_000_000)]
    scan_entries: usize,
    /// Memory for gathering rows, for items and for each index, in MiB.
    #[arg(long, default_value_t = 32)]
    memtable_mib: u64,
    /// Leaves SQLite out.
    #[arg(long)]
    without_sqlite: bool,
    /// One JSON object a line instead of text.
    #[arg(long)]
    json: bool,
}

/// Users that have an entry before the measurements begin.
const USERS: usize = 100_000;
const ENTRY: &str = "ENTRY#default#2026-11";

/// Runs all measurements and prints them.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let folder = Scratch::new(&arguments.folder)?;
    let mut report = Report::new(arguments.json);
    let say = |text: &str| {
        if !arguments.json {
            println!("{text}");
        }
    };
    let time = Duration::from_secs(arguments.seconds);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;

    let ours = Arc::new(Ours::open(&folder.path().join("ours"), arguments.memtable_mib << 20)?);
    let sqlite = match arguments.without_sqlite {
        true => None,
        false => Some(Arc::new(Sqlite::open(&folder.path().join("rival.sqlite"))?)),
    };
    let bare = Arc::new(BareFile::open(&folder.path().join("bare"))?);
    let mut plays = 0;
    for writers in &arguments.writers {
        let result = measure(&runtime, &ours, *writers, time);
        plays += result.count;
        say(&format!("{writers} writers"));
        say(&result.line("ours"));
        let rate = result.per_second();
        if let Some(sqlite) = &sqlite {
            let rival = measure(&runtime, sqlite, *writers, time);
            say(&rival.line("SQLite"));
            report.add(
                Row::more(format!("commit_{writers}"), rate, Some(rival.per_second()), "/s")
                    .reach_if(*writers == 64, 3.0),
            );
        }
        bare.take_syncs();
        let limit = measure(&runtime, &bare, *writers, time);
        say(&limit.line("bare file"));
        let mut syncs = bare.take_syncs();
        syncs.sort_unstable();
        let sync_p99 = quantile(&syncs, 0.99);
        say(&format!("  fdatasync itself: p50 {:.1?}, p99 {sync_p99:.1?}", quantile(&syncs, 0.5)));
        report.add(
            Row::more(format!("limit_{writers}"), rate, Some(limit.per_second()), "/s")
                .reach_if(*writers == 64, 0.3),
        );
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let p99 = milliseconds(result.quantile(0.99));
        report.add(Row::less(format!("p99_{writers}"), p99, Some(milliseconds(sync_p99)), "ms").reach(0.1));
        report.add(Row::less(format!("max_{writers}"), milliseconds(result.quantile(1.0)), None, "ms"));
    }
    let statistics = ours.table.commit_statistics();
    say(&format!(
        "ours: {:.1} transactions a sync",
        statistics.transactions as f64 / statistics.batches as f64
    ));

    let our_read = measure_reads(time, |key| {
        let item = wait(ours.table.get(key, Consistency::Strong))?;
        Ok(item.is_some())
    })?;
    let rival_read = match &sqlite {
        Some(sqlite) => {
            let reader = sqlite.reader()?;
            Some(measure_reads(time, |key| reader.contains(key))?)
        }
        None => None,
    };
    report.add(Row::less("read", our_read, rival_read, "µs"));

    drop(ours);
    if plays > 0 {
        let bytes = folder_bytes(&folder.path().join("ours/engine/keyspaces"))? as f64 / plays as f64;
        let rival = match sqlite {
            Some(sqlite) => {
                sqlite.checkpoint()?;
                let rival_plays = sqlite.plays()?;
                drop(sqlite);
                let file = std::fs::metadata(folder.path().join("rival.sqlite"))?;
                Some(file.len() as f64 / rival_plays as f64)
            }
            None => None,
        };
        report.add(Row::less("disk_bytes_per_play", bytes, rival, "B"));
    }
    if arguments.scan_entries > 0 {
        measure_scan(&folder.path().join("scan"), arguments.scan_entries, &mut report)?;
    }
    report.print("the table; commit_* and read beside SQLite, limit_* and p99_* beside a bare file", "rival");
    Ok(())
}

// The work.

/// One play of a user.
struct Play {
    user: usize,
    version: i64,
    play_id: u64,
    at_ms: i64,
}

fn user_key(user: usize) -> String {
    // 24 characters, as the ids that games use.
    format!("USER#{:024x}", (user as u128).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060) & ((1 << 96) - 1))
}

fn entry_item(user: usize, version: i64) -> Item {
    Item::new(user_key(user), ENTRY)
        .with("by_score", format!("{ENTRY}#p{}", user % 4))
        .with("by_score_sort", 0)
        .with("plays", version)
        .with("reached_at", 1_794_528_000_000 + version)
        .with("score", version * 10)
        .with("version", version)
}

impl Play {
    fn id(&self) -> String {
        format!("PLAY#default#{:032x}", u128::from(self.play_id))
    }

    fn log(&self) -> String {
        format!("LOG#{}#p{}", self.at_ms / 60_000, self.user % 4)
    }

    fn item(&self) -> Item {
        Item::new(user_key(self.user), self.id())
            .with("log", self.log())
            .with("log_time", format!("{}#{:032x}", self.at_ms, u128::from(self.play_id)))
            .with("points", 10)
            .with("recent", format!("default#{}", self.at_ms))
            .with("score_after", self.version * 10)
            .with("season", "2026-11")
            .with("time", self.at_ms)
    }

    fn operations(&self) -> Vec<Operation> {
        let entry = entry_item(self.user, self.version);
        vec![
            Operation::put_if(self.item(), Condition::Absent),
            Operation::put_if(entry, Condition::VersionEquals(self.version - 1)),
        ]
    }
}

fn schema() -> Result<Schema> {
    use SortType::{Number, String};
    Ok(Schema::new([
        Index::global("ByScore", "by_score", "by_score_sort", Number).projecting(Projection::KeysOnly),
        Index::global("ByRank", "by_rank", "official_rank", Number),
        Index::global("Inverted", "inverted", "PK", String),
        Index::global("ByData", "data", "SK", String),
        Index::global("ByTime", "log", "log_time", String),
        Index::local("Recent", "recent", String),
        Index::local("Best", "best", String),
    ])?)
}

/// Something that makes plays durable.
trait Contender: Send + Sync + 'static {
    fn commit(&self, play: Play) -> impl Future<Output = Result<()>> + Send;
    /// The version each user's entry has.
    fn versions(&self) -> &Mutex<HashMap<usize, i64>>;
}

/// Latencies of one measurement.
struct Measured {
    latencies: Vec<Duration>,
    time: Duration,
    count: usize,
    /// Of all threads; on a machine with other work, the fairest comparison of the work itself.
    cpu: Duration,
}

impl Measured {
    fn per_second(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64()
    }

    fn line(&self, name: &str) -> String {
        let (p50, p99, max) = (self.quantile(0.5), self.quantile(0.99), self.quantile(1.0));
        let (rate, cpu) = (self.per_second(), self.cpu.as_secs_f64() * 1e6 / self.count as f64);
        format!(
            "  {name:<10} {rate:>9.0}/s   p50 {p50:>9.1?}  p99 {p99:>9.1?}  max {max:>9.1?}  cpu {cpu:>5.1} µs"
        )
    }

    fn quantile(&self, quantile: f64) -> Duration {
        self::quantile(&self.latencies, quantile)
    }
}

fn quantile(sorted: &[Duration], quantile: f64) -> Duration {
    let at = (sorted.len() as f64 * quantile) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Lets so many writers play for so long; each has its own users, so none ever meets a conflict.
fn measure<C: Contender>(
    runtime: &tokio::runtime::Runtime,
    contender: &Arc<C>,
    writers: usize,
    time: Duration,
) -> Measured {
    let stop = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    let cpu_before = cpu_time();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let (contender, stop) = (contender.clone(), stop.clone());
            runtime.spawn(async move {
                let mut random = Random::new(begin.elapsed().as_nanos() as u64 ^ ((writer as u64) << 40));
                let mut latencies = Vec::new();
                let mut versions: HashMap<usize, i64> = {
                    let all = contender.versions().lock().expect("no writer panics");
                    all.iter()
                        .filter(|(user, _)| *user % writers == writer)
                        .map(|(user, version)| (*user, *version))
                        .collect()
                };
                while !stop.load(Ordering::Relaxed) {
                    let owned = (USERS - writer).div_ceil(writers);
                    let user = random.below(owned as u64) as usize * writers + writer;
                    let version = versions.entry(user).or_insert(0);
                    *version += 1;
                    let at_ms = 1_794_528_000_000 + begin.elapsed().as_millis() as i64;
                    let play = Play { user, version: *version, play_id: random.next_u64(), at_ms };
                    let started = Instant::now();
                    contender.commit(play).await.expect("the play is committed");
                    latencies.push(started.elapsed());
                }
                contender.versions().lock().expect("no writer panics").extend(versions);
                latencies
            })
        })
        .collect();
    std::thread::sleep(time);
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(runtime.block_on(task).expect("no writer panics"));
    }
    let time = begin.elapsed();
    latencies.sort_unstable();
    Measured { count: latencies.len(), latencies, time, cpu: cpu_time().saturating_sub(cpu_before) }
}

// Ours.

struct Ours {
    table: EmbeddedTable,
    versions: Mutex<HashMap<usize, i64>>,
}

impl Ours {
    fn open(folder: &Path, memtable_bytes: u64) -> Result<Self> {
        let table = EmbeddedTable::open(folder, Options::new(schema()?).memtable_bytes(memtable_bytes))?;
        fill(&table, USERS)?;
        Ok(Self { table, versions: Mutex::default() })
    }
}

fn fill(table: &EmbeddedTable, entries: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let users: Vec<usize> = (0..entries).collect();
    runtime.block_on(async {
        for chunk in users.chunks(100) {
            let puts = chunk.iter().map(|user| Operation::put(entry_item(*user, 0))).collect();
            table.transact(puts).await?;
        }
        anyhow::Ok(())
    })
}

impl Contender for Ours {
    async fn commit(&self, play: Play) -> Result<()> {
        self.table.transact(play.operations()).await?;
        Ok(())
    }

    fn versions(&self) -> &Mutex<HashMap<usize, i64>> {
        &self.versions
    }
}

// The rivals: one thread each, that takes whatever waits.

/// A queue whose requests one thread takes all at once.
struct GroupCommit {
    waiting: Arc<(Mutex<Waiting>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Waiting {
    requests: Vec<(Play, oneshot::Sender<()>)>,
    closed: bool,
}

impl GroupCommit {
    fn start(mut commit: impl FnMut(&[(Play, oneshot::Sender<()>)]) + Send + 'static) -> Self {
        let waiting = Arc::new((Mutex::new(Waiting::default()), Condvar::new()));
        let shared = waiting.clone();
        let thread = std::thread::spawn(move || {
            loop {
                let (lock, arrived) = &*shared;
                let waiting = lock.lock().expect("no writer panics");
                let idle = |waiting: &mut Waiting| waiting.requests.is_empty() && !waiting.closed;
                let mut waiting = arrived.wait_while(waiting, idle).expect("no writer panics");
                if waiting.requests.is_empty() {
                    return;
                }
                let batch = std::mem::take(&mut waiting.requests);
                drop(waiting);
                commit(&batch);
                for (_, answer) in batch {
                    let _ = answer.send(());
                }
            }
        });
        Self { waiting, thread: Some(thread) }
    }

    async fn commit(&self, play: Play) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let (lock, arrived) = &*self.waiting;
        let first = {
            let mut waiting = lock.lock().expect("no writer panics");
            waiting.requests.push((play, answer));
            waiting.requests.len() == 1
        };
        if first {
            arrived.notify_one();
        }
        answered.await.context("the committer died")
    }
}

impl Drop for GroupCommit {
    fn drop(&mut self) {
        self.waiting.0.lock().expect("no writer panics").closed = true;
        self.waiting.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Sqlite {
    group: GroupCommit,
    path: PathBuf,
    versions: Mutex<HashMap<usize, i64>>,
}

struct SqliteReader(rusqlite::Connection);

impl Sqlite {
    fn open(path: &Path) -> Result<Self> {
        let mut connection = Self::connect(path)?;
        connection.execute_batch(
            "CREATE TABLE items (pk TEXT, sk TEXT, version INTEGER, log TEXT, log_time TEXT, recent TEXT, by_score TEXT,
                 body BLOB, PRIMARY KEY (pk, sk)) WITHOUT ROWID;
             CREATE INDEX by_time ON items (log, log_time) WHERE log IS NOT NULL;
             CREATE INDEX recent ON items (pk, recent) WHERE recent IS NOT NULL;
             CREATE INDEX by_score ON items (by_score) WHERE by_score IS NOT NULL;",
        )?;
        let fill = connection.transaction()?;
        {
            let mut insert = fill
                .prepare("INSERT INTO items (pk, sk, version, by_score, body) VALUES (?1, ?2, 0, ?3, ?4)")?;
            for user in 0..USERS {
                let by_score = format!("{ENTRY}#p{}", user % 4);
                insert.execute((user_key(user), ENTRY, by_score, body(&entry_item(user, 0))))?;
            }
        }
        fill.commit()?;
        let group = GroupCommit::start(move |batch| {
            let result = Self::write(&mut connection, batch);
            result.expect("SQLite takes the plays");
        });
        Ok(Self { group, path: path.to_owned(), versions: Mutex::default() })
    }

    fn connect(path: &Path) -> Result<rusqlite::Connection> {
        let connection = rusqlite::Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cache_size", -262_144)?;
        Ok(connection)
    }

    fn write(connection: &mut rusqlite::Connection, batch: &[(Play, oneshot::Sender<()>)]) -> Result<()> {
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        {
            let mut put = transaction.prepare_cached(
                "INSERT INTO items (pk, sk, log, log_time, recent, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO NOTHING",
            )?;
            let mut update = transaction.prepare_cached(
                "UPDATE items SET version = ?3, body = ?4 WHERE pk = ?1 AND sk = ?2 AND version = ?3 - 1",
            )?;
            for (play, _) in batch {
                let item = play.item();
                let (log, time) = (item.text("log"), item.text("log_time"));
                let pk = item.key.pk.as_str();
                let put =
                    put.execute((pk, item.key.sk.as_str(), log, time, item.text("recent"), body(&item)))?;
                let entry = body(&entry_item(play.user, play.version));
                let updated = update.execute((pk, ENTRY, play.version, entry))?;
                ensure!(put == 1 && updated == 1, "the conditions hold");
            }
        }
        transaction.commit()?;
        Ok(())
    }

    fn reader(&self) -> Result<SqliteReader> {
        Ok(SqliteReader(Self::connect(&self.path)?))
    }

    fn checkpoint(&self) -> Result<()> {
        let connection = Self::connect(&self.path)?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }

    fn plays(&self) -> Result<usize> {
        let versions = self.versions.lock().expect("no writer panics");
        Ok(versions.values().sum::<i64>() as usize)
    }
}

impl SqliteReader {
    fn contains(&self, key: &Key) -> Result<bool> {
        let mut select =
            self.0.prepare_cached("SELECT version, body FROM items WHERE pk = ?1 AND sk = ?2")?;
        let body: Vec<u8> = select.query_row((key.pk.as_str(), key.sk.as_str()), |row| row.get(1))?;
        Ok(!body.is_empty())
    }
}

/// What SQLite stores of an item besides the columns it needs: the attributes, as compactly as ours.
fn body(item: &Item) -> Vec<u8> {
    use standings_table::Value;
    let mut bytes = Vec::with_capacity(128);
    for (name, value) in item.attributes.iter() {
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        match value {
            Value::Number(number) => bytes.extend_from_slice(&number.to_be_bytes()),
            Value::String(text) => bytes.extend_from_slice(text.as_bytes()),
            _ => {}
        }
    }
    bytes
}

impl Contender for Sqlite {
    async fn commit(&self, play: Play) -> Result<()> {
        self.group.commit(play).await
    }

    fn versions(&self) -> &Mutex<HashMap<usize, i64>> {
        &self.versions
    }
}

struct BareFile {
    group: GroupCommit,
    syncs: Arc<Mutex<Vec<Duration>>>,
    versions: Mutex<HashMap<usize, i64>>,
}

impl BareFile {
    fn open(path: &Path) -> Result<Self> {
        let mut file = File::create(path)?;
        let syncs: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let shared = syncs.clone();
        let mut bytes = Vec::new();
        let group = GroupCommit::start(move |batch| {
            bytes.clear();
            for (play, _) in batch {
                // The play three times, for itself and its two index rows, and the entry.
                let play_body = body(&play.item());
                (0..3).for_each(|_| bytes.extend_from_slice(&play_body));
                bytes.extend_from_slice(&body(&entry_item(play.user, play.version)));
            }
            file.write_all(&bytes).expect("the disk has room");
            let started = Instant::now();
            file.sync_data().expect("the disk works");
            shared.lock().expect("nobody panics").push(started.elapsed());
        });
        Ok(Self { group, syncs, versions: Mutex::default() })
    }

    fn take_syncs(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.syncs.lock().expect("nobody panics"))
    }
}

impl Contender for BareFile {
    async fn commit(&self, play: Play) -> Result<()> {
        self.group.commit(play).await
    }

    fn versions(&self) -> &Mutex<HashMap<usize, i64>> {
        &self.versions
    }
}

// Reading.

/// Microseconds for reading a random user's entry.
fn measure_reads(time: Duration, mut contains: impl FnMut(&Key) -> Result<bool>) -> Result<f64> {
    let mut random = Random::new(7);
    let mut reads = 0_u64;
    let started = Instant::now();
    while started.elapsed() < time.min(Duration::from_secs(5)) {
        for _ in 0..100 {
            let key = Key::new(user_key(random.below(USERS as u64) as usize), ENTRY);
            ensure!(contains(&key)?, "every user has an entry");
        }
        reads += 100;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / reads as f64)
}

/// Seconds for reading all entries in two parallel segments, from a table just opened.
fn measure_scan(folder: &Path, entries: usize, report: &mut Report) -> Result<()> {
    let table = EmbeddedTable::open(folder, Options::new(schema()?))?;
    fill(&table, entries)?;
    drop(table);
    let table = EmbeddedTable::open(folder, Options::new(schema()?))?;
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let started = Instant::now();
        let found: usize = std::thread::scope(|scope| {
            let segments = [0, 1].map(|segment| {
                let table = &table;
                scope.spawn(move || scan_segment(table, segment))
            });
            segments.into_iter().map(|segment| segment.join().expect("no scan panics")).sum::<Result<usize>>()
        })?;
        ensure!(found == entries, "{found} of {entries} entries were scanned");
        best = best.min(started.elapsed().as_secs_f64());
    }
    // Beside the goal: a million entries in half a second.
    report.add(Row::less("scan", best, Some(entries as f64 / 2e6), "s").reach(1.0));
    Ok(())
}

fn scan_segment(table: &EmbeddedTable, segment: usize) -> Result<usize> {
    let mut scan = Scan::segment(segment, 2);
    let mut found = 0;
    loop {
        let page = wait(table.scan(&scan))?;
        found += page.items.len();
        match page.next {
            Some(next) => scan.start_after = Some(next),
            None => return Ok(found),
        }
    }
}

/// The embedded table's reads never wait for anything, so their futures are ready at once.
fn wait<T>(future: impl Future<Output = standings_table::Result<T>>) -> Result<T> {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(result) => Ok(result?),
        std::task::Poll::Pending => anyhow::bail!("a read waited"),
    }
}

/// The processor time of this process so far, to a hundredth of a second.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in brackets may hold anything; user and system time are the 12th and 13th words after it.
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    let ticks: u64 = words.take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { folder_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
