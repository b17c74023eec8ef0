//! One of the many small tables that together map ids to users.
//!
//! A segment holds the same users three ways, and they change together:
//! - `slots`: an open-addressing hash table (linear probing, no tombstones) of 4-byte slots, each a
//!   *local* number and ten bits of the hash, so that a wrong candidate is almost never looked at;
//! - `blocks` and `tail`: the encoded ids, 32 locals to a block, back to back in one allocation of the
//!   exact size. The block that is still being filled lives in `tail`, whose capacity is used again;
//! - `lengths` and `uses`, by local: the length of the encoded id (0: the local is free) and how many
//!   uses there are. A use count above 254 lives in `many_uses`.
//!
//! Rejected: an offset for each id (4 to 5 bytes a user against half a byte here); a hash table that
//! doubles (between 5 and 10 bytes a user, and a stall of seconds when 25 M users move at once: a segment
//! grows by a fifth, alone); tombstones (removal instead moves the following slots back).

use foldhash::HashMap;
use std::hash::{BuildHasher, Hasher};

/// Bits of a user's number that say where in its segment the user is.
pub(super) const LOCAL_BITS: u32 = 22;
const LOCAL_MASK: u32 = (1 << LOCAL_BITS) - 1;
const BLOCK: usize = 32;
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
    blocks: Vec<Box<[u8]>>,
    tail: Vec<u8>,
    lengths: Vec<u8>,
    uses: Vec<u8>,
    many_uses: HashMap<u32, u32>,
    free: Vec<u32>,
    count: usize,
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
        let local = local as usize;
        let length = usize::from(*self.lengths.get(local)?);
        if length == 0 {
            return None;
        }
        let first = local - local % BLOCK;
        let start: usize = self.lengths[first..local].iter().map(|length| usize::from(*length)).sum();
        let block = self.blocks.get(local / BLOCK).map_or(self.tail.as_slice(), |block| block);
        Some(&block[start..start + length])
    }

    /// Adds a use of an id, storing it if it is new. `None`: the segment is full.
    pub(super) fn acquire(&mut self, state: &HashState, hash: u64, encoded: &[u8]) -> Option<u32> {
        if let Some(local) = self.find(hash, encoded) {
            self.add_use(local);
            return Some(local);
        }
        if (self.count + 1) * FILL_MAX.1 > self.slots.len() * FILL_MAX.0 {
            self.resize_slots(state, roomy(self.count + 1));
        }
        let local = self.store(encoded)?;
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

    /// Gives back a use; the last one gives back the id's memory and frees the local.
    pub(super) fn release(&mut self, state: &HashState, local: u32) {
        if self.uses[local as usize] == USES_MANY {
            let uses = self.many_uses.get_mut(&local).expect("a count above 254 is in `many_uses`");
            *uses -= 1;
            if *uses < u32::from(USES_MANY) {
                self.uses[local as usize] = USES_MANY - 1;
                self.many_uses.remove(&local);
            }
            return;
        }
        self.uses[local as usize] -= 1;
        if self.uses[local as usize] > 0 {
            return;
        }
        let encoded = self.encoded(local).expect("a local with a use has an id");
        let hash = hash_of(state, encoded);
        let slot = self.find_slot(hash, encoded).expect("a local with a use has a slot");
        self.clear_slot(state, slot);
        self.forget(local);
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
        self.lengths.reserve_exact(count.saturating_sub(self.lengths.len()));
        self.uses.reserve_exact(count.saturating_sub(self.uses.len()));
        self.blocks.reserve_exact((count / BLOCK + 1).saturating_sub(self.blocks.len()));
    }

    /// Heap bytes: of the ids, and of the hash table.
    pub(super) fn memory(&self) -> (usize, usize) {
        let ids: usize = self.blocks.iter().map(|block| block.len()).sum::<usize>() + self.tail.capacity();
        let rest = self.blocks.capacity() * size_of::<Box<[u8]>>()
            + self.lengths.capacity()
            + self.uses.capacity()
            + self.free.capacity() * 4
            + self.many_uses.capacity() * 9;
        (ids + rest, self.slots.len() * 4)
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
            if held & !LOCAL_MASK == tag && self.encoded(held & LOCAL_MASK) == Some(encoded) {
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
            slot = (slot + 1) % self.slots.len();
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
            let encoded = self.encoded(held & LOCAL_MASK).expect("a slot names a local in use");
            let home = home_of(hash_of(state, encoded), size);
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
            let encoded = self.encoded(local).expect("a slot names a local in use");
            let hash = hash_of(state, encoded);
            self.fill_slot(hash, local);
        }
    }

    /// Puts an encoded id at a free local with one use.
    fn store(&mut self, encoded: &[u8]) -> Option<u32> {
        let length = encoded.len() as u8;
        if let Some(local) = self.free.pop() {
            self.lengths[local as usize] = length;
            self.uses[local as usize] = 1;
            self.splice(local, 0, encoded);
            return Some(local);
        }
        let local = self.lengths.len();
        if local > LOCAL_MASK as usize - 1 {
            return None;
        }
        if self.lengths.len() == self.lengths.capacity() {
            let more = (self.lengths.len() / 8).max(BLOCK);
            self.lengths.reserve_exact(more);
            self.uses.reserve_exact(more);
        }
        self.lengths.push(length);
        self.uses.push(1);
        self.tail.extend_from_slice(encoded);
        if self.lengths.len().is_multiple_of(BLOCK) {
            if self.blocks.len() == self.blocks.capacity() {
                self.blocks.reserve_exact((self.blocks.len() / 8).max(4));
            }
            self.blocks.push(Box::from(self.tail.as_slice()));
            self.tail.clear();
        }
        Some(local as u32)
    }

    /// Takes an id's bytes out and frees its local.
    fn forget(&mut self, local: u32) {
        let length = usize::from(self.lengths[local as usize]);
        self.lengths[local as usize] = 0;
        self.splice(local, length, &[]);
        self.free.push(local);
    }

    /// Replaces the `old` bytes at the place of a local by `new` ones.
    fn splice(&mut self, local: u32, old: usize, new: &[u8]) {
        let local = local as usize;
        let first = local - local % BLOCK;
        let start: usize = self.lengths[first..local].iter().map(|length| usize::from(*length)).sum();
        match self.blocks.get_mut(local / BLOCK) {
            Some(block) => {
                let mut bytes = Vec::with_capacity(block.len() + new.len() - old);
                bytes.extend_from_slice(&block[..start]);
                bytes.extend_from_slice(new);
                bytes.extend_from_slice(&block[start + old..]);
                *block = bytes.into_boxed_slice();
            }
            None => {
                self.tail.splice(start..start + old, new.iter().copied());
            }
        }
    }
}

/// How many slots to have for this many users after a change of size. A fifth more than the least: little
/// waste, and still a constant number of moves for each user added.
fn roomy(users: usize) -> usize {
    users * 7 / 5 + 1
}

/// The ten low bits of the hash, in the place above the local.
#[inline]
fn tag_of(hash: u64) -> u32 {
    // Ten one-bits together with the highest local would read as an empty slot; that local is never given out.
    (hash as u32) << LOCAL_BITS
}

/// The slot where the search for a hash begins.
#[inline]
fn home_of(hash: u64, slots: usize) -> usize {
    let middle = (hash >> 22) as u32;
    ((u64::from(middle) * slots as u64) >> 32) as usize
}
