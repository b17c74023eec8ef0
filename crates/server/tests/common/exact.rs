//! JSON compared digit by digit. Numbers stay text: 64-bit scores and decimals would not survive floating point.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// A JSON value whose numbers are as they were written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Exact {
    /// A number, `true`, `false` or `null`, as it was written.
    Literal(String),
    Text(String),
    List(Vec<Exact>),
    Object(BTreeMap<String, Exact>),
}

impl Exact {
    pub(crate) fn parse(text: &str) -> Exact {
        let raw: &RawValue =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"));
        Exact::of(raw)
    }

    fn of(raw: &RawValue) -> Exact {
        let text = raw.get();
        match text.as_bytes()[0] {
            b'{' => {
                let fields: Vec<(String, &RawValue)> = fields(text);
                let count = fields.len();
                let object: BTreeMap<_, _> =
                    fields.into_iter().map(|(name, value)| (name, Exact::of(value))).collect();
                assert_eq!(object.len(), count, "a field stands twice in {text}");
                Exact::Object(object)
            }
            b'[' => {
                let values: Vec<&RawValue> = serde_json::from_str(text).expect("it was parsed before");
                Exact::List(values.into_iter().map(Exact::of).collect())
            }
            b'"' => Exact::Text(serde_json::from_str(text).expect("it was parsed before")),
            _ => Exact::Literal(text.to_owned()),
        }
    }

    pub(crate) fn null() -> Exact {
        Exact::Literal("null".to_owned())
    }

    pub(crate) fn get(&self, name: &str) -> &Exact {
        match self {
            Exact::Object(fields) => fields.get(name).unwrap_or_else(|| panic!("no `{name}` in {self:?}")),
            _ => panic!("no object: {self:?}"),
        }
    }

    /// Replaces a field; says what was there.
    pub(crate) fn replace(&mut self, name: &str, value: Exact) -> Exact {
        match self {
            Exact::Object(fields) => fields.insert(name.to_owned(), value).unwrap_or_else(Exact::null),
            _ => panic!("no object: {self:?}"),
        }
    }

    pub(crate) fn list(&self) -> &[Exact] {
        match self {
            Exact::List(values) => values,
            _ => panic!("no list: {self:?}"),
        }
    }

    /// A text, or nothing if it is null.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Exact::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number.
    pub(crate) fn number(&self) -> i64 {
        match self {
            Exact::Literal(text) => text.parse().unwrap_or_else(|_| panic!("no whole number: {text}")),
            _ => panic!("no number: {self:?}"),
        }
    }
}

/// The fields of an object in their order, so that one that stands twice is seen.
fn fields(text: &str) -> Vec<(String, &RawValue)> {
    struct Fields<'a>(Vec<(String, &'a RawValue)>);

    impl<'de> serde::Deserialize<'de> for Fields<'de> {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Collect;
            impl<'de> serde::de::Visitor<'de> for Collect {
                type Value = Fields<'de>;

                fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    formatter.write_str("an object")
                }

                fn visit_map<M: serde::de::MapAccess<'de>>(
                    self,
                    mut map: M,
                ) -> Result<Fields<'de>, M::Error> {
                    let mut fields = Vec::new();
                    while let Some(field) = map.next_entry()? {
                        fields.push(field);
                    }
                    Ok(Fields(fields))
                }
            }
            deserializer.deserialize_map(Collect)
        }
    }

    serde_json::from_str::<Fields<'_>>(text).expect("it was parsed before").0
}

impl From<&str> for Exact {
    fn from(text: &str) -> Exact {
        Exact::Text(text.to_owned())
    }
}

impl From<String> for Exact {
    fn from(text: String) -> Exact {
        Exact::Text(text)
    }
}

impl From<bool> for Exact {
    fn from(value: bool) -> Exact {
        Exact::Literal(value.to_string())
    }
}

impl From<usize> for Exact {
    fn from(number: usize) -> Exact {
        Exact::Literal(number.to_string())
    }
}

impl From<f64> for Exact {
    fn from(number: f64) -> Exact {
        Exact::Literal(format!("{number:?}"))
    }
}

impl<T: Into<Exact>> From<Option<T>> for Exact {
    fn from(value: Option<T>) -> Exact {
        value.map_or_else(Exact::null, Into::into)
    }
}

impl From<Vec<Exact>> for Exact {
    fn from(values: Vec<Exact>) -> Exact {
        Exact::List(values)
    }
}

impl<const N: usize> From<[(&str, Exact); N]> for Exact {
    fn from(fields: [(&str, Exact); N]) -> Exact {
        Exact::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

impl std::fmt::Debug for Exact {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exact::Literal(text) => formatter.write_str(text),
            Exact::Text(text) => write!(formatter, "{text:?}"),
            Exact::List(values) => formatter.debug_list().entries(values).finish(),
            Exact::Object(fields) => formatter.debug_map().entries(fields).finish(),
        }
    }
}
