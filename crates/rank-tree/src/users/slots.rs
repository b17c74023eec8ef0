//! The hash table that finds a user's number by id: open addressing in 4-byte cells, in many small segments.
//!
//! A cell is a user's number and, in the bits above it, as many bits of the hash as there is room for, so that a wrong candidate is
//! seldom looked at. How many bits numbers take is each segment's own and grows with the numbers it is given.
//!
//! Rejected: one table that doubles (between 5 and 10 bytes a user, and a stall of seconds when 25 M users move at once: a segment
//! grows by a fifth, alone); tombstones (removal instead moves the following cells back); a separate array of hash bits (one
//! more byte a user and one more cache line).

use std::hint::black_box;

/// Bits of the hash that choose the segment.
const SEGMENT_BITS: u32 = 10;
pub(super) const SEGMENTS: usize = 1 << SEGMENT_BITS;
const EMPTY: u32 = u32::MAX;
/// Cells are at most 85 % full: a hit then looks at four cells on average, nearly always in one cache line.
const FILL_MAX: (usize, usize) = (17, 20);
const CELLS_MIN: usize = 8;
const NUMBER_BITS_MIN: u32 = 16;

#[derive(Debug)]
pub(super) struct Slots {
    segments: Box<[Segment]>,
}

#[derive(Debug)]
struct Segment {
    cells: Box<[u32]>,
    count: u32,
    /// Bits of a cell that are the user's number.
    number_bits: u32,
}

impl Default for Segment {
    fn default() -> Self {
        Segment { cells: Box::default(), count: 0, number_bits: NUMBER_BITS_MIN }
    }
}

impl Slots {
    pub(super) fn new() -> Self {
        Slots { segments: (0..SEGMENTS).map(|_| Segment::default()).collect() }
    }

    /// The number stored under a hash for which `is_it` holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let segment = &self.segments[segment_of(hash)];
        segment.find(hash, is_it).map(|cell| segment.number(cell))
    }

    /// Starts loading the cells where the search for a hash begins.
    #[inline]
    pub(super) fn touch(&self, hash: u64) {
        let cells = &self.segments[segment_of(hash)].cells;
        if !cells.is_empty() {
            black_box(cells[home_of(hash, cells.len())]);
        }
    }

    /// The first number that may be the one stored under a hash.
    #[inline]
    pub(super) fn candidate(&self, hash: u64) -> Option<u32> {
        self.find(hash, |_| true)
    }

    /// Stores a number that is not there under its hash; `hash_of` tells the hash of any number that is.
    pub(super) fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        let segment = &mut self.segments[segment_of(hash)];
        let count = segment.count as usize + 1;
        if count * FILL_MAX.1 > segment.cells.len() * FILL_MAX.0 {
            segment.resize(roomy(count), hash_of);
        }
        segment.make_bits_for(number);
        segment.fill(hash, number);
        segment.count += 1;
    }

    /// Removes a number that is there under its hash.
    pub(super) fn remove(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        let segment = &mut self.segments[segment_of(hash)];
        let cell = segment.find(hash, |other| other == number).expect("the number was inserted");
        segment.clear(cell, &hash_of);
        segment.count -= 1;
        let count = segment.count as usize;
        if segment.cells.len() > CELLS_MIN && count * 4 < segment.cells.len() {
            segment.resize(roomy(count), hash_of);
        }
    }

    /// Makes room in one segment for its share of this many numbers in all.
    pub(super) fn reserve(&mut self, segment: usize, numbers: usize, hash_of: impl Fn(u32) -> u64) {
        // Hashes spread users evenly, but not exactly: four standard deviations above the mean are ample.
        let mean = numbers as f64 / self.segments.len() as f64;
        let each = (mean + 4.0 * mean.sqrt()) as usize;
        if each < 64 {
            return;
        }
        let cells = each * FILL_MAX.1 / FILL_MAX.0 + 1;
        let segment = &mut self.segments[segment];
        if segment.cells.len() < cells {
            segment.resize(cells, hash_of);
        }
    }

    pub(super) fn memory(&self) -> usize {
        let cells: usize = self.segments.iter().map(|segment| segment.cells.len() * 4).sum();
        cells + self.segments.len() * size_of::<Segment>()
    }
}

impl Segment {
    #[inline]
    fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        let tag = self.tag(hash);
        let mut at = home_of(hash, self.cells.len());
        loop {
            let cell = self.cells[at];
            if cell == EMPTY {
                return None;
            }
            if cell >> self.number_bits == tag && is_it(self.number(at)) {
                return Some(at);
            }
            at += 1;
            if at == self.cells.len() {
                at = 0;
            }
        }
    }

    #[inline]
    fn number(&self, at: usize) -> u32 {
        self.cells[at] & ((1 << self.number_bits) - 1)
    }

    /// What a cell keeps of a hash.
    #[inline]
    fn tag(&self, hash: u64) -> u32 {
        hash as u32 & ((1 << (32 - self.number_bits)) - 1)
    }

    fn fill(&mut self, hash: u64, number: u32) {
        let mut at = home_of(hash, self.cells.len());
        while self.cells[at] != EMPTY {
            at += 1;
            if at == self.cells.len() {
                at = 0;
            }
        }
        self.cells[at] = self.tag(hash) << self.number_bits | number;
    }

    /// Empties a cell and moves back the cells behind it that would no longer be found.
    fn clear(&mut self, at: usize, hash_of: impl Fn(u32) -> u64) {
        let size = self.cells.len();
        let mut hole = at;
        let mut next = at;
        loop {
            next = (next + 1) % size;
            if self.cells[next] == EMPTY {
                break;
            }
            let home = home_of(hash_of(self.number(next)), size);
            // It may move to the hole only if the hole is not before its home, going round.
            let from_home = |place: usize| (place + size - home) % size;
            if from_home(hole) < from_home(next) {
                self.cells[hole] = self.cells[next];
                hole = next;
            }
        }
        self.cells[hole] = EMPTY;
    }

    fn resize(&mut self, size: usize, hash_of: impl Fn(u32) -> u64) {
        let empty = vec![EMPTY; size.max(CELLS_MIN)].into_boxed_slice();
        let old = std::mem::replace(&mut self.cells, empty);
        let number_mask = (1 << self.number_bits) - 1;
        for cell in old.into_iter().filter(|cell| *cell != EMPTY) {
            let number = cell & number_mask;
            self.fill(hash_of(number), number);
        }
    }

    /// Gives numbers more bits of a cell, and the hash fewer, if this number needs it.
    fn make_bits_for(&mut self, number: u32) {
        // The highest number of so many bits, together with hash bits that are all ones, would read as an empty cell.
        while number >= (1 << self.number_bits) - 1 {
            let bits = self.number_bits;
            self.number_bits += 1;
            for cell in self.cells.iter_mut().filter(|cell| **cell != EMPTY) {
                let (tag, number) = (*cell >> bits, *cell & ((1 << bits) - 1));
                *cell = tag << self.number_bits | number;
            }
        }
    }
}

/// How many cells to have for this many users after a change of size. A fifth more than the least: little waste, and still a
/// constant number of moves for each user added.
fn roomy(users: usize) -> usize {
    users * 7 / 5 + 1
}

#[inline]
fn segment_of(hash: u64) -> usize {
    (hash >> (64 - SEGMENT_BITS)) as usize
}

/// The cell where the search for a hash begins. It uses other bits of the hash than the segment and the cell do.
#[inline]
fn home_of(hash: u64, cells: usize) -> usize {
    let middle = (hash >> 22) as u32;
    ((u64::from(middle) * cells as u64) >> 32) as usize
}
