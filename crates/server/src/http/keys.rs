//! `/v1/keys`: API keys, for admins. A key's text is in the reply that makes it and nowhere else.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use standings_boards::format_us;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::{Admin, App, json};
use super::error::Problem;
use super::extract::{Body, Path};
use super::wire::ProblemBody;
use crate::auth::{ApiKey, Role};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke))
}

/// A key to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KeyBody {
    /// What its owner calls it.
    #[schema(example = "game-server-eu")]
    name: String,
    /// What it allows: `read`, `write` or `admin`.
    #[schema(value_type = String, example = "write")]
    role: Role,
    /// The boards it is limited to, by the beginning of their names; none for all.
    #[serde(default)]
    boards: Vec<String>,
}

/// A key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
struct KeyReply {
    id: String,
    name: String,
    #[schema(value_type = String)]
    role: Role,
    /// The boards it is limited to, by the beginning of their names; none for all.
    boards: Vec<String>,
    created_at: String,
    /// When it was revoked; null if it is good.
    revoked_at: Option<String>,
    /// The key itself: only in the reply that makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl From<ApiKey> for KeyReply {
    fn from(key: ApiKey) -> Self {
        let time = |ms: i64| format_us(ms.saturating_mul(1_000));
        Self {
            id: key.id,
            name: key.name,
            role: key.role,
            boards: key.board_prefixes,
            created_at: time(key.created_at_ms),
            revoked_at: key.revoked_at_ms.map(time),
            key: None,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct KeysReply {
    data: Vec<KeyReply>,
}

/// All keys, without their secrets
#[utoipa::path(get, path = "/v1/keys", tag = "keys",
    responses((status = 200, body = KeysReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn list(app: State<Arc<App>>, _: Admin) -> Result<Response, Problem> {
    let keys = super::app::stored_keys(&app.boards).await?;
    Ok(json(StatusCode::OK, &KeysReply { data: keys.into_iter().map(KeyReply::from).collect() }))
}

/// Make a key
///
/// The first key closes a server that was open to everyone on its own machine, so it must be an `admin` key.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = KeyBody,
    responses((status = 201, body = KeyReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn create(app: State<Arc<App>>, _: Admin, Body(body): Body<KeyBody>) -> Result<Response, Problem> {
    let (key, text) = crate::store::create_key(&app.boards, &body.name, body.role, body.boards).await?;
    app.reload_keys().await?;
    let reply = KeyReply { key: Some(text.reveal().to_owned()), ..KeyReply::from(key) };
    Ok(json(StatusCode::CREATED, &reply))
}

/// Revoke a key, from now on and for good
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "keys", params(("id" = String, Path)),
    responses((status = 200, body = KeyReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn revoke(app: State<Arc<App>>, _: Admin, Path(id): Path<String>) -> Result<Response, Problem> {
    let key = crate::store::revoke_key(&app.boards, &id).await?;
    app.reload_keys().await?;
    Ok(json(StatusCode::OK, &KeyReply::from(key)))
}
