//! `/v1/users/{user_id}/seasons|best|plays|history`: what has been of a user.
//!
//! The board is in the query here, so each handler asks by itself whether the caller may see it.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use standings_boards::{BoardId, DEFAULT_BOARD, Error, HistoryRequest, UserId};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::{Accepts, App, ReaderOf, json};
use super::error::Problem;
use super::extract::{Params, Path};
use super::wire::{HistoryReply, ProblemBody, UserBestReply, UserPlaysReply, UserSeasonsReply};
use crate::auth::Caller;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(seasons))
        .routes(routes!(best))
        .routes(routes!(plays))
        .routes(routes!(history))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PageParams {
    /// The board; `default` if it is not said.
    board: Option<String>,
    /// How many, 1 to 1,000; 10 if it is not said.
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct BestParams {
    /// The board; `default` if it is not said.
    board: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HistoryParams {
    /// A board, up to 20 times; if none is said, all that take daily snapshots.
    #[serde(default)]
    board: Vec<String>,
    /// The first day, such as 2026-01-01.
    from: Option<String>,
    /// The last day, included.
    to: Option<String>,
    /// How many days, 1 to 1,000; 100 if it is not said.
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// A user's seasons on a board, newest first
///
/// Running ones have the rank of this moment, finished ones the final rank.
#[utoipa::path(get, path = "/v1/users/{user_id}/seasons", tag = "users", params(("user_id" = String, Path), PageParams),
    responses((status = 200, body = UserSeasonsReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn seasons(
    app: State<Arc<App>>,
    ReaderOf(caller): ReaderOf,
    accepts: Accepts,
    Path(user): Path<String>,
    Params(params): Params<PageParams>,
) -> Result<Response, Problem> {
    let (user, board) = (UserId::new(user)?, board_for(&caller, params.board.as_deref())?);
    let found = app.boards.user_seasons(&user, &board, params.limit, params.cursor.as_deref()).await?;
    Ok(accepts.json(&UserSeasonsReply::new(&board, found)))
}

/// A user's best season on a board, also if it is no longer kept
///
/// Of two that are equally good, the earlier one.
#[utoipa::path(get, path = "/v1/users/{user_id}/best", tag = "users", params(("user_id" = String, Path), BestParams),
    responses((status = 200, body = UserBestReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn best(
    app: State<Arc<App>>,
    ReaderOf(caller): ReaderOf,
    Path(user): Path<String>,
    Params(params): Params<BestParams>,
) -> Result<Response, Problem> {
    let (user, board) = (UserId::new(user)?, board_for(&caller, params.board.as_deref())?);
    let (best, decimals) = app.boards.user_best(&user, &board).await?;
    Ok(json(StatusCode::OK, &UserBestReply::new(&board, best, decimals)))
}

/// A user's plays on a board, newest first
#[utoipa::path(get, path = "/v1/users/{user_id}/plays", tag = "users", params(("user_id" = String, Path), PageParams),
    responses((status = 200, body = UserPlaysReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn plays(
    app: State<Arc<App>>,
    ReaderOf(caller): ReaderOf,
    accepts: Accepts,
    Path(user): Path<String>,
    Params(params): Params<PageParams>,
) -> Result<Response, Problem> {
    let (user, board) = (UserId::new(user)?, board_for(&caller, params.board.as_deref())?);
    let found = app.boards.user_plays(&user, &board, params.limit, params.cursor.as_deref()).await?;
    Ok(accepts.json(&UserPlaysReply::new(&board, found)))
}

/// A user's days: score and rank in the snapshot of each day, several boards side by side, newest first
#[utoipa::path(get, path = "/v1/users/{user_id}/history", tag = "users", params(("user_id" = String, Path), HistoryParams),
    responses((status = 200, body = HistoryReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn history(
    app: State<Arc<App>>,
    ReaderOf(caller): ReaderOf,
    accepts: Accepts,
    Path(user): Path<String>,
    Params(params): Params<HistoryParams>,
) -> Result<Response, Problem> {
    let user = UserId::new(user)?;
    let boards = boards_for(&app, &caller, params.board)?;
    let request = HistoryRequest {
        boards,
        from: params.from,
        to: params.to,
        limit: params.limit,
        cursor: params.cursor,
    };
    Ok(accepts.json(&HistoryReply::from(app.boards.user_history(&user, &request).await?)))
}

/// The board asked for, if the caller may see it.
fn board_for(caller: &Caller, board: Option<&str>) -> Result<BoardId, Problem> {
    let board = BoardId::new(board.unwrap_or(DEFAULT_BOARD))?;
    caller.check_board(board.as_str())?;
    Ok(board)
}

/// The boards of a history, each once, in the order asked; or all that take days and that the caller may see.
fn boards_for(app: &App, caller: &Caller, asked: Vec<String>) -> Result<Vec<BoardId>, Problem> {
    let invalid = |why: String| Problem::from(Error::InvalidQuestion { field: "board", why });
    let mut boards: Vec<BoardId> = Vec::new();
    if asked.is_empty() {
        let all = app.boards.boards().into_iter();
        let days = all.filter(|record| record.takes_days() && record.deleted_users.is_none());
        boards.extend(days.map(|record| record.board).filter(|board| caller.allows_board(board.as_str())));
        if boards.is_empty() {
            return Err(invalid("must be named: none of the boards takes daily snapshots".to_owned()));
        }
    }
    for board in asked {
        let board = board_for(caller, Some(&board))?;
        if !boards.contains(&board) {
            boards.push(board);
        }
    }
    let mut fields = BTreeSet::from(["date".to_owned()]);
    for board in &boards {
        for field in HistoryReply::names(board) {
            if !fields.insert(field) {
                return Err(invalid(format!(
                    "{board} would have a field that another one has; ask for each alone"
                )));
            }
        }
    }
    Ok(boards)
}
