//! Servers and folders made for a bench, which never outlive it.
//!
//! A [`RedisServer`] kills its process and a [`Scratch`] folder removes itself when dropped. An interrupt ends the program without
//! dropping anything, so its handler does the same for all that are still listed here. Only a SIGKILL of the bench itself is left;
//! against that, `setpriv` has the kernel kill the server with us.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

static SERVERS: Mutex<Vec<Child>> = Mutex::new(Vec::new());
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn listed<T>(list: &'static Mutex<Vec<T>>) -> MutexGuard<'static, Vec<T>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes Ctrl-C and SIGTERM stop all servers and remove all folders before the program ends.
pub(crate) fn stop_on_interrupt() -> anyhow::Result<()> {
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
    pub(crate) fn new(parent: &Path) -> anyhow::Result<Self> {
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

/// A redis-server of our own: a Unix socket in a temporary folder, no persistence but on demand.
#[derive(Debug)]
pub(crate) struct RedisServer {
    process: u32,
    folder: Scratch,
    pub(crate) version: String,
}

impl RedisServer {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let program = which("redis-server")
            .context("redis-server is not installed; `apt-get install redis-server` installs it")?;
        let version = Command::new(&program).arg("--version").output().context("redis-server --version")?;
        let version = String::from_utf8_lossy(&version.stdout);
        let version =
            version.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("?").to_owned();
        let folder = Scratch::new(&std::env::temp_dir())?;
        let process = spawn(&program, folder.path())?;
        let server = RedisServer { process, folder, version };
        server.connect()?;
        Ok(server)
    }

    /// Waits until the server answers, also through a load, and connects.
    pub(crate) fn connect(&self) -> anyhow::Result<redis::Connection> {
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
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
            if !Path::new(&format!("/proc/{}", self.process)).exists() {
                bail!("redis-server ended by itself");
            }
        }
    }

    /// Stops the server as it is and starts it anew on what it saved.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.kill();
        let program = which("redis-server").context("redis-server has gone")?;
        self.process = spawn(&program, self.folder.path())?;
        Ok(())
    }

    /// Resident bytes of the server.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        resident_bytes(&self.process.to_string())
    }

    /// Bytes of the snapshot it saved.
    pub(crate) fn snapshot_bytes(&self) -> anyhow::Result<u64> {
        Ok(std::fs::metadata(self.folder.path().join("dump.rdb"))
            .context("redis-server saved nothing")?
            .len())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    fn kill(&self) {
        let mut servers = listed(&SERVERS);
        if let Some(at) = servers.iter().position(|server| server.id() == self.process) {
            let mut server = servers.remove(at);
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(program: &Path, path: &Path) -> anyhow::Result<u32> {
    let mut command = match which("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    // No TCP port at all: nothing to collide with, and nothing that others could reach.
    command
        .args([
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--daemonize",
            "no",
            "--logfile",
            "redis.log",
        ])
        .arg("--unixsocket")
        .arg(path.join("redis.sock"))
        .arg("--dir")
        .arg(path)
        .current_dir(path)
        .env_remove("GLIBC_TUNABLES")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut servers = listed(&SERVERS);
    let child = command.spawn().context("starting redis-server")?;
    let process = child.id();
    servers.push(child);
    Ok(process)
}

/// Resident bytes of a process, by number or `self`.
pub(crate) fn resident_bytes(process: &str) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm"))
        .context("reading the memory of a process")?;
    let pages: u64 = text.split_whitespace().nth(1).context("no resident size")?.parse()?;
    Ok(pages * 4096)
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|program| program.is_file())
}
