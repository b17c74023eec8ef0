//! The users of any number of trees: each id is kept once, in few bytes, however many boards it is on.
//!
//! [`Users`] maps an id to a [`UserKey`] of four bytes and back, and counts uses. A tree takes one use of each user it holds; the
//! last use given back gives back the memory. It is shared by reference and safe to call from any thread: one lock is around it
//! all, taken for reading but when a user is new or leaves.
//!
//! Why one lock, taken once for a whole question and not around each step: giving a lock back is an atomic write, and the processor
//! starts no load behind it before the loads in front of it are done. A lock around each look-up of an id made a rank of
//! 25 M users take twice as long. Inside, users are spread over segments by hash, so that a table that has to grow is a small one.
//!
//! Ids come from outside, so the hash is seeded at random: nobody can prepare ids that collide.

mod codec;
mod ids;
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
#[derive(Debug, Default)]
pub struct Users {
    table: RwLock<Table>,
}

impl Users {
    /// No users yet.
    pub fn new() -> Self {
        Users::default()
    }

    /// The user with this id, if any tree holds it.
    pub fn find(&self, id: &str) -> Option<UserKey> {
        self.read().find(id)
    }

    /// Takes a use of the user with this id, who is made known if new.
    ///
    /// # Errors
    /// [`Error::IdLength`] if the id is empty or too long, [`Error::Full`] if there are too many users.
    pub fn acquire(&self, id: &str) -> Result<UserKey, Error> {
        self.write().acquire(id)
    }

    /// Takes one more use of a user that has one.
    pub fn retain(&self, user: UserKey) {
        let (segment, local) = user.place();
        self.write().segments[segment].add_use(local);
    }

    /// Gives back one use. After the last one the key may come to name another user.
    pub fn release(&self, user: UserKey) {
        self.write().release(user);
    }

    /// The id of a user in use.
    pub fn id(&self, user: UserKey) -> Option<String> {
        self.with_id(user, str::to_owned)
    }

    /// Calls `read` with the id of a user in use, without allocating.
    #[inline]
    pub fn with_id<R>(&self, user: UserKey, read: impl FnOnce(&str) -> R) -> Option<R> {
        let mut buffer = BUFFER;
        // `read` runs without the lock: it may well ask for another user.
        let length = self.read().id(user, &mut buffer)?.len();
        Some(read(text(&buffer[..length])))
    }

    /// How many users have at least one use.
    pub fn len(&self) -> usize {
        self.read().segments.iter().map(Segment::count).sum()
    }

    /// Whether there are no users.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for this many users in all, so that a load does not grow the tables step by step.
    pub fn reserve(&self, users: usize) {
        // Hashes spread users evenly, but not exactly: four standard deviations above the mean are ample.
        let mean = users as f64 / SEGMENTS as f64;
        let each = (mean + 4.0 * mean.sqrt()) as usize;
        if each < 64 {
            return;
        }
        let table = &mut *self.write();
        for segment in &mut table.segments {
            segment.reserve(&table.state, each);
        }
    }

    /// Gives back one use of each of these users, letting others in between now and then.
    pub(crate) fn release_all(&self, mut users: impl Iterator<Item = UserKey>) {
        const AT_ONCE: usize = 4_096;
        loop {
            let mut table = self.write();
            for _ in 0..AT_ONCE {
                match users.next() {
                    Some(user) => table.release(user),
                    None => return,
                }
            }
        }
    }

    /// Heap bytes of the ids and of the hash table that finds them.
    pub(crate) fn memory(&self) -> (usize, usize) {
        let fixed = SEGMENTS * size_of::<Segment>();
        self.read().segments.iter().fold((fixed, 0), |(ids, table), segment| {
            let (more_ids, more_table) = segment.memory();
            (ids + more_ids, table + more_table)
        })
    }

    // A panic cannot leave the table half-changed in a way that is worse than stopping all boards, so poisoning is passed over.
    #[inline]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is behind the lock of [`Users`].
#[derive(Debug)]
pub(crate) struct Table {
    segments: Box<[Segment]>,
    prefixes: Prefixes,
    state: HashState,
}

impl Default for Table {
    fn default() -> Self {
        let segments = (0..SEGMENTS).map(|_| Segment::default()).collect();
        Table { segments, prefixes: Prefixes::new(), state: HashState::default() }
    }
}

impl Table {
    #[inline]
    pub(crate) fn find(&self, id: &str) -> Option<UserKey> {
        if id.len() > ID_BYTES_MAX {
            return None;
        }
        let mut buffer = BUFFER;
        let encoded = self.prefixes.encode_to_find(id.as_bytes(), &mut buffer)?;
        let hash = hash_of(&self.state, encoded);
        let segment = segment_of(hash);
        let local = self.segments[segment].find(hash, encoded)?;
        Some(UserKey::at(segment, local))
    }

    pub(crate) fn acquire(&mut self, id: &str) -> Result<UserKey, Error> {
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(Error::IdLength { bytes: id.len() });
        }
        let mut buffer = BUFFER;
        let encoded = self.prefixes.encode_to_store(id.as_bytes(), &mut buffer);
        let hash = hash_of(&self.state, encoded);
        let segment = segment_of(hash);
        let local = self.segments[segment].acquire(&self.state, hash, encoded).ok_or(Error::Full)?;
        Ok(UserKey::at(segment, local))
    }

    pub(crate) fn release(&mut self, user: UserKey) {
        let (segment, local) = user.place();
        self.segments[segment].release(&self.state, local);
    }

    /// The id of a user in use, written into the buffer.
    #[inline]
    pub(crate) fn id<'b>(&self, user: UserKey, buffer: &'b mut codec::Buffer) -> Option<&'b str> {
        let (segment, local) = user.place();
        let encoded = self.segments[segment].encoded(local)?;
        Some(text(self.prefixes.decode(encoded, buffer)))
    }

    /// Compares the ids of two users in use, bytewise.
    pub(crate) fn compare(&self, a: UserKey, b: UserKey) -> Ordering {
        let mut buffer = BUFFER;
        let b = self.id(b, &mut buffer).expect("a tree's users are in use");
        self.compare_id(a, b)
    }

    /// Compares the id of a user in use with an id, bytewise.
    pub(crate) fn compare_id(&self, user: UserKey, id: &str) -> Ordering {
        self.id(user, &mut BUFFER.clone()).expect("a tree's users are in use").cmp(id)
    }
}

/// A buffer for [`Table::id`].
pub(crate) fn buffer() -> codec::Buffer {
    BUFFER
}

fn text(id: &[u8]) -> &str {
    str::from_utf8(id).expect("an id decodes to the string it was made from")
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
