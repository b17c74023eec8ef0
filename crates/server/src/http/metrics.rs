//! Numbers for Prometheus: how long requests take by route, their statuses, refusals by code, connections.
//!
//! `prometheus-client` rather than the `metrics` facade: its counters and histograms are plain handles that a route
//! keeps (an atomic, and a short lock around fixed buckets), so that no label is hashed for a request, and nothing
//! piles up between two scrapes as the samples of the facade's exporter do.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::error::{Code, Problem};

/// The media type of what [`Metrics::render`] gives.
pub const METRICS_MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the latency histogram, in seconds: from a read in memory to the longest time allowed.
const SECONDS: [f64; 17] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

/// All numbers of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<StatusLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    problems: Vec<Counter>,
    /// Connections open now.
    pub connections: Gauge,
    /// Connections refused because there were too many.
    pub connections_refused: Counter,
    /// Handlers that panicked.
    pub panics: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: &'static str,
    route: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    method: &'static str,
    route: Arc<str>,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

impl Metrics {
    /// Numbers that all begin at zero.
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("standings");
        let requests = Family::<StatusLabels, Counter>::default();
        let seconds: Family<RouteLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let problems = Family::<CodeLabels, Counter>::default();
        let (connections, connections_refused, panics) =
            (Gauge::default(), Counter::default(), Counter::default());
        registry.register("http_requests", "Requests by route and status", requests.clone());
        registry.register("http_request_seconds", "Time from headers to reply by route", seconds.clone());
        registry.register("http_problems", "Refusals by code", problems.clone());
        registry.register("http_connections", "Connections open now", connections.clone());
        registry.register(
            "http_connections_refused",
            "Connections over the limit",
            connections_refused.clone(),
        );
        registry.register("http_panics", "Handlers that panicked", panics.clone());
        let problems = Code::ALL
            .iter()
            .map(|code| problems.get_or_create(&CodeLabels { code: code.as_str() }).clone())
            .collect();
        let registry = Mutex::new(registry);
        Metrics { registry, requests, seconds, problems, connections, connections_refused, panics }
    }

    /// Adds numbers of other parts of the server; their names get the prefix `standings_`.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Everything as text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        encode(&mut text, &registry).expect("writing to a string does not fail");
        text
    }

    /// The numbers of one method of one route, to be kept by whoever serves it.
    pub fn route(&self, method: &Method, template: &str) -> RouteMetrics {
        let (method, route) = (method_name(method), Arc::from(template));
        let labels = RouteLabels { method, route };
        RouteMetrics {
            seconds: self.seconds.get_or_create(&labels).clone(),
            requests: self.requests.clone(),
            statuses: [const { OnceLock::new() }; STATUSES],
            labels,
        }
    }

    /// Counts a refusal.
    pub fn count_problem(&self, problem: &Problem) {
        if let Some(counter) = self.problems.get(problem.code().index()) {
            counter.inc();
        }
    }
}

/// Statuses from 100 to 599 have a counter of their own, made when first used.
const STATUSES: usize = 500;

/// The numbers of one method of one route.
#[derive(Debug)]
pub struct RouteMetrics {
    labels: RouteLabels,
    seconds: Histogram,
    requests: Family<StatusLabels, Counter>,
    statuses: [OnceLock<Counter>; STATUSES],
}

impl RouteMetrics {
    /// The template of the route, such as `/v1/scores/{user_id}`.
    pub fn template(&self) -> &str {
        &self.labels.route
    }

    /// Counts a request that was answered.
    pub fn record(&self, status: StatusCode, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        if let Some(slot) = self.statuses.get(usize::from(status.as_u16()).wrapping_sub(100)) {
            let RouteLabels { method, route } = &self.labels;
            let labels = || StatusLabels { method, route: route.clone(), status: status.as_u16() };
            slot.get_or_init(|| self.requests.get_or_create(&labels()).clone()).inc();
        }
    }
}

/// A label must not take whatever a caller makes up, so unusual methods share one.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_status() {
        let metrics = Metrics::new();
        let route = metrics.route(&Method::GET, "/v1/scores/{user_id}");
        route.record(StatusCode::OK, Duration::from_micros(70));
        route.record(StatusCode::OK, Duration::from_micros(70));
        route.record(StatusCode::NOT_FOUND, Duration::from_secs(99));
        metrics.count_problem(&Problem::plain(Code::NotFound));
        let text = metrics.render();
        for line in [
            r#"standings_http_requests_total{method="GET",route="/v1/scores/{user_id}",status="200"} 2"#,
            r#"standings_http_requests_total{method="GET",route="/v1/scores/{user_id}",status="404"} 1"#,
            r#"standings_http_request_seconds_bucket{le="0.0001",method="GET",route="/v1/scores/{user_id}"} 2"#,
            r#"standings_http_problems_total{code="not_found"} 1"#,
            r#"standings_http_problems_total{code="internal"} 0"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
