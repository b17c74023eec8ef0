//! A table that holds back the rows of snapshots until it is told to let them through, so that tests see what happens meanwhile.

use std::sync::Arc;

use async_trait::async_trait;
use standings_table::{Consistency, Item, Key, Operation, Page, Query, Receipt, Result, Scan, Schema, Table};
use tokio::sync::watch;

pub(crate) struct HeldTable {
    table: Arc<dyn Table>,
    held: watch::Sender<bool>,
}

impl HeldTable {
    pub(crate) fn new(table: Arc<dyn Table>) -> HeldTable {
        HeldTable { table, held: watch::Sender::new(false) }
    }

    /// From now on rows of snapshots wait, or no longer.
    pub(crate) fn hold(&self, hold: bool) {
        self.held.send_replace(hold);
    }
}

#[async_trait]
impl Table for HeldTable {
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
        let row = |operation: &Operation| {
            let key = operation.key();
            key.pk.starts_with("USER#") && key.sk.starts_with("SNAP#")
        };
        if operations.iter().any(row) {
            let _ = self.held.subscribe().wait_for(|held| !held).await;
        }
        self.table.transact(operations).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.table.query(query).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.table.scan(scan).await
    }
}
