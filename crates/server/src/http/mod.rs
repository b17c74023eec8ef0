//! HTTP: from a listening socket to handlers, and back.
//!
//! | file | holds |
//! |---|---|
//! | `serve.rs` | the accept loop: connections, their limits, clean shutdown |
//! | `tls.rs` | certificates, and their replacement while serving |
//! | `middleware.rs` | the one layer around every route |
//! | `request.rs` | what the layer tells handlers: request id, limits |
//! | `extract.rs`, `fields.rs` | body, query and path, with precise problems |
//! | `app.rs` | what handlers share, who may call them, how replies are written |
//! | `scores.rs`, `boards.rs`, `snapshots.rs`, `users.rs`, `history.rs`, `keys.rs` | the nouns |
//! | `status.rs`, `page.rs` | readiness, OpenAPI, the pages to read |
//! | `wire.rs`, `wire/` | the JSON of requests and replies; errors of the rules as problems |
//! | `error.rs` | the table of problem codes; `Problem` |
//! | `metrics.rs`, `numbers.rs` | numbers for Prometheus: of requests; of rules and table |
//!
//! A new route is a file here and one `.merge()` in the function that puts the application together; [`finish`] is
//! called once, on the whole.

pub mod app;
mod boards;
pub mod error;
pub mod extract;
mod fields;
mod history;
mod keys;
pub mod metrics;
pub mod middleware;
pub(crate) mod numbers;
mod page;
pub mod request;
mod scores;
pub mod serve;
mod snapshots;
pub mod status;
pub mod tls;
mod users;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::response::IntoResponse;
use axum::routing::get;

use error::{Code, Problem};
use metrics::Metrics;
use middleware::{GuardLayer, RequestLimits};

/// Completes an application: `/healthz`, problems for unknown routes and methods, and the layer around all of them.
/// Routes added afterwards stand outside of the layer.
pub fn finish(routes: Router, limits: RequestLimits, metrics: Arc<Metrics>) -> Router {
    routes
        .route("/healthz", get(async || "ok\n"))
        .fallback(unknown_route)
        .method_not_allowed_fallback(unknown_method)
        .layer(GuardLayer::new(limits, metrics))
}

async fn unknown_route(uri: Uri) -> impl IntoResponse {
    Problem::new(Code::NotFound, format!("there is no route `{}`; /openapi.json lists all", uri.path()))
}

async fn unknown_method(method: Method, uri: Uri) -> impl IntoResponse {
    let detail = format!("`{}` does not take {method}; the Allow header lists what it takes", uri.path());
    Problem::new(Code::MethodNotAllowed, detail)
}
