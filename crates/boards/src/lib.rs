//! The rules of Standings: boards, seasons, plays, entries, standings, users; and the rankings that answer "where".
//!
//! ```text
//! submit ──▶ plays ──▶ table (play + entry, one transaction) ──▶ ranking ──▶ answer
//! read   ──▶ standings ──▶ ranking ──▶ names
//! start  ──▶ recovery ──▶ checkpoint + play log, or all entries ──▶ ranking
//! ```
//!
//! The table is the truth; a ranking is derived and can always be built again. Which parts hold the same facts: an entry is the fold of its plays
//! ([`Boards::check`] proves it), a ranking holds the score and time of every entry of a live season (proved there too), a checkpoint is a
//! ranking of some time ago.
//!
//! Knows no HTTP and no configuration: who may ask, and how the answer is written, is the server's business.

mod background;
mod board;
mod check;
mod checkpoints;
mod closing;
mod cursor;
mod days;
mod deletion;
mod error;
mod fold;
mod history;
mod ids;
pub mod keys;
mod locks;
mod log;
mod named;
mod names;
mod past;
mod plays;
pub mod points;
pub mod ranking;
pub mod records;
mod recovery;
mod season;
mod service;
mod snapshots;
mod standings;
mod users;

pub use board::{Fold, Order, Resets, Rules, Snapshots, Ties, Weekday};
pub use check::CheckReport;
pub use closing::SeasonInfo;
pub use days::{LATEST, SnapshotInfo, SnapshotList};
pub use error::{Error, Result};
pub use history::{
    HISTORY_BOARDS_MAX, HistoryRequest, UserDay, UserHistory, UserPlay, UserPlays, UserSeason, UserSeasons,
};
pub use ids::{BoardId, ID_BYTES_MAX, Label, PlayId, UserId};
pub use plays::{BATCH_PLAYS_MAX, Counted, NewPlay};
pub use recovery::Readiness;
pub use season::{Calendar, Season, SeasonSpan, format_us, parse_us};
pub use service::{Boards, DEFAULT_BOARD, Settings, Statistics};
pub use snapshots::SnapshotProgress;
pub use standings::{
    HISTOGRAM_BUCKETS_MAX, LOOKUP_USERS_MAX, List, ListRequest, Lookup, PAGE_USERS_MAX, PERCENTILES, Row,
    Spread, UserStanding,
};
pub use users::NAME_BYTES_MAX;
