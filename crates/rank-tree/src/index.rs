//! The order of a tree's users: a counted B+tree that holds four bytes a user.
//!
//! # Shape
//!
//! All users stand in one sequence: better order key first, then earlier time, then user id. The sequence is cut
//! into *chunks* of up to 256 user keys and nothing else; what a user scored is read from [`Entries`] when it is
//! needed, and the point of the design is how seldom that is. [`Node`]s above the chunks form a B+tree. For each
//! child a node keeps the child's first place in the order (exact, never a stale separator), how many users
//! are below it, and how many *heads*: scores that begin below it.
//!
//! # The invariant that makes it fast
//!
//! **A score that spans more than one chunk has its chunks to itself.** A leaderboard is either full of ties, and then
//! nearly all users are in chunks of one score; or its scores are spread, and then a chunk holds several whole
//! scores. So
//! - the users better than a score are counted in the nodes alone whenever the score begins a chunk, which every
//!   score with many users does: `shared` and `dense` ranks of ties touch neither chunk nor entries;
//! - the place of a user inside a chunk is found by looking for the four-byte key, not by comparing scores;
//! - who comes last in a tie, which is nearly everybody who just scored, costs one comparison.
//!
//! The heads of a chunk are the number of different scores in it, but 0 for every chunk after the first of a score that
//! spans several ("the chunk *continues* a score").
//!
//! # Why it is quick on real memory
//!
//! At 25 M users nothing stays in cache, and a load that has to wait for another costs some 150 to 250 ns, ten times
//! an independent one. Hence: the cache lines of a node are touched together before it is searched; a
//! chunk of several scores is searched eight samples at a time; no pointers up or along.
//!
//! # Invariants (checked by `verify`)
//!
//! 1. Places are strictly ascending over the whole sequence; the first place kept for a child is its first user's.
//! 2. Counts and heads in a node are the sums over what is below.
//! 3. A chunk is never empty; slots behind its count hold [`NOBODY`].
//! 4. The chunk invariant above; no node below the root is empty, and a root above nodes has two children or more.

mod build;
mod change;
mod node;
mod verify;
mod walk;

use std::cmp::Ordering;
use std::hint::black_box;

use crate::entries::{Entries, Facts};
use crate::users::{Table, UserKey, Users};
pub(crate) use build::Builder;
use node::Node;
pub(crate) use walk::Walk;

/// User keys in a chunk, at most. Tiny in unit tests, so that small trees have many chunks and levels.
const CHUNK: usize = if cfg!(test) { 8 } else { 256 };
/// Levels of nodes, at most. Nodes are a quarter full on average, at least, so this is out of reach.
const HEIGHT_MAX: usize = if cfg!(test) { 24 } else { 12 };

/// How many places are brought into the caches together; what they touch fits the second level.
pub(crate) const WARM_GROUP: usize = 64;

/// A slot without a user. `Users` never gives this key out.
const NOBODY: UserKey = UserKey(u32::MAX);

type Chunk = [UserKey; CHUNK];

/// Where a user stands in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) key: i64,
    pub(crate) time: u64,
    pub(crate) user: UserKey,
}

/// A place to look for, which need not be anybody's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe<'a> {
    pub(crate) key: i64,
    pub(crate) time: u64,
    pub(crate) id: ProbeId<'a>,
}

/// The last word in the order of two users.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ProbeId<'a> {
    User(UserKey),
    Id(&'a str),
}

impl From<Place> for Probe<'_> {
    fn from(place: Place) -> Self {
        Probe { key: place.key, time: place.time, id: ProbeId::User(place.user) }
    }
}

/// What the index reads but does not own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) entries: &'a Entries,
    pub(crate) users: Ids<'a>,
}

/// Where ids are read, which only a tie of both score and time needs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ids<'a> {
    /// The caller holds the lock of the users.
    Held(&'a Table),
    /// The lock is taken when it is needed: for work that takes long or gives control away.
    OnDemand(&'a Users),
}

impl Context<'_> {
    #[inline]
    fn key(&self, user: UserKey) -> i64 {
        self.entries.known(user).key
    }

    #[inline]
    pub(crate) fn place(&self, user: UserKey) -> Place {
        let Facts { key, time } = self.entries.known(user);
        Place { key, time, user }
    }

    /// How a place compares with a probe.
    #[inline]
    pub(crate) fn compare(&self, place: Place, probe: &Probe<'_>) -> Ordering {
        (place.key, place.time)
            .cmp(&(probe.key, probe.time))
            .then_with(|| self.compare_id(place.user, &probe.id))
    }

    #[cold]
    fn compare_id(&self, user: UserKey, id: &ProbeId<'_>) -> Ordering {
        let guard;
        let users = match self.users {
            Ids::Held(users) => users,
            Ids::OnDemand(users) => {
                guard = users.read();
                &*guard
            }
        };
        match id {
            ProbeId::User(other) if *other == user => Ordering::Equal,
            ProbeId::User(other) => users.compare(user, *other),
            ProbeId::Id(id) => users.compare_id(user, id),
        }
    }
}

/// From the root to a chunk: a node and the place of a child in it, for each level.
#[derive(Debug, Clone, Copy)]
struct Path {
    steps: [(u32, u32); HEIGHT_MAX],
    height: usize,
}

impl Path {
    fn step(&self, level: usize) -> (usize, usize) {
        let (node, child) = self.steps[level];
        (node as usize, child as usize)
    }

    fn last(&self) -> (usize, usize) {
        self.step(self.height - 1)
    }
}

/// What is known of the users before some point of the order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) users: u64,
    /// Different scores.
    pub(crate) scores: u64,
}

#[derive(Debug)]
pub(crate) struct Index {
    nodes: Vec<Node>,
    chunks: Vec<Chunk>,
    free_nodes: Vec<u32>,
    free_chunks: Vec<u32>,
    root: u32,
    /// Levels of nodes, at least 1: the children of the lowest level are chunks.
    height: usize,
}

impl Index {
    pub(crate) fn new() -> Self {
        Index {
            nodes: vec![Node::new()],
            chunks: Vec::new(),
            free_nodes: Vec::new(),
            free_chunks: Vec::new(),
            root: 0,
            height: 1,
        }
    }

    /// All users, and all different scores.
    pub(crate) fn total(&self) -> Before {
        self.nodes[self.root as usize].total()
    }

    /// Heap bytes.
    pub(crate) fn memory(&self) -> usize {
        (self.nodes.len() * size_of::<Node>())
            + (self.chunks.len() * size_of::<Chunk>())
            + (self.free_nodes.len() + self.free_chunks.len()) * 4
    }

    /// How many users stand before a user of the tree.
    #[inline]
    pub(crate) fn position(&self, context: Context<'_>, place: Place) -> u64 {
        let probe = Probe::from(place);
        let mut before = 0;
        let mut at = self.root as usize;
        for level in 1..=self.height {
            let node = &self.nodes[at];
            node.touch();
            let child = node.not_after(context, &probe).saturating_sub(1);
            before += node.users_before(child);
            at = node.kid(child);
            if level == self.height {
                let count = node.count(child) as usize;
                before += find(&self.chunks[at][..count], place.user) as u64;
            }
        }
        before
    }

    /// How many users stand before or at a place that need not be anybody's.
    pub(crate) fn position_after(&self, context: Context<'_>, probe: &Probe<'_>) -> u64 {
        let path = self.descend(context, probe);
        let before = self.users_before(&path);
        let (node, child) = path.last();
        let node = &self.nodes[node];
        if child >= node.len() {
            return before;
        }
        let chunk = &self.chunks[node.kid(child)][..node.count(child) as usize];
        let inside =
            partition(chunk, |user| context.compare(context.place(user), probe) != Ordering::Greater);
        before + inside as u64
    }

    /// The users with a better order key than this one and, if `SCORES`, their different scores.
    ///
    /// `user` may name a user of the tree with this very key; in a chunk of many scores it spares the search.
    #[inline]
    pub(crate) fn better<const SCORES: bool>(
        &self,
        context: Context<'_>,
        key: i64,
        user: Option<UserKey>,
    ) -> Before {
        let mut before = Before::default();
        let mut next_key = None;
        let mut at = self.root as usize;
        for level in 1..=self.height {
            let node = &self.nodes[at];
            node.touch_keys();
            let end = node.better(key);
            if end == 0 {
                // Only the root can begin with `key` or worse: below it we follow a child that begins better.
                return before;
            }
            let child = end - 1;
            if SCORES {
                before.scores += node.before(child).scores;
            }
            before.users += node.users_before(child);
            if end < node.len() {
                next_key = Some(node.key(end));
            }
            at = node.kid(child);
            if level == self.height {
                let count = node.count(child) as usize;
                let heads = node.heads(child);
                // All of the chunk is better if it holds one score, or if `key` begins the next chunk (a score
                // that spans chunks has them to itself).
                if heads <= 1 || next_key == Some(key) {
                    before.users += count as u64;
                    before.scores += u64::from(heads);
                } else {
                    let chunk = &self.chunks[at];
                    let inside = better_in_chunk(context, chunk, count, key, user);
                    before.users += inside as u64;
                    if SCORES {
                        // Where all scores of the chunk differ, they need not be looked at.
                        let all_differ = heads as usize == count;
                        before.scores +=
                            if all_differ { inside as u64 } else { distinct(context, &chunk[..inside]) };
                    }
                }
            }
        }
        before
    }

    /// Brings into the caches what changes at these places are going to read; level by level, so that the loads overlap.
    pub(crate) fn warm(&self, context: Context<'_>, places: &[Place]) {
        let mut at = [self.root as usize; WARM_GROUP];
        for level in 1..=self.height {
            for (at, place) in at.iter_mut().zip(places) {
                let node = &self.nodes[*at];
                let child = node.not_after(context, &Probe::from(*place)).saturating_sub(1);
                *at = node.kid(child);
                if level < self.height {
                    self.nodes[*at].touch();
                } else if let Some(chunk) = self.chunks.get(*at) {
                    for line in chunk.iter().step_by(16) {
                        black_box(*line);
                    }
                }
            }
        }
    }

    /// The way to the last chunk that begins at or before the probe; to the first chunk if none does.
    fn descend(&self, context: Context<'_>, probe: &Probe<'_>) -> Path {
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], height: self.height };
        let mut at = self.root;
        for level in 0..self.height {
            let node = &self.nodes[at as usize];
            node.touch();
            let child = node.not_after(context, probe).saturating_sub(1);
            path.steps[level] = (at, child as u32);
            at = node.kid(child) as u32;
        }
        path
    }

    /// The way to the chunk after a path's.
    fn next_chunk(&self, path: &Path) -> Option<Path> {
        let mut next = *path;
        let turn = (0..path.height)
            .rev()
            .find(|level| path.step(*level).1 + 1 < self.nodes[path.step(*level).0].len())?;
        next.steps[turn].1 += 1;
        for level in turn + 1..path.height {
            let (node, child) = next.step(level - 1);
            next.steps[level] = (self.nodes[node].kid(child) as u32, 0);
        }
        Some(next)
    }

    /// The way to the chunk before a path's.
    fn previous_chunk(&self, path: &Path) -> Option<Path> {
        let mut previous = *path;
        let turn = (0..path.height).rev().find(|level| path.step(*level).1 > 0)?;
        previous.steps[turn].1 -= 1;
        for level in turn + 1..path.height {
            let (node, child) = previous.step(level - 1);
            let node = self.nodes[node].kid(child);
            previous.steps[level] = (node as u32, self.nodes[node].len() as u32 - 1);
        }
        Some(previous)
    }

    fn heads(&self, path: &Path) -> u32 {
        let (node, child) = path.last();
        self.nodes[node].heads(child)
    }

    fn begins_with(&self, path: &Path) -> i64 {
        let (node, child) = path.last();
        self.nodes[node].key(child)
    }

    fn users_before(&self, path: &Path) -> u64 {
        (0..path.height)
            .map(|level| path.step(level))
            .map(|(node, child)| self.nodes[node].users_before(child))
            .sum()
    }
}

/// The slot of a user who is in the chunk. Looks at all slots at once rather than stopping at the user: the loop has
/// no branch to mispredict and compiles to vector instructions.
#[inline]
fn find(chunk: &[UserKey], user: UserKey) -> usize {
    let mut slot_after = 0u32;
    for (slot, held) in chunk.iter().enumerate() {
        slot_after += if *held == user { slot as u32 + 1 } else { 0 };
    }
    debug_assert!(slot_after > 0, "the nodes lead to the user's chunk");
    (slot_after as usize).wrapping_sub(1)
}

/// How many users at the start of a chunk have a better key.
#[inline]
fn better_in_chunk(
    context: Context<'_>,
    chunk: &Chunk,
    count: usize,
    key: i64,
    user: Option<UserKey>,
) -> usize {
    let mut end = count;
    if let Some(user) = user {
        end = find(&chunk[..count], user).min(count);
        if end == 0 || context.key(chunk[end - 1]) < key {
            return end;
        }
    }
    partition(&chunk[..end], |other| context.key(other) < key)
}

/// Different scores among neighbours.
fn distinct(context: Context<'_>, users: &[UserKey]) -> u64 {
    let mut last = None;
    let mut scores = 0;
    for user in users {
        let key = context.key(*user);
        scores += u64::from(last != Some(key));
        last = Some(key);
    }
    scores
}

/// How many users at the start satisfy the predicate, which none does after one that does not.
///
/// Each user's facts are somewhere else in memory. Eight looks at once take hardly longer than one, and three rounds
/// of halving become one.
#[inline]
fn partition(users: &[UserKey], before: impl Fn(UserKey) -> bool) -> usize {
    let (mut start, mut end) = (0, users.len());
    while end - start > 8 {
        let step = (end - start).div_ceil(8);
        let samples = (end - start) / step;
        let passed: usize =
            (1..=samples).map(|sample| usize::from(before(users[start + sample * step - 1]))).sum();
        if passed < samples {
            end = start + (passed + 1) * step - 1;
        }
        start += passed * step;
    }
    start + users[start..end].iter().map(|user| usize::from(before(*user))).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_finds_every_border() {
        for length in 0..=CHUNK {
            let users: Vec<UserKey> = (0..length as u32).map(UserKey).collect();
            for border in 0..=length {
                assert_eq!(partition(&users, |user| (user.0 as usize) < border), border, "of {length}");
            }
        }
    }
}
