//! What has been: a user's seasons, their best one, their plays, their days.
//!
//! All of it is in the user's own partition, and read strongly.

use std::collections::BTreeMap;

use jiff::civil::Date;
use standings_table::{Item, Key, Position, Query, SortRange, SortValue};

use crate::cursor;
use crate::error::{Error, Result};
use crate::ids::{BoardId, Label, UserId};
use crate::records::{PlayRecord, SeasonState, SnapshotRow};
use crate::season::Season;
use crate::service::{Board, Boards, Shared};
use crate::standings::{checked_limit, invalid};

/// How a user did in one season.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSeason {
    /// The season.
    pub season: Season,
    /// Where it is in its life.
    pub state: SeasonState,
    /// The user's score.
    pub score: i64,
    /// Their rank: of this moment, or the final one.
    pub rank: u64,
    /// When they reached the score.
    pub reached_at: Option<i64>,
    /// How many users there are, if the season is still kept.
    pub players: Option<u64>,
}

/// Seasons of a user, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSeasons {
    /// The seasons.
    pub seasons: Vec<UserSeason>,
    /// What brings the next page.
    pub next_cursor: Option<String>,
    /// The board's decimals.
    pub decimals: u8,
}

/// A play as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserPlay {
    /// Its id.
    pub play_id: String,
    /// The season it counted for.
    pub season: Season,
    /// What was scored.
    pub points: i64,
    /// When it was played.
    pub played_at: i64,
    /// The score after it.
    pub score: i64,
}

impl UserPlay {
    /// From a row of `Recent`.
    fn from_item(item: &Item) -> Result<Self> {
        let damaged = || crate::records::damaged(item, "it is no play");
        let number = |name| item.number(name).ok_or_else(damaged);
        let (_, _, play_id) = PlayRecord::parts_of(&item.key).ok_or_else(damaged)?;
        Ok(Self {
            play_id: play_id.to_string(),
            season: item.text("season").map(Season::stored).ok_or_else(damaged)?,
            points: number("points")?,
            played_at: number("played_at")?,
            score: number("score_after")?,
        })
    }
}

/// Plays of a user, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserPlays {
    /// The plays.
    pub plays: Vec<UserPlay>,
    /// What brings the next page.
    pub next_cursor: Option<String>,
    /// The board's decimals.
    pub decimals: u8,
}

/// A day of a user, with what is known of it on each board asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserDay {
    /// The day.
    pub date: String,
    /// For each board asked for: score and rank, if there was an entry.
    pub boards: Vec<Option<(i64, u64)>>,
}

/// Days of a user, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserHistory {
    /// The boards, with their decimals.
    pub boards: Vec<(BoardId, u8)>,
    /// The days.
    pub days: Vec<UserDay>,
    /// What brings the next page.
    pub next_cursor: Option<String>,
}

/// Which days are asked for.
#[derive(Clone, Debug, Default)]
pub struct HistoryRequest {
    /// The boards; if none is said, all that take daily snapshots.
    pub boards: Vec<BoardId>,
    /// The first day.
    pub from: Option<String>,
    /// The last day.
    pub to: Option<String>,
    /// How many days; 100 if it is not said.
    pub limit: Option<usize>,
    /// Where the page before ended.
    pub cursor: Option<String>,
}

/// The most boards whose days are merged.
pub const HISTORY_BOARDS_MAX: usize = 20;

impl Boards {
    /// A user's seasons on a board, newest first: running ones with the rank of this moment, finished ones with the final rank.
    ///
    /// # Errors
    /// [`Error::UnknownBoard`], [`Error::InvalidCursor`], [`Error::InvalidQuestion`], [`Error::NotReady`], or what the table says.
    pub async fn user_seasons(
        &self,
        user: &UserId,
        board: &BoardId,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<UserSeasons> {
        let found = self.shared.answering(board)?;
        let limit = checked_limit(limit, 10)?;
        let scope = format!("seasons#{user}#{board}");
        let before = cursor.map(|text| cursor::decode_text(&scope, text)).transpose()?;
        let wanted = |season: &Season| before.as_ref().is_none_or(|before| season.as_str() < before.as_str());
        // Before the snapshots: a season that becomes final in between is then met twice, not never.
        let mut seasons = self.shared.live_seasons_of(&found, user).await?;
        seasons.retain(|season| wanted(&season.season));
        let prefix = SnapshotRow::prefix(board);
        let range = match &before {
            // The one before which to begin sorts behind everything wanted, and is not wanted itself.
            Some(before) => SortRange::Between(
                prefix.as_str().into(),
                SortValue::String(format!("{prefix}{before}").into()),
            ),
            None => SortRange::BeginsWith(prefix.as_str().into()),
        };
        let mut query = Query::table(format!("USER#{user}")).sort(range).backward().limit(limit + 1);
        'pages: loop {
            let page = self.shared.table.query(&query).await?;
            for item in &page.items {
                let Some((_, label)) = SnapshotRow::parts_of(&item.key) else { continue };
                let season = Season::stored(label.as_str());
                let Some(past) = found.snapshots.of_season(&season).filter(|_| wanted(&season)) else {
                    continue;
                };
                if seasons.iter().any(|other| other.season == season) || SnapshotRow::is_kept_best(item) {
                    continue;
                }
                let row = SnapshotRow::from_item(item)?;
                seasons.push(UserSeason {
                    season,
                    state: SeasonState::Final,
                    score: row.score,
                    rank: row.rank,
                    reached_at: Some(row.reached_at),
                    players: Some(past.facts.players),
                });
                if seasons.len() > limit + found.live().len() {
                    break 'pages;
                }
            }
            match page.next {
                Some(next) => query.start_after = Some(next),
                None => break,
            }
        }
        seasons.sort_by(|a, b| b.season.cmp(&a.season));
        let more = seasons.len() > limit;
        seasons.truncate(limit);
        let last = more.then(|| seasons.last()).flatten();
        let next_cursor = last.map(|last| cursor::encode_text(&scope, last.season.as_str()));
        let decimals = found.state().record.rules.decimals;
        Ok(UserSeasons { seasons, next_cursor, decimals })
    }

    /// A user's best season on a board: the best of the finished ones, or a running one that is better.
    ///
    /// # Errors
    /// [`Error::UnknownUser`], [`Error::NoEntry`]; as [`Boards::user_seasons`].
    pub async fn user_best(&self, user: &UserId, board: &BoardId) -> Result<(UserSeason, u8)> {
        let found = self.shared.answering(board)?;
        let order: rank_tree::Order = found.state().record.rules.order.into();
        // Live ones first, for the same reason as above.
        let live = self.shared.live_seasons_of(&found, user).await?;
        let past = self.shared.best_of(user, board).await?;
        let past = past.and_then(|item| {
            let (_, label) = SnapshotRow::parts_of(&item.key)?;
            let season = Season::stored(label.as_str());
            let players = found.snapshots.of_season(&season).map(|past| past.facts.players);
            Some(UserSeason {
                season,
                state: SeasonState::Final,
                score: item.number("best_score")?,
                rank: item.number("final_rank").and_then(|rank| u64::try_from(rank).ok())?,
                reached_at: None,
                players,
            })
        });
        // Of two that are equally good the earlier one is the best: that is when it was reached.
        let best = past.into_iter().chain(live).reduce(|best, other| {
            let better = order.is_better(other.score, best.score)
                // Also if it is the same one: while it is closing, the ranking knows and its row is only half of it.
                || (other.score == best.score && other.season <= best.season);
            if better { other } else { best }
        });
        match best {
            Some(best) => Ok((best, found.state().record.rules.decimals)),
            None => Err(self.shared.absent(board, user, "any season").await),
        }
    }

    /// A user's plays on a board, newest first.
    ///
    /// # Errors
    /// As [`Boards::user_seasons`].
    pub async fn user_plays(
        &self,
        user: &UserId,
        board: &BoardId,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<UserPlays> {
        let found = self.shared.answering(board)?;
        let limit = checked_limit(limit, 10)?;
        let scope = format!("plays#{user}#{board}");
        let mut query = Query::table(format!("USER#{user}"))
            .sort(SortRange::BeginsWith(PlayRecord::recent_prefix(board).into()))
            .backward()
            .limit(limit);
        query.index = Some("Recent".into());
        if let Some(text) = cursor {
            let position = cursor::decode_text(&scope, text)?;
            let (sort, sk) = position.split_once('\n').ok_or(Error::InvalidCursor { why: "is cut short" })?;
            let key = Key::new(format!("USER#{user}"), sk);
            query.start_after = Some(Position { key, sort: Some(SortValue::String(sort.into())) });
        }
        let mut plays = Vec::new();
        let next = loop {
            let page = self.shared.table.query(&query).await?;
            for item in &page.items {
                plays.push(UserPlay::from_item(item)?);
            }
            match page.next {
                Some(next) if plays.len() < limit => {
                    query.limit = Some(limit - plays.len());
                    query.start_after = Some(next);
                }
                next => break next,
            }
        };
        let next_cursor = next.and_then(|next| match next.sort {
            Some(SortValue::String(sort)) => {
                Some(cursor::encode_text(&scope, &format!("{sort}\n{}", next.key.sk)))
            }
            _ => None,
        });
        Ok(UserPlays { plays, next_cursor, decimals: found.state().record.rules.decimals })
    }

    /// A user's days: score and rank in the snapshots of each day, several boards side by side, newest first.
    ///
    /// # Errors
    /// As [`Boards::user_seasons`].
    pub async fn user_history(&self, user: &UserId, request: &HistoryRequest) -> Result<UserHistory> {
        let boards = match request.boards.as_slice() {
            [] => self
                .boards()
                .into_iter()
                .filter(|board| board.takes_days() && board.deleted_users.is_none())
                .map(|r| r.board)
                .collect(),
            boards => boards.to_vec(),
        };
        if boards.len() > HISTORY_BOARDS_MAX {
            return Err(Error::TooMany { what: "boards", max: HISTORY_BOARDS_MAX });
        }
        let limit = checked_limit(request.limit, 100)?;
        let date = |field, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => text
                .parse::<Date>()
                .map(Some)
                .or_else(|_| invalid(field, "must be a day such as 2026-02-21".to_owned())),
        };
        let (from, to) = (date("from", &request.from)?, date("to", &request.to)?);
        if let (Some(from), Some(to)) = (from, to)
            && from > to
        {
            return invalid("from", "must not be after to".to_owned());
        }
        let scope = format!("history#{user}");
        let before = request.cursor.as_deref().map(|text| cursor::decode_text(&scope, text)).transpose()?;
        let mut days: BTreeMap<String, Vec<Option<(i64, u64)>>> = BTreeMap::new();
        let mut decimals = Vec::with_capacity(boards.len());
        for (at, board) in boards.iter().enumerate() {
            let found = self.shared.answering(board)?;
            decimals.push(found.state().record.rules.decimals);
            let wanted = Wanted { from, to, before: before.as_deref(), limit: limit + 1 };
            for (date, score, rank) in self.shared.days_of(&found, user, &wanted).await? {
                days.entry(date).or_insert_with(|| vec![None; boards.len()])[at] = Some((score, rank));
            }
        }
        let more = days.len() > limit;
        let days: Vec<UserDay> =
            days.into_iter().rev().take(limit).map(|(date, boards)| UserDay { date, boards }).collect();
        let last = more.then(|| days.last()).flatten();
        let next_cursor = last.map(|day| cursor::encode_text(&scope, &day.date));
        Ok(UserHistory { boards: boards.into_iter().zip(decimals).collect(), days, next_cursor })
    }
}

/// Which days of a board.
struct Wanted<'a> {
    from: Option<Date>,
    to: Option<Date>,
    before: Option<&'a str>,
    limit: usize,
}

impl Shared {
    /// A board that answers questions.
    fn answering(&self, board: &BoardId) -> Result<std::sync::Arc<Board>> {
        let found = self.find(board)?;
        match found.state().record.deleted_users {
            None => Ok(found),
            Some(_) => Err(Error::BoardBeingDeleted { board: board.clone() }),
        }
    }

    async fn live_seasons_of(&self, board: &Board, user: &UserId) -> Result<Vec<UserSeason>> {
        let ties = board.state().record.rules.ties;
        let mut seasons = Vec::new();
        for live in board.live() {
            let found = match self.ranking.standing(&live.key, user.as_str(), ties).await {
                Ok(found) => found,
                // Final by now: its snapshot tells.
                Err(Error::NotReady { .. }) if board.snapshots.has_season(&live.span.season) => None,
                Err(error) => return Err(error),
            };
            let Some(found) = found else { continue };
            let closing = live.closing.load(std::sync::atomic::Ordering::Acquire);
            seasons.push(UserSeason {
                season: live.span.season.clone(),
                state: if closing { SeasonState::Closing } else { SeasonState::Open },
                score: found.placed.score,
                rank: found.placed.rank,
                reached_at: i64::try_from(found.placed.reached_at).ok(),
                players: Some(found.players),
            });
        }
        Ok(seasons)
    }

    /// Days of one board, newest first: date, score, rank.
    async fn days_of(
        &self,
        board: &Board,
        user: &UserId,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<(String, i64, u64)>> {
        let prefix = SnapshotRow::prefix(&board.id);
        // Dates begin with a digit and end before `:`; a label that is no date is passed over.
        let low = wanted.from.map_or("0".to_owned(), |date| date.to_string());
        let high = wanted.to.map_or(":".to_owned(), |date| date.to_string());
        let high = wanted.before.map_or(high.clone(), |before| high.min(before.to_owned()));
        if low > high {
            return Ok(Vec::new());
        }
        let bound = |label: &str| SortValue::String(format!("{prefix}{label}").into());
        let range = SortRange::Between(bound(&low), bound(&high));
        let mut query = Query::table(format!("USER#{user}")).sort(range).backward().limit(wanted.limit + 1);
        let mut days = Vec::new();
        loop {
            let page = self.table.query(&query).await?;
            for item in &page.items {
                let Some((_, label)) = SnapshotRow::parts_of(&item.key) else { continue };
                let is_day =
                    label.as_str().parse::<Date>().is_ok_and(|date| date.to_string() == label.as_str());
                if !is_day || Some(label.as_str()) == wanted.before || !board.shows(&label) {
                    continue;
                }
                let row = SnapshotRow::from_item(item)?;
                days.push((label.to_string(), row.score, row.rank));
                if days.len() == wanted.limit {
                    return Ok(days);
                }
            }
            match page.next {
                Some(next) => query.start_after = Some(next),
                None => return Ok(days),
            }
        }
    }
}

impl Board {
    /// Whether a snapshot is complete and not on its way out.
    fn shows(&self, label: &Label) -> bool {
        self.snapshots.of_label(label).is_some()
            || self.snapshots.of_season(&Season::stored(label.as_str())).is_some()
    }
}
