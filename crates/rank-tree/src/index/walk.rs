//! Going through users in order from a position, either way.

use super::{Context, HEIGHT_MAX, Index, Path, Place};

/// Stands between two users and steps over one at a time.
#[derive(Debug, Clone)]
pub(crate) struct Walk<'a> {
    index: &'a Index,
    context: Context<'a>,
    path: Path,
    /// Users of the chunk that are behind us.
    slot: usize,
    /// All users that are behind us.
    position: u64,
    /// All users.
    users: u64,
}

impl<'a> Walk<'a> {
    /// Begins after `position` users; at the end if there are not so many.
    pub(crate) fn new(index: &'a Index, context: Context<'a>, position: u64) -> Self {
        let users = index.total().users;
        let position = position.min(users);
        let mut path = Path { steps: [(0, 0); HEIGHT_MAX], height: index.height };
        let mut rest = position;
        let mut at = index.root;
        for level in 0..index.height {
            let node = &index.nodes[at as usize];
            let mut child = 0;
            // Past the last user means at the end of the last chunk.
            while child + 1 < node.len() && rest >= u64::from(node.count(child)) {
                rest -= u64::from(node.count(child));
                child += 1;
            }
            path.steps[level] = (at, child as u32);
            at = node.kid(child) as u32;
        }
        Walk { index, context, path, slot: rest as usize, position, users }
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The user in front, over whom we step.
    #[inline]
    pub(crate) fn forward(&mut self) -> Option<Place> {
        if self.position >= self.users {
            return None;
        }
        if self.slot == self.chunk_count() {
            self.path = self.index.next_chunk(&self.path)?;
            self.slot = 0;
        }
        let place = self.place();
        self.slot += 1;
        self.position += 1;
        Some(place)
    }

    /// The user behind us, over whom we step back.
    #[inline]
    pub(crate) fn backward(&mut self) -> Option<Place> {
        if self.slot == 0 {
            self.path = self.index.previous_chunk(&self.path)?;
            self.slot = self.chunk_count();
        }
        if self.position == 0 {
            return None;
        }
        self.slot -= 1;
        self.position -= 1;
        Some(self.place())
    }

    fn chunk_count(&self) -> usize {
        let (node, child) = self.path.last();
        self.index.nodes[node].count(child) as usize
    }

    fn place(&self) -> Place {
        let (node, child) = self.path.last();
        let chunk = self.index.nodes[node].kid(child);
        self.context.place(self.index.chunks[chunk][self.slot])
    }
}
