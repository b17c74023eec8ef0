//! What "better" means: the only definition of order and of ties in the project.
//!
//! Everything below the public interface works on *order keys*: a score mapped so that a smaller key is
//! a better score whichever way the board is turned. The mapping is its own inverse and covers all 64
//! bits, so `i64::MIN` and `i64::MAX` are ordinary scores.

use std::cmp::Ordering;

use crate::Entry;

/// Which way is up on a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// The higher score is the better one: points, wins, levels.
    High,
    /// The lower score is the better one: lap times, strokes.
    Low,
}

impl Order {
    /// Whether one score is better than another.
    pub fn is_better(self, score: i64, than: i64) -> bool {
        self.key(score) < self.key(than)
    }

    /// The order of two users in a list, by score, time and id: less is higher up.
    pub fn compare(self, a: (Entry, &str), b: (Entry, &str)) -> Ordering {
        let by_score = self.key(a.0.score).cmp(&self.key(b.0.score));
        by_score.then(a.0.reached_at.cmp(&b.0.reached_at)).then_with(|| a.1.cmp(b.1))
    }

    /// The order key of a score: smaller is better.
    ///
    /// Bitwise not reverses the order of `i64` without overflow, which negation does not.
    #[inline]
    pub(crate) fn key(self, score: i64) -> i64 {
        match self {
            Order::High => !score,
            Order::Low => score,
        }
    }

    /// The score behind an order key; the inverse of [`Order::key`].
    #[inline]
    pub(crate) fn score(self, key: i64) -> i64 {
        self.key(key)
    }
}

/// How users with the same score are ranked.
///
/// Whatever the style, a list shows the users of one score in the order in which they got there, then
/// by user id (bytewise); the style decides only the number beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ties {
    /// 1, 1, 3: one more than the number of users with a better score.
    Shared,
    /// 1, 1, 2: one more than the number of better scores.
    Dense,
    /// 1, 2, 3: whoever reached the score first stands higher.
    First,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_ordered_by_score_then_time_then_id() {
        let user = |score, reached_at, id| (Entry { score, reached_at }, id);
        let list = [user(9, 5, "z"), user(7, 1, "b"), user(7, 2, "a"), user(7, 2, "b"), user(-1, 0, "a")];
        assert!(list.is_sorted_by(|a, b| Order::High.compare(*a, *b).is_lt()));
        assert!(Order::High.is_better(9, 7) && !Order::High.is_better(7, 7));
        assert!(Order::Low.is_better(-1, 7) && !Order::Low.is_better(7, -1));
        assert!(Order::Low.compare(list[4], list[0]).is_lt());
    }

    #[test]
    fn a_better_score_has_a_smaller_key_and_the_mapping_returns() {
        let scores = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
        for pair in scores.windows(2) {
            assert!(Order::High.key(pair[1]) < Order::High.key(pair[0]));
            assert!(Order::Low.key(pair[0]) < Order::Low.key(pair[1]));
        }
        for score in scores {
            assert_eq!(Order::High.score(Order::High.key(score)), score);
            assert_eq!(Order::Low.score(Order::Low.key(score)), score);
        }
    }
}
