//! Order statistics for tens of millions of users: where does each one stand, who is around, who is on top.
//!
//! A pure data structure: no I/O (but a checkpoint to a given `Write` or `Read`), no clock, no async, no games.
//! [`RankTree`] maps a user to a score and the time it was reached and keeps all users in order; [`Users`] keeps the ids of all
//! users of any number of trees.
//!
//! # Order
//!
//! A better score first ([`Order::High`] or [`Order::Low`] wins), then the earlier time, then the user id, bytewise. [`Ties`] says which
//! number stands beside users of one score; the order of a list never depends on it.
//!
//! # What it costs
//!
//! Every operation is O(log n) plus its output, amortised, whatever the distribution: ties compare times and, where those are equal too, ids.
//! What amortises: one segment of the hash table grows (some 25,000 users move, of 25 M), an array is moved by the allocator.
//! [`RankTree::from_unsorted`] and [`RankTree::apply`] of a large batch sort; [`RankTree::verify`], [`RankTree::clear`] and dropping a tree
//! go through all users. A user takes some 34 bytes with an id like `user-0000000000000012345`, of which the id takes 12
//! ([`RankTree::memory`] tells). `standings-bench rank-tree` measures all of it beside Redis.
//!
//! # Which structures hold the same facts
//!
//! ```text
//! Users    id ⇄ number          shared   users.rs    slots.rs (hash table)  ids.rs (the ids)  codec.rs (shorter ids)
//! Entries  number → score, time each tree  entries.rs
//! Index    numbers in order     each tree  index.rs    node.rs  change.rs  build.rs  walk.rs  verify.rs
//! ```
//!
//! A user of a tree is in all three, with one use in `Users` for each tree. Only `tree.rs` and `checkpoint.rs` change them, always in
//! the same order.
//!
//! # Threads
//!
//! A tree is changed through `&mut` and read through `&`; whoever shares one puts a lock around it. `Users` is shared between trees and
//! has its own lock, which no method of a tree holds when it returns or calls back.

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
pub use distribution::{BUCKETS_MAX, Bucket, buckets_of};
pub use error::Error;
pub use order::{Order, Ties};
pub use standings::{Mark, ScoreRange, Standing, Standings, StandingsBack};
pub use tree::{Entry, Memory, RankTree, Update};
pub use users::{UserKey, Users};

#[cfg(test)]
extern crate self as rank_tree;
/// The model test once more, on tiny chunks and nodes.
#[cfg(test)]
#[path = "../tests/model.rs"]
mod model;
