//! From operations to rows: what a transaction must find, and what it then writes.
//!
//! Work is split by who does it. [`Prepared`] is made on the caller's thread: limits are checked, new rows encoded
//! and old ones read there. [`Plan`] is the committer's: it judges conditions against the state that includes every
//! transaction before it, and gathers the rows of all of them.
//!
//! What the caller read may be out of date by the time the committer looks at it. Batches are numbered;
//! the caller notes the last one committed *before* it reads, and the committer knows for each key (by hash,
//! so perhaps for more keys than need be) the last batch that wrote it: see [`History`]. If that is later, it reads again.
//!
//! A batch must not hold the same key twice (the engine gives all its rows one sequence number, so the
//! order of two writes to a key would be lost); the plan therefore keeps rows in maps, where the later replaces
//! the earlier. `items` holds the same facts as `rows[Items]`, decoded: it is what later conditions are
//! judged against.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fjall::Slice;

use crate::embedded::encoding::{self, slice};
use crate::embedded::engine::{Engine, RowChange, Space};
use crate::error::{Error, FailedCondition, Result};
use crate::item::{EXPIRES_AT, Item};
use crate::key::{Key, Text};
use crate::limits;
use crate::operation::{Condition, Operation, Receipt, RowWrite};
use crate::schema::{Index, Projection, Schema};

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Which batch last wrote a key, for telling whether an earlier read of it still holds.
pub(crate) struct History {
    /// Keys share a slot by hash; a slot holds the latest batch that wrote any of them.
    slots: Vec<u64>,
    hash: foldhash::fast::RandomState,
}

impl History {
    const SLOTS: usize = 1 << 16;

    pub(crate) fn new() -> Self {
        Self { slots: vec![0; Self::SLOTS], hash: foldhash::fast::RandomState::default() }
    }

    fn slot(&self, key: &[u8]) -> usize {
        self.hash.hash_one(key) as usize % Self::SLOTS
    }
}

/// A transaction that has passed the limits, with its new rows encoded.
pub(crate) struct Prepared {
    operations: Vec<PreparedOperation>,
    /// The last batch committed before the stored items were read; nothing if they were not.
    seen_at: Option<u64>,
    /// Roughly what it adds to the journal.
    pub(crate) bytes: usize,
}

struct PreparedOperation {
    key: Slice,
    partition: Text,
    requirement: Requirement,
    change: Change,
    seen: Option<OldItem>,
}

/// A stored item, and its rows if they have been worked out already.
struct OldItem {
    item: Arc<Item>,
    rows: Option<ItemRows>,
}

fn read(engine: &Engine, key: &[u8]) -> Result<Option<Item>> {
    engine.get(Space::Items, key)?.map(|value| decode(engine, key, &value)).transpose()
}

fn decode(engine: &Engine, key: &[u8], value: &[u8]) -> Result<Item> {
    encoding::decode_item(key, value).map_err(|detail| engine.corrupt(Space::Items, key, detail))
}

/// What callers have just read, for the transaction that mostly follows: an entry is read, changed and put back.
///
/// A slot holds the last read of any key that shares it, and is emptied by whoever uses it. What it says may be out of date; it carries
/// the last batch committed before the read, so the committer can tell.
pub(crate) struct RecentReads {
    slots: Vec<Mutex<Option<RecentRead>>>,
    hash: foldhash::fast::RandomState,
}

pub(crate) struct RecentRead {
    key: Slice,
    value: Option<Slice>,
    seen_at: u64,
}

impl RecentReads {
    const SLOTS: usize = 1_024;
    /// Larger ones are not kept: they would be, until another read takes their slot.
    const VALUE_BYTES_MAX: usize = 4_096;

    pub(crate) fn new() -> Self {
        let slots = std::iter::repeat_with(Mutex::default).take(Self::SLOTS).collect();
        Self { slots, hash: foldhash::fast::RandomState::default() }
    }

    fn slot(&self, key: &[u8]) -> MutexGuard<'_, Option<RecentRead>> {
        let slot = self.hash.hash_one(key) as usize % Self::SLOTS;
        self.slots[slot].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what stood under a key; `seen_at` is the last batch committed before it was read.
    pub(crate) fn note(&self, key: Slice, value: Option<Slice>, seen_at: u64) {
        if value.as_ref().is_some_and(|value| value.len() > Self::VALUE_BYTES_MAX) {
            return;
        }
        let mut slot = self.slot(&key);
        *slot = Some(RecentRead { key, value, seen_at });
    }

    fn take(&self, key: &[u8]) -> Option<RecentRead> {
        self.slot(key).take_if(|read| *read.key == *key)
    }
}

#[derive(Clone, Copy)]
enum Requirement {
    None,
    Condition(Condition),
    /// The sweeper's: the stored item has expired. If not, the operation is left out.
    Expired,
}

enum Change {
    None,
    Delete,
    Put(Box<NewRows>),
}

struct NewRows {
    item: Arc<Item>,
    value: Slice,
    rows: ItemRows,
}

/// The rows an item has besides its own, in the order of the schema's indexes.
struct ItemRows {
    indexes: Vec<IndexRow>,
    expiry: Option<Slice>,
}

struct IndexRow {
    index: usize,
    partition: Text,
    key: Slice,
    value: Slice,
    bytes: usize,
}

impl ItemRows {
    fn of(schema: &Schema, item: &Item, item_key: &[u8]) -> Self {
        let item_bytes = item.size_bytes();
        let mut indexes = Vec::new();
        for (at, index) in schema.indexes().iter().enumerate() {
            if let Some(spot) = index.spot_of(item) {
                indexes.push(IndexRow {
                    index: at,
                    key: slice(|bytes| encoding::push_index_key(bytes, spot.partition, spot.sort, &item.key)),
                    value: slice(|bytes| encoding::push_index_value(bytes, index, item)),
                    bytes: projected_bytes(index, item, item_bytes),
                    partition: spot.partition.clone(),
                });
            }
        }
        let expiry =
            item.number(EXPIRES_AT).map(|expires_at| encoding::expiry_key(expires_at, item_key).into());
        Self { indexes, expiry }
    }
}

/// The size of the projected item, without making it.
fn projected_bytes(index: &Index, item: &Item, item_bytes: usize) -> usize {
    if index.projection == Projection::All {
        return item_bytes;
    }
    let left_out = item.attributes.iter().filter(|(name, _)| !index.carries(name));
    item_bytes - left_out.map(|(name, value)| name.len() + value.size_bytes()).sum::<usize>()
}

impl Prepared {
    /// Checks and encodes a transaction.
    pub(crate) fn new(schema: &Schema, operations: Vec<Operation>) -> Result<Self> {
        limits::check_transaction(schema, &operations)?;
        let mut bytes = 0;
        let operations: Vec<PreparedOperation> = operations
            .into_iter()
            .map(|operation| {
                let key = slice(|bytes| encoding::push_item_key(bytes, operation.key()));
                let partition = operation.key().pk.clone();
                let requirement = operation.condition().map_or(Requirement::None, Requirement::Condition);
                let change = match operation {
                    Operation::Put { item, .. } => {
                        let rows = ItemRows::of(schema, &item, &key);
                        let value = slice(|bytes| encoding::push_item_value(bytes, &item));
                        bytes += key.len() + value.len();
                        bytes +=
                            rows.indexes.iter().map(|row| row.key.len() + row.value.len()).sum::<usize>();
                        Change::Put(Box::new(NewRows { item: Arc::new(item), value, rows }))
                    }
                    Operation::Delete { .. } => Change::Delete,
                    Operation::Check { .. } => Change::None,
                };
                PreparedOperation { key, partition, requirement, change, seen: None }
            })
            .collect();
        bytes += operations.len() * 128;
        Ok(Self { operations, seen_at: None, bytes })
    }

    /// Reads what stands under the keys now, so that the committer need not; `committed` is the last batch
    /// committed, taken before this is called. What the caller has just read is not read again.
    pub(crate) fn look_up(
        &mut self,
        engine: &Engine,
        schema: &Schema,
        recent: &RecentReads,
        committed: u64,
    ) -> Result<()> {
        let mut seen_at = committed;
        for operation in &mut self.operations {
            let value = match recent.take(&operation.key) {
                Some(read) => {
                    seen_at = seen_at.min(read.seen_at);
                    read.value
                }
                None => engine.get(Space::Items, &operation.key)?,
            };
            let item = value.map(|value| decode(engine, &operation.key, &value)).transpose()?;
            operation.seen = item.map(|item| {
                let rows = Some(ItemRows::of(schema, &item, &operation.key));
                OldItem { item: Arc::new(item), rows }
            });
        }
        self.seen_at = Some(seen_at);
        Ok(())
    }

    /// Removes an item if it has expired by then.
    pub(crate) fn sweep(key: &Key) -> Self {
        let operation = PreparedOperation {
            key: slice(|bytes| encoding::push_item_key(bytes, key)),
            partition: key.pk.clone(),
            requirement: Requirement::Expired,
            change: Change::Delete,
            seen: None,
        };
        Self { operations: vec![operation], seen_at: None, bytes: 128 }
    }
}

/// The rows of a batch of transactions, and the state as it will be after them.
pub(crate) struct Plan<'a> {
    engine: &'a Engine,
    schema: &'a Schema,
    now_seconds: i64,
    history: &'a mut History,
    batch: u64,
    items: Map<Slice, Option<Arc<Item>>>,
    rows: Map<(Space, Slice), Option<Slice>>,
}

impl<'a> Plan<'a> {
    /// A plan for batch number `batch`, of about so many transactions.
    pub(crate) fn new(
        engine: &'a Engine,
        schema: &'a Schema,
        now_seconds: i64,
        history: &'a mut History,
        batch: u64,
        transactions: usize,
    ) -> Self {
        // A play writes two items and two index rows.
        let items = Map::with_capacity_and_hasher(transactions * 2, Default::default());
        let rows = Map::with_capacity_and_hasher(transactions * 4, Default::default());
        Self { engine, schema, now_seconds, history, batch, items, rows }
    }

    /// Adds a transaction, or says why it cannot be; then nothing of it is added.
    pub(crate) fn add(&mut self, mut prepared: Prepared) -> Result<Receipt> {
        let mut stored = Vec::with_capacity(prepared.operations.len());
        let mut failed = Vec::new();
        for (at, operation) in prepared.operations.iter_mut().enumerate() {
            let old = self.stored(&operation.key, operation.seen.take(), prepared.seen_at)?;
            if let Requirement::Condition(condition) = operation.requirement {
                let item = old.as_ref().map(|old| &*old.item);
                let live = item.filter(|item| !item.is_expired(self.now_seconds));
                if !condition.holds(live) {
                    failed.push(FailedCondition { operation: at, condition });
                }
            }
            stored.push(old);
        }
        if !failed.is_empty() {
            return Err(Error::ConditionFailed { failed });
        }
        let mut receipt = Receipt::default();
        for (operation, old) in prepared.operations.into_iter().zip(stored) {
            if matches!(operation.requirement, Requirement::Expired)
                && !old.as_ref().is_some_and(|old| old.item.is_expired(self.now_seconds))
            {
                continue;
            }
            match operation.change {
                Change::None => {}
                Change::Delete => self.change(operation.key, operation.partition, old, None, &mut receipt),
                Change::Put(new) => {
                    self.change(operation.key, operation.partition, old, Some(*new), &mut receipt);
                }
            }
        }
        Ok(receipt)
    }

    /// How many rows would be written.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The rows to write, each key once.
    pub(crate) fn into_rows(self) -> impl ExactSizeIterator<Item = RowChange> {
        self.rows.into_iter().map(|((space, key), value)| RowChange { space, key, value })
    }

    /// What stands under a key after the transactions so far, expired or not.
    fn stored(&self, key: &[u8], seen: Option<OldItem>, seen_at: Option<u64>) -> Result<Option<OldItem>> {
        let written_in = self.history.slots[self.history.slot(key)];
        if seen_at.is_some_and(|seen_at| written_in <= seen_at) {
            return Ok(seen);
        }
        if let Some(item) = self.items.get(key) {
            return Ok(item.clone().map(|item| OldItem { item, rows: None }));
        }
        Ok(read(self.engine, key)?.map(|item| OldItem { item: Arc::new(item), rows: None }))
    }

    fn change(
        &mut self,
        key: Slice,
        partition: Text,
        old: Option<OldItem>,
        new: Option<NewRows>,
        receipt: &mut Receipt,
    ) {
        let size = |item: Option<&Item>| item.map_or(0, Item::size_bytes);
        let bytes = size(old.as_ref().map(|old| &*old.item)).max(size(new.as_ref().map(|new| &*new.item)));
        receipt.writes.push(RowWrite { index: None, partition, bytes });
        let was_there = old.is_some();
        let old_rows = old.map(|old| old.rows.unwrap_or_else(|| ItemRows::of(self.schema, &old.item, &key)));
        let (item, value, new_rows) = match new {
            Some(new) => (Some(new.item), Some(new.value), Some(new.rows)),
            None => (None, None, None),
        };
        self.change_expiry(old_rows.as_ref(), new_rows.as_ref());
        let old_indexes = old_rows.map(|rows| rows.indexes).unwrap_or_default();
        let new_indexes = new_rows.map(|rows| rows.indexes).unwrap_or_default();
        self.change_indexes(old_indexes, new_indexes, receipt);
        if was_there || item.is_some() {
            let slot = self.history.slot(&key);
            self.history.slots[slot] = self.batch;
            self.items.insert(key.clone(), item);
            self.rows.insert((Space::Items, key), value);
        }
    }

    fn change_indexes(&mut self, old: Vec<IndexRow>, new: Vec<IndexRow>, receipt: &mut Receipt) {
        let mut old = old.into_iter().peekable();
        let mut new = new.into_iter().peekable();
        for index in 0..self.schema.indexes().len() {
            let before = old.next_if(|row| row.index == index);
            let after = new.next_if(|row| row.index == index);
            let mut wrote =
                |partition, bytes| receipt.writes.push(RowWrite { index: Some(index), partition, bytes });
            match (before, after) {
                (Some(before), Some(after)) if before.key == after.key => {
                    if before.value != after.value {
                        wrote(after.partition, before.bytes.max(after.bytes));
                        self.rows.insert((Space::Index(index), after.key), Some(after.value));
                    }
                }
                (before, after) => {
                    if let Some(before) = before {
                        wrote(before.partition, before.bytes);
                        self.rows.insert((Space::Index(index), before.key), None);
                    }
                    if let Some(after) = after {
                        wrote(after.partition, after.bytes);
                        self.rows.insert((Space::Index(index), after.key), Some(after.value));
                    }
                }
            }
        }
    }

    fn change_expiry(&mut self, old: Option<&ItemRows>, new: Option<&ItemRows>) {
        let before = old.and_then(|rows| rows.expiry.clone());
        let after = new.and_then(|rows| rows.expiry.clone());
        if before != after {
            if let Some(key) = before {
                self.rows.insert((Space::Expiry, key), None);
            }
            if let Some(key) = after {
                self.rows.insert((Space::Expiry, key), Some(Slice::empty()));
            }
        }
    }
}
