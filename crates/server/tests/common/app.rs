//! The real routes over a table of the test's own, called without a socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use standings::auth::KeyRing;
use standings::http::app::App;
use standings::http::metrics::Metrics;
use standings::http::middleware::RequestLimits;
use standings::rate::RateLimits;
use standings_boards::{Boards, Settings, records};
use standings_table::embedded::Options;
use standings_table::{Clock, EmbeddedTable, Table};
use tower::ServiceExt as _;

use super::PATIENCE;
use super::exact::Exact;

/// The application, ready to be asked.
#[derive(Clone)]
pub(crate) struct TestApp {
    pub(crate) boards: Boards,
    pub(crate) router: Router,
}

impl TestApp {
    /// The application over a table; its rankings are loaded.
    pub(crate) async fn open(
        table: Arc<dyn Table>,
        clock: Arc<dyn Clock>,
        checkpoints: Option<PathBuf>,
    ) -> TestApp {
        // Small steps, so that a few users make a ladder of several items.
        let settings = Settings { checkpoints, snapshot_block: 16, snapshot_step: 4, ..Settings::default() };
        let boards = Boards::open(table, clock, settings).await.expect("the boards open");
        boards.load(true).await.expect("the rankings load");
        TestApp { router: router(&boards), boards }
    }

    /// The application over a folder.
    pub(crate) async fn in_folder(folder: &Path, clock: Arc<dyn Clock>) -> TestApp {
        TestApp::open(table_in(folder), clock, Some(folder.join("checkpoints"))).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.ask(Method::POST, path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &str) -> Answer {
        self.ask(Method::PUT, path, body).await
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        self.send(request.body(Body::from(body.to_owned())).expect("a request")).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let answer = self.router.clone().oneshot(request).await.expect("routes always answer");
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.expect("the whole body").to_bytes();
        let body = String::from_utf8(body.to_vec()).expect("replies are UTF-8");
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Ranking and table agree, and entries with their plays.
    pub(crate) async fn assert_consistent(&self) {
        let report = self.boards.check(false, |_| {}).await.expect("the check runs");
        assert_eq!(report.differences, 0, "{:#?}", report.named);
    }

    /// Does what the time of the clock has made due, as the server does each second.
    pub(crate) async fn settle_due(&self) -> u64 {
        self.boards.settle().await.expect("what is due is done")
    }

    /// Lets plays finish whose callers have gone.
    pub(crate) async fn settle(&self) {
        while self.boards.plays_under_way() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// The routes as the server puts them together, open to everyone.
pub(crate) fn router(boards: &Boards) -> Router {
    router_within(boards, PATIENCE)
}

/// The same with so much time for a request.
pub(crate) fn router_within(boards: &Boards, request_time_max: Duration) -> Router {
    let keys = KeyRing::new(Vec::new(), RateLimits::new(None));
    let app = App::new(boards.clone(), Arc::new(keys));
    let limits = RequestLimits { body_bytes_max: 1 << 20, request_time_max };
    let metrics = Arc::new(Metrics::new());
    standings::http::finish(standings::http::status::routes(app, metrics.clone()), limits, metrics)
}

/// The embedded table in a folder.
pub(crate) fn table_in(folder: &Path) -> Arc<dyn Table> {
    let options = Options::new(records::schema());
    Arc::new(EmbeddedTable::open(folder.join("table"), options).expect("the table opens"))
}

/// A runtime as the server has it, small.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// A reply.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Exact {
        Exact::parse(&self.body)
    }

    /// The reply, which is a good one.
    pub(crate) fn good(&self) -> Exact {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.body);
        self.json()
    }

    /// The code of a problem; empty if it is none.
    pub(crate) fn code(&self) -> String {
        if self.status < 400 {
            return String::new();
        }
        self.json().get("code").text().unwrap_or_default().to_owned()
    }
}

/// The seed of a random test: a new one each time, or the one to replay. Whoever takes it prints it.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("STANDINGS_TEST_SEED") {
        Ok(text) => text.parse().expect("STANDINGS_TEST_SEED is a number"),
        Err(_) => fastrand::u64(..) >> 16,
    };
    println!("replay with STANDINGS_TEST_SEED={seed}");
    seed
}

/// Whether the short form of the tests is asked for.
pub(crate) fn quick() -> bool {
    std::env::var_os("STANDINGS_TEST_QUICK").is_some()
}
