//! Opening the data folder: the table, the meter in front of it, the rules on top; and keys kept in it.
//!
//! ```text
//! <data>/table          the table
//! <data>/checkpoints    rankings of some time ago; can be deleted at any time
//! ```

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use standings_boards::{Boards, Settings, records};
use standings_table::embedded::Options;
use standings_table::{EmbeddedTable, MeteredTable, SystemClock, Table};

use crate::auth::{ApiKey, KeyText, Role};
use crate::http::error::{Code, Problem};

/// An open data folder.
pub struct Store {
    /// The rules on top.
    pub boards: Boards,
    /// The table with its meter.
    pub table: Arc<MeteredTable<Arc<EmbeddedTable>>>,
}

impl Store {
    /// Opens the data folder, making it if it is not there. Rankings are not loaded yet.
    ///
    /// # Errors
    /// If it is open already, damaged, of another version, or cannot be written to.
    pub async fn open(data: &Path, plays_keep_days: Option<u32>) -> anyhow::Result<Self> {
        let options = Options::new(records::schema());
        let table = EmbeddedTable::open(data.join("table"), options)
            .with_context(|| format!("cannot open the data folder {}", data.display()))?;
        let table = Arc::new(MeteredTable::new(Arc::new(table), SystemClock));
        let settings =
            Settings { checkpoints: Some(data.join("checkpoints")), plays_keep_days, ..Settings::default() };
        let boards = Boards::open(table.clone() as Arc<dyn Table>, Arc::new(SystemClock), settings).await?;
        Ok(Self { boards, table })
    }
}

/// Makes and keeps a key.
pub(crate) async fn create_key(
    boards: &Boards,
    name: &str,
    role: Role,
    prefixes: Vec<String>,
) -> Result<(ApiKey, KeyText), Problem> {
    let refuse = |field: &str, why: &str| {
        Err(Problem::new(Code::InvalidBody, format!("{field} {why}")).with("field", field.to_owned()))
    };
    if name.trim().is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
        return refuse("name", "must be 1 to 100 bytes of printable text, to tell keys apart by");
    }
    let allowed = |prefix: &String| {
        !prefix.is_empty()
            && prefix.len() <= 64
            && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if prefixes.len() > 100 || !prefixes.iter().all(allowed) {
        return refuse("boards", "must be beginnings of board names: letters, digits, '.', '_' and '-'");
    }
    let stored = standings_boards::keys::list(&**boards.table()).await?;
    if stored.is_empty() && (role != Role::Admin || !prefixes.is_empty()) {
        return refuse(
            "role",
            "of the first key must be admin, without limits to boards: it closes the server to everyone without a key",
        );
    }
    let (key, text) =
        ApiKey::create(name, role, prefixes, boards.now_us() / 1_000).map_err(Problem::internal)?;
    let content = serde_json::to_value(&key).map_err(Problem::internal)?;
    standings_boards::keys::add(&**boards.table(), &key.id, content).await?;
    tracing::info!(id = key.id, role = %key.role, "made a key");
    Ok((key, text))
}

/// Revokes a key; one that was revoked before stays as it is.
pub(crate) async fn revoke_key(boards: &Boards, id: &str) -> Result<ApiKey, Problem> {
    let keys = crate::http::app::stored_keys(boards).await?;
    let mut key = keys
        .into_iter()
        .find(|key| key.id == id)
        .ok_or_else(|| standings_boards::Error::UnknownKey { id: id.to_owned() })?;
    if key.revoked_at_ms.is_none() {
        key.revoked_at_ms = Some(boards.now_us() / 1_000);
        let content = serde_json::to_value(&key).map_err(Problem::internal)?;
        standings_boards::keys::change(&**boards.table(), id, |_| content).await?;
        tracing::info!(id, "revoked a key");
    }
    Ok(key)
}
