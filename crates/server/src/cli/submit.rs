//! `standings submit`: one play.

use anyhow::Context as _;
use serde::Serialize;
use serde_json::value::RawValue;

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

#[derive(Serialize)]
struct Play<'a> {
    user_id: &'a str,
    points: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    play_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    played_at: Option<&'a str>,
}

impl Submit {
    pub(super) fn run(self) -> anyhow::Result<()> {
        // As it was typed: a floating point number would not hold all digits of a large score.
        let points: &RawValue = serde_json::from_str(&self.points)
            .ok()
            .filter(|raw: &&RawValue| {
                raw.get().starts_with(|first: char| first == '-' || first.is_ascii_digit())
            })
            .with_context(|| format!("points must be a number, such as 10, not `{}`", self.points))?;
        let play = Play {
            user_id: &self.user_id,
            points,
            play_id: self.play_id.as_deref(),
            played_at: self.played_at.as_deref(),
        };
        let reply = self.client.post(&self.client.path(&["scores"]), &play)?;
        if self.client.json {
            return output::print_raw(&reply);
        }
        let names =
            ["user_id", "score", "rank", "previous_rank", "season", "play_id", "duplicate", "improved"];
        output::print(&output::fields(&reply.json, &names))
    }
}
