//! The meter: counts what every call would cost on DynamoDB, on any backend, and finds the partitions that run hot.
//!
//! What is billed:
//!
//! | call | units |
//! |---|---|
//! | write of an item | 1 per KB begun, of the larger of before and after; double in a transaction of several operations |
//! | write of an index row | 1 per KB begun for each row written or removed; an unchanged row costs nothing |
//! | strong read of an item | 1 per 4 KB begun (an absent item costs as much as the smallest) |
//! | query, scan | 1 per 4 KB begun of the page's items together |
//! | eventual read | half |
//!
//! Index rows are not doubled in a transaction: DynamoDB doubles the writes it prepares and commits, which are
//! the items; index rows follow as ordinary writes. If the bill says otherwise one day, `ROW_FACTOR` is the place.
//! A transaction whose conditions fail is billed for its items all the same.
//!
//! A partition is a partition key of the table, or of a global index; rows of local indexes live with their items and
//! count there. The hottest ones are found by a sketch in bounded memory: see [`sketch`].

pub mod sketch;
mod table;

use std::sync::Mutex;
use std::sync::PoisonError;

use crate::key::Text;
use crate::operation::Receipt;
use crate::schema::{Schema, Scope};
use sketch::SlidingSketch;

pub use table::MeteredTable;

/// DynamoDB's limit for one partition.
pub const PARTITION_WRITE_UNITS_PER_SECOND_MAX: u64 = 1_000;
/// DynamoDB's limit for one partition.
pub const PARTITION_READ_UNITS_PER_SECOND_MAX: u64 = 3_000;

const WRITE_UNIT_BYTES: usize = 1_024;
const READ_UNIT_BYTES: usize = 4_096;
/// What an item's write counts in a transaction of several operations.
const ITEM_FACTOR: u64 = 2;
/// What an index row's write counts in a transaction of several operations.
const ROW_FACTOR: u64 = 1;
/// How many partitions each sketch can name; see [`sketch`] for what that means for its error.
const PARTITIONS_TRACKED: usize = 256;

/// Capacity units, counted in halves, because an eventual read costs half a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Units {
    halves: u64,
}

impl Units {
    /// Whole units.
    pub const fn whole(units: u64) -> Self {
        Self { halves: units * 2 }
    }

    /// Half units.
    pub const fn halves(halves: u64) -> Self {
        Self { halves }
    }

    /// As a number with its half.
    pub fn as_f64(self) -> f64 {
        self.halves as f64 / 2.0
    }

    /// How many half units.
    pub const fn in_halves(self) -> u64 {
        self.halves
    }
}

/// Which calls cost something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `get`
    Get,
    /// `batch_get`
    BatchGet,
    /// `query` of the table or an index
    Query,
    /// `scan`
    Scan,
    /// `transact`
    Transact,
}

/// All kinds, in the order of [`Totals`].
pub const KINDS: [Kind; 5] = [Kind::Get, Kind::BatchGet, Kind::Query, Kind::Scan, Kind::Transact];

/// What the calls of one kind have cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many calls.
    pub calls: u64,
    /// What they read.
    pub read: Units,
    /// What they wrote.
    pub written: Units,
}

/// A partition: of the table itself, or of a global index.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition {
    /// The global index, or nothing for the table.
    pub index: Option<Text>,
    /// The partition key.
    pub key: Text,
}

/// What one partition was asked for in the last second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPartition {
    /// Which one.
    pub partition: Partition,
    /// Never less than the truth.
    pub units_at_most: Units,
    /// Never more than the truth.
    pub units_at_least: Units,
}

/// Counts capacity units.
pub struct Meter {
    schema: Schema,
    state: Mutex<State>,
}

struct State {
    totals: [Totals; KINDS.len()],
    written: SlidingSketch<(Option<usize>, Text)>,
    read: SlidingSketch<(Option<usize>, Text)>,
}

impl Meter {
    /// A meter for a table of this schema.
    pub fn new(schema: Schema) -> Self {
        let sketch = || SlidingSketch::new(PARTITIONS_TRACKED);
        let state = State { totals: Default::default(), written: sketch(), read: sketch() };
        Self { schema, state: Mutex::new(state) }
    }

    /// What the calls of a kind have cost so far.
    pub fn totals(&self, kind: Kind) -> Totals {
        self.state().totals[kind as usize]
    }

    /// The partitions most written to in the last second, hottest first.
    pub fn hottest_written(&self, now_ms: i64, count: usize) -> Vec<HotPartition> {
        let found = self.state().written.heaviest(now_ms, count);
        found.into_iter().map(|entry| self.hot(entry)).collect()
    }

    /// The partitions most read from in the last second, hottest first.
    pub fn hottest_read(&self, now_ms: i64, count: usize) -> Vec<HotPartition> {
        let found = self.state().read.heaviest(now_ms, count);
        found.into_iter().map(|entry| self.hot(entry)).collect()
    }

    /// Partitions that may have been over DynamoDB's limit for writes in the last second. None that was over is missing.
    pub fn over_write_limit(&self, now_ms: i64) -> Vec<HotPartition> {
        let limit = Units::whole(PARTITION_WRITE_UNITS_PER_SECOND_MAX);
        let hottest = self.hottest_written(now_ms, PARTITIONS_TRACKED);
        hottest.into_iter().filter(|hot| hot.units_at_most > limit).collect()
    }

    /// Partitions that may have been over DynamoDB's limit for reads in the last second. None that was over is missing.
    pub fn over_read_limit(&self, now_ms: i64) -> Vec<HotPartition> {
        let limit = Units::whole(PARTITION_READ_UNITS_PER_SECOND_MAX);
        let hottest = self.hottest_read(now_ms, PARTITIONS_TRACKED);
        hottest.into_iter().filter(|hot| hot.units_at_most > limit).collect()
    }

    /// Counts a transaction that was done.
    pub fn transacted(&self, now_ms: i64, operations: usize, receipt: &Receipt) {
        let mut state = self.state();
        let mut total = 0;
        // Items of one partition and their rows in local indexes come one after the other: they are added together.
        let mut together: Option<(&Text, u64)> = None;
        for write in &receipt.writes {
            let factor = match (operations, write.index) {
                (1, _) => 1,
                (_, None) => ITEM_FACTOR,
                (_, Some(_)) => ROW_FACTOR,
            };
            let units = Units::whole(units_of(write.bytes, WRITE_UNIT_BYTES) * factor);
            total += units.halves;
            match (self.global(write.index), &mut together) {
                (Some(index), _) => {
                    add(&mut state.written, now_ms, Some(index), &write.partition, units.halves);
                }
                (None, Some((partition, halves))) if **partition == write.partition => {
                    *halves += units.halves;
                }
                (None, _) => {
                    if let Some((partition, halves)) = together.replace((&write.partition, units.halves)) {
                        add(&mut state.written, now_ms, None, partition, halves);
                    }
                }
            }
        }
        if let Some((partition, halves)) = together {
            add(&mut state.written, now_ms, None, partition, halves);
        }
        let totals = &mut state.totals[Kind::Transact as usize];
        totals.calls += 1;
        totals.written.halves += total;
    }

    /// Counts a transaction whose conditions failed: partition and size of each item it would have written.
    pub fn refused<'a>(&self, now_ms: i64, items: impl ExactSizeIterator<Item = (&'a Text, usize)>) {
        let mut state = self.state();
        let factor = if items.len() == 1 { 1 } else { ITEM_FACTOR };
        let mut total = 0;
        for (partition, bytes) in items {
            let units = Units::whole(units_of(bytes, WRITE_UNIT_BYTES) * factor);
            total += units.halves;
            add(&mut state.written, now_ms, None, partition, units.halves);
        }
        let totals = &mut state.totals[Kind::Transact as usize];
        totals.calls += 1;
        totals.written.halves += total;
    }

    /// Counts one call that read `bytes` of each of these partitions.
    pub fn read<'a>(
        &self,
        now_ms: i64,
        kind: Kind,
        index: Option<usize>,
        strong: bool,
        reads: impl Iterator<Item = (&'a Text, usize)>,
    ) {
        let mut state = self.state();
        let mut total = 0;
        for (partition, bytes) in reads {
            let halves = units_of(bytes, READ_UNIT_BYTES) * if strong { 2 } else { 1 };
            total += halves;
            add(&mut state.read, now_ms, self.global(index), partition, halves);
        }
        let totals = &mut state.totals[kind as usize];
        totals.calls += 1;
        totals.read.halves += total;
    }

    /// Counts a page of a scan. It counts against no partition: a scan passes each of them once, evenly.
    pub fn scanned(&self, strong: bool, bytes: usize) {
        let totals = &mut self.state().totals[Kind::Scan as usize];
        totals.calls += 1;
        totals.read.halves += units_of(bytes, READ_UNIT_BYTES) * if strong { 2 } else { 1 };
    }

    /// Rows of local indexes live with their items.
    fn global(&self, index: Option<usize>) -> Option<usize> {
        index.filter(|at| self.schema.indexes()[*at].scope == Scope::Global)
    }

    fn hot(&self, entry: sketch::Heavy<(Option<usize>, Text)>) -> HotPartition {
        let (index, key) = entry.key;
        let index = index.map(|at| self.schema.indexes()[at].name.clone());
        HotPartition {
            partition: Partition { index, key },
            units_at_most: Units::halves(entry.at_most),
            units_at_least: Units::halves(entry.at_least),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(
    sketch: &mut SlidingSketch<(Option<usize>, Text)>,
    now_ms: i64,
    index: Option<usize>,
    partition: &Text,
    halves: u64,
) {
    sketch.add(now_ms, &(index, partition), halves, || (index, partition.clone()));
}

/// Every unit begun counts, and nothing is free.
fn units_of(bytes: usize, unit_bytes: usize) -> u64 {
    bytes.div_ceil(unit_bytes).max(1) as u64
}
