//! Rankings in this process: one counted tree a season, all sharing the users' ids.
//!
//! A season is *loading* until it is complete; every question about it is refused until then. Trees are behind a lock each: a change holds it
//! for about a microsecond, a page of a thousand for some tens, and nothing holds it for longer, checkpoints included.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use async_trait::async_trait;
use rank_tree::{Mark, RankTree, Standing, Update, Users};
use standings_table::Text;

use super::frozen::{Listed, View, Views};
use super::{
    Change, Distribution, FrozenView, Page, PageRequest, Placed, PlacedAmong, Ranking, SeasonKey, Start,
};
use crate::board::{Order, Ties};
use crate::error::{Error, Result};

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Rankings in this process.
#[derive(Default)]
pub struct MemoryRanking {
    users: Arc<Users>,
    seasons: RwLock<Map<SeasonKey, Arc<Season>>>,
    /// Generations are never used twice, also not by a season that is closed and opened again.
    generations: AtomicU64,
}

struct Season {
    tree: RwLock<RankTree>,
    /// Whoever has the tree's lock takes this one after it.
    views: Mutex<Views>,
    viewed: AtomicBool,
    ready: AtomicBool,
    generation: AtomicU64,
}

/// What a season takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeasonMemory {
    /// Which season.
    pub season: SeasonKey,
    /// How many users it has.
    pub users: u64,
    /// Bytes of its own.
    pub bytes: usize,
    /// Whether it is complete.
    pub ready: bool,
}

impl Season {
    fn before_changes(&self, tree: &RankTree, changes: &[Change<'_>]) {
        if self.viewed.load(Ordering::Acquire) {
            let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
            for change in changes {
                views.before_change(tree, change.user);
            }
            self.viewed.store(!views.is_empty(), Ordering::Release);
        }
    }
}

/// A season as it was at one moment.
struct MemoryView {
    season: Arc<Season>,
    view: Arc<Mutex<View>>,
}

#[async_trait]
impl FrozenView for MemoryView {
    async fn next(&mut self, limit: usize) -> Result<Vec<Listed>> {
        let tree = self.season.tree.read().unwrap_or_else(PoisonError::into_inner);
        Ok(self.view.lock().unwrap_or_else(PoisonError::into_inner).next(&tree, limit))
    }
}

impl MemoryRanking {
    /// No rankings yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that a season will come: until [`MemoryRanking::finish_loading`], every question about it is refused.
    pub fn begin_loading(&self, season: &SeasonKey, order: Order) {
        self.insert(season, RankTree::new(order.into(), self.users.clone()), false);
    }

    /// A season is complete.
    pub fn finish_loading(&self, season: &SeasonKey, tree: RankTree) {
        self.insert(season, tree, true);
    }

    /// The ids that all trees share.
    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// What each season takes, by name.
    pub fn seasons(&self) -> Vec<SeasonMemory> {
        let seasons: Vec<_> =
            self.read_seasons().iter().map(|(key, season)| (key.clone(), season.clone())).collect();
        let mut memory: Vec<SeasonMemory> = seasons
            .into_iter()
            .map(|(key, season)| {
                let tree = season.tree.read().unwrap_or_else(PoisonError::into_inner);
                let memory = tree.memory();
                SeasonMemory {
                    season: key,
                    users: tree.len(),
                    bytes: memory.entries + memory.index,
                    ready: season.ready.load(Ordering::Acquire),
                }
            })
            .collect();
        memory.sort_by(|a, b| a.season.cmp(&b.season));
        memory
    }

    /// Bytes of the ids, which all seasons share.
    pub fn shared_bytes(&self) -> usize {
        let memory = RankTree::new(rank_tree::Order::High, self.users.clone()).memory();
        memory.ids + memory.id_table
    }

    /// Reads a season's tree, if it is complete. Changes wait meanwhile: be quick.
    pub fn with_tree<T>(&self, season: &SeasonKey, read: impl FnOnce(&RankTree) -> T) -> Result<T> {
        let found = self.find(season)?;
        let tree = found.tree.read().unwrap_or_else(PoisonError::into_inner);
        Ok(read(&tree))
    }

    fn insert(&self, season: &SeasonKey, tree: RankTree, ready: bool) {
        let generation = AtomicU64::new(self.generations.fetch_add(1 << 40, Ordering::Relaxed));
        let entry = Arc::new(Season {
            tree: RwLock::new(tree),
            views: Mutex::default(),
            viewed: AtomicBool::new(false),
            ready: AtomicBool::new(ready),
            generation,
        });
        self.seasons.write().unwrap_or_else(PoisonError::into_inner).insert(season.clone(), entry);
    }

    fn read_seasons(&self) -> RwLockReadGuard<'_, Map<SeasonKey, Arc<Season>>> {
        self.seasons.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &SeasonKey) -> Result<Arc<Season>> {
        let season = self.read_seasons().get(key).cloned();
        let not_ready = || Error::NotReady { board: key.board.clone() };
        season.filter(|season| season.ready.load(Ordering::Acquire)).ok_or_else(not_ready)
    }

    fn place(&self, rows: &[Standing]) -> Vec<Placed> {
        let mut placed: Vec<Placed> = rows
            .iter()
            .map(|row| Placed {
                user: Text::default(),
                score: row.entry.score,
                reached_at: row.entry.reached_at,
                rank: row.rank,
            })
            .collect();
        self.users.with_ids(rows.iter().map(|row| row.user), |at, id| placed[at].user = Text::from(id));
        placed
    }
}

#[async_trait]
impl Ranking for MemoryRanking {
    async fn open(&self, season: &SeasonKey, order: Order) -> Result<()> {
        if !self.read_seasons().contains_key(season) {
            self.insert(season, RankTree::new(order.into(), self.users.clone()), true);
        }
        Ok(())
    }

    async fn close(&self, season: &SeasonKey) -> Result<()> {
        let closed = self.seasons.write().unwrap_or_else(PoisonError::into_inner).remove(season);
        // Letting go of millions of users takes a while, which nobody should wait for.
        tokio::task::spawn_blocking(move || drop(closed));
        Ok(())
    }

    async fn freeze(&self, season: &SeasonKey, ties: Ties, from: u64) -> Result<(Box<dyn FrozenView>, u64)> {
        let season = self.find(season)?;
        // Alone: no change is under way that the view would not hear of.
        let tree = season.tree.write().unwrap_or_else(PoisonError::into_inner);
        let view = Arc::new(Mutex::new(View::new(&tree, ties, from)));
        season.views.lock().unwrap_or_else(PoisonError::into_inner).add(&view);
        season.viewed.store(true, Ordering::Release);
        let players = tree.len();
        drop(tree);
        Ok((Box::new(MemoryView { season, view }), players))
    }

    async fn apply(&self, season: &SeasonKey, changes: &[Change<'_>]) -> Result<()> {
        let season = self.find(season)?;
        let mut tree = season.tree.write().unwrap_or_else(PoisonError::into_inner);
        season.before_changes(&tree, changes);
        // Ids were checked where they came in; a tree refuses only ids that could never have become entries.
        let refused = |error: rank_tree::Error| Error::Damaged {
            key: error.to_string(),
            why: "the ranking refused it",
        };
        match changes {
            [Change { user, entry: Some(entry), .. }] => {
                tree.set(user, *entry).map_err(refused)?;
            }
            changes => {
                let updates: Vec<Update<'_>> =
                    changes.iter().map(|change| Update { user: change.user, entry: change.entry }).collect();
                tree.apply(&updates).map_err(refused)?;
            }
        }
        // Inside the lock: who reads the new generation first and the tree then sees this change.
        season.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    async fn standings_of(
        &self,
        season: &SeasonKey,
        users: &[&str],
        ties: Ties,
    ) -> Result<(Vec<Option<Placed>>, u64)> {
        let found = self.find(season)?;
        let tree = found.tree.read().unwrap_or_else(PoisonError::into_inner);
        let placed = |(user, row): (&&str, Option<Standing>)| {
            row.map(|row| Placed {
                user: Text::from(*user),
                score: row.entry.score,
                reached_at: row.entry.reached_at,
                rank: row.rank,
            })
        };
        let rows = match users {
            [user] => vec![tree.standing(user, ties.into())],
            users => tree.standings_of(users, ties.into()),
        };
        Ok((users.iter().zip(rows).map(placed).collect(), tree.len()))
    }

    async fn standing(&self, season: &SeasonKey, user: &str, ties: Ties) -> Result<Option<PlacedAmong>> {
        let found = self.find(season)?;
        let tree = found.tree.read().unwrap_or_else(PoisonError::into_inner);
        let players = tree.len();
        let Some(row) = tree.standing(user, ties.into()) else { return Ok(None) };
        let better = match ties {
            Ties::Shared => row.rank - 1,
            Ties::Dense | Ties::First => tree.better_than(row.entry.score),
        };
        let placed = Placed {
            user: Text::from(user),
            score: row.entry.score,
            reached_at: row.entry.reached_at,
            rank: row.rank,
        };
        Ok(Some(PlacedAmong { placed, not_better: players - better, players }))
    }

    async fn page(&self, season: &SeasonKey, request: &PageRequest) -> Result<Page> {
        let found = self.find(season)?;
        let tree = found.tree.read().unwrap_or_else(PoisonError::into_inner);
        let players = tree.len();
        let ties = request.ties.into();
        let (from, end) = match request.range {
            None => (0, players),
            Some(range) => {
                // The list of a range begins behind everyone who is better than its better end.
                let total = tree.between(range);
                let better_end = match tree.order() {
                    rank_tree::Order::High => range.max,
                    rank_tree::Order::Low => range.min,
                };
                let from = if total == 0 { 0 } else { tree.better_than(better_end) };
                (from, from + total)
            }
        };
        let start = match &request.start {
            Start::Position(position) => from.saturating_add(*position),
            Start::After(mark) => from.max(tree.position_after(mark)),
        };
        let limit = request.limit.min(usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX));
        let rows = tree.page(start, limit, ties);
        let more = start.saturating_add(rows.len() as u64) < end;
        Ok(Page { rows: self.place(&rows), total: end - from, players, more })
    }

    async fn around(
        &self,
        season: &SeasonKey,
        user: &str,
        above: usize,
        below: usize,
        ties: Ties,
    ) -> Result<Option<Page>> {
        let found = self.find(season)?;
        let tree = found.tree.read().unwrap_or_else(PoisonError::into_inner);
        let players = tree.len();
        let Some(position) = tree.position(user) else { return Ok(None) };
        let wanted = (above + below + 1) as u64;
        let start = position.saturating_sub(above as u64).min(players.saturating_sub(wanted));
        let rows = tree.page(start, above + below + 1, ties.into());
        let more = start + (rows.len() as u64) < players;
        Ok(Some(Page { rows: self.place(&rows), total: players, players, more }))
    }

    async fn distribution(
        &self,
        season: &SeasonKey,
        buckets: usize,
        quantiles: &[f64],
    ) -> Result<Distribution> {
        self.with_tree(season, |tree| Distribution {
            players: tree.len(),
            histogram: tree.histogram(buckets),
            quantiles: quantiles.iter().map(|quantile| tree.score_at_quantile(*quantile)).collect(),
            span: tree.score_span(),
        })
    }

    async fn generation(&self, season: &SeasonKey) -> Result<u64> {
        Ok(self.find(season)?.generation.load(Ordering::Acquire))
    }
}

/// The mark of a row, after which the next page begins.
pub(crate) fn mark_of(row: &Placed) -> Mark {
    Mark { score: row.score, reached_at: row.reached_at, user: row.user.to_string() }
}
