//! Reading snapshots: the same questions as a ranking answers, from the table alone.
//!
//! Places are dense, from 1 to the number of players, so a page is a range of places: one query a shard, put together by place. A place that is missing
//! has not reached the index yet, which is said and never passed over. Where a score is in the list the ladder tells to within a step, and
//! the rows of that step tell exactly. One user is one read of one item.

use futures_util::future::try_join_all;
use rank_tree::{Bucket, Mark, ScoreRange};
use standings_table::{Consistency, Query, SortRange, limits};

use crate::board::Order;
use crate::error::{Error, Result};
use crate::ids::UserId;
use crate::ranking::Distribution;
use crate::records::{LadderRecord, SnapshotFacts, SnapshotRow};
use crate::service::Shared;
use crate::snapshots::Past;
use crate::standings::mark_of_past;

/// Users of a snapshot in order, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PastPage {
    pub(crate) rows: Vec<SnapshotRow>,
    /// How many users the whole list has: those in the range asked for.
    pub(crate) total: u64,
    pub(crate) more: bool,
}

/// Where a page of a snapshot begins.
pub(crate) enum PastStart {
    /// At this place of the list asked for, from 0.
    Position(u64),
    /// After this mark, which may be of a time when the season was live and its user had another score.
    After(Mark),
}

impl Shared {
    /// One user.
    pub(crate) async fn past_row(&self, past: &Past, user: &UserId) -> Result<Option<SnapshotRow>> {
        let key = SnapshotRow::key(user, &past.board, &past.label);
        let item = self.table.get(&key, Consistency::Strong).await?;
        // What stays of a season that is removed is no row of it.
        item.filter(|item| !SnapshotRow::is_kept_best(item)).as_ref().map(SnapshotRow::from_item).transpose()
    }

    /// Several users, in the order asked.
    pub(crate) async fn past_rows_of(
        &self,
        past: &Past,
        users: &[UserId],
    ) -> Result<Vec<Option<SnapshotRow>>> {
        let mut rows = Vec::with_capacity(users.len());
        for chunk in users.chunks(limits::BATCH_GET_KEYS_MAX) {
            let keys: Vec<_> =
                chunk.iter().map(|user| SnapshotRow::key(user, &past.board, &past.label)).collect();
            for item in self.table.batch_get(&keys, Consistency::Strong).await? {
                let item = item.filter(|item| !SnapshotRow::is_kept_best(item));
                rows.push(item.as_ref().map(SnapshotRow::from_item).transpose()?);
            }
        }
        Ok(rows)
    }

    /// The official places, best first: one query.
    pub(crate) async fn past_official(&self, past: &Past) -> Result<Vec<SnapshotRow>> {
        let partition = SnapshotRow::official_partition(&past.board, &past.label);
        let rows = self.past_query(Query::index("ByRank", partition)).await?;
        let expected = past.facts.players.min(u64::from(past.facts.official));
        dense(past, 1, expected, rows)
    }

    /// All rows that a query finds.
    async fn past_query(&self, mut query: Query) -> Result<Vec<SnapshotRow>> {
        let mut rows = Vec::new();
        loop {
            let page = self.table.query(&query).await?;
            for item in &page.items {
                rows.push(SnapshotRow::from_item(item)?);
            }
            match page.next {
                Some(next) => query.start_after = Some(next),
                None => return Ok(rows),
            }
        }
    }

    /// Users from a place on (from 1), at most so many.
    pub(crate) async fn past_places(&self, past: &Past, first: u64, count: u64) -> Result<Vec<SnapshotRow>> {
        let SnapshotFacts { players, shards, .. } = past.facts;
        let first = first.max(1);
        let last = first.saturating_add(count).saturating_sub(1).min(players);
        if count == 0 || last < first {
            return Ok(Vec::new());
        }
        let number = |place: u64| i64::try_from(place).unwrap_or(i64::MAX);
        let range = SortRange::Between(number(first).into(), number(last).into());
        let shards = (0..shards).map(|shard| {
            let partition = SnapshotRow::partition(&past.board, &past.label, shard);
            self.past_query(Query::index("ByScore", partition).sort(range.clone()))
        });
        let rows = try_join_all(shards).await?.into_iter().flatten().collect();
        dense(past, first, last - first + 1, rows)
    }

    /// How many users have a strictly better score.
    pub(crate) async fn past_better_than(&self, past: &Past, score: i64) -> Result<u64> {
        let order: rank_tree::Order = past.facts.order.into();
        let before = SortRange::Less(LadderRecord::sort(past.facts.order, score).into());
        let ladder = LadderRecord::partition(&past.board, &past.label);
        let mut query = Query::table(ladder).sort(before).backward().limit(1);
        let item = loop {
            let page = self.table.query(&query).await?;
            match (page.items.into_iter().next(), page.next) {
                (Some(item), _) => break item,
                (None, Some(next)) => query.start_after = Some(next),
                // Nobody who is first in a block is better, so nobody is.
                (None, None) => return Ok(0),
            }
        };
        let ladder = LadderRecord::from_item(&item)?;
        // The first score of the item is better. From the last one on that is, the rows of one step decide.
        let better = ladder.scores.partition_point(|step| order.is_better(*step, score));
        let step = past.facts.step;
        let known = ladder.first + (better.max(1) as u64 - 1) * step;
        let block_end = (known - 1) / past.facts.block * past.facts.block + past.facts.block;
        let rows = self.past_places(past, known + 1, (step - 1).min(block_end.saturating_sub(known))).await?;
        Ok(known + rows.iter().take_while(|row| order.is_better(row.score, score)).count() as u64)
    }

    /// How many users are in a list of these scores, and how many come before it.
    async fn past_range(&self, past: &Past, range: ScoreRange) -> Result<(u64, u64)> {
        let (best, worst) = match past.facts.order {
            Order::High => (range.max, range.min),
            Order::Low => (range.min, range.max),
        };
        let from = self.past_better_than(past, best).await?;
        let next_worse = match past.facts.order {
            Order::High => worst.checked_sub(1),
            Order::Low => worst.checked_add(1),
        };
        let to = match next_worse {
            Some(score) => self.past_better_than(past, score).await?,
            None => past.facts.players,
        };
        Ok((from, to.saturating_sub(from)))
    }

    /// How many users come up to a mark, the one at it included.
    async fn past_up_to(&self, past: &Past, mark: &Mark) -> Result<u64> {
        if let Some(row) = self.past_row(past, &UserId::new(&mark.user)?).await?
            && mark_of_past(&row) == *mark
        {
            return Ok(row.place);
        }
        // Among those of the same score, by who was first.
        let (mut low, count) = self.past_range(past, ScoreRange { min: mark.score, max: mark.score }).await?;
        let mut high = low + count;
        while low < high {
            let middle = low + (high - low) / 2;
            let rows = self.past_places(past, middle + 1, 1).await?;
            let up_to = |row: &SnapshotRow| {
                let at = mark_of_past(row);
                (at.reached_at, at.user.as_str()) <= (mark.reached_at, mark.user.as_str())
            };
            if rows.first().is_some_and(up_to) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// A page of the list.
    pub(crate) async fn past_page(
        &self,
        past: &Past,
        start: PastStart,
        range: Option<ScoreRange>,
        limit: u64,
    ) -> Result<PastPage> {
        let (from, total) = match range {
            None => (0, past.facts.players),
            Some(range) => self.past_range(past, range).await?,
        };
        let start = match start {
            PastStart::Position(position) => from.saturating_add(position),
            PastStart::After(mark) => self.past_up_to(past, &mark).await?.max(from),
        };
        let end = from + total;
        let limit = limit.min(end.saturating_sub(start));
        let rows = self.past_places(past, start.saturating_add(1), limit).await?;
        let more = start.saturating_add(limit) < end;
        Ok(PastPage { rows, total, more })
    }

    /// A user with so many above and below; where one side runs out, the other has more.
    pub(crate) async fn past_around(
        &self,
        past: &Past,
        user: &UserId,
        above: u64,
        below: u64,
    ) -> Result<Option<Vec<SnapshotRow>>> {
        let Some(row) = self.past_row(past, user).await? else { return Ok(None) };
        let wanted = above + below + 1;
        let start = (row.place - 1).saturating_sub(above).min(past.facts.players.saturating_sub(wanted));
        Ok(Some(self.past_places(past, start + 1, wanted).await?))
    }

    /// How the scores are spread, as `RankTree` tells it of a live season.
    pub(crate) async fn past_distribution(
        &self,
        past: &Past,
        buckets: usize,
        quantiles: &[f64],
    ) -> Result<Distribution> {
        let players = past.facts.players;
        let score_at = async |place: u64| {
            let rows = self.past_places(past, place, 1).await?;
            Ok::<_, Error>(rows.first().map(|row| row.score))
        };
        let (Some(best), Some(worst)) = (score_at(1).await?, score_at(players).await?) else {
            return Ok(Distribution { quantiles: vec![None; quantiles.len()], ..Distribution::default() });
        };
        let span = ScoreRange { min: best.min(worst), max: best.max(worst) };
        let mut at_quantiles = Vec::with_capacity(quantiles.len());
        for quantile in quantiles {
            let beaten = ((quantile * players as f64).ceil() as u64).clamp(1, players);
            at_quantiles.push(score_at(players - beaten + 1).await?);
        }
        let mut histogram = Vec::new();
        // Each border is looked up once: what is up to the end of one bucket is before the next.
        let mut counted = 0;
        for range in rank_tree::buckets_of(span, buckets) {
            // A thousand of them take a while; others go in between.
            tokio::task::yield_now().await;
            let up_to = match past.facts.order {
                // Lowest first: those who are not better than the bucket's highest score.
                Order::High => players - self.past_better_than(past, range.max).await?,
                Order::Low => match range.max.checked_add(1) {
                    Some(next) => self.past_better_than(past, next).await?,
                    None => players,
                },
            };
            histogram.push(Bucket { range, users: up_to.saturating_sub(counted) });
            counted = up_to;
        }
        Ok(Distribution { players, histogram, quantiles: at_quantiles, span: Some(span) })
    }
}

/// Rows by place, if none is missing.
fn dense(past: &Past, first: u64, count: u64, mut rows: Vec<SnapshotRow>) -> Result<Vec<SnapshotRow>> {
    rows.sort_by_key(|row| row.place);
    let whole = rows.len() as u64 == count && rows.iter().zip(first..).all(|(row, place)| row.place == place);
    if whole { Ok(rows) } else { Err(Error::NotReady { board: past.board.clone() }) }
}
