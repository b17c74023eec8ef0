//! The users of any number of trees: each id is kept once, in few bytes, however many boards it is on.
//!
//! [`Users`] maps an id to a [`UserKey`] of four bytes and back, and counts uses. A tree takes one use of each user it holds; the
//! last use given back gives back the memory. It is shared by reference and safe to call from any thread: one lock is around it
//! all, taken for reading but when a user is new or leaves.
//!
//! Why one lock, taken once for a whole question and not around each step: giving a lock back is an atomic write, and the processor
//! starts no load behind it before the loads in front of it are done.
//!
//! Users are numbered densely from 0, so that what is kept of them stands in plain arrays: at this size every look into memory that
//! waits for another one counts, and an array needs none to find the place.
//!
//! Ids come from outside, so the hash is seeded at random: ids that collide cannot be prepared beforehand. (Against somebody who measures
//! each answer and tries on, the hash makes no promise; ids reach us through a game's own server.)

mod codec;
mod ids;
mod slots;

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::Error;
use codec::{BUFFER, ID_BYTES_MAX, Prefixes};
use foldhash::HashMap;
use ids::Ids;
use slots::Slots;

/// Numbers keep below this, so that a cell of the hash table has a bit left for the hash and the highest `u32` can stand for nobody.
const USERS_MAX: u32 = (1 << 31) - 1;
/// Room for ids that most keep to: UUIDs are as long.
const ID_BYTES_USUAL: usize = 36;
/// The use count that stands for "more than 254; see `many_uses`".
const USES_MANY: u8 = u8::MAX;

/// A user's number: what a tree keeps instead of the id.
///
/// It names the same user for as long as there is a use of it, and may name another one after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserKey(pub(crate) u32);

/// The ids of all users, shared by the trees that rank them.
///
/// ```
/// use std::sync::Arc;
/// use rank_tree::{Entry, Order, RankTree, Users};
///
/// let users = Arc::new(Users::new());
/// let mut weekly = RankTree::new(Order::High, Arc::clone(&users));
/// let mut monthly = RankTree::new(Order::High, Arc::clone(&users));
/// weekly.set("maru", Entry { score: 7, reached_at: 1 })?;
/// monthly.set("maru", Entry { score: 30, reached_at: 1 })?;
/// assert_eq!(users.len(), 1);
///
/// let key = users.find("maru").expect("two trees hold it");
/// drop(weekly);
/// assert_eq!(users.id(key).as_deref(), Some("maru"));
/// drop(monthly);
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
    /// Uses are the trees' own business: a use given back twice would leave a tree with a user nobody knows.
    pub(crate) fn acquire(&self, id: &str) -> Result<UserKey, Error> {
        self.write().acquire(id)
    }

    /// Gives back one use. After the last one the key may come to name another user.
    pub(crate) fn release(&self, user: UserKey) {
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

    /// Calls `read` with the id of each of these users that is in use and its place among them; one turn at the lock for all.
    pub fn with_ids(&self, users: impl IntoIterator<Item = UserKey>, mut read: impl FnMut(usize, &str)) {
        let users = users.into_iter();
        let expected = users.size_hint().0;
        let mut buffer = BUFFER;
        let mut text = String::with_capacity(expected * ID_BYTES_USUAL);
        let mut ends = Vec::with_capacity(expected);
        let table = self.read();
        for (place, user) in users.enumerate() {
            if let Some(id) = table.id(user, &mut buffer) {
                text.push_str(id);
                ends.push((place, text.len()));
            }
        }
        // `read` runs without the lock: it may well ask for another user.
        drop(table);
        let mut start = 0;
        for (place, end) in ends {
            read(place, &text[start..end]);
            start = end;
        }
    }

    /// How many users have at least one use.
    pub fn len(&self) -> usize {
        self.read().count
    }

    /// Whether there are no users.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for this many users in all, so that a load does not grow the tables step by step.
    pub fn reserve(&self, users: usize) {
        // One segment at a time: others get at the lock in between.
        for segment in 0..slots::SEGMENTS {
            let table = &mut *self.write();
            table.slots.reserve(segment, users, |number| hash_of(&table.state, table.ids.get(number)));
        }
        let uses = &mut self.write().uses;
        uses.reserve(users.saturating_sub(uses.len()));
    }

    /// Gives back one use of each of these users, letting others in between now and then.
    pub(crate) fn release_all(&self, mut users: impl Iterator<Item = UserKey>) {
        const AT_ONCE: usize = 512;
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
        let table = self.read();
        let uses = table.uses.len() + table.many_uses.capacity() * 9 + table.free.capacity() * 4;
        (table.ids.memory() + uses, table.slots.memory())
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
///
/// `slots`, `ids` and `uses` hold the same users and change together: `slots` finds a number by the hash of an id, `ids` has the id of a
/// number, `uses` counts its uses, 0 where the number is free (and in `free`).
#[derive(Debug)]
pub(crate) struct Table {
    slots: Slots,
    ids: Ids,
    uses: Vec<u8>,
    many_uses: HashMap<u32, u32>,
    free: Vec<u32>,
    count: usize,
    prefixes: Prefixes,
    state: HashState,
}

/// A seeded hash of encoded ids.
type HashState = foldhash::quality::RandomState;

impl Default for Table {
    fn default() -> Self {
        Table {
            slots: Slots::new(),
            ids: Ids::default(),
            uses: Vec::new(),
            many_uses: HashMap::default(),
            free: Vec::new(),
            count: 0,
            prefixes: Prefixes::new(),
            state: HashState::default(),
        }
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
        self.slots.find(hash, |number| self.ids.is(number, encoded)).map(UserKey)
    }

    pub(crate) fn acquire(&mut self, id: &str) -> Result<UserKey, Error> {
        check_length(id)?;
        let mut buffer = BUFFER;
        let encoded = self.prefixes.encode_to_store(id.as_bytes(), &mut buffer);
        let hash = hash_of(&self.state, encoded);
        self.acquire_encoded(hash, encoded)
    }

    /// Takes a use of each of these users, as [`Table::acquire`] does, faster: the loads of all of them overlap. On an error no use was
    /// taken.
    pub(crate) fn acquire_all<'i>(
        &mut self,
        ids: impl Iterator<Item = &'i str>,
    ) -> Result<Vec<UserKey>, Error> {
        let mut batch = Batch::default();
        let mut buffer = BUFFER;
        for id in ids {
            check_length(id)?;
            batch.push(&self.state, Some(self.prefixes.encode_to_store(id.as_bytes(), &mut buffer)));
        }
        batch.hashes().for_each(|hash| self.slots.touch(hash));
        let mut users = Vec::with_capacity(batch.len());
        for at in 0..batch.len() {
            let Some((hash, encoded)) = batch.get(at) else { continue };
            match self.acquire_encoded(hash, encoded) {
                Ok(user) => users.push(user),
                Err(error) => {
                    users.into_iter().for_each(|user| self.release(user));
                    return Err(error);
                }
            }
        }
        Ok(users)
    }

    /// Finds each of these users, as [`Table::find`] does, faster: the loads of all of them overlap.
    pub(crate) fn find_all<'i>(&self, ids: impl Iterator<Item = &'i str>) -> Vec<Option<UserKey>> {
        let mut batch = Batch::default();
        let mut buffer = BUFFER;
        for id in ids {
            let fits = id.len() <= ID_BYTES_MAX;
            let encoded = fits.then(|| self.prefixes.encode_to_find(id.as_bytes(), &mut buffer)).flatten();
            batch.push(&self.state, encoded);
        }
        batch.hashes().for_each(|hash| self.slots.touch(hash));
        for hash in batch.hashes() {
            if let Some(number) = self.slots.candidate(hash) {
                black_box(self.ids.get(number).first().copied());
            }
        }
        let find = |at| {
            let (hash, encoded) = batch.get(at)?;
            self.slots.find(hash, |number| self.ids.is(number, encoded)).map(UserKey)
        };
        (0..batch.len()).map(find).collect()
    }

    fn acquire_encoded(&mut self, hash: u64, encoded: &[u8]) -> Result<UserKey, Error> {
        if let Some(number) = self.slots.find(hash, |number| self.ids.is(number, encoded)) {
            self.add_use(number);
            return Ok(UserKey(number));
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                u32::try_from(self.uses.len()).ok().filter(|number| *number < USERS_MAX).ok_or(Error::Full)?
            }
        };
        self.slots.insert(hash, number, |number| hash_of(&self.state, self.ids.get(number)));
        if !self.ids.fits(number, encoded.len()) {
            self.turn_to_blocks(number);
        }
        self.ids.put(number, encoded);
        match self.uses.get_mut(number as usize) {
            Some(uses) => *uses = 1,
            None => self.uses.push(1),
        }
        self.count += 1;
        Ok(UserKey(number))
    }

    pub(crate) fn release(&mut self, user: UserKey) {
        let number = user.0;
        let uses = &mut self.uses[number as usize];
        if *uses == USES_MANY {
            let many = self.many_uses.get_mut(&number).expect("a count above 254 is in `many_uses`");
            *many -= 1;
            if *many < u32::from(USES_MANY) {
                *uses = USES_MANY - 1;
                self.many_uses.remove(&number);
            }
            return;
        }
        *uses -= 1;
        if *uses > 0 {
            return;
        }
        let hash_of = |number| hash_of(&self.state, self.ids.get(number));
        self.slots.remove(hash_of(number), number, hash_of);
        if self.ids.take(number) {
            self.turn_to_blocks(number);
        }
        self.free.push(number);
        self.count -= 1;
        if self.count == 0 {
            *self = Table::default();
        }
    }

    fn add_use(&mut self, number: u32) {
        let uses = &mut self.uses[number as usize];
        if *uses < USES_MANY - 1 {
            *uses += 1;
        } else {
            *uses = USES_MANY;
            *self.many_uses.entry(number).or_insert(u32::from(USES_MANY) - 1) += 1;
        }
    }

    fn turn_to_blocks(&mut self, number: u32) {
        let uses = &self.uses;
        self.ids.turn_to_blocks(number, |number| uses.get(number as usize).is_some_and(|uses| *uses > 0));
    }

    /// The id of a user in use, written into the buffer.
    #[inline]
    pub(crate) fn id<'b>(&self, user: UserKey, buffer: &'b mut codec::Buffer) -> Option<&'b str> {
        if self.uses.get(user.0 as usize).is_none_or(|uses| *uses == 0) {
            return None;
        }
        Some(text(self.prefixes.decode(self.ids.get(user.0), buffer)))
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

/// Encoded ids and their hashes, back to back.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// The hash of each id and where it ends; no hash where an id cannot be there.
    ids: Vec<(Option<u64>, usize)>,
}

impl Batch {
    fn push(&mut self, state: &HashState, encoded: Option<&[u8]>) {
        let hash = encoded.map(|encoded| {
            self.bytes.extend_from_slice(encoded);
            hash_of(state, encoded)
        });
        self.ids.push((hash, self.bytes.len()));
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn get(&self, at: usize) -> Option<(u64, &[u8])> {
        let start = at.checked_sub(1).map_or(0, |before| self.ids[before].1);
        let (hash, end) = self.ids[at];
        hash.map(|hash| (hash, &self.bytes[start..end]))
    }

    fn hashes(&self) -> impl Iterator<Item = u64> + '_ {
        self.ids.iter().filter_map(|(hash, _)| *hash)
    }
}

fn check_length(id: &str) -> Result<(), Error> {
    if id.is_empty() || id.len() > ID_BYTES_MAX {
        return Err(Error::IdLength { bytes: id.len() });
    }
    Ok(())
}

/// A buffer for [`Table::id`].
pub(crate) fn buffer() -> codec::Buffer {
    BUFFER
}

fn text(id: &[u8]) -> &str {
    str::from_utf8(id).expect("an id decodes to the string it was made from")
}

#[inline]
fn hash_of(state: &HashState, encoded: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(encoded);
    hasher.finish()
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
