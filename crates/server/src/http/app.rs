//! The application: what handlers share, who may call them, and how replies are written.

use std::io::Write as _;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH, VARY,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use percent_encoding::percent_decode_str;
use quick_cache::sync::Cache;
use serde::Serialize;
use standings_boards::{BoardId, Boards, DEFAULT_BOARD};

use super::error::{Code, Problem};
use crate::auth::{ApiKey, Caller, KeyRing, Role};

/// Replies larger than this are compressed for callers that take it; smaller ones fit into a packet or two anyway.
const COMPRESS_BYTES_MIN: usize = 4_096;

/// What handlers share.
pub struct App {
    /// The rules.
    pub boards: Boards,
    /// Who may call.
    pub keys: Arc<KeyRing>,
    /// Another one after each start, so that a tag of an earlier start never matches.
    pub start: u64,
    /// Short lists as they were last written, by what was asked for: the top ten is asked for far more often than it changes.
    pub(crate) lists: Cache<ListKey, Written>,
}

/// Which list: the board, the season and the limit as they were asked for.
pub(crate) type ListKey = (BoardId, Option<String>, Option<usize>);

/// A reply, and the tag of the state it shows or one before it.
#[derive(Clone)]
pub(crate) struct Written {
    pub(crate) tag: Arc<str>,
    pub(crate) body: Bytes,
}

/// How many short lists are kept.
const LISTS_KEPT: usize = 1_000;

impl App {
    /// The application around boards and keys.
    pub fn new(boards: Boards, keys: Arc<KeyRing>) -> Arc<Self> {
        let start = boards.now_us().unsigned_abs();
        Arc::new(Self { boards, keys, start, lists: Cache::new(LISTS_KEPT) })
    }

    /// The tag of a finished season, if that is what is asked for. Which season this moment has is another one soon, so it must be named.
    pub(crate) fn finished(&self, board: &BoardId, season: Option<&str>) -> Option<Tag> {
        let season = season?;
        Some(Tag::of_final(season, self.boards.finished(board, season)?))
    }

    /// Takes the keys in the table into use.
    ///
    /// # Errors
    /// What the table says.
    pub async fn reload_keys(&self) -> standings_boards::Result<()> {
        self.keys.replace(stored_keys(&self.boards).await?);
        Ok(())
    }
}

/// The keys in the table. One that does not parse is left out, which lets nobody in.
///
/// # Errors
/// What the table says.
pub async fn stored_keys(boards: &Boards) -> standings_boards::Result<Vec<ApiKey>> {
    let records = standings_boards::keys::list(&**boards.table()).await?;
    Ok(records
        .into_iter()
        .filter_map(|record| match serde_json::from_value(record.content) {
            Ok(key) => Some(key),
            Err(error) => {
                tracing::error!(id = record.id, %error, "a stored key does not parse and is not used");
                None
            }
        })
        .collect())
}

/// A caller who may read the board in the path, or what concerns no board.
#[derive(Debug)]
pub(crate) struct Reader;
/// A caller who may write to the board in the path, or what concerns no board.
#[derive(Debug)]
pub(crate) struct Writer;
/// A caller who may do everything with the board in the path, or with the server.
#[derive(Debug)]
pub(crate) struct Admin;
/// A caller who may read, for replies that depend on what else they may see.
pub(crate) struct ReaderOf(pub(crate) Caller);

macro_rules! admitted {
    ($name:ident, $role:ident, $make:expr) => {
        impl FromRequestParts<Arc<App>> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
                check_host(app, parts)?;
                let admit = |board| app.keys.admit(&parts.headers, Role::$role, board);
                let make: fn(Caller) -> Self = $make;
                match board_in(parts.uri.path()) {
                    Some(board) if !board.contains('%') => admit(Some(board)).map(make),
                    Some(board) => {
                        let board = percent_decode_str(board).decode_utf8_lossy();
                        admit(Some(&*board)).map(make)
                    }
                    None => admit(None).map(make),
                }
            }
        }
    };
}
admitted!(Reader, Read, |_| Reader);
admitted!(Writer, Write, |_| Writer);
admitted!(Admin, Admin, |_| Admin);
admitted!(ReaderOf, Read, ReaderOf);

/// A server without keys serves its own machine. A page in a browser there can reach it by a name of its own that leads to the loopback address
/// ("DNS rebinding"), but not by a name of this machine.
fn check_host(app: &App, parts: &Parts) -> Result<(), Problem> {
    if !app.keys.is_open() {
        return Ok(());
    }
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 has it in the address.
    let Some(host) = host.or_else(|| parts.uri.authority().map(axum::http::uri::Authority::as_str)) else {
        return Ok(());
    };
    let name = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let loopback = name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    if loopback {
        return Ok(());
    }
    let detail = "a server without keys answers only to localhost; make a key with `standings key create`";
    Err(Problem::new(Code::Forbidden, detail))
}

/// The board a path is about, as written there.
fn board_in(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/v1/")?;
    if rest == "scores" || rest.starts_with("scores/") {
        return Some(DEFAULT_BOARD);
    }
    let board = rest.strip_prefix("boards/")?;
    board.split('/').next().filter(|board| !board.is_empty())
}

/// What a caller takes as a reply.
#[derive(Debug)]
pub(crate) struct Accepts {
    gzip: bool,
    if_none_match: Option<HeaderValue>,
}

impl<S: Send + Sync> FromRequestParts<S> for Accepts {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let gzip = parts.headers.get_all(ACCEPT_ENCODING).iter().any(|value| takes_gzip(value.as_bytes()));
        Ok(Self { gzip, if_none_match: parts.headers.get(IF_NONE_MATCH).cloned() })
    }
}

fn takes_gzip(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|part| {
        let mut parameters = part.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parameters.next().unwrap_or_default();
        let refused = parameters.any(|parameter| {
            parameter.strip_prefix(b"q=").is_some_and(|q| q.iter().all(|byte| matches!(byte, b'0' | b'.')))
        });
        (name.eq_ignore_ascii_case(b"gzip") || name == b"*") && !refused
    })
}

impl Accepts {
    /// Whether the caller has what the tag stands for.
    pub(crate) fn has(&self, tag: &Tag) -> bool {
        let Some(value) = self.if_none_match.as_ref().and_then(|value| value.to_str().ok()) else {
            return false;
        };
        value.split(',').map(str::trim).any(|known| known == "*" || known == tag.text)
    }

    /// A reply with the tag of what it shows, unless the caller has it. The tag is taken first: what is shown may be newer, never older.
    pub(crate) async fn tagged(
        &self,
        tag: Option<Tag>,
        reply: impl AsyncFnOnce() -> Result<Response, Problem>,
    ) -> Result<Response, Problem> {
        match tag {
            Some(tag) if self.has(&tag) => Ok(tag.not_modified()),
            Some(tag) => Ok(tag.on(reply().await?)),
            None => reply().await,
        }
    }

    /// The body of a reply if it is short enough to be sent as it is to everyone.
    pub(crate) fn short(value: &impl Serialize) -> Result<Bytes, Vec<u8>> {
        let body = to_json(value);
        if body.len() < COMPRESS_BYTES_MIN { Ok(body.into()) } else { Err(body) }
    }

    /// A JSON reply, compressed if that is worth it.
    pub(crate) fn json(&self, value: &impl Serialize) -> Response {
        self.written(to_json(value))
    }

    /// The same for JSON that is written already.
    pub(crate) fn written(&self, body: Vec<u8>) -> Response {
        if !self.gzip || body.len() < COMPRESS_BYTES_MIN {
            return json_bytes(StatusCode::OK, body);
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
        match encoder.write_all(&body).and_then(|()| encoder.finish()) {
            Ok(compressed) => {
                let mut response = json_bytes(StatusCode::OK, compressed);
                let headers = response.headers_mut();
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
                response
            }
            // Writing to memory does not fail; if it did, the plain reply would do.
            Err(_) => json_bytes(StatusCode::OK, body),
        }
    }
}

/// What a reply shows, for caches.
#[derive(Debug)]
pub(crate) struct Tag {
    pub(crate) text: String,
    control: &'static str,
}

impl Tag {
    /// Of something that may be another one in a moment: browsers ask each time whether it still holds, caches in between may serve it for a second.
    pub(crate) fn of_now(text: String) -> Self {
        Self { text, control: "public, max-age=0, s-maxage=1" }
    }

    /// Of something that never changes: whoever has it need not ask for a day. It holds across restarts. Caches in between ask each second all the
    /// same, because they would serve a key that is revoked.
    pub(crate) fn of_final(name: &str, taken_at_us: i64) -> Self {
        // Another release may write it in another way.
        let text = format!("W/\"{}-{name}-{taken_at_us:x}\"", env!("CARGO_PKG_VERSION"));
        Self { text, control: "public, max-age=86400, s-maxage=1" }
    }

    /// The same, asked for by a name that stands for another thing tomorrow.
    pub(crate) fn of_latest(name: &str, taken_at_us: i64) -> Self {
        Self::of_now(Self::of_final(name, taken_at_us).text)
    }

    /// Says how caches may use a reply. Each key has its own copy there, for what one key may see is nobody else's business.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(self.control));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding, authorization, x-api-key"));
        if let Ok(tag) = HeaderValue::from_str(&self.text) {
            headers.insert(ETAG, tag);
        }
    }

    /// The reply with what caches need.
    pub(crate) fn on(&self, mut response: Response) -> Response {
        self.write(response.headers_mut());
        response
    }

    /// "You have it already."
    pub(crate) fn not_modified(&self) -> Response {
        self.on(StatusCode::NOT_MODIFIED.into_response())
    }
}

/// A JSON reply.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    json_bytes(status, to_json(value))
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Enough for a user with their neighbours.
    let mut body = Vec::with_capacity(1_024);
    serde_json::to_writer(&mut body, value)
        .expect("replies are plain data, and writing to memory does not fail");
    body
}

pub(crate) fn json_bytes(status: StatusCode, body: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_board_is_found_in_the_path() {
        assert_eq!(board_in("/v1/scores"), Some("default"));
        assert_eq!(board_in("/v1/scores/ada"), Some("default"));
        assert_eq!(board_in("/v1/boards/weekly/scores/ada"), Some("weekly"));
        assert_eq!(board_in("/v1/boards/weekly"), Some("weekly"));
        for none in ["/v1/boards", "/v1/boards/", "/v1/users/ada", "/v1/keys", "/metrics", "/v1/scoresheet"] {
            assert_eq!(board_in(none), None, "{none}");
        }
    }

    #[test]
    fn gzip_is_used_only_where_it_is_taken() {
        for yes in ["gzip", "deflate, gzip;q=1.0", "*", "GZIP", "br;q=0, gzip;q=0.1"] {
            assert!(takes_gzip(yes.as_bytes()), "{yes}");
        }
        for no in ["", "identity", "gzip;q=0", "gzip; q=0.0", "br, deflate", "x-gzipped"] {
            assert!(!takes_gzip(no.as_bytes()), "{no}");
        }
    }
}
