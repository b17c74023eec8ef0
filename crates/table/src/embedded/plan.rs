//! From operations to rows: what a transaction must find, and what it then writes.
//!
//! Work is split by who does it. [`Prepared`] is made on the caller's thread: limits are checked and all new
//! bytes encoded there. [`Plan`] is the committer's: it judges conditions against the state that includes every
//! transaction before it in the batch, and gathers the rows of all of them.
//!
//! A batch must not hold the same key twice (the engine gives all its rows one sequence number, so the
//! order of two writes to a key would be lost); the plan therefore keeps rows in maps, where the later replaces
//! the earlier. `items` holds the same facts as `rows[Items]`, decoded: it is what later conditions are
//! judged against.

use std::collections::HashMap;
use std::sync::Arc;

use crate::embedded::encoding;
use crate::embedded::engine::{Engine, RowChange, Space};
use crate::error::{Error, FailedCondition, Result};
use crate::item::{EXPIRES_AT, Item};
use crate::key::{Key, Text};
use crate::limits;
use crate::operation::{Condition, Operation, Receipt, RowWrite};
use crate::schema::{Index, Schema};

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A transaction that has passed the limits, with its new rows encoded.
pub(crate) struct Prepared {
    operations: Vec<PreparedOperation>,
    /// Roughly what it adds to the journal.
    pub(crate) bytes: usize,
}

struct PreparedOperation {
    key: Vec<u8>,
    partition: Text,
    requirement: Requirement,
    change: Change,
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
    value: Vec<u8>,
    rows: ItemRows,
}

/// The rows an item has besides its own, in the order of the schema's indexes.
struct ItemRows {
    indexes: Vec<IndexRow>,
    expiry: Option<Vec<u8>>,
}

struct IndexRow {
    index: usize,
    partition: Text,
    key: Vec<u8>,
    value: Vec<u8>,
    bytes: usize,
}

impl ItemRows {
    fn of(schema: &Schema, item: &Item, item_key: &[u8]) -> Self {
        let mut indexes = Vec::new();
        for (at, index) in schema.indexes().iter().enumerate() {
            if let Some(place) = index.place_of(item) {
                indexes.push(IndexRow {
                    index: at,
                    key: encoding::index_key(&place.partition, &place.sort, &item.key),
                    value: encoding::index_value(index, item),
                    bytes: projected_bytes(index, item),
                    partition: place.partition,
                });
            }
        }
        let expiry = item.number(EXPIRES_AT).map(|expires_at| encoding::expiry_key(expires_at, item_key));
        Self { indexes, expiry }
    }
}

/// The size of the projected item, without making it.
fn projected_bytes(index: &Index, item: &Item) -> usize {
    let left_out = item.attributes.iter().filter(|(name, _)| !index.carries(name));
    item.size_bytes() - left_out.map(|(name, value)| name.len() + value.size_bytes()).sum::<usize>()
}

impl Prepared {
    /// Checks and encodes a transaction.
    pub(crate) fn new(schema: &Schema, operations: Vec<Operation>) -> Result<Self> {
        limits::check_transaction(schema, &operations)?;
        let mut bytes = 0;
        let operations: Vec<PreparedOperation> = operations
            .into_iter()
            .map(|operation| {
                let key = encoding::item_key(operation.key());
                let partition = operation.key().pk.clone();
                let requirement = operation.condition().map_or(Requirement::None, Requirement::Condition);
                let change = match operation {
                    Operation::Put { item, .. } => {
                        let rows = ItemRows::of(schema, &item, &key);
                        let value = encoding::item_value(&item);
                        bytes += key.len() + value.len();
                        bytes +=
                            rows.indexes.iter().map(|row| row.key.len() + row.value.len()).sum::<usize>();
                        Change::Put(Box::new(NewRows { item: Arc::new(item), value, rows }))
                    }
                    Operation::Delete { .. } => Change::Delete,
                    Operation::Check { .. } => Change::None,
                };
                PreparedOperation { key, partition, requirement, change }
            })
            .collect();
        bytes += operations.len() * 128;
        Ok(Self { operations, bytes })
    }

    /// Removes an item if it has expired by then.
    pub(crate) fn sweep(key: &Key) -> Self {
        let operation = PreparedOperation {
            key: encoding::item_key(key),
            partition: key.pk.clone(),
            requirement: Requirement::Expired,
            change: Change::Delete,
        };
        Self { operations: vec![operation], bytes: 128 }
    }
}

/// The rows of a batch of transactions, and the state as it will be after them.
pub(crate) struct Plan<'a> {
    engine: &'a Engine,
    schema: &'a Schema,
    now_seconds: i64,
    items: Map<Vec<u8>, Option<Arc<Item>>>,
    rows: Map<(Space, Vec<u8>), Option<Vec<u8>>>,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(engine: &'a Engine, schema: &'a Schema, now_seconds: i64) -> Self {
        Self { engine, schema, now_seconds, items: Map::default(), rows: Map::default() }
    }

    /// Adds a transaction, or says why it cannot be; then nothing of it is added.
    pub(crate) fn add(&mut self, prepared: Prepared) -> Result<Receipt> {
        let mut stored = Vec::with_capacity(prepared.operations.len());
        let mut failed = Vec::new();
        for (at, operation) in prepared.operations.iter().enumerate() {
            let item = self.stored(&operation.key)?;
            if let Requirement::Condition(condition) = operation.requirement {
                let live = item.as_deref().filter(|item| !item.is_expired(self.now_seconds));
                if !condition.holds(live) {
                    failed.push(FailedCondition { operation: at, condition });
                }
            }
            stored.push(item);
        }
        if !failed.is_empty() {
            return Err(Error::ConditionFailed { failed });
        }
        let mut receipt = Receipt::default();
        for (operation, old) in prepared.operations.into_iter().zip(stored) {
            if matches!(operation.requirement, Requirement::Expired)
                && !old.as_deref().is_some_and(|item| item.is_expired(self.now_seconds))
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
    fn stored(&self, key: &[u8]) -> Result<Option<Arc<Item>>> {
        if let Some(item) = self.items.get(key) {
            return Ok(item.clone());
        }
        let Some(value) = self.engine.get(Space::Items, key)? else { return Ok(None) };
        let item = encoding::decode_item(key, &value);
        item.map(|item| Some(Arc::new(item))).map_err(|detail| self.engine.corrupt(Space::Items, key, detail))
    }

    fn change(
        &mut self,
        key: Vec<u8>,
        partition: Text,
        old: Option<Arc<Item>>,
        new: Option<NewRows>,
        receipt: &mut Receipt,
    ) {
        let size = |item: Option<&Item>| item.map_or(0, Item::size_bytes);
        let bytes = size(old.as_deref()).max(size(new.as_ref().map(|new| &*new.item)));
        receipt.writes.push(RowWrite { index: None, partition, bytes });
        let old_rows = old.as_deref().map(|item| ItemRows::of(self.schema, item, &key));
        let (item, value, new_rows) = match new {
            Some(new) => (Some(new.item), Some(new.value), Some(new.rows)),
            None => (None, None, None),
        };
        self.change_expiry(old_rows.as_ref(), new_rows.as_ref());
        let old_indexes = old_rows.map(|rows| rows.indexes).unwrap_or_default();
        let new_indexes = new_rows.map(|rows| rows.indexes).unwrap_or_default();
        self.change_indexes(old_indexes, new_indexes, receipt);
        if old.is_some() || item.is_some() {
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
                self.rows.insert((Space::Expiry, key), Some(Vec::new()));
            }
        }
    }
}
