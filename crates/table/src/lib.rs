//! One table of items with indexes: where everything lives that must not be lost.
//!
//! [`Table`] is small and shaped like DynamoDB: what DynamoDB cannot do, it cannot ask, and what DynamoDB
//! limits is limited on every backend ([`limits`]). The table knows no games: which indexes there are is a
//! [`Schema`] given at opening, and what the items mean is the business of the crate above.
//!
//! | backend | for |
//! |---|---|
//! | [`EmbeddedTable`] | the default: one folder on this machine's disk |
//! | [`ReferenceTable`] | tests: plain maps, obviously right, nothing kept |
//!
//! Around any backend: [`MeteredTable`] counts capacity units as DynamoDB bills them; for tests,
//! [`DelayedTable`] lets global indexes lag and [`FaultyTable`] fails on purpose.
//! A new backend is a module here and one line in `tests/contract.rs`.

pub mod clock;
pub mod contract;
mod delayed;
pub mod embedded;
pub mod error;
mod faulty;
pub mod item;
pub mod key;
pub mod limits;
pub mod meter;
pub mod operation;
mod priority;
pub mod query;
mod reference;
pub mod schema;

use async_trait::async_trait;

pub use clock::{Clock, ManualClock, SystemClock};
pub use delayed::DelayedTable;
pub use embedded::EmbeddedTable;
pub use error::{Error, FailedCondition, Result, WriteFailure};
pub use faulty::{Fault, FaultyTable};
pub use item::{Attributes, Item, Value};
pub use key::{Key, SortType, SortValue, Text};
pub use meter::{Meter, MeteredTable};
pub use operation::{Condition, Operation, Receipt, RowWrite};
pub use priority::give_way_to_all;
pub use query::{Consistency, Direction, Page, Position, Query, Scan, SortRange};
pub use reference::ReferenceTable;
pub use schema::{Index, Place, Projection, Schema, Scope};

/// One table of items with indexes.
///
/// # Promises
///
/// Each has a test of its name in [`contract`], which every backend passes; those that only a process on
/// a disk can break (3, 14) are proved by the embedded backend's crash tests.
///
/// 1. **All or nothing.** A transaction's operations take effect together or not at all. If conditions
///    do not hold, the error names every operation whose condition failed, and nothing is changed.
/// 2. **One after another.** Transactions behave as if done one at a time: a condition is judged against
///    every transaction that came before, and concurrent conditional writes lose none.
/// 3. **Acknowledged is durable.** Once `transact` returns `Ok`, the transaction survives a crash.
/// 4. **Read your write.** A strong read of an item, a partition, a local index or a scan sees every
///    transaction acknowledged before the read began.
/// 5. **Global indexes are eventual.** They may lag behind; asking for a strong read of one is refused.
/// 6. **Indexes are sparse and agree with their items.** An item has exactly one row in each index whose
///    attributes it carries and none in the others; the row shows exactly the projection.
/// 7. **Order is fixed.** Strings byte by byte, numbers numerically, ties in an index by the item's key;
///    backward is exactly forward reversed.
/// 8. **Pages miss nothing and repeat nothing.** Following `next` to its end visits every matching item
///    that was there all along exactly once. A short page is not the last; only `next: None` is.
/// 9. **Segments partition the table.** The segments of a scan share no item and together hold all.
/// 10. **Limits are the same everywhere.** What DynamoDB refuses is refused with the same typed error,
///     before anything is written.
/// 11. **Expired is absent.** From the second `expires_at` on, an item is gone from every read and for every
///     condition, whether or not it has been swept yet.
/// 12. **What is put is what is read.** Numbers are exact over all 64 bits; text, bytes, lists and maps come back as they were.
/// 13. **A deleted partition is gone, and nothing else is.** However many pages it takes.
/// 14. **A failed write stops writes, not reads.** If a write may have half reached the disk, all further
///     writes are refused with a typed error until the table is opened again; reads go on.
#[async_trait]
pub trait Table: Send + Sync + 'static {
    /// The indexes this table was opened with.
    fn schema(&self) -> &Schema;

    /// The item under `key`.
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>>;

    /// The items under `keys`, in the order asked, with nothing where there is no item. At most 100, each once.
    /// Not a snapshot: each item is read on its own.
    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>>;

    /// Does all operations if all their conditions hold. At most 100, on different items.
    /// A transaction of one operation costs half as much a unit as one of several.
    async fn transact(&self, operations: Vec<Operation>) -> Result<Receipt>;

    /// Does many transactions, each on its own: the results are those of one `transact` after another, in the order given.
    /// A backend that can take them on together does, which spares most of what each costs by itself.
    async fn transact_all(&self, transactions: Vec<Vec<Operation>>) -> Vec<Result<Receipt>> {
        let mut results = Vec::with_capacity(transactions.len());
        for operations in transactions {
            results.push(self.transact(operations).await);
        }
        results
    }

    /// One page of a partition of the table or of an index.
    async fn query(&self, query: &Query) -> Result<Page>;

    /// One page of a segment of the table.
    async fn scan(&self, scan: &Scan) -> Result<Page>;

    /// Deletes up to one transaction's worth of a partition's items; to be called until it says `false`:
    /// nothing more was found. Items written meanwhile may or may not be deleted.
    async fn delete_partition(&self, partition: &str) -> Result<bool> {
        let mut query = Query::table(partition).limit(limits::TRANSACTION_OPERATIONS_MAX);
        let page = loop {
            let page = self.query(&query).await?;
            match page.next {
                // A page can be empty because all it held had expired: look behind it.
                Some(next) if page.items.is_empty() => query.start_after = Some(next),
                None if page.items.is_empty() => return Ok(false),
                _ => break page,
            }
        };
        let deletes = page.items.into_iter().map(|item| Operation::delete(item.key)).collect();
        self.transact(deletes).await?;
        Ok(true)
    }
}

#[async_trait]
impl<T: Table + ?Sized> Table for std::sync::Arc<T> {
    fn schema(&self) -> &Schema {
        (**self).schema()
    }
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        (**self).get(key, consistency).await
    }
    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        (**self).batch_get(keys, consistency).await
    }
    async fn transact(&self, operations: Vec<Operation>) -> Result<Receipt> {
        (**self).transact(operations).await
    }
    async fn transact_all(&self, transactions: Vec<Vec<Operation>>) -> Vec<Result<Receipt>> {
        (**self).transact_all(transactions).await
    }
    async fn query(&self, query: &Query) -> Result<Page> {
        (**self).query(query).await
    }
    async fn scan(&self, scan: &Scan) -> Result<Page> {
        (**self).scan(scan).await
    }
    async fn delete_partition(&self, partition: &str) -> Result<bool> {
        (**self).delete_partition(partition).await
    }
}
