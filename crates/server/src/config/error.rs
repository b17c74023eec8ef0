//! What can be wrong with settings. Each message names the setting, where it came from, and what is allowed.

use std::path::PathBuf;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody gave it.
    Default,
    /// A line of the file.
    File {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A flag, with its dashes.
    Flag(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => formatter.write_str("the default"),
            Origin::File { path, line } => write!(formatter, "{}, line {line}", path.display()),
            Origin::Variable(name) => write!(formatter, "environment variable {name}"),
            Origin::Flag(flag) => write!(formatter, "flag {flag}"),
        }
    }
}

/// Why the server does not start with these settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// A value that is not allowed.
    #[error("setting `{name}` cannot be `{value}` ({origin}); allowed: {allowed}")]
    NotAllowed {
        /// The setting.
        name: &'static str,
        /// The value given.
        value: String,
        /// Where it came from.
        origin: Origin,
        /// What is allowed.
        allowed: &'static str,
    },
    /// One of two settings that only make sense together.
    #[error("setting `{given}` ({origin}) needs `{missing}` beside it; give both or none")]
    Incomplete {
        /// The one that was given.
        given: &'static str,
        /// Where it came from.
        origin: Origin,
        /// The one that was not.
        missing: &'static str,
    },
    /// A name in the file that is no setting.
    #[error("{path}, line {line}: there is no setting `{name}`{hint}")]
    UnknownName {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// The name.
        name: String,
        /// What may have been meant, or all there are.
        hint: String,
    },
    /// A variable that looks like ours and is no setting.
    #[error("environment variable {name} is no setting{hint}")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// What may have been meant, or all there are.
        hint: String,
    },
    /// A file that cannot be read.
    #[error("cannot read the settings in {path}: {source}; check the path and that this user may read it")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is not TOML.
    #[error("{path}, line {line}: not TOML: {why}; `standings config` prints a sample")]
    NotToml {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What the parser says.
        why: String,
    },
}
