//! Names of users, kept at hand so that a list of a thousand needs no thousand reads.
//!
//! Bounded: names that nobody asks for make room for others. A rename goes to the table first and to the cache then; a reader that read the old name from
//! the table just before may not put it here afterwards, which the epoch prevents: it moves on with every change. Most users of whom no name
//! is known need neither read nor cache: see `named.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use standings_table::{Consistency, Table, Text, limits};

use crate::error::Result;
use crate::ids::UserId;
use crate::named::Named;
use crate::records::UserRecord;

/// How many users' names are kept at hand, with those who have none but might.
const NAMES_MAX: usize = 200_000;

pub(crate) struct Names {
    pub(crate) named: Named,
    cache: Cache<Text, Option<Arc<str>>>,
    epoch: AtomicU64,
}

impl Names {
    /// No names at hand yet; what is known of those without a name is read from the table.
    pub(crate) async fn open(table: &dyn Table) -> Result<Self> {
        let named = Named::open(table).await?;
        Ok(Self { named, cache: Cache::new(NAMES_MAX), epoch: AtomicU64::new(0) })
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

    /// A user may have another name from now on: whoever wants to know has to read it.
    pub(crate) fn forget(&self, user: &UserId) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.cache.remove(user.as_str());
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// A user's name, if it takes no read to know it or that there is none.
    pub(crate) fn at_hand(&self, user: &str) -> Option<Option<Arc<str>>> {
        if self.named.may_have(user) { self.cache.get(user) } else { Some(None) }
    }

    /// The names of users who are not at hand, in the order asked.
    pub(crate) async fn read(&self, table: &dyn Table, users: &[&str]) -> Result<Vec<Option<Arc<str>>>> {
        let mut names = Vec::with_capacity(users.len());
        for chunk in users.chunks(limits::BATCH_GET_KEYS_MAX) {
            let epoch = self.epoch();
            // A page holds a user once, so the keys are different.
            let keys: Vec<_> = chunk
                .iter()
                .map(|user| UserId::new(user).map(|user| UserRecord::key(&user)))
                .collect::<Result<_>>()?;
            let items = table.batch_get(&keys, Consistency::Strong).await?;
            for (user, item) in chunk.iter().zip(items) {
                let name = item.as_ref().and_then(|item| item.text("name")).map(Arc::<str>::from);
                names.push(name.clone());
                if self.epoch() == epoch {
                    self.cache.insert((*user).into(), name);
                    if self.epoch() != epoch {
                        self.cache.remove(*user);
                    }
                }
            }
        }
        Ok(names)
    }
}
