//! The storage engine: fjall, an LSM tree in pure Rust, and everything this crate knows about it.
//!
//! One keyspace holds the items, one each index, one the expiry times; all share one journal, so that a
//! batch over all of them is one append and one `fdatasync`. What was read in fjall 3.1's sources and is relied on here:
//!
//! - A batch is written to the journal, synced, and only then made visible: what is read is durable.
//! - If writing or syncing the journal fails, fjall refuses all further writes; so does this crate, with
//!   the cause kept. A failure of its background work (flushing, compacting) sets the same flag.
//! - Creating and replacing journals syncs the files and the folder before they are used.
//! - Blocks and batches carry checksums that are verified whenever they are read from disk.
//! - Four waiting memtables or thirty overlapping runs make a commit sleep inside fjall, in steps of 100 ms, for ever
//!   if the worker has died; and asking for a memtable to be replaced at every commit can fill the workers' queue
//!   until they wait for themselves. So this crate replaces memtables itself ([`Engine::keep`]), never
//!   more than fjall bears, and [`Engine::wait_for_room`] waits in short steps and gives up when the work has failed.
//! - With several workers, one of them keeps passing merge requests round in circles while another merges,
//!   which costs a core; so there is one. It does one thing at a time, and the memtables are what it may be late by.
//! - On damaged files some of its code panics; [`Engine::guard`] turns that into an error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fjall::config::{FilterPolicy, FilterPolicyEntry};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot,
};

use crate::embedded::folder;
use crate::embedded::range::KeyRange;
use crate::error::{Error, Result, WriteFailure};
use crate::priority::give_way;
use crate::query::Direction;
use crate::schema::Schema;

/// A memtable is not replaced while so many of its keyspace wait to be written out; fjall halts commits at 4.
const SEALED_MEMTABLES_MAX: usize = 2;
/// A memtable may grow to so many times its size before commits wait for the worker.
const MEMTABLE_GROWTH_MAX: u64 = 4;
/// Overlapping runs of one keyspace at which commits wait; fjall itself would slow down at 20.
const OVERLAPPING_RUNS_MAX: usize = 19;
const WAIT_STEP: Duration = Duration::from_millis(1);
/// How often the keeper looks for memtables it can let go.
const RELEASE_EVERY: Duration = Duration::from_secs(1);
/// How soon the keeper looks again at a memtable that it could not replace yet.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(2);
/// Less free space than this, when a background write has failed, means that the disk is full.
const FULL_BELOW_BYTES: u64 = 1 << 20;

/// How the engine uses memory and threads.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    pub(crate) cache_bytes: u64,
    pub(crate) memtable_bytes: u64,
    pub(crate) journal_bytes_max: u64,
}

/// Which keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Items,
    Index(usize),
    Expiry,
}

/// One row to write: a value, or nothing to remove it.
pub(crate) struct RowChange {
    pub(crate) space: Space,
    pub(crate) key: fjall::Slice,
    pub(crate) value: Option<fjall::Slice>,
}

/// Who ended a walk.
enum WalkError {
    Engine(fjall::Error),
    Visit(Error),
}

/// An open engine.
pub(crate) struct Engine {
    folder: PathBuf,
    memtable_bytes: u64,
    database: Database,
    items: Keyspace,
    indexes: Vec<Keyspace>,
    expiry: Keyspace,
}

impl Engine {
    /// Opens the engine in `folder`, making it and its keyspaces if they are not there.
    pub(crate) fn open(folder: &Path, schema: &Schema, tuning: &Tuning) -> Result<Self> {
        // Threads inherit their priority from the one that starts them, and a lowered one cannot be raised again: the
        // engine is opened on a thread of its own, so that its worker gives way to commits and reads.
        let opened = std::thread::scope(|scope| {
            let opening = scope.spawn(|| {
                give_way();
                Self::open_inner(folder, schema, tuning)
            });
            opening.join()
        });
        match opened {
            Ok(Ok(engine)) => Ok(engine),
            Ok(Err(error)) => Err(engine_error("opening", folder, None, error)),
            Err(panic) => Err(panic_error(folder, None, panic.as_ref())),
        }
    }

    fn open_inner(folder: &Path, schema: &Schema, tuning: &Tuning) -> fjall::Result<Self> {
        let database = Database::builder(folder)
            .cache_size(tuning.cache_bytes)
            .max_journaling_size(tuning.journal_bytes_max)
            .journal_compression(CompressionType::None)
            .worker_threads(1)
            .open()?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX);
        // Only items are looked up by their whole key; index rows are read in ranges, which filters cannot help.
        let unfiltered = || options().filter_policy(FilterPolicy::all(FilterPolicyEntry::None));
        let items = database.keyspace("items", options)?;
        let expiry = database.keyspace("expiry", unfiltered)?;
        let index =
            |index: &crate::schema::Index| database.keyspace(&format!("index-{}", index.name), unfiltered);
        let indexes = schema.indexes().iter().map(index).collect::<fjall::Result<_>>()?;
        let (folder, memtable_bytes) = (folder.to_owned(), tuning.memtable_bytes);
        Ok(Self { folder, memtable_bytes, database, items, indexes, expiry })
    }

    /// The folder the engine lives in.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn keyspace(&self, space: Space) -> &Keyspace {
        match space {
            Space::Items => &self.items,
            Space::Index(at) => &self.indexes[at],
            Space::Expiry => &self.expiry,
        }
    }

    fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        self.indexes.iter().chain([&self.items, &self.expiry])
    }

    /// The value under a key.
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<fjall::UserValue>> {
        let keyspace = self.keyspace(space);
        self.guard(space, Some(key), || keyspace.get(key))
    }

    /// Walks a range as it is now, until `visit` says `false`.
    pub(crate) fn walk(
        &self,
        space: Space,
        range: &KeyRange,
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        self.walk_at(&self.snapshot(), space, range, direction, visit)
    }

    /// Walks a range as it was at the snapshot, until `visit` says `false`.
    pub(crate) fn walk_at(
        &self,
        snapshot: &Snapshot,
        space: Space,
        range: &KeyRange,
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let keyspace = self.keyspace(space);
        // One guard around the whole walk: a row takes well under a microsecond.
        let mut last = fjall::Slice::from(range.start.as_slice());
        let walked = catch_unwind(AssertUnwindSafe(|| {
            let mut rows = match &range.end {
                Some(end) => snapshot.range(keyspace, range.start.as_slice()..end.as_slice()),
                None => snapshot.range(keyspace, range.start.as_slice()..),
            };
            loop {
                let row = match direction {
                    Direction::Forward => rows.next(),
                    Direction::Backward => rows.next_back(),
                };
                let Some(row) = row else { return Ok(()) };
                let (key, value) = row.into_inner().map_err(WalkError::Engine)?;
                if !visit(&key, &value).map_err(WalkError::Visit)? {
                    return Ok(());
                }
                last = key;
            }
        }));
        let file = || keyspace.path().to_owned();
        match walked {
            Ok(Ok(())) => Ok(()),
            Ok(Err(WalkError::Visit(error))) => Err(error),
            Ok(Err(WalkError::Engine(error))) => Err(engine_error(
                "reading",
                &file(),
                Some(format!("after {}", describe_key(space, &last))),
                error,
            )),
            Err(panic) => {
                let key = Some(format!("after {}", describe_key(space, &last)));
                Err(panic_error(&file(), key, panic.as_ref()))
            }
        }
    }

    /// A view of all keyspaces at one moment between two batches.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.database.snapshot()
    }

    /// The value under a key at the snapshot.
    pub(crate) fn get_at(
        &self,
        snapshot: &Snapshot,
        space: Space,
        key: &[u8],
    ) -> Result<Option<fjall::UserValue>> {
        let keyspace = self.keyspace(space);
        self.guard(space, Some(key), || snapshot.get(keyspace, key))
    }

    /// Returns when a commit will not be held up inside the engine, or fails if it would be for ever.
    pub(crate) fn wait_for_room(&self) -> std::result::Result<(), WriteFailure> {
        let crowded = |keyspace: &Keyspace| {
            memtable_bytes(keyspace) > self.memtable_bytes * MEMTABLE_GROWTH_MAX
                || keyspace.tree.l0_run_count() > OVERLAPPING_RUNS_MAX
        };
        while self.keyspaces().any(crowded) {
            // Writes nothing that is not written already; it is how fjall says that its workers have failed.
            self.database.persist(PersistMode::Buffer).map_err(|error| self.write_failure(error))?;
            std::thread::sleep(WAIT_STEP);
        }
        Ok(())
    }

    /// Whether a memtable has reached its size.
    pub(crate) fn has_full_memtable(&self) -> bool {
        self.keyspaces().any(|keyspace| memtable_bytes(keyspace) > self.memtable_bytes)
    }

    /// The keeper's thread: each time it is woken, puts new memtables in the place of those that have reached their size
    /// and has them written out. Ends when nobody can wake it any more.
    ///
    /// Once written out, a memtable is of no use, and fjall would free its hundred thousand rows while holding a lock that
    /// every commit needs: a stall of 10 ms for each MiB. Keeping a reference until fjall has let go moves that here.
    pub(crate) fn keep(&self, woken: &std::sync::mpsc::Receiver<()>) {
        give_way();
        let mut written_out = Vec::new();
        let mut wait = RELEASE_EVERY;
        loop {
            match woken.recv_timeout(wait) {
                Ok(()) | Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            }
            wait = RELEASE_EVERY;
            for keyspace in self.keyspaces() {
                let memtable = keyspace.tree.active_memtable();
                if memtable.size() <= self.memtable_bytes {
                    continue;
                }
                if keyspace.sealed_memtable_count() >= SEALED_MEMTABLES_MAX {
                    // Commits may be waiting for this memtable to be replaced, and then nobody wakes this thread: it looks again by itself.
                    wait = LOOK_AGAIN_AFTER;
                    continue;
                }
                written_out.push(memtable);
                if let Err(error) = keyspace.rotate_memtable() {
                    // The engine refuses further writes by itself; the next commit will be told.
                    tracing::error!(%error, keyspace = %keyspace.name(), "replacing a memtable failed");
                }
            }
            written_out.retain(|memtable| Arc::strong_count(memtable) > 1);
        }
    }

    /// Writes all rows or none, and syncs. After an error, what the disk holds is unknown.
    pub(crate) fn commit(&self, rows: Vec<RowChange>) -> std::result::Result<(), WriteFailure> {
        let mut batch = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), rows.len())
            .durability(Some(PersistMode::SyncData));
        for row in rows {
            let keyspace = self.keyspace(row.space);
            match row.value {
                Some(value) => batch.insert(keyspace, row.key, value),
                None => batch.remove(keyspace, row.key),
            }
        }
        match catch_unwind(AssertUnwindSafe(|| batch.commit())) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.write_failure(error)),
            Err(panic) => Err(WriteFailure::Journal(panic_text(panic.as_ref()))),
        }
    }

    /// Fills an empty engine from another one as it was at one moment.
    pub(crate) fn fill_from(&self, source: &Self) -> Result<()> {
        let snapshot = source.snapshot();
        let everything = KeyRange { start: vec![], end: None };
        let spaces = (0..self.indexes.len()).map(Space::Index).chain([Space::Items, Space::Expiry]);
        for space in spaces {
            let writing = |error| engine_error("writing to", &self.folder, None, error);
            let mut ingestion = self.keyspace(space).start_ingestion().map_err(writing)?;
            source.walk_at(&snapshot, space, &everything, Direction::Forward, |key, value| {
                ingestion.write(key, value).map_err(writing)?;
                Ok(true)
            })?;
            ingestion.finish().map_err(writing)?;
        }
        Ok(())
    }

    /// Bytes on disk, the journal included.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.database.disk_space().unwrap_or(0)
    }

    /// The error for a row that does not parse.
    pub(crate) fn corrupt(&self, space: Space, key: &[u8], detail: impl Into<String>) -> Error {
        let file = self.keyspace(space).path().to_owned();
        Error::Corrupt { file, key: Some(describe_key(space, key)), detail: detail.into() }
    }

    fn guard<T>(
        &self,
        space: Space,
        key: Option<&[u8]>,
        read: impl FnOnce() -> fjall::Result<T>,
    ) -> Result<T> {
        let file = || self.keyspace(space).path().to_owned();
        let key = || key.map(|key| describe_key(space, key));
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(engine_error("reading", &file(), key(), error)),
            Err(panic) => Err(panic_error(&file(), key(), panic.as_ref())),
        }
    }

    fn write_failure(&self, error: fjall::Error) -> WriteFailure {
        match error {
            fjall::Error::Io(error) if folder::is_disk_full(&error) => WriteFailure::DiskFull,
            fjall::Error::Io(error) => WriteFailure::Journal(error.to_string()),
            // The engine does not say what stopped its workers; the usual cause can be looked up.
            fjall::Error::Poisoned if self.is_disk_full() => WriteFailure::DiskFull,
            error => WriteFailure::Background(error.to_string()),
        }
    }

    fn is_disk_full(&self) -> bool {
        rustix::fs::statvfs(&self.folder).is_ok_and(|disk| disk.f_bavail * disk.f_frsize < FULL_BELOW_BYTES)
    }
}

fn memtable_bytes(keyspace: &Keyspace) -> u64 {
    keyspace.tree.active_memtable().size()
}

fn engine_error(doing: &str, file: &Path, key: Option<String>, error: fjall::Error) -> Error {
    let corrupt = |detail: String| Error::Corrupt { file: file.to_owned(), key: key.clone(), detail };
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => match error.kind() {
            // Files too short or not there, or places in them that cannot be: the engine knows that they must be.
            std::io::ErrorKind::UnexpectedEof
            | std::io::ErrorKind::NotFound
            | std::io::ErrorKind::InvalidData
            | std::io::ErrorKind::InvalidInput => corrupt(error.to_string()),
            _ => folder::io(doing, file, &error),
        },
        fjall::Error::Locked => Error::Locked {
            folder: file.to_owned(),
            holder: "another process, which holds the engine's own lock".into(),
        },
        fjall::Error::InvalidVersion(_) => Error::UnsupportedFormat {
            file: file.to_owned(),
            found: error.to_string(),
            supported: folder::FORMAT_VERSION,
        },
        error => corrupt(error.to_string()),
    }
}

fn panic_error(file: &Path, key: Option<String>, panic: &(dyn std::any::Any + Send)) -> Error {
    let detail = format!("the storage engine gave up: {}", panic_text(panic));
    Error::Corrupt { file: file.to_owned(), key, detail }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "for an unknown reason".to_owned())
}

/// A key for people to read.
fn describe_key(space: Space, key: &[u8]) -> String {
    let decoded = match space {
        Space::Items => super::encoding::decode_item_key(key).ok(),
        Space::Expiry => super::encoding::decode_expiry_key(key).ok().map(|(_, key)| key),
        Space::Index(_) => None,
    };
    decoded.map_or_else(|| format!("{:?}", String::from_utf8_lossy(key)), |key| key.to_string())
}
