//! Goal: a key opens what it is for and nothing else, and is never shown. Method: a table of keys and questions.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use standings::auth::{ApiKey, AuthError, KeyRing, Role, check_listen_address};
use standings::http::error::Problem;
use standings::rate::RateLimits;

fn ring(keys: Vec<ApiKey>) -> KeyRing {
    KeyRing::new(keys, RateLimits::new(None))
}

fn key(role: Role, prefixes: &[&str]) -> (ApiKey, String) {
    let prefixes = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
    let (key, text) = ApiKey::create("test", role, prefixes, 1).unwrap();
    (key, text.reveal().to_owned())
}

fn headers(name: &'static str, value: &str) -> HeaderMap {
    HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_str(value).unwrap())])
}

fn bearer(text: &str) -> HeaderMap {
    headers("authorization", &format!("Bearer {text}"))
}

#[test]
fn roles_and_boards_are_held_to() {
    use Role::{Admin, Read, Write};
    for (has, prefixes, needed, board, allowed) in [
        (Read, &[][..], Read, Some("weekly"), true),
        (Read, &[], Write, Some("weekly"), false),
        (Read, &[], Admin, None, false),
        (Write, &[], Read, None, true),
        (Write, &[], Write, Some("weekly"), true),
        (Write, &[], Admin, Some("weekly"), false),
        (Admin, &[], Read, Some("weekly"), true),
        (Admin, &[], Admin, None, true),
        (Write, &["eu-", "us-"], Write, Some("us-weekly"), true),
        (Write, &["eu-", "us-"], Write, Some("asia-us-"), false),
        (Write, &["eu-"], Write, Some("eu"), false),
        (Write, &["eu-"], Read, None, true),
        (Admin, &["eu-"], Admin, Some("eu-weekly"), true),
        (Admin, &["eu-"], Admin, Some("weekly"), false),
        (Admin, &["eu-"], Admin, None, false),
    ] {
        let (key, text) = key(has, prefixes);
        let result = ring(vec![key]).authorize(&bearer(&text), needed, board);
        let case = format!("{has} key for {prefixes:?}, {needed} of {board:?}: {result:?}");
        assert_eq!(result.is_ok(), allowed, "{case}");
        if let Err(error) = result {
            assert_eq!(matches!(error, AuthError::RoleTooLow { .. }), has < needed, "{case}");
            assert_eq!(Problem::from(error).status(), 403, "{case}");
        }
    }
}

#[test]
fn keys_are_taken_from_either_header_and_nothing_else_passes() {
    let (mine, text) = key(Role::Admin, &[]);
    let (gone, gone_text) = key(Role::Admin, &[]);
    let (_, stranger) = key(Role::Admin, &[]);
    // The id of one key with the secret of another.
    let forged = format!("sk_{}_{}", mine.id, stranger.rsplit('_').next().unwrap());
    let revoked = ApiKey { revoked_at_ms: Some(2), ..gone };
    let id = revoked.id.clone();
    let ring = ring(vec![mine, revoked]);
    let ask = |headers: HeaderMap| ring.authorize(&headers, Role::Read, None).map(|_| ());
    assert_eq!(ask(bearer(&text)), Ok(()));
    assert_eq!(ask(headers("authorization", &format!("bearer  {text}"))), Ok(()));
    assert_eq!(ask(headers("x-api-key", &text)), Ok(()));
    let mut both = headers("x-api-key", &text);
    both.insert("authorization", HeaderValue::from_static("Basic YTpi"));
    assert_eq!(ask(both), Ok(()), "a proxy may have its own use for Authorization");

    assert_eq!(ask(HeaderMap::new()), Err(AuthError::Missing));
    assert_eq!(ask(bearer(&stranger)), Err(AuthError::Unknown));
    assert_eq!(ask(bearer(&forged)), Err(AuthError::Unknown));
    assert_eq!(ask(bearer(&gone_text)), Err(AuthError::Revoked { id }));
    for malformed in
        ["", "sk_", "sk__", &text[..text.len() - 1], &format!("{text}a"), &text.to_uppercase(), "ä"]
    {
        assert!(matches!(ask(bearer(malformed)), Err(AuthError::Malformed(_))), "{malformed}");
    }
    assert!(matches!(ask(headers("authorization", &text)), Err(AuthError::Malformed(_))));
    for error in [AuthError::Missing, AuthError::Unknown] {
        assert_eq!(Problem::from(error).status(), 401);
    }
}

#[test]
fn a_ring_without_keys_is_open_until_it_has_had_one() {
    let ring = ring(Vec::new());
    let caller = ring.authorize(&HeaderMap::new(), Role::Admin, Some("any")).unwrap();
    assert_eq!((caller.role(), caller.key_id()), (Role::Admin, None));
    let (key, text) = key(Role::Read, &[]);
    ring.replace(vec![key]);
    assert!(ring.authorize(&HeaderMap::new(), Role::Read, None).is_err());
    assert!(ring.authorize(&bearer(&text), Role::Read, None).is_ok());
    ring.replace(Vec::new());
    assert!(
        ring.authorize(&HeaderMap::new(), Role::Read, None).is_err(),
        "deleting the last key opens nothing"
    );
}

#[test]
fn without_keys_only_loopback_is_served() {
    let check = |listen: &str, ring: &KeyRing| {
        check_listen_address(listen.parse().unwrap(), ring, Path::new("/my data"))
    };
    let open = ring(Vec::new());
    for loopback in ["127.0.0.1:7700", "127.8.8.8:1", "[::1]:7700", "[::ffff:127.0.0.1]:7700"] {
        assert!(check(loopback, &open).is_ok(), "{loopback}");
    }
    let closed = ring(vec![key(Role::Admin, &[]).0]);
    for reachable in ["0.0.0.0:7700", "[::]:7700", "192.168.0.1:7700", "[::ffff:10.0.0.1]:7700"] {
        let error = check(reachable, &open).unwrap_err().to_string();
        assert!(error.contains("standings key create --role admin"), "{error}");
        assert!(error.contains("--data '/my data'"), "{error}");
        assert!(check(reachable, &closed).is_ok(), "{reachable}");
    }
}

#[test]
fn secrets_are_random_and_never_shown() {
    let (key, text) = ApiKey::create("ops", Role::Admin, Vec::new(), 1).unwrap();
    let secret = text.reveal().rsplit('_').next().unwrap().to_owned();
    assert_eq!(secret.len(), 32, "32 characters of five bits: 160 bits");
    let stored = serde_json::to_string(&key).unwrap();
    assert!(!stored.contains(&secret), "only the hash is stored");
    assert_eq!(serde_json::from_str::<ApiKey>(&stored).unwrap(), key);
    let hash = serde_json::to_value(&key).unwrap()["hash"].as_str().unwrap().to_owned();
    let ring = ring(vec![key.clone()]);
    let caller = ring.authorize(&bearer(text.reveal()), Role::Read, None).unwrap();
    let errors = [
        ring.authorize(&bearer(&format!("{}x", text.reveal())), Role::Read, None).unwrap_err(),
        ring.authorize(&headers("authorization", text.reveal()), Role::Read, None).unwrap_err(),
    ];
    let shown = format!("{key:?} {text:?} {ring:?} {caller:?} {errors:?} {} {}", errors[0], errors[1]);
    assert!(!shown.contains(&secret) && !shown.contains(&hash), "{shown}");
    assert_ne!(ApiKey::create("ops", Role::Admin, Vec::new(), 1).unwrap().1.reveal(), text.reveal());
    assert!(
        serde_json::from_str::<ApiKey>(&stored.replace(&hash, "00")).is_err(),
        "a damaged hash is not taken"
    );
}

#[test]
fn each_key_has_its_own_rate_which_survives_a_new_list() {
    let millis = Arc::new(AtomicU64::new(0));
    let read = millis.clone();
    let now = Arc::new(move || Duration::from_millis(read.load(Ordering::Relaxed)));
    let ((one, one_text), (two, two_text)) = (key(Role::Read, &[]), key(Role::Read, &[]));
    let ring = KeyRing::new(vec![one.clone(), two.clone()], RateLimits::with_clock(NonZeroU32::new(2), now));
    let ask = |text: &str| ring.admit(&bearer(text), Role::Read, None).map(|_| ());
    assert!(ask(&one_text).is_ok() && ask(&one_text).is_ok());
    let problem = ask(&one_text).unwrap_err();
    assert_eq!((problem.status().as_u16(), problem.code().as_str()), (429, "rate_limited"));
    let response = axum::response::IntoResponse::into_response(problem);
    assert_eq!(response.headers()["retry-after"], "1");
    assert!(ask(&two_text).is_ok());
    ring.replace(vec![one, two]);
    assert!(ask(&one_text).is_err(), "a new list of keys is no way around the limit");
    millis.store(500, Ordering::Relaxed);
    assert!(ask(&one_text).is_ok());
}
