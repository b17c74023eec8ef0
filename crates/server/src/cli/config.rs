//! `standings config`: a sample file of settings.

use std::io::Write as _;

const EXAMPLE: &str = "\
Example:
  standings config > standings.toml";

/// Print a file of settings with every setting explained.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Config {}

impl Config {
    pub(super) fn run(self) -> anyhow::Result<()> {
        Ok(std::io::stdout().write_all(crate::config::table::sample().as_bytes())?)
    }
}
