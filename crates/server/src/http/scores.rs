//! `/v1/scores` and `/v1/boards/{board}/scores`: plays in, standings out.
//!
//! The short routes are those of the board `default`; each handler takes the board from the path or, where there is none, that one.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use standings_boards::{
    BATCH_PLAYS_MAX, BoardId, DEFAULT_BOARD, Error, ListRequest, NewPlay, PlayId, UserId, parse_us,
};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::{Accepts, App, ListKey, Reader, Tag, Writer, Written, json, json_bytes};
use super::error::{Code, Problem};
use super::extract::{Body, Params, Path, parse_json, read_json};
use super::wire::{
    BatchBody, BatchReply, BatchResult, DistributionReply, ListReply, LookupBody, LookupReply, PlayBody,
    PlayReply, ProblemBody, UserReply,
};

const IDEMPOTENCY_KEY: &str = "idempotency-key";

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(top_of_default, submit_to_default))
        .routes(routes!(user_of_default))
        .routes(routes!(list, submit))
        .routes(routes!(submit_batch))
        .routes(routes!(lookup))
        .routes(routes!(user))
        .routes(routes!(around))
        .routes(routes!(distribution))
}

/// Which list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListParams {
    /// The season; the one of this moment if it is not said.
    season: Option<String>,
    /// How many users, 1 to 1,000; 10 if it is not said.
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// The place of the list to begin at, from 1, counting everyone.
    from_rank: Option<u64>,
    /// Only users with this score or more.
    #[param(value_type = Option<f64>)]
    min_score: Option<String>,
    /// Only users with this score or less.
    #[param(value_type = Option<f64>)]
    max_score: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SeasonParams {
    /// The season; the one of this moment if it is not said.
    season: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AroundParams {
    /// How many above, up to 500; 4 if it is not said.
    above: Option<usize>,
    /// How many below, up to 500; 4 if it is not said. Where one side runs out, the other has more.
    below: Option<usize>,
    /// The season; the one of this moment if it is not said.
    season: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DistributionParams {
    /// Parts of the histogram, 1 to 1,000; 20 if it is not said.
    buckets: Option<usize>,
    /// The season; the one of this moment if it is not said.
    season: Option<String>,
}

/// The top of the default board
#[utoipa::path(get, path = "/v1/scores", tag = "scores", params(ListParams),
    responses((status = 200, body = ListReply), (status = 304, description = "You have it already"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn top_of_default(
    app: State<Arc<App>>,
    _: Reader,
    accepts: Accepts,
    params: Params<ListParams>,
) -> Result<Response, Problem> {
    list_of(&app, &default_board(), accepts, params.0).await
}

/// A play on the default board
///
/// Counted, durable and ranked when this answers 200. The same `play_id` (or `Idempotency-Key` header) sent again counts once
/// and answers as the first time, with the rank of now.
#[utoipa::path(post, path = "/v1/scores", tag = "scores", request_body = PlayBody,
    responses((status = 200, body = PlayReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn submit_to_default(app: State<Arc<App>>, _: Writer, request: Request) -> Result<Response, Problem> {
    submit_to(&app, &default_board(), request).await
}

/// One user on the default board
#[utoipa::path(get, path = "/v1/scores/{user_id}", tag = "scores", params(("user_id" = String, Path), SeasonParams),
    responses((status = 200, body = UserReply), (status = 304, description = "You have it already"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn user_of_default(
    app: State<Arc<App>>,
    _: Reader,
    accepts: Accepts,
    Path(user): Path<String>,
    params: Params<SeasonParams>,
) -> Result<Response, Problem> {
    user_of(&app, &default_board(), &user, &accepts, params.0).await
}

/// The list of a board: its top, pages, from a rank on, within scores
#[utoipa::path(get, path = "/v1/boards/{board}/scores", tag = "scores", params(("board" = String, Path), ListParams),
    responses((status = 200, body = ListReply), (status = 304, description = "You have it already"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn list(
    app: State<Arc<App>>,
    _: Reader,
    accepts: Accepts,
    Path(board): Path<String>,
    params: Params<ListParams>,
) -> Result<Response, Problem> {
    list_of(&app, &BoardId::new(board)?, accepts, params.0).await
}

/// A play
///
/// As on the default board.
#[utoipa::path(post, path = "/v1/boards/{board}/scores", tag = "scores", params(("board" = String, Path)), request_body = PlayBody,
    responses((status = 200, body = PlayReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn submit(
    app: State<Arc<App>>,
    _: Writer,
    Path(board): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    submit_to(&app, &BoardId::new(board)?, request).await
}

/// Up to 1,000 plays, each answered on its own
///
/// Ranks are those after the whole batch.
#[utoipa::path(post, path = "/v1/boards/{board}/scores/batch", tag = "scores", params(("board" = String, Path)), request_body = BatchBody,
    responses((status = 200, body = BatchReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn submit_batch(
    app: State<Arc<App>>,
    _: Writer,
    Path(board): Path<String>,
    accepts: Accepts,
    Body(body): Body<BatchBody>,
) -> Result<Response, Problem> {
    let board = BoardId::new(board)?;
    if body.plays.len() > BATCH_PLAYS_MAX {
        return Err(Error::TooMany { what: "plays", max: BATCH_PLAYS_MAX }.into());
    }
    let mut results: Vec<Option<BatchResult>> = Vec::with_capacity(body.plays.len());
    let mut plays = Vec::with_capacity(body.plays.len());
    for raw in &body.plays {
        match parse_json::<PlayBody>(raw.get().as_bytes()).and_then(|body| new_play(body, None)) {
            Ok(play) => {
                plays.push(play);
                results.push(None);
            }
            Err(problem) => results.push(Some(BatchResult::Refused(problem))),
        }
    }
    let mut counted = app.boards.submit_batch(&board, plays).await?.into_iter();
    let mut next = || match counted.next() {
        Some(Ok(counted)) => BatchResult::Counted(counted.into()),
        Some(Err(error)) => BatchResult::Refused(error.into()),
        None => BatchResult::Refused(Problem::internal("fewer answers than plays")),
    };
    let results = results.into_iter().map(|result| result.unwrap_or_else(&mut next)).collect();
    Ok(accepts.json(&BatchReply { results }))
}

/// Several users at once
#[utoipa::path(post, path = "/v1/boards/{board}/scores/lookup", tag = "scores", params(("board" = String, Path), SeasonParams), request_body = LookupBody,
    responses((status = 200, body = LookupReply), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn lookup(
    app: State<Arc<App>>,
    _: Reader,
    Path(board): Path<String>,
    accepts: Accepts,
    params: Params<SeasonParams>,
    Body(body): Body<LookupBody>,
) -> Result<Response, Problem> {
    let users = body.user_ids.into_iter().map(UserId::new).collect::<Result<Vec<_>, _>>()?;
    let found = app.boards.lookup(&BoardId::new(board)?, users, params.0.season.as_deref()).await?;
    Ok(accepts.json(&LookupReply::from(found)))
}

/// One user
#[utoipa::path(get, path = "/v1/boards/{board}/scores/{user_id}", tag = "scores",
    params(("board" = String, Path), ("user_id" = String, Path), SeasonParams),
    responses((status = 200, body = UserReply), (status = 304, description = "You have it already"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn user(
    app: State<Arc<App>>,
    _: Reader,
    accepts: Accepts,
    Path((board, user)): Path<(String, String)>,
    params: Params<SeasonParams>,
) -> Result<Response, Problem> {
    user_of(&app, &BoardId::new(board)?, &user, &accepts, params.0).await
}

/// A user with those above and below
#[utoipa::path(get, path = "/v1/boards/{board}/scores/{user_id}/around", tag = "scores",
    params(("board" = String, Path), ("user_id" = String, Path), AroundParams),
    responses((status = 200, body = ListReply), (status = 304, description = "You have it already"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn around(
    app: State<Arc<App>>,
    _: Reader,
    accepts: Accepts,
    Path((board, user)): Path<(String, String)>,
    Params(params): Params<AroundParams>,
) -> Result<Response, Problem> {
    let (above, below) = (params.above.unwrap_or(4), params.below.unwrap_or(4));
    let (board, user) = (BoardId::new(board)?, UserId::new(user)?);
    let season = params.season.as_deref();
    accepts
        .tagged(app.finished(&board, season), async || {
            let found = app.boards.around(&board, &user, above, below, season).await?;
            Ok(accepts.json(&ListReply::from(found)))
        })
        .await
}

/// How the scores of a board are spread: histogram and percentiles
#[utoipa::path(get, path = "/v1/boards/{board}/distribution", tag = "scores", params(("board" = String, Path), DistributionParams),
    responses((status = 200, body = DistributionReply), (status = 304, description = "You have it already"), (status = "4XX", body = ProblemBody), (status = "5XX", body = ProblemBody)))]
async fn distribution(
    app: State<Arc<App>>,
    _: Reader,
    accepts: Accepts,
    Path(board): Path<String>,
    Params(params): Params<DistributionParams>,
) -> Result<Response, Problem> {
    let buckets = params.buckets.unwrap_or(20);
    let (board, season) = (BoardId::new(board)?, params.season.as_deref());
    accepts
        .tagged(app.finished(&board, season), async || {
            let spread = app.boards.distribution(&board, buckets, season).await?;
            Ok(accepts.json(&DistributionReply::from(spread)))
        })
        .await
}

fn default_board() -> BoardId {
    BoardId::new(DEFAULT_BOARD).expect("the name of the default board is one")
}

async fn list_of(
    app: &App,
    board: &BoardId,
    accepts: Accepts,
    params: ListParams,
) -> Result<Response, Problem> {
    // Taken before the list is read: a list may be newer than its tag, never older.
    let tag = match app.finished(board, params.season.as_deref()) {
        Some(tag) => tag,
        None => {
            let (season, generation, names, version) =
                app.boards.generation(board, params.season.as_deref()).await?;
            Tag::of_now(format!("W/\"{:x}-{season}-{generation:x}-{names:x}-{version:x}\"", app.start))
        }
    };
    if accepts.has(&tag) {
        return Ok(tag.not_modified());
    }
    let plain = params.cursor.is_none()
        && params.from_rank.is_none()
        && params.min_score.is_none()
        && params.max_score.is_none();
    let key: ListKey = (board.clone(), params.season.clone(), params.limit);
    if plain && let Some(known) = app.lists.get(&key).filter(|known| *known.tag == *tag.text) {
        return Ok(tag.on(json_bytes(StatusCode::OK, known.body)));
    }
    let request = ListRequest {
        season: params.season,
        limit: params.limit,
        cursor: params.cursor,
        from_rank: params.from_rank,
        min_score: params.min_score,
        max_score: params.max_score,
    };
    let found = app.boards.list(board, &request).await?;
    let response = match Accepts::short(&ListReply::from(found)) {
        Ok(body) => {
            if plain {
                app.lists.insert(key, Written { tag: tag.text.as_str().into(), body: body.clone() });
            }
            json_bytes(StatusCode::OK, body)
        }
        Err(body) => accepts.written(body),
    };
    Ok(tag.on(response))
}

async fn user_of(
    app: &App,
    board: &BoardId,
    user: &str,
    accepts: &Accepts,
    params: SeasonParams,
) -> Result<Response, Problem> {
    let (user, season) = (UserId::new(user)?, params.season.as_deref());
    accepts
        .tagged(app.finished(board, season), async || {
            let found = app.boards.standing(board, &user, season).await?;
            Ok(json(StatusCode::OK, &UserReply::from(found)))
        })
        .await
}

async fn submit_to(app: &App, board: &BoardId, request: Request) -> Result<Response, Problem> {
    let header = idempotency_key(request.headers())?;
    let body = parse_json::<PlayBody>(&read_json(request).await?)?;
    let counted = app.boards.submit(board, new_play(body, header)?).await?;
    Ok(json(StatusCode::OK, &PlayReply::from(counted)))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let invalid = || Problem::new(Code::InvalidId, "the header Idempotency-Key must be ASCII text");
    // The draft standard has it in quotes; most callers send it without.
    let text = value.to_str().map_err(|_| invalid())?.trim();
    let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    Ok(Some(text.to_owned()))
}

fn new_play(body: PlayBody, header: Option<String>) -> Result<NewPlay, Problem> {
    if let (Some(play_id), Some(header)) = (&body.play_id, &header)
        && play_id != header
    {
        let detail = "play_id and the header Idempotency-Key differ; send one of them";
        return Err(Problem::new(Code::InvalidBody, detail).with("field", "play_id"));
    }
    Ok(NewPlay {
        user: UserId::new(body.user_id)?,
        points: body.points.0,
        play_id: body.play_id.or(header).map(PlayId::new).transpose()?,
        played_at_us: body.played_at.map(|time| parse_us("played_at", &time)).transpose()?,
    })
}
