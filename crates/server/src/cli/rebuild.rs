//! `standings rebuild`: puts right what is derived.

use std::path::PathBuf;

use anyhow::bail;

use super::check::{bar, show};
use super::output;
use crate::store::Store;

const EXAMPLE: &str = "\
Example:
  standings rebuild --data ./standings-data

The server must be stopped. What is interrupted can be run again.";

/// Recompute entries from their plays, and rankings from the entries.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Rebuild {
    /// The data folder.
    #[arg(long, value_name = "FOLDER", default_value = "./standings-data", env = "STANDINGS_DATA")]
    data: PathBuf,
    /// For how many days plays are kept, if not for good: entries of older plays stay as they are.
    #[arg(long, value_name = "DAYS", env = "STANDINGS_PLAYS_KEEP_DAYS")]
    plays_keep_days: Option<u32>,
}

impl Rebuild {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if !self.data.join("table").is_dir() {
            bail!("there is no data folder {}; --data says where it is", self.data.display());
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let store = Store::open(&self.data, self.plays_keep_days).await?;
            let progress = bar();
            let report = store.boards.check(true, |report| show(&progress, report)).await?;
            progress.set_message("rebuilding rankings");
            store.boards.load(false).await?;
            let written = store.boards.write_checkpoints().await?;
            progress.finish_and_clear();
            output::print(&format!(
                "{} entries of {} plays, {} put right; {written} rankings rebuilt\n",
                report.entries, report.plays, report.repaired
            ))?;
            let left = report.differences - report.repaired;
            if left > 0 {
                for difference in &report.named {
                    output::print(&format!("{difference}\n"))?;
                }
                bail!("{left} differences could not be put right: plays are missing; restore from a backup");
            }
            Ok(())
        })
    }
}
