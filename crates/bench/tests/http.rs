//! The bench of the server as its user runs it: what it prints, and that it leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{assert_nothing_left, processes_in};

fn bench(folder: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_standings-bench"));
    // Built with the whole workspace, as ./test does; cargo has no way to ask for the program of another package from here.
    let server = program.with_file_name("standings");
    assert!(server.is_file(), "{} is missing; `cargo build` builds it", server.display());
    let mut command = Command::new(program);
    command.args(["http", "--users", "3000", "--connections", "8", "--seconds", "0.3"]);
    command.arg("--folder").arg(folder).env("TMPDIR", folder);
    command
}

#[test]
fn json_lines_name_what_was_measured_beside_the_rival() {
    let folder = tempfile::tempdir().unwrap();
    let output = bench(folder.path()).arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let rates = ["play_batch", "play_durable", "play_vs_no_aof", "empty", "rank", "top10", "around"];
    let costs =
        ["rank_p99", "play_durable_p99", "memory", "restart", "restart_after_kill", "memory_after_load"];
    for what in rates.into_iter().chain(costs) {
        let line = lines.iter().find(|line| line["what"] == what).unwrap_or_else(|| panic!("no {what}"));
        let number = |field: &str| line[field].as_f64().unwrap_or_else(|| panic!("{what} has no {field}"));
        let (ours, rival, ratio) = (number("ours"), number("rival"), number("ratio"));
        assert!(ours > 0.0 && rival > 0.0, "{line}");
        let better = if rates.contains(&what) { ours / rival } else { rival / ours };
        assert!((ratio - better).abs() < 1e-6 * ratio, "above 1 is better: {line}");
        assert!(line["unit"].is_string());
    }
    assert_nothing_left(folder.path());
}

#[test]
fn only_what_is_asked_for_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let output = bench(folder.path()).args(["--no-rival", "--only", "rank"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["3000 users", "memory", "rank_p99", "play_batch"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("around_p99") && !text.contains("restart  "), "{text}");
    assert_nothing_left(folder.path());
}

#[test]
fn a_missing_server_is_said_with_the_command_that_builds_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = bench(folder.path()).args(["--server", "no-such-program"]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cargo build --release"), "{said}");
    assert_nothing_left(folder.path());
}

#[test]
fn an_interrupted_bench_leaves_no_process_and_no_file() {
    for signal in ["INT", "TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let mut child =
            bench(folder.path()).arg("--json").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // As soon as all three servers run, while they are being filled or asked.
        let mut started = false;
        while !started && child.try_wait().unwrap().is_none() {
            started = processes_in(folder.path()).len() == 3;
            std::thread::sleep(Duration::from_millis(1));
        }
        Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        let status = child.wait().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(started, "the servers were never seen: {said}");
        assert_eq!(status.code(), Some(130), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        assert_nothing_left(folder.path());
    }
}
