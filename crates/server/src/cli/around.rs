//! `standings around`: a user and the neighbours.

use super::client::Client;
use super::output::{self, cell};

const EXAMPLE: &str = "\
Example:
  standings around ada --above 4 --below 4
  standings around ada --season 2026-10";

/// Show a user among those next above and below.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Around {
    /// The user.
    user_id: String,
    /// How many above.
    #[arg(long, value_name = "NUMBER")]
    above: Option<u32>,
    /// How many below.
    #[arg(long, value_name = "NUMBER")]
    below: Option<u32>,
    /// Another season than the live one.
    #[arg(long, value_name = "SEASON")]
    season: Option<String>,
    #[command(flatten)]
    client: Client,
}

impl Around {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let path = self.client.path(&["scores", &self.user_id, "around"]);
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        let parameters =
            [("above", number(self.above)), ("below", number(self.below)), ("season", self.season)];
        let reply = self.client.get(&path, &parameters)?;
        if self.client.json {
            return output::print_raw(&reply);
        }
        let table = output::standings(&reply.json, Some(&self.user_id));
        let (players, season) = (cell(&reply.json, "players"), cell(&reply.json, "season"));
        output::print(&format!("{table}\nboard {}, season {season}, {players} players\n", self.client.board))
    }
}
