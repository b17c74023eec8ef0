//! `/readyz`, `/metrics`, `/openapi.json` and `/docs`: what the server says about itself.
//!
//! `/metrics` takes a key where there are keys, because it names the partitions that run hot, and with them users.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use utoipa::openapi::{OpenApi, RefOr};
use utoipa::{OpenApi as _, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::{App, Reader, json};
use super::error::{Code, PROBLEM_MEDIA_TYPE, Problem};
use super::metrics::{METRICS_MEDIA_TYPE, Metrics};
use super::page;
use super::wire::ProblemBody;

/// How far a start has come.
#[derive(Debug, Serialize, ToSchema)]
struct ReadyReply {
    /// Whether every ranking is complete.
    ready: bool,
    /// Seasons to load.
    seasons: u64,
    /// Seasons that are complete.
    seasons_done: u64,
    /// Users loaded.
    users: u64,
    /// Plays read again because they are newer than a checkpoint.
    plays: u64,
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Standings",
        description = "A real-time leaderboard server for games. Errors are `application/problem+json` with a stable `code`.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    modifiers(&KeyScheme),
    tags(
        (name = "scores", description = "Plays in, standings out"),
        (name = "boards", description = "Boards and their seasons"),
        (name = "snapshots", description = "Copies of a board's standings, of a day or under a label"),
        (name = "users", description = "Profiles, names, and what has been"),
        (name = "keys", description = "API keys, for admins"),
        (name = "server", description = "The server about itself")
    )
)]
struct Document;

struct KeyScheme;

impl utoipa::Modify for KeyScheme {
    fn modify(&self, document: &mut OpenApi) {
        use utoipa::openapi::security::{
            ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
        };
        let components = document.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        let header = ApiKey::Header(ApiKeyValue::new("X-API-Key"));
        components.add_security_scheme("header", SecurityScheme::ApiKey(header));
        // Without keys a server on its own machine needs none of them: hence the empty alternative.
        document.security = Some(vec![
            SecurityRequirement::new("bearer", Vec::<String>::new()),
            SecurityRequirement::new("header", Vec::<String>::new()),
            SecurityRequirement::default(),
        ]);
    }
}

/// All routes of the API with their description, and the description itself.
pub fn routes(app: Arc<App>, metrics: Arc<Metrics>) -> Router {
    let (router, mut document) = OpenApiRouter::with_openapi(Document::openapi())
        .merge(super::scores::routes())
        .merge(super::boards::routes())
        .merge(super::snapshots::routes())
        .merge(super::users::routes())
        .merge(super::history::routes())
        .merge(super::keys::routes())
        .routes(routes!(ready))
        .split_for_parts();
    complete(&mut document);
    let text: Arc<str> = document.to_pretty_json().expect("a description is plain data").into();
    let data = serde_json::to_value(&document).expect("a description is plain data");
    let pages: [Arc<str>; 2] = [page::api(&data).into(), page::problems().into()];
    let [page, problems] = pages;
    let shown = async move || {
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text.to_string())
    };
    router
        .route(
            "/metrics",
            get(async move |_: Reader| ([(header::CONTENT_TYPE, METRICS_MEDIA_TYPE)], metrics.render())),
        )
        .with_state(app)
        .route("/openapi.json", get(shown))
        .route("/docs", get(async move || Html(page.to_string())))
        .route("/docs/problems", get(async move || Html(problems.to_string())))
}

/// Adds what every operation has in common, so that no handler has to say it: an id of its own (handlers of different nouns share
/// their names), the media type of problems, and words for responses that need no explanation.
fn complete(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let all = [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        for operation in all.into_iter().flatten() {
            let noun = operation.tags.iter().flatten().next();
            if let (Some(id), Some(noun)) = (&operation.operation_id, noun) {
                operation.operation_id = Some(format!("{noun}_{id}"));
            }
            for (status, response) in &mut operation.responses.responses {
                let RefOr::T(response) = response else { continue };
                let words = match status.as_bytes().first() {
                    Some(b'4') => "Refused: `code` says why",
                    Some(b'5') => "Not done: `code` says whether to try again",
                    _ => "Done",
                };
                if response.description.is_empty() {
                    words.clone_into(&mut response.description);
                }
                if matches!(status.as_bytes().first(), Some(b'4' | b'5'))
                    && let Some(content) = response.content.shift_remove("application/json")
                {
                    response.content.insert(PROBLEM_MEDIA_TYPE.to_owned(), content);
                }
            }
        }
    }
}

/// Whether every ranking is complete: 200 if so, else 503 with how far it is
#[utoipa::path(get, path = "/readyz", tag = "server",
    responses((status = 200, body = ReadyReply), (status = 503, body = ProblemBody)))]
async fn ready(app: State<Arc<App>>) -> Response {
    let now = app.boards.readiness();
    let reply = ReadyReply {
        ready: now.ready,
        seasons: now.seasons,
        seasons_done: now.seasons_done,
        users: now.users,
        plays: now.plays,
    };
    if now.ready {
        return json(StatusCode::OK, &reply);
    }
    let detail = format!(
        "{} of {} seasons are complete, {} users loaded, {} plays followed",
        now.seasons_done, now.seasons, now.users, now.plays
    );
    let problem = Problem::new(Code::NotReady, detail).retry_after_seconds(1);
    let progress = serde_json::to_value(&reply).unwrap_or_default();
    problem.with("progress", progress).into_response()
}
