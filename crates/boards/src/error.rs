//! What can go wrong, by meaning. Each message says what to do next; callers match variants.

use std::time::Duration;

use crate::ids::{BoardId, UserId};

/// What the functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something was not done. Unless said otherwise, nothing was changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An id that cannot be one.
    #[error("{what} {why}")]
    InvalidId {
        /// Which id.
        what: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Points that are not a number the board takes.
    #[error("points {why}")]
    InvalidPoints {
        /// What is wrong with them.
        why: &'static str,
    },
    /// More than 64 bits.
    #[error(
        "points must lie between -9223372036854775808 and 9223372036854775807, counted in the board's smallest unit"
    )]
    PointsTooLarge,
    /// Outside the board's own bounds.
    #[error("points must be {}", bounds(min.as_deref(), max.as_deref()))]
    PointsOutOfBounds {
        /// The least the board takes, as a caller would write it.
        min: Option<String>,
        /// The most the board takes.
        max: Option<String>,
    },
    /// The sum of a user's plays would not fit into 64 bits.
    #[error("the user's score would no longer fit into 64 bits; the play was not counted")]
    ScoreOverflow,
    /// A play from the future.
    #[error(
        "played_at is in the future ({played_at}); check the clocks of the game server and of this machine"
    )]
    PlayedInFuture {
        /// What the caller said.
        played_at: String,
    },
    /// A time that cannot be.
    #[error("{what} must be a time such as 2026-11-13T10:00:00Z, from 1970 on")]
    InvalidTime {
        /// Which field.
        what: &'static str,
    },
    /// The same id with other points: one of the two would be lost without a word.
    #[error(
        "play_id {play_id} of this user was already used for a play of {points} points; use a new play_id for a new play"
    )]
    PlayIdReused {
        /// The id.
        play_id: String,
        /// The points of the first play.
        points: String,
    },
    /// Too much at once.
    #[error("at most {max} {what} at once; send the rest separately")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are allowed.
        max: usize,
    },

    /// Rules that make no sense.
    #[error("{field} {why}")]
    InvalidRules {
        /// Which rule.
        field: &'static str,
        /// What is allowed.
        why: String,
    },
    /// Rules that cannot change any more.
    #[error(
        "{field} cannot change once the board has plays, because the scores there are would mean something else; \
         make another board, or delete this one first"
    )]
    RuleFixed {
        /// Which rule.
        field: &'static str,
    },
    /// There is no such board.
    #[error("there is no board {board}; PUT /v1/boards/{board} makes one")]
    UnknownBoard {
        /// The name asked for.
        board: BoardId,
    },
    /// The board is on its way out.
    #[error("board {board} is being deleted; wait until GET /v1/boards/{board} answers 404")]
    BoardBeingDeleted {
        /// The board.
        board: BoardId,
    },
    /// The default board is always there.
    #[error("the board `default` cannot be deleted")]
    DefaultBoardStays,
    /// A season name that this board cannot have.
    #[error("season {season} is none of this board's: {why}")]
    InvalidSeason {
        /// The name asked for.
        season: String,
        /// How they look.
        why: &'static str,
    },
    /// A season nobody played in.
    #[error("board {board} has no season {season}; GET /v1/boards/{board}/seasons lists those it has")]
    UnknownSeason {
        /// The board.
        board: BoardId,
        /// The season asked for.
        season: String,
    },
    /// Too late.
    #[error("season {season} of board {board} is closed; its last plays were accepted until {until}")]
    SeasonClosed {
        /// The board.
        board: BoardId,
        /// The season the play belongs to.
        season: String,
        /// Until when.
        until: String,
    },

    /// There is no such snapshot.
    #[error("board {board} has no snapshot {label}; GET /v1/boards/{board}/snapshots lists those it has")]
    UnknownSnapshot {
        /// The board.
        board: BoardId,
        /// The label asked for.
        label: String,
    },
    /// A label that cannot be chosen, or a snapshot that cannot be changed now.
    #[error("label {why}")]
    InvalidSnapshot {
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is one of that name.
    #[error("board {board} has a snapshot {label} already; choose another label")]
    SnapshotExists {
        /// The board.
        board: BoardId,
        /// The label.
        label: String,
    },
    /// It is being taken.
    #[error("snapshot {label} is being taken: {done} of {players} users are copied; try again in a moment")]
    SnapshotNotReady {
        /// The label.
        label: String,
        /// Users copied.
        done: u64,
        /// All users.
        players: u64,
    },

    /// Nobody by that id has ever been seen.
    #[error("there is no user {user}")]
    UnknownUser {
        /// The id asked for.
        user: UserId,
    },
    /// The user is known, but has not played here.
    #[error("user {user} has no score on board {board} in {season}")]
    NoEntry {
        /// The user.
        user: UserId,
        /// The board.
        board: BoardId,
        /// The season, in words.
        season: String,
    },
    /// A profile that cannot be.
    #[error("{field} {why}")]
    InvalidProfile {
        /// Which field.
        field: &'static str,
        /// What is allowed.
        why: &'static str,
    },
    /// A question that makes no sense.
    #[error("{field} {why}")]
    InvalidQuestion {
        /// Which parameter.
        field: &'static str,
        /// What is allowed.
        why: String,
    },
    /// A cursor that was made for something else, or not by us.
    #[error("this cursor {why}; begin again without one")]
    InvalidCursor {
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no such key.
    #[error("there is no key {id}; `standings key list` shows those there are")]
    UnknownKey {
        /// The id asked for.
        id: String,
    },

    /// The ranking is still being loaded.
    #[error("the ranking of board {board} is still being loaded; /readyz says when it is complete")]
    NotReady {
        /// The board.
        board: BoardId,
    },
    /// Others kept changing the same thing.
    #[error("others kept changing the same item; try again")]
    Contended,
    /// The table cannot take it just now.
    #[error("{0}")]
    Table(#[from] standings_table::Error),
    /// An item does not look like anything we write.
    #[error("damaged item {key}: {why}; restore the table from a backup")]
    Damaged {
        /// The item's key.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file of ours could not be read or written.
    #[error("{doing} failed: {why}")]
    File {
        /// What was being done, with the path.
        doing: String,
        /// What the system said.
        why: String,
    },
    /// Work in the background could not be done.
    #[error("work in the background stopped: {why}; it is tried again")]
    Background {
        /// What the system said.
        why: String,
    },
    /// The server is going down.
    #[error("the server is shutting down; try again on another one or in a moment")]
    ShuttingDown,
}

impl Error {
    /// How long to wait before the same request may succeed, if it may.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NotReady { .. } | Self::SnapshotNotReady { .. } | Self::ShuttingDown => {
                Some(Duration::from_secs(1))
            }
            Self::Contended => Some(Duration::from_millis(100)),
            Self::Table(standings_table::Error::Throttled { retry_after }) => Some(*retry_after),
            Self::Table(standings_table::Error::Conflict) => Some(Duration::from_millis(100)),
            Self::Table(standings_table::Error::OutcomeUnknown { .. }) => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

fn bounds(min: Option<&str>, max: Option<&str>) -> String {
    match (min, max) {
        (Some(min), Some(max)) => format!("between {min} and {max} on this board"),
        (Some(min), None) => format!("at least {min} on this board"),
        (None, Some(max)) => format!("at most {max} on this board"),
        (None, None) => "a number".to_owned(),
    }
}
