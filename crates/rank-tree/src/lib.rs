//! Order statistics for tens of millions of users.
mod checkpoint;
mod distribution;
mod entries;
mod error;
mod index;
mod order;
mod standings;
mod tree;
mod users;
pub use checkpoint::{CheckpointError, CheckpointWriter};
pub use distribution::Bucket;
pub use error::Error;
pub use order::{Order, Ties};
pub use standings::{Mark, ScoreRange, Standing, Standings, StandingsBack};
pub use tree::{Entry, Memory, RankTree, Update};
pub use users::{UserKey, Users};

#[cfg(test)]
extern crate self as rank_tree;
#[cfg(test)]
#[path = "../tests/model.rs"]
mod model;
