//! Boards and seasons over the wire. Points are in the board's own decimals here, in its smallest unit inside.

use serde::{Deserialize, Deserializer, Serialize};
use standings_boards::records::BoardRecord;
use standings_boards::{Error, Rules, SeasonInfo, format_us, points};
use utoipa::ToSchema;

use super::{Points, Score};

/// Rules of a board. What is left out has its default in PUT, and stays as it is in PATCH.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RulesBody {
    /// How a play changes the score: `sum` (default) adds, `best` keeps the better, `latest` replaces.
    #[schema(value_type = Option<String>, example = "best")]
    score: Option<standings_boards::Fold>,
    /// Which way is up: `high` (default) or `low`.
    #[schema(value_type = Option<String>, example = "high")]
    order: Option<standings_boards::Order>,
    /// Equal scores: `shared` 1,1,3 (default), `dense` 1,1,2, or `first` 1,2,3.
    #[schema(value_type = Option<String>, example = "shared")]
    ties: Option<standings_boards::Ties>,
    /// When the board begins anew: `never` (default), `daily`, `weekly` or `monthly`.
    #[schema(value_type = Option<String>, example = "weekly")]
    resets: Option<standings_boards::Resets>,
    /// The first day of a weekly season; `monday` by default.
    #[schema(value_type = Option<String>, example = "friday")]
    week_starts: Option<standings_boards::Weekday>,
    /// The IANA name of the zone whose midnights count; `UTC` by default.
    #[schema(example = "Asia/Seoul")]
    time_zone: Option<String>,
    /// Digits behind the point, 0 to 9.
    #[schema(example = 0)]
    decimals: Option<u8>,
    /// The least points a play may have; null for no bound.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<f64>)]
    min_points: Option<Option<Points>>,
    /// The most points a play may have; null for no bound.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<f64>, example = 99999)]
    max_points: Option<Option<Points>>,
    /// How many ranks of a snapshot are official; 100 by default.
    official: Option<u32>,
    /// Daily snapshots: `none` (default) or `daily`.
    #[schema(value_type = Option<String>, example = "none")]
    snapshots: Option<standings_boards::Snapshots>,
    /// How many finished seasons are kept; 12 by default.
    keep_seasons: Option<u32>,
    /// How many seconds after a season's end its plays are still taken; 300 by default.
    late_seconds: Option<u32>,
}

/// Tells `null` from what is not there.
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl RulesBody {
    /// The rules that result from these on top of others.
    pub(crate) fn apply(&self, to: &Rules) -> standings_boards::Result<Rules> {
        let decimals = self.decimals.unwrap_or(to.decimals);
        // Checked before points are read with them.
        if decimals > points::DECIMALS_MAX {
            let why = format!("must be 0 to {}", points::DECIMALS_MAX);
            return Err(Error::InvalidRules { field: "decimals", why });
        }
        let read = |field, text: &str| {
            points::parse(text, decimals).map_err(|error| match error {
                Error::InvalidPoints { why } => Error::InvalidRules { field, why: why.to_owned() },
                _ => Error::InvalidRules { field, why: "must fit into 64 bits".to_owned() },
            })
        };
        let bound = |field, new: &Option<Option<Points>>, old: Option<i64>| match new {
            None if decimals == to.decimals => Ok(old),
            // What is left out stays what it is, also where its smallest unit becomes another one.
            None => old.map(|old| read(field, &points::format(old, to.decimals))).transpose(),
            Some(None) => Ok(None),
            Some(Some(text)) => read(field, &text.0).map(Some),
        };
        Ok(Rules {
            score: self.score.unwrap_or(to.score),
            order: self.order.unwrap_or(to.order),
            ties: self.ties.unwrap_or(to.ties),
            resets: self.resets.unwrap_or(to.resets),
            week_starts: self.week_starts.unwrap_or(to.week_starts),
            time_zone: self.time_zone.clone().unwrap_or_else(|| to.time_zone.clone()),
            decimals,
            min_points: bound("min_points", &self.min_points, to.min_points)?,
            max_points: bound("max_points", &self.max_points, to.max_points)?,
            official: self.official.unwrap_or(to.official),
            snapshots: self.snapshots.unwrap_or(to.snapshots),
            keep_seasons: self.keep_seasons.unwrap_or(to.keep_seasons),
            late_seconds: self.late_seconds.unwrap_or(to.late_seconds),
        })
    }
}

/// A board and its rules.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BoardReply {
    /// Its name.
    board: String,
    /// How a play changes the score.
    #[schema(value_type = String)]
    score: standings_boards::Fold,
    /// Which way is up.
    #[schema(value_type = String)]
    order: standings_boards::Order,
    /// How equal scores are ranked.
    #[schema(value_type = String)]
    ties: standings_boards::Ties,
    /// When it begins anew.
    #[schema(value_type = String)]
    resets: standings_boards::Resets,
    /// The first day of a weekly season.
    #[schema(value_type = String)]
    week_starts: standings_boards::Weekday,
    /// The zone whose midnights count.
    time_zone: String,
    /// Digits behind the point.
    decimals: u8,
    /// The least points a play may have.
    #[schema(value_type = Option<f64>)]
    min_points: Option<Score>,
    /// The most points a play may have.
    #[schema(value_type = Option<f64>)]
    max_points: Option<Score>,
    /// How many ranks of a snapshot are official.
    official: u32,
    /// Whether daily snapshots are taken.
    #[schema(value_type = String)]
    snapshots: standings_boards::Snapshots,
    /// How many finished seasons are kept.
    keep_seasons: u32,
    /// How many seconds after a season's end its plays are still taken.
    late_seconds: u32,
    /// When the board was made.
    created_at: String,
    /// `live`, or `deleting` while it is on its way out.
    state: &'static str,
    /// While it is being deleted: how many users' scores and plays are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_users: Option<i64>,
}

impl From<BoardRecord> for BoardReply {
    fn from(record: BoardRecord) -> Self {
        let rules = record.rules;
        let bound = |points: Option<i64>| points.map(|points| Score::new(points, rules.decimals));
        Self {
            board: record.board.to_string(),
            score: rules.score,
            order: rules.order,
            ties: rules.ties,
            resets: rules.resets,
            week_starts: rules.week_starts,
            min_points: bound(rules.min_points),
            max_points: bound(rules.max_points),
            time_zone: rules.time_zone,
            decimals: rules.decimals,
            official: rules.official,
            snapshots: rules.snapshots,
            keep_seasons: rules.keep_seasons,
            late_seconds: rules.late_seconds,
            created_at: format_us(record.created_at),
            state: if record.deleted_users.is_some() { "deleting" } else { "live" },
            deleted_users: record.deleted_users,
        }
    }
}

/// All boards.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BoardsReply {
    /// By name.
    pub(crate) data: Vec<BoardReply>,
}

/// A season.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SeasonReply {
    /// Its name.
    #[schema(example = "2026-11")]
    season: String,
    /// When it begins; null if it always was.
    starts_at: Option<String>,
    /// When it is over; null if it never is.
    ends_at: Option<String>,
    /// `open`, `closing` while everybody's final rank is being written, then `final`: it never changes again.
    state: &'static str,
    /// Whether its plays are still taken: until `late_seconds` after its end, if nobody closes it sooner.
    takes_plays: bool,
    /// How many users have a score in it.
    players: u64,
    /// How far it is, while it is closing.
    closing: Option<ClosingProgress>,
    /// When it took its last play; null while it is open.
    closed_at: Option<String>,
    /// When it became final; null until then.
    final_at: Option<String>,
    /// Whether the entries it had while it was live are gone: they go once it is final.
    swept: bool,
}

/// How far the closing of a season is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClosingProgress {
    /// How many users have their final rank written.
    done: u64,
    /// How many users there are.
    players: u64,
}

impl From<SeasonInfo> for SeasonReply {
    fn from(info: SeasonInfo) -> Self {
        let bound = |time, never| if time == never { None } else { Some(format_us(time)) };
        Self {
            season: info.span.season.to_string(),
            starts_at: bound(info.span.start_us, i64::MIN),
            ends_at: bound(info.span.end_us, i64::MAX),
            state: info.state.as_str(),
            takes_plays: info.takes_plays,
            players: info.players,
            closing: info.done.map(|done| ClosingProgress { done, players: info.players }),
            closed_at: info.closed_at.map(format_us),
            final_at: info.final_at.map(format_us),
            swept: info.swept,
        }
    }
}

/// A board's seasons.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SeasonsReply {
    /// Newest first.
    pub(crate) data: Vec<SeasonReply>,
}
