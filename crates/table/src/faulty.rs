//! A test double that fails on purpose, as a remote table does: before the write, or after it.
//!
//! Faults wait in a queue; each call of `transact` takes the next one. The difference that matters is
//! [`Fault::LostAnswer`]: the transaction is done and the caller is told that nobody knows.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::Table;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::key::Key;
use crate::operation::{Operation, Receipt};
use crate::query::{Consistency, Page, Query, Scan};
use crate::schema::Schema;

/// What happens to one call of `transact`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: the call goes through.
    None,
    /// Refused as too much; nothing is written.
    Throttled,
    /// Refused because of another transaction; nothing is written.
    Conflict,
    /// The request is lost: nothing is written, and the caller cannot know.
    LostRequest,
    /// The answer is lost: everything is written, and the caller cannot know.
    LostAnswer,
}

/// A table that fails as told.
pub struct FaultyTable<T> {
    table: T,
    faults: Mutex<VecDeque<Fault>>,
}

impl<T: Table> FaultyTable<T> {
    /// Wraps a table; without faults told, it behaves as that table.
    pub fn new(table: T) -> Self {
        Self { table, faults: Mutex::default() }
    }

    /// Lets the next calls of `transact` meet these faults, in order, after those already told.
    pub fn fail_next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).extend(faults);
    }
}

#[async_trait]
impl<T: Table> Table for FaultyTable<T> {
    fn schema(&self) -> &Schema {
        self.table.schema()
    }

    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        self.table.get(key, consistency).await
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        self.table.batch_get(keys, consistency).await
    }

    async fn transact(&self, operations: Vec<Operation>) -> Result<Receipt> {
        let fault = self.faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let unknown = || Error::OutcomeUnknown { why: "the connection was lost".to_owned() };
        match fault.unwrap_or(Fault::None) {
            Fault::None => self.table.transact(operations).await,
            Fault::Throttled => Err(Error::Throttled { retry_after: Duration::from_millis(50) }),
            Fault::Conflict => Err(Error::Conflict),
            Fault::LostRequest => Err(unknown()),
            Fault::LostAnswer => {
                self.table.transact(operations).await?;
                Err(unknown())
            }
        }
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.table.query(query).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.table.scan(scan).await
    }
}
