//! Queries and scans, and the pages they answer with.
//!
//! A query names one partition, of the table or of an index, and perhaps a range of sort keys; a scan
//! walks one of `n` segments of the table. Both come in pages. A page may be short, even empty, and
//! not be the last: only `next: None` says that there is no more. That is DynamoDB's rule, and code that holds to
//! it works on every backend.

use crate::error::{Error, Result};
use crate::item::Item;
use crate::key::{Key, SortType, SortValue, Text};
use crate::limits::{self, Limit, PAGE_BYTES_MAX, PARTITION_KEY_BYTES_MAX, SCAN_SEGMENTS_MAX};
use crate::schema::{Schema, Scope};

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Sees every transaction acknowledged before the read began.
    Strong,
    /// May miss the latest ones; half the price.
    Eventual,
}

/// Which way a query walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Smallest sort key first.
    Forward,
    /// Largest sort key first.
    Backward,
}

/// Which sort keys a query wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SortRange {
    /// All of them.
    All,
    /// Exactly this one.
    Equals(SortValue),
    /// Strings that begin with this.
    BeginsWith(Text),
    /// From the first to the second, both included.
    Between(SortValue, SortValue),
    /// Smaller than this.
    Less(SortValue),
    /// Greater than this.
    Greater(SortValue),
}

impl SortRange {
    /// Whether a sort key is wanted.
    pub fn contains(&self, sort: &SortValue) -> bool {
        match self {
            Self::All => true,
            Self::Equals(value) => sort == value,
            Self::BeginsWith(prefix) => match sort {
                SortValue::String(text) => text.as_bytes().starts_with(prefix.as_bytes()),
                SortValue::Number(_) => false,
            },
            Self::Between(low, high) => low <= sort && sort <= high,
            Self::Less(bound) => sort < bound,
            Self::Greater(bound) => sort > bound,
        }
    }

    fn sort_types(&self) -> Vec<SortType> {
        match self {
            Self::All => vec![],
            Self::Equals(value) | Self::Less(value) | Self::Greater(value) => vec![value.sort_type()],
            Self::BeginsWith(_) => vec![SortType::String],
            Self::Between(low, high) => vec![low.sort_type(), high.sort_type()],
        }
    }
}

/// Where a page ended: the key of its last row. Reading goes on after it, whether or not it is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The item's key.
    pub key: Key,
    /// The row's sort value, if the page came from an index.
    pub sort: Option<SortValue>,
}

/// A question about one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The index to read, or nothing for the table itself.
    pub index: Option<Text>,
    /// The partition.
    pub partition: Text,
    /// The sort keys wanted.
    pub sort: SortRange,
    /// Which way to walk.
    pub direction: Direction,
    /// At most so many items in the page; a page also ends at 1 MB.
    pub limit: Option<usize>,
    /// Where the page before ended.
    pub start_after: Option<Position>,
    /// How fresh the answer must be.
    pub consistency: Consistency,
}

impl Query {
    /// Everything in a partition of the table, forward, read strongly.
    pub fn table(partition: impl Into<Text>) -> Self {
        Self {
            index: None,
            partition: partition.into(),
            sort: SortRange::All,
            direction: Direction::Forward,
            limit: None,
            start_after: None,
            consistency: Consistency::Strong,
        }
    }

    /// Everything in a partition of an index, forward, read eventually.
    pub fn index(index: impl Into<Text>, partition: impl Into<Text>) -> Self {
        Self { index: Some(index.into()), consistency: Consistency::Eventual, ..Self::table(partition) }
    }

    /// Narrowed to these sort keys.
    #[must_use]
    pub fn sort(mut self, sort: SortRange) -> Self {
        self.sort = sort;
        self
    }

    /// Largest sort key first.
    #[must_use]
    pub fn backward(mut self) -> Self {
        self.direction = Direction::Backward;
        self
    }

    /// At most `limit` items a page.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Going on where a page ended.
    #[must_use]
    pub fn after(mut self, position: Option<Position>) -> Self {
        self.start_after = position;
        self
    }

    /// Read strongly: refused for a global index.
    #[must_use]
    pub fn strong(mut self) -> Self {
        self.consistency = Consistency::Strong;
        self
    }

    /// Refuses what no backend can answer; returns the position of the index in the schema.
    pub(crate) fn check(&self, schema: &Schema) -> Result<Option<usize>> {
        let refuse = |why: &str| Err(Error::InvalidRequest { why: why.to_owned() });
        if self.partition.is_empty() {
            return refuse("a query needs a partition");
        }
        limits::at_most(Limit::PartitionKeyBytes, self.partition.len(), PARTITION_KEY_BYTES_MAX)?;
        if self.limit == Some(0) {
            return refuse("a page of no items never ends; ask for at least one");
        }
        let (at, sort_type) = match &self.index {
            None => (None, SortType::String),
            Some(name) => {
                let (at, index) = schema.find(name)?;
                if index.scope == Scope::Global && self.consistency == Consistency::Strong {
                    return Err(Error::StrongReadOfGlobalIndex { name: name.to_string() });
                }
                (Some(at), index.sort_type)
            }
        };
        if self.sort.sort_types().iter().any(|asked| *asked != sort_type) {
            return refuse("the sort key asked for has another type than the index's sort attribute");
        }
        if let Some(position) = &self.start_after {
            let fits = match (&position.sort, at) {
                (None, None) => position.key.pk == self.partition,
                (Some(sort), Some(_)) => sort.sort_type() == sort_type,
                _ => false,
            };
            if !fits {
                return refuse("the position to go on from belongs to another query");
            }
        }
        Ok(at)
    }
}

/// A walk through one segment of the table, in no order a caller may rely on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Which segment, from 0.
    pub segment: usize,
    /// Into how many segments the table is cut.
    pub segments: usize,
    /// At most so many items in the page; a page also ends at 1 MB.
    pub limit: Option<usize>,
    /// Where the page before ended.
    pub start_after: Option<Position>,
    /// How fresh the answer must be.
    pub consistency: Consistency,
}

impl Scan {
    /// Segment `segment` of `segments`, read strongly.
    pub fn segment(segment: usize, segments: usize) -> Self {
        Self { segment, segments, limit: None, start_after: None, consistency: Consistency::Strong }
    }

    /// The whole table as one segment, read strongly.
    pub fn all() -> Self {
        Self::segment(0, 1)
    }

    /// At most `limit` items a page.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Going on where a page ended.
    #[must_use]
    pub fn after(mut self, position: Option<Position>) -> Self {
        self.start_after = position;
        self
    }

    /// Refuses what no backend can answer.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |why: &str| Err(Error::InvalidRequest { why: why.to_owned() });
        limits::at_most(Limit::ScanSegments, self.segments, SCAN_SEGMENTS_MAX)?;
        if self.segment >= self.segments {
            return refuse("segments count from 0 and there must be at least one");
        }
        if self.limit == Some(0) {
            return refuse("a page of no items never ends; ask for at least one");
        }
        if self.start_after.as_ref().is_some_and(|position| position.sort.is_some()) {
            return refuse("the position to go on from belongs to a query of an index");
        }
        Ok(())
    }
}

/// Part of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The items, cut down to the index's projection.
    pub items: Vec<Item>,
    /// Where to go on; nothing when there is no more.
    pub next: Option<Position>,
}

/// Fills a page up to its limits; the same for every backend that cuts its own pages.
pub(crate) struct PageBuilder {
    items: Vec<Item>,
    items_max: usize,
    bytes: usize,
}

impl PageBuilder {
    /// An empty page for at most `limit` items.
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self { items: Vec::new(), items_max: limit.unwrap_or(usize::MAX), bytes: 0 }
    }

    /// Adds the item, or says that the page was full before it.
    pub(crate) fn push(&mut self, item: Item) -> bool {
        let bytes = item.size_bytes();
        let full = self.items.len() >= self.items_max || self.bytes + bytes > PAGE_BYTES_MAX;
        // One item always fits, however large, or a page could never get past it.
        if full && !self.items.is_empty() {
            return false;
        }
        self.bytes += bytes;
        self.items.push(item);
        true
    }

    /// The page, ended because it was full (there is at least one row more).
    pub(crate) fn full(self, schema: &Schema, index: Option<usize>) -> Page {
        let last = self.items.last().and_then(|item| schema.sort_of(index, item));
        let next = last.map(|(key, sort)| Position { key, sort });
        Page { items: self.items, next }
    }

    /// The page, ended because there are no more rows.
    pub(crate) fn done(self) -> Page {
        Page { items: self.items, next: None }
    }
}
