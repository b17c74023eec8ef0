//! `standings submit`: one play.

use anyhow::Context as _;
use serde_json::{Number, Value, json};

use super::client::Client;
use super::output;

const EXAMPLE: &str = "\
Example:
  standings submit ada 10 --board weekly --play-id match-17";

/// Submit a score.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Submit {
    /// Who scored.
    user_id: String,
    /// How many points.
    #[arg(allow_negative_numbers = true)]
    points: String,
    /// Makes sending it again harmless: a play counts once by its id.
    #[arg(long, value_name = "ID")]
    play_id: Option<String>,
    /// When it was played, such as 2026-11-13T20:00:00Z, if not now.
    #[arg(long, value_name = "TIME")]
    played_at: Option<String>,
    #[command(flatten)]
    client: Client,
}

impl Submit {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let points: Number = serde_json::from_str(&self.points)
            .with_context(|| format!("points must be a number, such as 10, not `{}`", self.points))?;
        let mut play = json!({ "user_id": self.user_id, "points": points });
        for (name, value) in [("play_id", self.play_id), ("played_at", self.played_at)] {
            if let Some(value) = value {
                play[name] = Value::String(value);
            }
        }
        let reply = self.client.post(&self.client.path(&["scores"]), &play)?;
        if self.client.json {
            return output::print_raw(&reply);
        }
        let names =
            ["user_id", "score", "rank", "previous_rank", "season", "play_id", "duplicate", "improved"];
        output::print(&output::fields(&reply.json, &names))
    }
}
