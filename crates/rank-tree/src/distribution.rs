//! Counting users by score: how many are better, percentiles, histograms.

use crate::{RankTree, ScoreRange, Ties};

/// The most parts a histogram is made of.
pub const BUCKETS_MAX: usize = 10_000;

/// How many users have a score in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// The scores it covers.
    pub range: ScoreRange,
    /// The users in it.
    pub users: u64,
}

impl RankTree {
    /// Users with a strictly better score than this one.
    pub fn better_than(&self, score: i64) -> u64 {
        self.index.better::<false>(self.context(), self.order.key(score), None).users
    }

    /// Users with exactly this score.
    pub fn equal_to(&self, score: i64) -> u64 {
        self.between(ScoreRange { min: score, max: score })
    }

    /// Users with a score in a range.
    pub fn between(&self, range: ScoreRange) -> u64 {
        let (from, to) = self.positions(range);
        to - from
    }

    /// How many different scores there are.
    pub fn distinct_scores(&self) -> u64 {
        self.index.total().scores
    }

    /// How many percent of all users a user equals or beats: 100 for the best, more than 0 for the worst.
    pub fn percentile(&self, user: &str) -> Option<f64> {
        let better = self.rank(user, Ties::Shared)? - 1;
        let users = self.len();
        Some((users - better) as f64 / users as f64 * 100.0)
    }

    /// The worst score that still equals or beats this share of the users: 1.0 is the best score, 0.5 the median, 0.0 the
    /// worst score. A quantile outside 0 to 1, or an empty tree, has none.
    pub fn score_at_quantile(&self, quantile: f64) -> Option<i64> {
        if !(0.0..=1.0).contains(&quantile) || self.is_empty() {
            return None;
        }
        let users = self.len();
        let beaten = ((quantile * users as f64).ceil() as u64).clamp(1, users);
        self.at(users - beaten, Ties::First).map(|standing| standing.entry.score)
    }

    /// The lowest and the highest score.
    pub fn score_span(&self) -> Option<ScoreRange> {
        let best = self.at(0, Ties::First)?.entry.score;
        let worst = self.at(self.len() - 1, Ties::First)?.entry.score;
        Some(ScoreRange { min: best.min(worst), max: best.max(worst) })
    }

    /// Users by score: the span from the lowest to the highest score in [`buckets_of`] it.
    pub fn histogram(&self, buckets: usize) -> Vec<Bucket> {
        let Some(span) = self.score_span() else { return Vec::new() };
        buckets_of(span, buckets).map(|range| Bucket { range, users: self.between(range) }).collect()
    }
}

/// A span of scores in at most `buckets` parts of the same width, lowest first (the last may be narrower). Never more than
/// [`BUCKETS_MAX`].
pub fn buckets_of(span: ScoreRange, buckets: usize) -> impl Iterator<Item = ScoreRange> {
    // The span of all i64 needs 65 bits.
    let (min, max) = (i128::from(span.min), i128::from(span.max));
    let scores = (max - min + 1).max(0);
    let buckets = buckets.min(BUCKETS_MAX) as i128;
    let width = if buckets == 0 { 1 } else { ((scores + buckets - 1) / buckets).max(1) };
    let count = if buckets == 0 { 0 } else { (scores + width - 1) / width };
    let narrow = |score: i128| i64::try_from(score).expect("between two scores");
    (0..count).map(move |bucket| {
        let low = min + bucket * width;
        ScoreRange { min: narrow(low), max: narrow((low + width - 1).min(max)) }
    })
}
