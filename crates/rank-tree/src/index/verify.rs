//! Checks the invariants of an index, for tests and for `standings check`.

use super::{Context, Index, NOBODY, Place, Probe};

impl Index {
    /// The first broken invariant, in words.
    pub(crate) fn verify(&self, context: Context<'_>) -> Result<(), String> {
        let mut seen = Seen { last: None, chunk_key: None, chunk_whole: true, users: 0 };
        self.verify_node(context, self.root as usize, 1, &mut seen)?;
        let entries = context.entries.len() as u64;
        if seen.users != entries {
            return Err(format!("{} users in the index, {entries} entries", seen.users));
        }
        if self.height > 1 && self.nodes[self.root as usize].len() < 2 {
            return Err("a root above nodes has one child".to_owned());
        }
        let nodes = self.nodes.len() - self.free_nodes.len();
        let chunks = self.chunks.len() - self.free_chunks.len();
        let (used_nodes, used_chunks) = self.used(self.root as usize, 1);
        if (nodes, chunks) != (used_nodes, used_chunks) {
            return Err(format!(
                "{nodes} nodes and {chunks} chunks, but {used_nodes} and {used_chunks} in use"
            ));
        }
        Ok(())
    }

    fn verify_node(
        &self,
        context: Context<'_>,
        at: usize,
        level: usize,
        seen: &mut Seen,
    ) -> Result<(), String> {
        let node = &self.nodes[at];
        if node.len() == 0 && level > 1 {
            return Err(format!("node {at} below the root is empty"));
        }
        for child in 0..node.len() {
            let kid = node.kid(child);
            if level < self.height {
                let below = self.nodes[kid].as_child(kid as u32);
                let kept = node.child(child);
                if (below.first, below.count, below.heads) != (kept.first, kept.count, kept.heads) {
                    return Err(format!("node {at} keeps {kept:?} of a child that is {below:?}"));
                }
                self.verify_node(context, kid, level + 1, seen)?;
                continue;
            }
            let count = node.count(child) as usize;
            let chunk = &self.chunks[kid];
            if count == 0 || count > chunk.len() || chunk[count..].iter().any(|user| *user != NOBODY) {
                return Err(format!("chunk {kid} says it holds {count} users"));
            }
            if let Some(user) = chunk[..count].iter().find(|user| context.entries.get(**user).is_none()) {
                return Err(format!("{user:?} in chunk {kid} has no entry"));
            }
            let places: Vec<Place> = chunk[..count].iter().map(|user| context.place(*user)).collect();
            if node.first(child) != places[0] {
                return Err(format!("chunk {kid} begins with {:?}, not {:?}", places[0], node.first(child)));
            }
            let continues = seen.chunk_key == Some(places[0].key);
            let whole = places[0].key == places[count - 1].key;
            if continues && !(whole && seen.chunk_whole) {
                return Err(format!("chunk {kid} shares a score that spans chunks"));
            }
            let mut heads = u32::from(!continues);
            for place in &places {
                if let Some(last) = seen.last
                    && context.compare(last, &Probe::from(*place)).is_ge()
                {
                    return Err(format!("{place:?} stands after {last:?}"));
                }
                seen.last = Some(*place);
            }
            heads += places.windows(2).filter(|pair| pair[0].key != pair[1].key).count() as u32;
            if heads != node.heads(child) {
                return Err(format!("chunk {kid} has {heads} heads, not {}", node.heads(child)));
            }
            seen.users += count as u64;
            seen.chunk_key = Some(places[count - 1].key);
            seen.chunk_whole = whole;
        }
        Ok(())
    }

    fn used(&self, at: usize, level: usize) -> (usize, usize) {
        let node = &self.nodes[at];
        if level == self.height {
            return (1, node.len());
        }
        (0..node.len()).fold((1, 0), |(nodes, chunks), child| {
            let (more_nodes, more_chunks) = self.used(node.kid(child), level + 1);
            (nodes + more_nodes, chunks + more_chunks)
        })
    }
}

struct Seen {
    last: Option<Place>,
    /// The last key of the chunk before, and whether that chunk holds no other.
    chunk_key: Option<i64>,
    chunk_whole: bool,
    users: u64,
}
