//! Keys: what an item is found by, and what an index row is ordered by.
//!
//! A [`Key`] is the pair `PK` + `SK`. Both are strings, compared byte by byte, which for UTF-8 is the
//! order of code points. A [`SortValue`] is what an index sorts by: a string or an exact `i64`.
//! How they become bytes on a disk is the embedded backend's own affair and is not here.

use std::cmp::Ordering;
use std::fmt;

/// Text in keys, names and values. Up to 24 bytes live inside the value itself, which is what keeps
/// decoding a million entries free of a million small allocations.
pub type Text = compact_str::CompactString;

/// The primary key of an item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The partition key, attribute `PK`.
    pub pk: Text,
    /// The sort key, attribute `SK`.
    pub sk: Text,
}

impl Key {
    /// A key of the two strings.
    pub fn new(pk: impl Into<Text>, sk: impl Into<Text>) -> Self {
        Self { pk: pk.into(), sk: sk.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {}", self.pk, self.sk)
    }
}

/// The value of a sort attribute: a string or a number, never a mix within one index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SortValue {
    /// Ordered byte by byte.
    String(Text),
    /// Ordered numerically.
    Number(i64),
}

impl SortValue {
    /// Which of the two types it is.
    pub fn sort_type(&self) -> SortType {
        match self {
            Self::String(_) => SortType::String,
            Self::Number(_) => SortType::Number,
        }
    }
}

/// Numbers stand before strings; within one index only one type occurs, so this never shows.
impl Ord for SortValue {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::String(a), Self::String(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Number(_), Self::String(_)) => Ordering::Less,
            (Self::String(_), Self::Number(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for SortValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<&str> for SortValue {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for SortValue {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<i64> for SortValue {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// The type of a sort attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SortType {
    /// Strings, ordered byte by byte.
    String,
    /// Exact 64-bit integers, ordered numerically.
    Number,
}
