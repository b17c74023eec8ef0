//! API keys in the table: what is kept of them is the server's business, that they are kept is ours.

use standings_table::{Condition, Consistency, Error as TableError, Operation, Query, Table};

use crate::error::{Error, Result};
use crate::records::{self, KeyRecord};

/// All keys, by id.
///
/// # Errors
/// What the table says; [`Error::Damaged`].
pub async fn list(table: &dyn Table) -> Result<Vec<KeyRecord>> {
    let mut query = Query::index("ByData", records::KEYS);
    let mut keys = Vec::new();
    loop {
        let page = table.query(&query).await?;
        for item in &page.items {
            if let Some(item) = table.get(&item.key, Consistency::Strong).await? {
                keys.push(KeyRecord::from_item(&item)?);
            }
        }
        match page.next {
            Some(next) => query.start_after = Some(next),
            None => break,
        }
    }
    keys.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(keys)
}

/// Keeps a new key.
///
/// # Errors
/// [`Error::Contended`] if there is one of that id; what the table says.
pub async fn add(table: &dyn Table, id: &str, content: serde_json::Value) -> Result<()> {
    let record = KeyRecord { id: id.to_owned(), content, version: 1 };
    put(table, &record, Condition::Absent).await
}

/// Replaces what is kept of a key.
///
/// # Errors
/// [`Error::UnknownKey`], [`Error::Contended`]; what the table says.
pub async fn change(
    table: &dyn Table,
    id: &str,
    change: impl FnOnce(serde_json::Value) -> serde_json::Value,
) -> Result<()> {
    let item = table.get(&KeyRecord::key(id), Consistency::Strong).await?;
    let item = item.ok_or_else(|| Error::UnknownKey { id: id.to_owned() })?;
    let old = KeyRecord::from_item(&item)?;
    let version = old.version;
    let record = KeyRecord { content: change(old.content), version: version + 1, id: old.id };
    put(table, &record, Condition::VersionEquals(version)).await
}

async fn put(table: &dyn Table, record: &KeyRecord, condition: Condition) -> Result<()> {
    match table.transact(vec![Operation::put_if(record.to_item(), condition)]).await {
        Ok(_) => Ok(()),
        Err(TableError::ConditionFailed { .. }) => Err(Error::Contended),
        Err(error) => Err(error.into()),
    }
}
