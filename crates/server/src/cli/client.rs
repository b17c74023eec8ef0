//! The terminal client's half of HTTP: where the server is, which key, and what to make of its replies.
//!
//! The key goes into a header and nowhere else: no message shows it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::Value;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

const TIME_MAX: Duration = Duration::from_secs(30);
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// Flags that all commands about a board share.
#[derive(Debug, clap::Args)]
pub(super) struct Client {
    #[command(flatten)]
    connection: Connection,
    /// The board.
    #[arg(long, value_name = "BOARD", default_value = "default")]
    pub(super) board: String,
}

impl std::ops::Deref for Client {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// Flags that all commands which ask a server share.
#[derive(Debug, clap::Args)]
pub(super) struct Connection {
    /// Where the server is.
    #[arg(
        long,
        value_name = "URL",
        help = "Where the server is. Default: `http://127.0.0.1:7700`. [STANDINGS_URL]"
    )]
    url: Option<String>,
    /// The API key, if the server has keys.
    #[arg(
        long,
        value_name = "KEY",
        help = "The API key, if the server has keys. The variable keeps it out of the list of processes. [STANDINGS_KEY]"
    )]
    key: Option<Secret>,
    /// A PEM file with the authority that signed the server's certificate, if the public ones have not.
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,
    /// Print the reply as it is, for programs.
    #[arg(long)]
    pub(super) json: bool,
}

/// A key that does not show itself in `Debug` output.
#[derive(Clone)]
struct Secret(String);

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret(hidden)")
    }
}

impl Client {
    /// The path of something of the board: each part is encoded, so an id may hold anything.
    pub(super) fn path(&self, parts: &[&str]) -> String {
        let mut path = format!("/v1/boards/{}", utf8_percent_encode(&self.board, NON_ALPHANUMERIC));
        for part in parts {
            let _ = write!(path, "/{}", utf8_percent_encode(part, NON_ALPHANUMERIC));
        }
        path
    }
}

impl Connection {
    /// Whether a server was named, by flag or variable.
    pub(super) fn is_named(&self) -> bool {
        self.url.is_some() || std::env::var_os("STANDINGS_URL").is_some()
    }

    /// Asks; parameters without a value are left out.
    pub(super) fn get(&self, path: &str, parameters: &[(&str, Option<String>)]) -> anyhow::Result<Reply> {
        let mut request = self.agent()?.get(format!("{}{path}", self.url()));
        for (name, value) in parameters {
            if let Some(value) = value {
                request = request.query(name, value);
            }
        }
        self.reply(self.with_key(request)?.call())
    }

    /// Sends a body.
    pub(super) fn post(&self, path: &str, body: &impl Serialize) -> anyhow::Result<Reply> {
        let request = self.agent()?.post(format!("{}{path}", self.url())).content_type("application/json");
        self.reply(self.with_key(request)?.send(serde_json::to_string(body)?))
    }

    /// Removes.
    pub(super) fn delete(&self, path: &str) -> anyhow::Result<Reply> {
        let request = self.agent()?.delete(format!("{}{path}", self.url()));
        self.reply(self.with_key(request)?.call())
    }

    fn url(&self) -> String {
        let url = self.url.clone().or_else(|| std::env::var("STANDINGS_URL").ok());
        url.unwrap_or_else(|| "http://127.0.0.1:7700".to_owned()).trim_end_matches('/').to_owned()
    }

    fn agent(&self) -> anyhow::Result<ureq::Agent> {
        let mut tls = TlsConfig::builder();
        if let Some(path) = &self.authority {
            let pem = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                })
                .collect();
            if certificates.is_empty() {
                bail!("{} holds no certificate in PEM form", path.display());
            }
            tls = tls.root_certs(RootCerts::new_with_certs(&certificates));
        }
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIME_MAX))
            .tls_config(tls.build())
            .build();
        Ok(config.into())
    }

    fn with_key<B>(&self, request: ureq::RequestBuilder<B>) -> anyhow::Result<ureq::RequestBuilder<B>> {
        let key = self.key.clone().or_else(|| std::env::var("STANDINGS_KEY").ok().map(Secret));
        let Some(Secret(key)) = key else { return Ok(request) };
        // Checked here, because the client's own message would show the value.
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("the key holds characters that no key has; copy it again");
        }
        Ok(request.header("authorization", format!("Bearer {key}")))
    }

    fn reply(
        &self,
        response: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> anyhow::Result<Reply> {
        let mut response = response.with_context(|| {
            format!("no reply from {}; is the server running? --url says where it is", self.url())
        })?;
        let status = response.status();
        let bytes = response.body_mut().with_config().limit(REPLY_BYTES_MAX).read_to_vec();
        let text = String::from_utf8(bytes.context("the reply broke off")?).unwrap_or_default();
        let json = serde_json::from_str::<Value>(&text);
        match json {
            Ok(json) if status.is_success() => Ok(Reply { text, json }),
            Ok(json) if json.get("code").is_some() => Err(problem(&json)),
            _ => bail!("{} answered {status}, which is no reply of Standings; check --url", self.url()),
        }
    }
}

/// What the server answered.
#[derive(Debug)]
pub(super) struct Reply {
    /// As it came.
    pub(super) text: String,
    /// The same, parsed.
    pub(super) json: Value,
}

/// One line: what happened, and how to name it when asking for help.
fn problem(json: &Value) -> anyhow::Error {
    let text = |name: &str| json.get(name).and_then(Value::as_str);
    let mut line =
        text("detail").or(text("title")).unwrap_or("the server refused").replace(['\n', '\r'], " ");
    let _ = write!(line, " [{}", text("code").unwrap_or("no code"));
    if let Some(id) = text("request_id") {
        let _ = write!(line, ", request {id}");
    }
    anyhow!("{line}]")
}
