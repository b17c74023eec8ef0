//! Who may do what: roles, boards, and the ring of keys that a request is checked against.
//!
//! Two places hold the same keys: the table, which keeps [`ApiKey`]s for good (written by others), and the
//! [`KeyRing`] here, built from a list of them, which answers every request without a lock. Neither holds a secret: of
//! that only a hash is kept (`auth/key.rs`).
//!
//! A ring without keys lets everybody do everything, which is right on a developer's own machine and nowhere else:
//! hence [`check_listen_address`]. A ring that has had keys never becomes open again, so that deleting the last key
//! of a running server closes it rather than opening it to the world.

mod key;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

pub use key::{ApiKey, KeyText, MalformedKey, RandomnessUnavailable, Role, SecretHash};

use crate::http::error::{Code, Problem};
use crate::rate::{Bucket, RateLimited, RateLimits};

/// The other header that takes a key. Where both are sent, this one counts: proxies have their own uses for
/// `Authorization`.
const API_KEY_HEADER: &str = "x-api-key";

/// The keys of a server, for checking requests.
#[derive(Debug)]
pub struct KeyRing {
    keys: ArcSwap<Keys>,
    limits: RateLimits,
}

#[derive(Debug)]
struct Keys {
    open: bool,
    by_id: HashMap<String, Arc<Held>>,
}

/// A key with what it has left of its rate.
#[derive(Debug)]
struct Held {
    key: ApiKey,
    bucket: Arc<Bucket>,
}

/// Somebody whose key was in order.
#[derive(Debug, Clone)]
pub struct Caller(Option<Arc<Held>>);

/// Why a caller may not do what it asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No key was sent.
    #[error("this server needs a key; send `Authorization: Bearer <key>` or `X-API-Key: <key>`")]
    Missing,
    /// What was sent is no key.
    #[error("what was sent is not a key: {0}")]
    Malformed(#[from] MalformedKey),
    /// No such key, or its secret is another. The two are not told apart, so that ids cannot be tried out.
    #[error("this key is not known here; make one with `standings key create`")]
    Unknown,
    /// The key was revoked.
    #[error("key `{id}` was revoked; make a new one with `standings key create`")]
    Revoked {
        /// The key's id.
        id: String,
    },
    /// The key's role does not suffice.
    #[error("key `{id}` has the role `{has}`; this takes a key with the role `{needed}`")]
    RoleTooLow {
        /// The key's id.
        id: String,
        /// The role it has.
        has: Role,
        /// The role it takes.
        needed: Role,
    },
    /// The key is limited to other boards.
    #[error("key `{id}` is limited to boards that begin with {allowed}, and this is for {asked}")]
    BoardNotAllowed {
        /// The key's id.
        id: String,
        /// The prefixes it is limited to, each in quotes.
        allowed: String,
        /// The board in quotes, or what else was asked for.
        asked: String,
    },
}

impl AuthError {
    fn board_not_allowed(key: &ApiKey, board: Option<&str>) -> AuthError {
        let allowed: Vec<String> = key.board_prefixes.iter().map(|prefix| format!("`{prefix}`")).collect();
        let asked = board.map_or_else(|| "the whole server".to_owned(), |board| format!("`{board}`"));
        AuthError::BoardNotAllowed { id: key.id.clone(), allowed: allowed.join(", "), asked }
    }
}

/// Listening to the world without keys would let everybody change every score.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "refusing to listen on {listen}, which others can reach, while there is no API key: anybody could change every score. \
     Make a key first:\n\n    standings key create --role admin --name first-admin --data {data}\n\n\
     or listen on 127.0.0.1 only"
)]
pub struct KeysNeeded {
    listen: SocketAddr,
    data: String,
}

/// Refuses an address that others can reach while `ring` lets everybody in.
pub fn check_listen_address(listen: SocketAddr, ring: &KeyRing, data: &Path) -> Result<(), KeysNeeded> {
    let loopback = match listen.ip() {
        std::net::IpAddr::V6(address) => address.to_canonical().is_loopback(),
        std::net::IpAddr::V4(address) => address.is_loopback(),
    };
    if loopback || !ring.is_open() {
        return Ok(());
    }
    // The command is meant to be copied, so a path with blanks must survive a shell.
    let data = format!("'{}'", data.display().to_string().replace('\'', r"'\''"));
    Err(KeysNeeded { listen, data })
}

impl KeyRing {
    /// A ring of these keys, revoked ones included; each may ask as often as `limits` says.
    pub fn new(keys: Vec<ApiKey>, limits: RateLimits) -> KeyRing {
        let keys = Keys::new(keys, true, &HashMap::new(), &limits);
        KeyRing { keys: ArcSwap::from_pointee(keys), limits }
    }

    /// Takes a new list of keys into use, for requests from now on. A key that was there keeps what it has left of
    /// its rate.
    pub fn replace(&self, keys: Vec<ApiKey>) {
        self.keys.rcu(|old| Keys::new(keys.clone(), old.open, &old.by_id, &self.limits));
    }

    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.keys.load().open
    }

    /// Checks a request: the key in its headers, against the role and the board it takes.
    ///
    /// `board` is nothing for what concerns no single board, such as users or the server itself. A key that is
    /// limited to boards may still do that with the role `read` or `write`, because users are shared by all boards;
    /// as `admin` it may not, because that would reach beyond its boards.
    pub fn authorize(
        &self,
        headers: &HeaderMap,
        needed: Role,
        board: Option<&str>,
    ) -> Result<Caller, AuthError> {
        let keys = self.keys.load();
        if keys.open {
            return Ok(Caller(None));
        }
        let text = sent_key(headers)?;
        let (id, secret) = key::split(text)?;
        let held = keys.by_id.get(id).ok_or(AuthError::Unknown)?;
        let key = &held.key;
        if !key.hash.matches(secret) {
            return Err(AuthError::Unknown);
        }
        if key.revoked_at_ms.is_some() {
            return Err(AuthError::Revoked { id: key.id.clone() });
        }
        if key.role < needed {
            return Err(AuthError::RoleTooLow { id: key.id.clone(), has: key.role, needed });
        }
        let allowed = match board {
            Some(board) => key.allows_board(board),
            None => key.board_prefixes.is_empty() || needed < Role::Admin,
        };
        if !allowed {
            return Err(AuthError::board_not_allowed(key, board));
        }
        Ok(Caller(Some(held.clone())))
    }

    /// [`KeyRing::authorize`] and the key's rate in one, with the problem to answer.
    pub fn admit(&self, headers: &HeaderMap, needed: Role, board: Option<&str>) -> Result<Caller, Problem> {
        let caller = self.authorize(headers, needed, board)?;
        caller.take_turn()?;
        Ok(caller)
    }
}

impl Keys {
    fn new(
        keys: Vec<ApiKey>,
        may_be_open: bool,
        old: &HashMap<String, Arc<Held>>,
        limits: &RateLimits,
    ) -> Keys {
        let hold = |key: ApiKey| {
            let bucket =
                old.get(&key.id).map_or_else(|| Arc::new(limits.bucket()), |held| held.bucket.clone());
            (key.id.clone(), Arc::new(Held { key, bucket }))
        };
        let by_id: HashMap<_, _> = keys.into_iter().map(hold).collect();
        Keys { open: may_be_open && by_id.is_empty(), by_id }
    }
}

impl Caller {
    /// The id of the key, for logs; nothing where no keys are needed.
    pub fn key_id(&self) -> Option<&str> {
        self.0.as_ref().map(|held| held.key.id.as_str())
    }

    /// What the caller may do; everything where no keys are needed.
    pub fn role(&self) -> Role {
        self.0.as_ref().map_or(Role::Admin, |held| held.key.role)
    }

    /// Whether the caller may touch this board: for lists, and batches across boards.
    pub fn allows_board(&self, board: &str) -> bool {
        self.0.as_ref().is_none_or(|held| held.key.allows_board(board))
    }

    /// The same as a refusal, for a board that is named elsewhere than in the path.
    pub fn check_board(&self, board: &str) -> Result<(), AuthError> {
        match &self.0 {
            Some(held) if !held.key.allows_board(board) => {
                Err(AuthError::board_not_allowed(&held.key, Some(board)))
            }
            _ => Ok(()),
        }
    }

    /// Takes one request from the key's rate.
    pub fn take_turn(&self) -> Result<(), RateLimited> {
        self.0.as_ref().map_or(Ok(()), |held| held.bucket.take())
    }
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Problem {
        let code = match error {
            AuthError::Missing | AuthError::Malformed(_) | AuthError::Unknown | AuthError::Revoked { .. } => {
                Code::Unauthorized
            }
            AuthError::RoleTooLow { .. } | AuthError::BoardNotAllowed { .. } => Code::Forbidden,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<RateLimited> for Problem {
    fn from(error: RateLimited) -> Problem {
        Problem::new(Code::RateLimited, error.to_string()).retry_after_seconds(error.retry_after_seconds)
    }
}

/// The text of the key in a request's headers.
fn sent_key(headers: &HeaderMap) -> Result<&str, AuthError> {
    if let Some(value) = headers.get(API_KEY_HEADER) {
        return Ok(value.to_str().map_err(|_| MalformedKey)?.trim());
    }
    let value = headers.get(AUTHORIZATION).ok_or(AuthError::Missing)?;
    let value = value.to_str().map_err(|_| MalformedKey)?;
    match value.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => Ok(key.trim()),
        _ => Err(MalformedKey.into()),
    }
}
