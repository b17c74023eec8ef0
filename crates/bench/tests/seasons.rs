//! The bench of seasons as its user runs it: what it prints, and that it leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::path::Path;
use std::process::Command;

use common::assert_nothing_left;

#[test]
fn json_lines_name_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_standings-bench"));
    let mut command = Command::new(program);
    command.args([
        "seasons",
        "--users",
        "2000",
        "--connections",
        "4",
        "--plays",
        "100",
        "--seconds",
        "0.3",
        "--json",
    ]);
    let output = command.arg("--folder").arg(folder.path()).env("TMPDIR", folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for what in [
        "close",
        "snapshot",
        "snapshot_alone",
        "busy_play",
        "steady_play_p50",
        "live_rank",
        "past_rank",
        "past_around",
    ] {
        let line = lines.iter().find(|line| line["what"] == what).unwrap_or_else(|| panic!("no {what}"));
        assert!(line["ours"].as_f64().is_some_and(|ours| ours > 0.0), "{line}");
    }
    assert_nothing_left(folder.path());
}
