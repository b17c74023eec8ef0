//! The bench as its user runs it: what it prints, and that it leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{assert_nothing_left, processes_in};

const USERS: &str = "30000";

fn bench(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standings-bench"));
    command.args(["rank-tree", "--users", USERS, "--operations", "20000"]).env("TMPDIR", folder);
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
    for what in
        ["rank_first", "rank_shared", "add_point", "top10", "around", "bytes_per_user", "checkpoint_load"]
    {
        let line = lines.iter().find(|line| line["what"] == what).unwrap_or_else(|| panic!("no {what}"));
        let number = |field: &str| line[field].as_f64().unwrap_or_else(|| panic!("{what} has no {field}"));
        let (ours, rival, ratio) = (number("ours"), number("rival"), number("ratio"));
        assert!(ours > 0.0 && rival > 0.0, "{line}");
        assert!(
            (ratio - rival / ours).abs() < 1e-6 * ratio,
            "less is better, so the ratio is rival over ours: {line}"
        );
        assert!(line["unit"].is_string());
    }
    assert_nothing_left(folder.path());
}

#[test]
fn a_person_gets_a_table_with_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let output = bench(folder.path()).arg("--no-rival").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["30000 users", "memory", "rank_first", "ours, bytes a user: ids"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert_nothing_left(folder.path());
}

#[test]
fn an_interrupted_bench_leaves_no_process_and_no_file() {
    for signal in ["INT", "TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let mut child =
            bench(folder.path()).arg("--json").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // As soon as the rival runs, while it is being loaded or asked.
        let mut started = false;
        while !started && child.try_wait().unwrap().is_none() {
            started = !processes_in(folder.path()).is_empty();
            std::thread::sleep(Duration::from_millis(1));
        }
        Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        let status = child.wait().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(started, "the rival was never seen: {said}");
        assert_eq!(status.code(), Some(130), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        assert_nothing_left(folder.path());
    }
}
