//! The load: many connections on one thread, each with one request under way.
//!
//! It must cost less than what it measures. So it is one loop around epoll, with one `read`, one `write` and one look at the clock
//! for each operation, and it knows nothing of protocols: a [`Talk`] puts requests into a buffer and says when a reply is whole.
//!
//! It asks epoll again and again instead of sleeping there, because on one machine it is the server that wakes a sleeper, which it would
//! not have to do for a client elsewhere. This is kinder to us than to Redis, so `--sleeping-load` measures the other way: in six pairs of
//! runs on a busy machine, a rank took our server 34 µs of processor time with a sleeping load and 24 with this one, Redis 14 and 13.5.
//! How long the loop had nothing to do is measured: near 0 %, the load was the limit.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// Longer than any request takes, also on a busy machine: a server that is silent for so long is stuck.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// One side of a conversation on several connections.
pub(crate) trait Talk {
    /// Appends the next request of a connection; `false` if there is none any more.
    fn ask(&mut self, connection: usize, request: &mut Vec<u8>) -> bool;

    /// Looks at all bytes that have come since the request.
    ///
    /// # Errors
    /// The reply is not what it has to be: the measurement is worth nothing.
    fn hear(&mut self, connection: usize, reply: &[u8]) -> Result<Heard>;
}

/// What has come of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Not all of it.
    Part,
    /// All of it, but the operation takes another trip.
    Trip,
    /// All of it, and with it the operation is done.
    Done,
}

/// What was measured, in one round or several.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    latencies: Vec<Duration>,
    time: Duration,
    /// Processor time of the server; on a machine with other work, the fairest comparison.
    server: Duration,
    /// How long the load had nothing to do but to wait.
    waited: Duration,
}

impl Measured {
    /// Adds another round.
    pub(crate) fn add(&mut self, other: Measured) {
        self.latencies.extend(other.latencies);
        self.time += other.time;
        self.server += other.server;
        self.waited += other.waited;
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// Processor time of the server.
    pub(crate) fn server(&self) -> Duration {
        self.server
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.time.as_secs_f64()
    }

    /// Microseconds of processor time that the server took for an operation.
    pub(crate) fn server_microseconds(&self) -> f64 {
        self.server.as_secs_f64() * 1e6 / self.latencies.len().max(1) as f64
    }

    /// The latency that so large a part of all operations kept to.
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        let mut sorted = self.latencies.clone();
        let at = ((sorted.len() as f64 * quantile) as usize).min(sorted.len().saturating_sub(1));
        if sorted.is_empty() { Duration::ZERO } else { *sorted.select_nth_unstable(at).1 }
    }

    /// For people: everything on one line.
    pub(crate) fn line(&self, name: &str) -> String {
        let (p50, p99, max) = (self.quantile(0.5), self.quantile(0.99), self.quantile(1.0));
        format!(
            "  {name:<16} {:>8.0}/s   p50 {p50:>8.1?}  p99 {p99:>8.1?}  max {max:>8.1?}   server {:>5.1} µs   load idle {:>2.0} %",
            self.per_second(),
            self.server_microseconds(),
            self.waited.as_secs_f64() * 100.0 / self.time.as_secs_f64(),
        )
    }
}

/// How a load is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    /// The server's process, whose processor time is measured.
    pub(crate) process: u32,
    pub(crate) connections: usize,
    /// Whether it sleeps while it waits.
    pub(crate) sleeps: bool,
    /// How long; without it, until there is nothing to ask any more.
    pub(crate) time: Option<Duration>,
}

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    written: usize,
    reply: Vec<u8>,
    asked_at: Instant,
}

impl Connection {
    /// Writes what the system takes; what it does not take now goes out when it says so.
    fn write(&mut self) -> Result<()> {
        while self.written < self.request.len() {
            match self.stream.write(&self.request[self.written..]) {
                Ok(0) => bail!("the server takes no more"),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("writing a request"),
            }
        }
        Ok(())
    }
}

impl Load {
    /// Runs the load and says how it went. Operations of the first tenth are made, but not counted.
    pub(crate) fn run(&self, talk: &mut impl Talk) -> Result<Measured> {
        let mut poll = Poll::new().context("making a poll")?;
        let mut connections = self.connect(&poll)?;
        let mut events = Events::with_capacity(self.connections);
        let mut buffer = vec![0; 1 << 17];
        let mut latencies = Vec::new();
        let begin = Instant::now();
        let (counted_from, deadline) = match self.time {
            Some(time) => (begin + time / 10, Some(begin + time + time / 10)),
            None => (begin, None),
        };
        let (mut started, mut before) = (begin, processor_time(self.process)?);
        let (mut waited, mut waits_since) = (Duration::ZERO, None);
        let mut counting = self.time.is_none();
        let mut open = 0_usize;
        for (at, connection) in connections.iter_mut().enumerate() {
            connection.asked_at = Instant::now();
            if talk.ask(at, &mut connection.request) {
                open += 1;
                connection.write()?;
            }
        }
        let mut now = Instant::now();
        while open > 0 {
            if self.sleeps {
                waits_since = Some(Instant::now());
            }
            let timeout = if self.sleeps { SILENCE_MAX } else { Duration::ZERO };
            match poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled.context("waiting for replies")?,
            }
            if events.is_empty() {
                let since: Instant = *waits_since.get_or_insert_with(Instant::now);
                ensure!(since.elapsed() < SILENCE_MAX, "the server has not answered for {SILENCE_MAX:?}");
                continue;
            }
            waited += waits_since.take().map_or(Duration::ZERO, |since| since.elapsed());
            if !counting && now >= counted_from {
                counting = true;
                waited = Duration::ZERO;
                (started, before) = (now, processor_time(self.process)?);
            }
            for event in &events {
                let at = event.token().0;
                let connection = &mut connections[at];
                if connection.written < connection.request.len() {
                    connection.write()?;
                }
                let heard = read(connection, &mut buffer, |reply| talk.hear(at, reply))?;
                if heard == Heard::Part {
                    continue;
                }
                connection.request.clear();
                connection.written = 0;
                if heard == Heard::Done {
                    now = Instant::now();
                    if counting {
                        latencies.push(now - connection.asked_at);
                    }
                    connection.asked_at = now;
                }
                let over = heard == Heard::Done && deadline.is_some_and(|deadline| now >= deadline);
                if over || !talk.ask(at, &mut connection.request) {
                    open -= 1;
                } else {
                    connection.write()?;
                }
            }
        }
        let (server, time) = (processor_time(self.process)? - before, started.elapsed());
        Ok(Measured { latencies, time, server, waited })
    }

    fn connect(&self, poll: &Poll) -> Result<Vec<Connection>> {
        let connect = |at: usize| {
            let stream = std::net::TcpStream::connect(self.address).context("connecting to the server")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(at), Interest::READABLE | Interest::WRITABLE)?;
            let (request, reply) = (Vec::new(), Vec::new());
            Ok(Connection { stream, request, written: 0, reply, asked_at: Instant::now() })
        };
        (0..self.connections).map(connect).collect()
    }
}

/// Reads until the reply is whole, or nothing has come any more.
fn read(
    connection: &mut Connection,
    buffer: &mut [u8],
    mut hear: impl FnMut(&[u8]) -> Result<Heard>,
) -> Result<Heard> {
    loop {
        let bytes = match connection.stream.read(buffer) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(bytes) => &buffer[..bytes],
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Heard::Part),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("reading a reply"),
        };
        // Nearly every reply comes in one piece, and needs no copy.
        let heard = if connection.reply.is_empty() {
            hear(bytes)?
        } else {
            connection.reply.extend_from_slice(bytes);
            hear(&connection.reply)?
        };
        match heard {
            Heard::Part if connection.reply.is_empty() => connection.reply.extend_from_slice(bytes),
            Heard::Part => {}
            Heard::Trip | Heard::Done => {
                connection.reply.clear();
                return Ok(heard);
            }
        }
    }
}

/// Processor time of a process so far, all its threads together, to a hundredth of a second.
pub(crate) fn processor_time(process: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))
        .context("reading the processor time of a server; has it ended?")?;
    // The name in brackets may hold anything; user and system time are the 12th and 13th words after it.
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    let ticks: u64 = words.take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}
