//! Reading: the top, pages, one user, those around them, several at once, how scores are spread.
//!
//! Live seasons are answered by the ranking, finished ones by their snapshot. A season of this moment that nobody has played in yet is empty, not
//! unknown. A season may become final between being found and being asked; it is asked for once more then.

use std::sync::Arc;

use rank_tree::{Mark, ScoreRange};
use standings_table::{Query, Text};

use crate::cursor;
use crate::error::{Error, Result};
use crate::ids::{BoardId, UserId};
use crate::past::PastStart;
use crate::points;
use crate::ranking::{PageRequest, Placed, SeasonKey, Start};
use crate::records::SnapshotRow;
use crate::season::Season;
use crate::service::{Boards, Live, Shared, State};
use crate::snapshots::Past;

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

impl ListRequest {
    /// The scores asked for, if any are.
    pub(crate) fn range(&self, decimals: u8) -> Result<Option<ScoreRange>> {
        let score = |field, text: &Option<String>, default| match text {
            None => Ok(default),
            Some(text) => points::parse(text, decimals).map_err(|error| match error {
                Error::InvalidPoints { why } => Error::InvalidQuestion { field, why: why.to_owned() },
                _ => Error::InvalidQuestion { field, why: "must fit into 64 bits".to_owned() },
            }),
        };
        let range = match (&self.min_score, &self.max_score) {
            (None, None) => return Ok(None),
            (min, max) => ScoreRange {
                min: score("min_score", min, i64::MIN)?,
                max: score("max_score", max, i64::MAX)?,
            },
        };
        if range.min > range.max {
            return invalid("min_score", "must not be more than max_score".to_owned());
        }
        Ok(Some(range))
    }
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

/// A season that was asked for.
struct Asked {
    season: Season,
    place: Place,
    state: Arc<State>,
}

/// Where the answers are.
enum Place {
    /// In the ranking.
    Live(Arc<Live>),
    /// In a snapshot.
    Past(Arc<Past>),
    /// Nobody has played yet.
    Empty,
}

/// Asks once more if the season became final meanwhile.
macro_rules! asking {
    ($self:ident, $board:expr, $season:expr, $ask:expr) => {
        match $ask {
            Err(Error::NotReady { .. }) if $self.shared.is_past($board, $season) => $ask,
            answer => answer,
        }
    };
}

impl Boards {
    /// A page of the list: the top, from a rank on, after a cursor, within scores.
    ///
    /// # Errors
    /// [`Error::UnknownBoard`], [`Error::UnknownSeason`], [`Error::InvalidCursor`], [`Error::InvalidQuestion`], [`Error::NotReady`].
    pub async fn list(&self, board: &BoardId, request: &ListRequest) -> Result<List> {
        asking!(self, board, request.season.as_deref(), self.list_once(board, request).await)
    }

    async fn list_once(&self, board: &BoardId, request: &ListRequest) -> Result<List> {
        let asked = self.shared.asked(board, request.season.as_deref())?;
        let rules = &asked.state.record.rules;
        let key = SeasonKey { board: board.clone(), season: asked.season.clone() };
        let limit = checked_limit(request.limit, 10)?;
        let start = match (&request.cursor, request.from_rank) {
            (Some(_), Some(_)) => return invalid("from_rank", "cannot be combined with cursor".to_owned()),
            (Some(text), None) => Start::After(cursor::decode(&key, text)?),
            (None, Some(0)) => return invalid("from_rank", "must be 1 or more".to_owned()),
            (None, Some(rank)) => Start::Position(rank - 1),
            (None, None) => Start::Position(0),
        };
        let range = request.range(rules.decimals)?;
        if range.is_some() && request.from_rank.is_some() {
            return invalid("from_rank", "cannot be combined with min_score or max_score".to_owned());
        }
        let (rows, total, players, last) = match &asked.place {
            Place::Live(live) => {
                let request = PageRequest { start, range, limit, ties: rules.ties };
                let page = self.shared.ranking.page(&live.key, &request).await?;
                let last = page.more.then(|| page.rows.last().map(crate::ranking::mark_of)).flatten();
                (self.shared.name(page.rows).await?, page.total, page.players, last)
            }
            Place::Past(past) => {
                let start = match start {
                    Start::Position(position) => PastStart::Position(position),
                    Start::After(mark) => PastStart::After(mark),
                };
                let page = self.shared.past_page(past, start, range, limit as u64).await?;
                let last = page.more.then(|| page.rows.last().map(mark_of_past)).flatten();
                (page.rows.into_iter().map(Row::from).collect(), page.total, past.facts.players, last)
            }
            Place::Empty => (Vec::new(), 0, 0, None),
        };
        let next_cursor = last.map(|mark| cursor::encode(&key, &mark));
        Ok(List { rows, total, players, season: asked.season, next_cursor, decimals: rules.decimals })
    }

    /// When a season took its last play, if it is final: no answer about it changes any more, names included.
    pub fn finished(&self, board: &BoardId, season: &str) -> Option<i64> {
        match self.shared.asked(board, Some(season)).ok()?.place {
            Place::Past(past) => Some(past.facts.taken_at),
            Place::Live(_) | Place::Empty => None,
        }
    }

    /// A number that is another one whenever a list of the board may be another one, and the season it is about.
    ///
    /// # Errors
    /// As [`Boards::list`].
    pub async fn generation(&self, board: &BoardId, season: Option<&str>) -> Result<(Season, u64, u64, i64)> {
        let asked = self.shared.asked(board, season)?;
        let generation = match &asked.place {
            Place::Live(live) => self.shared.ranking.generation(&live.key).await?,
            // Never changes again, names included: those are of its time.
            Place::Past(past) => {
                return Ok((asked.season, past.facts.taken_at.unsigned_abs() | 1 << 63, 0, 0));
            }
            Place::Empty => 0,
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
        asking!(self, board, season, self.standing_once(board, user, season).await)
    }

    async fn standing_once(
        &self,
        board: &BoardId,
        user: &UserId,
        season: Option<&str>,
    ) -> Result<UserStanding> {
        let asked = self.shared.asked(board, season)?;
        let ties = asked.state.record.rules.ties;
        let found = match &asked.place {
            Place::Live(live) => match self.shared.ranking.standing(&live.key, user.as_str(), ties).await? {
                Some(found) => {
                    let row = self.shared.name(vec![found.placed]).await?.pop();
                    row.map(|row| (row, found.not_better, found.players))
                }
                None => None,
            },
            Place::Past(past) => {
                let players = past.facts.players;
                let row = self.shared.past_row(past, user).await?;
                row.map(|row| (players.saturating_sub(row.better), row))
                    .map(|(not_better, row)| (Row::from(row), not_better, players))
            }
            Place::Empty => None,
        };
        let Some((row, not_better, players)) = found else {
            return Err(self.shared.absent(board, user, &format!("season {}", asked.season)).await);
        };
        Ok(UserStanding {
            row,
            percentile: not_better as f64 / players as f64 * 100.0,
            players,
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
        asking!(self, board, season, self.around_once(board, user, above, below, season).await)
    }

    async fn around_once(
        &self,
        board: &BoardId,
        user: &UserId,
        above: usize,
        below: usize,
        season: Option<&str>,
    ) -> Result<List> {
        let asked = self.shared.asked(board, season)?;
        let ties = asked.state.record.rules.ties;
        let found = match &asked.place {
            Place::Live(live) => {
                match self.shared.ranking.around(&live.key, user.as_str(), above, below, ties).await? {
                    Some(page) => Some((self.shared.name(page.rows).await?, page.players)),
                    None => None,
                }
            }
            Place::Past(past) => {
                let rows = self.shared.past_around(past, user, above as u64, below as u64).await?;
                rows.map(|rows| (rows.into_iter().map(Row::from).collect(), past.facts.players))
            }
            Place::Empty => None,
        };
        let Some((rows, players)) = found else {
            return Err(self.shared.absent(board, user, &format!("season {}", asked.season)).await);
        };
        Ok(List {
            total: players,
            players,
            rows,
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
        asking!(self, board, season, self.lookup_once(board, &users, season).await)
    }

    async fn lookup_once(&self, board: &BoardId, users: &[UserId], season: Option<&str>) -> Result<Lookup> {
        let asked = self.shared.asked(board, season)?;
        let ties = asked.state.record.rules.ties;
        let (found, players): (Vec<Option<Row>>, u64) = match &asked.place {
            Place::Live(live) => {
                let ids: Vec<&str> = users.iter().map(UserId::as_str).collect();
                let (found, players) = self.shared.ranking.standings_of(&live.key, &ids, ties).await?;
                let there: Vec<bool> = found.iter().map(Option::is_some).collect();
                let mut rows = self.shared.name(found.into_iter().flatten().collect()).await?.into_iter();
                (there.into_iter().map(|there| if there { rows.next() } else { None }).collect(), players)
            }
            Place::Past(past) => {
                let rows = self.shared.past_rows_of(past, users).await?;
                (rows.into_iter().map(|row| row.map(Row::from)).collect(), past.facts.players)
            }
            Place::Empty => (vec![None; users.len()], 0),
        };
        let missing = users.iter().zip(&found).filter(|(_, found)| found.is_none());
        let missing = missing.map(|(user, _)| user.clone()).collect();
        Ok(Lookup {
            rows: found.into_iter().flatten().collect(),
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
        asking!(self, board, season, self.distribution_once(board, buckets, season).await)
    }

    async fn distribution_once(
        &self,
        board: &BoardId,
        buckets: usize,
        season: Option<&str>,
    ) -> Result<Spread> {
        let asked = self.shared.asked(board, season)?;
        let quantiles: Vec<f64> = PERCENTILES.iter().map(|percent| percent / 100.0).collect();
        let distribution = match &asked.place {
            Place::Live(live) => self.shared.ranking.distribution(&live.key, buckets, &quantiles).await?,
            Place::Past(past) => self.shared.past_distribution(past, buckets, &quantiles).await?,
            Place::Empty => {
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
        let now = self.clock.now_us();
        let (span, running) = match season {
            None => match board.recent(now) {
                Some(live) => {
                    return Ok(Asked { season: live.span.season.clone(), place: Place::Live(live), state });
                }
                None => (state.calendar.season_at(now)?, true),
            },
            Some(name) => {
                let span = state.calendar.season_named(name)?;
                let running = span.start_us <= now && span.takes_plays(&state.record.rules, now);
                (span, running)
            }
        };
        let season = span.season;
        // Live first: a season is added to the snapshots before it is taken from the live ones.
        let place = match (board.live_named(&season), board.snapshots.of_season(&season)) {
            (Some(live), _) => Place::Live(live),
            (None, Some(past)) => Place::Past(past),
            (None, None) if running => Place::Empty,
            (None, None) => {
                return Err(Error::UnknownSeason { board: board.id.clone(), season: season.to_string() });
            }
        };
        Ok(Asked { season, place, state })
    }

    fn is_past(&self, board: &BoardId, season: Option<&str>) -> bool {
        self.asked(board, season).is_ok_and(|asked| matches!(asked.place, Place::Past(_)))
    }

    /// Why a user has no standing.
    pub(crate) async fn absent(&self, board: &BoardId, user: &UserId, season: &str) -> Error {
        let anything = self.table.query(&Query::table(format!("USER#{user}")).limit(1)).await;
        match anything {
            Ok(page) if page.items.is_empty() => Error::UnknownUser { user: user.clone() },
            Ok(_) => Error::NoEntry { user: user.clone(), board: board.clone(), season: season.to_string() },
            Err(error) => error.into(),
        }
    }

    pub(crate) async fn name(&self, placed: Vec<Placed>) -> Result<Vec<Row>> {
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

impl From<SnapshotRow> for Row {
    fn from(row: SnapshotRow) -> Self {
        Self {
            user: row.user.as_str().into(),
            name: row.name.map(Arc::from),
            rank: row.rank,
            score: row.score,
            reached_at: row.reached_at,
        }
    }
}

pub(crate) fn mark_of_past(row: &SnapshotRow) -> Mark {
    Mark {
        score: row.score,
        reached_at: u64::try_from(row.reached_at).unwrap_or(0),
        user: row.user.to_string(),
    }
}

pub(crate) fn invalid<T>(field: &'static str, why: String) -> Result<T> {
    Err(Error::InvalidQuestion { field, why })
}

/// How many rows a page may have.
pub(crate) fn checked_limit(limit: Option<usize>, default: usize) -> Result<usize> {
    let limit = limit.unwrap_or(default);
    if !(1..=PAGE_USERS_MAX).contains(&limit) {
        return invalid("limit", format!("must be 1 to {PAGE_USERS_MAX}"));
    }
    Ok(limit)
}
