//! One writer a user at a time, in this process.
//!
//! Users share locks by hash: two who meet wait for each other needlessly and harmlessly. Whoever needs several locks takes them in order, so that
//! nobody waits in a circle. The locks keep the order of a user's changes the same in the table and in the ranking; correctness across
//! processes rests on versions in the table alone.

use std::hash::BuildHasher;

use tokio::sync::{Mutex, MutexGuard};

/// Enough that a batch of a thousand users leaves room for another one.
const LOCKS: usize = 1 << 15;

pub(crate) struct UserLocks {
    locks: Vec<Mutex<()>>,
    hash: foldhash::fast::RandomState,
}

impl UserLocks {
    pub(crate) fn new() -> Self {
        let locks = std::iter::repeat_with(Mutex::default).take(LOCKS).collect();
        Self { locks, hash: foldhash::fast::RandomState::default() }
    }

    fn slot(&self, user: &str) -> usize {
        self.hash.hash_one(user) as usize % LOCKS
    }

    /// Waits for one user.
    pub(crate) async fn lock(&self, user: &str) -> MutexGuard<'_, ()> {
        self.locks[self.slot(user)].lock().await
    }

    /// Waits for several users.
    pub(crate) async fn lock_all<'a>(&self, users: impl Iterator<Item = &'a str>) -> Vec<MutexGuard<'_, ()>> {
        let mut slots: Vec<usize> = users.map(|user| self.slot(user)).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut guards = Vec::with_capacity(slots.len());
        for slot in slots {
            guards.push(self.locks[slot].lock().await);
        }
        guards
    }
}
