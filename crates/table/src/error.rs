//! What can go wrong, by meaning. Callers match variants and never text.
//!
//! Three families need telling apart. The caller's own mistakes ([`Error::LimitExceeded`] to
//! [`Error::StrongReadOfGlobalIndex`]) will fail again however often they are tried. Ordinary events
//! ([`Error::ConditionFailed`], [`Error::Conflict`], [`Error::Throttled`]) changed nothing and may be tried
//! again. [`Error::OutcomeUnknown`] and [`Error::WritesRefused`] may or may not have taken effect: the
//! caller must read before it answers anyone.

use std::path::PathBuf;
use std::time::Duration;

use crate::key::Key;
use crate::limits::Limit;
use crate::operation::Condition;

/// What the table's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call was not done.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something is larger than every backend allows. Nothing was written.
    #[error("{limit} is {actual}, more than the {max} allowed; make it smaller or split it up")]
    LimitExceeded {
        /// Which limit.
        limit: Limit,
        /// What the caller asked for.
        actual: usize,
        /// What is allowed.
        max: usize,
    },
    /// An item or key no backend can store. Nothing was written.
    #[error("item {key} cannot be stored: {why}")]
    InvalidItem {
        /// The item's key.
        key: Key,
        /// What to change.
        why: String,
    },
    /// A call no backend can do. Nothing was done.
    #[error("the request makes no sense: {why}")]
    InvalidRequest {
        /// What to change.
        why: String,
    },
    /// A schema no backend can hold.
    #[error("the schema is not possible: {why}")]
    InvalidSchema {
        /// What to change.
        why: String,
    },
    /// A query names an index the schema does not have.
    #[error("there is no index `{name}` in this table's schema")]
    UnknownIndex {
        /// The name asked for.
        name: String,
    },
    /// Global indexes are eventual; asking for a strong read of one is a mistake in the caller.
    #[error("global index `{name}` can only be read eventually; read the item itself for a strong answer")]
    StrongReadOfGlobalIndex {
        /// The index.
        name: String,
    },

    /// Conditions of the transaction did not hold. Nothing was written.
    #[error("nothing was written: {} condition(s) did not hold, first {}", failed.len(), describe_first(failed))]
    ConditionFailed {
        /// Every operation whose condition did not hold, in order.
        failed: Vec<FailedCondition>,
    },
    /// Another transaction was working on the same items. Nothing was written; try again.
    #[error("nothing was written: another transaction holds one of the items; try again")]
    Conflict,
    /// More was asked for than the table can take just now. Nothing was done; try again later.
    #[error("the table is busy; try again in {} ms", retry_after.as_millis())]
    Throttled {
        /// How long to wait before trying again.
        retry_after: Duration,
    },

    /// The call was sent but its answer never came: it may or may not have taken effect.
    #[error("the answer did not come ({why}): read before trying again")]
    OutcomeUnknown {
        /// What happened instead of an answer.
        why: String,
    },
    /// An earlier write failed and the table takes no more until it is opened again. Reads go on.
    #[error("the table at {} takes no writes until it is opened again: {cause}", folder.display())]
    WritesRefused {
        /// The table's folder.
        folder: PathBuf,
        /// What failed.
        cause: WriteFailure,
    },

    /// Another process, or another handle in this one, has the folder open.
    #[error("{} is already open by {holder}; stop that first", folder.display())]
    Locked {
        /// The table's folder.
        folder: PathBuf,
        /// Who has it, as far as the lock file says.
        holder: String,
    },
    /// The folder was written by a newer or an unknown version.
    #[error("{} has format {found}, this version reads format {supported}; use the version that wrote it", file.display())]
    UnsupportedFormat {
        /// The file that says so.
        file: PathBuf,
        /// The format found.
        found: String,
        /// The format this version reads and writes.
        supported: u32,
    },
    /// The folder was made for other indexes.
    #[error("{} was made for other indexes: {difference}", file.display())]
    SchemaMismatch {
        /// The file that holds the table's schema.
        file: PathBuf,
        /// The first difference.
        difference: String,
    },
    /// Stored data is damaged. Nothing is guessed; restore from a backup.
    #[error("damaged data in {}{}: {detail}; restore it from a backup", file.display(), describe_key(key.as_deref()))]
    Corrupt {
        /// The file or folder the damage is in.
        file: PathBuf,
        /// The key being read, where it is known.
        key: Option<String>,
        /// What is wrong.
        detail: String,
    },
    /// There is no room left on the disk.
    #[error("no space left on the disk that holds {}; free some and open the table again", folder.display())]
    DiskFull {
        /// The table's folder.
        folder: PathBuf,
    },
    /// The disk or the operating system failed.
    #[error("{doing} failed: {why}")]
    Io {
        /// What was being done, with the path.
        doing: String,
        /// What the system said.
        why: String,
    },
    /// The table is closing.
    #[error("the table is closed")]
    Closed,
}

impl Error {
    /// Whether the same call may succeed later without anything being changed or read first.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Conflict | Self::Throttled { .. })
    }
}

/// One condition that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedCondition {
    /// The position of the operation in the transaction, from 0.
    pub operation: usize,
    /// The condition it carried.
    pub condition: Condition,
}

/// Why a table stopped taking writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteFailure {
    /// The disk is full.
    #[error("the disk is full; free some space first")]
    DiskFull,
    /// Writing or syncing the journal failed. What the disk holds is unknown until the table is opened again;
    /// a second sync could report success without having written anything, so none is tried.
    #[error("writing to disk failed ({0}); check the disk first")]
    Journal(String),
    /// The storage engine's background work failed.
    #[error("background work on the data files failed ({0}); check the disk first")]
    Background(String),
    /// Damaged data was met while a transaction was being checked.
    #[error("{0}")]
    Corrupt(String),
}

fn describe_first(failed: &[FailedCondition]) -> String {
    failed.first().map_or_else(
        || "none".to_owned(),
        |first| format!("operation {} ({:?})", first.operation, first.condition),
    )
}

fn describe_key(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!(" at key {key}"))
}
