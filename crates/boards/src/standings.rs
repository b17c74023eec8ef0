//! Reading: the top, pages, one user, those around them, several at once, how scores are spread.
//!
//! Live seasons are answered by the ranking. A season of this moment that nobody has played in yet is empty, not unknown.

use std::sync::Arc;

use rank_tree::ScoreRange;
use standings_table::{Query, Text};

use crate::cursor;
use crate::error::{Error, Result};
use crate::ids::{BoardId, UserId};
use crate::points;
use crate::ranking::{Page, PageRequest, Placed, SeasonKey, Start};
use crate::season::Season;
use crate::service::{Board, Boards, Live, Shared, State};

/// The most users in one page.
pub const PAGE_USERS_MAX: usize = 1_000;
/// The most users in one look-up.
pub const LOOKUP_USERS_MAX: usize = 1_000;
/// The most parts of a histogram.
pub const HISTOGRAM_BUCKETS_MAX: usize = 1_000;
/// The quantiles a distribution tells, in percent.
pub const PERCENTILES: [f64; 9] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0];

/// A user with name, score and rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Who.
    pub user: Text,
    /// Their name, if they have one.
    pub name: Option<Arc<str>>,
    /// Their rank, from 1.
    pub rank: u64,
    /// Their score.
    pub score: i64,
    /// When they reached it.
    pub reached_at: i64,
}

/// What list is asked for.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// The season; the one of this moment if it is not said.
    pub season: Option<String>,
    /// How many users; 10 if it is not said.
    pub limit: Option<usize>,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// The place to begin at, from 1.
    pub from_rank: Option<u64>,
    /// The lowest score, as the caller wrote it.
    pub min_score: Option<String>,
    /// The highest score.
    pub max_score: Option<String>,
}

/// A list of users, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The users.
    pub rows: Vec<Row>,
    /// How many the whole list has.
    pub total: u64,
    /// How many users have an entry in the season.
    pub players: u64,
    /// The season.
    pub season: Season,
    /// What brings the next page.
    pub next_cursor: Option<String>,
    /// The board's decimals.
    pub decimals: u8,
}

/// One user among all.
#[derive(Clone, Debug, PartialEq)]
pub struct UserStanding {
    /// The user.
    pub row: Row,
    /// How many percent of all users they equal or beat.
    pub percentile: f64,
    /// How many users have an entry in the season.
    pub players: u64,
    /// The season.
    pub season: Season,
    /// The board's decimals.
    pub decimals: u8,
}

/// Several users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Those who have an entry, in the order asked.
    pub rows: Vec<Row>,
    /// Those who have none.
    pub missing: Vec<UserId>,
    /// How many users have an entry in the season.
    pub players: u64,
    /// The season.
    pub season: Season,
    /// The board's decimals.
    pub decimals: u8,
}

/// How the scores of a season are spread.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// The ranking's answer.
    pub distribution: crate::ranking::Distribution,
    /// The season.
    pub season: Season,
    /// The board's decimals.
    pub decimals: u8,
}

/// A season that was asked for: with entries, or still empty.
struct Asked {
    season: Season,
    live: Option<Arc<Live>>,
    state: Arc<State>,
}

impl Boards {
    /// A page of the list: the top, from a rank on, after a cursor, within scores.
    ///
    /// # Errors
    /// [`Error::UnknownBoard`], [`Error::UnknownSeason`], [`Error::InvalidCursor`], [`Error::InvalidQuestion`], [`Error::NotReady`].
    pub async fn list(&self, board: &BoardId, request: &ListRequest) -> Result<List> {
        let asked = self.shared.asked(board, request.season.as_deref())?;
        let rules = &asked.state.record.rules;
        let key = SeasonKey { board: board.clone(), season: asked.season.clone() };
        let limit = request.limit.unwrap_or(10);
        if !(1..=PAGE_USERS_MAX).contains(&limit) {
            return invalid("limit", format!("must be 1 to {PAGE_USERS_MAX}"));
        }
        let start = match (&request.cursor, request.from_rank) {
            (Some(_), Some(_)) => return invalid("from_rank", "cannot be combined with cursor".to_owned()),
            (Some(text), None) => Start::After(cursor::decode(&key, text)?),
            (None, Some(0)) => return invalid("from_rank", "must be 1 or more".to_owned()),
            (None, Some(rank)) => Start::Position(rank - 1),
            (None, None) => Start::Position(0),
        };
        let score = |field, text: &Option<String>, default| match text {
            None => Ok(default),
            Some(text) => points::parse(text, rules.decimals).map_err(|error| match error {
                Error::InvalidPoints { why } => Error::InvalidQuestion { field, why: why.to_owned() },
                _ => Error::InvalidQuestion { field, why: "must fit into 64 bits".to_owned() },
            }),
        };
        let range = match (&request.min_score, &request.max_score) {
            (None, None) => None,
            (min, max) => Some(ScoreRange {
                min: score("min_score", min, i64::MIN)?,
                max: score("max_score", max, i64::MAX)?,
            }),
        };
        if range.is_some_and(|range| range.min > range.max) {
            return invalid("min_score", "must not be more than max_score".to_owned());
        }
        if range.is_some() && request.from_rank.is_some() {
            return invalid("from_rank", "cannot be combined with min_score or max_score".to_owned());
        }
        let page = match &asked.live {
            Some(live) => {
                let request = PageRequest { start, range, limit, ties: rules.ties };
                self.shared.ranking.page(&live.key, &request).await?
            }
            None => Page::default(),
        };
        let next_cursor = page.more.then(|| page.rows.last()).flatten();
        let next_cursor = next_cursor.map(|last| cursor::encode(&key, &crate::ranking::mark_of(last)));
        let (total, players) = (page.total, page.players);
        Ok(List {
            rows: self.shared.name(page.rows).await?,
            total,
            players,
            season: asked.season,
            next_cursor,
            decimals: rules.decimals,
        })
    }

    /// A number that is another one whenever a list of the board may be another one, and the season it is about.
    ///
    /// # Errors
    /// As [`Boards::list`].
    pub async fn generation(&self, board: &BoardId, season: Option<&str>) -> Result<(Season, u64, u64, i64)> {
        let asked = self.shared.asked(board, season)?;
        let generation = match &asked.live {
            Some(live) => self.shared.ranking.generation(&live.key).await?,
            None => 0,
        };
        Ok((asked.season, generation, self.shared.names.epoch(), asked.state.record.version))
    }

    /// One user.
    ///
    /// # Errors
    /// [`Error::UnknownUser`] if nobody by that id was ever seen, [`Error::NoEntry`] if they have not played here; as [`Boards::list`].
    pub async fn standing(
        &self,
        board: &BoardId,
        user: &UserId,
        season: Option<&str>,
    ) -> Result<UserStanding> {
        let asked = self.shared.asked(board, season)?;
        let ties = asked.state.record.rules.ties;
        let found = match &asked.live {
            Some(live) => self.shared.ranking.standing(&live.key, user.as_str(), ties).await?,
            None => None,
        };
        let Some(found) = found else { return Err(self.shared.absent(board, user, &asked.season).await) };
        let mut rows = self.shared.name(vec![found.placed]).await?;
        Ok(UserStanding {
            row: rows.pop().ok_or(Error::Contended)?,
            percentile: found.not_better as f64 / found.players as f64 * 100.0,
            players: found.players,
            season: asked.season,
            decimals: asked.state.record.rules.decimals,
        })
    }

    /// A user with those above and below; where one side runs out, the other has more.
    ///
    /// # Errors
    /// As [`Boards::standing`].
    pub async fn around(
        &self,
        board: &BoardId,
        user: &UserId,
        above: usize,
        below: usize,
        season: Option<&str>,
    ) -> Result<List> {
        for (field, count) in [("above", above), ("below", below)] {
            if count > PAGE_USERS_MAX / 2 {
                return invalid(field, format!("must be at most {}", PAGE_USERS_MAX / 2));
            }
        }
        let asked = self.shared.asked(board, season)?;
        let ties = asked.state.record.rules.ties;
        let page = match &asked.live {
            Some(live) => self.shared.ranking.around(&live.key, user.as_str(), above, below, ties).await?,
            None => None,
        };
        let Some(page) = page else { return Err(self.shared.absent(board, user, &asked.season).await) };
        Ok(List {
            total: page.total,
            players: page.players,
            rows: self.shared.name(page.rows).await?,
            season: asked.season,
            next_cursor: None,
            decimals: asked.state.record.rules.decimals,
        })
    }

    /// Several users at once.
    ///
    /// # Errors
    /// [`Error::TooMany`]; as [`Boards::list`].
    pub async fn lookup(&self, board: &BoardId, users: Vec<UserId>, season: Option<&str>) -> Result<Lookup> {
        if users.len() > LOOKUP_USERS_MAX {
            return Err(Error::TooMany { what: "user_ids", max: LOOKUP_USERS_MAX });
        }
        // Asked for twice is answered once.
        let mut seen = std::collections::HashSet::new();
        let users: Vec<UserId> = users.into_iter().filter(|user| seen.insert(user.clone())).collect();
        let asked = self.shared.asked(board, season)?;
        let ties = asked.state.record.rules.ties;
        let ids: Vec<&str> = users.iter().map(UserId::as_str).collect();
        let (found, players) = match &asked.live {
            Some(live) => self.shared.ranking.standings_of(&live.key, &ids, ties).await?,
            None => (vec![None; ids.len()], 0),
        };
        let missing = users.iter().zip(&found).filter(|(_, found)| found.is_none());
        let missing = missing.map(|(user, _)| user.clone()).collect();
        Ok(Lookup {
            rows: self.shared.name(found.into_iter().flatten().collect()).await?,
            missing,
            players,
            season: asked.season,
            decimals: asked.state.record.rules.decimals,
        })
    }

    /// How the scores are spread.
    ///
    /// # Errors
    /// As [`Boards::list`].
    pub async fn distribution(
        &self,
        board: &BoardId,
        buckets: usize,
        season: Option<&str>,
    ) -> Result<Spread> {
        if !(1..=HISTOGRAM_BUCKETS_MAX).contains(&buckets) {
            return invalid("buckets", format!("must be 1 to {HISTOGRAM_BUCKETS_MAX}"));
        }
        let asked = self.shared.asked(board, season)?;
        let quantiles: Vec<f64> = PERCENTILES.iter().map(|percent| percent / 100.0).collect();
        let distribution = match &asked.live {
            Some(live) => self.shared.ranking.distribution(&live.key, buckets, &quantiles).await?,
            None => {
                crate::ranking::Distribution { quantiles: vec![None; quantiles.len()], ..Default::default() }
            }
        };
        Ok(Spread { distribution, season: asked.season, decimals: asked.state.record.rules.decimals })
    }
}

impl Shared {
    fn asked(&self, board: &BoardId, season: Option<&str>) -> Result<Asked> {
        let board = self.find(board)?;
        let state = board.state();
        if state.record.deleted_users.is_some() {
            return Err(Error::BoardBeingDeleted { board: board.id.clone() });
        }
        match season {
            None => {
                let now = self.clock.now_us();
                if let Some(live) = board.recent(now) {
                    return Ok(Asked { season: live.span.season.clone(), live: Some(live), state });
                }
                let season = state.calendar.season_at(now)?.season;
                Ok(Asked { live: board.live_named(&season), season, state })
            }
            Some(name) => self.asked_by_name(&board, state, name),
        }
    }

    fn asked_by_name(&self, board: &Board, state: Arc<State>, name: &str) -> Result<Asked> {
        let span = state.calendar.season_named(name)?;
        let live = board.live_named(&span.season);
        let now = self.clock.now_us();
        if live.is_none() && !(span.start_us <= now && span.takes_plays(&state.record.rules, now)) {
            return Err(Error::UnknownSeason { board: board.id.clone(), season: name.to_owned() });
        }
        Ok(Asked { season: span.season, live, state })
    }

    /// Why a user has no standing.
    async fn absent(&self, board: &BoardId, user: &UserId, season: &Season) -> Error {
        let anything = self.table.query(&Query::table(format!("USER#{user}")).limit(1)).await;
        match anything {
            Ok(page) if page.items.is_empty() => Error::UnknownUser { user: user.clone() },
            Ok(_) => Error::NoEntry { user: user.clone(), board: board.clone(), season: season.to_string() },
            Err(error) => error.into(),
        }
    }

    async fn name(&self, placed: Vec<Placed>) -> Result<Vec<Row>> {
        let mut unknown = Vec::new();
        let named = |(at, row): (usize, Placed)| Row {
            name: self.names.at_hand(&row.user).unwrap_or_else(|| {
                unknown.push(at);
                None
            }),
            user: row.user,
            rank: row.rank,
            score: row.score,
            reached_at: i64::try_from(row.reached_at).unwrap_or(i64::MAX),
        };
        let mut rows: Vec<Row> = placed.into_iter().enumerate().map(named).collect();
        if !unknown.is_empty() {
            let users: Vec<&str> = unknown.iter().map(|at| rows[*at].user.as_str()).collect();
            let names = self.names.read(&*self.table, &users).await?;
            unknown.into_iter().zip(names).for_each(|(at, name)| rows[at].name = name);
        }
        Ok(rows)
    }
}

fn invalid<T>(field: &'static str, why: String) -> Result<T> {
    Err(Error::InvalidQuestion { field, why })
}
