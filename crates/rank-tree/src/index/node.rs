//! A node above the chunks: parallel arrays, one place a child.

use std::hint::black_box;

use super::{Before, Context, Place, Probe};
use crate::users::UserKey;

/// Children of a node, at most. 32 keys are four cache lines, which load together.
pub(super) const FAN: usize = if cfg!(test) { 4 } else { 32 };
/// Cache lines of an array of eight-byte values, and of one of four-byte values.
const LINES_OF_LONG: usize = FAN.div_ceil(8);
const LINES_OF_SHORT: usize = FAN.div_ceil(16);

/// A node, laid out for one visit from cold memory.
///
/// A search first touches every cache line it may need, so that they load together ([`Node::touch`]), and then halves. Unused places
/// sort behind all others: they hold [`UNUSED_KEY`] and zeros.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(super) struct Node {
    keys: [i64; FAN],
    times: [u64; FAN],
    counts: [u32; FAN],
    kids: [u32; FAN],
    heads: [u32; FAN],
    users: [UserKey; FAN],
    len: u32,
}

/// Not better than any key, and cut off where it could be equal.
const UNUSED_KEY: i64 = i64::MAX;

/// What a node keeps of one child.
#[derive(Debug, Clone, Copy)]
pub(super) struct Child {
    pub(super) first: Place,
    pub(super) count: u32,
    pub(super) heads: u32,
    pub(super) kid: u32,
}

impl Node {
    pub(super) fn new() -> Self {
        Node {
            keys: [UNUSED_KEY; FAN],
            times: [u64::MAX; FAN],
            counts: [0; FAN],
            kids: [0; FAN],
            heads: [0; FAN],
            users: [super::NOBODY; FAN],
            len: 0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Starts loading what a search by key and time reads, so that none of it waits for another.
    #[inline]
    pub(super) fn touch(&self) {
        self.touch_keys();
        for line in 0..LINES_OF_LONG {
            black_box(self.times[line * 8 % FAN]);
        }
    }

    /// Starts loading what a search by key reads.
    #[inline]
    pub(super) fn touch_keys(&self) {
        for line in 0..LINES_OF_LONG {
            black_box(self.keys[line * 8 % FAN]);
        }
        for line in 0..LINES_OF_SHORT {
            black_box(self.counts[line * 16 % FAN]);
            black_box(self.kids[line * 16 % FAN]);
            black_box(self.heads[line * 16 % FAN]);
        }
    }

    /// How many children begin with a better key.
    #[inline]
    pub(super) fn better(&self, key: i64) -> usize {
        halve(|child| self.keys[child] < key)
    }

    /// How many children begin at or before a probe.
    #[inline]
    pub(super) fn not_after(&self, context: Context<'_>, probe: &Probe<'_>) -> usize {
        let before = halve(|child| {
            let (key, time) = (self.keys[child], self.times[child]);
            (key < probe.key) | ((key == probe.key) & (time < probe.time))
        });
        let is_same = |child: usize| {
            child < self.len() && self.keys[child] == probe.key && self.times[child] == probe.time
        };
        if !is_same(before) {
            return before;
        }
        let mut end = before;
        while is_same(end) {
            end += 1;
        }
        before + self.users[before..end].partition_point(|user| context.compare_id(*user, &probe.id).is_le())
    }

    /// Users below the children before this one, and scores that begin there.
    #[inline]
    pub(super) fn before(&self, child: usize) -> Before {
        Before { users: sum_before(&self.counts, child), scores: sum_before(&self.heads, child) }
    }

    /// Users below the children before this one.
    #[inline]
    pub(super) fn users_before(&self, child: usize) -> u64 {
        sum_before(&self.counts, child)
    }

    #[inline]
    pub(super) fn count(&self, child: usize) -> u32 {
        self.counts[child]
    }

    #[inline]
    pub(super) fn heads(&self, child: usize) -> u32 {
        self.heads[child]
    }

    #[inline]
    pub(super) fn kid(&self, child: usize) -> usize {
        self.kids[child] as usize
    }

    /// The key a child begins with.
    #[inline]
    pub(super) fn key(&self, child: usize) -> i64 {
        self.keys[child]
    }

    /// Changes how many users and heads are below a child.
    #[inline]
    pub(super) fn add(&mut self, child: usize, users: i32, heads: i32) {
        self.counts[child] = self.counts[child].wrapping_add_signed(users);
        self.heads[child] = self.heads[child].wrapping_add_signed(heads);
    }

    /// Sets how many users and heads are below a child.
    pub(super) fn set_sums(&mut self, child: usize, count: u32, heads: u32) {
        self.counts[child] = count;
        self.heads[child] = heads;
    }

    pub(super) fn total(&self) -> Before {
        self.before(self.len())
    }

    pub(super) fn first(&self, child: usize) -> Place {
        Place { key: self.keys[child], time: self.times[child], user: self.users[child] }
    }

    pub(super) fn set_first(&mut self, child: usize, first: Place) {
        self.keys[child] = first.key;
        self.times[child] = first.time;
        self.users[child] = first.user;
    }

    pub(super) fn child(&self, child: usize) -> Child {
        Child {
            first: self.first(child),
            count: self.counts[child],
            heads: self.heads[child],
            kid: self.kids[child],
        }
    }

    /// This node as its parent keeps it.
    pub(super) fn as_child(&self, kid: u32) -> Child {
        let Before { users, scores } = self.total();
        Child { first: self.first(0), count: users as u32, heads: scores as u32, kid }
    }

    pub(super) fn insert(&mut self, at: usize, child: Child) {
        let len = self.len();
        self.keys.copy_within(at..len, at + 1);
        self.times.copy_within(at..len, at + 1);
        self.counts.copy_within(at..len, at + 1);
        self.kids.copy_within(at..len, at + 1);
        self.heads.copy_within(at..len, at + 1);
        self.users.copy_within(at..len, at + 1);
        self.len += 1;
        self.set(at, child);
    }

    pub(super) fn remove(&mut self, at: usize) {
        let len = self.len();
        self.keys.copy_within(at + 1..len, at);
        self.times.copy_within(at + 1..len, at);
        self.counts.copy_within(at + 1..len, at);
        self.kids.copy_within(at + 1..len, at);
        self.heads.copy_within(at + 1..len, at);
        self.users.copy_within(at + 1..len, at);
        self.truncate(len - 1);
    }

    /// Keeps the first `at` children and returns the others.
    pub(super) fn split_off(&mut self, at: usize) -> Node {
        let mut right = Node::new();
        for child in at..self.len() {
            right.insert(child - at, self.child(child));
        }
        self.truncate(at);
        right
    }

    pub(super) fn append(&mut self, right: &Node) {
        for child in 0..right.len() {
            self.insert(self.len(), right.child(child));
        }
    }

    fn truncate(&mut self, len: usize) {
        let unused = Place { key: UNUSED_KEY, time: u64::MAX, user: super::NOBODY };
        for at in len..self.len() {
            self.set(at, Child { first: unused, count: 0, heads: 0, kid: 0 });
        }
        self.len = len as u32;
    }

    fn set(&mut self, at: usize, child: Child) {
        self.set_first(at, child.first);
        self.counts[at] = child.count;
        self.kids[at] = child.kid;
        self.heads[at] = child.heads;
    }
}

/// How many children at the start are before something, by halving without branches that could be guessed wrong. Unused places are
/// never before anything.
#[inline(always)]
fn halve(is_before: impl Fn(usize) -> bool) -> usize {
    let mut start = 0;
    let mut step = FAN / 2;
    while step > 0 {
        start += step * usize::from(is_before((start + step - 1) % FAN));
        step /= 2;
    }
    start + usize::from(is_before(start % FAN))
}

/// The sum of what is before a child. Sums of `u32` do not overflow: a tree holds fewer than 2^32 users.
#[inline(always)]
fn sum_before(values: &[u32; FAN], child: usize) -> u64 {
    let mut sum = 0u32;
    for (place, value) in values.iter().enumerate() {
        sum += if (place as u32) < child as u32 { *value } else { 0 };
    }
    u64::from(sum)
}
