//! A server on a socket of its own, and a client that can misbehave: plain bytes on a TCP connection.
//!
//! | file | holds |
//! |---|---|
//! | `app.rs` | the real routes over a table of the test's own, called without a socket |
//! | `exact.rs` | JSON compared digit by digit |
//! | `held.rs` | a table that holds back the rows of snapshots |
//! | `program.rs` | the real program, started and ended by process id |

#![allow(dead_code, reason = "each test file uses a part of this")]

pub(crate) mod app;
pub(crate) mod exact;
pub(crate) mod held;
pub(crate) mod program;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use serde::Deserialize;
use standings::http::error::Problem;
use standings::http::extract::{Body, Params, Path};
use standings::http::metrics::Metrics;
use standings::http::middleware::RequestLimits;
use standings::http::serve::{ConnectionLimits, Ended, ServeOptions, run};
use standings::http::tls::Tls;

/// No wait of a test is meant to come near this; it only keeps a broken server from hanging the tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How often something that happens elsewhere is asked for.
pub(crate) const POLL: Duration = Duration::from_millis(1);

pub(crate) struct Limits {
    pub(crate) body_bytes_max: usize,
    pub(crate) request_time_max: Duration,
    pub(crate) connections_max: usize,
    pub(crate) idle_time_max: Duration,
    pub(crate) shutdown_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes_max: 1 << 16,
            request_time_max: PATIENCE,
            connections_max: 100,
            idle_time_max: PATIENCE,
            shutdown_time_max: PATIENCE,
        }
    }
}

/// A door that handlers wait at, so that tests decide when they go on.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) entered: (Mutex<usize>, Condvar),
    pub(crate) open: tokio::sync::Notify,
}

impl Gate {
    pub(crate) fn wait_for_a_visitor(&self) {
        let (count, changed) = &self.entered;
        let (_count, waited) =
            changed.wait_timeout_while(count.lock().unwrap(), PATIENCE, |count| *count == 0).unwrap();
        assert!(!waited.timed_out(), "no request came");
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) gate: Arc<Gate>,
    pub(crate) metrics: Arc<Metrics>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    running: Option<tokio::task::JoinHandle<Ended>>,
    runtime: tokio::runtime::Runtime,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Play {
    pub(crate) user_id: String,
    pub(crate) points: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    pub(crate) limit: Option<u32>,
    #[serde(default)]
    pub(crate) board: Vec<String>,
}

impl Server {
    pub(crate) fn start(limits: Limits) -> Server {
        Server::start_with(limits, None)
    }

    pub(crate) fn start_with(limits: Limits, tls: Option<Arc<Tls>>) -> Server {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (metrics, gate) = (Arc::new(Metrics::new()), Arc::new(Gate::default()));
        let request_limits = RequestLimits {
            body_bytes_max: limits.body_bytes_max,
            request_time_max: limits.request_time_max,
        };
        let app = standings::http::finish(routes(gate.clone()), request_limits, metrics.clone());
        let limits = ConnectionLimits {
            connections_max: limits.connections_max,
            header_bytes_max: 8192,
            idle_time_max: limits.idle_time_max,
            shutdown_time_max: limits.shutdown_time_max,
        };
        let options = ServeOptions { limits, tls, metrics: metrics.clone() };
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let running = runtime.spawn(run(listener, app, options, async {
            let _ = stopped.await;
        }));
        Server { address, gate, metrics, stop: Some(stop), running: Some(running), runtime }
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client(stream)
    }

    pub(crate) fn assert_alive(&self) {
        let reply = self.connect().ask("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(reply.status, 200, "the server answers the next request");
    }

    /// Tells the server to stop, without waiting.
    pub(crate) fn begin_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    pub(crate) fn wait_for_end(&mut self) -> Ended {
        self.runtime.block_on(self.running.take().unwrap()).unwrap()
    }
}

fn routes(gate: Arc<Gate>) -> Router {
    Router::new()
        .route("/plays", post(async |Body(play): Body<Play>| format!("{} {}", play.user_id, play.points)))
        .route("/page", get(async |Params(page): Params<Page>| format!("{:?} {:?}", page.limit, page.board)))
        .route("/users/{number}", get(async |Path(number): Path<u32>| number.to_string()))
        .route(
            "/fails",
            get(async || -> Result<(), Problem> { Err(Problem::internal("the disk is secret")) }),
        )
        .route("/panics", get(async || -> () { panic!("on purpose") }))
        .route(
            "/waits",
            get(async move || {
                let (count, changed) = &gate.entered;
                *count.lock().unwrap() += 1;
                changed.notify_all();
                gate.open.notified().await;
                "waited"
            }),
        )
}

pub(crate) struct Client(pub(crate) TcpStream);

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn code(&self) -> String {
        let json: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        json["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Client {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    pub(crate) fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Reply {
        self.send(bytes);
        self.reply()
    }

    pub(crate) fn post(&mut self, content_type: &str, body: &str) -> Reply {
        let length = body.len();
        self.ask(format!(
            "POST /plays HTTP/1.1\r\nhost: x\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
    }

    pub(crate) fn reply(&mut self) -> Reply {
        read_reply(&mut self.0)
    }

    /// Whether the server ends the connection, rather than answer.
    pub(crate) fn is_closed(&mut self) -> bool {
        !matches!(self.0.read(&mut [0; 1]), Ok(1..))
    }
}

pub(crate) fn read_reply(stream: &mut impl Read) -> Reply {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a reply");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("the whole body");
    Reply { status, head, body: String::from_utf8(body).unwrap() }
}
