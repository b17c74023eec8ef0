//! One of the many small tables that together map ids to users.
//!
//! A segment holds the same users three ways, and they change together:
//! - `slots`: an open-addressing hash table (linear probing, no tombstones) of 4-byte slots, each a *local* number and ten bits of
//!   the hash, so that a wrong candidate is almost never looked at;
//! - `ids`: the encoded ids by local;
//! - `uses`, by local: how many uses there are, 0 where the local is free. A count above 254 lives in `many_uses`.
//!
//! Rejected: an offset for each id (4 to 5 bytes a user); one hash table that doubles (between 5 and 10 bytes a user, and a stall
//! of seconds when 25 M users move at once: a segment grows by a fifth, alone); tombstones (removal instead moves the following
//! slots back).

use foldhash::HashMap;
use std::hash::{BuildHasher, Hasher};

use super::ids::Ids;

/// Bits of a user's number that say where in its segment the user is.
pub(super) const LOCAL_BITS: u32 = 22;
const LOCAL_MASK: u32 = (1 << LOCAL_BITS) - 1;
const EMPTY: u32 = u32::MAX;
const USES_MANY: u8 = u8::MAX;
/// Slots are at most 85 % full: a hit then looks at four slots on average, nearly always in one cache line.
const FILL_MAX: (usize, usize) = (17, 20);
const SLOTS_MIN: usize = 8;

/// A seeded hash of encoded ids.
pub(super) type HashState = foldhash::quality::RandomState;

/// The hash of an encoded id. Bits 63–54 choose the segment, 53–22 the slot, 9–0 are kept in the slot.
#[inline]
pub(super) fn hash_of(state: &HashState, encoded: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(encoded);
    hasher.finish()
}

#[derive(Debug, Default)]
pub(super) struct Segment {
    slots: Box<[u32]>,
    ids: Ids,
    uses: Vec<u8>,
    free: Vec<u32>,
    count: usize,
    many_uses: HashMap<u32, u32>,
}

impl Segment {
    /// How many users have at least one use.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The local of a user, if the segment holds it.
    #[inline]
    pub(super) fn find(&self, hash: u64, encoded: &[u8]) -> Option<u32> {
        self.find_slot(hash, encoded).map(|slot| self.slots[slot] & LOCAL_MASK)
    }

    /// The encoded id of a local in use.
    #[inline]
    pub(super) fn encoded(&self, local: u32) -> Option<&[u8]> {
        self.in_use(local).then(|| self.ids.get(local))
    }

    /// Adds a use of an id, storing it if it is new. `None`: the segment is full.
    pub(super) fn acquire(&mut self, state: &HashState, hash: u64, encoded: &[u8]) -> Option<u32> {
        if let Some(local) = self.find(hash, encoded) {
            self.add_use(local);
            return Some(local);
        }
        let local = match self.free.pop() {
            Some(local) => local,
            // The highest local is never given out: with ten one-bits of hash it would read as an empty slot.
            None => u32::try_from(self.uses.len()).ok().filter(|local| *local < LOCAL_MASK)?,
        };
        if (self.count + 1) * FILL_MAX.1 > self.slots.len() * FILL_MAX.0 {
            self.resize_slots(state, roomy(self.count + 1));
        }
        if !self.ids.fits(local, encoded.len()) {
            let uses = &self.uses;
            self.ids.turn_to_blocks(local, |local| uses.get(local as usize).is_some_and(|uses| *uses > 0));
        }
        self.ids.put(local, encoded);
        if local as usize == self.uses.len() {
            if self.uses.len() == self.uses.capacity() {
                self.uses.reserve_exact((self.uses.len() / 8).max(16));
            }
            self.uses.push(1);
        } else {
            self.uses[local as usize] = 1;
        }
        self.count += 1;
        self.fill_slot(hash, local);
        Some(local)
    }

    /// Adds a use of a local that has one.
    pub(super) fn add_use(&mut self, local: u32) {
        let uses = &mut self.uses[local as usize];
        if *uses < USES_MANY - 1 {
            *uses += 1;
        } else {
            *uses = USES_MANY;
            *self.many_uses.entry(local).or_insert(u32::from(USES_MANY) - 1) += 1;
        }
    }

    /// Gives back a use; the last one forgets the id and frees the local.
    pub(super) fn release(&mut self, state: &HashState, local: u32) {
        let uses = &mut self.uses[local as usize];
        if *uses == USES_MANY {
            let many = self.many_uses.get_mut(&local).expect("a count above 254 is in `many_uses`");
            *many -= 1;
            if *many < u32::from(USES_MANY) {
                *uses = USES_MANY - 1;
                self.many_uses.remove(&local);
            }
            return;
        }
        if *uses > 1 {
            *uses -= 1;
            return;
        }
        let encoded = self.ids.get(local);
        let slot = self.find_slot(hash_of(state, encoded), encoded).expect("a local with a use has a slot");
        self.clear_slot(state, slot);
        self.uses[local as usize] = 0;
        if self.ids.take(local) {
            let uses = &self.uses;
            self.ids.turn_to_blocks(local, |local| uses.get(local as usize).is_some_and(|uses| *uses > 0));
        }
        self.free.push(local);
        self.count -= 1;
        if self.count == 0 {
            *self = Segment::default();
        } else if self.slots.len() > SLOTS_MIN && self.count * 4 < self.slots.len() {
            self.resize_slots(state, roomy(self.count));
        }
    }

    /// Makes room for this many users in all.
    pub(super) fn reserve(&mut self, state: &HashState, count: usize) {
        let slots = count * FILL_MAX.1 / FILL_MAX.0 + 1;
        if slots > self.slots.len() {
            self.resize_slots(state, slots);
        }
        self.uses.reserve_exact(count.saturating_sub(self.uses.len()));
    }

    /// Heap bytes: of the ids, and of the hash table.
    pub(super) fn memory(&self) -> (usize, usize) {
        let rest = self.uses.capacity() + self.free.capacity() * 4 + self.many_uses.capacity() * 9;
        (self.ids.memory() + rest, self.slots.len() * 4)
    }

    fn in_use(&self, local: u32) -> bool {
        self.uses.get(local as usize).is_some_and(|uses| *uses > 0)
    }

    #[inline]
    fn find_slot(&self, hash: u64, encoded: &[u8]) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let tag = tag_of(hash);
        let mut slot = home_of(hash, self.slots.len());
        loop {
            let held = self.slots[slot];
            if held == EMPTY {
                return None;
            }
            if held & !LOCAL_MASK == tag && self.ids.is(held & LOCAL_MASK, encoded) {
                return Some(slot);
            }
            slot += 1;
            if slot == self.slots.len() {
                slot = 0;
            }
        }
    }

    fn fill_slot(&mut self, hash: u64, local: u32) {
        let mut slot = home_of(hash, self.slots.len());
        while self.slots[slot] != EMPTY {
            slot += 1;
            if slot == self.slots.len() {
                slot = 0;
            }
        }
        self.slots[slot] = tag_of(hash) | local;
    }

    /// Empties a slot and moves back the slots behind it that would no longer be found.
    fn clear_slot(&mut self, state: &HashState, slot: usize) {
        let size = self.slots.len();
        let mut hole = slot;
        let mut next = slot;
        loop {
            next = (next + 1) % size;
            let held = self.slots[next];
            if held == EMPTY {
                break;
            }
            let home = home_of(hash_of(state, self.ids.get(held & LOCAL_MASK)), size);
            // It may move to the hole only if the hole is not before its home, going round.
            let from_home = |place: usize| (place + size - home) % size;
            if from_home(hole) < from_home(next) {
                self.slots[hole] = held;
                hole = next;
            }
        }
        self.slots[hole] = EMPTY;
    }

    fn resize_slots(&mut self, state: &HashState, size: usize) {
        let size = size.max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; size].into_boxed_slice());
        for held in old.into_iter().filter(|held| *held != EMPTY) {
            let local = held & LOCAL_MASK;
            self.fill_slot(hash_of(state, self.ids.get(local)), local);
        }
    }
}

/// How many slots to have for this many users after a change of size. A fifth more than the least: little waste, and still a
/// constant number of moves for each user added.
fn roomy(users: usize) -> usize {
    users * 7 / 5 + 1
}

/// The ten low bits of the hash, in the place above the local.
#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash as u32) << LOCAL_BITS
}

/// The slot where the search for a hash begins.
#[inline]
fn home_of(hash: u64, slots: usize) -> usize {
    let middle = (hash >> 22) as u32;
    ((u64::from(middle) * slots as u64) >> 32) as usize
}
