//! The reference: what a table means, in the fewest words. Every other backend is compared with it.
//!
//! It holds one sorted map of items and no index at all: a query goes through every item, asks the schema
//! where it stands, keeps what matches and sorts it. That is slow and hard to get wrong. It keeps nothing
//! on disk, so promise 3 is not for it.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::Table;
use crate::clock::Clock;
use crate::error::{Error, FailedCondition, Result};
use crate::item::Item;
use crate::key::{Key, SortValue};
use crate::limits;
use crate::operation::{Operation, Receipt, RowWrite};
use crate::query::{Consistency, Direction, Page, PageBuilder, Position, Query, Scan};
use crate::schema::{Index, Schema};

/// A table of plain maps in memory.
pub struct ReferenceTable {
    schema: Schema,
    clock: Box<dyn Clock>,
    items: Mutex<BTreeMap<Key, Item>>,
}

impl ReferenceTable {
    /// An empty table.
    pub fn new(schema: Schema, clock: impl Clock) -> Self {
        Self { schema, clock: Box::new(clock), items: Mutex::default() }
    }

    fn items(&self) -> MutexGuard<'_, BTreeMap<Key, Item>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts sorted rows into the page after `start_after`.
    fn page(
        &self,
        mut rows: Vec<(Position, Item)>,
        index: Option<usize>,
        start_after: Option<&Position>,
        limit: Option<usize>,
        direction: Direction,
    ) -> Page {
        let order = |position: &Position| (position.sort.clone(), position.key.clone());
        rows.sort_by_key(|(position, _)| order(position));
        if let Some(start) = start_after {
            rows.retain(|(position, _)| match direction {
                Direction::Forward => order(position) > order(start),
                Direction::Backward => order(position) < order(start),
            });
        }
        if direction == Direction::Backward {
            rows.reverse();
        }
        let mut page = PageBuilder::new(limit);
        for (_, item) in rows {
            if !page.push(item) {
                return page.full(&self.schema, index);
            }
        }
        page.done()
    }
}

#[async_trait]
impl Table for ReferenceTable {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn get(&self, key: &Key, _: Consistency) -> Result<Option<Item>> {
        limits::check_key(key)?;
        let now = self.clock.now_seconds();
        Ok(self.items().get(key).filter(|item| !item.is_expired(now)).cloned())
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        limits::check_batch_get(keys)?;
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.push(self.get(key, consistency).await?);
        }
        Ok(found)
    }

    async fn transact(&self, operations: Vec<Operation>) -> Result<Receipt> {
        limits::check_transaction(&self.schema, &operations)?;
        let now = self.clock.now_seconds();
        let mut items = self.items();
        let failed: Vec<FailedCondition> = operations
            .iter()
            .enumerate()
            .filter_map(|(at, operation)| {
                let condition = operation.condition()?;
                let stored = items.get(operation.key()).filter(|item| !item.is_expired(now));
                (!condition.holds(stored)).then_some(FailedCondition { operation: at, condition })
            })
            .collect();
        if !failed.is_empty() {
            return Err(Error::ConditionFailed { failed });
        }
        let mut receipt = Receipt::default();
        for operation in operations {
            let key = operation.key().clone();
            let (old, new) = match operation {
                Operation::Put { item, .. } => (items.insert(key.clone(), item.clone()), Some(item)),
                Operation::Delete { .. } => (items.remove(&key), None),
                Operation::Check { .. } => continue,
            };
            receipt.writes.extend(writes_of(&self.schema, &key, old.as_ref(), new.as_ref()));
        }
        Ok(receipt)
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        let index = query.check(&self.schema)?;
        let now = self.clock.now_seconds();
        let items = self.items();
        let live = items.values().filter(|item| !item.is_expired(now));
        let rows = match index.map(|at| &self.schema.indexes()[at]) {
            None => live
                .filter(|item| item.key.pk == query.partition)
                .filter(|item| query.sort.contains(&SortValue::String(item.key.sk.clone())))
                .map(|item| (Position { key: item.key.clone(), sort: None }, item.clone()))
                .collect(),
            Some(index) => live
                .filter_map(|item| index.row_of(item))
                .filter(|(place, _)| place.partition == query.partition && query.sort.contains(&place.sort))
                .map(|(place, item)| (Position { key: item.key.clone(), sort: Some(place.sort) }, item))
                .collect(),
        };
        Ok(self.page(rows, index, query.start_after.as_ref(), query.limit, query.direction))
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        scan.check()?;
        let now = self.clock.now_seconds();
        let hash = foldhash::fast::FixedState::default();
        let items = self.items();
        let rows = items
            .values()
            .filter(|item| !item.is_expired(now))
            .filter(|item| hash.hash_one(&item.key.pk) % scan.segments as u64 == scan.segment as u64)
            .map(|item| (Position { key: item.key.clone(), sort: None }, item.clone()))
            .collect();
        Ok(self.page(rows, None, scan.start_after.as_ref(), scan.limit, Direction::Forward))
    }
}

/// The rows DynamoDB would write to get from `old` to `new`.
fn writes_of(schema: &Schema, key: &Key, old: Option<&Item>, new: Option<&Item>) -> Vec<RowWrite> {
    let size = |item: Option<&Item>| item.map_or(0, Item::size_bytes);
    let bytes = size(old).max(size(new));
    let mut writes = vec![RowWrite { index: None, partition: key.pk.clone(), bytes }];
    for (at, index) in schema.indexes().iter().enumerate() {
        let row = |item: Option<&Item>| item.and_then(|item| Index::row_of(index, item));
        let write = |partition, bytes| RowWrite { index: Some(at), partition, bytes };
        match (row(old), row(new)) {
            (None, None) => {}
            (Some(before), Some(after)) if before == after => {}
            // The same place with other contents is one write; another place is a removal and a write.
            (Some((before, was)), Some((after, is))) if before == after => {
                writes.push(write(after.partition, was.size_bytes().max(is.size_bytes())));
            }
            (before, after) => {
                for (place, item) in before.into_iter().chain(after) {
                    writes.push(write(place.partition, item.size_bytes()));
                }
            }
        }
    }
    writes
}
