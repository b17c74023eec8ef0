//! A node above the chunks: parallel arrays, one place a child.

use super::{Before, Context, Place, Probe};
use crate::users::UserKey;

/// Children of a node, at most. 32 keys are four cache lines, which load together.
pub(super) const FAN: usize = if cfg!(test) { 4 } else { 32 };

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) keys: [i64; FAN],
    pub(super) counts: [u32; FAN],
    times: [u64; FAN],
    users: [UserKey; FAN],
    pub(super) kids: [u32; FAN],
    pub(super) heads: [u32; FAN],
    len: u32,
}

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
            keys: [0; FAN],
            counts: [0; FAN],
            times: [0; FAN],
            users: [super::NOBODY; FAN],
            kids: [0; FAN],
            heads: [0; FAN],
            len: 0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// How many children begin with a better key.
    #[inline]
    pub(super) fn better(&self, key: i64) -> usize {
        self.keys[..self.len()].iter().map(|first| usize::from(*first < key)).sum()
    }

    /// How many children begin at or before a probe.
    #[inline]
    pub(super) fn not_after(&self, context: Context<'_>, probe: &Probe<'_>) -> usize {
        let keys = &self.keys[..self.len()];
        let mut better = 0;
        let mut same = 0;
        for first in keys {
            better += usize::from(*first < probe.key);
            same += usize::from(*first == probe.key);
        }
        if same == 0 {
            return better;
        }
        let mut earlier = 0;
        let mut same_time = 0;
        for first in &self.times[better..better + same] {
            earlier += usize::from(*first < probe.time);
            same_time += usize::from(*first == probe.time);
        }
        let start = better + earlier;
        start
            + self.users[start..start + same_time]
                .partition_point(|user| context.compare_id(*user, &probe.id).is_le())
    }

    /// Users below the children before this one.
    #[inline]
    pub(super) fn users_before(&self, child: usize) -> u64 {
        // Sums of u32 do not overflow: a tree holds fewer than 2^32 users.
        u64::from(self.counts[..child].iter().sum::<u32>())
    }

    /// Scores that begin below the children before this one.
    #[inline]
    pub(super) fn scores_before(&self, child: usize) -> u64 {
        u64::from(self.heads[..child].iter().sum::<u32>())
    }

    pub(super) fn total(&self) -> Before {
        Before { users: self.users_before(self.len()), scores: self.scores_before(self.len()) }
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
        self.counts.copy_within(at..len, at + 1);
        self.times.copy_within(at..len, at + 1);
        self.users.copy_within(at..len, at + 1);
        self.kids.copy_within(at..len, at + 1);
        self.heads.copy_within(at..len, at + 1);
        self.len += 1;
        self.set(at, child);
    }

    pub(super) fn remove(&mut self, at: usize) {
        let len = self.len();
        self.keys.copy_within(at + 1..len, at);
        self.counts.copy_within(at + 1..len, at);
        self.times.copy_within(at + 1..len, at);
        self.users.copy_within(at + 1..len, at);
        self.kids.copy_within(at + 1..len, at);
        self.heads.copy_within(at + 1..len, at);
        self.len -= 1;
    }

    /// Keeps the first `at` children and returns the others.
    pub(super) fn split_off(&mut self, at: usize) -> Node {
        let mut right = Node::new();
        for child in at..self.len() {
            right.insert(child - at, self.child(child));
        }
        self.len = at as u32;
        right
    }

    pub(super) fn append(&mut self, right: &Node) {
        for child in 0..right.len() {
            self.insert(self.len(), right.child(child));
        }
    }

    fn set(&mut self, at: usize, child: Child) {
        self.set_first(at, child.first);
        self.counts[at] = child.count;
        self.heads[at] = child.heads;
        self.kids[at] = child.kid;
    }
}
