//! Snapshots over the wire.

use serde::{Deserialize, Serialize};
use standings_boards::records::SnapshotRow;
use standings_boards::{BoardId, SnapshotInfo, SnapshotList, format_us};
use utoipa::ToSchema;

use super::Score;

/// A snapshot to be taken.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotBody {
    /// What to call it: ASCII letters, digits, `.`, `_` and `-`, and not as days and seasons are called. Without one it is called by the time.
    #[schema(example = "before-the-patch")]
    pub(crate) label: Option<String>,
}

/// A snapshot.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotReply {
    /// Its label: a day, a finished season, or what somebody chose.
    #[schema(example = "2026-02-21")]
    label: String,
    /// The season it is a copy of.
    #[schema(example = "all")]
    season: String,
    /// `taking` until it is complete, then `complete`: it never changes again.
    state: &'static str,
    /// The midnight it was due at; null if it is not one of a day.
    due_at: Option<String>,
    /// The moment it shows: later than `due_at` if the server was down at midnight.
    taken_at: String,
    /// When it was complete; null until then.
    finished_at: Option<String>,
    /// How many users it has.
    players: u64,
    /// How many of them are copied.
    done: u64,
    /// How many places are official.
    official: u32,
}

impl From<SnapshotInfo> for SnapshotReply {
    fn from(info: SnapshotInfo) -> Self {
        Self {
            label: info.label.to_string(),
            season: info.season,
            state: if info.finished_at.is_some() { "complete" } else { "taking" },
            due_at: info.due_at.map(format_us),
            taken_at: format_us(info.taken_at),
            finished_at: info.finished_at.map(format_us),
            players: info.players,
            done: info.done,
            official: info.official,
        }
    }
}

/// A board's snapshots.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotsReply {
    /// Newest first. Finished seasons are listed as seasons.
    pub(crate) data: Vec<SnapshotReply>,
}

/// A user in a snapshot.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotUser {
    /// Who.
    user_id: String,
    /// Their name at that time; null if they had none.
    user_name: Option<String>,
    /// Their rank, from 1, by the board's ties.
    rank: u64,
    /// Their place in the list, from 1, counting everyone.
    place: u64,
    /// Their score.
    #[schema(value_type = f64)]
    score: Score,
}

fn user(row: SnapshotRow, decimals: u8) -> SnapshotUser {
    SnapshotUser {
        user_id: row.user.to_string(),
        user_name: row.name,
        rank: row.rank,
        place: row.place,
        score: Score::new(row.score, decimals),
    }
}

/// The official places of a snapshot.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OfficialReply {
    /// The board.
    board: String,
    /// The snapshot's label.
    #[schema(example = "2026-02-21")]
    label: String,
    /// The moment it shows.
    taken_at: String,
    /// The midnight it was due at; null if it is not one of a day.
    due_at: Option<String>,
    /// How many users the snapshot has.
    players: u64,
    /// The users of the official places, best first.
    data: Vec<SnapshotUser>,
}

impl OfficialReply {
    pub(crate) fn new(board: &BoardId, list: SnapshotList) -> Self {
        Self {
            board: board.to_string(),
            label: list.snapshot.label.to_string(),
            taken_at: format_us(list.snapshot.taken_at),
            due_at: list.snapshot.due_at.map(format_us),
            players: list.snapshot.players,
            data: list.rows.into_iter().map(|row| user(row, list.decimals)).collect(),
        }
    }
}

/// A page of a snapshot.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotScoresReply {
    /// The board.
    board: String,
    /// The snapshot's label.
    #[schema(example = "2026-02-21")]
    label: String,
    /// The moment it shows.
    taken_at: String,
    /// The midnight it was due at; null if it is not one of a day.
    due_at: Option<String>,
    /// How many users the snapshot has.
    players: u64,
    /// How many users the whole list has: those within the scores asked for.
    total: u64,
    /// The users, best first.
    data: Vec<SnapshotUser>,
    /// What brings the next page; null on the last one.
    next_cursor: Option<String>,
}

impl SnapshotScoresReply {
    pub(crate) fn new(board: &BoardId, list: SnapshotList) -> Self {
        Self {
            board: board.to_string(),
            label: list.snapshot.label.to_string(),
            taken_at: format_us(list.snapshot.taken_at),
            due_at: list.snapshot.due_at.map(format_us),
            players: list.snapshot.players,
            total: list.total,
            data: list.rows.into_iter().map(|row| user(row, list.decimals)).collect(),
            next_cursor: list.next_cursor,
        }
    }
}
