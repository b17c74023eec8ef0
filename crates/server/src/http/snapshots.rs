//! `/v1/boards/{board}/snapshots`: copies of a board's standings, of a day or when somebody asked.
//!
//! A finished season is a snapshot too, under its own name.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Body as _;
use serde::Deserialize;
use standings_boards::{BoardId, LATEST, Label, ListRequest};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::{Accepts, Admin, App, Reader, Tag, json};
use super::error::Problem;
use super::extract::{Params, Path, parse_json, read_json};
use super::wire::{
    OfficialReply, ProblemBody, SnapshotBody, SnapshotReply, SnapshotScoresReply, SnapshotsReply,
};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, take))
        .routes(routes!(read, delete))
        .routes(routes!(official))
        .routes(routes!(scores))
}

/// Which part of a snapshot.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ScoresParams {
    /// How many users, 1 to 1,000; 10 if it is not said.
    page_size: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// The place of the list to begin at, from 1, counting everyone. If nothing is said, it begins after the official places.
    from_rank: Option<u64>,
    /// Only users with this score or more.
    #[param(value_type = Option<f64>)]
    min_score: Option<String>,
    /// Only users with this score or less.
    #[param(value_type = Option<f64>)]
    max_score: Option<String>,
}

/// A board's snapshots, newest first
#[utoipa::path(get, path = "/v1/boards/{board}/snapshots", tag = "snapshots", params(("board" = String, Path)),
    responses((status = 200, body = SnapshotsReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn list(
    app: State<Arc<App>>,
    _: Reader,
    accepts: Accepts,
    Path(board): Path<String>,
) -> Result<Response, Problem> {
    let snapshots = app.boards.snapshots(&BoardId::new(board)?)?;
    Ok(accepts.json(&SnapshotsReply { data: snapshots.into_iter().map(SnapshotReply::from).collect() }))
}

/// Take a snapshot now
///
/// It shows the standings of the moment in which this answers; the copy is made in the background. GET shows how far it is.
#[utoipa::path(post, path = "/v1/boards/{board}/snapshots", tag = "snapshots", params(("board" = String, Path)), request_body = Option<SnapshotBody>,
    responses((status = 202, body = SnapshotReply, description = "It is being taken"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn take(
    app: State<Arc<App>>,
    _: Admin,
    Path(board): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    // The body may be left out.
    let body = match request.body().is_end_stream() {
        true => None,
        false => Some(read_json(request).await?).filter(|text| text.trim_ascii() != b"null"),
    };
    let body = body.map(|text| parse_json::<SnapshotBody>(&text)).transpose()?;
    let label = body.and_then(|body| body.label).map(Label::new).transpose()?;
    let info = app.boards.take_snapshot(&BoardId::new(board)?, label).await?;
    Ok(json(StatusCode::ACCEPTED, &SnapshotReply::from(info)))
}

/// A snapshot; `latest` is the newest one of a day, or of all if there is none of a day
#[utoipa::path(get, path = "/v1/boards/{board}/snapshots/{label}", tag = "snapshots",
    params(("board" = String, Path), ("label" = String, Path)),
    responses((status = 200, body = SnapshotReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn read(
    app: State<Arc<App>>,
    _: Reader,
    Path((board, label)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let info = app.boards.snapshot(&BoardId::new(board)?, Label::new(label)?.as_str())?;
    Ok(json(StatusCode::OK, &SnapshotReply::from(info)))
}

/// Delete a snapshot
///
/// It answers no more at once; its rows go in the background.
#[utoipa::path(delete, path = "/v1/boards/{board}/snapshots/{label}", tag = "snapshots",
    params(("board" = String, Path), ("label" = String, Path)),
    responses((status = 202), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn delete(
    app: State<Arc<App>>,
    _: Admin,
    Path((board, label)): Path<(String, String)>,
) -> Result<Response, Problem> {
    app.boards.delete_snapshot(&BoardId::new(board)?, &Label::new(label)?).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// The official places of a snapshot, the first 100 by default: one query
#[utoipa::path(get, path = "/v1/boards/{board}/snapshots/{label}/official", tag = "snapshots",
    params(("board" = String, Path), ("label" = String, Path)),
    responses((status = 200, body = OfficialReply), (status = 304, description = "You have it already"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn official(
    app: State<Arc<App>>,
    _: Reader,
    accepts: Accepts,
    Path((board, label)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let (board, label) = (BoardId::new(board)?, Label::new(label)?);
    accepts
        .tagged(tag(&app, &board, &label), async || {
            let list = app.boards.snapshot_official(&board, label.as_str()).await?;
            Ok(accepts.json(&OfficialReply::new(&board, list)))
        })
        .await
}

/// A snapshot page by page: after the official places, from a place on, within scores
#[utoipa::path(get, path = "/v1/boards/{board}/snapshots/{label}/scores", tag = "snapshots",
    params(("board" = String, Path), ("label" = String, Path), ScoresParams),
    responses((status = 200, body = SnapshotScoresReply), (status = 304, description = "You have it already"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn scores(
    app: State<Arc<App>>,
    _: Reader,
    accepts: Accepts,
    Path((board, label)): Path<(String, String)>,
    Params(params): Params<ScoresParams>,
) -> Result<Response, Problem> {
    let (board, label) = (BoardId::new(board)?, Label::new(label)?);
    let request = ListRequest {
        season: None,
        limit: params.page_size,
        cursor: params.cursor,
        from_rank: params.from_rank,
        min_score: params.min_score,
        max_score: params.max_score,
    };
    accepts
        .tagged(tag(&app, &board, &label), async || {
            let list = app.boards.snapshot_list(&board, label.as_str(), &request).await?;
            Ok(accepts.json(&SnapshotScoresReply::new(&board, list)))
        })
        .await
}

/// The tag of a snapshot that is complete.
fn tag(app: &App, board: &BoardId, label: &Label) -> Option<Tag> {
    let info = app.boards.snapshot(board, label.as_str()).ok()?;
    info.finished_at?;
    let make = if label.as_str() == LATEST { Tag::of_latest } else { Tag::of_final };
    Some(make(info.label.as_str(), info.taken_at))
}
