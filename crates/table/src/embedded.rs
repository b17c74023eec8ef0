//! The embedded backend: a table in one folder on this machine's disk, on the storage engine fjall.
//!
//! ```text
//! caller ── prepare (limits, bytes) ──▶ queue ──▶ committer: check, one batch, one sync ──▶ answers
//! caller ── get, query, scan ─────────────────▶ engine, on the caller's own thread
//! ```
//!
//! Which parts hold the same facts: the keyspace `items` holds every item; `index-*` and `expiry` hold what
//! follows from it and are written in the same batch, so they never disagree, and [`EmbeddedTable::check`] can
//! prove it. Global indexes are as fresh as everything else here; that is more than the trait promises, so
//! code is tested against [`DelayedTable`](crate::DelayedTable) too.
//!
//! Reads take microseconds and run where they are called. No async runtime is needed: the committer and the
//! sweeper are plain threads, and an answer can be awaited on any executor. Not here: compaction, caching,
//! recovery — the engine's; retries — nothing here is worth trying twice.

mod check;
mod committer;
mod encoding;
mod engine;
mod folder;
mod journal;
mod manifest;
mod plan;
mod range;
mod sweeper;

use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;

use crate::Table;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::item::Item;
use crate::key::Key;
use crate::limits;
use crate::operation::{Operation, Receipt};
use crate::query::{Consistency, Direction, Page, PageBuilder, Query, Scan};
use crate::schema::Schema;
use committer::{Answers, Queue};
use engine::{Engine, Space, Tuning};
use folder::Folder;
use plan::{Prepared, RecentReads};
use range::KeyRange;

pub use check::CheckReport;
pub use committer::{COMMIT_SIZES, CommitStatistics};

/// After preparing so many transactions of one caller, others on its thread get a turn.
const TRANSACTIONS_AT_A_STRETCH: usize = 128;

/// How a table is opened.
pub struct Options {
    schema: Schema,
    clock: Arc<dyn Clock>,
    cache_bytes: u64,
    memtable_bytes: u64,
    sweep_interval: Duration,
}

impl Options {
    /// The usual settings for a table of this schema.
    pub fn new(schema: Schema) -> Self {
        Self {
            schema,
            clock: Arc::new(SystemClock),
            cache_bytes: 256 << 20,
            memtable_bytes: 32 << 20,
            sweep_interval: Duration::from_secs(60),
        }
    }

    /// Another clock than the system's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How much memory to use for blocks read from disk.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// How much to gather in memory, for items and for each index, before it is written out as a file.
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: u64) -> Self {
        self.memtable_bytes = bytes;
        self
    }

    /// How often to sweep expired items off the disk.
    #[must_use]
    pub fn sweep_interval(mut self, interval: Duration) -> Self {
        self.sweep_interval = interval;
        self
    }

    fn tuning(&self) -> Tuning {
        // The engine replaces a journal only when a memtable is written out: room for a few of each.
        Tuning {
            cache_bytes: self.cache_bytes,
            memtable_bytes: self.memtable_bytes,
            journal_bytes_max: 256 << 20,
        }
    }
}

/// What the threads share.
pub(crate) struct Inner {
    schema: Schema,
    clock: Arc<dyn Clock>,
    engine: Engine,
    queue: Arc<Queue>,
    recent: RecentReads,
}

impl Inner {
    fn get(&self, key: &Key) -> Result<Option<Item>> {
        let bytes = encoding::slice(|bytes| encoding::push_item_key(bytes, key));
        let committed = self.queue.committed();
        let value = self.engine.get(Space::Items, &bytes)?;
        self.recent.note(bytes.clone(), value.clone(), committed);
        let Some(value) = value else { return Ok(None) };
        let item = encoding::decode_item(&bytes, &value);
        let item = item.map_err(|detail| self.engine.corrupt(Space::Items, &bytes, detail))?;
        Ok(Some(item).filter(|item| !item.is_expired(self.clock.now_seconds())))
    }

    fn prepare(&self, operations: Vec<Operation>) -> Result<Prepared> {
        let mut prepared = Prepared::new(&self.schema, operations)?;
        // Reading here, on many threads, spares the one committer from it.
        prepared.look_up(&self.engine, &self.schema, &self.recent, self.queue.committed())?;
        Ok(prepared)
    }

    /// The committer answers everyone it has taken on; without an answer, it has died on the way.
    async fn answers(&self, answers: Answers, count: usize) -> Vec<Result<Receipt>> {
        answers.await.unwrap_or_else(|_| {
            let unknown = || Error::OutcomeUnknown { why: "the committer stopped".to_owned() };
            let error = self.queue.refused().unwrap_or_else(unknown);
            (0..count).map(|_| Err(error.clone())).collect()
        })
    }
}

/// Gives way once to what else waits on this thread, on any executor.
async fn let_others_run() {
    let mut given_way = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut given_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A table in a folder on this machine's disk.
pub struct EmbeddedTable {
    inner: Option<Arc<Inner>>,
    folder: Folder,
    stop: Arc<sweeper::Stop>,
    threads: Vec<JoinHandle<()>>,
}

impl EmbeddedTable {
    /// Opens the table in `path`, making it if the folder is empty or not there.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is open already, [`Error::UnsupportedFormat`] or [`Error::SchemaMismatch`] if it was
    /// made by another version or for other indexes, [`Error::Corrupt`] if it is damaged, [`Error::DiskFull`], [`Error::Io`].
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let folder = Folder::hold(path.as_ref())?;
        let tuning = options.tuning();
        folder.ensure_table(&options.schema, |engine| {
            Engine::open(engine, &options.schema, &tuning).map(drop)
        })?;
        manifest::verify(&folder.engine())?;
        journal::verify(folder.path(), &folder.engine())?;
        let engine = Engine::open(&folder.engine(), &options.schema, &tuning)?;
        let queue = Arc::new(Queue::new(folder.path().to_owned()));
        let (schema, clock, recent) = (options.schema, options.clock, RecentReads::new());
        let inner = Arc::new(Inner { schema, clock, engine, queue, recent });
        let stop = Arc::new(sweeper::Stop::default());
        let mut table = Self { inner: Some(inner.clone()), folder, stop: stop.clone(), threads: Vec::new() };
        // One place in the channel is enough: the keeper looks at all memtables each time it is woken.
        let (full, woken) = std::sync::mpsc::sync_channel::<()>(1);
        let keeping = inner.clone();
        table.spawn("table-keeper", move || keeping.engine.keep(&woken))?;
        let committing = inner.clone();
        table.spawn("table-committer", move || {
            let Inner { queue, engine, schema, clock, .. } = &*committing;
            committer::run(queue, engine, schema, &**clock, || {
                let _ = full.try_send(());
            });
        })?;
        table.spawn("table-sweeper", move || sweeper::run(&inner, &stop, options.sweep_interval))?;
        Ok(table)
    }

    /// Removes up to a page of expired items from the disk now; says how many there were.
    ///
    /// # Errors
    /// As [`Table::transact`].
    pub fn sweep_page(&self) -> Result<usize> {
        sweeper::sweep_page(self.inner())
    }

    /// Verifies that each index holds exactly the rows its items call for.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if something cannot be read at all.
    pub fn check(&self) -> Result<CheckReport> {
        check::run(self.inner())
    }

    /// Copies the table as it is at one moment into a new folder, which can then be opened as a table.
    /// Reads and writes go on meanwhile. The folder appears under its name only when it is whole and durable.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder exists already; [`Error::DiskFull`]; [`Error::Corrupt`].
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        if path.try_exists().map_err(|error| folder::io("looking for", path, &error))? {
            return Err(folder::io("creating", path, &exists));
        }
        let name = path.file_name().ok_or_else(|| folder::io("creating", path, &exists))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        folder::create_folder(parent)?;
        let partial = parent.join(format!("{}.partial", name.to_string_lossy()));
        if partial.exists() {
            std::fs::remove_dir_all(&partial).map_err(|error| folder::io("removing", &partial, &error))?;
        }
        let inner = self.inner();
        let tuning = Tuning { cache_bytes: 8 << 20, memtable_bytes: 32 << 20, journal_bytes_max: 64 << 20 };
        let held = Folder::hold(&partial)?;
        held.ensure_table(&inner.schema, |engine| {
            Engine::open(engine, &inner.schema, &tuning)?.fill_from(&inner.engine)
        })?;
        journal::note_closed(held.path(), &held.engine())?;
        folder::sync_folder(held.path())?;
        std::fs::rename(&partial, path).map_err(|error| folder::io("renaming", &partial, &error))?;
        folder::sync_folder(parent)
    }

    /// What the committer has done since the table was opened.
    pub fn commit_statistics(&self) -> CommitStatistics {
        self.inner().queue.statistics()
    }

    /// Bytes on disk, the journal included.
    pub fn disk_bytes(&self) -> u64 {
        self.inner().engine.disk_bytes()
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads
            .push(spawned.map_err(|error| folder::io("starting a thread for", self.folder.path(), &error))?);
        Ok(())
    }

    fn inner(&self) -> &Inner {
        self.inner.as_ref().expect("taken only when the table is dropped")
    }

    /// One page of a range, without what has expired.
    fn page(
        &self,
        index: Option<usize>,
        range: &KeyRange,
        direction: Direction,
        limit: Option<usize>,
    ) -> Result<Page> {
        let inner = self.inner();
        let now_seconds = inner.clock.now_seconds();
        let space = index.map_or(Space::Items, Space::Index);
        let mut page = PageBuilder::new(limit);
        let mut full = false;
        inner.engine.walk(space, range, direction, |key, value| {
            let damaged = |detail| inner.engine.corrupt(space, key, detail);
            let expires_at = encoding::decode_expires_at(value).map_err(damaged)?;
            if expires_at.is_some_and(|expires_at| expires_at <= now_seconds) {
                return Ok(true);
            }
            let item = match index {
                None => encoding::decode_item(key, value),
                Some(at) => encoding::decode_index_row(&inner.schema.indexes()[at], key, value),
            };
            full = !page.push(item.map_err(damaged)?);
            Ok(!full)
        })?;
        Ok(if full { page.full(&inner.schema, index) } else { page.done() })
    }
}

#[async_trait]
impl Table for EmbeddedTable {
    fn schema(&self) -> &Schema {
        &self.inner().schema
    }

    async fn get(&self, key: &Key, _: Consistency) -> Result<Option<Item>> {
        limits::check_key(key)?;
        self.inner().get(key)
    }

    async fn batch_get(&self, keys: &[Key], _: Consistency) -> Result<Vec<Option<Item>>> {
        limits::check_batch_get(keys)?;
        keys.iter().map(|key| self.inner().get(key)).collect()
    }

    async fn transact(&self, operations: Vec<Operation>) -> Result<Receipt> {
        let inner = self.inner();
        let prepared = inner.prepare(operations)?;
        let answer = inner.queue.submit(vec![prepared])?;
        inner.answers(answer, 1).await.swap_remove(0)
    }

    /// All of them are one entry in the committer's queue, or a few if they are large.
    async fn transact_all(&self, transactions: Vec<Vec<Operation>>) -> Vec<Result<Receipt>> {
        let inner = self.inner();
        let mut results = Vec::with_capacity(transactions.len());
        let mut under_way = Vec::new();
        let (mut together, mut places, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (place, operations) in transactions.into_iter().enumerate() {
            if place % TRANSACTIONS_AT_A_STRETCH == TRANSACTIONS_AT_A_STRETCH - 1 {
                let_others_run().await;
            }
            // Whoever is not refused here gets the place filled in below.
            let prepared = match inner.prepare(operations) {
                Ok(prepared) => prepared,
                Err(error) => {
                    results.push(Err(error));
                    continue;
                }
            };
            results.push(Ok(Receipt::default()));
            bytes += prepared.bytes;
            together.push(prepared);
            places.push(place);
            if together.len() == committer::BATCH_TRANSACTIONS_MAX || bytes >= committer::BATCH_BYTES_MAX {
                under_way
                    .push((inner.queue.submit(std::mem::take(&mut together)), std::mem::take(&mut places)));
                bytes = 0;
            }
        }
        if !together.is_empty() {
            under_way.push((inner.queue.submit(together), places));
        }
        for (answer, places) in under_way {
            let answers = match answer {
                Ok(answer) => inner.answers(answer, places.len()).await,
                Err(error) => places.iter().map(|_| Err(error.clone())).collect(),
            };
            for (place, answer) in places.into_iter().zip(answers) {
                results[place] = answer;
            }
        }
        results
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        let index = query.check(self.schema())?;
        let range = match index {
            None => range::of_table_query(query),
            Some(_) => range::of_index_query(query),
        };
        self.page(index, &range, query.direction, query.limit)
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        scan.check()?;
        self.page(None, &range::of_scan(scan), Direction::Forward, scan.limit)
    }
}

/// Closing: what was accepted is finished, the threads end, the engine closes, and only then is the folder let go.
impl Drop for EmbeddedTable {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        inner.queue.close();
        self.stop.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
        let failed = inner.queue.refused().is_some();
        let engine_folder = inner.engine.folder().to_owned();
        drop(inner);
        if failed {
            return;
        }
        if let Err(error) = journal::note_closed(self.folder.path(), &engine_folder) {
            tracing::warn!(%error, "could not note that the table was closed in good order");
        }
    }
}
