//! `standings top`: the best, or any page of the ranking.

use std::fmt::Write as _;

use super::client::Client;
use super::output::{self, cell};

const EXAMPLE: &str = "\
Example:
  standings top --board weekly --limit 20
  standings top --from-rank 101 --season 2026-11";

/// Show the top of a board.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Top {
    /// How many users.
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u32>,
    /// The rank to begin with.
    #[arg(long, value_name = "RANK", conflicts_with = "cursor")]
    from_rank: Option<u64>,
    /// Go on where the page before ended.
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Only scores from here up.
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    min_score: Option<String>,
    /// Only scores up to here.
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    max_score: Option<String>,
    /// Another season than the live one.
    #[arg(long, value_name = "SEASON")]
    season: Option<String>,
    #[command(flatten)]
    client: Client,
}

impl Top {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let parameters = [
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("from_rank", self.from_rank.map(|rank| rank.to_string())),
            ("cursor", self.cursor),
            ("min_score", self.min_score),
            ("max_score", self.max_score),
            ("season", self.season),
        ];
        let reply = self.client.get(&self.client.path(&["scores"]), &parameters)?;
        if self.client.json {
            return output::print_raw(&reply);
        }
        let mut text = output::standings(&reply.json, None);
        let (players, season) = (cell(&reply.json, "players"), cell(&reply.json, "season"));
        let _ = writeln!(text, "\nboard {}, season {season}, {players} players", self.client.board);
        let cursor = cell(&reply.json, "next_cursor");
        if !cursor.is_empty() {
            let _ = writeln!(text, "next page: --cursor {cursor}");
        }
        output::print(&text)
    }
}
