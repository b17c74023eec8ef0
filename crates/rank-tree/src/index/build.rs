//! Building an index from users that come in order: no search, no split, chunks nearly full.

use super::node::{Child, FAN, Node};
use super::{CHUNK, Context, Index, NOBODY, Place, Probe};

/// Users put in a chunk; some room is left so that the first users who move do not split chunks.
const FILL: usize = CHUNK - CHUNK / 16;
/// Children put in a node.
const NODE_FILL: usize = FAN - FAN / 8;

/// Takes users in order and makes an [`Index`].
#[derive(Debug)]
pub(crate) struct Builder {
    index: Index,
    children: Vec<Child>,
    pending: Vec<Place>,
    /// Where the last score in `pending` begins.
    score_start: usize,
    /// Different scores in `pending`.
    heads: u32,
    /// The score in `pending` began in an earlier chunk.
    continues: bool,
    last: Option<Place>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Builder {
            index: Index::new(),
            children: Vec::new(),
            pending: Vec::with_capacity(CHUNK),
            score_start: 0,
            heads: 0,
            continues: false,
            last: None,
        }
    }

    /// Whether a place is after all those pushed so far, as the next one must be.
    pub(crate) fn accepts(&self, context: Context<'_>, place: Place) -> bool {
        self.last.is_none_or(|last| context.compare(last, &Probe::from(place)).is_lt())
    }

    /// Adds the next user in order.
    #[inline]
    pub(crate) fn push(&mut self, place: Place) {
        let same_score = self.last.is_some_and(|last| last.key == place.key);
        self.last = Some(place);
        if !same_score {
            // A score that spans chunks has them to itself, so the next one begins a new chunk.
            if self.continues || self.pending.len() >= FILL {
                self.flush(self.pending.len(), self.heads);
            }
            self.continues = false;
            self.score_start = self.pending.len();
            self.heads += 1;
        } else if self.pending.len() >= FILL {
            if self.score_start == 0 {
                self.flush(self.pending.len(), self.heads);
                self.continues = true;
            } else {
                self.flush(self.score_start, self.heads - 1);
                self.heads = 1;
            }
        }
        self.pending.push(place);
    }

    pub(crate) fn finish(mut self) -> Index {
        self.flush(self.pending.len(), self.heads);
        let mut children = self.children;
        self.index.nodes.clear();
        self.index.height = 0;
        loop {
            // Spread evenly, so that no node is nearly empty.
            let nodes = children.len().div_ceil(NODE_FILL).max(1);
            let mut above = Vec::with_capacity(nodes);
            let mut rest = children.as_slice();
            for left in (1..=nodes).rev() {
                let (these, others) = rest.split_at(rest.len().div_ceil(left));
                rest = others;
                let mut node = Node::new();
                these.iter().enumerate().for_each(|(at, child)| node.insert(at, *child));
                above.push(node.as_child(self.index.nodes.len() as u32));
                self.index.nodes.push(node);
            }
            self.index.height += 1;
            if nodes == 1 {
                self.index.root = above[0].kid;
                return self.index;
            }
            children = above;
        }
    }

    /// Makes a chunk of the first pending users.
    fn flush(&mut self, users: usize, heads: u32) {
        if users == 0 {
            return;
        }
        let mut chunk = [NOBODY; CHUNK];
        for (slot, place) in chunk.iter_mut().zip(&self.pending[..users]) {
            *slot = place.user;
        }
        let first = self.pending[0];
        let kid = self.index.new_chunk(chunk);
        self.children.push(Child { first, count: users as u32, heads, kid });
        self.pending.drain(..users);
        self.score_start = 0;
        self.heads = 0;
    }
}
