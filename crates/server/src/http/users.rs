//! `/v1/users`: profiles, and who has which name.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use standings_boards::UserId;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::{Accepts, App, Reader, Writer, json};
use super::error::{Code, Problem};
use super::extract::{Body, Params, Path};
use super::wire::{ProblemBody, ProfileBody, ProfileReply, UsersReply};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(find)).routes(routes!(read, put, patch, delete))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FindParams {
    /// The whole name, whatever its case.
    name: Option<String>,
    /// What the name begins with, whatever its case: at least two characters.
    prefix: Option<String>,
    /// How many users, 1 to 1,000; 10 if it is not said.
    limit: Option<usize>,
}

/// Users by their name, or by its beginning
#[utoipa::path(get, path = "/v1/users", tag = "users", params(FindParams),
    responses((status = 200, body = UsersReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn find(
    app: State<Arc<App>>,
    _: Reader,
    accepts: Accepts,
    Params(params): Params<FindParams>,
) -> Result<Response, Problem> {
    let found = match (&params.name, &params.prefix) {
        (Some(name), None) => app.boards.users_named(name, params.limit).await?,
        (None, Some(prefix)) => app.boards.users_beginning(prefix, params.limit).await?,
        _ => return Err(Problem::new(Code::InvalidQuery, "send either name or prefix")),
    };
    Ok(accepts.json(&UsersReply::from(found)))
}

/// A user's profile
#[utoipa::path(get, path = "/v1/users/{user_id}", tag = "users", params(("user_id" = String, Path)),
    responses((status = 200, body = ProfileReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn read(app: State<Arc<App>>, _: Reader, Path(user): Path<String>) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &ProfileReply::from(app.boards.user(&UserId::new(user)?).await?)))
}

/// Make or replace a profile
///
/// The name shows in every list at once.
#[utoipa::path(put, path = "/v1/users/{user_id}", tag = "users", params(("user_id" = String, Path)), request_body = ProfileBody,
    responses((status = 200, body = ProfileReply, description = "It was there"), (status = 201, body = ProfileReply, description = "It was made"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn put(
    app: State<Arc<App>>,
    _: Writer,
    Path(user): Path<String>,
    Body(body): Body<ProfileBody>,
) -> Result<Response, Problem> {
    let name = body.name.flatten();
    let (record, made) = app.boards.put_user(&UserId::new(user)?, name.as_deref()).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, &ProfileReply::from(record)))
}

/// Change a profile that is there
#[utoipa::path(patch, path = "/v1/users/{user_id}", tag = "users", params(("user_id" = String, Path)), request_body = ProfileBody,
    responses((status = 200, body = ProfileReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn patch(
    app: State<Arc<App>>,
    _: Writer,
    Path(user): Path<String>,
    Body(body): Body<ProfileBody>,
) -> Result<Response, Problem> {
    let user = UserId::new(user)?;
    let stored = app.boards.user(&user).await?;
    let record = match body.name {
        Some(name) => app.boards.put_user(&user, name.as_deref()).await?.0,
        None => stored,
    };
    Ok(json(StatusCode::OK, &ProfileReply::from(record)))
}

/// Remove a profile
///
/// Plays and scores stay, under the id alone.
#[utoipa::path(delete, path = "/v1/users/{user_id}", tag = "users", params(("user_id" = String, Path)),
    responses((status = 204), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn delete(app: State<Arc<App>>, _: Writer, Path(user): Path<String>) -> Result<Response, Problem> {
    app.boards.delete_user(&UserId::new(user)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
