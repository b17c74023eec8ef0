//! Log lines, to standard error: standard output is for what a program may read.

use std::io::IsTerminal as _;

use crate::config::LogFormat;

/// Starts logging. A second call changes nothing.
pub(crate) fn start(level: tracing::Level, format: LogFormat) {
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // It fails only where a log was started before, and then that one goes on.
    let _ = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
