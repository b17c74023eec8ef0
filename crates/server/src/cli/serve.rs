//! `standings serve`: the server.
//!
//! The order of a start: settings, log, store and keys, socket, and only then the line on standard output
//! that tells others to come. The order of an end: stop accepting, finish what was accepted, close the store.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::auth::{KeyRing, check_listen_address};
use crate::config::{self, Flags, Settings};
use crate::http::metrics::Metrics;
use crate::http::serve::{ServeOptions, run};
use crate::http::tls::Tls;
use crate::logging;
use crate::rate::RateLimits;

const EXAMPLE: &str = "\
Example:
  standings serve --listen 127.0.0.1:7700 --data ./standings-data

Settings come from a file, from variables and from flags; each is stronger than the one before.
`standings config` prints a sample file.";

/// Serve boards over HTTP.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Serve {
    #[command(flatten)]
    flags: Flags,
}

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let working_folder = std::env::current_dir().context("finding the working folder")?;
        let settings = config::load(&self.flags, std::env::vars_os(), &working_folder)?;
        logging::start(settings.log_level, settings.log_format);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.context("starting the threads of the server")?.block_on(serve(&settings))
    }
}

/// The application as it is served, and what must be closed after it.
struct App {
    routes: Router,
    keys: Arc<KeyRing>,
}

/// Opens the store and puts the routes together. THE SEAM: boards, storage and the routes of scores, boards and users
/// are joined to the server here and in [`App::close`], and nowhere else.
async fn open_app(settings: &Settings, _metrics: &Arc<Metrics>) -> anyhow::Result<App> {
    let limits = RateLimits::new(settings.rate_limit_per_second);
    Ok(App { routes: Router::new(), keys: Arc::new(KeyRing::new(Vec::new(), limits)) })
}

impl App {
    /// Runs after the last request was answered.
    async fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}

async fn serve(settings: &Settings) -> anyhow::Result<()> {
    // Before anything is opened, so that a signal during the start is not lost.
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let tls = match &settings.tls {
        Some(files) => Some(Arc::new(Tls::load(&files.certificate, &files.key)?)),
        None => None,
    };
    let metrics = Arc::new(Metrics::new());
    let app = open_app(settings, &metrics).await?;
    check_listen_address(settings.listen, &app.keys, &settings.data)?;
    let listener = TcpListener::bind(settings.listen).await.with_context(|| {
        format!("cannot listen on {}; if something else does, choose another with --listen", settings.listen)
    })?;
    let address = listener.local_addr().context("asking for the address")?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    // Connections are taken from here on, by the system at first.
    writeln!(std::io::stdout(), "listening on {scheme}://{address}").context("writing to standard output")?;
    tracing::info!(%address, store = ?settings.store, ranking = ?settings.ranking, "serving");

    let routes = crate::http::finish(app.routes.clone(), settings.request_limits, metrics.clone());
    let options = ServeOptions { limits: settings.connection_limits, tls, metrics };
    let ended = run(listener, routes, options, async {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: finishing what is under way"),
            _ = interrupt.recv() => tracing::info!("SIGINT: finishing what is under way"),
        }
    })
    .await;
    if ended.cut_off > 0 {
        tracing::warn!(connections = ended.cut_off, "cut off; shutdown_seconds_max was not enough");
    }
    app.close().await?;
    tracing::info!("stopped");
    Ok(())
}
