//! One writer a user at a time, in this process.
//!
//! Only users who are locked take room, each by 64 bits of a hash: two who share them would wait for each other needlessly and harmlessly. A
//! fixed number of locks would not do: of two batches of a thousand users each, some would always share a lock, and the batches
//! would wait for each other's sync. Whoever needs several locks takes them in order, so that nobody waits in a circle. The
//! locks keep the order of a user's changes the same in the table and in the ranking; correctness across processes rests on versions
//! in the table alone.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Into how many maps the locked users are spread, so that threads seldom meet there.
const MAPS: usize = 64;

type Map = HashMap<u64, Waiting, foldhash::fast::RandomState>;
/// Who waits for a user that is locked, in the order in which they came.
type Waiting = VecDeque<oneshot::Sender<UserLock>>;

pub(crate) struct UserLocks {
    locked: Arc<Locked>,
    hash: foldhash::fast::RandomState,
}

struct Locked {
    maps: Vec<Mutex<Map>>,
}

/// A user who is locked until this is dropped.
pub(crate) struct UserLock {
    locked: Arc<Locked>,
    user: u64,
    /// Cleared when nobody took it over: then it is not given back once more.
    held: bool,
}

impl UserLocks {
    pub(crate) fn new() -> Self {
        let maps = std::iter::repeat_with(Mutex::default).take(MAPS).collect();
        Self { locked: Arc::new(Locked { maps }), hash: foldhash::fast::RandomState::default() }
    }

    /// Waits for one user.
    pub(crate) async fn lock(&self, user: &str) -> UserLock {
        self.lock_hash(self.hash.hash_one(user)).await
    }

    /// Waits for several users.
    pub(crate) async fn lock_all<'a>(&self, users: impl Iterator<Item = &'a str>) -> Vec<UserLock> {
        let mut hashes: Vec<u64> = users.map(|user| self.hash.hash_one(user)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let mut locks = Vec::with_capacity(hashes.len());
        for user in hashes {
            locks.push(self.lock_hash(user).await);
        }
        locks
    }

    async fn lock_hash(&self, user: u64) -> UserLock {
        loop {
            let turn = {
                let mut map = self.locked.map(user);
                match map.get_mut(&user) {
                    None => {
                        map.insert(user, Waiting::new());
                        return UserLock { locked: self.locked.clone(), user, held: true };
                    }
                    Some(waiting) => {
                        let (sender, turn) = oneshot::channel();
                        waiting.push_back(sender);
                        turn
                    }
                }
            };
            // Whoever unlocks hands the lock over; nobody is sent away without it.
            if let Ok(lock) = turn.await {
                return lock;
            }
        }
    }
}

impl Locked {
    fn map(&self, user: u64) -> MutexGuard<'_, Map> {
        self.maps[user as usize % MAPS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next who waits; if there is none, the user is locked no more.
    fn next(&self, user: u64) -> Option<oneshot::Sender<UserLock>> {
        let mut map = self.map(user);
        let next = map.get_mut(&user).and_then(VecDeque::pop_front);
        if next.is_none() {
            map.remove(&user);
        }
        next
    }
}

/// Hands the lock to the next who waits. One who is gone before it gets there drops it, and it goes on from there.
impl Drop for UserLock {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        while let Some(next) = self.locked.next(self.user) {
            let lock = UserLock { locked: self.locked.clone(), user: self.user, held: true };
            match next.send(lock) {
                Ok(()) => return,
                // Gone already: tried with the one after.
                Err(mut refused) => refused.held = false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_at_a_time_also_when_those_who_wait_go_away() {
        let locks = Arc::new(UserLocks::new());
        let inside: Arc<Vec<AtomicU32>> = Arc::new((0..10).map(|_| AtomicU32::new(0)).collect());
        let tasks: Vec<_> = (0..64_usize)
            .map(|task| {
                let (locks, inside) = (locks.clone(), inside.clone());
                tokio::spawn(async move {
                    for round in 0..50 {
                        let users: Vec<usize> = (0..3).map(|n| (task * 7 + round * 3 + n * n) % 10).collect();
                        let names: Vec<String> = users.iter().map(|user| format!("user-{user}")).collect();
                        let locking = locks.lock_all(names.iter().map(String::as_str));
                        // Some lose patience, at every possible moment.
                        let patience = Duration::from_micros((task * 13 + round) as u64 % 200);
                        let _held = match task % 3 {
                            0 => match tokio::time::timeout(patience, locking).await {
                                Ok(held) => held,
                                Err(_) => continue,
                            },
                            _ => locking.await,
                        };
                        let mut users = users;
                        users.sort_unstable();
                        users.dedup();
                        for user in &users {
                            assert_eq!(inside[*user].fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                        }
                        tokio::task::yield_now().await;
                        for user in &users {
                            inside[*user].fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(locks.locked.maps.iter().all(|map| map.lock().unwrap().is_empty()), "nothing is left behind");
    }

    async fn waits(future: &mut (impl Future + Unpin)) -> bool {
        tokio::time::timeout(Duration::ZERO, future).await.is_err()
    }

    #[tokio::test]
    async fn whoever_waits_gets_the_lock_in_turn() {
        let locks = UserLocks::new();
        let first = locks.lock("ann").await;
        let other = locks.lock("bob").await;
        let mut second = Box::pin(locks.lock("ann"));
        let mut third = Box::pin(locks.lock("ann"));
        assert!(waits(&mut second).await && waits(&mut third).await);
        drop(first);
        assert!(waits(&mut third).await, "the second is before it");
        let second = second.await;
        drop((other, second));
        drop(third.await);
        drop(locks.lock("ann").await);
    }
}
