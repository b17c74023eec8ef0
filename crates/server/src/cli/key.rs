//! `standings key`: API keys, in the data folder of a server that is stopped, or through one that runs.

use std::path::PathBuf;

use anyhow::Context as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::client::Connection;
use super::output;
use crate::auth::Role;
use crate::store::{self, Store};

const EXAMPLE: &str = "\
Example:
  standings key create --role admin --name first-admin --data ./standings-data
  standings key create --role write --name game-server --boards ranked- --url http://127.0.0.1:7700
  standings key list
  standings key revoke 3fk29vqa";

/// Make, list and revoke API keys.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Key {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a key. It is shown once, now.
    #[command(after_help = EXAMPLE)]
    Create {
        /// What it allows; each role includes those before it.
        #[arg(long)]
        role: Role,
        /// What its owner calls it.
        #[arg(long)]
        name: String,
        /// Only boards whose names begin with this; may be given several times.
        #[arg(long, value_name = "PREFIX")]
        boards: Vec<String>,
        #[command(flatten)]
        place: Place,
    },
    /// List all keys, without their secrets.
    #[command(after_help = EXAMPLE)]
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Revoke a key, for good.
    #[command(after_help = EXAMPLE)]
    Revoke {
        /// The key's id: the part between the first two underscores.
        id: String,
        #[command(flatten)]
        place: Place,
    },
}

/// Where the keys are: with `--url` (or `STANDINGS_URL`) at a server that runs, else in a data folder.
#[derive(Debug, clap::Args)]
struct Place {
    /// The data folder of a server that is stopped.
    #[arg(long, value_name = "FOLDER", default_value = "./standings-data", env = "STANDINGS_DATA")]
    data: PathBuf,
    #[command(flatten)]
    connection: Connection,
}

impl Key {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.action {
            Action::Create { role, name, boards, place } => {
                let reply = if place.connection.is_named() {
                    let body = json!({ "name": name, "role": role, "boards": boards });
                    place.connection.post("/v1/keys", &body)?.json
                } else {
                    place.in_folder(async move |store| {
                        let made = store::create_key(&store.boards, &name, role, boards).await;
                        let (key, text) = made.map_err(|problem| anyhow::anyhow!("{}", problem.detail()))?;
                        Ok(json!({ "id": key.id, "name": key.name, "role": key.role, "boards": key.board_prefixes, "key": text.reveal() }))
                    })?
                };
                place.show(&reply, &["id", "name", "role", "boards", "key"])?;
                if !place.connection.json {
                    eprintln!("\nKeep the key: it is not shown again.");
                }
                Ok(())
            }
            Action::List { place } => {
                let reply = if place.connection.is_named() {
                    place.connection.get("/v1/keys", &[])?.json
                } else {
                    place.in_folder(async |store| {
                        let keys = crate::http::app::stored_keys(&store.boards).await?;
                        let shown = keys.iter().map(|key| {
                            let time = |ms: i64| standings_boards::format_us(ms.saturating_mul(1_000));
                            json!({ "id": key.id, "name": key.name, "role": key.role, "boards": key.board_prefixes,
                                "created_at": time(key.created_at_ms), "revoked_at": key.revoked_at_ms.map(time) })
                        });
                        Ok(json!({ "data": shown.collect::<Vec<_>>() }))
                    })?
                };
                if place.connection.json {
                    return output::print(&format!("{reply}\n"));
                }
                let columns = ["id", "role", "name", "boards", "created_at", "revoked_at"];
                output::print(&output::rows(&reply, &columns))
            }
            Action::Revoke { id, place } => {
                let reply = if place.connection.is_named() {
                    let id = utf8_percent_encode(&id, NON_ALPHANUMERIC);
                    place.connection.delete(&format!("/v1/keys/{id}"))?.json
                } else {
                    place.in_folder(async move |store| {
                        let revoked = store::revoke_key(&store.boards, &id).await;
                        let key = revoked.map_err(|problem| anyhow::anyhow!("{}", problem.detail()))?;
                        let time =
                            key.revoked_at_ms.map(|ms| standings_boards::format_us(ms.saturating_mul(1_000)));
                        Ok(json!({ "id": key.id, "name": key.name, "role": key.role, "revoked_at": time }))
                    })?
                };
                place.show(&reply, &["id", "name", "role", "revoked_at"])
            }
        }
    }
}

impl Place {
    fn show(&self, reply: &Value, names: &[&str]) -> anyhow::Result<()> {
        if self.connection.json {
            return output::print(&format!("{reply}\n"));
        }
        output::print(&output::fields(reply, names))
    }

    fn in_folder<T>(&self, work: impl AsyncFnOnce(Store) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            let store = Store::open(&self.data, None)
                .await
                .context("if the server is running, name it with --url instead")?;
            work(store).await
        })
    }
}
