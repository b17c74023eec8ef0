//! Changing an index: users come and go, chunks and nodes split and join.
//!
//! A change finds its path from the root, alters one chunk, and carries counts, heads and first places up the path. Splits happen before
//! an insertion that has no room, and the insertion then begins anew; joins happen after a removal, with a neighbour in the same node.

use std::cmp::Ordering;

use super::node::{Child, FAN, Node};
use super::{CHUNK, Chunk, Context, HEIGHT_MAX, Index, NOBODY, Path, Place, Probe, find, partition};
use crate::users::UserKey;

/// Neighbouring chunks are joined when they hold no more than this: some room, so that they do not split at once.
const JOIN_MAX: u32 = CHUNK as u32 * 7 / 8;
/// From so many users on, a chunk is crowded.
const CROWDED: usize = CHUNK * 3 / 4;
/// A node with fewer children looks for a neighbour to join.
const NODE_CROWD_MIN: usize = if FAN / 4 > 2 { FAN / 4 } else { 2 };

impl Index {
    /// Adds a user whose entry is written and who is not in the index.
    pub(crate) fn insert(&mut self, context: Context<'_>, place: Place) {
        // Whenever something must be split, it is split, and the search begins anew: rare, and far simpler than
        // carrying a path through a split. Each round makes room where the last one found none.
        while !self.try_insert(context, place) {}
    }

    /// Takes out a user whose entry is still as it was when added.
    pub(crate) fn remove(&mut self, context: Context<'_>, place: Place) {
        let path = self.descend(context, &Probe::from(place));
        let (at, child) = path.last();
        let node = &self.nodes[at];
        let count = node.count(child) as usize;
        let heads = node.heads(child);
        let chunk = &mut self.chunks[node.kid(child)];
        let slot = find(&chunk[..count], place.user);
        if count == 1 {
            if heads == 1
                && let Some(next) = self.next_chunk(&path)
                && self.heads(&next) == 0
            {
                // The score goes on in the next chunk, which now begins it.
                self.add(&next, 0, 1);
            }
            self.add(&path, -1, -(heads as i32));
            let (at, child) = path.last();
            self.free_chunks.push(self.nodes[at].kid(child) as u32);
            self.remove_child(path, path.height - 1);
            self.lower_root();
            return;
        }
        let alone = heads > 1
            && !(slot > 0 && context.key(chunk[slot - 1]) == place.key)
            && !(slot + 1 < count && context.key(chunk[slot + 1]) == place.key);
        chunk.copy_within(slot + 1..count, slot);
        chunk[count - 1] = NOBODY;
        let first = chunk[0];
        self.add(&path, -1, -i32::from(alone));
        if slot == 0 {
            self.set_first(&path, path.height - 1, context.place(first));
        }
        self.join_chunks(path);
    }

    fn try_insert(&mut self, context: Context<'_>, place: Place) -> bool {
        let probe = Probe::from(place);
        let mut path = self.descend(context, &probe);
        let (mut at, mut child) = path.last();
        if self.nodes[at].len() == 0 {
            return self.add_chunk(&path, 0, place);
        }
        let node = &self.nodes[at];
        let begins_with = node.key(child);
        let full_of_one = node.count(child) as usize == CHUNK && node.heads(child) <= 1;
        let before_all = context.compare(node.first(child), &probe) == Ordering::Greater;
        if begins_with != place.key {
            let next = self.next_chunk(&path);
            // A chunk of a score that spans chunks takes no other score; one that is full of one score has no room for another.
            if before_all {
                let continued = next.is_some_and(|next| self.heads(&next) == 0);
                if continued || full_of_one {
                    return self.add_chunk(&path, child, place);
                }
            } else {
                let closed = node.heads(child) == 0 || full_of_one;
                match next {
                    // The score lives in the next chunk, and there it must stay whole.
                    Some(next) if self.begins_with(&next) == place.key => path = next,
                    Some(next) if closed && self.takes_at_front(&next) => path = next,
                    _ if closed => return self.add_chunk(&path, child + 1, place),
                    _ => {}
                }
                (at, child) = path.last();
            }
        }
        let not_after = |user: UserKey| context.compare(context.place(user), &probe) != Ordering::Greater;
        let mut count = self.nodes[at].count(child) as usize;
        let chunk = &self.chunks[self.nodes[at].kid(child)];
        let mut slot =
            if not_after(chunk[count - 1]) { count } else { partition(&chunk[..count], not_after) };
        // Behind the end of a crowded chunk a new score rather goes to the next one: a chunk that is split where a large tie ends,
        // and filled up again at once, would be split at every new score.
        if slot == count
            && count >= CROWDED
            && context.key(chunk[count - 1]) != place.key
            && let Some(next) = self.next_chunk(&path)
            && self.takes_at_front(&next)
        {
            path = next;
            (at, child) = path.last();
            count = self.nodes[at].count(child) as usize;
            slot = 0;
        }
        let node = &self.nodes[at];
        let one_score = node.heads(child) <= 1;
        let chunk = &mut self.chunks[node.kid(child)];
        if count == CHUNK {
            if self.nodes[at].len() == FAN {
                self.split_node(&path);
            } else {
                self.split_chunk(context, at, child, slot);
            }
            return false;
        }
        let known_score = one_score && node.key(child) == place.key
            || slot > 0 && context.key(chunk[slot - 1]) == place.key
            || slot < count && context.key(chunk[slot]) == place.key;
        chunk.copy_within(slot..count, slot + 1);
        chunk[slot] = place.user;
        self.add(&path, 1, i32::from(!known_score));
        if slot == 0 {
            self.set_first(&path, path.height - 1, place);
        }
        true
    }

    /// Whether a chunk has room in front for a score that is not in it.
    fn takes_at_front(&self, path: &Path) -> bool {
        let (at, child) = path.last();
        let node = &self.nodes[at];
        let is_whole = || self.next_chunk(path).is_none_or(|next| self.heads(&next) > 0);
        (node.count(child) as usize) < CHUNK
            && match node.heads(child) {
                0 => false,
                1 => is_whole(),
                _ => true,
            }
    }

    /// Adds a chunk of one user; false if there was no room in the node and it was split instead.
    fn add_chunk(&mut self, path: &Path, child: usize, place: Place) -> bool {
        let (at, _) = path.last();
        if self.nodes[at].len() == FAN {
            self.split_node(path);
            return false;
        }
        let mut chunk = [NOBODY; CHUNK];
        chunk[0] = place.user;
        let kid = self.new_chunk(chunk);
        self.nodes[at].insert(child, Child { first: place, count: 1, heads: 1, kid });
        let level = path.height - 1;
        let above = Path { steps: path.steps, height: level };
        self.add(&above, 1, 1);
        if child == 0 && level > 0 {
            self.set_first(path, level - 1, place);
        }
        true
    }

    /// Splits a full chunk in a node with room; `slot` is where the next user is going to be.
    fn split_chunk(&mut self, context: Context<'_>, at: usize, child: usize, slot: usize) {
        let node = &self.nodes[at];
        let chunk = &self.chunks[node.kid(child)];
        let (cut, heads) = if node.heads(child) <= 1 {
            // Whoever scores now comes last in the tie: leave the chunk full and go on in a new one.
            (if slot == CHUNK { CHUNK - 1 } else { CHUNK / 2 }, 0)
        } else {
            // Where users arrive at one end, leave the other chunk full.
            let wish = match slot {
                CHUNK => CHUNK - CHUNK / 16,
                0 => CHUNK / 16,
                _ => CHUNK / 2,
            };
            let keys = chunk.map(|user| context.key(user));
            let cut = (1..CHUNK)
                .filter(|cut| keys[cut - 1] != keys[*cut])
                .min_by_key(|cut| cut.abs_diff(wish))
                .expect("a chunk with two heads holds two scores");
            let heads = 1 + (cut + 1..CHUNK).filter(|slot| keys[slot - 1] != keys[*slot]).count();
            (cut, heads as u32)
        };
        let mut right = [NOBODY; CHUNK];
        right[..CHUNK - cut].copy_from_slice(&chunk[cut..]);
        let first = context.place(right[0]);
        let kid = self.new_chunk(right);
        let node = &mut self.nodes[at];
        self.chunks[node.kid(child)][cut..].fill(NOBODY);
        node.set_sums(child, cut as u32, node.heads(child) - heads);
        node.insert(child + 1, Child { first, count: (CHUNK - cut) as u32, heads, kid });
    }

    /// Splits the highest of the full nodes at the end of a path.
    fn split_node(&mut self, path: &Path) {
        let mut level = path.height - 1;
        while level > 0 && self.nodes[path.step(level - 1).0].len() == FAN {
            level -= 1;
        }
        let (at, child) = path.step(level);
        let (parent, place) = if level == 0 {
            let mut root = Node::new();
            root.insert(0, self.nodes[at].as_child(at as u32));
            self.root = self.new_node(root);
            self.height += 1;
            assert!(self.height <= HEIGHT_MAX, "nodes are well filled, so the tree stays low");
            (self.root as usize, 0)
        } else {
            path.step(level - 1)
        };
        let cut = if child == FAN - 1 { FAN * 3 / 4 } else { FAN / 2 };
        let right = self.nodes[at].split_off(cut);
        let kid = self.new_node(right);
        let left = self.nodes[at].as_child(at as u32);
        let right = self.nodes[kid as usize].as_child(kid);
        let parent = &mut self.nodes[parent];
        parent.set_sums(place, left.count, left.heads);
        parent.insert(place + 1, right);
    }

    /// Joins the chunk at the end of a path with a neighbour in the same node, if they fit.
    fn join_chunks(&mut self, path: Path) {
        let (at, child) = path.last();
        let right_end = child + 1 < self.nodes[at].len();
        let left = if right_end && self.may_join(at, child) {
            child
        } else if child > 0 && self.may_join(at, child - 1) {
            child - 1
        } else {
            return;
        };
        let node = &mut self.nodes[at];
        let (to, from) = (node.kid(left), node.kid(left + 1));
        let (kept, moved) = (node.count(left) as usize, node.count(left + 1) as usize);
        let source = self.chunks[from];
        self.chunks[to][kept..kept + moved].copy_from_slice(&source[..moved]);
        node.add(left, moved as i32, node.heads(left + 1) as i32);
        self.free_chunks.push(from as u32);
        let mut path = path;
        path.steps[path.height - 1].1 = left as u32 + 1;
        self.remove_child(path, path.height - 1);
        self.lower_root();
    }

    /// Whether chunk `left` of a node and the one after it may become one.
    fn may_join(&self, at: usize, left: usize) -> bool {
        let node = &self.nodes[at];
        let right = left + 1;
        if node.count(left) + node.count(right) > JOIN_MAX {
            return false;
        }
        if node.heads(right) == 0 {
            return true;
        }
        // Neither may be a part of a score that spans chunks. At the node's end we do not look further.
        let right_is_whole = node.heads(right) > 1 || (right + 1 < node.len() && node.heads(right + 1) > 0);
        node.heads(left) > 0 && right_is_whole
    }

    /// Removes the child a path names at a level, and tidies the levels above.
    fn remove_child(&mut self, path: Path, level: usize) {
        let (at, child) = path.step(level);
        self.nodes[at].remove(child);
        let length = self.nodes[at].len();
        if level == 0 {
            return;
        }
        if length == 0 {
            self.free_nodes.push(at as u32);
            self.remove_child(path, level - 1);
            return;
        }
        if child == 0 {
            let first = self.nodes[at].first(0);
            self.set_first(&path, level - 1, first);
        }
        if length >= NODE_CROWD_MIN {
            return;
        }
        let (parent, place) = path.step(level - 1);
        let fits = |left: usize| {
            let [left, right] = [left, left + 1].map(|kid| self.nodes[parent].kid(kid));
            self.nodes[left].len() + self.nodes[right].len() <= FAN * 3 / 4
        };
        let left = if place + 1 < self.nodes[parent].len() && fits(place) {
            place
        } else if place > 0 && fits(place - 1) {
            place - 1
        } else {
            return;
        };
        let [to, from] = [left, left + 1].map(|kid| self.nodes[parent].kid(kid));
        let moved = std::mem::replace(&mut self.nodes[from], Node::new());
        self.nodes[to].append(&moved);
        self.free_nodes.push(from as u32);
        let joined = self.nodes[to].as_child(to as u32);
        self.nodes[parent].set_sums(left, joined.count, joined.heads);
        let mut path = path;
        path.steps[level - 1].1 = left as u32 + 1;
        self.remove_child(path, level - 1);
    }

    fn lower_root(&mut self) {
        while self.height > 1 && self.nodes[self.root as usize].len() <= 1 {
            let root = &self.nodes[self.root as usize];
            if root.len() == 0 {
                self.height = 1;
                return;
            }
            let kid = root.kid(0) as u32;
            self.free_nodes.push(self.root);
            self.root = kid;
            self.height -= 1;
        }
    }

    /// Changes counts and heads along a path.
    fn add(&mut self, path: &Path, users: i32, heads: i32) {
        for level in 0..path.height {
            let (node, child) = path.step(level);
            self.nodes[node].add(child, users, heads);
        }
    }

    /// Tells the nodes from a level upwards that what is below begins with another place.
    fn set_first(&mut self, path: &Path, level: usize, first: Place) {
        for level in (0..=level).rev() {
            let (node, child) = path.step(level);
            self.nodes[node].set_first(child, first);
            if child > 0 {
                break;
            }
        }
    }

    pub(super) fn new_chunk(&mut self, chunk: Chunk) -> u32 {
        reuse_or_push(&mut self.chunks, &mut self.free_chunks, chunk)
    }

    fn new_node(&mut self, node: Node) -> u32 {
        reuse_or_push(&mut self.nodes, &mut self.free_nodes, node)
    }
}

fn reuse_or_push<T>(pool: &mut Vec<T>, free: &mut Vec<u32>, value: T) -> u32 {
    match free.pop() {
        Some(at) => {
            pool[at as usize] = value;
            at
        }
        None => {
            pool.push(value);
            (pool.len() - 1) as u32
        }
    }
}
