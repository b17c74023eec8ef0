//! `standings rank`: where one user stands.

use serde_json::Value;

use super::client::Client;
use super::output;

const EXAMPLE: &str = "\
Example:
  standings rank ada --board weekly";

/// Show where a user stands.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Rank {
    /// The user.
    user_id: String,
    /// Another season than the live one.
    #[arg(long, value_name = "SEASON")]
    season: Option<String>,
    #[command(flatten)]
    client: Client,
}

impl Rank {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let path = self.client.path(&["scores", &self.user_id]);
        let reply = self.client.get(&path, &[("season", self.season)])?;
        if self.client.json {
            return output::print_raw(&reply);
        }
        let names = ["user_id", "user_name", "rank", "score", "percentile", "players", "season"];
        let user = reply.json.get("user_info").unwrap_or(&Value::Null);
        output::print(&output::fields(user, &names))
    }
}
