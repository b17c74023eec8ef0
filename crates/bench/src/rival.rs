//! Servers and folders made for a bench, which never outlive it.
//!
//! A [`Process`] is killed and a [`Scratch`] folder removed when dropped. An interrupt ends the program without
//! dropping anything, so its handler does the same for all that are still listed here. Only a SIGKILL of the bench itself is left;
//! against that, `setpriv` has the kernel kill the server with us.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

static SERVERS: Mutex<Vec<Child>> = Mutex::new(Vec::new());
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn listed<T>(list: &'static Mutex<Vec<T>>) -> MutexGuard<'static, Vec<T>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes Ctrl-C and SIGTERM stop all servers and remove all folders before the program ends.
pub(crate) fn stop_on_interrupt() -> Result<()> {
    ctrlc::set_handler(|| {
        // The lists stay locked: nothing new is started or made from here on.
        let mut servers = listed(&SERVERS);
        let folders = listed(&FOLDERS);
        for server in servers.iter_mut() {
            // It may have ended by itself.
            let _ = server.kill();
            let _ = server.wait();
        }
        for folder in folders.iter() {
            // A bench that is still writing may put a file into a folder while it is being emptied.
            let emptied = (0..100).any(|_| std::fs::remove_dir_all(folder).is_ok() || !folder.exists());
            if !emptied {
                eprintln!("could not remove {}", folder.display());
            }
        }
        eprintln!("\ninterrupted; the rivals are stopped and their files removed");
        std::process::exit(130);
    })
    .context("setting the interrupt handler")
}

/// A folder that is gone with the bench.
#[derive(Debug)]
pub(crate) struct Scratch(Option<TempDir>);

impl Scratch {
    /// A folder inside `parent`.
    pub(crate) fn new(parent: &Path) -> Result<Self> {
        let mut folders = listed(&FOLDERS);
        let folder = tempfile::Builder::new().prefix("standings-bench-").tempdir_in(parent);
        let folder = folder.with_context(|| format!("making a folder in {}", parent.display()))?;
        folders.push(folder.path().to_owned());
        Ok(Scratch(Some(folder)))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.as_ref().expect("there until it is dropped").path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut folders = listed(&FOLDERS);
        folders.retain(|folder| folder != self.path());
        self.0.take();
    }
}

/// A server that was started for the bench, and dies with it.
#[derive(Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// Starts a program, on one core only if one is given.
    pub(crate) fn spawn(program: &Path, core: Option<usize>, set: impl FnOnce(&mut Command)) -> Result<Self> {
        // Each of these becomes the next one, so the number of the process is the server's own.
        let mut words: Vec<OsString> = Vec::new();
        if let Some(core) = core {
            let taskset =
                which("taskset").context("taskset is missing; `apt-get install util-linux` installs it")?;
            words.extend([taskset.into(), "-c".into(), core.to_string().into()]);
        }
        if let Some(setpriv) = which("setpriv") {
            words.extend([setpriv.into(), "--pdeathsig".into(), "KILL".into(), "--".into()]);
        }
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        set(&mut command);
        let mut servers = listed(&SERVERS);
        let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let process = child.id();
        servers.push(child);
        Ok(Process(process))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0
    }

    /// What the server prints, if its command said that it is to be read.
    pub(crate) fn take_stdout(&self) -> Option<ChildStdout> {
        let mut servers = listed(&SERVERS);
        servers.iter_mut().find(|server| server.id() == self.0)?.stdout.take()
    }

    pub(crate) fn has_ended(&self) -> bool {
        let mut servers = listed(&SERVERS);
        let server = servers.iter_mut().find(|server| server.id() == self.0);
        server.is_none_or(|server| !matches!(server.try_wait(), Ok(None)))
    }

    /// Asks the server to end, and waits until it has.
    pub(crate) fn terminate(&self, patience: Duration) -> Result<()> {
        let process = i32::try_from(self.0).ok().and_then(Pid::from_raw).context("no such process")?;
        kill_process(process, Signal::TERM).context("asking a server to end")?;
        let deadline = Instant::now() + patience;
        while !self.has_ended() {
            ensure!(Instant::now() < deadline, "a server did not end within {patience:?} of being asked to");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Ends the server at once.
    pub(crate) fn kill(&self) {
        let mut servers = listed(&SERVERS);
        if let Some(at) = servers.iter().position(|server| server.id() == self.0) {
            let mut server = servers.remove(at);
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Resident bytes of the server.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(&self.0.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How a redis-server is to run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RedisOptions {
    /// A TCP port on loopback, besides the Unix socket.
    pub(crate) port: u16,
    /// The only core it may use.
    pub(crate) core: Option<usize>,
    /// Whether each write is in its log and on the disk before it is answered.
    pub(crate) append_always: bool,
}

/// A redis-server of our own: a Unix socket in a temporary folder, no snapshots but on demand.
#[derive(Debug)]
pub(crate) struct RedisServer {
    // Before the folder, so that nothing writes there while it is removed.
    process: Process,
    folder: Scratch,
    options: RedisOptions,
    pub(crate) version: String,
}

impl RedisServer {
    /// A server without a port or a log, in the folder for temporary files.
    pub(crate) fn start() -> Result<Self> {
        Self::start_with(&std::env::temp_dir(), RedisOptions::default())
    }

    /// A server in a folder of its own inside `parent`.
    pub(crate) fn start_with(parent: &Path, options: RedisOptions) -> Result<Self> {
        let program = redis_program()?;
        let version = Command::new(&program).arg("--version").output().context("redis-server --version")?;
        let version = String::from_utf8_lossy(&version.stdout);
        let version =
            version.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("?").to_owned();
        let folder = Scratch::new(parent)?;
        let process = spawn_redis(folder.path(), &options)?;
        let server = RedisServer { process, folder, options, version };
        server.connect()?;
        Ok(server)
    }

    /// Waits until the server answers, also through a load, and connects.
    pub(crate) fn connect(&self) -> Result<redis::Connection> {
        let client = redis::Client::open(format!("unix://{}", self.socket().display()))?;
        let deadline = Instant::now() + Duration::from_secs(600);
        loop {
            let answer = client.get_connection().and_then(|mut connection| {
                redis::cmd("PING").query::<String>(&mut connection).map(|_| connection)
            });
            match answer {
                Ok(connection) => return Ok(connection),
                Err(error) if Instant::now() > deadline => {
                    return Err(error).context("redis-server does not answer");
                }
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
            if self.process.has_ended() {
                let log = std::fs::read_to_string(self.folder.path().join("redis.log")).unwrap_or_default();
                bail!("redis-server ended by itself: {}", log.lines().last().unwrap_or("it says nothing"));
            }
        }
    }

    /// Stops the server as it is and starts it anew on what it saved.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.process.kill();
        self.process = spawn_redis(self.folder.path(), &self.options)?;
        Ok(())
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn port(&self) -> u16 {
        self.options.port
    }

    /// Bytes of the snapshot it saved.
    pub(crate) fn snapshot_bytes(&self) -> Result<u64> {
        Ok(std::fs::metadata(self.folder.path().join("dump.rdb"))
            .context("redis-server saved nothing")?
            .len())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }
}

fn redis_program() -> Result<PathBuf> {
    which("redis-server").context("redis-server is not installed; `apt-get install redis-server` installs it")
}

fn spawn_redis(folder: &Path, options: &RedisOptions) -> Result<Process> {
    let port = options.port.to_string();
    let append = if options.append_always { "yes" } else { "no" };
    Process::spawn(&redis_program()?, options.core, |command| {
        // Port 0 is none at all: nothing to collide with, and nothing that others could reach.
        command
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"])
            .args(["--appendonly", append, "--appendfsync", "always", "--logfile", "redis.log"])
            // A rewrite of the log would take the core from what is measured.
            .args(["--auto-aof-rewrite-percentage", "0"])
            .arg("--unixsocket")
            .arg(folder.join("redis.sock"))
            .arg("--dir")
            .arg(folder)
            .current_dir(folder);
    })
}

/// Resident bytes of a process, by number or `self`.
pub(crate) fn resident_bytes(process: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm"))
        .context("reading the memory of a process")?;
    let pages: u64 = text.split_whitespace().nth(1).context("no resident size")?.parse()?;
    Ok(pages * 4096)
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|program| program.is_file())
}
