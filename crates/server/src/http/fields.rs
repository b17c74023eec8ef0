//! The field names of a struct, asked from serde: a deserializer that reads nothing and remembers what it was
//! asked for.
//!
//! With it, unknown query parameters are refused whether or not a struct says `deny_unknown_fields`, and the
//! message can list the known ones.

use serde::de::{DeserializeOwned, Deserializer, Visitor};

/// The names `T` takes as a struct; nothing if it is not a plain struct (one with `flatten` takes any name).
pub(super) fn of<T: DeserializeOwned>() -> Option<&'static [&'static str]> {
    match T::deserialize(Probe) {
        Err(Answer(fields)) => fields,
        Ok(_) => None,
    }
}

struct Probe;

/// The only way out of a deserializer without a value is an error, so the answer is one.
#[derive(Debug)]
struct Answer(Option<&'static [&'static str]>);

impl std::fmt::Display for Answer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the names of the fields")
    }
}

impl std::error::Error for Answer {}

impl serde::de::Error for Answer {
    fn custom<M: std::fmt::Display>(_: M) -> Self {
        Answer(None)
    }
}

impl<'de> Deserializer<'de> for Probe {
    type Error = Answer;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Answer> {
        Err(Answer(None))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Answer> {
        Err(Answer(Some(fields)))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
