//! From operations to rows: what a transaction must find, and what it then writes.
//!
//! Work is split by who does it. [`Prepared`] is made on the caller's thread: limits are checked, stored items read, and what
//! changes is worked out and encoded there. [`Plan`] is the committer's: it judges conditions against the state that includes every
//! transaction before it, and gathers the rows of all of them.
//!
//! What the caller read may be out of date by the time the committer looks at it. Batches are numbered;
//! the caller notes the last one committed *before* it reads, and the committer knows for each key (by hash,
//! so perhaps for more keys than need be) the last batch that wrote it: see [`History`]. If that is later, it reads again,
//! and works out again what changes.
//!
//! A batch must not hold the same key twice (the engine gives all its rows one sequence number, so the
//! order of two writes to a key would be lost). All rows of an item, in indexes too, have keys of their own, so only an item that is
//! written twice in a batch can repeat one; then the later row replaces the earlier. `items` holds the same facts as
//! `rows` of items, decoded: it is what later conditions are judged against.

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
use crate::schema::{Index, Projection, Schema, Spot};

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
    seen: Option<Arc<Item>>,
    /// What changes if the stored item is as it was seen; nothing if it was not looked at.
    rows: Option<Vec<RowDiff>>,
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
    /// Enough for a few callers who read a thousand items each before they write them.
    const SLOTS: usize = 1 << 14;
    /// Larger ones are not kept: they would be, until another read takes their slot.
    const VALUE_BYTES_MAX: usize = 1_024;

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
    Put { item: Arc<Item>, value: Slice },
}

impl Change {
    fn item(&self) -> Option<&Arc<Item>> {
        match self {
            Self::Put { item, .. } => Some(item),
            Self::None | Self::Delete => None,
        }
    }
}

/// A row besides the item's own that is written, or removed.
struct RowDiff {
    row: RowChange,
    /// What it is billed as; nothing for what DynamoDB does not know.
    write: Option<RowWrite>,
}

/// The rows to write and to remove when `new` takes the place of `old`, in the order of the schema's indexes. Rows that
/// stay as they are, as most do when an item changes, are not even encoded.
fn diff(schema: &Schema, key: &[u8], old: Option<&Item>, new: Option<&Item>) -> Vec<RowDiff> {
    let mut rows = Vec::new();
    for (at, index) in schema.indexes().iter().enumerate() {
        let was = old.and_then(|item| Some((item, index.spot_of(item)?)));
        let is = new.and_then(|item| Some((item, index.spot_of(item)?)));
        let mut change = |(item, spot): (&Item, Spot<'_>), bytes: usize, present: bool| {
            let key = slice(|bytes| encoding::push_index_key(bytes, spot.partition, spot.sort, &item.key));
            let value = present.then(|| slice(|bytes| encoding::push_index_value(bytes, index, item)));
            let write = RowWrite { index: Some(at), partition: spot.partition.clone(), bytes };
            rows.push(RowDiff { row: RowChange { space: Space::Index(at), key, value }, write: Some(write) });
        };
        match (was, is) {
            (Some(was), Some(is)) if was.1 == is.1 => {
                if !index.shows_the_same(was.0, is.0) {
                    let bytes = projected_bytes(index, was.0).max(projected_bytes(index, is.0));
                    change(is, bytes, true);
                }
            }
            (was, is) => {
                if let Some(was) = was {
                    change(was, projected_bytes(index, was.0), false);
                }
                if let Some(is) = is {
                    change(is, projected_bytes(index, is.0), true);
                }
            }
        }
    }
    let expires_at = |item: Option<&Item>| item.and_then(|item| item.number(EXPIRES_AT));
    let (was, is) = (expires_at(old), expires_at(new));
    if was != is {
        for (expires_at, value) in [(was, None), (is, Some(Slice::empty()))] {
            if let Some(expires_at) = expires_at {
                let key = encoding::expiry_key(expires_at, key).into();
                rows.push(RowDiff { row: RowChange { space: Space::Expiry, key, value }, write: None });
            }
        }
    }
    rows
}

/// The size of the projected item, without making it.
fn projected_bytes(index: &Index, item: &Item) -> usize {
    let item_bytes = item.size_bytes();
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
                        let value = slice(|bytes| encoding::push_item_value(bytes, &item));
                        bytes += key.len() + value.len();
                        Change::Put { item: Arc::new(item), value }
                    }
                    Operation::Delete { .. } => Change::Delete,
                    Operation::Check { .. } => Change::None,
                };
                PreparedOperation { key, partition, requirement, change, seen: None, rows: None }
            })
            .collect();
        bytes += operations.len() * 128;
        Ok(Self { operations, seen_at: None, bytes })
    }

    /// Reads what stands under the keys now and works out what changes, so that the committer need not; `committed` is the
    /// last batch committed, taken before this is called. What the caller has just read is not read again.
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
            let rows = match &operation.change {
                Change::None => Vec::new(),
                change => diff(schema, &operation.key, item.as_ref(), change.item().map(|item| &**item)),
            };
            let row_bytes =
                |diff: &RowDiff| diff.row.key.len() + diff.row.value.as_ref().map_or(0, |value| value.len());
            self.bytes += rows.iter().map(row_bytes).sum::<usize>();
            operation.seen = item.map(Arc::new);
            operation.rows = Some(rows);
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
            rows: None,
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
    rows: Vec<RowChange>,
    /// Whether an item was written twice, so that rows may be there twice.
    repeats: bool,
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
        let rows = Vec::with_capacity(transactions * 4);
        Self { engine, schema, now_seconds, history, batch, items, rows, repeats: false }
    }

    /// Adds a transaction, or says why it cannot be; then nothing of it is added.
    pub(crate) fn add(&mut self, mut prepared: Prepared) -> Result<Receipt> {
        let mut failed = Vec::new();
        let mut row_count = 0;
        for (at, operation) in prepared.operations.iter_mut().enumerate() {
            self.bring_up_to_date(operation, prepared.seen_at)?;
            row_count += 1 + operation.rows.as_ref().map_or(0, Vec::len);
            if let Requirement::Condition(condition) = operation.requirement {
                let live = operation.seen.as_deref().filter(|item| !item.is_expired(self.now_seconds));
                if !condition.holds(live) {
                    failed.push(FailedCondition { operation: at, condition });
                }
            }
        }
        if !failed.is_empty() {
            return Err(Error::ConditionFailed { failed });
        }
        let mut receipt = Receipt { writes: Vec::with_capacity(row_count) };
        for operation in prepared.operations {
            let expired = || operation.seen.as_ref().is_some_and(|item| item.is_expired(self.now_seconds));
            let left_out = matches!(operation.change, Change::None)
                || matches!(operation.requirement, Requirement::Expired) && !expired();
            if !left_out {
                self.change(operation, &mut receipt);
            }
        }
        Ok(receipt)
    }

    /// The rows to write, each key once.
    pub(crate) fn into_rows(mut self) -> Vec<RowChange> {
        if self.repeats {
            let mut seen = Map::with_capacity_and_hasher(self.rows.len(), Default::default());
            for row in self.rows {
                seen.insert((row.space, row.key), row.value);
            }
            self.rows =
                seen.into_iter().map(|((space, key), value)| RowChange { space, key, value }).collect();
        }
        self.rows
    }

    /// Sees to it that an operation has seen what stands under its key after the transactions so far, expired or not.
    fn bring_up_to_date(&self, operation: &mut PreparedOperation, seen_at: Option<u64>) -> Result<()> {
        let written_in = self.history.slots[self.history.slot(&operation.key)];
        if seen_at.is_some_and(|seen_at| written_in <= seen_at) {
            return Ok(());
        }
        operation.seen = match self.items.get(&operation.key) {
            Some(item) => item.clone(),
            None => read(self.engine, &operation.key)?.map(Arc::new),
        };
        operation.rows = None;
        Ok(())
    }

    fn change(&mut self, operation: PreparedOperation, receipt: &mut Receipt) {
        let PreparedOperation { key, partition, change, seen: old, rows, .. } = operation;
        let (new, value) = match change {
            Change::Put { item, value } => (Some(item), Some(value)),
            Change::None | Change::Delete => (None, None),
        };
        let size = |item: &Option<Arc<Item>>| item.as_ref().map_or(0, |item| item.size_bytes());
        receipt.writes.push(RowWrite { index: None, partition, bytes: size(&old).max(size(&new)) });
        let rows = rows.unwrap_or_else(|| diff(self.schema, &key, old.as_deref(), new.as_deref()));
        for RowDiff { row, write } in rows {
            self.rows.push(row);
            receipt.writes.extend(write);
        }
        if old.is_some() || new.is_some() {
            let slot = self.history.slot(&key);
            self.history.slots[slot] = self.batch;
            self.repeats |= self.items.insert(key.clone(), new).is_some();
            self.rows.push(RowChange { space: Space::Items, key, value });
        }
    }
}
