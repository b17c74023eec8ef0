//! The accept loop: from a listening socket to requests, within limits, until told to stop.
//!
//! `axum::serve` bounds neither headers nor time nor connections, so this stands on hyper itself. HTTP/1.1 and
//! HTTP/2 are told apart by the first bytes of a connection (or by ALPN under TLS).
//!
//! | limit | what happens beyond it |
//! |---|---|
//! | connections | the new one is answered 503 at once and closed; waiting instead would look like a dead server to health checks and load balancers |
//! | bytes and number of headers | 431, by hyper |
//! | time until a request's headers are whole | the connection is closed; an idle one is the same case, and costs the same |
//! | time for a clean shutdown | what is still open then is cut |
//!
//! Bodies and the time of a request are bounded by the middleware and the extractors.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tower_service::Service as _;

use super::error::{Code, PROBLEM_MEDIA_TYPE, Problem};
use super::metrics::Metrics;
use super::tls::Tls;

/// What connections may use.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Connections open at a time.
    pub connections_max: usize,
    /// Bytes of a request's line and headers together; hyper takes no less than 8,192.
    pub header_bytes_max: usize,
    /// How long a connection may take to send the headers of its next request.
    pub idle_time_max: Duration,
    /// How long a shutdown waits for requests under way.
    pub shutdown_time_max: Duration,
}

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// What connections may use.
    pub limits: ConnectionLimits,
    /// The certificate, for HTTPS.
    pub tls: Option<Arc<Tls>>,
    /// Where connections are counted.
    pub metrics: Arc<Metrics>,
}

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Connections that were cut because they were not done in time.
    pub cut_off: usize,
}

/// Refusals being sent at a time; connections beyond even that are dropped without an answer.
const REFUSALS_MAX: usize = 256;

/// How long a refused connection is kept for its client to read why.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);

/// How long to wait when the system gives no more connections, which is when it has run out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often a silent HTTP/2 connection is asked whether its client is still there.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);

/// Requests at a time on one HTTP/2 connection, so that the limit of connections also bounds requests.
const HTTP2_STREAMS_MAX: u32 = 256;

/// Serves `app` on `listener` until `shutdown`, then finishes the requests under way, and ends.
pub async fn run(
    listener: TcpListener,
    app: Router,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> Ended {
    let limits = options.limits;
    let shared = Arc::new(Shared {
        // Handlers get their state now, once, instead of at each request.
        app: app.with_state(()),
        builder: builder(limits),
        limits,
        metrics: options.metrics,
    });
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    let (stop, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let watching = options.tls.clone().map(|tls| tokio::spawn(tls.watch()));
    let mut shutdown = pin!(shutdown);
    loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                report(ended);
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            },
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            shared.metrics.connections_refused.inc();
            if let Ok(turn) = refusals.clone().try_acquire_owned() {
                let encrypted = options.tls.is_some();
                tokio::spawn(async move {
                    let _turn = turn;
                    let _ = tokio::time::timeout(REFUSAL_TIME_MAX, refuse(stream, encrypted)).await;
                });
            }
            continue;
        };
        let (shared, tls, stopped) = (shared.clone(), options.tls.clone(), stopped.clone());
        connections.spawn(async move {
            let _place = place;
            shared.metrics.connections.inc();
            let _open = Open(&shared.metrics);
            shared.connection(stream, tls.as_deref(), stopped).await;
        });
    }
    drop(listener);
    if let Some(watching) = watching {
        watching.abort();
    }
    stop.send_replace(true);
    let finishing = async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    };
    let in_time = tokio::time::timeout(limits.shutdown_time_max, finishing).await.is_ok();
    let cut_off = if in_time { 0 } else { connections.len() };
    connections.shutdown().await;
    Ended { cut_off }
}

/// What all connections have in common.
struct Shared {
    app: Router,
    builder: Builder<TokioExecutor>,
    limits: ConnectionLimits,
    metrics: Arc<Metrics>,
}

impl Shared {
    async fn connection(&self, stream: TcpStream, tls: Option<&Tls>, mut stopped: watch::Receiver<bool>) {
        // Replies are written whole; waiting to fill a packet would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was refused");
        }
        let Some(tls) = tls else { return self.requests(stream, stopped).await };
        let handshake = tokio::time::timeout(self.limits.idle_time_max, tls.acceptor().accept(stream));
        let outcome = tokio::select! {
            outcome = handshake => outcome,
            // Nothing was asked yet, so there is nothing to finish.
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        match outcome {
            Ok(Ok(stream)) => self.requests(stream, stopped).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    /// Serves the requests of one connection.
    async fn requests<S>(&self, stream: S, mut stopped: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let asked = Arc::new(AtomicBool::new(false));
        let requests = Requests { app: self.app.clone(), asked: asked.clone() };
        let mut connection = pin!(self.builder.serve_connection(TokioIo::new(stream), requests));
        // hyper times headers only once it knows the version of HTTP: a client that never says so much would stay
        // for ever. From the first request on, hyper's own timers do.
        let mut silence = pin!(tokio::time::sleep(self.limits.idle_time_max));
        let (mut silent, mut stopping) = (true, false);
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                    return;
                }
                () = &mut silence, if silent => {
                    silent = false;
                    if !asked.load(Ordering::Relaxed) {
                        return;
                    }
                }
                _ = stopped.wait_for(|stop| *stop), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Hands each request of a connection to the application.
struct Requests {
    app: Router,
    asked: Arc<AtomicBool>,
}

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response;
    type Error = Infallible;
    type Future = RouteFuture<Infallible>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.asked.store(true, Ordering::Relaxed);
        // A router is a pointer and always ready, so a clone of it can be called as it is.
        self.app.clone().call(request.map(Body::new))
    }
}

/// Counts a connection as closed however it ends.
struct Open<'a>(&'a Metrics);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

fn builder(limits: ConnectionLimits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Copying a short body behind its headers costs less than handing the system two pieces.
        .writev(false)
        .header_read_timeout(limits.idle_time_max)
        .max_buf_size(limits.header_bytes_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .keep_alive_interval(HTTP2_PING_INTERVAL);
    builder
}

/// Answers 503 and waits for the client to have read it: closing over bytes that were not read would reset the
/// connection and take the answer with it. Under TLS there is no saying anything without a handshake, whose cost is
/// what a full server cannot afford.
async fn refuse(mut stream: TcpStream, encrypted: bool) -> io::Result<()> {
    if encrypted {
        return Ok(());
    }
    let body = Problem::plain(Code::TooManyConnections).to_bytes();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {PROBLEM_MEDIA_TYPE}\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).await?;
    stream.shutdown().await?;
    let mut unread = [0; 4096];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// A client that went away before it was accepted is its own business; anything else is ours and may last.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
        return;
    }
    tracing::error!(%error, "cannot accept connections; raise the limit of open files (ulimit -n) or lower connections_max");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// The middleware catches what handlers do, so a panic here is a bug in this file or below.
fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection panicked");
    }
}
