//! The meter in front of a table.

use std::sync::Arc;

use async_trait::async_trait;

use crate::Table;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::key::{Key, Text};
use crate::meter::{Kind, Meter};
use crate::operation::{Operation, Receipt};
use crate::query::{Consistency, Page, Query, Scan};
use crate::schema::Schema;

/// A table whose calls are counted.
pub struct MeteredTable<T> {
    table: T,
    meter: Arc<Meter>,
    clock: Box<dyn Clock>,
}

impl<T: Table> MeteredTable<T> {
    /// Puts a meter in front of a table.
    pub fn new(table: T, clock: impl Clock) -> Self {
        let meter = Arc::new(Meter::new(table.schema().clone()));
        Self { table, meter, clock: Box::new(clock) }
    }

    /// The meter.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The table behind the meter.
    pub fn table(&self) -> &T {
        &self.table
    }
}

/// What a transaction would have written, for the bill if its conditions fail: the operations are gone by then.
struct Asked(Vec<(Text, usize)>);

impl Asked {
    fn of(operations: &[Operation]) -> Self {
        let size = |operation: &Operation| match operation {
            Operation::Put { item, .. } => (item.key.pk.clone(), item.size_bytes()),
            Operation::Delete { key, .. } | Operation::Check { key, .. } => (key.pk.clone(), 0),
        };
        Self(operations.iter().map(size).collect())
    }
}

impl<T> MeteredTable<T> {
    fn count(&self, now_ms: i64, Asked(asked): &Asked, result: &Result<Receipt>) {
        match result {
            Ok(receipt) => self.meter.transacted(now_ms, asked.len(), receipt),
            Err(Error::ConditionFailed { .. }) => {
                self.meter.refused(now_ms, asked.iter().map(|(partition, bytes)| (partition, *bytes)));
            }
            Err(_) => {}
        }
    }
}

#[async_trait]
impl<T: Table> Table for MeteredTable<T> {
    fn schema(&self) -> &Schema {
        self.table.schema()
    }

    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        let item = self.table.get(key, consistency).await?;
        let bytes = item.as_ref().map_or(0, Item::size_bytes);
        let strong = consistency == Consistency::Strong;
        self.meter.read(self.clock.now_ms(), Kind::Get, None, strong, [(&key.pk, bytes)].into_iter());
        Ok(item)
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        let items = self.table.batch_get(keys, consistency).await?;
        let reads =
            keys.iter().zip(&items).map(|(key, item)| (&key.pk, item.as_ref().map_or(0, Item::size_bytes)));
        let strong = consistency == Consistency::Strong;
        self.meter.read(self.clock.now_ms(), Kind::BatchGet, None, strong, reads);
        Ok(items)
    }

    async fn transact(&self, operations: Vec<Operation>) -> Result<Receipt> {
        let asked = Asked::of(&operations);
        let result = self.table.transact(operations).await;
        self.count(self.clock.now_ms(), &asked, &result);
        result
    }

    async fn transact_all(&self, transactions: Vec<Vec<Operation>>) -> Vec<Result<Receipt>> {
        let asked: Vec<Asked> = transactions.iter().map(|operations| Asked::of(operations)).collect();
        let results = self.table.transact_all(transactions).await;
        let now_ms = self.clock.now_ms();
        for (asked, result) in asked.iter().zip(&results) {
            self.count(now_ms, asked, result);
        }
        results
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        let page = self.table.query(query).await?;
        let index = match &query.index {
            None => None,
            Some(name) => Some(self.schema().find(name)?.0),
        };
        let bytes = page.items.iter().map(Item::size_bytes).sum();
        let strong = query.consistency == Consistency::Strong;
        let reads = [(&query.partition, bytes)].into_iter();
        self.meter.read(self.clock.now_ms(), Kind::Query, index, strong, reads);
        Ok(page)
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        let page = self.table.scan(scan).await?;
        let strong = scan.consistency == Consistency::Strong;
        self.meter.scanned(strong, page.items.iter().map(Item::size_bytes).sum());
        Ok(page)
    }
}
