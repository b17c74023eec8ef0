//! A test double whose global indexes lag, so that code that relies on more than was promised fails its tests.
//!
//! Two tables hold the same items: the one wrapped, which is current, and a reference that applies each
//! acknowledged transaction only when `lag` later ones have come, or when told to catch up. Queries of
//! global indexes are answered from the late one, everything else from the current one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::Table;
use crate::clock::Clock;
use crate::error::Result;
use crate::item::Item;
use crate::key::Key;
use crate::operation::{Operation, Receipt};
use crate::query::{Consistency, Page, Query, Scan};
use crate::reference::ReferenceTable;
use crate::schema::{Schema, Scope};

/// A table whose global indexes are `lag` transactions behind.
pub struct DelayedTable<T> {
    current: T,
    late: ReferenceTable,
    lag: usize,
    waiting: Mutex<VecDeque<Vec<Operation>>>,
}

impl<T: Table> DelayedTable<T> {
    /// Wraps an empty table.
    pub fn new(current: T, clock: impl Clock, lag: usize) -> Self {
        let late = ReferenceTable::new(current.schema().clone(), clock);
        Self { current, late, lag, waiting: Mutex::default() }
    }

    /// Brings the global indexes up to date.
    pub async fn catch_up(&self) -> Result<()> {
        self.apply_beyond(0).await
    }

    async fn apply_beyond(&self, lag: usize) -> Result<()> {
        loop {
            let next = {
                let mut waiting = self.waiting();
                if waiting.len() <= lag {
                    return Ok(());
                }
                waiting.pop_front()
            };
            if let Some(operations) = next {
                self.late.transact(operations).await?;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Vec<Operation>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<T: Table> Table for DelayedTable<T> {
    fn schema(&self) -> &Schema {
        self.current.schema()
    }

    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        self.current.get(key, consistency).await
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        self.current.batch_get(keys, consistency).await
    }

    async fn transact(&self, operations: Vec<Operation>) -> Result<Receipt> {
        // The conditions were judged by the current table; the late one only follows.
        let writes: Vec<Operation> = operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::Put { item, .. } => Some(Operation::put(item.clone())),
                Operation::Delete { key, .. } => Some(Operation::delete(key.clone())),
                Operation::Check { .. } => None,
            })
            .collect();
        let receipt = self.current.transact(operations).await?;
        if !writes.is_empty() {
            self.waiting().push_back(writes);
        }
        self.apply_beyond(self.lag).await?;
        Ok(receipt)
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        let index = query.check(self.schema())?;
        let global = index.is_some_and(|at| self.schema().indexes()[at].scope == Scope::Global);
        if global { self.late.query(query).await } else { self.current.query(query).await }
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.current.scan(scan).await
    }
}
