//! What has been of a user, and users found by their names, over the wire.

use std::sync::Arc;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use standings_boards::records::NameRecord;
use standings_boards::{BoardId, UserHistory, UserPlay, UserPlays, UserSeason, UserSeasons, format_us};
use utoipa::ToSchema;

use super::Score;

/// How a user did in one season.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserSeasonRow {
    /// The season.
    #[schema(example = "2014-05-09")]
    season: String,
    /// `open`, `closing` or `final`.
    state: &'static str,
    /// The user's score.
    #[schema(value_type = f64)]
    score: Score,
    /// Their rank: of this moment, or the final one.
    rank: u64,
    /// How many users have a score in the season; null if the season is no longer kept.
    players: Option<u64>,
    /// When they reached the score, where it is known.
    reached_at: Option<String>,
}

fn season(season: UserSeason, decimals: u8) -> UserSeasonRow {
    UserSeasonRow {
        season: season.season.to_string(),
        state: season.state.as_str(),
        score: Score::new(season.score, decimals),
        rank: season.rank,
        players: season.players,
        reached_at: season.reached_at.map(format_us),
    }
}

/// A user's seasons on a board.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserSeasonsReply {
    /// The board.
    board: String,
    /// Newest first.
    data: Vec<UserSeasonRow>,
    /// What brings the next page; null on the last one.
    next_cursor: Option<String>,
}

impl UserSeasonsReply {
    pub(crate) fn new(board: &BoardId, found: UserSeasons) -> Self {
        Self {
            board: board.to_string(),
            data: found.seasons.into_iter().map(|each| season(each, found.decimals)).collect(),
            next_cursor: found.next_cursor,
        }
    }
}

/// A user's best season on a board.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserBestReply {
    /// The board.
    board: String,
    #[serde(flatten)]
    season: UserSeasonRow,
}

impl UserBestReply {
    pub(crate) fn new(board: &BoardId, best: UserSeason, decimals: u8) -> Self {
        Self { board: board.to_string(), season: season(best, decimals) }
    }
}

/// A play as it is listed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserPlayRow {
    /// The play's id.
    play_id: String,
    /// The season it counted for.
    #[schema(example = "2026-11")]
    season: String,
    /// What was scored.
    #[schema(value_type = f64)]
    points: Score,
    /// The score after it.
    #[schema(value_type = f64)]
    score: Score,
    /// When it was played.
    played_at: String,
}

fn play(play: UserPlay, decimals: u8) -> UserPlayRow {
    UserPlayRow {
        play_id: play.play_id,
        season: play.season.to_string(),
        points: Score::new(play.points, decimals),
        score: Score::new(play.score, decimals),
        played_at: format_us(play.played_at),
    }
}

/// A user's plays on a board.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserPlaysReply {
    /// The board.
    board: String,
    /// Newest first, by the time they were played.
    data: Vec<UserPlayRow>,
    /// What brings the next page; null on the last one.
    next_cursor: Option<String>,
}

impl UserPlaysReply {
    pub(crate) fn new(board: &BoardId, found: UserPlays) -> Self {
        Self {
            board: board.to_string(),
            data: found.plays.into_iter().map(|each| play(each, found.decimals)).collect(),
            next_cursor: found.next_cursor,
        }
    }
}

/// A user's days.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryReply {
    /// Newest first.
    #[schema(value_type = Vec<HistoryDay>)]
    data: Vec<Day>,
    /// What brings the next page; null on the last one.
    next_cursor: Option<String>,
}

/// A day of a user. For each board asked for there are two more fields: `<board>`, the score, and `<board>_rank`; both are null where the
/// user had no score on that day.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes what `Day` writes")]
pub(crate) struct HistoryDay {
    /// The day.
    #[schema(example = "2026-02-21")]
    date: String,
    #[serde(flatten)]
    boards: std::collections::BTreeMap<String, Option<f64>>,
}

/// A day, with the fields of each board in the order in which the boards were asked for.
#[derive(Debug)]
struct Day {
    date: String,
    boards: Vec<(Arc<[String; 2]>, Standing)>,
}

/// Score and rank, if there was an entry.
type Standing = Option<(Score, u64)>;

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + 2 * self.boards.len()))?;
        map.serialize_entry("date", &self.date)?;
        for (names, found) in &self.boards {
            let [score, rank] = &**names;
            map.serialize_entry(score, &found.map(|(score, _)| score))?;
            map.serialize_entry(rank, &found.map(|(_, rank)| rank))?;
        }
        map.end()
    }
}

impl HistoryReply {
    /// What the two fields of a board are called.
    pub(crate) fn names(board: &BoardId) -> [String; 2] {
        [board.to_string(), format!("{board}_rank")]
    }
}

impl From<UserHistory> for HistoryReply {
    fn from(history: UserHistory) -> Self {
        let boards: Vec<_> = history
            .boards
            .iter()
            .map(|(board, decimals)| (Arc::new(Self::names(board)), *decimals))
            .collect();
        let day = |day: standings_boards::UserDay| {
            let found = day.boards.into_iter().zip(&boards).map(|(found, (names, decimals))| {
                (names.clone(), found.map(|(score, rank)| (Score::new(score, *decimals), rank)))
            });
            Day { date: day.date, boards: found.collect() }
        };
        Self { data: history.days.into_iter().map(day).collect(), next_cursor: history.next_cursor }
    }
}

/// A user with their name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NamedUser {
    user_id: String,
    user_name: String,
}

/// Users found by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsersReply {
    /// The users: those of a name by id, those of a prefix by name.
    data: Vec<NamedUser>,
}

impl From<Vec<NameRecord>> for UsersReply {
    fn from(found: Vec<NameRecord>) -> Self {
        let named =
            |record: NameRecord| NamedUser { user_id: record.user.to_string(), user_name: record.name };
        Self { data: found.into_iter().map(named).collect() }
    }
}
