//! `standings check`: proves that what is derived agrees with what it is derived from.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use standings_boards::CheckReport;

use super::output;
use crate::store::Store;

const EXAMPLE: &str = "\
Example:
  standings check --data ./standings-data

The server must be stopped. Exit status 1 if there is a difference.";

/// Recompute every entry from its plays and compare every ranking and index.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Check {
    /// The data folder.
    #[arg(long, value_name = "FOLDER", default_value = "./standings-data", env = "STANDINGS_DATA")]
    data: PathBuf,
    /// For how many days plays are kept, if not for good: entries of older plays cannot be recomputed.
    #[arg(long, value_name = "DAYS", env = "STANDINGS_PLAYS_KEEP_DAYS")]
    plays_keep_days: Option<u32>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if !self.data.join("table").is_dir() {
            bail!("there is no data folder {}; --data says where it is", self.data.display());
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (report, rows) = runtime.block_on(async {
            let store = Store::open(&self.data, self.plays_keep_days).await?;
            let progress = bar();
            progress.set_message("indexes");
            let table = store.table.table().clone();
            let rows = tokio::task::spawn_blocking(move || table.check())
                .await
                .context("checking the indexes")??;
            progress.set_message("loading rankings");
            store.boards.load(true).await?;
            let report = store.boards.check(false, |report| show(&progress, report)).await?;
            progress.finish_and_clear();
            anyhow::Ok((report, rows))
        })?;
        let mut differences = report.named.clone();
        differences.extend(rows.examples.iter().cloned());
        let count = report.differences + rows.differences;
        if self.json {
            let shown = json!({
                "entries": report.entries, "plays": report.plays, "snapshot_rows": report.snapshot_rows,
                "not_recomputable": report.not_recomputable,
                "items": rows.items, "index_rows": rows.index_rows, "differences": count, "first": differences,
            });
            output::print(&format!("{shown}\n"))?;
        } else {
            for difference in &differences {
                output::print(&format!("{difference}\n"))?;
            }
            let summary = format!(
                "{} items, {} index rows, {} entries, {} plays, {} rows of snapshots: {count} differences\n",
                rows.items, rows.index_rows, report.entries, report.plays, report.snapshot_rows
            );
            output::print(&summary)?;
        }
        if count > 0 {
            bail!("there are {count} differences; `standings rebuild` puts derived data right");
        }
        Ok(())
    }
}

/// A line that says how far it is, where a person waits.
pub(super) fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    let style =
        ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("the template is a constant");
    bar.with_style(style)
}

pub(super) fn show(bar: &ProgressBar, report: &CheckReport) {
    bar.set_message(format!(
        "{} entries, {} plays, {} rows of snapshots, {} differences",
        report.entries, report.plays, report.snapshot_rows, report.differences
    ));
    bar.tick();
}
