//! The users of any number of trees: each id is kept once, in few bytes, however many boards it is on.
//!
//! [`Users`] maps an id to a [`UserKey`] of four bytes and back, and counts uses. A tree takes one use of
//! each user it holds; the last use given back gives back the memory. It is shared by reference and safe to
//! call from any thread: the users are spread over segments by hash, each behind its own lock, and no
//! method holds two locks at once.
//!
//! Ids come from outside, so the hash is seeded at random: nobody can prepare ids that collide.

mod codec;
mod segment;

use std::cmp::Ordering;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::Error;
use codec::{BUFFER, ID_BYTES_MAX, Prefixes};
use segment::{HashState, LOCAL_BITS, Segment, hash_of};

const SEGMENT_BITS: u32 = 32 - LOCAL_BITS;
/// Over how many segments users are spread.
pub(crate) const SEGMENTS: usize = 1 << SEGMENT_BITS;

/// A user's number: what a tree keeps instead of the id.
///
/// It names the same user for as long as there is a use of it, and may name another one after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserKey(pub(crate) u32);

impl UserKey {
    #[inline]
    pub(crate) fn at(segment: usize, local: u32) -> Self {
        UserKey((segment as u32) << LOCAL_BITS | local)
    }

    /// Which segment, and where in it.
    #[inline]
    pub(crate) fn place(self) -> (usize, u32) {
        ((self.0 >> LOCAL_BITS) as usize, self.0 & ((1 << LOCAL_BITS) - 1))
    }
}

/// The ids of all users, shared by the trees that rank them.
///
/// ```
/// use rank_tree::Users;
/// let users = Users::new();
/// let key = users.acquire("maru")?;
/// assert_eq!(users.find("maru"), Some(key));
/// assert_eq!(users.id(key).as_deref(), Some("maru"));
/// users.release(key);
/// assert_eq!(users.find("maru"), None);
/// # Ok::<(), rank_tree::Error>(())
/// ```
#[derive(Debug)]
pub struct Users {
    segments: Box<[RwLock<Segment>]>,
    prefixes: Prefixes,
    state: HashState,
}

impl Default for Users {
    fn default() -> Self {
        Users::new()
    }
}

impl Users {
    /// No users yet.
    pub fn new() -> Self {
        Users {
            segments: (0..SEGMENTS).map(|_| RwLock::default()).collect(),
            prefixes: Prefixes::new(),
            state: HashState::default(),
        }
    }

    /// The user with this id, if any tree holds it.
    #[inline]
    pub fn find(&self, id: &str) -> Option<UserKey> {
        if id.len() > ID_BYTES_MAX {
            return None;
        }
        let mut buffer = BUFFER;
        let encoded = self.prefixes.encode_to_find(id.as_bytes(), &mut buffer)?;
        let hash = hash_of(&self.state, encoded);
        let segment = segment_of(hash);
        let local = self.read(segment).find(hash, encoded)?;
        Some(UserKey::at(segment, local))
    }

    /// Takes a use of the user with this id, who is made known if new.
    ///
    /// # Errors
    /// [`Error::IdLength`] if the id is empty or too long, [`Error::Full`] if there are too many users.
    pub fn acquire(&self, id: &str) -> Result<UserKey, Error> {
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(Error::IdLength { bytes: id.len() });
        }
        let mut buffer = BUFFER;
        let encoded = self.prefixes.encode_to_store(id.as_bytes(), &mut buffer);
        let hash = hash_of(&self.state, encoded);
        let segment = segment_of(hash);
        let local = self.write(segment).acquire(&self.state, hash, encoded).ok_or(Error::Full)?;
        Ok(UserKey::at(segment, local))
    }

    /// Takes one more use of a user that has one.
    pub fn retain(&self, user: UserKey) {
        let (segment, local) = user.place();
        self.write(segment).add_use(local);
    }

    /// Gives back one use. After the last one the key may come to name another user.
    pub fn release(&self, user: UserKey) {
        let (segment, local) = user.place();
        self.write(segment).release(&self.state, local);
    }

    /// Gives back one use of each of these users. Fast when neighbours in memory come one after the other, as a tree's
    /// entries do.
    pub(crate) fn release_all(&self, users: impl Iterator<Item = UserKey>) {
        let mut held: Option<(usize, RwLockWriteGuard<'_, Segment>)> = None;
        for user in users {
            let (segment, local) = user.place();
            if held.as_ref().is_none_or(|(number, _)| *number != segment) {
                drop(held.take());
                held = Some((segment, self.write(segment)));
            }
            if let Some((_, guard)) = &mut held {
                guard.release(&self.state, local);
            }
        }
    }

    /// The id of a user in use.
    pub fn id(&self, user: UserKey) -> Option<String> {
        self.with_id(user, str::to_owned)
    }

    /// Calls `read` with the id of a user in use, without allocating.
    #[inline]
    pub fn with_id<R>(&self, user: UserKey, read: impl FnOnce(&str) -> R) -> Option<R> {
        let mut encoded = BUFFER;
        let mut decoded = BUFFER;
        let length = self.copy_encoded(user, &mut encoded)?;
        let id = self.prefixes.decode(&encoded[..length], &mut decoded);
        Some(read(str::from_utf8(id).expect("an id decodes to the string it was made from")))
    }

    /// How many users have at least one use.
    pub fn len(&self) -> usize {
        (0..SEGMENTS).map(|segment| self.read(segment).count()).sum()
    }

    /// Whether there are no users.
    pub fn is_empty(&self) -> bool {
        (0..SEGMENTS).all(|segment| self.read(segment).count() == 0)
    }

    /// Makes room for this many users in all, so that a load does not grow the tables step by step.
    pub fn reserve(&self, users: usize) {
        // Hashes spread users evenly, but not exactly: six standard deviations above the mean are ample.
        let mean = users as f64 / SEGMENTS as f64;
        let each = (mean + 6.0 * mean.sqrt()) as usize;
        if each < 64 {
            return;
        }
        for segment in 0..SEGMENTS {
            self.write(segment).reserve(&self.state, each);
        }
    }

    /// Heap bytes of the ids and of the hash table that finds them.
    pub(crate) fn memory(&self) -> (usize, usize) {
        let fixed = SEGMENTS * size_of::<RwLock<Segment>>();
        (0..SEGMENTS).fold((fixed, 0), |(ids, table), segment| {
            let (more_ids, more_table) = self.read(segment).memory();
            (ids + more_ids, table + more_table)
        })
    }

    /// Compares the ids of two users in use, bytewise.
    pub(crate) fn compare(&self, a: UserKey, b: UserKey) -> Ordering {
        if a == b {
            return Ordering::Equal;
        }
        self.with_id(a, |a| self.compare_id(b, a).reverse()).expect("a tree's users are in use")
    }

    /// Compares the id of a user in use with an id, bytewise.
    pub(crate) fn compare_id(&self, user: UserKey, id: &str) -> Ordering {
        self.with_id(user, |user| user.cmp(id)).expect("a tree's users are in use")
    }

    fn copy_encoded(&self, user: UserKey, buffer: &mut codec::Buffer) -> Option<usize> {
        let (segment, local) = user.place();
        let segment = self.read(segment);
        let encoded = segment.encoded(local)?;
        buffer[..encoded.len()].copy_from_slice(encoded);
        Some(encoded.len())
    }

    // A panic cannot leave a segment half-changed in a way that matters more than stopping all boards, so
    // poisoning is passed over.
    #[inline]
    fn read(&self, segment: usize) -> RwLockReadGuard<'_, Segment> {
        self.segments[segment].read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn write(&self, segment: usize) -> RwLockWriteGuard<'_, Segment> {
        self.segments[segment].write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[inline]
fn segment_of(hash: u64) -> usize {
    (hash >> (64 - SEGMENT_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn ids_come_and_go_as_in_a_map() {
        let users = Users::new();
        let mut model: HashMap<String, (UserKey, u32)> = HashMap::new();
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        for step in 0..400_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let number = random % 20_000;
            let id = match number % 3 {
                0 => format!("user-{number:012}"),
                1 => format!("이름{number}"),
                _ => format!("N{number}"),
            };
            if random >> 40 & 1 == 0 || step < 20_000 {
                let key = users.acquire(&id).unwrap();
                let held = model.entry(id).or_insert((key, 0));
                assert_eq!(held.0, key);
                held.1 += 1;
            } else if let Some(held) = model.get_mut(&id) {
                users.release(held.0);
                held.1 -= 1;
                if held.1 == 0 {
                    model.remove(&id);
                    assert_eq!(users.find(&id), None);
                }
            } else {
                assert_eq!(users.find(&id), None);
            }
        }
        assert_eq!(users.len(), model.len());
        for (id, (key, uses)) in &model {
            assert_eq!(users.find(id), Some(*key));
            assert_eq!(users.id(*key).as_ref(), Some(id));
            for _ in 0..*uses {
                users.release(*key);
            }
        }
        assert!(users.is_empty());
        assert_eq!(users.memory(), Users::new().memory(), "all memory was given back");
    }

    #[test]
    fn more_than_255_uses_are_counted() {
        let users = Users::new();
        let key = users.acquire("on-many-boards").unwrap();
        for _ in 1..1_000 {
            assert_eq!(users.acquire("on-many-boards"), Ok(key));
        }
        for _ in 0..999 {
            users.release(key);
            assert_eq!(users.find("on-many-boards"), Some(key));
        }
        users.release(key);
        assert_eq!(users.find("on-many-boards"), None);
    }

    #[test]
    fn an_empty_or_too_long_id_is_refused() {
        let users = Users::new();
        assert_eq!(users.acquire(""), Err(Error::IdLength { bytes: 0 }));
        let long = "x".repeat(ID_BYTES_MAX + 1);
        assert_eq!(users.acquire(&long), Err(Error::IdLength { bytes: ID_BYTES_MAX + 1 }));
        assert_eq!(users.find(&long), None);
        assert!(users.acquire(&long[1..]).is_ok());
    }

    #[test]
    fn threads_share_users() {
        let users = Users::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..20 {
                        let keys: Vec<_> =
                            (0..500).map(|n| users.acquire(&format!("player-{n:08}")).unwrap()).collect();
                        for (n, key) in keys.iter().enumerate() {
                            assert_eq!(users.id(*key), Some(format!("player-{n:08}")), "round {round}");
                        }
                        keys.into_iter().for_each(|key| users.release(key));
                    }
                });
            }
        });
        assert!(users.is_empty());
    }
}
