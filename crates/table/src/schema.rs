//! The schema: which indexes a table has. It is given to a table when it is opened; the table knows no games.
//!
//! An item has a row in an index exactly when it carries the index's partition and sort attributes, so
//! every index is sparse. [`Index::row_of`] is the only place that decides what that row is; backends,
//! `check` and the reference all ask it.

use crate::error::{Error, Result};
use crate::item::{EXPIRES_AT, Item, PK, SK, Value};
use crate::key::{Key, SortType, SortValue, Text};
use crate::limits::{self, Limit};

/// Which partition an index row lives in, and with that which consistency can be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Same partition as the item itself: can be read strongly.
    Local,
    /// Its own partitions: read eventually.
    Global,
}

/// What an index row carries besides its own key, the item's key, and `expires_at` if the item has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Projection {
    /// Nothing more.
    KeysOnly,
    /// The named attributes.
    Include(Vec<Text>),
    /// Everything.
    All,
}

/// One index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// What queries call it.
    pub name: Text,
    /// Local or global.
    pub scope: Scope,
    /// The string attribute that names the row's partition; `PK` for a local index.
    pub partition: Text,
    /// The attribute rows are ordered by within a partition; may be `SK` or `PK`.
    pub sort: Text,
    /// The type of the sort attribute.
    pub sort_type: SortType,
    /// What a row carries.
    pub projection: Projection,
}

impl Index {
    /// A global index that carries all attributes; see [`Index::projecting`].
    pub fn global(
        name: impl Into<Text>,
        partition: impl Into<Text>,
        sort: impl Into<Text>,
        sort_type: SortType,
    ) -> Self {
        let projection = Projection::All;
        Self {
            name: name.into(),
            scope: Scope::Global,
            partition: partition.into(),
            sort: sort.into(),
            sort_type,
            projection,
        }
    }

    /// A local index that carries all attributes; see [`Index::projecting`].
    pub fn local(name: impl Into<Text>, sort: impl Into<Text>, sort_type: SortType) -> Self {
        Self { scope: Scope::Local, ..Self::global(name, PK, sort, sort_type) }
    }

    /// The same index with another projection.
    #[must_use]
    pub fn projecting(mut self, projection: Projection) -> Self {
        self.projection = projection;
        self
    }

    /// The place of the item in this index, or nothing if it does not carry the attributes.
    pub fn place_of(&self, item: &Item) -> Option<Place> {
        self.spot_of(item).map(|spot| Place { partition: spot.partition.clone(), sort: spot.sort.to_value() })
    }

    /// The same without copying anything.
    pub(crate) fn spot_of<'a>(&self, item: &'a Item) -> Option<Spot<'a>> {
        let partition = item.index_text(&self.partition)?;
        let sort = match (&*self.sort, self.sort_type) {
            (PK, SortType::String) => SortRef::String(&item.key.pk),
            (SK, SortType::String) => SortRef::String(&item.key.sk),
            (name, sort_type) => match (item.get(name)?, sort_type) {
                (Value::String(text), SortType::String) => SortRef::String(text),
                (Value::Number(number), SortType::Number) => SortRef::Number(*number),
                _ => return None,
            },
        };
        Some(Spot { partition, sort })
    }

    /// The row this index holds for the item: its place, and the item cut down to the projection.
    pub fn row_of(&self, item: &Item) -> Option<(Place, Item)> {
        Some((self.place_of(item)?, self.project(item)))
    }

    /// The item as this index shows it. The index's own attributes are always there.
    pub fn project(&self, item: &Item) -> Item {
        if self.projection == Projection::All {
            return item.clone();
        }
        let attributes = item.attributes.iter().filter(|(name, _)| self.carries(name));
        let attributes = attributes.map(|(name, value)| (name.clone(), value.clone())).collect();
        Item { key: item.key.clone(), attributes }
    }

    /// Whether two versions of an item look the same in this index.
    pub(crate) fn shows_the_same(&self, one: &Item, other: &Item) -> bool {
        let shown = |(name, _): &(&Text, &Value)| self.carries(name);
        one.attributes.iter().filter(shown).eq(other.attributes.iter().filter(shown))
    }

    /// Whether a row carries attribute `name`. Every row carries `expires_at`: it must know when it is gone.
    pub fn carries(&self, name: &str) -> bool {
        name == self.partition
            || name == self.sort
            || name == EXPIRES_AT
            || match &self.projection {
                Projection::KeysOnly => false,
                Projection::Include(names) => names.iter().any(|included| included == name),
                Projection::All => true,
            }
    }

    /// DynamoDB refuses an item whose index attribute has the wrong type, is an empty string or too long.
    fn check_item(&self, item: &Item) -> Result<()> {
        let partition = item.get(&self.partition);
        let sort = item.get(&self.sort);
        let refuse = |attribute: &Text, why: &str| {
            let why = format!("attribute `{attribute}` orders index `{}` and {why}", self.name);
            Err(Error::InvalidItem { key: item.key.clone(), why })
        };
        match partition {
            None => {}
            Some(Value::String(text)) if text.is_empty() => {
                return refuse(&self.partition, "must not be empty");
            }
            Some(Value::String(text)) => {
                limits::at_most(Limit::PartitionKeyBytes, text.len(), limits::PARTITION_KEY_BYTES_MAX)?;
            }
            Some(_) => return refuse(&self.partition, "must be a string"),
        }
        match (sort, self.sort_type) {
            (None, _) | (Some(Value::Number(_)), SortType::Number) => Ok(()),
            (Some(Value::String(text)), SortType::String) if !text.is_empty() => {
                limits::at_most(Limit::SortKeyBytes, text.len(), limits::SORT_KEY_BYTES_MAX)
            }
            (Some(Value::String(_)), SortType::String) => refuse(&self.sort, "must not be empty"),
            (Some(_), SortType::String) => refuse(&self.sort, "must be a string"),
            (Some(_), SortType::Number) => refuse(&self.sort, "must be a number"),
        }
    }
}

/// [`Place`] by reference: on the way of every write, where copies would be most of the cost.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Spot<'a> {
    pub(crate) partition: &'a Text,
    pub(crate) sort: SortRef<'a>,
}

/// [`SortValue`] by reference.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum SortRef<'a> {
    String(&'a Text),
    Number(i64),
}

impl SortRef<'_> {
    fn to_value(self) -> SortValue {
        match self {
            Self::String(text) => SortValue::String(text.clone()),
            Self::Number(number) => SortValue::Number(number),
        }
    }
}

impl<'a> From<&'a SortValue> for SortRef<'a> {
    fn from(value: &'a SortValue) -> Self {
        match value {
            SortValue::String(text) => Self::String(text),
            SortValue::Number(number) => Self::Number(*number),
        }
    }
}

/// Where an item stands in an index. Rows with the same place are ordered by the item's key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The value of the partition attribute.
    pub partition: Text,
    /// The value of the sort attribute.
    pub sort: SortValue,
}

/// The indexes of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    indexes: Vec<Index>,
}

impl Schema {
    /// A schema of these indexes.
    ///
    /// # Errors
    /// [`Error::InvalidSchema`] if two indexes share a name, a local index is not partitioned by `PK`, a
    /// key attribute is sorted as a number, or there are more indexes than DynamoDB allows.
    pub fn new(indexes: impl IntoIterator<Item = Index>) -> Result<Self> {
        let indexes: Vec<Index> = indexes.into_iter().collect();
        let refuse = |why: String| Err(Error::InvalidSchema { why });
        for (at, index) in indexes.iter().enumerate() {
            let name = &index.name;
            if name.is_empty() || name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return refuse(format!("index name `{name}` must be 1 to 64 letters and digits"));
            }
            if indexes[..at].iter().any(|other| other.name == *name) {
                return refuse(format!("index `{name}` is there twice"));
            }
            if index.scope == Scope::Local && index.partition != PK {
                return refuse(format!("local index `{name}` must be partitioned by `PK`"));
            }
            if (index.sort == PK || index.sort == SK) && index.sort_type == SortType::Number {
                return refuse(format!("index `{name}` sorts by part of the key, which is a string"));
            }
        }
        for (scope, max) in [(Scope::Local, 5), (Scope::Global, 20)] {
            if indexes.iter().filter(|index| index.scope == scope).count() > max {
                return refuse(format!("more than {max} indexes of scope {scope:?}"));
            }
        }
        Ok(Self { indexes })
    }

    /// All indexes, in the order given.
    pub fn indexes(&self) -> &[Index] {
        &self.indexes
    }

    /// The position and definition of the index called `name`.
    ///
    /// # Errors
    /// [`Error::UnknownIndex`] if there is none.
    pub fn find(&self, name: &str) -> Result<(usize, &Index)> {
        let found = self.indexes.iter().enumerate().find(|(_, index)| index.name == name);
        found.ok_or_else(|| Error::UnknownIndex { name: name.to_owned() })
    }

    /// Whether the index attributes of `item` have the types the indexes need.
    pub(crate) fn check_item(&self, item: &Item) -> Result<()> {
        self.indexes.iter().try_for_each(|index| index.check_item(item))
    }

    /// The key of the row a page ends with: see `Position`.
    pub(crate) fn sort_of(&self, index: Option<usize>, item: &Item) -> Option<(Key, Option<SortValue>)> {
        match index {
            None => Some((item.key.clone(), None)),
            Some(at) => {
                let place = self.indexes[at].place_of(item)?;
                Some((item.key.clone(), Some(place.sort)))
            }
        }
    }
}
