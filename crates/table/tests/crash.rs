//! Promises 3 and 14 against the real world: the process is killed, the sync fails, the disk is full.
//!
//! Method: a child process (this test binary, running one of the ignored tests below) opens a table and writes
//! with many writers; every acknowledgement goes to the parent through a pipe. The parent kills the child
//! at a random moment, or lets it run into injected errors, then opens the folder itself: every
//! acknowledged transaction must be there in full, none half, and every index must agree with the items.
//!
//! `STANDINGS_CRASH_ROUNDS` sets the number of rounds (20), `STANDINGS_TEST_SEED` replays the random moments.
//! Needs `strace`, and the right to mount (root, or unprivileged user namespaces): without them the tests fail.

mod common;
#[path = "common/writers.rs"]
mod writers;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use standings_table::contract::{Random, schema};
use standings_table::embedded::Options;
use standings_table::{EmbeddedTable, Error, Item, Operation, Table, WriteFailure};

const WRITERS: usize = 32;
const FOLDER: &str = "STANDINGS_CRASH_FOLDER";

/// Small memtables, so that files are written, merged and journals replaced while the crash happens.
fn options() -> Options {
    Options::new(schema()).memtable_bytes(2 << 20).cache_bytes(4 << 20)
}

fn open(folder: &Path) -> EmbeddedTable {
    EmbeddedTable::open(folder, options()).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// A child process that is gone when this is, however the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this test binary again, to run one ignored test as a child.
fn start_child(before: &[&str], test: &str, folder: &Path) -> Killed {
    let program = std::env::current_exe().expect("a test binary knows itself");
    let mut command = match before {
        [] => Command::new(&program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(&program);
            command
        }
    };
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]).env(FOLDER, folder);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    Killed(
        child.unwrap_or_else(|error| {
            panic!("starting {command:?}: {error} (is the Debian package installed?)")
        }),
    )
}

/// What a child said: what was acknowledged to each writer, and its other lines.
#[derive(Default)]
struct Told {
    acknowledged: BTreeMap<usize, i64>,
    lines: Vec<String>,
}

impl Told {
    fn line(&mut self, line: &str) {
        // A line cut off by the kill has no `.` at its end and says nothing.
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["ack", writer, n, "."] => {
                let (writer, n): (usize, i64) =
                    (writer.parse().expect("a number"), n.parse().expect("a number"));
                let last = self.acknowledged.entry(writer).or_insert(0);
                *last = n.max(*last);
            }
            _ => self.lines.push(line.to_owned()),
        }
    }

    fn says(&self, words: &str) -> bool {
        self.lines.iter().any(|line| line.contains(words))
    }
}

fn verify(folder: &Path, told: &Told) {
    let table = open(folder);
    writers::verify(&table, WRITERS, &told.acknowledged);
    let report = table.check().expect("the check reads everything");
    assert!(report.is_clean(), "{report:?}");
}

fn folder_from_environment() -> std::path::PathBuf {
    std::env::var_os(FOLDER).expect("run by its parent test").into()
}

/// Tells the parent; standard output is flushed at the end of each line.
fn tell(line: &str) {
    let mut output = std::io::stdout().lock();
    let told = writeln!(output, "{line}").and_then(|()| output.flush());
    told.expect("the parent listens");
}

fn rounds(default: u64) -> u64 {
    std::env::var("STANDINGS_CRASH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(default)
}

#[test]
#[ignore = "the child of the crash tests: run by them, not by itself"]
fn child_writes_until_it_is_stopped() {
    let table: Arc<dyn Table> = Arc::new(open(&folder_from_environment()));
    let stop = AtomicBool::new(false);
    let error = writers::run(&table, WRITERS, 3_000, &stop, |writer, n| tell(&format!("ack {writer} {n} .")));
    // Only an error ends the writers: then further writes are refused and reads go on.
    let error = error.expect("nobody tells the writers to stop");
    tell(&format!("ended {error:?}"));
    assert!(matches!(error, Error::WritesRefused { .. }), "{error}");
    for n in 0..20 {
        let refused =
            pollster::block_on(table.transact(vec![Operation::put(Item::new("LATE", format!("{n}")))]));
        assert!(matches!(refused, Err(Error::WritesRefused { .. })), "{refused:?}");
    }
    tell("further writes are refused");
    for writer in 0..WRITERS {
        writers::version(&*table, writer);
    }
    tell("reads go on");
    drop(table);
    tell("closed");
}

#[test]
fn killed_at_any_moment_no_acknowledged_transaction_is_lost_or_half_there() {
    let mut random = Random::from_environment("killed_at_any_moment");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut total = 0;
    for round in 0..rounds(20) {
        let mut child = start_child(&[], "child_writes_until_it_is_stopped", folder.path());
        let output = child.0.stdout.take().expect("piped");
        // Mostly while writing; sometimes while opening and recovering.
        let wait_for_acknowledgements = !random.one_in(5);
        let pause = Duration::from_micros(random.below(400_000));
        let (first, arrived) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut told = Told::default();
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                told.line(&line);
                if !told.acknowledged.is_empty() {
                    let _ = first.send(());
                }
            }
            told
        });
        if wait_for_acknowledgements {
            arrived.recv_timeout(Duration::from_secs(60)).expect("the child acknowledges something");
        }
        std::thread::sleep(pause);
        child.0.kill().expect("the child is ours");
        child.0.wait().expect("the child is ours");
        let told = reader.join().expect("the reader does not panic");
        total += told.acknowledged.len();
        verify(folder.path(), &told);
        println!("round {round}: {} writers acknowledged", told.acknowledged.len());
    }
    assert!(total > 0, "at least one round got as far as acknowledging something");
}

/// Runs the writers under strace with an injected error until they are refused.
fn run_into(inject: &str) -> Told {
    let folder = tempfile::tempdir().expect("a temporary folder");
    drop(open(folder.path()));
    let inject = format!("inject={inject}");
    let log = folder.path().join("strace.log");
    let log = log.to_str().expect("a path of plain text");
    let strace =
        ["strace", "-f", "--seccomp-bpf", "-qq", "-o", log, "-e", "trace=fsync,fdatasync", "-e", &inject];
    let mut child = start_child(&strace, "child_writes_until_it_is_stopped", folder.path());
    let mut told = Told::default();
    let output = child.0.stdout.take().expect("piped");
    BufReader::new(output).lines().map_while(Result::ok).for_each(|line| told.line(&line));
    let status = child.0.wait().expect("the child is ours");
    assert!(status.success(), "{status}: {:?}", told.lines);
    for expected in ["ended WritesRefused", "further writes are refused", "reads go on", "closed"] {
        assert!(told.says(expected), "{expected}: {:?}", told.lines);
    }
    let syncs = std::fs::read_to_string(log).expect("strace wrote its log");
    assert!(syncs.contains("INJECTED"), "no error was injected");
    verify(folder.path(), &told);
    // Opened again, it takes writes again.
    let table = open(folder.path());
    common::put(&table, Item::new("AFTER", "1"));
    told
}

#[test]
fn after_one_failed_sync_nothing_more_is_written_until_reopened() {
    // Only one sync fails; those after it would succeed, and must not be asked. The first, then a later one.
    for when in [1, 60] {
        let told = run_into(&format!("fdatasync:error=EIO:when={when}"));
        assert!(told.says("Journal"), "{:?}", told.lines);
        assert_eq!(
            told.acknowledged.is_empty(),
            when == 1,
            "only what came before the error was acknowledged"
        );
    }
}

#[test]
fn a_failed_background_write_stops_writes_not_reads() {
    // Opening syncs a few files in the main thread; flushing and merging, many in the engine's threads.
    let told = run_into("fsync:error=EIO:when=25+");
    assert!(told.says("Background"), "{:?}", told.lines);
    assert!(!told.acknowledged.is_empty());
}

#[test]
fn a_full_disk_is_a_clear_error_and_no_damage() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // A mount namespace of its own: the small disk is gone when the child is, however it ends.
    let user = if rustix::process::getuid().is_root() { None } else { Some("--map-root-user") };
    let mut before = vec!["unshare", "--mount"];
    before.extend(user);
    for memtable_bytes in ["1", "4", "64"] {
        let mut child = start_child(&before, "child_fills_the_disk", &folder.path().join(memtable_bytes));
        let mut told = Told::default();
        let output = child.0.stdout.take().expect("piped");
        BufReader::new(output).lines().map_while(Result::ok).for_each(|line| told.line(&line));
        let status = child.0.wait().expect("the child is ours");
        assert!(status.success() && told.says("the disk was full"), "{status}: {:#?}", told.lines);
    }
}

#[test]
#[ignore = "the child of the full disk test: run by it, not by itself"]
fn child_fills_the_disk() {
    let disk = folder_from_environment();
    let memtable_bytes: u64 = disk.file_name().unwrap().to_str().unwrap().parse::<u64>().unwrap() << 20;
    std::fs::create_dir_all(&disk).unwrap();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(&disk).status().unwrap();
    assert!(mount.success(), "mounting a small disk needs root, or unprivileged user namespaces");
    let ballast = disk.join("ballast");
    let folder = disk.join("table");
    let options = || options().memtable_bytes(memtable_bytes);
    std::fs::write(&ballast, vec![1_u8; 24 << 20]).unwrap();
    let table: Arc<dyn Table> = Arc::new(EmbeddedTable::open(&folder, options()).unwrap());
    let acknowledged = std::sync::Mutex::new(BTreeMap::new());
    let stop = AtomicBool::new(false);
    let error = writers::run(&table, WRITERS, 6_000, &stop, |writer, n| {
        acknowledged.lock().unwrap().insert(writer, n);
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    let error = error.expect("a disk of this size is full at some point");
    tell(&format!("{error}"));
    assert!(matches!(&error, Error::WritesRefused { cause: WriteFailure::DiskFull, .. }), "{error:?}");
    assert!(!acknowledged.is_empty());
    writers::verify(&*table, WRITERS, &acknowledged);
    drop(table);
    // Still full: it may open or not, but says so clearly.
    match EmbeddedTable::open(&folder, options()) {
        Ok(table) => writers::verify(&table, WRITERS, &acknowledged),
        Err(error) => assert!(matches!(error, Error::DiskFull { .. }), "{error:?}"),
    }
    std::fs::remove_file(&ballast).unwrap();
    let table = EmbeddedTable::open(&folder, options()).unwrap();
    writers::verify(&table, WRITERS, &acknowledged);
    assert!(table.check().unwrap().is_clean());
    common::put(&table, Item::new("AFTER", "1"));
    drop(table);
    assert!(EmbeddedTable::open(&folder, options()).unwrap().check().unwrap().is_clean());
    tell("the disk was full");
}
