//! Our server as its user runs it: the `standings` program, default settings, a folder of its own.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::ours::get_once;
use crate::rival::{Process, Scratch};

/// How long a start may take, and a clean end.
const PATIENCE: Duration = Duration::from_secs(600);

/// A running server of ours.
#[derive(Debug)]
pub(crate) struct OurServer {
    // Before the folder, so that nothing writes there while it is removed.
    process: Process,
    address: SocketAddr,
    program: PathBuf,
    core: Option<usize>,
    folder: Scratch,
}

impl OurServer {
    /// Starts a server on a new folder inside `parent`.
    pub(crate) fn start(program: &Path, parent: &Path, core: Option<usize>) -> Result<Self> {
        let folder = Scratch::new(parent)?;
        let (process, address) = spawn(program, folder.path(), core)?;
        let server = OurServer { process, address, program: program.to_owned(), core, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks the server to end and waits until it has.
    pub(crate) fn terminate(&self) -> Result<()> {
        self.process.terminate(PATIENCE)
    }

    /// Starts the server again on what it has on disk, after ending it without a warning if it still runs. Returns how long it
    /// took from then until every ranking was complete.
    pub(crate) fn start_again(&mut self) -> Result<Duration> {
        self.process.kill();
        let begin = Instant::now();
        (self.process, self.address) = spawn(&self.program, self.folder.path(), self.core)?;
        self.wait_until_ready()?;
        Ok(begin.elapsed())
    }

    fn wait_until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match get_once(self.address, "/readyz") {
                Ok((200, _)) => return Ok(()),
                answer if Instant::now() > deadline => bail!("the server does not become ready: {answer:?}"),
                _ => {}
            }
            if self.process.has_ended() {
                bail!("the server ended by itself: {}", said(self.folder.path()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How many users have a score.
    pub(crate) fn players(&self) -> Result<u64> {
        let (status, body) = get_once(self.address, "/v1/scores")?;
        ensure!(status == 200, "the list was answered {status}");
        let reply: serde_json::Value = serde_json::from_slice(&body)?;
        reply["players"].as_u64().context("a list without a number of players")
    }
}

/// The program to measure: the one given, or the one built beside this one.
pub(crate) fn program(given: Option<&Path>) -> Result<PathBuf> {
    let program = match given {
        Some(given) => given.to_owned(),
        None => std::env::current_exe().context("finding this program")?.with_file_name("standings"),
    };
    let program = std::path::absolute(program)?;
    ensure!(
        program.is_file(),
        "there is no server at {}; `cargo build --release` builds it, --server says where another one is",
        program.display()
    );
    Ok(program)
}

fn spawn(program: &Path, folder: &Path, core: Option<usize>) -> Result<(Process, SocketAddr)> {
    let log = File::create(folder.join("standings.log")).context("making the server's log")?;
    let process = Process::spawn(program, core, |command| {
        command.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]).current_dir(folder);
        command.stdout(Stdio::piped()).stderr(log);
        // Default settings are what is measured.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("STANDINGS_") {
                command.env_remove(name);
            }
        }
    })?;
    let mut line = String::new();
    let stdout = process.take_stdout().context("the server's output is not read")?;
    BufReader::new(stdout).read_line(&mut line).context("reading where the server listens")?;
    let address = line.trim().strip_prefix("listening on http://").and_then(|address| address.parse().ok());
    match address {
        Some(address) => Ok((process, address)),
        None => bail!("the server does not say where it listens but {line:?}: {}", said(folder)),
    }
}

/// The last the server said.
fn said(folder: &Path) -> String {
    let log = std::fs::read_to_string(folder.join("standings.log")).unwrap_or_default();
    log.lines().last().unwrap_or("nothing in its log").to_owned()
}
