//! Goal: HTTPS with the certificate given, replaced while serving, and never by a broken one.
//! Method: self-signed pairs, each with a client that trusts only that one.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Limits, PATIENCE, Server};
use standings::http::tls::{Tls, TlsError};

/// A pair of its own, written to the two files.
fn write_pair(folder: &Path) -> String {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("certificate.pem"), pair.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), pair.signing_key.serialize_pem()).unwrap();
    pair.cert.pem()
}

fn load(folder: &Path) -> Result<Tls, TlsError> {
    Tls::load(folder.join("certificate.pem"), folder.join("key.pem"))
}

/// Asks as a client that trusts this certificate and no other.
fn ask(server: &Server, trusted: &str) -> Result<u16, ureq::Error> {
    let certificate = ureq::tls::Certificate::from_pem(trusted.as_bytes())?;
    let tls = ureq::tls::TlsConfig::builder()
        .root_certs(ureq::tls::RootCerts::new_with_certs(&[certificate]))
        .build();
    let agent: ureq::Agent =
        ureq::Agent::config_builder().tls_config(tls).timeout_global(Some(PATIENCE)).build().into();
    let response = agent.get(format!("https://localhost:{}/healthz", server.address.port())).call()?;
    Ok(response.status().as_u16())
}

#[test]
fn a_new_certificate_is_taken_into_use_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_pair(folder.path());
    let tls = Arc::new(load(folder.path()).unwrap());
    let server = Server::start_with(Limits::default(), Some(tls.clone()));
    assert_eq!(ask(&server, &first).unwrap(), 200);
    assert!(!tls.reload_if_changed().unwrap(), "nothing has changed");

    let second = write_pair(folder.path());
    assert!(tls.reload_if_changed().unwrap());
    assert_eq!(ask(&server, &second).unwrap(), 200);
    assert!(ask(&server, &first).is_err(), "the old certificate is gone");

    // A renewal caught half-way: the new certificate with the old key.
    let key = std::fs::read(folder.path().join("key.pem")).unwrap();
    write_pair(folder.path());
    std::fs::write(folder.path().join("key.pem"), key).unwrap();
    assert!(matches!(tls.reload_if_changed(), Err(TlsError::Unusable { .. })));
    std::fs::remove_file(folder.path().join("key.pem")).unwrap();
    assert!(matches!(tls.reload_if_changed(), Err(TlsError::Unreadable { .. })));
    assert_eq!(ask(&server, &second).unwrap(), 200, "the one in use stays");

    let third = write_pair(folder.path());
    assert!(tls.reload_if_changed().unwrap());
    assert_eq!(ask(&server, &third).unwrap(), 200);
}

#[test]
fn a_client_that_does_not_speak_tls_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = write_pair(folder.path());
    let limits = Limits { idle_time_max: Duration::from_millis(200), ..Limits::default() };
    let server = Server::start_with(limits, Some(Arc::new(load(folder.path()).unwrap())));
    let mut silent = server.connect();
    let mut plain = server.connect();
    plain.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain.0, &mut answer);
    assert!(!answer.starts_with(b"HTTP"), "no plain answer on a TLS port");
    assert!(silent.is_closed(), "a handshake that does not come is given up");
    assert_eq!(ask(&server, &certificate).unwrap(), 200);
}

#[test]
fn a_stalled_handshake_does_not_hold_up_the_end() {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path());
    let mut server = Server::start_with(Limits::default(), Some(Arc::new(load(folder.path()).unwrap())));
    let mut stalled = server.connect();
    stalled.send([0x16, 0x03, 0x01]);
    server.begin_stop();
    assert_eq!(server.wait_for_end().cut_off, 0);
    assert!(stalled.is_closed());
}

#[test]
fn files_that_are_no_pair_are_named() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(load(folder.path()), Err(TlsError::Unreadable { .. })));
    write_pair(folder.path());
    std::fs::write(folder.path().join("certificate.pem"), "nothing").unwrap();
    let error = load(folder.path()).unwrap_err();
    assert!(matches!(error, TlsError::NoCertificate { .. }));
    assert!(error.to_string().contains("certificate.pem"), "{error}");
    write_pair(folder.path());
    std::fs::write(folder.path().join("key.pem"), "nothing").unwrap();
    assert!(matches!(load(folder.path()), Err(TlsError::NoKey { .. })));
    let shown = {
        write_pair(folder.path());
        format!("{:?}", load(folder.path()).unwrap())
    };
    assert!(!shown.contains("PRIVATE"), "{shown}");
}
