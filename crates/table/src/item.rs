//! Items: a key and named attributes.
//!
//! Attributes are kept in one vector sorted by name, not in a tree: items have a handful of them, and
//! decoding then costs one allocation. Two attribute names mean something to the table itself:
//! [`VERSION`], which `Condition::VersionEquals` compares, and [`EXPIRES_AT`], after which the item is gone.
//! `PK` and `SK` are part of the key and never appear among the attributes.
//!
//! [`Item::size_bytes`] is DynamoDB's definition of an item's size, because limits and metering are
//! stated in it on every backend; it is not the size on the embedded store's disk.

use crate::key::{Key, SortValue, Text};

/// The attribute that `Condition::VersionEquals` compares; a number wherever it is present.
pub const VERSION: &str = "version";
/// The attribute after which an item is gone, in seconds since 1970; a number wherever it is present.
pub const EXPIRES_AT: &str = "expires_at";
/// The name under which the partition key is an attribute (in index definitions and in sizes).
pub const PK: &str = "PK";
/// The name under which the sort key is an attribute.
pub const SK: &str = "SK";

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// UTF-8 text.
    String(Text),
    /// An exact 64-bit integer; there are no floating point numbers in the table.
    Number(i64),
    /// True or false.
    Bool(bool),
    /// Bytes without meaning to the table.
    Bytes(Vec<u8>),
    /// Values in order.
    List(Vec<Value>),
    /// Values by name.
    Map(Attributes),
}

impl Value {
    /// The size of the value as DynamoDB counts it.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::String(text) => text.len(),
            Self::Number(number) => number_size_bytes(*number),
            Self::Bool(_) => 1,
            Self::Bytes(bytes) => bytes.len(),
            Self::List(values) => 3 + values.iter().map(|value| 1 + value.size_bytes()).sum::<usize>(),
            Self::Map(map) => {
                3 + map.iter().map(|(name, value)| 1 + name.len() + value.size_bytes()).sum::<usize>()
            }
        }
    }

    /// How many containers lie inside each other: 0 for a plain value.
    pub fn depth(&self) -> usize {
        match self {
            Self::List(values) => 1 + values.iter().map(Self::depth).max().unwrap_or(0),
            Self::Map(map) => 1 + map.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }
}

/// DynamoDB stores about two decimal digits a byte, plus one byte, plus one for a minus sign.
/// Trailing zeros are not significant digits and cost nothing.
fn number_size_bytes(number: i64) -> usize {
    let mut magnitude = number.unsigned_abs();
    if magnitude == 0 {
        return 1;
    }
    while magnitude.is_multiple_of(10) {
        magnitude /= 10;
    }
    let digits = magnitude.ilog10() as usize + 1;
    digits.div_ceil(2) + 1 + usize::from(number < 0)
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}
value_from!(&str => String, String => String, Text => String, i64 => Number, bool => Bool, Vec<u8> => Bytes,
    Vec<Value> => List, Attributes => Map);

/// Named values, sorted by name, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(Vec<(Text, Value)>);

impl Attributes {
    /// No attributes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No attributes yet, with room for `count` of them.
    pub fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// The value under `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.position(name).ok().map(|at| &self.0[at].1)
    }

    /// Puts `value` under `name`, replacing what stood there.
    pub fn set(&mut self, name: impl Into<Text>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        // Attributes mostly arrive in order (from a row, or from code that lists them so).
        if self.0.last().is_none_or(|(last, _)| last.as_str() < name.as_str()) {
            self.0.push((name, value));
            return;
        }
        match self.position(&name) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (name, value)),
        }
    }

    /// Takes out what stands under `name`.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.position(name).ok().map(|at| self.0.remove(at).1)
    }

    /// All attributes, ordered by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Text, &Value)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(at, _)| at.as_str().cmp(name))
    }
}

impl<N: Into<Text>, V: Into<Value>> FromIterator<(N, V)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut attributes = Self::new();
        for (name, value) in pairs {
            attributes.set(name, value);
        }
        attributes
    }
}

/// A key and what is known under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What the item is found by.
    pub key: Key,
    /// What it carries.
    pub attributes: Attributes,
}

impl Item {
    /// An item that carries nothing yet.
    pub fn new(pk: impl Into<Text>, sk: impl Into<Text>) -> Self {
        Self { key: Key::new(pk, sk), attributes: Attributes::new() }
    }

    /// The same item with one attribute more.
    #[must_use]
    pub fn with(mut self, name: impl Into<Text>, value: impl Into<Value>) -> Self {
        self.attributes.set(name, value);
        self
    }

    /// The value under `name`; the key's parts are not attributes.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.attributes.get(name)
    }

    /// The text under `name`, if there is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The number under `name`, if there is a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// The item's version, if it carries one.
    pub fn version(&self) -> Option<i64> {
        self.number(VERSION)
    }

    /// Whether the item is gone at `now_seconds`: from the second `expires_at` on.
    pub fn is_expired(&self, now_seconds: i64) -> bool {
        self.number(EXPIRES_AT).is_some_and(|expires_at| expires_at <= now_seconds)
    }

    /// The size of the item as DynamoDB counts it: names and values, the key included.
    pub fn size_bytes(&self) -> usize {
        let attributes: usize =
            self.attributes.iter().map(|(name, value)| name.len() + value.size_bytes()).sum();
        PK.len() + self.key.pk.len() + SK.len() + self.key.sk.len() + attributes
    }

    /// The text an index would take from attribute `name`, where `PK` and `SK` name the key's parts.
    pub(crate) fn index_text(&self, name: &str) -> Option<&Text> {
        match name {
            PK => Some(&self.key.pk),
            SK => Some(&self.key.sk),
            _ => match self.get(name) {
                Some(Value::String(text)) => Some(text),
                _ => None,
            },
        }
    }

    /// The sort value an index would take from attribute `name`.
    pub(crate) fn index_sort(&self, name: &str) -> Option<SortValue> {
        match name {
            PK => Some(SortValue::String(self.key.pk.clone())),
            SK => Some(SortValue::String(self.key.sk.clone())),
            _ => match self.get(name) {
                Some(Value::String(text)) => Some(SortValue::String(text.clone())),
                Some(Value::Number(number)) => Some(SortValue::Number(*number)),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_stay_sorted_and_unique() {
        let mut attributes = Attributes::new();
        for name in ["b", "a", "c", "b"] {
            attributes.set(name, name);
        }
        attributes.set("a", 7);
        let names: Vec<&str> = attributes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(attributes.get("a"), Some(&Value::Number(7)));
        assert_eq!(attributes.remove("b"), Some("b".into()));
        assert_eq!(attributes.get("b"), None);
    }

    #[test]
    fn sizes_are_counted_as_dynamodb_counts_them() {
        // "PK" + "U#1" + "SK" + "M" = 8, "name" + "Ann" = 7, "score" + two digits a byte + 1 = 5 + 3.
        let item = Item::new("U#1", "M").with("name", "Ann").with("score", 1234);
        assert_eq!(item.size_bytes(), 8 + 7 + 8);
        assert_eq!(Value::Number(0).size_bytes(), 1);
        assert_eq!(Value::Number(100).size_bytes(), 2);
        assert_eq!(Value::Number(-5).size_bytes(), 3);
        assert_eq!(Value::Number(i64::MIN).size_bytes(), 12);
        assert_eq!(Value::List(vec![1.into(), true.into()]).size_bytes(), 3 + 1 + 2 + 1 + 1);
    }
}
