//! What a finished season must say, worked out the slow and obvious way.

use std::collections::BTreeMap;

use standings_boards::{
    BoardId, Boards, Error, Fold, ListRequest, Order, PERCENTILES, Row, Rules, Ties, UserId,
};

/// A user's score in one season.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) score: i64,
    pub(crate) reached_at: i64,
    latest_at: i64,
}

/// One season.
pub(crate) type Season = BTreeMap<String, Score>;

/// One row of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranked {
    pub(crate) user: String,
    pub(crate) score: i64,
    pub(crate) reached_at: i64,
    pub(crate) rank: u64,
}

/// Folds a play in.
pub(crate) fn play(rules: &Rules, season: &mut Season, user: &str, points: i64, at: i64) {
    let new = Score { score: points, reached_at: at, latest_at: at };
    let Some(old) = season.get_mut(user) else {
        season.insert(user.to_owned(), new);
        return;
    };
    match rules.score {
        Fold::Sum => {
            old.score += points;
            if points != 0 {
                old.reached_at = old.reached_at.max(at);
            }
        }
        Fold::Best => {
            let better = if rules.order == Order::High { points > old.score } else { points < old.score };
            if better {
                (old.score, old.reached_at) = (points, at);
            } else if points == old.score {
                old.reached_at = old.reached_at.min(at);
            }
        }
        Fold::Latest => {
            if at >= old.latest_at {
                if points != old.score {
                    old.reached_at = at;
                }
                old.score = points;
            }
        }
    }
    old.latest_at = old.latest_at.max(at);
}

/// Everybody in order, with ranks.
pub(crate) fn ranked(rules: &Rules, season: &Season) -> Vec<Ranked> {
    let key = |score: i64| if rules.order == Order::High { -score } else { score };
    let mut rows: Vec<(&String, &Score)> = season.iter().collect();
    rows.sort_by_key(|(user, score)| (key(score.score), score.reached_at, (*user).clone()));
    let list = rows.iter().enumerate().map(|(at, (user, score))| {
        let better = |other: &&(&String, &Score)| key(other.1.score) < key(score.score);
        let rank = match rules.ties {
            Ties::Shared => 1 + rows.iter().filter(better).count(),
            Ties::Dense => {
                let mut scores: Vec<i64> = rows.iter().filter(better).map(|row| row.1.score).collect();
                scores.sort_unstable();
                scores.dedup();
                1 + scores.len()
            }
            Ties::First => at + 1,
        };
        Ranked { user: (*user).clone(), score: score.score, reached_at: score.reached_at, rank: rank as u64 }
    });
    list.collect()
}

fn plain(rows: &[Row]) -> Vec<Ranked> {
    let plain = |row: &Row| Ranked {
        user: row.user.to_string(),
        score: row.score,
        reached_at: row.reached_at,
        rank: row.rank,
    };
    rows.iter().map(plain).collect()
}

/// Asks every question about a season and compares the answers in full.
pub(crate) async fn compare(boards: &Boards, board: &BoardId, rules: &Rules, name: &str, season: &Season) {
    let expected = ranked(rules, season);
    compare_lists(boards, board, name, &expected, &[1, 3, 7, 1_000]).await;
    compare_users(boards, board, rules, name, &expected).await;
    compare_scores(boards, board, name, &expected).await;
}

/// The same with fewer questions, where there are many seasons.
pub(crate) async fn compare_quickly(
    boards: &Boards,
    board: &BoardId,
    rules: &Rules,
    name: &str,
    season: &Season,
) {
    let expected = ranked(rules, season);
    compare_lists(boards, board, name, &expected, &[5]).await;
    compare_users(boards, board, rules, name, &expected).await;
}

/// Pages of all these sizes, and from a rank on.
async fn compare_lists(boards: &Boards, board: &BoardId, name: &str, expected: &[Ranked], sizes: &[usize]) {
    let of = |limit, cursor, from_rank| ListRequest {
        season: Some(name.to_owned()),
        limit: Some(limit),
        cursor,
        from_rank,
        ..ListRequest::default()
    };
    for &limit in sizes {
        let (mut cursor, mut rows) = (None, Vec::new());
        loop {
            let list = boards.list(board, &of(limit, cursor, None)).await.unwrap();
            assert_eq!((list.total, list.players), (expected.len() as u64, expected.len() as u64));
            rows.extend(plain(&list.rows));
            cursor = list.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(rows, expected, "season {name}, pages of {limit}");
    }
    for from in [1, 2, expected.len() as u64, expected.len() as u64 + 5] {
        let list = boards.list(board, &of(4, None, Some(from))).await.unwrap();
        let from = (from as usize - 1).min(expected.len());
        assert_eq!(plain(&list.rows), expected[from..(from + 4).min(expected.len())], "from {from}");
    }
}

/// Each user: their standing, those around them, all of them at once.
async fn compare_users(boards: &Boards, board: &BoardId, rules: &Rules, name: &str, expected: &[Ranked]) {
    for (at, row) in expected.iter().enumerate() {
        let user = UserId::new(&row.user).unwrap();
        let standing = boards.standing(board, &user, Some(name)).await.unwrap();
        assert_eq!(plain(&[standing.row]), std::slice::from_ref(row));
        let key = |score: i64| if rules.order == Order::High { -score } else { score };
        let better = expected.iter().filter(|other| key(other.score) < key(row.score)).count();
        let percentile = (expected.len() - better) as f64 / expected.len() as f64 * 100.0;
        assert!((standing.percentile - percentile).abs() < 1e-9);
        if at % 3 == 0 {
            let around = boards.around(board, &user, 2, 3, Some(name)).await.unwrap();
            let start = at.saturating_sub(2).min(expected.len().saturating_sub(6));
            let end = (start + 6).min(expected.len());
            assert_eq!(plain(&around.rows), expected[start..end], "around {at}");
        }
    }
    let nobody = UserId::new("nobody-at-all").unwrap();
    assert!(matches!(boards.standing(board, &nobody, Some(name)).await, Err(Error::UnknownUser { .. })));
    let mut users: Vec<UserId> = expected.iter().map(|row| UserId::new(&row.user).unwrap()).collect();
    users.insert(users.len() / 2, nobody.clone());
    let lookup = boards.lookup(board, users, Some(name)).await.unwrap();
    assert_eq!((plain(&lookup.rows), lookup.missing), (expected.to_vec(), vec![nobody]));
}

/// Ranges and the distribution.
async fn compare_scores(boards: &Boards, board: &BoardId, name: &str, expected: &[Ranked]) {
    let mut scores: Vec<i64> = expected.iter().map(|row| row.score).collect();
    scores.sort_unstable();
    let (low, high) = (scores[0], scores[scores.len() - 1]);
    for (min, max) in
        [(low, high), (low - 3, low), (high, high + 9), (low + 1, high - 1), (high + 1, high + 2)]
    {
        if min > max {
            continue;
        }
        let request = ListRequest {
            season: Some(name.to_owned()),
            limit: Some(5),
            min_score: Some(min.to_string()),
            max_score: Some(max.to_string()),
            ..ListRequest::default()
        };
        let inside: Vec<Ranked> =
            expected.iter().filter(|row| (min..=max).contains(&row.score)).cloned().collect();
        let (mut request, mut rows) = (request, Vec::new());
        loop {
            let list = boards.list(board, &request).await.unwrap();
            assert_eq!(list.total, inside.len() as u64, "{name}: {min} to {max}");
            rows.extend(plain(&list.rows));
            request.cursor = list.next_cursor;
            if request.cursor.is_none() {
                break;
            }
        }
        assert_eq!(rows, inside, "{name}: {min} to {max}");
    }
    for buckets in [1, 4, 1_000] {
        let spread = boards.distribution(board, buckets, Some(name)).await.unwrap().distribution;
        assert_eq!(spread.players, expected.len() as u64);
        let counted: u64 = spread.histogram.iter().map(|bucket| bucket.users).sum();
        assert_eq!(counted, spread.players);
        for bucket in &spread.histogram {
            let range = bucket.range.min..=bucket.range.max;
            assert_eq!(bucket.users, scores.iter().filter(|score| range.contains(score)).count() as u64);
        }
        for (percent, score) in PERCENTILES.iter().zip(&spread.quantiles) {
            let beaten = ((percent / 100.0 * scores.len() as f64).ceil() as usize).clamp(1, scores.len());
            // The list is best first: whoever stands there equals or beats that many.
            assert_eq!(*score, Some(expected[expected.len() - beaten].score), "{percent} percent");
        }
    }
}
