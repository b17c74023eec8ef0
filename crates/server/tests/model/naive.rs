//! What the product means, in the fewest words: the plays of a board in one list, in the order in which they counted.
//! Entries, ranks, pages and counts are worked out from that list anew for every question, by sorting. Slow, and hard
//! to get wrong. Nothing of the product's own code is used; dates come from `jiff`.
//!
//! A reply is `Ok` with its status and JSON, or `Err` with status and code of the problem.

mod replies;
mod seasons;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::common::exact::Exact;

pub(crate) use replies::Naive;
pub(crate) use seasons::{Rules, Season, WEEKDAYS};

pub(crate) type Refused = (u16, &'static str);
pub(crate) type Expected = Result<(u16, Exact), Refused>;

/// How far in the future a play may lie.
const SKEW_US: i64 = 5_000_000;

/// A score as it is written.
pub(crate) fn written(score: i64, decimals: u32) -> String {
    let digits = format!("{:0width$}", score.unsigned_abs(), width = decimals as usize + 1);
    let (whole, fraction) = digits.split_at(digits.len() - decimals as usize);
    let sign = if score < 0 { "-" } else { "" };
    if decimals == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

fn time(us: i64) -> Exact {
    Timestamp::from_microsecond(us).expect("a time").to_string().into()
}

/// A play as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct NewPlay {
    pub(crate) user: String,
    pub(crate) points: i64,
    pub(crate) play_id: Option<String>,
    pub(crate) played_at: Option<i64>,
    /// It cannot be read at all, for this reason.
    pub(crate) broken: Option<Refused>,
}

/// A play that counted, with what its first answer said.
#[derive(Clone, Debug)]
struct Play {
    user: String,
    play_id: String,
    season: String,
    points: i64,
    played_at: i64,
    score_after: i64,
    previous_rank: Option<usize>,
    improved: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) user: String,
    pub(crate) score: i64,
    pub(crate) reached_at: i64,
    pub(crate) rank: usize,
    /// The name in a finished season, which is of its time.
    pub(crate) named: Option<Exact>,
}

/// A finished season, as it was when it was closed.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    at: i64,
    rows: Vec<Row>,
}

/// How many finished seasons are kept.
const KEEP_SEASONS: usize = 12;

/// Where a page ended.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) board: String,
    pub(crate) season: String,
    score: i64,
    reached_at: i64,
    user: String,
}

pub(crate) enum From<'a> {
    Top,
    Rank(u64),
    After(&'a Mark),
}

#[derive(Clone, Debug)]
pub(crate) struct Board {
    pub(crate) rules: Rules,
    pub(crate) created_at: i64,
    /// Seasons that were played in.
    pub(crate) seasons: BTreeSet<Season>,
    /// Those of them that are finished.
    closed: BTreeMap<String, Closed>,
    /// Those that are no longer kept, which matter only as somebody's best.
    removed: BTreeMap<String, Closed>,
    plays: Vec<Play>,
}

impl Board {
    pub(crate) fn new(rules: Rules, created_at: i64) -> Board {
        Board {
            rules,
            created_at,
            seasons: BTreeSet::new(),
            closed: BTreeMap::new(),
            removed: BTreeMap::new(),
            plays: Vec::new(),
        }
    }

    /// Score and time of reaching it, from plays in the order in which they counted.
    fn entry(&self, plays: &[&Play]) -> (i64, i64) {
        match self.rules.score {
            "sum" => {
                let score: i128 = plays.iter().map(|play| i128::from(play.points)).sum();
                let changing = plays.iter().skip(1).filter(|play| play.points != 0);
                let reached = plays.iter().take(1).chain(changing).map(|play| play.played_at).max();
                (score.try_into().expect("a sum that was accepted"), reached.expect("a play"))
            }
            "best" => {
                let points = plays.iter().map(|play| play.points);
                let best = if self.rules.order == "high" { points.max() } else { points.min() };
                let best = best.expect("a play");
                let times = plays.iter().filter(|play| play.points == best).map(|play| play.played_at);
                (best, times.min().expect("a play"))
            }
            _ => {
                // Those that were not older than any before them; of the last equal ones, the first.
                let mut news: Vec<&&Play> = Vec::new();
                for play in plays {
                    if news.last().is_none_or(|last| last.played_at <= play.played_at) {
                        news.push(play);
                    }
                }
                let latest = news.last().expect("a play").points;
                let since = news.iter().rev().take_while(|play| play.points == latest).last();
                (latest, since.expect("a play").played_at)
            }
        }
    }

    /// Everyone in a season, best first.
    pub(crate) fn table(&self, season: &str) -> Vec<Row> {
        if let Some(closed) = self.closed.get(season) {
            return closed.rows.clone();
        }
        let mut by_user: BTreeMap<&str, Vec<&Play>> = BTreeMap::new();
        for play in self.plays.iter().filter(|play| play.season == season) {
            by_user.entry(&play.user).or_default().push(play);
        }
        let mut rows: Vec<Row> = by_user
            .into_iter()
            .map(|(user, plays)| {
                let (score, reached_at) = self.entry(&plays);
                Row { user: user.to_owned(), score, reached_at, rank: 0, named: None }
            })
            .collect();
        rows.sort_by(|a, b| {
            let by_score =
                if self.rules.order == "high" { b.score.cmp(&a.score) } else { a.score.cmp(&b.score) };
            by_score.then(a.reached_at.cmp(&b.reached_at)).then(a.user.as_bytes().cmp(b.user.as_bytes()))
        });
        for at in 0..rows.len() {
            let better = rows.iter().filter(|row| self.rules.better(row.score, rows[at].score));
            rows[at].rank = 1 + match self.rules.ties {
                "shared" => better.count(),
                "dense" => better.map(|row| row.score).collect::<BTreeSet<_>>().len(),
                _ => at,
            };
        }
        rows
    }

    fn score_of(&self, season: &str, user: &str) -> Option<i64> {
        let theirs = |play: &&Play| play.season == season && play.user == user;
        let plays: Vec<&Play> = self.plays.iter().filter(theirs).collect();
        (!plays.is_empty()).then(|| self.entry(&plays).0)
    }

    fn tables(&self) -> BTreeMap<String, Vec<Row>> {
        self.seasons.iter().map(|season| (season.name.clone(), self.table(&season.name))).collect()
    }

    /// The answer to a play that counts.
    fn answer(&self, play: &Play, duplicate: bool, now: &BTreeMap<String, Vec<Row>>) -> Exact {
        let row = now.get(&play.season).and_then(|rows| rows.iter().find(|row| row.user == play.user));
        Exact::from([
            ("user_id", play.user.as_str().into()),
            ("score", self.score(play.score_after)),
            ("rank", row.map(|row| row.rank).into()),
            ("previous_rank", play.previous_rank.into()),
            ("season", play.season.as_str().into()),
            ("play_id", play.play_id.as_str().into()),
            ("duplicate", duplicate.into()),
            ("improved", play.improved.into()),
        ])
    }

    pub(crate) fn score(&self, score: i64) -> Exact {
        Exact::Literal(written(score, self.rules.decimals))
    }

    /// Plays that come together: ranks are those after all of them, previous ranks those before.
    pub(crate) fn submit(&mut self, plays: &[NewPlay], now: i64) -> Vec<Result<Exact, Refused>> {
        let before = self.tables();
        let counted: Vec<Result<(Play, bool), Refused>> =
            plays.iter().map(|play| self.count(play, now, &before)).collect();
        let after = self.tables();
        let answer = |(play, duplicate): (Play, bool)| self.answer(&play, duplicate, &after);
        counted.into_iter().map(|one| one.map(answer)).collect()
    }

    fn count(
        &mut self,
        new: &NewPlay,
        now: i64,
        before: &BTreeMap<String, Vec<Row>>,
    ) -> Result<(Play, bool), Refused> {
        if let Some(refused) = new.broken {
            return Err(refused);
        }
        let known = self
            .plays
            .iter()
            .find(|play| play.user == new.user && Some(&play.play_id) == new.play_id.as_ref())
            .cloned();
        let played_at = new.played_at.unwrap_or(now);
        let season = Season::at(&self.rules, played_at);
        let refused = if self.rules.min_points.is_some_and(|min| new.points < min)
            || self.rules.max_points.is_some_and(|max| new.points > max)
        {
            Some((400, "points_out_of_bounds"))
        } else if played_at > now + SKEW_US {
            Some((400, "played_in_future"))
        } else if !self.takes_plays(&season, now) {
            Some((409, "season_closed"))
        } else {
            None
        };
        if refused.is_none() {
            self.seasons.insert(season.clone());
        }
        if let Some(known) = known {
            return if known.points == new.points { Ok((known, true)) } else { Err((409, "play_id_reused")) };
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let old = self.score_of(&season.name, &new.user);
        if self.rules.score == "sum" && old.is_some_and(|old| old.checked_add(new.points).is_none()) {
            return Err((422, "score_overflow"));
        }
        let previous = before.get(&season.name).and_then(|rows| rows.iter().find(|row| row.user == new.user));
        self.plays.push(Play {
            user: new.user.clone(),
            play_id: new.play_id.clone().expect("the caller fills in what was made"),
            season: season.name.clone(),
            points: new.points,
            played_at,
            score_after: 0,
            previous_rank: previous.map(|row| row.rank),
            improved: false,
        });
        let score = self.score_of(&season.name, &new.user).expect("it was just added");
        let play = self.plays.last_mut().expect("it was just added");
        play.score_after = score;
        play.improved = old.is_none_or(|old| self.rules.better(score, old));
        Ok((play.clone(), false))
    }

    fn takes_plays(&self, season: &Season, now: i64) -> bool {
        season.takes_plays(&self.rules, now) && !self.closed.contains_key(&season.name)
    }

    /// Ends a season that was played in, if it is there. Names are those of this moment.
    pub(crate) fn close(&mut self, season: &str, now: i64, name: impl Fn(&str) -> Exact) -> bool {
        let there = self.seasons.iter().any(|known| known.name == season);
        if there && !self.closed.contains_key(season) {
            let mut rows = self.table(season);
            for row in &mut rows {
                row.named = Some(name(&row.user));
            }
            self.closed.insert(season.to_owned(), Closed { at: now, rows });
        }
        there
    }

    /// Ends what is over, and lets go of what is too old.
    pub(crate) fn settle(&mut self, now: i64, name: impl Fn(&str) -> Exact) {
        for season in self.seasons.clone() {
            if !season.takes_plays(&self.rules, now) {
                self.close(&season.name, now, &name);
            }
        }
        let mut too_many = self.closed.len().saturating_sub(KEEP_SEASONS);
        for season in self.seasons.clone() {
            if too_many > 0
                && !season.takes_plays(&self.rules, now)
                && let Some(closed) = self.closed.remove(&season.name)
            {
                self.seasons.remove(&season);
                self.removed.insert(season.name, closed);
                too_many -= 1;
            }
        }
    }

    /// How a user did in each season that is kept, newest first; and in the best one of all.
    pub(crate) fn user_seasons(&self, user: &str) -> (Vec<(String, Exact)>, Option<Exact>) {
        let row_of = |rows: &[Row]| rows.iter().find(|row| row.user == user).cloned();
        let reply = |season: &str, state: &str, row: &Row, players: Option<usize>, reached: bool| {
            let reached_at = reached.then(|| time(row.reached_at));
            let mut reply = Exact::from([
                ("season", season.into()),
                ("state", state.into()),
                ("score", self.score(row.score)),
                ("rank", row.rank.into()),
                ("players", players.into()),
                ("reached_at", reached_at.into()),
            ]);
            if !reached {
                reply.replace("reached_at", Exact::null());
            }
            reply
        };
        let mut seasons = Vec::new();
        let mut best: Option<(i64, Exact)> = None;
        let names = self.seasons.iter().map(|season| &season.name).chain(self.removed.keys());
        let names: BTreeSet<&String> = names.collect();
        for name in names {
            let gone = self.removed.get(name);
            let rows = gone.map_or_else(|| self.table(name), |closed| closed.rows.clone());
            let Some(row) = row_of(&rows) else { continue };
            let finished = gone.is_some() || self.closed.contains_key(name);
            let state = if finished { "final" } else { "open" };
            let players = gone.is_none().then_some(rows.len());
            if gone.is_none() {
                seasons.push((name.clone(), reply(name, state, &row, players, true)));
            }
            if best.as_ref().is_none_or(|(score, _)| self.rules.better(row.score, *score)) {
                best = Some((row.score, reply(name, state, &row, players, !finished)));
            }
        }
        seasons.reverse();
        (seasons, best.map(|(_, reply)| reply))
    }

    /// The season asked for: by name, or the one of this moment.
    pub(crate) fn asked(&self, name: Option<&str>, now: i64) -> Result<Season, Refused> {
        let Some(name) = name else { return Ok(Season::at(&self.rules, now)) };
        let season = Season::named(&self.rules, name).ok_or((400, "invalid_season"))?;
        let open = season.start.is_none_or(|start| start <= now) && self.takes_plays(&season, now);
        if open || self.seasons.contains(&season) { Ok(season) } else { Err((404, "unknown_season")) }
    }

    /// A page of a list, and where it ended if there is more.
    pub(crate) fn page(
        &self,
        season: &str,
        from: &From<'_>,
        range: (Option<i64>, Option<i64>),
        limit: usize,
    ) -> (Vec<Row>, usize, bool) {
        let everyone = self.table(season);
        let within = |row: &Row| {
            range.0.is_none_or(|min| row.score >= min) && range.1.is_none_or(|max| row.score <= max)
        };
        let listed: Vec<Row> = everyone.into_iter().filter(within).collect();
        let total = listed.len();
        let rest: Vec<Row> = match from {
            From::Top => listed,
            From::Rank(rank) => {
                listed.into_iter().skip(usize::try_from(*rank).expect("a rank") - 1).collect()
            }
            From::After(mark) => listed
                .into_iter()
                .filter(|row| {
                    let tied = row.score == mark.score;
                    self.rules.better(mark.score, row.score)
                        || tied && (row.reached_at, row.user.as_str()) > (mark.reached_at, mark.user.as_str())
                })
                .collect(),
        };
        let more = rest.len() > limit;
        (rest.into_iter().take(limit).collect(), total, more)
    }

    pub(crate) fn season_reply(&self, season: &Season, now: i64) -> Exact {
        let closed = self.closed.get(&season.name);
        let at = || Exact::from(closed.map(|closed| time(closed.at)));
        Exact::from([
            ("season", season.name.as_str().into()),
            ("starts_at", season.start.map(time).into()),
            ("ends_at", season.end.map(time).into()),
            ("state", if closed.is_some() { "final" } else { "open" }.into()),
            ("takes_plays", self.takes_plays(season, now).into()),
            ("players", self.table(&season.name).len().into()),
            ("closing", Exact::null()),
            ("closed_at", at()),
            ("final_at", at()),
            ("swept", closed.is_some().into()),
        ])
    }

    pub(crate) fn reply(&self, name: &str) -> Exact {
        let rules = &self.rules;
        Exact::from([
            ("board", name.into()),
            ("score", rules.score.into()),
            ("order", rules.order.into()),
            ("ties", rules.ties.into()),
            ("resets", rules.resets.into()),
            ("week_starts", rules.week_starts.into()),
            ("time_zone", rules.time_zone.into()),
            ("decimals", (rules.decimals as usize).into()),
            ("min_points", rules.min_points.map(|points| self.score(points)).into()),
            ("max_points", rules.max_points.map(|points| self.score(points)).into()),
            ("official", 100.into()),
            ("snapshots", "none".into()),
            ("keep_seasons", 12.into()),
            ("late_seconds", usize::try_from(rules.late_seconds).expect("it is positive").into()),
            ("created_at", time(self.created_at)),
            ("state", "live".into()),
        ])
    }

    pub(crate) fn has_played(&self, user: &str) -> bool {
        self.plays.iter().any(|play| play.user == user)
    }

    pub(crate) fn play_ids(&self) -> impl Iterator<Item = (&str, &str, i64)> {
        self.plays.iter().map(|play| (play.user.as_str(), play.play_id.as_str(), play.points))
    }

    pub(crate) fn plays(&self) -> usize {
        self.plays.len()
    }
}

impl Mark {
    pub(crate) fn new(board: &str, season: &str, row: &Row) -> Mark {
        let (score, reached_at, user) = (row.score, row.reached_at, row.user.clone());
        Mark { board: board.to_owned(), season: season.to_owned(), score, reached_at, user }
    }
}
