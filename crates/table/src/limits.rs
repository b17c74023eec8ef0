//! Limits: DynamoDB's, held on every backend, so that what works here works there.
//!
//! The checks are functions every backend calls before it does anything, so that they refuse with the
//! same typed error and nothing half done.

use std::collections::HashSet;
use std::fmt;

use crate::error::{Error, Result};
use crate::item::{EXPIRES_AT, Item, PK, SK, VERSION, Value};
use crate::key::Key;
use crate::operation::Operation;
use crate::schema::Schema;

/// The largest item, by [`Item::size_bytes`].
pub const ITEM_BYTES_MAX: usize = 400 * 1_024;
/// The longest partition key, of the table or an index.
pub const PARTITION_KEY_BYTES_MAX: usize = 2_048;
/// The longest sort key, of the table or an index.
pub const SORT_KEY_BYTES_MAX: usize = 1_024;
/// The longest attribute name. DynamoDB allows longer ones outside keys; nothing here needs them.
pub const NAME_BYTES_MAX: usize = 255;
/// The deepest nesting of lists and maps.
pub const DEPTH_MAX: usize = 32;
/// The most operations in one transaction.
pub const TRANSACTION_OPERATIONS_MAX: usize = 100;
/// The most bytes in one transaction.
pub const TRANSACTION_BYTES_MAX: usize = 4 * 1_024 * 1_024;
/// The most keys in one `batch_get`.
pub const BATCH_GET_KEYS_MAX: usize = 100;
/// The most bytes of items in one page of a query or scan.
pub const PAGE_BYTES_MAX: usize = 1_024 * 1_024;
/// The most segments a scan can be cut into.
pub const SCAN_SEGMENTS_MAX: usize = 1_000_000;

/// Which limit was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// [`ITEM_BYTES_MAX`]
    ItemBytes,
    /// [`PARTITION_KEY_BYTES_MAX`]
    PartitionKeyBytes,
    /// [`SORT_KEY_BYTES_MAX`]
    SortKeyBytes,
    /// [`NAME_BYTES_MAX`]
    NameBytes,
    /// [`DEPTH_MAX`]
    Depth,
    /// [`TRANSACTION_OPERATIONS_MAX`]
    TransactionOperations,
    /// [`TRANSACTION_BYTES_MAX`]
    TransactionBytes,
    /// [`BATCH_GET_KEYS_MAX`]
    BatchGetKeys,
    /// [`SCAN_SEGMENTS_MAX`]
    ScanSegments,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ItemBytes => "the size of the item in bytes",
            Self::PartitionKeyBytes => "the length of the partition key in bytes",
            Self::SortKeyBytes => "the length of the sort key in bytes",
            Self::NameBytes => "the length of the attribute name in bytes",
            Self::Depth => "the nesting of the value",
            Self::TransactionOperations => "the number of operations in the transaction",
            Self::TransactionBytes => "the size of the transaction in bytes",
            Self::BatchGetKeys => "the number of keys in the batch",
            Self::ScanSegments => "the number of segments",
        })
    }
}

/// Refuses `actual` above `max`.
pub(crate) fn at_most(limit: Limit, actual: usize, max: usize) -> Result<()> {
    if actual > max { Err(Error::LimitExceeded { limit, actual, max }) } else { Ok(()) }
}

/// Refuses a key that is empty or too long.
pub(crate) fn check_key(key: &Key) -> Result<()> {
    at_most(Limit::PartitionKeyBytes, key.pk.len(), PARTITION_KEY_BYTES_MAX)?;
    at_most(Limit::SortKeyBytes, key.sk.len(), SORT_KEY_BYTES_MAX)?;
    if key.pk.is_empty() || key.sk.is_empty() {
        let why = "PK and SK must not be empty".to_owned();
        return Err(Error::InvalidItem { key: key.clone(), why });
    }
    Ok(())
}

/// Refuses an item no backend can store.
pub(crate) fn check_item(schema: &Schema, item: &Item) -> Result<()> {
    check_key(&item.key)?;
    at_most(Limit::ItemBytes, item.size_bytes(), ITEM_BYTES_MAX)?;
    for (name, value) in item.attributes.iter() {
        check_name(&item.key, name)?;
        check_value(&item.key, value, 0)?;
        let refuse = |why: &str| {
            let why = format!("attribute `{name}` {why}");
            Err(Error::InvalidItem { key: item.key.clone(), why })
        };
        match name.as_str() {
            PK | SK => return refuse("is part of the key and cannot be set on its own"),
            VERSION | EXPIRES_AT if !matches!(value, Value::Number(_)) => return refuse("must be a number"),
            _ => {}
        }
    }
    schema.check_item(item)
}

/// Refuses a transaction no backend can do.
pub(crate) fn check_transaction(schema: &Schema, operations: &[Operation]) -> Result<()> {
    at_most(Limit::TransactionOperations, operations.len(), TRANSACTION_OPERATIONS_MAX)?;
    if operations.is_empty() {
        return Err(Error::InvalidRequest { why: "a transaction needs at least one operation".to_owned() });
    }
    let mut bytes = 0;
    for operation in operations {
        match operation {
            Operation::Put { item, .. } => {
                check_item(schema, item)?;
                bytes += item.size_bytes();
            }
            Operation::Delete { key, .. } | Operation::Check { key, .. } => check_key(key)?,
        }
    }
    at_most(Limit::TransactionBytes, bytes, TRANSACTION_BYTES_MAX)?;
    refuse_repeated(operations.iter().map(Operation::key))
}

/// Refuses a batch of keys no backend can get.
pub(crate) fn check_batch_get(keys: &[Key]) -> Result<()> {
    at_most(Limit::BatchGetKeys, keys.len(), BATCH_GET_KEYS_MAX)?;
    keys.iter().try_for_each(check_key)?;
    refuse_repeated(keys.iter())
}

/// DynamoDB refuses a request that names the same item twice.
fn refuse_repeated<'a>(keys: impl ExactSizeIterator<Item = &'a Key> + Clone) -> Result<()> {
    // A play is two operations: comparing a few keys directly is cheaper than hashing them.
    let repeated = if keys.len() <= 8 {
        keys.clone()
            .enumerate()
            .find(|(at, key)| keys.clone().take(*at).any(|other| other == *key))
            .map(|(_, key)| key)
    } else {
        let mut seen = HashSet::with_capacity(keys.len());
        keys.clone().find(|key| !seen.insert(*key))
    };
    match repeated {
        Some(key) => Err(Error::InvalidRequest { why: format!("the request names item {key} twice") }),
        None => Ok(()),
    }
}

fn check_name(key: &Key, name: &str) -> Result<()> {
    if name.is_empty() {
        let why = "an attribute name must not be empty".to_owned();
        return Err(Error::InvalidItem { key: key.clone(), why });
    }
    at_most(Limit::NameBytes, name.len(), NAME_BYTES_MAX)
}

fn check_value(key: &Key, value: &Value, depth: usize) -> Result<()> {
    at_most(Limit::Depth, depth, DEPTH_MAX)?;
    match value {
        Value::List(values) => values.iter().try_for_each(|value| check_value(key, value, depth + 1)),
        Value::Map(map) => map.iter().try_for_each(|(name, value)| {
            check_name(key, name)?;
            check_value(key, value, depth + 1)
        }),
        _ => Ok(()),
    }
}
