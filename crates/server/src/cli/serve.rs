//! `standings serve`: the server.
//!
//! The order of a start: settings, log, store and keys, socket, and only then the line on standard output
//! that tells others to come. The order of an end: stop accepting, finish what was accepted, close the store.

use std::io::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use standings_boards::Boards;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::auth::{KeyRing, check_listen_address};
use crate::config::{self, Flags, Settings};
use crate::http::app::{App, stored_keys};
use crate::http::metrics::Metrics;
use crate::http::numbers::Numbers;
use crate::http::serve::{ServeOptions, run};
use crate::http::tls::Tls;
use crate::logging;
use crate::rate::RateLimits;
use crate::store::Store;

const EXAMPLE: &str = "\
Example:
  standings serve --listen 127.0.0.1:7700 --data ./standings-data

Settings come from a file, from variables and from flags; each is stronger than the one before.
`standings config` prints a sample file.";

/// How often it is looked what time has made due; costs next to nothing when nothing is.
const SETTLE_PAUSE: Duration = Duration::from_secs(1);
/// The same while it fails.
const SETTLE_PAUSE_MAX: Duration = Duration::from_secs(64);

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
struct Opened {
    app: Arc<App>,
    /// Loads rankings, then settles seasons and writes checkpoints until it is stopped.
    keeper: tokio::task::JoinHandle<()>,
    stop: Arc<tokio::sync::Notify>,
}

/// Opens the store. Rankings are loaded while the server already answers: /readyz says when they are complete.
async fn open(settings: &Settings, metrics: &Metrics) -> anyhow::Result<Opened> {
    let store = Store::open(&settings.data, settings.plays_keep_days.map(NonZeroU32::get)).await?;
    let limits = RateLimits::new(settings.rate_limit_per_second);
    let keys = KeyRing::new(stored_keys(&store.boards).await?, limits);
    let app = App::new(store.boards.clone(), Arc::new(keys));
    let numbers = Numbers { boards: store.boards.clone(), table: store.table };
    metrics.register(|registry| registry.register_collector(Box::new(numbers)));
    let stop = Arc::new(tokio::sync::Notify::new());
    let keeper = tokio::spawn(keep(store.boards, settings.checkpoint_interval, stop.clone()));
    Ok(Opened { app, keeper, stop })
}

/// Loads the rankings, then writes checkpoints now and then. Writing takes at most a tenth of the time, however large the rankings are.
async fn keep(boards: Boards, interval: Duration, stop: Arc<tokio::sync::Notify>) {
    if let Err(error) = boards.load(true).await {
        tracing::error!(%error, "the rankings could not be loaded; they stay refused");
        return;
    }
    let mut settling = tokio::task::JoinSet::new();
    settling.spawn(settle(boards.clone()));
    let mut pause = interval;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // A season that is just being closed goes on at the next start.
            () = stop.notified() => return settling.shutdown().await,
        }
        let begin = std::time::Instant::now();
        match boards.write_checkpoints().await {
            Ok(0) => {}
            Ok(seasons) => {
                tracing::debug!(seasons, elapsed_ms = begin.elapsed().as_millis() as u64, "checkpoints");
            }
            Err(error) => {
                tracing::error!(%error, "a checkpoint could not be written; the next one is tried later");
            }
        }
        pause = interval.max(begin.elapsed() * 10);
    }
}

/// Does what time makes due, as soon as the rankings are loaded and then for good: closes seasons, takes snapshots, lets go of what is too old.
/// May be dropped wherever it waits.
async fn settle(boards: Boards) {
    let mut pause = SETTLE_PAUSE;
    loop {
        match boards.settle().await {
            Ok(_) => pause = SETTLE_PAUSE,
            Err(error) => {
                // Less and less often: the same failure each second would help nobody.
                pause = (pause * 2).min(SETTLE_PAUSE_MAX);
                tracing::error!(
                    %error, retry_seconds = pause.as_secs(),
                    "what is due of seasons and snapshots could not be done; it is tried again"
                );
            }
        }
        tokio::time::sleep(pause).await;
    }
}

impl Opened {
    /// Runs after the last request was answered.
    async fn close(self) -> anyhow::Result<()> {
        // Plays whose callers have gone are still being counted.
        while self.app.boards.plays_under_way() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.stop.notify_one();
        if !self.app.boards.readiness().ready {
            self.keeper.abort();
        }
        let _ = self.keeper.await;
        let written = self.app.boards.write_checkpoints().await;
        if let Err(error) = written {
            // Nothing is lost: the next start follows the play log from an earlier one.
            tracing::warn!(%error, "the last checkpoint could not be written; the next start takes longer");
        }
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
    let opened = open(settings, &metrics).await?;
    check_listen_address(settings.listen, &opened.app.keys, &settings.data)?;
    let listener = TcpListener::bind(settings.listen).await.with_context(|| {
        format!("cannot listen on {}; if something else does, choose another with --listen", settings.listen)
    })?;
    let address = listener.local_addr().context("asking for the address")?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    // Connections are taken from here on, by the system at first.
    writeln!(std::io::stdout(), "listening on {scheme}://{address}").context("writing to standard output")?;
    tracing::info!(%address, store = ?settings.store, ranking = ?settings.ranking, "serving");

    let routes = crate::http::finish(
        crate::http::status::routes(opened.app.clone(), metrics.clone()),
        settings.request_limits,
        metrics.clone(),
    );
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
    opened.close().await?;
    tracing::info!("stopped");
    Ok(())
}
