//! Names of users, kept at hand so that a list of a thousand needs no thousand reads.
//!
//! Bounded: names that nobody asks for make room for others. A rename goes to the table first and to the cache then; a reader that read the old name from
//! the table just before may not put it here afterwards, which the epoch prevents: it moves on with every change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use standings_table::{Consistency, Table, Text, limits};

use crate::error::Result;
use crate::ids::UserId;
use crate::records::UserRecord;

/// How many users' names are kept at hand, those without a name included.
const NAMES_MAX: usize = 200_000;

pub(crate) struct Names {
    cache: Cache<Text, Option<Arc<str>>>,
    epoch: AtomicU64,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self { cache: Cache::new(NAMES_MAX), epoch: AtomicU64::new(0) }
    }

    /// Changes whenever a name does.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// A user has this name from now on; it is in the table already.
    pub(crate) fn changed(&self, user: &UserId, name: Option<&str>) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.cache.insert(user.as_str().into(), name.map(Arc::from));
        // Once more: whoever began to read between the two lines has seen the new name, whoever began before has not.
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// The names of users, in the order asked.
    pub(crate) async fn of(&self, table: &dyn Table, users: &[&str]) -> Result<Vec<Option<Arc<str>>>> {
        let mut names = Vec::with_capacity(users.len());
        let mut missing = Vec::new();
        for user in users {
            match self.cache.get(*user) {
                Some(name) => names.push(name),
                None => {
                    missing.push(names.len());
                    names.push(None);
                }
            }
        }
        for chunk in missing.chunks(limits::BATCH_GET_KEYS_MAX) {
            let epoch = self.epoch();
            // A page holds a user once, so the keys are different.
            let keys: Vec<_> = chunk
                .iter()
                .map(|at| UserId::new(users[*at]).map(|user| UserRecord::key(&user)))
                .collect::<Result<_>>()?;
            let items = table.batch_get(&keys, Consistency::Strong).await?;
            for (at, item) in chunk.iter().zip(items) {
                let name = item.as_ref().and_then(|item| item.text("name")).map(Arc::<str>::from);
                names[*at] = name.clone();
                if self.epoch() == epoch {
                    self.cache.insert(users[*at].into(), name);
                    if self.epoch() != epoch {
                        self.cache.remove(users[*at]);
                    }
                }
            }
        }
        Ok(names)
    }
}
