//! Operations: what a transaction is made of, and the receipt it is answered with.

use crate::item::{Item, VERSION};
use crate::key::{Key, Text};

/// What must hold for an operation, judged against the item stored under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// There is no item (one that has expired is no item).
    Absent,
    /// There is an item.
    Present,
    /// There is an item and its `version` is this number.
    VersionEquals(i64),
}

impl Condition {
    /// Whether the condition holds for the stored item. The caller has left out expired items.
    pub fn holds(self, stored: Option<&Item>) -> bool {
        match self {
            Self::Absent => stored.is_none(),
            Self::Present => stored.is_some(),
            Self::VersionEquals(version) => stored.and_then(|item| item.number(VERSION)) == Some(version),
        }
    }
}

/// One part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Stores the item, replacing what stood under its key.
    Put {
        /// What to store.
        item: Item,
        /// What must hold first.
        condition: Option<Condition>,
    },
    /// Removes the item under the key, if there is one.
    Delete {
        /// What to remove.
        key: Key,
        /// What must hold first.
        condition: Option<Condition>,
    },
    /// Writes nothing, but the transaction happens only if the condition holds.
    Check {
        /// What to look at.
        key: Key,
        /// What must hold.
        condition: Condition,
    },
}

impl Operation {
    /// Puts the item whatever stood there.
    pub fn put(item: Item) -> Self {
        Self::Put { item, condition: None }
    }

    /// Puts the item if `condition` holds for what stands there.
    pub fn put_if(item: Item, condition: Condition) -> Self {
        Self::Put { item, condition: Some(condition) }
    }

    /// Deletes whatever stands under the key.
    pub fn delete(key: Key) -> Self {
        Self::Delete { key, condition: None }
    }

    /// Deletes what stands under the key if `condition` holds for it.
    pub fn delete_if(key: Key, condition: Condition) -> Self {
        Self::Delete { key, condition: Some(condition) }
    }

    /// The key it is about.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { item, .. } => &item.key,
            Self::Delete { key, .. } | Self::Check { key, .. } => key,
        }
    }

    /// The condition it carries.
    pub fn condition(&self) -> Option<Condition> {
        match self {
            Self::Put { condition, .. } | Self::Delete { condition, .. } => *condition,
            Self::Check { condition, .. } => Some(*condition),
        }
    }
}

/// What a transaction wrote: the meter turns it into capacity units.
///
/// Only the backend knows what an item and its index rows were before, and the bill depends on it; so the
/// backend says. A backend that is told its true cost by someone else states that instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Every row written, of items and of indexes.
    pub writes: Vec<RowWrite>,
}

/// One row that was written or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowWrite {
    /// The position of the index in the schema; nothing for the item itself.
    pub index: Option<usize>,
    /// The row's partition key.
    pub partition: Text,
    /// The size that is billed: of the larger of the row before and the row after.
    pub bytes: usize,
}
