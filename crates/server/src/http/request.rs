//! What the middleware tells extractors about a request: its limits. And request ids.
//!
//! Ids come from the caller (`X-Request-Id`, if it is a plain short word) or are made here from a counter and a
//! secret of the process: unique, not guessable in sequence, and without a system call per request.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

/// The header that carries the id, both ways.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A caller's id that is longer is replaced: it goes into every log line.
const ID_BYTES_MAX: usize = 64;

/// Body size accepted where no middleware has said otherwise.
const BODY_BYTES_MAX: usize = 1 << 20;

/// What is known of a POST, or of a request with a body, before its handler runs; an extension of the request.
#[derive(Debug, Clone, Copy)]
pub struct RequestContext {
    /// The largest body taken.
    pub body_bytes_max: usize,
    /// When the whole body must have arrived, if there is a limit.
    pub body_deadline: Option<Instant>,
}

impl RequestContext {
    /// The context in the request's extensions, or one with default limits where it is not told, or no middleware stands before
    /// the route, as in a test of a single handler.
    pub fn of(extensions: &axum::http::Extensions) -> RequestContext {
        let default = RequestContext { body_bytes_max: BODY_BYTES_MAX, body_deadline: None };
        extensions.get::<RequestContext>().copied().unwrap_or(default)
    }
}

/// The caller's id where it has sent a sane one, else a new one.
pub fn id_of(headers: &HeaderMap) -> HeaderValue {
    match headers.get(&REQUEST_ID) {
        Some(id) if is_sane(id.as_bytes()) => id.clone(),
        _ => new_id(),
    }
}

/// Only what can stand in a log line and a header as it is.
fn is_sane(id: &[u8]) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len())
        && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
}

/// Sixteen hexadecimal digits. The counter goes through a bijection (SplitMix64's), so no two are the same within a
/// process, and neighbours do not look alike.
fn new_id() -> HeaderValue {
    static SEED: LazyLock<u64> = LazyLock::new(|| {
        // Without randomness ids begin at the same place in each process, which harms nobody.
        getrandom::u64().unwrap_or_default()
    });
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut number =
        SEED.wrapping_add(COUNTER.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^= number >> 31;
    let mut text = [0; 16];
    for (index, digit) in text.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * index)) as usize & 15];
    }
    HeaderValue::from_bytes(&text).expect("hexadecimal digits can stand in a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sane_ids_are_kept_and_others_replaced() {
        let id = |text: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(text).unwrap());
            id_of(&headers).as_bytes() == text
        };
        assert!(id(b"01J0-a_b.c:d/e+f="));
        assert!(id(&[b'a'; 64]));
        assert!(!id(&[b'a'; 65]));
        assert!(!id(b""));
        assert!(!id(b"two words"));
        assert!(!id(b"quote\"d"));
        assert!(!id("ä".as_bytes()));
    }

    #[test]
    fn new_ids_differ() {
        let ids: std::collections::HashSet<HeaderValue> = (0..10_000).map(|_| new_id()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.len() == 16));
    }
}
