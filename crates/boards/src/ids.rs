//! Names that callers choose, checked once and trusted afterwards.
//!
//! They become parts of keys that are joined by `#` and parts of paths that are joined by `/`, so neither may occur in them.

use std::fmt;

use serde::{Deserialize, Serialize};
use standings_table::Text;

use crate::error::{Error, Result};

/// The longest id, in bytes.
pub const ID_BYTES_MAX: usize = 64;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Text);

        impl $name {
            /// Checks and takes an id.
            ///
            /// # Errors
            /// [`Error::InvalidId`], which says what is allowed.
            pub fn new(id: impl AsRef<str>) -> Result<Self> {
                let id = id.as_ref();
                let allowed: fn(&str) -> std::result::Result<(), &'static str> = $allowed;
                allowed(id).map_err(|why| Error::InvalidId { what: $what, why })?;
                Ok(Self(id.into()))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(id: String) -> Result<Self> {
                Self::new(id)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

id!(
    /// Somebody who scores: the caller's own string.
    UserId,
    "user_id",
    printable
);
id!(
    /// One submitted score: the caller's own string, or one we made.
    PlayId,
    "play_id",
    printable
);
id!(
    /// A board's name.
    BoardId,
    "board",
    simple
);

id!(
    /// The name of a snapshot: a season, a day, or what somebody chose.
    Label,
    "label",
    simple
);

impl Label {
    /// A label that comes from the table, or is the name of a season.
    pub(crate) fn stored(label: &str) -> Self {
        Self(label.into())
    }
}

impl PlayId {
    /// A new id that nobody else makes.
    pub fn generate() -> Self {
        let mut buffer = uuid::Uuid::encode_buffer();
        Self(Text::from(&*uuid::Uuid::now_v7().simple().encode_lower(&mut buffer)))
    }
}

/// 1 to 64 bytes of printable text without `#` and `/`.
fn printable(id: &str) -> std::result::Result<(), &'static str> {
    length(id)?;
    // Almost all ids are plain: one pass over the bytes, and only others are looked at as characters.
    if id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
        return Ok(());
    }
    match id.chars().find(|character| character.is_control() || matches!(character, '#' | '/')) {
        None => Ok(()),
        Some('#' | '/') => Err("must not contain '#' or '/'"),
        Some(_) => Err("must not contain control characters"),
    }
}

/// 1 to 64 letters, digits, `.`, `_` and `-`.
fn simple(id: &str) -> std::result::Result<(), &'static str> {
    length(id)?;
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')) {
        return Err("must consist of ASCII letters, digits, '.', '_' and '-'");
    }
    if !id.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return Err("must begin with a letter or a digit");
    }
    Ok(())
}

fn length(id: &str) -> std::result::Result<(), &'static str> {
    match id.len() {
        0 => Err("must not be empty"),
        1..=ID_BYTES_MAX => Ok(()),
        _ => Err("must not be longer than 64 bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_hold_what_the_design_allows_and_nothing_else() {
        for good in ["a", "7", "Ünïcödé ☃", "with space", &"x".repeat(64), "a.b-c_d"] {
            assert!(UserId::new(good).is_ok(), "{good}");
        }
        for bad in ["", &"x".repeat(65), "a#b", "a/b", "a\nb", "\u{7f}", "\u{85}"] {
            assert!(UserId::new(bad).is_err(), "{bad}");
            assert!(BoardId::new(bad).is_err(), "{bad}");
        }
        assert!(BoardId::new("weekly-best.2").is_ok());
        for bad in ["-a", ".", "a b", "ü"] {
            assert!(BoardId::new(bad).is_err(), "{bad}");
        }
        assert_ne!(PlayId::generate(), PlayId::generate());
        assert!(PlayId::new(PlayId::generate().as_str()).is_ok());
    }
}
