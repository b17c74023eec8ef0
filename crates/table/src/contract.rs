//! The contract: every promise of [`Table`] as a test, written once and run on every backend.
//!
//! A backend's test file makes a [`Subject`] (an empty table with the [`schema`] and a clock that tests can
//! move) and calls [`contract_tests!`](crate::contract_tests), which expands to one `#[test]` a promise.
//! [`random`] compares a backend with the reference over thousands of random operations.
//!
//! Functions here panic when a promise is broken; that is what a test is for. Reads of global indexes
//! call [`Subject::settle`] first, because they are eventual.

pub mod promises;
pub mod random;

mod indexes;
mod pages;
mod transactions;
mod values;

use std::sync::Arc;

use crate::Table;
use crate::clock::ManualClock;
use crate::item::Item;
use crate::key::SortType;
use crate::query::{Query, Scan};
use crate::schema::{Index, Projection, Schema};

/// The moment at which every subject's clock stands when a test begins: 2026-11-13T00:00:00Z.
pub const START_SECONDS: i64 = 1_794_528_000;

/// An empty table to be tested.
pub struct Subject {
    /// The table, with [`schema`] and [`Subject::clock`].
    pub table: Arc<dyn Table>,
    /// The table's clock, at [`START_SECONDS`].
    pub clock: Arc<ManualClock>,
    /// Returns when global indexes have caught up.
    pub settle: Box<dyn Fn() + Send + Sync>,
    /// What must live as long as the table (a temporary folder), dropped after it.
    pub guard: Option<Box<dyn std::any::Any + Send + Sync>>,
}

impl Subject {
    /// A subject whose global indexes need no time.
    pub fn new(table: Arc<dyn Table>, clock: Arc<ManualClock>) -> Self {
        Self { table, clock, settle: Box::new(|| {}), guard: None }
    }

    /// The same subject, keeping `guard` alive.
    #[must_use]
    pub fn keeping(mut self, guard: impl std::any::Any + Send + Sync) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }

    /// A clock at [`START_SECONDS`].
    pub fn start_clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::new(START_SECONDS * 1_000))
    }

    /// All pages of a query in one list.
    pub async fn query_all(&self, mut query: Query) -> Vec<Item> {
        (self.settle)();
        let mut items = Vec::new();
        loop {
            let page = self.table.query(&query).await.expect("the query is answered");
            items.extend(page.items);
            match page.next {
                Some(next) => {
                    assert_ne!(
                        query.start_after.as_ref(),
                        Some(&next),
                        "a page goes on after the one before"
                    );
                    query.start_after = Some(next);
                }
                None => return items,
            }
        }
    }

    /// All pages of all segments of a scan in one list.
    pub async fn scan_all(&self, segments: usize, limit: Option<usize>) -> Vec<Item> {
        let mut items = Vec::new();
        for segment in 0..segments {
            let mut scan = Scan { limit, ..Scan::segment(segment, segments) };
            loop {
                let page = self.table.scan(&scan).await.expect("the scan is answered");
                items.extend(page.items);
                match page.next {
                    Some(next) => {
                        assert_ne!(
                            scan.start_after.as_ref(),
                            Some(&next),
                            "a page goes on after the one before"
                        );
                        scan.start_after = Some(next);
                    }
                    None => break,
                }
            }
        }
        items
    }
}

/// The indexes the contract is tested with: those of a leaderboard, with every scope, sort type and projection.
pub fn schema() -> Schema {
    use SortType::{Number, String};
    Schema::new([
        Index::global("ByScore", "score_partition", "score", Number)
            .projecting(Projection::Include(vec!["name".into()])),
        Index::global("ByRank", "rank_partition", "rank", Number),
        Index::global("Inverted", "inverted", "PK", String).projecting(Projection::KeysOnly),
        Index::global("ByData", "data", "SK", String),
        Index::global("ByTime", "log", "log_time", String),
        Index::local("Recent", "recent", String),
        Index::local("Best", "best", String).projecting(Projection::KeysOnly),
    ])
    .expect("the contract's schema is possible")
}

/// Random numbers that replay from a printed seed (SplitMix64); nothing here needs better ones.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers that follow from the seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed from the environment variable `STANDINGS_TEST_SEED`, or a new one; printed, so that a failure replays.
    pub fn from_environment(test: &str) -> Self {
        let given = std::env::var("STANDINGS_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(std::time::SystemTime::now()) >> 1
        });
        println!("{test}: STANDINGS_TEST_SEED={seed}");
        Self(seed)
    }

    /// Any 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound.max(1)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of the choices.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let at = usize::try_from(self.below(choices.len() as u64)).expect("a position in a slice is a usize");
        &choices[at]
    }
}

/// One `#[test]` for each promise, in a module named after the backend.
///
/// `contract_tests!(embedded, make_embedded, pollster::block_on);` where `make_embedded` is a function that
/// returns a [`Subject`].
#[macro_export]
macro_rules! contract_tests {
    ($backend:ident, $make:path, $block_on:path) => {
        $crate::contract_tests!(@each $backend, $make, $block_on,
            p01_all_or_nothing, p01_conflict_changes_nothing, p01_every_failed_condition_is_named,
            p02_conditions_see_what_came_before, p02_concurrent_increments_lose_none,
            p02_transactions_handed_in_together_are_each_on_their_own,
            p04_strong_reads_see_what_was_written,
            p05_strong_read_of_a_global_index_is_refused,
            p06_indexes_are_sparse, p06_a_changed_item_moves_in_its_indexes, p06_rows_show_the_projection,
            p07_strings_order_bytewise, p07_numbers_order_numerically, p07_ties_order_by_key, p07_backward_is_forward_reversed,
            p07_every_sort_range_selects_its_rows,
            p08_pages_of_any_size_hold_everything_once, p08_paging_goes_on_after_a_deleted_item, p08_a_page_ends_at_one_megabyte,
            p09_segments_partition_the_table,
            p10_limits_are_refused_before_anything_is_written, p10_senseless_requests_are_refused,
            p11_expired_is_absent,
            p12_what_is_put_is_what_is_read,
            p13_a_deleted_partition_is_gone_and_nothing_else,
            batch_get_answers_in_order, random_operations_match_the_reference,
        );
    };
    (@each $backend:ident, $make:path, $block_on:path, $($test:ident),* $(,)?) => {
        mod $backend {
            $(#[test]
            fn $test() {
                let subject = $make();
                $block_on($crate::contract::promises::$test(&subject));
            })*
        }
    };
}
