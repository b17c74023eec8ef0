//! Rankings: the index that answers "where". Derived from the table, always rebuildable.
//!
//! [`Ranking`] is what a backend must do. It is async and batched, so that one over a network fits, and every change carries the
//! entry's version, so that a stale one can never win where changes may overtake each other. In this process they cannot:
//! whoever changes a user's entry holds that user's lock until the ranking has it.
//!
//! Every answer shows one moment: a page, its number of players and its total come from under one lock.

mod frozen;
mod memory;

use async_trait::async_trait;
use rank_tree::{Bucket, Mark, ScoreRange};
use standings_table::Text;

use crate::board::{Order, Ties};
use crate::error::Result;
use crate::ids::BoardId;
use crate::season::Season;

pub use frozen::Listed;
pub(crate) use memory::mark_of;
pub use memory::{MemoryRanking, SeasonMemory};

/// Which ranking.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeasonKey {
    /// The board.
    pub board: BoardId,
    /// The season.
    pub season: Season,
}

/// A user's new entry.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Who.
    pub user: &'a str,
    /// The entry, or nothing if there is none any more.
    pub entry: Option<rank_tree::Entry>,
    /// The entry's version.
    pub version: i64,
}

/// A user with entry and rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Who.
    pub user: Text,
    /// Their score.
    pub score: i64,
    /// When they reached it, in microseconds since 1970.
    pub reached_at: u64,
    /// Their rank, from 1, by the board's ties.
    pub rank: u64,
}

/// One user's standing among all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedAmong {
    /// The user.
    pub placed: Placed,
    /// How many users they equal or beat, the user included.
    pub not_better: u64,
    /// How many users there are.
    pub players: u64,
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this place of the list, from 0, counting everyone.
    Position(u64),
    /// After this mark.
    After(Mark),
}

/// Which page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Where it begins.
    pub start: Start,
    /// Only these scores.
    pub range: Option<ScoreRange>,
    /// At most so many users.
    pub limit: usize,
    /// How equal scores are ranked.
    pub ties: Ties,
}

/// Users in order, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The users.
    pub rows: Vec<Placed>,
    /// How many users the whole list has: those in the range asked for.
    pub total: u64,
    /// How many users there are in the season.
    pub players: u64,
    /// Whether there are users behind the last row.
    pub more: bool,
}

/// How the scores of a season are spread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// How many users there are.
    pub players: u64,
    /// Counts by score, lowest scores first.
    pub histogram: Vec<Bucket>,
    /// For each quantile asked for, the worst score that still equals or beats that share of the users.
    pub quantiles: Vec<Option<i64>>,
    /// The lowest and the highest score.
    pub span: Option<ScoreRange>,
}

/// A season as it was at one moment.
#[async_trait]
pub trait FrozenView: Send + Sync {
    /// The next users in order, about so many; none at the end.
    async fn next(&mut self, limit: usize) -> Result<Vec<Listed>>;
}

/// The index that answers "where".
#[async_trait]
pub trait Ranking: Send + Sync + 'static {
    /// Makes the ranking of a season that has no entries yet, unless it is there.
    async fn open(&self, season: &SeasonKey, order: Order) -> Result<()>;

    /// Lets go of a season.
    async fn close(&self, season: &SeasonKey) -> Result<()>;

    /// Takes over new entries.
    async fn apply(&self, season: &SeasonKey, changes: &[Change<'_>]) -> Result<()>;

    /// Ranks of users, in the order asked, with nothing for those who have no entry; and the number of players.
    async fn standings_of(
        &self,
        season: &SeasonKey,
        users: &[&str],
        ties: Ties,
    ) -> Result<(Vec<Option<Placed>>, u64)>;

    /// One user among all.
    async fn standing(&self, season: &SeasonKey, user: &str, ties: Ties) -> Result<Option<PlacedAmong>>;

    /// A page of the list.
    async fn page(&self, season: &SeasonKey, request: &PageRequest) -> Result<Page>;

    /// A user with so many above and below; where one side runs out, the other has more.
    async fn around(
        &self,
        season: &SeasonKey,
        user: &str,
        above: usize,
        below: usize,
        ties: Ties,
    ) -> Result<Option<Page>>;

    /// How the scores are spread.
    async fn distribution(
        &self,
        season: &SeasonKey,
        buckets: usize,
        quantiles: &[f64],
    ) -> Result<Distribution>;

    /// The season as it is at this moment, from a place on (0 is the first), to be read while plays go on; and the number of players.
    /// A view that does not begin with the first place is right only if nothing changes while it is read.
    async fn freeze(&self, season: &SeasonKey, ties: Ties, from: u64) -> Result<(Box<dyn FrozenView>, u64)>;

    /// A number that is another one whenever the season's standings may be others.
    async fn generation(&self, season: &SeasonKey) -> Result<u64>;
}
