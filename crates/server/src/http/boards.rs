//! `/v1/boards`: boards and their seasons.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use standings_boards::{BoardId, Rules};
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::{Accepts, Admin, App, Reader, ReaderOf, json};
use super::error::Problem;
use super::extract::{Body, Path};
use super::request::RequestContext;
use super::wire::{BoardReply, BoardsReply, ProblemBody, RulesBody, SeasonReply, SeasonsReply};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read, put, patch, delete))
        .routes(routes!(seasons))
        .routes(routes!(season))
        .routes(routes!(close))
}

/// How long a caller waits for a season to become final.
const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// All boards
#[utoipa::path(get, path = "/v1/boards", tag = "boards",
    responses((status = 200, body = BoardsReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn list(app: State<Arc<App>>, ReaderOf(caller): ReaderOf, accepts: Accepts) -> Response {
    let boards = app.boards.boards().into_iter().filter(|board| caller.allows_board(board.board.as_str()));
    accepts.json(&BoardsReply { data: boards.map(BoardReply::from).collect() })
}

/// A board
#[utoipa::path(get, path = "/v1/boards/{board}", tag = "boards", params(("board" = String, Path)),
    responses((status = 200, body = BoardReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn read(app: State<Arc<App>>, _: Reader, Path(board): Path<String>) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &BoardReply::from(app.boards.board(&BoardId::new(board)?)?)))
}

/// Make a board, or give it other rules
///
/// Rules that are left out have their defaults. Once a board has plays, `score`, `order`, `decimals`, `resets`, `week_starts` and `time_zone`
/// stay as they are; the others may change at any time.
#[utoipa::path(put, path = "/v1/boards/{board}", tag = "boards", params(("board" = String, Path)), request_body = RulesBody,
    responses((status = 200, body = BoardReply, description = "It was there"), (status = 201, body = BoardReply, description = "It was made"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn put(
    app: State<Arc<App>>,
    _: Admin,
    Path(board): Path<String>,
    Body(body): Body<RulesBody>,
) -> Result<Response, Problem> {
    let board = BoardId::new(board)?;
    let (record, made) = app.boards.put_board(&board, body.apply(&Rules::default())?).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, &BoardReply::from(record)))
}

/// Change some of a board's rules
#[utoipa::path(patch, path = "/v1/boards/{board}", tag = "boards", params(("board" = String, Path)), request_body = RulesBody,
    responses((status = 200, body = BoardReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn patch(
    app: State<Arc<App>>,
    _: Admin,
    Path(board): Path<String>,
    Body(body): Body<RulesBody>,
) -> Result<Response, Problem> {
    let board = BoardId::new(board)?;
    let record = app.boards.change_board(&board, move |rules| body.apply(rules)).await?;
    Ok(json(StatusCode::OK, &BoardReply::from(record)))
}

/// Delete a board with everything on it
///
/// It answers no more at once; its plays and scores go in the background. GET shows how far it is, and 404 when it is gone.
#[utoipa::path(delete, path = "/v1/boards/{board}", tag = "boards", params(("board" = String, Path)),
    responses((status = 202, body = BoardReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn delete(app: State<Arc<App>>, _: Admin, Path(board): Path<String>) -> Result<Response, Problem> {
    let record = app.boards.delete_board(&BoardId::new(board)?).await?;
    Ok(json(StatusCode::ACCEPTED, &BoardReply::from(record)))
}

/// A board's seasons, newest first
#[utoipa::path(get, path = "/v1/boards/{board}/seasons", tag = "boards", params(("board" = String, Path)),
    responses((status = 200, body = SeasonsReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn seasons(
    app: State<Arc<App>>,
    _: Reader,
    accepts: Accepts,
    Path(board): Path<String>,
) -> Result<Response, Problem> {
    let seasons = app.boards.seasons(&BoardId::new(board)?).await?;
    Ok(accepts.json(&SeasonsReply { data: seasons.into_iter().map(SeasonReply::from).collect() }))
}

/// A season
#[utoipa::path(get, path = "/v1/boards/{board}/seasons/{season}", tag = "boards",
    params(("board" = String, Path), ("season" = String, Path)),
    responses((status = 200, body = SeasonReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn season(
    app: State<Arc<App>>,
    _: Reader,
    Path((board, season)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let found = app.boards.season(&BoardId::new(board)?, &season).await?;
    Ok(json(StatusCode::OK, &SeasonReply::from(found)))
}

/// End a season now
///
/// It takes no more plays, and everybody's rank is final when this answers 200. A very large season answers 202 with how far it is, and goes on
/// by itself. One that is final already answers as it is.
#[utoipa::path(post, path = "/v1/boards/{board}/seasons/{season}/close", tag = "boards",
    params(("board" = String, Path), ("season" = String, Path)),
    responses((status = 200, body = SeasonReply, description = "It is final"), (status = 202, body = SeasonReply, description = "It is closing"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn close(
    app: State<Arc<App>>,
    _: Admin,
    Path((board, season)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let board = BoardId::new(board)?;
    let latest = Instant::now() + CLOSE_WAIT;
    // Before the request runs out of time.
    let until = RequestContext::of(request.extensions()).body_deadline.map_or(latest, |at| at.min(latest));
    let closing = {
        let (boards, board, season) = (app.boards.clone(), board.clone(), season.clone());
        tokio::spawn(async move { boards.close_season(&board, &season).await })
    };
    match tokio::time::timeout_at(until, closing).await {
        Ok(closed) => {
            let info = closed.map_err(Problem::internal)??;
            Ok(json(StatusCode::OK, &SeasonReply::from(info)))
        }
        Err(_) => {
            let info = app.boards.season(&board, &season).await?;
            Ok(json(StatusCode::ACCEPTED, &SeasonReply::from(info)))
        }
    }
}
