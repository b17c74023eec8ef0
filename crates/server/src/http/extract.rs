//! What handlers take from a request, with a precise [`Problem`] where it is not right.
//!
//! | extractor | takes | refuses with |
//! |---|---|---|
//! | [`Body`] | the JSON body | `unsupported_media_type`, `body_too_large`, `body_timeout`, `incomplete_body`, `invalid_json`, `invalid_body` |
//! | [`Params`] | the query | `invalid_query`, also for names it does not know |
//! | [`Path`] | the parts of the path | `invalid_path` |
//!
//! A body is parsed once, by the quick parser. Only if that fails is it parsed again, slowly, to find out which
//! field was wrong. Unknown fields of a body are refused where its type says `#[serde(deny_unknown_fields)]`, which
//! all of ours do; unknown query parameters are always refused.

use axum::body::{Body as RawBody, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::{CONTENT_TYPE, EXPECT};
use axum::http::request::Parts;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as ValueError, MapDeserializer};
use serde_json::error::Category;

use super::error::{Code, Problem};
use super::fields;
use super::request::RequestContext;

/// How much of a body that is too large is read and thrown away, as a multiple of what is allowed.
///
/// Answering while the client is still sending would end in a reset connection, and the client would see that
/// instead of the answer. Past this the connection is cut all the same.
const DISCARD_FACTOR: usize = 16;

/// The JSON body of a request.
#[derive(Debug, Clone, Copy)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        parse_json(&read_json(request).await?).map(Body)
    }
}

/// The bytes of a request's body, which is said to be JSON and within the limits of size and time.
pub async fn read_json(request: Request) -> Result<Bytes, Problem> {
    let (parts, body) = request.into_parts();
    if !parts.headers.get(CONTENT_TYPE).is_some_and(|value| is_json(value.as_bytes())) {
        let found = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            match found {
                Some(found) => format!("Content-Type is `{found}`; send `application/json`"),
                None => "there is no Content-Type; send `application/json`".to_owned(),
            },
        ));
    }
    let context = RequestContext::of(&parts.extensions);
    // A client that asked before sending is answered before it sends.
    let discard = !parts.headers.contains_key(EXPECT);
    let reading = read(body, context.body_bytes_max, discard);
    match context.body_deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, reading)
            .await
            .unwrap_or_else(|_| Err(Problem::plain(Code::BodyTimeout))),
        None => reading.await,
    }
}

/// A value from JSON text; on failure the problem says where in the text, and which field.
pub fn parse_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    // Serde would take a list as the fields of a struct in their order, which nobody means.
    if text.trim_ascii_start().first() == Some(&b'[') && fields::of::<T>().is_some() && is_json_text(text) {
        return Err(Problem::new(Code::InvalidBody, "the body is a list; send an object"));
    }
    serde_json::from_slice(text).map_err(|error| explain(text, &error, path_of_misfit::<T>))
}

/// The parameters of the query, into a struct. Unknown names are refused; a field of type `Vec` takes a name that
/// comes several times.
#[derive(Debug, Clone, Copy)]
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parse_query(parts.uri.query().unwrap_or_default()).map(Params)
    }
}

/// A struct from the text behind the `?` of a URI.
pub fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    // Most requests have no query. If something is missing then, the ordinary way says what.
    if query.is_empty() {
        let nothing = MapDeserializer::<_, ValueError>::new(std::iter::empty::<(&str, &str)>());
        if let Ok(value) = T::deserialize(nothing) {
            return Ok(value);
        }
    }
    if let Some(known) = fields::of::<T>()
        && let Some(unknown) = unknown_name(query, known)
    {
        let known = if known.is_empty() { "none".to_owned() } else { format!("`{}`", known.join("`, `")) };
        let detail = format!("there is no query parameter `{unknown}` here; known: {known}");
        return Err(Problem::new(Code::InvalidQuery, detail).with("parameter", unknown));
    }
    serde_html_form::from_str(query).map_err(|error| {
        let slow = serde_html_form::Deserializer::from_bytes(query.as_bytes());
        let Err(slow) = serde_path_to_error::deserialize::<_, T>(slow) else {
            return Problem::new(Code::InvalidQuery, error.to_string());
        };
        let path = slow.path().to_string();
        match path.as_str() {
            // A missing parameter belongs to no place; the message names it.
            "." => Problem::new(Code::InvalidQuery, slow.into_inner().to_string()),
            _ => Problem::new(Code::InvalidQuery, format!("query parameter `{path}`: {}", slow.into_inner()))
                .with("parameter", path),
        }
    })
}

/// The variable parts of the path, percent-decoded: one value, a tuple, or a struct.
#[derive(Debug, Clone, Copy)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        use axum::extract::rejection::PathRejection;
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Path(value)),
            Err(PathRejection::FailedToDeserializePathParams(error))
                if error.status() == axum::http::StatusCode::BAD_REQUEST =>
            {
                Err(Problem::new(Code::InvalidPath, error.body_text()))
            }
            // The route and its handler do not agree about the parts: a bug of ours.
            Err(error) => Err(Problem::internal(error.body_text())),
        }
    }
}

/// The first name in the query that is not one of those known.
fn unknown_name(query: &str, known: &[&str]) -> Option<String> {
    let written = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
    query.split('&').filter(|pair| !pair.is_empty()).find_map(|pair| {
        // Known names need no encoding, so hardly any name has to be decoded to be recognised.
        if known
            .iter()
            .any(|name| pair.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
        {
            return None;
        }
        let decoded =
            serde_html_form::from_str::<Vec<(String, String)>>(pair).ok().and_then(|mut pairs| pairs.pop());
        let name = decoded.map_or_else(|| written(pair), |(name, _)| name);
        (!known.contains(&name.as_str())).then_some(name)
    })
}

/// `application/json`, or any `application/…+json`; parameters such as the charset do not matter, for JSON is UTF-8.
fn is_json(content_type: &[u8]) -> bool {
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    let essence = content_type[..end].trim_ascii();
    let Some((kind, name)) = essence.split_at_checked(b"application/".len()) else { return false };
    kind.eq_ignore_ascii_case(b"application/")
        && (name.eq_ignore_ascii_case(b"json")
            || name.len() > 5 && name[name.len() - 5..].eq_ignore_ascii_case(b"+json"))
}

async fn read(mut body: RawBody, bytes_max: usize, discard: bool) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large(body, bytes_max, discard).await);
    }
    let mut first = Bytes::new();
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        // Frames that are not data are trailers, which nobody asked for.
        let Ok(data) = frame.map_err(|error| incomplete(&error))?.into_data() else { continue };
        if first.len() + rest.len() + data.len() > bytes_max {
            return Err(too_large(body, bytes_max, discard).await);
        }
        // A body usually comes in one piece, which is then parsed where it lies.
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    if rest.is_empty() {
        return Ok(first);
    }
    let mut whole = Vec::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.append(&mut rest);
    Ok(whole.into())
}

async fn too_large(mut body: RawBody, bytes_max: usize, discard: bool) -> Problem {
    let mut left = if discard { bytes_max.saturating_mul(DISCARD_FACTOR) } else { 0 };
    while left > 0 {
        let Some(Ok(frame)) = body.frame().await else { break };
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
    }
    Problem::new(
        Code::BodyTooLarge,
        format!("the body is larger than the {bytes_max} bytes allowed; send less at a time"),
    )
    .with("bytes_max", bytes_max)
}

fn incomplete(error: &axum::Error) -> Problem {
    tracing::debug!(%error, "a body ended early");
    Problem::plain(Code::IncompleteBody)
}

fn explain(text: &[u8], error: &serde_json::Error, path_of: fn(&[u8]) -> Option<String>) -> Problem {
    match error.classify() {
        _ if text.is_empty() => Problem::new(Code::InvalidJson, "the body is empty; send one JSON value"),
        // Some misfits, such as a number where a name is expected, pass for bad syntax.
        category if category == Category::Data || is_json_text(text) => {
            let path = path_of(text).filter(|path| path != ".");
            match path {
                Some(path) => {
                    Problem::new(Code::InvalidBody, format!("`{path}`: {error}")).with("field", path)
                }
                None => Problem::new(Code::InvalidBody, error.to_string()),
            }
        }
        _ => Problem::new(Code::InvalidJson, error.to_string())
            .with("line", error.line())
            .with("column", error.column()),
    }
}

fn is_json_text(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
}

/// The path of the first field that does not fit `T`, found by parsing again while keeping account of the path.
fn path_of_misfit<T: DeserializeOwned>(text: &[u8]) -> Option<String> {
    let error =
        serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(text)).err()?;
    Some(error.path().to_string())
}
