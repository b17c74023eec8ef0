//! Goal: no request, however broken, slow or large, gets anything but its own refusal, and the server answers the next.
//! Method: raw bytes on sockets against a real server, each case with its status and code.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::net::Shutdown;
use std::time::Duration;

use common::{Limits, Server};

const GOOD: &str = r#"{"user_id":"ada","points":3}"#;

#[test]
fn bodies_are_refused_for_what_is_wrong_with_them() {
    let server = Server::start(Limits::default());
    let json = "application/json";
    for (content_type, body, status, code, says) in [
        (json, GOOD, 200, "", "ada 3"),
        ("Application/JSON; charset=utf-8", GOOD, 200, "", "ada 3"),
        ("application/vnd.game+json", GOOD, 200, "", "ada 3"),
        ("text/plain", GOOD, 415, "unsupported_media_type", "`text/plain`"),
        ("", GOOD, 415, "unsupported_media_type", "application/json"),
        (json, "", 400, "invalid_json", "empty"),
        (json, "{\n  \"user_id\": x}", 400, "invalid_json", "line 2 column 14"),
        (json, r#"{"user_id":"ada""#, 400, "invalid_json", "EOF"),
        (json, r#"{"user_id":"ada","points":3} x"#, 400, "invalid_json", "trailing"),
        (json, r#"{"user_id":"ada","points":"3"}"#, 400, "invalid_body", "`points`"),
        (json, r#"{"user_id":"ada","points":1.5}"#, 400, "invalid_body", "`points`"),
        (json, r#"{"user_id":"ada","points":9223372036854775808}"#, 400, "invalid_body", "`points`"),
        (json, r#"{"user_id":"ada"}"#, 400, "invalid_body", "missing field `points`"),
        (json, r#"{"user_id":"ada","points":3,"cheat":1}"#, 400, "invalid_body", "`cheat`"),
        (json, "[]", 400, "invalid_body", ""),
        (json, "null", 400, "invalid_body", ""),
    ] {
        let reply = server.connect().post(content_type, body);
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{body}: {}", reply.body);
        assert!(reply.body.contains(says), "{body}: {} does not say {says}", reply.body);
        if status != 200 {
            assert!(reply.head.contains("content-type: application/problem+json"), "{}", reply.head);
            assert!(reply.body.contains("\"request_id\":"), "{}", reply.body);
        }
    }
    server.assert_alive();
}

#[test]
fn a_body_in_pieces_is_put_together() {
    let server = Server::start(Limits::default());
    let mut client = server.connect();
    client.send("POST /plays HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
    for piece in GOOD.as_bytes().chunks(5) {
        client.send(format!("{:x}\r\n{}\r\n", piece.len(), std::str::from_utf8(piece).unwrap()));
    }
    let reply = client.ask("0\r\n\r\n");
    assert_eq!((reply.status, reply.body.as_str()), (200, "ada 3"));
}

#[test]
fn a_huge_body_is_refused_and_the_answer_arrives() {
    let server = Server::start(Limits::default());
    let reply = server.connect().post("application/json", &" ".repeat(900_000));
    assert_eq!((reply.status, reply.code().as_str()), (413, "body_too_large"));
    // Said to be small, and going on for ever: the count of what came decides.
    let mut client = server.connect();
    client.send("POST /plays HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
    for _ in 0..100 {
        client.send(format!("400\r\n{}\r\n", " ".repeat(1024)));
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.reply().code(), "body_too_large");
    // A client that asks first need not send.
    let mut client = server.connect();
    let reply = client.ask(
        "POST /plays HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\
         expect: 100-continue\r\n\r\n",
    );
    assert_eq!(reply.status, 413);
    server.assert_alive();
}

#[test]
fn a_slow_body_is_given_up() {
    let server = Server::start(Limits { request_time_max: Duration::from_millis(400), ..Limits::default() });
    let mut client = server.connect();
    let reply = client
        .ask("POST /plays HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"user");
    assert_eq!((reply.status, reply.code().as_str()), (408, "body_timeout"));
    server.assert_alive();
}

#[test]
fn a_truncated_body_is_refused() {
    let server = Server::start(Limits::default());
    let mut client = server.connect();
    client.send("POST /plays HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"user");
    client.0.shutdown(Shutdown::Write).unwrap();
    let reply = client.reply();
    assert_eq!((reply.status, reply.code().as_str()), (400, "incomplete_body"));
    server.assert_alive();
}

#[test]
fn slow_headers_and_silence_end_the_connection() {
    let server = Server::start(Limits { idle_time_max: Duration::from_millis(200), ..Limits::default() });
    for beginning in [
        "",
        "G",
        "GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: ",
        "PRI * HTTP/2.0\r\n\r\nSM",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send(beginning);
        let mut rest = Vec::new();
        // A server that speaks HTTP/2 says so before it hangs up; hanging up is what counts.
        let ended = std::io::Read::read_to_end(&mut client.0, &mut rest);
        assert!(
            !matches!(ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
            "{beginning:?}"
        );
    }
    server.assert_alive();
}

#[test]
fn too_many_and_too_large_headers_are_refused() {
    let server = Server::start(Limits::default());
    let many = "a: b\r\n".repeat(200);
    let large = format!("a: {}\r\n", "b".repeat(20_000));
    for headers in [many, large] {
        let reply = server.connect().ask(format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{headers}\r\n"));
        assert_eq!(reply.status, 431);
    }
    assert_eq!(server.connect().ask("this is not HTTP\r\n\r\n").status, 400);
    server.assert_alive();
}

#[test]
fn unknown_routes_methods_and_parameters_are_named() {
    let server = Server::start(Limits::default());
    let mut client = server.connect();
    for (request, status, code, says) in [
        ("GET /nowhere", 404, "not_found", "`/nowhere`"),
        ("PUT /plays", 405, "method_not_allowed", "PUT"),
        ("GET /page?limit=3&board=a&board=b", 200, "", r#"Some(3) ["a", "b"]"#),
        ("GET /page", 200, "", "None []"),
        ("GET /page?", 200, "", "None []"),
        ("GET /page?lim%69t=3", 200, "", "Some(3)"),
        ("GET /page?limit=x", 400, "invalid_query", "`limit`"),
        ("GET /page?limit=-1", 400, "invalid_query", "`limit`"),
        ("GET /page?limit=1&limit=2", 400, "invalid_query", "limit"),
        ("GET /page?limits=3", 400, "invalid_query", "known: `limit`, `board`"),
        ("GET /page?%3Cb%3E=3", 400, "invalid_query", "`<b>`"),
        ("GET /users/7", 200, "", "7"),
        ("GET /users/x", 400, "invalid_path", "`x`"),
        ("GET /users/%ff", 400, "invalid_path", "UTF-8"),
    ] {
        let reply = client.ask(format!("{request} HTTP/1.1\r\nhost: x\r\n\r\n"));
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{request}: {}", reply.body);
        assert!(reply.body.contains(says), "{request}: {} does not say {says}", reply.body);
    }
    let reply = client.ask("PUT /plays HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(reply.head.contains("allow: post"), "{}", reply.head);
}

#[test]
fn a_panic_is_a_500_and_the_connection_lives() {
    let server = Server::start(Limits::default());
    let mut client = server.connect();
    for route in ["/panics", "/fails"] {
        let reply = client.ask(format!("GET {route} HTTP/1.1\r\nhost: x\r\nx-request-id: mine-1\r\n\r\n"));
        assert_eq!((reply.status, reply.code().as_str()), (500, "internal"));
        assert!(reply.head.contains("x-request-id: mine-1") && reply.body.contains("mine-1"));
        assert!(!reply.body.contains("purpose") && !reply.body.contains("secret"), "causes are not sent");
    }
    assert_eq!(client.ask("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").status, 200);
    assert_eq!(server.metrics.panics.get(), 1);
}

#[test]
fn a_slow_handler_is_given_up() {
    let server = Server::start(Limits { request_time_max: Duration::from_millis(200), ..Limits::default() });
    let mut client = server.connect();
    let reply = client.ask("GET /waits HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!((reply.status, reply.code().as_str()), (503, "request_timeout"));
    assert!(reply.head.contains("retry-after: 1"));
    assert_eq!(client.ask("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").status, 200);
}

#[test]
fn connections_over_the_limit_are_told_so() {
    let server = Server::start(Limits { connections_max: 2, ..Limits::default() });
    let mut kept: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for client in &mut kept {
        assert_eq!(client.ask("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").status, 200);
    }
    let reply = server.connect().ask("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!((reply.status, reply.code().as_str()), (503, "too_many_connections"));
    assert_eq!(server.metrics.connections_refused.get(), 1);
    assert_eq!(kept[0].ask("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").status, 200);
}

#[test]
fn shutdown_finishes_what_is_under_way() {
    let mut server = Server::start(Limits::default());
    let mut idle = server.connect();
    assert_eq!(idle.ask("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").status, 200);
    let mut client = server.connect();
    client.send("GET /waits HTTP/1.1\r\nhost: x\r\n\r\n");
    server.gate.wait_for_a_visitor();
    server.begin_stop();
    assert!(idle.is_closed(), "an idle connection is not waited for");
    server.gate.open.notify_one();
    let reply = client.reply();
    assert_eq!((reply.status, reply.body.as_str()), (200, "waited"));
    assert_eq!(server.wait_for_end().cut_off, 0);
    assert!(std::net::TcpStream::connect(server.address).is_err(), "nobody listens any more");
}

#[test]
fn shutdown_cuts_what_does_not_end() {
    let mut server =
        Server::start(Limits { shutdown_time_max: Duration::from_millis(100), ..Limits::default() });
    let mut client = server.connect();
    client.send("GET /waits HTTP/1.1\r\nhost: x\r\n\r\n");
    server.gate.wait_for_a_visitor();
    server.begin_stop();
    assert_eq!(server.wait_for_end().cut_off, 1);
    assert!(client.is_closed());
}
