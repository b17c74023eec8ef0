//! Settings: read from file, environment and flags, each stronger than the one before, and checked once into types.
//!
//! | file | holds |
//! |---|---|
//! | `config/table.rs` | the one table of settings, from which flags, help and sample are made |
//! | `config/sources.rs` | file, environment and flags, as text with an origin |
//! | `config/error.rs` | what can be wrong |
//!
//! A new setting is a row of the table and a field here. After [`load`] nothing else reads the environment, and no
//! setting is looked at as text again.

mod error;
mod sources;
pub mod table;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::{Origin, SettingError};
pub use sources::Flags;

use crate::http::middleware::RequestLimits;
use crate::http::serve::ConnectionLimits;
use sources::Values;

/// What the variables of settings begin with.
pub(crate) const VARIABLE_PREFIX: &str = "STANDINGS_";

/// Everything that can be set, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The folder of the embedded store.
    pub data: PathBuf,
    /// Where every item lives.
    pub store: Store,
    /// What answers where a user stands.
    pub ranking: Ranking,
    /// Certificate and key, for HTTPS.
    pub tls: Option<TlsFiles>,
    /// What a request may use.
    pub request_limits: RequestLimits,
    /// What connections may use.
    pub connection_limits: ConnectionLimits,
    /// Requests a second for each key; nothing means no limit.
    pub rate_limit_per_second: Option<NonZeroU32>,
    /// For how many days plays are kept; nothing means for good.
    pub plays_keep_days: Option<NonZeroU32>,
    /// How often a ranking is written to disk.
    pub checkpoint_interval: Duration,
    /// How much is logged.
    pub log_level: tracing::Level,
    /// The form of log lines.
    pub log_format: LogFormat,
}

/// Where every item lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Store {
    /// On this machine's disk.
    Embedded,
}

/// What answers where a user stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ranking {
    /// Counted trees in this process.
    Memory,
}

/// The files for HTTPS, which belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs: one object a line.
    Json,
}

/// Reads and checks all settings. A relative `--config` counts from `working_folder`, as does the default file.
pub fn load(
    flags: &Flags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    working_folder: &Path,
) -> Result<Settings, SettingError> {
    Checker(sources::gather(flags, environment, working_folder)?).settings()
}

/// Turns texts into types; a text that is not allowed becomes an error with its origin.
struct Checker(Values);

impl Checker {
    fn settings(&self) -> Result<Settings, SettingError> {
        Ok(Settings {
            listen: self.required("listen", |text| text.parse().ok())?,
            data: self.required("data", path)?,
            store: self.required("store", |text| (text == "embedded").then_some(Store::Embedded))?,
            ranking: self.required("ranking", |text| (text == "memory").then_some(Ranking::Memory))?,
            tls: self.tls()?,
            request_limits: RequestLimits {
                body_bytes_max: self.required("body_bytes_max", |text| number(text, 1 << 10, 1 << 30))?,
                request_time_max: self.required("request_seconds_max", |text| seconds(text, 3600))?,
            },
            connection_limits: ConnectionLimits {
                connections_max: self.required("connections_max", |text| number(text, 1, 1_000_000))?,
                header_bytes_max: self.required("header_bytes_max", |text| number(text, 8192, 1 << 20))?,
                idle_time_max: self.required("idle_seconds_max", |text| seconds(text, 3600))?,
                shutdown_time_max: self.required("shutdown_seconds_max", |text| seconds(text, 3600))?,
            },
            rate_limit_per_second: NonZeroU32::new(
                self.required("rate_limit_per_second", |text| number(text, 0, 1_000_000))?,
            ),
            plays_keep_days: self
                .optional("plays_keep_days", |text| number(text, 1, 36_500))?
                .and_then(NonZeroU32::new),
            checkpoint_interval: self.required("checkpoint_seconds", |text| seconds(text, 86_400))?,
            log_level: self.required("log_level", level)?,
            log_format: self.required("log_format", |text| match text {
                "text" => Some(LogFormat::Text),
                "json" => Some(LogFormat::Json),
                _ => None,
            })?,
        })
    }

    fn tls(&self) -> Result<Option<TlsFiles>, SettingError> {
        let incomplete = |given, missing| {
            let origin = self.0.get(given).map_or(Origin::Default, |(_, origin)| origin.clone());
            Err(SettingError::Incomplete { given, origin, missing })
        };
        match (self.optional("tls_certificate", path)?, self.optional("tls_key", path)?) {
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => incomplete("tls_certificate", "tls_key"),
            (None, Some(_)) => incomplete("tls_key", "tls_certificate"),
        }
    }

    fn required<T>(&self, name: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T, SettingError> {
        let default = table::find(name).and_then(|setting| setting.default).and_then(&parse);
        Ok(self
            .optional(name, parse)?
            .or(default)
            .expect("the table has a default that is allowed; a test checks it"))
    }

    fn optional<T>(
        &self,
        name: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingError> {
        let Some((value, origin)) = self.0.get(name) else { return Ok(None) };
        parse(value).map(Some).ok_or_else(|| SettingError::NotAllowed {
            name,
            value: value.clone(),
            origin: origin.clone(),
            allowed: table::find(name).map_or("", |setting| setting.allowed),
        })
    }
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn number<T: TryFrom<u64>>(text: &str, min: u64, max: u64) -> Option<T> {
    // A plus sign would be taken by the parser, and is not what the help shows.
    let number = text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    (min..=max).contains(&number).then(|| T::try_from(number).ok()).flatten()
}

fn seconds(text: &str, max: u64) -> Option<Duration> {
    number(text, 1, max).map(Duration::from_secs)
}

fn level(text: &str) -> Option<tracing::Level> {
    match text {
        "error" => Some(tracing::Level::ERROR),
        "warn" => Some(tracing::Level::WARN),
        "info" => Some(tracing::Level::INFO),
        "debug" => Some(tracing::Level::DEBUG),
        "trace" => Some(tracing::Level::TRACE),
        _ => None,
    }
}
