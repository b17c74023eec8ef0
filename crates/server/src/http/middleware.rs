//! The one layer around every route: request id, limits, panics, timeout, numbers, access log.
//!
//! One hand-written tower service instead of a stack of ready-made ones, because each layer of a stack costs an
//! allocation and a virtual call per request. Applied with `Router::layer`, it stands around each method of each
//! route, so it can keep the handles of the route's numbers after the first request and look nothing up later.
//!
//! The timer of the timeout is set only for a request that is not answered at its first poll: a read from memory
//! never touches the timer wheel. The timeout covers the handler, not the sending of a streamed reply, which may
//! go on for hours (server-sent events).
//!
//! A handler that runs out of time is dropped where it waits. What must not stop half-way is spawned by its handler.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderValue, Method};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Body as _;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_layer::Layer;
use tower_service::Service;

use super::error::{Code, Problem};
use super::metrics::{Metrics, RouteMetrics};
use super::request::{REQUEST_ID, RequestContext, id_of};

/// What requests that match no route are counted under.
const NO_ROUTE: &str = "none";

/// What a single request may use.
#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    /// The largest body taken.
    pub body_bytes_max: usize,
    /// How long a request may take until its reply begins; the body must have arrived after half of it.
    pub request_time_max: Duration,
}

/// The layer; see the module.
#[derive(Debug, Clone)]
pub struct GuardLayer {
    limits: RequestLimits,
    metrics: Arc<Metrics>,
}

impl GuardLayer {
    /// A layer that holds requests to `limits` and counts them in `metrics`.
    pub fn new(limits: RequestLimits, metrics: Arc<Metrics>) -> GuardLayer {
        GuardLayer { limits, metrics }
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        let endpoint = Endpoint { metrics: self.metrics.clone(), methods: Default::default() };
        Guard { inner, limits: self.limits, endpoint: Arc::new(endpoint) }
    }
}

/// The service around one method of one route.
#[derive(Debug, Clone)]
pub struct Guard<S> {
    inner: S,
    limits: RequestLimits,
    endpoint: Arc<Endpoint>,
}

/// What is the same for all requests that come to one place of the router.
#[derive(Debug)]
struct Endpoint {
    metrics: Arc<Metrics>,
    /// By method, because the answer to a wrong method is one place for many methods, as is `any`.
    methods: [OnceLock<RouteMetrics>; 8],
}

impl Endpoint {
    fn slot(method: &Method) -> usize {
        match *method {
            Method::GET => 0,
            Method::POST => 1,
            Method::PUT => 2,
            Method::PATCH => 3,
            Method::DELETE => 4,
            Method::HEAD => 5,
            Method::OPTIONS => 6,
            _ => 7,
        }
    }
}

impl<S> Service<Request> for Guard<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = GuardFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let started = Instant::now();
        let id = id_of(request.headers());
        let slot = Endpoint::slot(request.method());
        self.endpoint.methods[slot].get_or_init(|| {
            let template = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str);
            self.endpoint.metrics.route(request.method(), template)
        });
        // The query stays out of the log: it may name a user whom the log's reader has no business to know of.
        let span = tracing::debug_span!(
            "request",
            id = id.to_str().unwrap_or_default(),
            method = %request.method(),
            path = request.uri().path(),
        );
        // Most requests have no body and ask for nothing that takes long, and each extension is an allocation.
        if request.method() == Method::POST || !request.body().is_end_stream() {
            request.extensions_mut().insert(RequestContext {
                body_bytes_max: self.limits.body_bytes_max,
                body_deadline: Some(started + self.limits.request_time_max / 2),
            });
        }
        let endpoint = self.endpoint.clone();
        let deadline = started + self.limits.request_time_max;
        let inner = self.inner.call(request);
        GuardFuture { inner, timer: None, started, deadline, id: Some(id), slot, endpoint, span }
    }
}

pin_project! {
    /// A request on its way through its handler.
    pub struct GuardFuture<F> {
        #[pin]
        inner: F,
        #[pin]
        timer: Option<Sleep>,
        started: Instant,
        deadline: Instant,
        id: Option<HeaderValue>,
        slot: usize,
        endpoint: Arc<Endpoint>,
        span: tracing::Span,
    }
}

impl<F: Future<Output = Result<Response, Infallible>>> Future for GuardFuture<F> {
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let _entered = this.span.enter();
        let inner = this.inner;
        // After a panic the handler is never polled again, so whatever state it broke is only dropped.
        let mut response = match catch_unwind(AssertUnwindSafe(|| inner.poll(context))) {
            Ok(Poll::Ready(Ok(response))) => response,
            Ok(Poll::Pending) => {
                if this.timer.is_none() {
                    this.timer.set(Some(sleep_until(*this.deadline)));
                }
                ready!(this.timer.as_pin_mut().expect("it was set above").poll(context));
                Problem::plain(Code::RequestTimeout).retry_after_seconds(1).into_response()
            }
            Err(panic) => {
                this.endpoint.metrics.panics.inc();
                Problem::internal(format_args!("a handler panicked: {}", message(&*panic))).into_response()
            }
        };
        let id = this.id.take().expect("a future is not polled after it is ready");
        let route = this.endpoint.methods[*this.slot].get().expect("it was set when the request came");
        if let Some(problem) = response.extensions_mut().remove::<Problem>() {
            this.endpoint.metrics.count_problem(&problem);
            complete(&mut response, problem, &id, route.template());
        }
        let took = this.started.elapsed();
        route.record(response.status(), took);
        tracing::debug!(status = response.status().as_u16(), micros = took.as_micros() as u64, "answered");
        response.headers_mut().insert(REQUEST_ID, id);
        Poll::Ready(Ok(response))
    }
}

/// Puts the request id into the body of a problem, and failures of ours into the log.
fn complete(response: &mut Response, problem: Problem, id: &HeaderValue, route: &str) {
    if let Some(cause) = problem.cause() {
        tracing::error!(request_id = id.to_str().unwrap_or_default(), route, cause, "a request failed");
    }
    *response.body_mut() = problem.request_id(id.clone()).to_bytes().into();
    response.headers_mut().remove(CONTENT_LENGTH);
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
