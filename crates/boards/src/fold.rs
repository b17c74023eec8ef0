//! How plays become an entry. A pure function: the same plays in the same order always make the same entry, which is how an entry is
//! checked and repaired.

use crate::board::{Fold, Rules};
use crate::error::{Error, Result};
use crate::records::Entry;

/// The entry after one more play, and whether the score became better.
///
/// - `sum`: points add up. The score was reached at the latest time of a play that changed it, so plays that arrive late do not turn time back.
/// - `best`: the better one stays, and of equal ones the earlier.
/// - `latest`: replaced by a play that is not older than the latest one; the same value again does not change when it was reached.
///
/// # Errors
/// [`Error::ScoreOverflow`].
pub(crate) fn fold(
    rules: &Rules,
    entry: Option<&Entry>,
    points: i64,
    played_at: i64,
) -> Result<(Entry, bool)> {
    let Some(old) = entry else {
        let entry =
            Entry { score: points, reached_at: played_at, latest_at: played_at, plays: 1, version: 1 };
        return Ok((entry, true));
    };
    let order = rank_tree::Order::from(rules.order);
    let (score, reached_at) = match rules.score {
        Fold::Sum => {
            let score = old.score.checked_add(points).ok_or(Error::ScoreOverflow)?;
            (score, if points == 0 { old.reached_at } else { old.reached_at.max(played_at) })
        }
        Fold::Best if order.is_better(points, old.score) => (points, played_at),
        Fold::Best if points == old.score => (points, old.reached_at.min(played_at)),
        Fold::Latest if played_at >= old.latest_at && points != old.score => (points, played_at),
        Fold::Best | Fold::Latest => (old.score, old.reached_at),
    };
    let entry = Entry {
        score,
        reached_at,
        latest_at: old.latest_at.max(played_at),
        plays: old.plays + 1,
        version: old.version + 1,
    };
    Ok((entry, order.is_better(score, old.score)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Order;

    fn run(score: Fold, order: Order, plays: &[(i64, i64)]) -> (i64, i64, Vec<bool>) {
        let rules = Rules { score, order, ..Rules::default() };
        let (mut entry, mut improved) = (None, Vec::new());
        for (points, at) in plays {
            let (next, better) = fold(&rules, entry.as_ref(), *points, *at).unwrap();
            improved.push(better);
            entry = Some(next);
        }
        let entry = entry.unwrap();
        assert_eq!((entry.plays, entry.version), (plays.len() as i64, plays.len() as i64));
        (entry.score, entry.reached_at, improved)
    }

    #[test]
    fn a_sum_adds_and_is_reached_at_the_last_play_that_changed_it() {
        assert_eq!(
            run(Fold::Sum, Order::High, &[(5, 10), (0, 20), (-2, 15)]),
            (3, 15, vec![true, false, false])
        );
        assert_eq!(run(Fold::Sum, Order::Low, &[(5, 10), (-2, 5)]), (3, 10, vec![true, true]));
    }

    #[test]
    fn the_best_stays_and_of_equal_ones_the_earlier() {
        assert_eq!(run(Fold::Best, Order::High, &[(5, 10), (4, 11), (5, 12), (5, 9)]).1, 9);
        assert_eq!(run(Fold::Best, Order::High, &[(5, 10), (7, 11)]), (7, 11, vec![true, true]));
        assert_eq!(
            run(Fold::Best, Order::Low, &[(5, 10), (7, 11), (3, 12)]),
            (3, 12, vec![true, false, true])
        );
    }

    #[test]
    fn the_latest_replaces_unless_it_is_older() {
        assert_eq!(
            run(Fold::Latest, Order::High, &[(5, 10), (3, 20), (9, 15)]),
            (3, 20, vec![true, false, false])
        );
        // The same again: reached when it first was.
        assert_eq!(run(Fold::Latest, Order::High, &[(5, 10), (5, 20)]).1, 10);
        assert_eq!(run(Fold::Latest, Order::High, &[(5, 10), (5, 20), (6, 15)]).0, 5);
    }

    #[test]
    fn a_sum_beyond_64_bits_is_an_error() {
        let rules = Rules::default();
        let (entry, _) = fold(&rules, None, i64::MAX, 1).unwrap();
        assert!(matches!(fold(&rules, Some(&entry), 1, 2), Err(Error::ScoreOverflow)));
        assert!(fold(&rules, Some(&entry), -1, 2).is_ok());
    }
}
