//! Who may have a name: a mark for each of 65,536 groups of users, in the table and at hand.
//!
//! A game either gives (nearly) all its users a name here or keeps names itself and gives none. In the second case a read of a profile that is
//! not there would be half the cost of every rank, and no cache of bounded size could spare it. So the first name of a group sets the group's mark, in the
//! transaction that puts the name; a user without a mark has no name, which takes no read and holds from the first request after a start.
//!
//! A mark is never taken back, for one too many costs a read and one too few a name. For the same reason it is set here before that transaction
//! begins, however that ends. Marks here are thus at least those of the table as far as this process knows it: names that another process puts
//! show once its marks are read again.
//!
//! A table from before there were marks has no [`NamedRecord::beginning`]: there everyone may have a name, and no marks are kept.

use std::sync::atomic::{AtomicU64, Ordering};

use standings_table::{Condition, Consistency, Error as TableError, Operation, Table};
use tokio::sync::{Mutex, MutexGuard};

use crate::error::Result;
use crate::ids::{BoardId, UserId};
use crate::records::{BoardRecord, NamedRecord};
use crate::service::DEFAULT_BOARD;

const WORDS: usize = NamedRecord::GROUPS / 64;

/// See the module.
pub(crate) struct Named {
    /// A bit a group.
    marks: Box<[AtomicU64]>,
    /// What is in the table, as far as is known; nothing where no marks are kept. Locked by whoever adds a mark until it is in the table.
    stored: Option<Vec<Mutex<NamedRecord>>>,
}

impl Named {
    /// Reads the marks of a table; a new one gets its beginning.
    pub(crate) async fn open(table: &dyn Table) -> Result<Self> {
        if let Some(named) = Self::read(table).await? {
            return Ok(named);
        }
        // The default board is there from the first start on, and stays: a table without it is new and has no names.
        let default = BoardRecord::key(&BoardId::new(DEFAULT_BOARD)?);
        let begin = vec![
            Operation::Check { key: default, condition: Condition::Absent },
            Operation::put_if(NamedRecord::beginning(), Condition::Absent),
        ];
        match table.transact(begin).await {
            // Also if it failed, for another process may just have done the same.
            Ok(_) | Err(TableError::ConditionFailed { .. } | TableError::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self::read(table).await?.unwrap_or_else(Self::unknown))
    }

    async fn read(table: &dyn Table) -> Result<Option<Self>> {
        let mut keys = vec![NamedRecord::beginning().key];
        keys.extend((0..NamedRecord::SHARDS).map(NamedRecord::key));
        let mut items = table.batch_get(&keys, Consistency::Strong).await?.into_iter();
        if items.next().flatten().is_none() {
            return Ok(None);
        }
        let named = Self { marks: (0..WORDS).map(|_| AtomicU64::new(0)).collect(), stored: None };
        let mut stored = Vec::with_capacity(NamedRecord::SHARDS);
        for (shard, item) in items.enumerate() {
            let record = match item {
                Some(item) => NamedRecord::from_item(shard, &item)?,
                None => NamedRecord::new(shard),
            };
            named.take_over(&record);
            stored.push(Mutex::new(record));
        }
        Ok(Some(Self { stored: Some(stored), ..named }))
    }

    fn unknown() -> Self {
        Self { marks: (0..WORDS).map(|_| AtomicU64::new(u64::MAX)).collect(), stored: None }
    }

    fn take_over(&self, record: &NamedRecord) {
        for group in record.groups() {
            self.mark(group);
        }
    }

    fn mark(&self, group: usize) {
        self.marks[group / 64].fetch_or(1 << (group % 64), Ordering::SeqCst);
    }

    /// Whether a user may have a name; if not, they have none.
    pub(crate) fn may_have(&self, user: &str) -> bool {
        let group = NamedRecord::group_of(user);
        // Acquire: who sees no mark sees a table from before the name, and is answered as of then.
        self.marks[group / 64].load(Ordering::Acquire) >> (group % 64) & 1 == 1
    }

    /// What has to go into the transaction that gives a user a name, if their group has no mark in the table yet.
    pub(crate) async fn add(&self, user: &UserId) -> Option<Addition<'_>> {
        let group = NamedRecord::group_of(user.as_str());
        self.mark(group);
        let stored = self.stored.as_ref()?[NamedRecord::shard_of(group)].lock().await;
        let record = stored.with(group)?;
        Some(Addition { named: self, stored, record })
    }
}

/// A mark on its way into the table. While it is, no other of its shard is.
pub(crate) struct Addition<'a> {
    named: &'a Named,
    stored: MutexGuard<'a, NamedRecord>,
    record: NamedRecord,
}

impl Addition<'_> {
    pub(crate) fn operation(&self) -> Operation {
        let condition = match self.stored.version {
            0 => Condition::Absent,
            version => Condition::VersionEquals(version),
        };
        Operation::put_if(self.record.to_item(), condition)
    }

    /// The transaction was made.
    pub(crate) fn done(mut self) {
        *self.stored = self.record;
    }

    /// It was not, perhaps because another process has added a mark: what is in the table now?
    pub(crate) async fn read_again(mut self, table: &dyn Table) -> Result<()> {
        let shard = self.record.shard;
        if let Some(item) = table.get(&NamedRecord::key(shard), Consistency::Strong).await? {
            *self.stored = NamedRecord::from_item(shard, &item)?;
            self.named.take_over(&self.stored);
        }
        Ok(())
    }
}
