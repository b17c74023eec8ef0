//! Goal: the program as people and other programs see it: output, exit status, signals.
//! Method: the real binary; for the client, a server made of a few canned replies.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};

use axum::Router;
use axum::extract::{Path, RawQuery, Request};
use axum::routing::{get, post};
use rustix::process::{Pid, Signal, kill_process};

/// The program in a folder of its own, without the settings of whoever runs the tests.
fn standings(folder: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standings"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STANDINGS_"))
    {
        command.env_remove(name);
    }
    command.current_dir(folder);
    command
}

/// Ends the server also where a test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn serve_says_where_it_listens_and_ends_cleanly_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = tempfile::tempdir().unwrap();
        let child = standings(folder.path())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut running = Running(child);
        let mut output = BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        assert!(!url.ends_with(":0"), "the real port is shown: {url}");
        assert_eq!(ureq::get(format!("{url}/healthz")).call().unwrap().status(), 200);
        let metrics =
            ureq::get(format!("{url}/metrics")).call().unwrap().into_body().read_to_string().unwrap();
        assert!(metrics.contains("standings_http_requests_total"), "{metrics}");
        kill_process(Pid::from_child(&running.0), signal).unwrap();
        assert!(running.0.wait().unwrap().success(), "a clean end is success");
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "standard output is for the one line");
    }
}

#[test]
fn the_log_shows_no_key_at_any_level() {
    for format in ["text", "json"] {
        let folder = tempfile::tempdir().unwrap();
        let child = standings(folder.path())
            .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "trace", "--log-format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut running = Running(child);
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap();
        let asked =
            ureq::get(format!("{url}/healthz?user=mallory")).header("x-api-key", "sk_never_shown").call();
        assert_eq!(asked.unwrap().status(), 200);
        kill_process(Pid::from_child(&running.0), Signal::TERM).unwrap();
        let mut log = String::new();
        running.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(log.contains("/healthz") && log.contains("answered"), "the request is in the log: {log}");
        assert!(!log.contains("never_shown") && !log.contains("mallory"), "{log}");
    }
}

#[test]
fn wrong_settings_are_status_2_and_a_refused_address_is_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| standings(folder.path()).args(arguments).output().unwrap();
    let status = |output: &Output| output.status.code().unwrap();
    let said = |output: &Output| String::from_utf8(output.stderr.clone()).unwrap();
    let output = run(&["serve", "--store", "dynamodb"]);
    assert_eq!(status(&output), 2);
    assert!(said(&output).starts_with("standings: setting `store`"), "{}", said(&output));
    let output = run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(status(&output), 1);
    assert!(said(&output).contains("standings key create --role admin"), "{}", said(&output));
    assert_eq!(status(&run(&["serve", "--nonsense"])), 2);
    assert_eq!(status(&run(&["top", "--url", "http://127.0.0.1:1"])), 1);
}

#[test]
fn every_command_has_help_with_an_example() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["serve", "submit", "top", "rank", "around", "config"] {
        let output = standings(folder.path()).args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && help.contains(&format!("Example:\n  standings {command}")),
            "{help}"
        );
    }
}

/// Answers as the server will, and shows in its answers what it was asked.
fn canned() -> SocketAddr {
    const ADA: &str = r#"{"user_id":"ada","user_name":"Ada","rank":1,"score":12}"#;
    const BOB: &str = r#"{"user_id":"bob","user_name":null,"rank":2,"score":-7}"#;
    let top = async |RawQuery(query): RawQuery| {
        let cursor = query.unwrap_or_default();
        format!(
            r#"{{"data":[{ADA},{BOB}],"total":2,"players":2,"season":"2026-11","next_cursor":"{cursor}"}}"#
        )
    };
    let submit = async |Path(board): Path<String>, request: Request| {
        let key = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let body = axum::body::to_bytes(request.into_body(), 1000).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        format!(
            r#"{{"user_id":{},"score":{},"rank":1,"season":"{board}","play_id":"{}"}}"#,
            body["user_id"],
            body["points"],
            key.unwrap_or_default()
        )
    };
    let rank = async |Path((_, user)): Path<(String, String)>| {
        if user == "a/b" {
            return Ok(
                r#"{"user_info":{"user_id":"a/b","rank":3,"score":4,"percentile":50.5,"players":9,"season":"all"}}"#,
            );
        }
        let problem =
            standings::http::error::Problem::new(standings::http::error::Code::NotFound, "no such user");
        Err(problem.request_id("r-1".parse().unwrap()))
    };
    let around = async || format!(r#"{{"data":[{ADA},{BOB}],"players":2,"season":"all"}}"#);
    let routes = Router::new()
        .route("/v1/boards/{board}/scores", get(top).post(submit))
        .route("/v1/boards/{board}/scores/{user}", get(rank))
        .route("/v1/boards/{board}/scores/{user}/around", get(around))
        .route("/unused", post(async || ()));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            use standings::http::{metrics::Metrics, serve};
            let patience = std::time::Duration::from_secs(30);
            let limits = serve::ConnectionLimits {
                connections_max: 100,
                header_bytes_max: 8192,
                idle_time_max: patience,
                shutdown_time_max: patience,
            };
            let options =
                serve::ServeOptions { limits, tls: None, metrics: std::sync::Arc::new(Metrics::new()) };
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            serve::run(listener, routes, options, std::future::pending()).await;
        });
    });
    address
}

#[test]
fn the_client_prints_tables_json_and_problems() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}/", canned());
    let run = |arguments: &[&str]| {
        let output = standings(folder.path())
            .env("STANDINGS_URL", &url)
            .env("STANDINGS_KEY", "sk_k")
            .args(arguments)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (status, output, _) =
        run(&["top", "--board", "w", "--limit", "2", "--min-score", "-9", "--season", "a b"]);
    assert_eq!(status, 0);
    assert_eq!(
        output,
        "rank  score  user_id  user_name\n   1     12  ada      Ada\n   2     -7  bob\n\n\
         board w, season 2026-11, 2 players\nnext page: --cursor limit=2&min_score=-9&season=a%20b\n"
    );
    let (status, output, _) = run(&["top", "--json"]);
    assert_eq!(status, 0);
    assert!(output.starts_with(r#"{"data":[{"user_id":"ada""#) && output.ends_with("}\n"), "{output}");
    let (status, output, _) = run(&["submit", "ada", "-3", "--board", "a/ö"]);
    assert_eq!(
        (status, output.as_str()),
        (0, "user_id  ada\nscore    -3\nrank     1\nseason   a/ö\nplay_id  Bearer sk_k\n")
    );
    let (status, output, _) = run(&["rank", "a/b"]);
    assert_eq!(status, 0);
    assert!(output.contains("percentile  50.5\n"), "{output}");
    let (status, output, error) = run(&["rank", "nobody"]);
    assert_eq!((status, output.as_str()), (1, ""));
    assert_eq!(error, "standings: no such user [not_found, request r-1]\n");
    let (status, output, _) = run(&["around", "bob"]);
    assert_eq!(status, 0);
    assert!(output.contains("   2     -7  bob                 <\n"), "{output}");
    let (status, _, error) = run(&["submit", "ada", "ten"]);
    assert_eq!(status, 1);
    assert!(error.contains("`ten`"), "{error}");
}
