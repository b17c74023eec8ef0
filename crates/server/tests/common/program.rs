//! The real program in a folder of its own, started and ended by process id, and a connection to it.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::exact::Exact;
use super::{PATIENCE, POLL};

/// A server that is ended with its test.
pub(crate) struct Program {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Program {
    /// Starts the server on a data folder and waits until its rankings are complete.
    pub(crate) fn start(data: &Path) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standings"));
        // Without the settings of whoever runs the tests.
        let ours = |(name, _): &(std::ffi::OsString, _)| name.to_string_lossy().starts_with("STANDINGS_");
        for (name, _) in std::env::vars_os().filter(ours) {
            command.env_remove(name);
        }
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--checkpoint-seconds",
            "1",
            "--log-level",
            "warn",
        ]);
        command.arg("--data").arg(data).current_dir(data.parent().expect("a folder of the test"));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("it was piped");
        BufReader::new(output).read_line(&mut line).expect("the program says where it listens");
        let address = line.trim().strip_prefix("listening on http://").map(str::parse);
        let Some(Ok(address)) = address else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the program did not start: {line:?}");
        };
        let program = Program { child, address };
        let begin = Instant::now();
        let mut connection = program.connect();
        while connection.get("/readyz").expect("it answers while it loads").status != 200 {
            assert!(begin.elapsed() < PATIENCE, "the rankings never become complete");
            std::thread::sleep(POLL);
        }
        program
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address).expect("the program takes connections")
    }

    /// As if the power failed, for this process.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it was running");
        self.child.wait().expect("it ended");
    }

    /// Asks the program to end.
    pub(crate) fn ask_to_end(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it was running");
    }

    pub(crate) fn wait_for_end(mut self) -> ExitStatus {
        self.child.wait().expect("it ended")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that is kept. Errors are for the caller: servers are killed here.
pub(crate) struct Connection(BufReader<TcpStream>);

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Exact {
        Exact::parse(&self.body)
    }

    pub(crate) fn good(&self) -> Exact {
        assert_eq!(self.status, 200, "{}", self.body);
        self.json()
    }
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufReader::new(stream)))
    }

    pub(crate) fn get(&mut self, path: &str) -> io::Result<Reply> {
        self.ask("GET", path, "")
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> io::Result<Reply> {
        self.ask("POST", path, body)
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> io::Result<Reply> {
        self.send(method, path, body)?;
        self.reply()
    }

    /// Sends a request and waits for nothing.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.0.get_mut().write_all(request.as_bytes())
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (mut status, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line)?;
            if !line.ends_with('\n') {
                return Err(cut());
            }
            let line = line.trim_end().to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest.get(..3).and_then(|text| text.parse().ok());
            } else if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.parse().map_err(|_| cut())?;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        let body = String::from_utf8(body).map_err(|_| cut())?;
        Ok(Reply { status: status.ok_or_else(cut)?, body })
    }
}
