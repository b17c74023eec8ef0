//! What goes over the wire: the JSON of requests and replies, and how errors of the rules become problems.
//!
//! Scores are exact: they are written and read as JSON numbers by their digits, never through floating point.

mod boards;
mod history;
mod snapshots;

use axum::http::StatusCode;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use standings_boards::records::UserRecord;
use standings_boards::{Counted, Error, List, Lookup, Row, Spread, UserStanding, points};
use standings_table::{Error as TableError, Text};
use utoipa::ToSchema;

use super::error::{Code, Problem};

pub(crate) use boards::{BoardReply, BoardsReply, RulesBody, SeasonReply, SeasonsReply};
pub(crate) use history::{HistoryReply, UserBestReply, UserPlaysReply, UserSeasonsReply, UsersReply};
pub(crate) use snapshots::{OfficialReply, SnapshotBody, SnapshotReply, SnapshotScoresReply, SnapshotsReply};

/// A score with its board's decimals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Score {
    score: i64,
    decimals: u8,
}

impl Score {
    fn new(score: i64, decimals: u8) -> Self {
        Self { score, decimals }
    }
}

impl Serialize for Score {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.decimals == 0 {
            return serializer.serialize_i64(self.score);
        }
        let raw = RawValue::from_string(points::format(self.score, self.decimals));
        raw.map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

/// Points as the caller wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Points(pub(crate) Text);

impl<'de> Deserialize<'de> for Points {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = raw.get();
        if !text.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
            return Err(D::Error::custom("must be a number"));
        }
        Ok(Self(text.into()))
    }
}

/// A play.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlayBody {
    /// Who played: your own id of the user, 1 to 64 bytes of printable text without `#` and `/`.
    #[schema(example = "ada")]
    pub(crate) user_id: String,
    /// What they scored, with at most as many digits behind the point as the board has decimals.
    #[schema(value_type = f64, example = 10)]
    pub(crate) points: Points,
    /// Your own id of the play: sent again, it counts once. Without one, one is made.
    #[schema(example = "match-8812")]
    pub(crate) play_id: Option<String>,
    /// When it was played, if not now.
    #[schema(example = "2026-11-13T10:00:00Z")]
    pub(crate) played_at: Option<String>,
}

/// A play that counts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlayReply {
    /// Who.
    pub(crate) user_id: String,
    /// The score after the play.
    #[schema(value_type = f64)]
    pub(crate) score: Score,
    /// The user's rank now, from 1.
    pub(crate) rank: Option<u64>,
    /// The user's rank before the play; null if they had none.
    pub(crate) previous_rank: Option<u64>,
    /// The season it counts for.
    #[schema(example = "2026-11")]
    pub(crate) season: String,
    /// The play's id.
    pub(crate) play_id: String,
    /// Whether it had counted before: nothing was added now.
    pub(crate) duplicate: bool,
    /// Whether it made the score better.
    pub(crate) improved: bool,
}

impl From<Counted> for PlayReply {
    fn from(counted: Counted) -> Self {
        Self {
            user_id: counted.user.to_string(),
            score: Score::new(counted.score, counted.decimals),
            rank: counted.rank,
            previous_rank: counted.previous_rank,
            season: counted.season.to_string(),
            play_id: counted.play_id.to_string(),
            duplicate: counted.duplicate,
            improved: counted.improved,
        }
    }
}

/// Up to 1,000 plays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchBody {
    /// The plays. One that is refused does not keep the others from counting.
    #[schema(value_type = Vec<PlayBody>)]
    pub(crate) plays: Vec<Box<RawValue>>,
}

/// What became of each play.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchReply {
    /// In the order of the request: a counted play, or a problem.
    pub(crate) results: Vec<BatchResult>,
}

/// A counted play, or a problem.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum BatchResult {
    /// It counts.
    Counted(PlayReply),
    /// It does not.
    #[schema(value_type = ProblemBody)]
    Refused(Problem),
}

/// A user with name, rank and score.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StandingRow {
    /// Who.
    #[schema(value_type = String)]
    pub(crate) user_id: Text,
    /// Their name; null if they have none.
    #[schema(value_type = Option<String>)]
    pub(crate) user_name: Option<std::sync::Arc<str>>,
    /// Their rank, from 1.
    pub(crate) rank: u64,
    /// Their score.
    #[schema(value_type = f64)]
    pub(crate) score: Score,
}

fn row(row: Row, decimals: u8) -> StandingRow {
    StandingRow {
        user_id: row.user,
        user_name: row.name,
        rank: row.rank,
        score: Score::new(row.score, decimals),
    }
}

/// A list of users, best first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ListReply {
    /// The users.
    pub(crate) data: Vec<StandingRow>,
    /// How many users the whole list has: those within the scores asked for.
    pub(crate) total: u64,
    /// How many users have a score in the season.
    pub(crate) players: u64,
    /// The season.
    #[schema(example = "2026-11")]
    pub(crate) season: String,
    /// What brings the next page; null on the last one.
    pub(crate) next_cursor: Option<String>,
}

impl From<List> for ListReply {
    fn from(list: List) -> Self {
        Self {
            data: list.rows.into_iter().map(|each| row(each, list.decimals)).collect(),
            total: list.total,
            players: list.players,
            season: list.season.to_string(),
            next_cursor: list.next_cursor,
        }
    }
}

/// One user.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserReply {
    /// The user among all.
    pub(crate) user_info: UserInfo,
}

/// One user among all.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserInfo {
    #[serde(flatten)]
    row: StandingRow,
    /// How many percent of all users they equal or beat: 100 for the best.
    pub(crate) percentile: f64,
    /// How many users have a score in the season.
    pub(crate) players: u64,
    /// The season.
    #[schema(example = "2026-11")]
    pub(crate) season: String,
    /// When they reached the score.
    pub(crate) reached_at: String,
}

impl From<UserStanding> for UserReply {
    fn from(standing: UserStanding) -> Self {
        let reached_at = standings_boards::format_us(standing.row.reached_at);
        // A thousandth of a percent is finer than anyone reads, and spares fifteen digits.
        let percentile = (standing.percentile * 1_000.0).round() / 1_000.0;
        Self {
            user_info: UserInfo {
                row: row(standing.row, standing.decimals),
                percentile,
                players: standing.players,
                season: standing.season.to_string(),
                reached_at,
            },
        }
    }
}

/// Whom to look up.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LookupBody {
    /// Up to 1,000 users.
    pub(crate) user_ids: Vec<String>,
}

/// Several users.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LookupReply {
    /// Those who have a score, in the order asked.
    pub(crate) data: Vec<StandingRow>,
    /// Those who have none.
    pub(crate) missing: Vec<String>,
    /// How many users have a score in the season.
    pub(crate) players: u64,
    /// The season.
    #[schema(example = "2026-11")]
    pub(crate) season: String,
}

impl From<Lookup> for LookupReply {
    fn from(found: Lookup) -> Self {
        Self {
            data: found.rows.into_iter().map(|each| row(each, found.decimals)).collect(),
            missing: found.missing.iter().map(ToString::to_string).collect(),
            players: found.players,
            season: found.season.to_string(),
        }
    }
}

/// How the scores are spread.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DistributionReply {
    /// The season.
    #[schema(example = "2026-11")]
    pub(crate) season: String,
    /// How many users have a score in it.
    pub(crate) players: u64,
    /// The lowest score; null if there is none.
    #[schema(value_type = Option<f64>)]
    pub(crate) min_score: Option<Score>,
    /// The highest score.
    #[schema(value_type = Option<f64>)]
    pub(crate) max_score: Option<Score>,
    /// Users by score, lowest scores first, in parts of the same width.
    pub(crate) histogram: Vec<HistogramBucket>,
    /// Scores by percentile: who has it equals or beats so many percent of all users.
    pub(crate) percentiles: Vec<Percentile>,
}

/// Users with a score in a range.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistogramBucket {
    /// The lowest score of the range.
    #[schema(value_type = f64)]
    pub(crate) from: Score,
    /// The highest score of the range, included.
    #[schema(value_type = f64)]
    pub(crate) to: Score,
    /// How many users.
    pub(crate) users: u64,
}

/// The score at a percentile.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Percentile {
    /// How many percent of all users it equals or beats.
    pub(crate) percentile: f64,
    /// The score; null if there are no users.
    #[schema(value_type = Option<f64>)]
    pub(crate) score: Option<Score>,
}

impl From<Spread> for DistributionReply {
    fn from(spread: Spread) -> Self {
        let score = |score| Score::new(score, spread.decimals);
        let percentiles = standings_boards::PERCENTILES.iter().zip(spread.distribution.quantiles);
        Self {
            season: spread.season.to_string(),
            players: spread.distribution.players,
            min_score: spread.distribution.span.map(|span| score(span.min)),
            max_score: spread.distribution.span.map(|span| score(span.max)),
            histogram: spread
                .distribution
                .histogram
                .iter()
                .map(|bucket| HistogramBucket {
                    from: score(bucket.range.min),
                    to: score(bucket.range.max),
                    users: bucket.users,
                })
                .collect(),
            percentiles: percentiles
                .map(|(percentile, found)| Percentile { percentile: *percentile, score: found.map(score) })
                .collect(),
        }
    }
}

/// A user's profile.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProfileBody {
    /// The name that others see; null for none. Left out, PATCH leaves it as it is and PUT takes it away.
    #[serde(default, deserialize_with = "boards::present")]
    #[schema(value_type = Option<String>, example = "Ada")]
    pub(crate) name: Option<Option<String>>,
}

/// A user's profile.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProfileReply {
    user_id: String,
    /// The name that others see; null if they have none.
    name: Option<String>,
    /// When the profile was made.
    created_at: String,
}

impl From<UserRecord> for ProfileReply {
    fn from(record: UserRecord) -> Self {
        Self {
            user_id: record.user.to_string(),
            name: record.name,
            created_at: standings_boards::format_us(record.created_at),
        }
    }
}

/// A refusal, as RFC 9457 has it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// Names the kind of problem.
    r#type: String,
    /// The same for all problems of this code.
    title: String,
    /// The HTTP status.
    status: u16,
    /// What happened this time.
    detail: String,
    /// For programs: never changes its meaning.
    code: String,
    /// What to look for in the server's log.
    request_id: Option<String>,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let code = match &error {
            Error::InvalidId { .. } => Code::InvalidId,
            Error::InvalidPoints { .. } | Error::PointsTooLarge => Code::InvalidPoints,
            Error::PointsOutOfBounds { .. } => Code::PointsOutOfBounds,
            Error::ScoreOverflow => Code::ScoreOverflow,
            Error::PlayedInFuture { .. } => Code::PlayedInFuture,
            Error::InvalidTime { .. } => Code::InvalidTime,
            Error::PlayIdReused { .. } => Code::PlayIdReused,
            Error::TooMany { .. } => Code::TooMany,
            Error::InvalidRules { .. } => Code::InvalidRules,
            Error::RuleFixed { .. } => Code::RuleFixed,
            Error::UnknownBoard { .. } => Code::UnknownBoard,
            Error::BoardBeingDeleted { .. } => Code::BoardBeingDeleted,
            Error::DefaultBoardStays => Code::DefaultBoardStays,
            Error::InvalidSeason { .. } => Code::InvalidSeason,
            Error::UnknownSeason { .. } => Code::UnknownSeason,
            Error::SeasonClosed { .. } => Code::SeasonClosed,
            Error::UnknownSnapshot { .. } => Code::UnknownSnapshot,
            Error::InvalidSnapshot { .. } => Code::InvalidSnapshot,
            Error::SnapshotExists { .. } => Code::SnapshotExists,
            Error::SnapshotNotReady { .. } => Code::SnapshotNotReady,
            Error::UnknownUser { .. } => Code::UnknownUser,
            Error::NoEntry { .. } => Code::NoEntry,
            Error::InvalidProfile { .. } => Code::InvalidProfile,
            Error::InvalidQuestion { .. } => Code::InvalidQuery,
            Error::InvalidCursor { .. } => Code::InvalidCursor,
            Error::UnknownKey { .. } => Code::UnknownKey,
            Error::NotReady { .. } => Code::NotReady,
            Error::ShuttingDown => Code::ShuttingDown,
            Error::Contended
            | Error::Background { .. }
            | Error::Table(TableError::Throttled { .. } | TableError::Conflict) => Code::Busy,
            Error::Table(TableError::OutcomeUnknown { .. }) => Code::OutcomeUnknown,
            Error::Table(TableError::WritesRefused { .. } | TableError::DiskFull { .. }) => {
                // The path of the folder is the operator's business.
                tracing::error!(%error, "the table takes no writes");
                return Problem::plain(Code::WritesRefused).retry_after_seconds(30);
            }
            _ => return Problem::internal(error),
        };
        let retry = error.retry_after();
        let problem = Problem::new(code, error.to_string());
        match retry {
            Some(wait) => problem.retry_after_seconds(wait.as_secs().max(1)),
            None if code.status() == StatusCode::SERVICE_UNAVAILABLE => problem.retry_after_seconds(1),
            None => problem,
        }
    }
}
