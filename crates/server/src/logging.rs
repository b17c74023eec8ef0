//! Log lines, to standard error: standard output is for what a program may read.
//!
//! The level is for our own crates. Libraries are heard from `warn` up whatever it is: below that they log frames and
//! headers, among them keys.

use std::io::IsTerminal as _;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogFormat;

/// What the targets of our own crates begin with.
const OURS: [&str; 2] = ["standings", "rank_tree"];

/// Starts logging. A second call changes nothing.
pub(crate) fn start(level: Level, format: LogFormat) {
    let filter =
        Targets::new().with_default(level.min(Level::WARN)).with_targets(OURS.map(|target| (target, level)));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    };
    // It fails only where a log was started before, and then that one goes on.
    let _ = tracing_subscriber::registry().with(lines).try_init();
}
