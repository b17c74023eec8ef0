//! The rival's side of the conversation: RESP, the protocol of Redis.

use std::io::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::ProgressBar;

use super::BATCH;
use super::load::{Heard, Talk};
use super::question::{Asked, Question, id};
use crate::data::{self, Scores};

const BOARD: &str = "board";

/// Asks redis-server.
#[derive(Debug)]
pub(crate) struct RedisTalk {
    asked: Asked,
    /// For a connection that asks who is around a user: the user's place, once it is known.
    places: Vec<Option<i64>>,
}

impl RedisTalk {
    pub(crate) fn new(asked: Asked, connections: usize) -> Self {
        RedisTalk { asked, places: vec![None; connections] }
    }
}

impl Talk for RedisTalk {
    fn ask(&mut self, connection: usize, request: &mut Vec<u8>) -> bool {
        if let Some(place) = self.places[connection] {
            let (from, to) = ((place - 4).max(0).to_string(), (place + 4).to_string());
            command(request, &["ZREVRANGE", BOARD, &from, &to, "WITHSCORES"]);
            return true;
        }
        let question = self.asked.question;
        let user = self.asked.draw(connection);
        match question {
            Question::Empty => command(request, &["PING"]),
            Question::Play => command(request, &["ZINCRBY", BOARD, "1", user]),
            Question::Rank | Question::Around => command(request, &["ZREVRANK", BOARD, user]),
            Question::Top => command(request, &["ZREVRANGE", BOARD, "0", "9", "WITHSCORES"]),
        }
        true
    }

    fn hear(&mut self, connection: usize, reply: &[u8]) -> Result<Heard> {
        let Some(rest) = after_value(reply)? else { return Ok(Heard::Part) };
        ensure!(rest.is_empty(), "more than was asked for");
        let place = self.places[connection].take();
        if self.asked.question == Question::Around && place.is_none() {
            self.places[connection] = Some(number(reply)?);
            return Ok(Heard::Trip);
        }
        if self.asked.is_sample() {
            self.verify(self.asked.id(connection), reply)
                .with_context(|| format!("answered {}", String::from_utf8_lossy(reply)))?;
        }
        Ok(Heard::Done)
    }
}

impl RedisTalk {
    fn verify(&self, user: &str, reply: &[u8]) -> Result<()> {
        match self.asked.question {
            Question::Empty => ensure!(reply == b"+PONG\r\n", "not a pong"),
            Question::Play => ensure!(reply.starts_with(b"$"), "not a score"),
            Question::Rank => ensure!((0..self.asked.users as i64).contains(&number(reply)?), "not a place"),
            Question::Top => {
                let rows = 2 * 10.min(self.asked.users);
                ensure!(reply.starts_with(format!("*{rows}\r\n").as_bytes()), "not ten");
            }
            // Others may have passed between the two trips, which is why the user need not be among them.
            Question::Around => ensure!(reply.starts_with(b"*") && !user.is_empty(), "no rows"),
        }
        Ok(())
    }
}

/// Fills redis-server: every user's points once, a thousand commands at a time.
#[derive(Debug)]
pub(crate) struct RedisFill<'a> {
    pub(crate) users: u64,
    pub(crate) next: u64,
    /// How many replies each connection waits for.
    pub(crate) waiting: Vec<u64>,
    pub(crate) bar: &'a ProgressBar,
}

impl Talk for RedisFill<'_> {
    fn ask(&mut self, connection: usize, request: &mut Vec<u8>) -> bool {
        let batch = self.next..self.users.min(self.next + BATCH);
        self.next = batch.end;
        self.waiting[connection] = batch.end - batch.start;
        for user in batch {
            let points = data::score(Scores::Skewed, user, self.users).to_string();
            command(request, &["ZINCRBY", BOARD, &points, &id(user)]);
        }
        self.waiting[connection] > 0
    }

    fn hear(&mut self, connection: usize, reply: &[u8]) -> Result<Heard> {
        let mut rest = reply;
        for _ in 0..self.waiting[connection] {
            match after_value(rest)? {
                Some(after) => rest = after,
                None => return Ok(Heard::Part),
            }
        }
        ensure!(rest.is_empty(), "more than was asked for");
        self.bar.inc(BATCH);
        Ok(Heard::Done)
    }
}

fn command(request: &mut Vec<u8>, words: &[&str]) {
    let written = write!(request, "*{}\r\n", words.len())
        .and_then(|()| words.iter().try_for_each(|word| write!(request, "${}\r\n{word}\r\n", word.len())));
    written.expect("memory takes everything");
}

fn number(reply: &[u8]) -> Result<i64> {
    let text =
        reply.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n")).context("not a number")?;
    Ok(std::str::from_utf8(text)?.parse()?)
}

/// What follows the first value, if all of it is there.
fn after_value(bytes: &[u8]) -> Result<Option<&[u8]>> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let (line, rest) = bytes.split_at(end + 1);
    let length = || -> Result<usize> {
        let text = std::str::from_utf8(line)?[1..].trim_end();
        text.parse().with_context(|| format!("a length of {text:?}: the user is not known"))
    };
    match line.first() {
        Some(b':' | b'+') => Ok(Some(rest)),
        // The bytes, and the end of their line.
        Some(b'$') => Ok(rest.get(length()? + 2..)),
        Some(b'*') => {
            let mut rest = rest;
            for _ in 0..length()? {
                match after_value(rest)? {
                    Some(after) => rest = after,
                    None => return Ok(None),
                }
            }
            Ok(Some(rest))
        }
        _ => bail!("redis-server answered {}", String::from_utf8_lossy(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_whole_when_all_its_parts_are() {
        for reply in
            [&b"*2\r\n$3\r\nada\r\n$2\r\n17\r\n"[..], b":12\r\n", b"+PONG\r\n", b"$0\r\n\r\n", b"*0\r\n"]
        {
            for bytes in 0..reply.len() {
                assert_eq!(after_value(&reply[..bytes]).unwrap(), None, "{bytes} of {reply:?}");
            }
            assert_eq!(after_value(reply).unwrap(), Some(&b""[..]));
            let followed = [reply, b":1\r\n"].concat();
            assert_eq!(after_value(&followed).unwrap(), Some(&b":1\r\n"[..]));
        }
        assert!(after_value(b"-ERR no\r\n").is_err());
        assert!(after_value(b"$-1\r\n").is_err(), "nil: the user is not known");
        assert_eq!(number(b":12\r\n").unwrap(), 12);
    }
}
