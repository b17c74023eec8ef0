//! All boards and profiles, and the replies they make.

use std::collections::BTreeMap;

use super::{Board, Expected, Refused, Row, Season, time};
use crate::common::exact::Exact;

/// All boards and profiles.
#[derive(Default)]
pub(crate) struct Naive {
    pub(crate) boards: BTreeMap<String, Board>,
    pub(crate) profiles: BTreeMap<String, (Option<String>, i64)>,
}

impl Naive {
    pub(crate) fn board(&self, name: &str) -> Result<&Board, Refused> {
        self.boards.get(name).ok_or((404, "unknown_board"))
    }

    fn rows(&self, board: &Board, rows: &[Row]) -> Exact {
        let row = |row: &Row| {
            Exact::from([
                ("user_id", row.user.as_str().into()),
                ("user_name", self.name_in(row)),
                ("rank", row.rank.into()),
                ("score", board.score(row.score)),
            ])
        };
        rows.iter().map(row).collect::<Vec<_>>().into()
    }

    fn name_in(&self, row: &Row) -> Exact {
        row.named.clone().unwrap_or_else(|| self.name(&row.user))
    }

    /// What time has made due.
    pub(crate) fn settle(&mut self, now: i64) {
        let mut boards = std::mem::take(&mut self.boards);
        for board in boards.values_mut() {
            board.settle(now, |user| self.name(user));
        }
        self.boards = boards;
    }

    /// A season that is closed by hand.
    pub(crate) fn close(&mut self, board: &str, season: &str, now: i64) -> Expected {
        let mut found = self.board(board)?.clone();
        let span = Season::named(&found.rules, season).ok_or((400, "invalid_season"))?;
        if !found.close(season, now, |user| self.name(user)) {
            return Err((404, "unknown_season"));
        }
        let reply = found.season_reply(&span, now);
        self.boards.insert(board.to_owned(), found);
        Ok((200, reply))
    }

    fn name(&self, user: &str) -> Exact {
        self.profiles.get(user).and_then(|(name, _)| name.clone()).into()
    }

    /// Why a user has no standing.
    pub(crate) fn absent(&self, user: &str) -> Refused {
        let known =
            self.profiles.contains_key(user) || self.boards.values().any(|board| board.has_played(user));
        (404, if known { "no_entry" } else { "unknown_user" })
    }

    pub(crate) fn list_reply(
        &self,
        board: &Board,
        season: &Season,
        (rows, total, more): (&[Row], usize, bool),
    ) -> Exact {
        Exact::from([
            ("data", self.rows(board, rows)),
            ("total", total.into()),
            ("players", board.table(&season.name).len().into()),
            ("season", season.name.as_str().into()),
            ("next_cursor", more.then_some("a cursor").into()),
        ])
    }

    pub(crate) fn user(&self, board: &str, user: &str, season: Option<&str>, now: i64) -> Expected {
        let board = self.board(board)?;
        let season = board.asked(season, now)?;
        let rows = board.table(&season.name);
        let row = rows.iter().find(|row| row.user == user).ok_or_else(|| self.absent(user))?;
        let beaten = rows.iter().filter(|other| !board.rules.better(other.score, row.score)).count();
        let percentile = (beaten as f64 / rows.len() as f64 * 100.0 * 1_000.0).round() / 1_000.0;
        let info = Exact::from([
            ("user_id", user.into()),
            ("user_name", self.name_in(row)),
            ("rank", row.rank.into()),
            ("score", board.score(row.score)),
            ("percentile", percentile.into()),
            ("players", rows.len().into()),
            ("season", season.name.as_str().into()),
            ("reached_at", time(row.reached_at)),
        ]);
        Ok((200, [("user_info", info)].into()))
    }

    pub(crate) fn around(
        &self,
        board: &str,
        user: &str,
        (above, below): (usize, usize),
        season: Option<&str>,
        now: i64,
    ) -> Expected {
        let board = self.board(board)?;
        let season = board.asked(season, now)?;
        let rows = board.table(&season.name);
        let at = rows.iter().position(|row| row.user == user).ok_or_else(|| self.absent(user))?;
        // One more on either side in turn, until there are enough or no more.
        let (mut first, mut end) = (at - above.min(at), (at + below + 1).min(rows.len()));
        while end - first < above + below + 1 && (first > 0 || end < rows.len()) {
            if first > 0 { first -= 1 } else { end += 1 }
        }
        Ok((200, self.list_reply(board, &season, (&rows[first..end], rows.len(), false))))
    }

    pub(crate) fn lookup(&self, board: &str, users: &[String], season: Option<&str>, now: i64) -> Expected {
        let board = self.board(board)?;
        let season = board.asked(season, now)?;
        let rows = board.table(&season.name);
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (at, user) in users.iter().enumerate().filter(|(at, user)| !users[..*at].contains(user)) {
            match rows.iter().find(|row| row.user == users[at]) {
                Some(row) => found.push(row.clone()),
                None => missing.push(Exact::from(user.as_str())),
            }
        }
        let reply = Exact::from([
            ("data", self.rows(board, &found)),
            ("missing", missing.into()),
            ("players", rows.len().into()),
            ("season", season.name.as_str().into()),
        ]);
        Ok((200, reply))
    }

    pub(crate) fn distribution(
        &self,
        board: &str,
        buckets: usize,
        season: Option<&str>,
        now: i64,
    ) -> Expected {
        let board = self.board(board)?;
        let season = board.asked(season, now)?;
        let scores: Vec<i64> = board.table(&season.name).iter().map(|row| row.score).collect();
        let (min, max) = (scores.iter().min().copied(), scores.iter().max().copied());
        let mut histogram = Vec::new();
        if let (Some(min), Some(max)) = (min, max) {
            // The narrowest parts of the same width that are not too many.
            let span = i128::from(max) - i128::from(min) + 1;
            let width = span / buckets as i128 + i128::from(span % buckets as i128 != 0);
            let mut low = i128::from(min);
            while low <= i128::from(max) {
                let high = (low + width - 1).min(i128::from(max));
                let users = scores.iter().filter(|score| (low..=high).contains(&i128::from(**score))).count();
                let bound = |score: i128| board.score(score.try_into().expect("between two scores"));
                histogram.push(Exact::from([
                    ("from", bound(low)),
                    ("to", bound(high)),
                    ("users", users.into()),
                ]));
                low = high + 1;
            }
        }
        let percentiles = [1, 5, 10, 25, 50, 75, 90, 95, 99].map(|percent: usize| {
            // The worst score that equals or beats so many.
            let enough = |score: &i64| {
                let beaten = scores.iter().filter(|other| !board.rules.better(**other, *score)).count();
                beaten * 100 >= percent * scores.len()
            };
            let score = scores.iter().rev().copied().find(enough);
            let score = score.map(|score| board.score(score));
            Exact::from([("percentile", (percent as f64).into()), ("score", score.into())])
        });
        let reply = Exact::from([
            ("season", season.name.as_str().into()),
            ("players", scores.len().into()),
            ("min_score", min.map(|score| board.score(score)).into()),
            ("max_score", max.map(|score| board.score(score)).into()),
            ("histogram", histogram.into()),
            ("percentiles", percentiles.to_vec().into()),
        ]);
        Ok((200, reply))
    }

    pub(crate) fn profile(&self, user: &str) -> Result<Exact, Refused> {
        let (name, created_at) = self.profiles.get(user).ok_or((404, "unknown_user"))?;
        let reply = Exact::from([
            ("user_id", user.into()),
            ("name", name.clone().into()),
            ("created_at", time(*created_at)),
        ]);
        Ok(reply)
    }
}
