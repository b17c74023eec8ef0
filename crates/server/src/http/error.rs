//! Errors as callers see them: `application/problem+json` (RFC 9457) with a stable `code`.
//!
//! Every refusal of the server is a [`Problem`], and every problem has a [`Code`] from the one table below, which
//! gives status, title and what to do next; the documentation of the API is made from the same table. Programs match
//! `code`; people read `detail`.
//!
//! A problem turned into a response also travels with it as an extension, so that the middleware can add the
//! request id and count refusals by code without reading the body again.
//!
//! Nothing here shows the inside of the server: causes are logged with the request id, not sent.

use std::borrow::Cow;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

/// The media type of every problem.
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

/// Details are written for people, and may quote what the caller sent: longer ones are cut.
const DETAIL_CHARACTERS_MAX: usize = 500;

/// Makes the enum, the list of all codes and the facts of each from one table, so that none can be forgotten.
macro_rules! codes {
    ($($variant:ident $code:literal $status:ident $title:literal $remedy:literal)*) => {
        /// What went wrong, for programs. A code never changes its meaning and is never used again for another.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = concat!("`", $code, "`: ", $title, ". ", $remedy)] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &[Code] = &[$(Code::$variant,)*];

            /// The code as it stands in a reply.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $code,)* }
            }

            /// The HTTP status it is answered with.
            pub fn status(self) -> StatusCode {
                match self { $(Code::$variant => StatusCode::$status,)* }
            }

            /// A short summary that is the same each time.
            pub fn title(self) -> &'static str {
                match self { $(Code::$variant => $title,)* }
            }

            /// What the caller does about it.
            pub fn remedy(self) -> &'static str {
                match self { $(Code::$variant => $remedy,)* }
            }
        }
    };
}

codes! {
    InvalidJson "invalid_json" BAD_REQUEST
        "The body is not JSON"
        "Send one JSON value; the detail says in which line and column it goes wrong."
    InvalidBody "invalid_body" BAD_REQUEST
        "The body does not have the right shape"
        "Change the field that the detail names."
    IncompleteBody "incomplete_body" BAD_REQUEST
        "The body ended early"
        "Send as many bytes as Content-Length says, or end the last chunk."
    InvalidQuery "invalid_query" BAD_REQUEST
        "A query parameter is not right"
        "Change the parameter that the detail names."
    InvalidPath "invalid_path" BAD_REQUEST
        "A part of the path is not right"
        "Percent-encode each part of the path as UTF-8; the detail names the part."
    Unauthorized "unauthorized" UNAUTHORIZED
        "A key is needed"
        "Send `Authorization: Bearer <key>` or `X-API-Key: <key>` with a key of this server."
    Forbidden "forbidden" FORBIDDEN
        "The key does not allow this"
        "Use a key with the role and the boards that the detail names."
    NotFound "not_found" NOT_FOUND
        "There is no such route"
        "Compare the path with /openapi.json."
    MethodNotAllowed "method_not_allowed" METHOD_NOT_ALLOWED
        "The route does not take this method"
        "Use one of the methods in the Allow header."
    BodyTimeout "body_timeout" REQUEST_TIMEOUT
        "The body did not arrive in time"
        "Send the whole body at once; nothing was done."
    BodyTooLarge "body_too_large" PAYLOAD_TOO_LARGE
        "The body is too large"
        "Send less at a time, or raise `body_bytes_max`."
    UnsupportedMediaType "unsupported_media_type" UNSUPPORTED_MEDIA_TYPE
        "The body is not said to be JSON"
        "Send `Content-Type: application/json`."
    InvalidId "invalid_id" BAD_REQUEST
        "An id is not allowed"
        "Use 1 to 64 bytes of printable text without `#` and `/`; boards take ASCII letters, digits, `.`, `_` and `-`."
    InvalidPoints "invalid_points" BAD_REQUEST
        "The points are not a number this board takes"
        "Send a JSON number with at most as many digits behind the point as the board has decimals."
    PointsOutOfBounds "points_out_of_bounds" BAD_REQUEST
        "The points are outside the board's bounds"
        "Check the play; the detail names the bounds."
    InvalidTime "invalid_time" BAD_REQUEST
        "A time is not right"
        "Send a time such as 2026-11-13T10:00:00Z, from 1970 on."
    PlayedInFuture "played_in_future" BAD_REQUEST
        "The play lies in the future"
        "Compare the clocks of the game server and of this machine."
    TooMany "too_many" BAD_REQUEST
        "Too much at once"
        "Send it in several requests; the detail names the limit."
    InvalidRules "invalid_rules" BAD_REQUEST
        "The board's rules make no sense"
        "Change the rule that the detail names."
    InvalidSeason "invalid_season" BAD_REQUEST
        "The board cannot have a season of that name"
        "Write it as the detail says."
    InvalidSnapshot "invalid_snapshot" BAD_REQUEST
        "The snapshot cannot be called so, or cannot be changed now"
        "Do as the detail says."
    InvalidProfile "invalid_profile" BAD_REQUEST
        "The profile is not right"
        "Change the field that the detail names."
    InvalidCursor "invalid_cursor" BAD_REQUEST
        "The cursor is not one of this list"
        "Begin again without a cursor."
    UnknownBoard "unknown_board" NOT_FOUND
        "There is no such board"
        "Make it with PUT, or check its name."
    UnknownSeason "unknown_season" NOT_FOUND
        "The board has no such season"
        "GET the board's seasons to see which it has."
    UnknownSnapshot "unknown_snapshot" NOT_FOUND
        "The board has no such snapshot"
        "GET the board's snapshots to see which it has."
    UnknownUser "unknown_user" NOT_FOUND
        "Nobody by that id was ever seen"
        "Check the id; a user is known from the first play or profile on."
    NoEntry "no_entry" NOT_FOUND
        "The user has not played there"
        "Show the user without a rank; the first play makes an entry."
    UnknownKey "unknown_key" NOT_FOUND
        "There is no such key"
        "List the keys to see which there are."
    PlayIdReused "play_id_reused" CONFLICT
        "The play id belongs to another play"
        "Use a new play_id for a new play; the first one counts."
    SeasonClosed "season_closed" CONFLICT
        "The season takes no more plays"
        "Send plays sooner, or raise the board's late_seconds."
    SnapshotExists "snapshot_exists" CONFLICT
        "There is a snapshot of that label"
        "Choose another label, or delete the one there is."
    RuleFixed "rule_fixed" CONFLICT
        "The rule cannot change any more"
        "Make another board, or delete this one first."
    BoardBeingDeleted "board_being_deleted" CONFLICT
        "The board is being deleted"
        "Wait until it is gone."
    DefaultBoardStays "default_board_stays" CONFLICT
        "The default board cannot be deleted"
        "Leave it, or change its rules."
    ScoreOverflow "score_overflow" UNPROCESSABLE_ENTITY
        "The score would not fit into 64 bits"
        "Check the points; the play was not counted."
    RateLimited "rate_limited" TOO_MANY_REQUESTS
        "The key asks too often"
        "Wait as long as Retry-After says, or raise `rate_limit_per_second`."
    Internal "internal" INTERNAL_SERVER_ERROR
        "The server failed"
        "Try again; if it stays, look for the request id in the server's log."
    Busy "busy" SERVICE_UNAVAILABLE
        "The table cannot take it just now"
        "Wait as long as Retry-After says, and try again; nothing was done."
    OutcomeUnknown "outcome_unknown" SERVICE_UNAVAILABLE
        "It is not known whether it was done"
        "Send the same again with the same play_id: it counts once."
    WritesRefused "writes_refused" SERVICE_UNAVAILABLE
        "The table takes no writes"
        "The operator must look at the disk and start the server again; reads go on."
    ShuttingDown "shutting_down" SERVICE_UNAVAILABLE
        "The server is shutting down"
        "Try again in a moment."
    RequestTimeout "request_timeout" SERVICE_UNAVAILABLE
        "The server took too long"
        "Try again later; a play with a play_id can be sent again without counting twice."
    NotReady "not_ready" SERVICE_UNAVAILABLE
        "The server is still starting"
        "Try again; /readyz says how far it is."
    SnapshotNotReady "snapshot_not_ready" SERVICE_UNAVAILABLE
        "The snapshot is being taken"
        "Wait as long as Retry-After says, and try again; the detail says how far it is."
    Overloaded "overloaded" SERVICE_UNAVAILABLE
        "The server has too much to do"
        "Wait as long as Retry-After says, and try again."
    TooManyConnections "too_many_connections" SERVICE_UNAVAILABLE
        "The server has too many connections"
        "Keep connections and use them again, or raise `connections_max`."
}

impl Code {
    /// The URI reference that names the kind of problem; it leads to its paragraph in the documentation.
    pub fn type_uri(self) -> String {
        format!("/docs/problems#{}", self.as_str())
    }

    /// Where this code stands in [`Code::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// A refusal on its way to the caller.
///
/// It is one pointer wide, because it stands in the `Result` of every handler.
#[derive(Clone)]
pub struct Problem(Box<Content>);

#[derive(Clone)]
struct Content {
    code: Code,
    detail: Cow<'static, str>,
    retry_after_seconds: Option<u64>,
    request_id: Option<HeaderValue>,
    extra: Map<String, Value>,
    /// For the log only.
    cause: Option<String>,
}

impl Problem {
    /// A problem; `detail` says what happened this time and what to do next.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Problem {
        let mut detail = detail.into();
        if let Some((end, _)) = detail.char_indices().nth(DETAIL_CHARACTERS_MAX) {
            detail = format!("{}…", &detail[..end]).into();
        }
        Problem(Box::new(Content {
            code,
            detail,
            retry_after_seconds: None,
            request_id: None,
            extra: Map::new(),
            cause: None,
        }))
    }

    /// A problem for which the table says all there is to say.
    pub fn plain(code: Code) -> Problem {
        Problem::new(code, code.remedy())
    }

    /// A failure of ours. The middleware writes the cause to the log; the caller gets the request id to find it by.
    pub fn internal(cause: impl std::fmt::Display) -> Problem {
        let mut problem = Problem::plain(Code::Internal);
        problem.0.cause = Some(cause.to_string());
        problem
    }

    /// Adds a field beside the standard ones, for programs. The standard ones cannot be replaced.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.0.extra.insert(name.to_owned(), value.into());
        self
    }

    /// Tells the caller how long to wait.
    #[must_use]
    pub fn retry_after_seconds(mut self, seconds: u64) -> Problem {
        self.0.retry_after_seconds = Some(seconds);
        self
    }

    /// Names the request, as the middleware does for every problem.
    #[must_use]
    pub fn request_id(mut self, id: HeaderValue) -> Problem {
        self.0.request_id = Some(id);
        self
    }

    /// Which code it has.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What happened this time.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The status it is answered with.
    pub fn status(&self) -> StatusCode {
        self.0.code.status()
    }

    /// What the log says of a failure of ours, and nobody else hears.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.0.cause.as_deref()
    }

    /// The problem as a JSON object: one member of a batch's reply, for example.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// The body of the response.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        const STANDARD: [&str; 6] = ["type", "title", "status", "detail", "code", "request_id"];
        let content = &*self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &content.code.type_uri())?;
        map.serialize_entry("title", content.code.title())?;
        map.serialize_entry("status", &content.code.status().as_u16())?;
        map.serialize_entry("detail", &content.detail)?;
        map.serialize_entry("code", content.code.as_str())?;
        if let Some(id) = content.request_id.as_ref().and_then(|id| id.to_str().ok()) {
            map.serialize_entry("request_id", id)?;
        }
        for (name, value) in content.extra.iter().filter(|(name, _)| !STANDARD.contains(&name.as_str())) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl std::fmt::Debug for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Problem({}: {})", self.0.code.as_str(), self.0.detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(axum::body::Body::from(self.to_bytes()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_MEDIA_TYPE));
        if let Some(seconds) = self.0.retry_after_seconds {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_snake_case_and_refuse() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()), "{} stands twice in the table", code.as_str());
            assert!(code.as_str().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{code:?}");
            assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
            assert!(code.remedy().ends_with('.'), "{code:?} is explained in full sentences");
            assert_eq!(Code::ALL[code.index()], *code);
        }
    }

    #[test]
    fn a_problem_has_its_standard_fields_and_extra_ones_replace_none() {
        let problem = Problem::new(Code::RateLimited, "slow down").with("code", "mine").with("limit", 5);
        let json = problem.clone().request_id(HeaderValue::from_static("abc")).to_json();
        assert_eq!(
            json,
            serde_json::json!({
                "type": "/docs/problems#rate_limited", "title": "The key asks too often", "status": 429,
                "detail": "slow down", "code": "rate_limited", "request_id": "abc", "limit": 5,
            })
        );
        let response = problem.retry_after_seconds(3).into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["content-type"], PROBLEM_MEDIA_TYPE);
        assert_eq!(response.headers()["retry-after"], "3");
    }

    #[test]
    fn a_problem_is_small_and_long_details_are_cut() {
        assert_eq!(size_of::<Problem>(), size_of::<usize>());
        assert!(Problem::new(Code::InvalidBody, "ä".repeat(10_000)).detail().chars().count() <= 501);
    }
}
