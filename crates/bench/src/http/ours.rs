//! Our side of the conversation: HTTP/1.1 with keep-alive.
//!
//! Status and length of every reply are checked, and now and then the whole of it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::ProgressBar;
use serde_json::Value;

use super::BATCH;
use super::load::{Heard, Talk};
use super::question::{Asked, Question, id};
use crate::data::{self, Scores};

/// More than any reply has.
const HEADERS_MAX: usize = 32;

/// Asks our server.
#[derive(Debug)]
pub(crate) struct HttpTalk {
    asked: Asked,
    /// The path of the scores.
    scores: String,
    /// What is asked with every read.
    query: String,
}

impl Talk for HttpTalk {
    fn ask(&mut self, connection: usize, request: &mut Vec<u8>) -> bool {
        let HttpTalk { asked, scores, query } = self;
        let question = asked.question;
        let user = asked.draw(connection);
        match question {
            Question::Empty => get(request, format_args!("/healthz")),
            Question::Play => post(request, scores, &format!(r#"{{"user_id":"{user}","points":1}}"#)),
            Question::Rank => get(request, format_args!("{scores}/{user}{query}")),
            Question::Top => get(request, format_args!("{scores}{query}")),
            Question::Around => get(request, format_args!("{scores}/{user}/around{query}")),
        }
        true
    }

    fn hear(&mut self, connection: usize, reply: &[u8]) -> Result<Heard> {
        let Some(body) = body_of(reply)? else { return Ok(Heard::Part) };
        if self.asked.is_sample() && self.asked.question != Question::Empty {
            self.verify(self.asked.id(connection), body).with_context(|| {
                format!("{:?} was answered {}", self.asked.question, String::from_utf8_lossy(body))
            })?;
        }
        Ok(Heard::Done)
    }
}

impl HttpTalk {
    /// About a board; `query` goes with every read.
    pub(crate) fn of(asked: Asked, board: &str, query: &str) -> Self {
        HttpTalk { asked, scores: format!("/v1/boards/{board}/scores"), query: query.to_owned() }
    }

    /// About the default board, by the short routes where there are some.
    pub(crate) fn new(asked: Asked) -> Self {
        let short = asked.question != Question::Around;
        let talk = Self::of(asked, "default", "");
        if short { HttpTalk { scores: "/v1/scores".to_owned(), ..talk } } else { talk }
    }

    fn verify(&self, user: &str, body: &[u8]) -> Result<()> {
        let reply: Value = serde_json::from_slice(body)?;
        let is_rank = |rank: &Value| rank.as_u64().is_some_and(|rank| (1..=self.asked.users).contains(&rank));
        match self.asked.question {
            Question::Empty => {}
            Question::Play => {
                ensure!(reply["user_id"] == user && is_rank(&reply["rank"]), "another user or no rank");
                ensure!(reply["duplicate"] == false && reply["score"].is_i64(), "it did not count");
            }
            Question::Rank => {
                let found = &reply["user_info"];
                ensure!(found["user_id"] == user && is_rank(&found["rank"]), "another user or no rank");
            }
            Question::Top | Question::Around => {
                let rows = reply["data"].as_array().context("no rows")?;
                let wanted = if self.asked.question == Question::Top { 10 } else { 9 };
                ensure!(rows.len() as u64 == wanted.min(self.asked.users), "{} rows", rows.len());
                let sorted = rows.is_sorted_by(|above, below| {
                    above["score"].as_i64() >= below["score"].as_i64()
                        && above["rank"].as_u64() <= below["rank"].as_u64()
                });
                ensure!(sorted && rows.iter().all(|row| is_rank(&row["rank"])), "not in order");
                let among = rows.iter().any(|row| row["user_id"] == user);
                ensure!(self.asked.question == Question::Top || among, "the user is not among them");
            }
        }
        Ok(())
    }
}

/// Fills our server: every user's points once, in batches.
#[derive(Debug)]
pub(crate) struct HttpFill<'a> {
    pub(crate) board: &'a str,
    pub(crate) users: u64,
    pub(crate) next: u64,
    pub(crate) bar: &'a ProgressBar,
}

impl Talk for HttpFill<'_> {
    fn ask(&mut self, _: usize, request: &mut Vec<u8>) -> bool {
        let batch = self.next..self.users.min(self.next + BATCH);
        if batch.is_empty() {
            return false;
        }
        self.next = batch.end;
        let plays = batch.map(|user| {
            let points = data::score(Scores::Skewed, user, self.users);
            format!(r#"{{"user_id":"{}","points":{points}}}"#, id(user))
        });
        let plays: Vec<String> = plays.collect();
        let path = format!("/v1/boards/{}/scores/batch", self.board);
        post(request, &path, &format!(r#"{{"plays":[{}]}}"#, plays.join(",")));
        true
    }

    fn hear(&mut self, _: usize, reply: &[u8]) -> Result<Heard> {
        let Some(body) = body_of(reply)? else { return Ok(Heard::Part) };
        // A refused play has its status in its place; how many were counted in all is looked at in the end.
        let refused = body.windows(9).any(|part| part == br#""status":"#);
        ensure!(!refused, "a play was refused: {}", String::from_utf8_lossy(body));
        self.bar.inc(BATCH);
        Ok(Heard::Done)
    }
}

/// Asks one question on a connection of its own, and waits for the answer.
pub(crate) fn get_once(address: SocketAddr, path: &str) -> Result<(u16, Vec<u8>)> {
    once(address, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
}

/// Sends something on a connection of its own, and waits for the answer.
pub(crate) fn post_once(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<(u16, Vec<u8>)> {
    let length = body.len();
    once(
        address,
        &format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ),
    )
}

fn once(address: SocketAddr, request: &str) -> Result<(u16, Vec<u8>)> {
    let mut stream = connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    let head = parse(&reply)?.context("half a reply")?;
    Ok((head.status, reply[head.body_at..].to_vec()))
}

/// A connection that waits for its answers.
pub(crate) fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends something on a connection that stays, and waits for the answer; its status.
pub(crate) fn post_on(stream: &mut TcpStream, path: &str, body: &str) -> Result<u16> {
    let mut request = Vec::new();
    post(&mut request, path, body);
    stream.write_all(&request)?;
    let (mut reply, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let bytes = stream.read(&mut buffer)?;
        ensure!(bytes > 0, "the server closed a connection");
        reply.extend_from_slice(&buffer[..bytes]);
        if let Some(head) = parse(&reply)?
            && reply.len() >= head.body_at + head.length.context("a reply without a length")?
        {
            return Ok(head.status);
        }
    }
}

fn get(request: &mut Vec<u8>, path: std::fmt::Arguments<'_>) {
    write!(request, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("memory takes everything");
}

fn post(request: &mut Vec<u8>, path: &str, body: &str) {
    let length = body.len();
    write!(
        request,
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("memory takes everything");
}

struct Head {
    status: u16,
    length: Option<usize>,
    body_at: usize,
}

fn parse(reply: &[u8]) -> Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(body_at) = response.parse(reply).context("not HTTP")? else {
        return Ok(None);
    };
    let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
    Ok(Some(Head { status: response.code.context("no status")?, length, body_at }))
}

/// The body of a reply, if all of it is there.
fn body_of(reply: &[u8]) -> Result<Option<&[u8]>> {
    let Some(head) = parse(reply)? else { return Ok(None) };
    let body = &reply[head.body_at..];
    let length = head.length.context("a reply without a length")?;
    if body.len() < length {
        return Ok(None);
    }
    ensure!(body.len() == length, "more than was asked for");
    if head.status != 200 {
        bail!("answered {}: {}", head.status, String::from_utf8_lossy(body));
    }
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_whole_when_its_body_is() {
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        for bytes in 0..reply.len() {
            assert_eq!(body_of(&reply[..bytes]).unwrap(), None);
        }
        assert_eq!(body_of(reply).unwrap(), Some(&b"hello"[..]));
        assert!(body_of(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!").is_err());
        assert!(body_of(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n").is_err());
    }
}
