//! Submitting plays: the way from a request to an acknowledged, ranked score.
//!
//! 1. The board, the season by the play's own time, bounds.
//! 2. Under the user's lock: the entry is read, the play folded in, and both written in one transaction: the play if its id is new, the entry if
//!    it is as it was read. If the id is not new, the play counted before and is answered as it was then; if the entry is another
//!    one by now, it is read again.
//! 3. The ranking takes the new entry, still under the lock. 4. The answer.
//!
//! What has begun is finished, also when the caller goes away: between 2 and 3 the ranking lacks a play that is acknowledged or about to be.
//! That is why all of this runs in a task of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use standings_table::{Condition, Consistency, Error as TableError, Operation, Text, limits};

use crate::board::Rules;
use crate::error::{Error, Result};
use crate::fold::fold;
use crate::ids::{BoardId, PlayId, UserId};
use crate::points;
use crate::ranking::{Change, SeasonKey};
use crate::records::{Entry, PlayRecord};
use crate::season::{Season, format_us};
use crate::service::{ATTEMPTS_MAX, Board, Boards, Live, Shared, State, closed};

/// The most plays in one request.
pub const BATCH_PLAYS_MAX: usize = 1_000;
/// Plays of one user in one transaction; the entry takes one place.
const TRANSACTION_PLAYS_MAX: usize = limits::TRANSACTION_OPERATIONS_MAX - 1;

/// A play as it comes in.
#[derive(Clone, Debug)]
pub struct NewPlay {
    /// Who played.
    pub user: UserId,
    /// What they scored, as the caller wrote it.
    pub points: Text,
    /// The play's id; one is made if there is none.
    pub play_id: Option<PlayId>,
    /// When it was played; now if it is not said.
    pub played_at_us: Option<i64>,
}

/// A play that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Who.
    pub user: UserId,
    /// The score after the play.
    pub score: i64,
    /// The user's rank now.
    pub rank: Option<u64>,
    /// The user's rank before the play.
    pub previous_rank: Option<u64>,
    /// The season it counts for.
    pub season: Season,
    /// Its id.
    pub play_id: PlayId,
    /// Whether it had counted before: nothing was added now.
    pub duplicate: bool,
    /// Whether it made the score better.
    pub improved: bool,
    /// The board's decimals, for writing the score.
    pub decimals: u8,
}

/// A play that has passed the checks.
struct Checked {
    points: i64,
    play_id: PlayId,
    played_at: i64,
}

/// The plays of one user in one season, in the order in which they came.
struct Group {
    user: UserId,
    live: Arc<Live>,
    plays: Vec<(usize, Checked)>,
}

/// What became of a group in the table.
struct Written {
    group: Group,
    entry: Option<Entry>,
    results: Vec<(usize, Result<(PlayRecord, bool)>)>,
}

impl Boards {
    /// Counts a play.
    ///
    /// # Errors
    /// If the play is not acceptable, or the table could not take it; it then did not count. With [`TableError::OutcomeUnknown`] it may have:
    /// the same play with the same id can be sent again.
    pub async fn submit(&self, board: &BoardId, play: NewPlay) -> Result<Counted> {
        let mut results = self.submit_batch(board, vec![play]).await?;
        results.pop().unwrap_or(Err(Error::Contended))
    }

    /// Counts up to 1,000 plays, each on its own: one that is refused does not keep the others from counting.
    ///
    /// # Errors
    /// [`Error::UnknownBoard`], [`Error::TooMany`]: about the batch as a whole.
    pub async fn submit_batch(&self, board: &BoardId, plays: Vec<NewPlay>) -> Result<Vec<Result<Counted>>> {
        if plays.len() > BATCH_PLAYS_MAX {
            return Err(Error::TooMany { what: "plays", max: BATCH_PLAYS_MAX });
        }
        let board = self.shared.find(board)?;
        let begun = Begun::new(self.shared.clone());
        let done = tokio::spawn(async move { begun.0.count_plays(&board, plays).await }).await;
        // A panic inside is a bug of ours, and what it left behind is not known.
        done.unwrap_or_else(|_| {
            Err(TableError::OutcomeUnknown { why: "counting the plays failed inside".into() }.into())
        })
    }
}

/// A request that will be finished, also before its task has had its first turn: whoever closes the server waits for these.
struct Begun(Arc<Shared>);

impl Begun {
    fn new(shared: Arc<Shared>) -> Self {
        shared.requests_under_way.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.requests_under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    async fn count_plays(&self, board: &Board, plays: Vec<NewPlay>) -> Result<Vec<Result<Counted>>> {
        let _shared = board.gate.read().await;
        let state = board.state();
        if state.record.deleted_users.is_some() {
            return Err(Error::BoardBeingDeleted { board: board.id.clone() });
        }
        let now = self.clock.now_us();
        // Held until the ranking has everything: see `log.rs`.
        let ticket = self.log.enter(now);
        let count = plays.len();
        let mut results: Vec<Option<Result<Counted>>> = std::iter::repeat_with(|| None).take(count).collect();
        let mut groups: Vec<Group> = Vec::new();
        let mut refusals: Vec<(usize, Refusal)> = Vec::new();
        for (at, play) in plays.into_iter().enumerate() {
            match self.check(board, &state, play, now).await {
                Ok((user, live, checked)) => add_to_groups(&mut groups, at, user, live, checked),
                Err(refusal) => refusals.push((at, refusal)),
            }
        }
        if !groups.is_empty() {
            self.reserve_log(ticket.accepted_at).await?;
        }
        let answered = match groups.len() {
            0 => Vec::new(),
            1 => {
                let _lock = self.locks.lock(groups[0].user.as_str()).await;
                self.count_groups(board, &state, groups, ticket.accepted_at).await
            }
            _ => {
                let _locks = self.locks.lock_all(groups.iter().map(|group| group.user.as_str())).await;
                self.count_groups(board, &state, groups, ticket.accepted_at).await
            }
        };
        for (at, result) in answered {
            results[at] = Some(result);
        }
        // After the others: one before it may have the same id, and ranks are those after the whole batch.
        for (at, refusal) in refusals {
            let counted_later = |user: &UserId, play_id: &PlayId| {
                let later = results[at..].iter().flatten().flatten();
                later.into_iter().any(|one| !one.duplicate && one.user == *user && one.play_id == *play_id)
            };
            let answer = self.answer_refused(board, &state, refusal, counted_later).await;
            results[at] = Some(answer);
        }
        Ok(results.into_iter().map(|result| result.unwrap_or(Err(Error::Contended))).collect())
    }

    /// Steps 2 to 4 for users whose locks are held.
    async fn count_groups(
        &self,
        board: &Board,
        state: &State,
        groups: Vec<Group>,
        accepted_at: i64,
    ) -> Vec<(usize, Result<Counted>)> {
        let written = match <[Group; 1]>::try_from(groups) {
            Ok([group]) => vec![self.write_group(board, state, group, accepted_at).await],
            Err(groups) => {
                join_all(groups.into_iter().map(|group| self.write_group(board, state, group, accepted_at)))
                    .await
            }
        };
        // Groups of one season go to the ranking together.
        let mut seasons: Vec<&Arc<Live>> = written.iter().map(|written| &written.group.live).collect();
        seasons.sort_by(|a, b| a.key.cmp(&b.key));
        seasons.dedup_by(|a, b| a.key == b.key);
        for live in seasons {
            let changes: Vec<Change<'_>> = written
                .iter()
                .filter(|written| written.group.live.key == live.key)
                .filter_map(|written| {
                    let entry = written.entry?;
                    Some(Change {
                        user: written.group.user.as_str(),
                        entry: Some(entry.ranked()),
                        version: entry.version,
                    })
                })
                .collect();
            if changes.is_empty() {
                continue;
            }
            if let Err(error) = self.ranking.apply(&live.key, &changes).await {
                // The plays count; the ranking will have them when it is loaded again. Until then ranks are not given.
                tracing::error!(%error, board = %board.id, "the ranking did not take plays that count");
            }
        }
        let mut answers = Vec::new();
        let decimals = state.record.rules.decimals;
        for Written { group, results, .. } in written {
            let mut rank = None;
            for (at, result) in results {
                let answer = match result {
                    Ok((play, duplicate)) => {
                        let in_this_season = play.season == group.live.span.season;
                        let rank = if in_this_season {
                            match rank {
                                Some(rank) => rank,
                                None => *rank.insert(self.rank(&group.live.key, &group.user, state).await),
                            }
                        } else {
                            self.rank_in(board, &play.season, &group.user, state).await
                        };
                        let counter =
                            if duplicate { &self.statistics.duplicates } else { &self.statistics.plays };
                        Self::count(counter, 1);
                        Ok(counted(play, duplicate, rank, decimals))
                    }
                    Err(error) => Err(error),
                };
                answers.push((at, answer));
            }
        }
        answers
    }

    async fn rank(&self, season: &SeasonKey, user: &UserId, state: &State) -> Option<u64> {
        let found = self.ranking.standings_of(season, &[user.as_str()], state.record.rules.ties).await;
        found.ok().and_then(|(mut rows, _)| rows.pop().flatten()).map(|row| row.rank)
    }

    async fn rank_in(&self, board: &Board, season: &Season, user: &UserId, state: &State) -> Option<u64> {
        if let Some(live) = board.live_named(season)
            && let Some(rank) = self.rank(&live.key, user, state).await
        {
            return Some(rank);
        }
        let past = board.snapshots.of_season(season)?;
        self.past_row(&past, user).await.ok().flatten().map(|row| row.rank)
    }

    async fn check(
        &self,
        board: &Board,
        state: &State,
        play: NewPlay,
        now: i64,
    ) -> std::result::Result<(UserId, Arc<Live>, Checked), Refusal> {
        let rules = &state.record.rules;
        let mut refusal =
            Refusal { user: play.user, play_id: play.play_id, points: None, error: Error::Contended };
        macro_rules! accept {
            ($result:expr) => {
                match $result {
                    Ok(value) => value,
                    Err(error) => {
                        refusal.error = error;
                        return Err(refusal);
                    }
                }
            };
        }
        let points = accept!(points::parse(&play.points, rules.decimals));
        refusal.points = Some(points);
        accept!(rules.check_points(points));
        let played_at = play.played_at_us.unwrap_or(now);
        accept!(if played_at > now.saturating_add(self.settings.skew_us) {
            Err(Error::PlayedInFuture { played_at: format_us(played_at) })
        } else {
            Ok(())
        });
        let recent = board.recent(played_at);
        let span = match &recent {
            Some(live) => live.span.clone(),
            None => accept!(state.calendar.season_at(played_at)),
        };
        // One that is over does not begin anew, whatever the clock says.
        let known_closed = recent.is_none() && board.snapshots.has_season(&span.season);
        accept!(if span.takes_plays(rules, now) && !known_closed {
            Ok(())
        } else {
            Err(closed(board, state, &span))
        });
        let live = match recent {
            Some(live) => live,
            None => accept!(self.live_at(board, state, played_at).await),
        };
        accept!(if live.closing.load(Ordering::Acquire) { Err(closed(board, state, &span)) } else { Ok(()) });
        // Nothing is counted whose rank could not be told: not ready is said.
        accept!(self.ranking.generation(&live.key).await);
        let play_id = refusal.play_id.unwrap_or_else(PlayId::generate);
        Ok((refusal.user, live, Checked { points, play_id, played_at }))
    }

    /// A play that would be refused today may have counted before, when the season was open or the bounds were others.
    async fn answer_refused(
        &self,
        board: &Board,
        state: &State,
        refusal: Refusal,
        counted_later: impl Fn(&UserId, &PlayId) -> bool,
    ) -> Result<Counted> {
        let Refusal { user, play_id: Some(play_id), points: Some(points), error } = refusal else {
            return Err(refusal.error);
        };
        let key = PlayRecord::key(&user, &board.id, &play_id);
        let Some(item) = self.table.get(&key, Consistency::Strong).await? else { return Err(error) };
        if counted_later(&user, &play_id) {
            return Err(error);
        }
        let play = PlayRecord::from_item(&item)?;
        check_same(&play, points, state.record.rules.decimals)?;
        let rank = self.rank_in(board, &play.season, &user, state).await;
        Self::count(&self.statistics.duplicates, 1);
        Ok(counted(play, true, rank, state.record.rules.decimals))
    }

    /// Writes the plays of a user whose lock is held, and the entry they make.
    async fn write_group(&self, board: &Board, state: &State, group: Group, accepted_at: i64) -> Written {
        let rules = &state.record.rules;
        let mut results = Vec::with_capacity(group.plays.len());
        let mut entry = None;
        let mut todo: &[(usize, Checked)] = &group.plays;
        while !todo.is_empty() {
            let (now, later) = todo.split_at(todo.len().min(TRANSACTION_PLAYS_MAX));
            let part = self.write_part(board, rules, &group, now, accepted_at, &mut results).await;
            match part {
                Ok(written) => entry = written.or(entry),
                Err(error) => {
                    let answered: Vec<usize> = results.iter().map(|(at, _)| *at).collect();
                    for (at, _) in todo.iter().filter(|(at, _)| !answered.contains(at)) {
                        results.push((*at, Err(error.clone())));
                    }
                    break;
                }
            }
            todo = later;
        }
        Written { group, entry, results }
    }

    /// Writes plays in one transaction, after as many attempts as it takes; gives the entry if it is a new one.
    async fn write_part(
        &self,
        board: &Board,
        rules: &Rules,
        group: &Group,
        plays: &[(usize, Checked)],
        accepted_at: i64,
        results: &mut Vec<(usize, Result<(PlayRecord, bool)>)>,
    ) -> Result<Option<Entry>> {
        let Group { user, live, .. } = group;
        let previous_rank = self.ranking.standings_of(&live.key, &[user.as_str()], rules.ties).await?.0.pop();
        let previous_rank = previous_rank.flatten().and_then(|row| i64::try_from(row.rank).ok());
        let entry_key = Entry::key(user, &board.id, &live.span.season);
        let mut todo: Vec<&(usize, Checked)> = plays.iter().collect();
        for _ in 0..ATTEMPTS_MAX {
            let stored = self.table.get(&entry_key, Consistency::Strong).await?;
            let stored = stored.as_ref().map(Entry::from_item).transpose()?;
            let mut entry = stored;
            let mut records: Vec<(usize, PlayRecord)> = Vec::with_capacity(todo.len());
            let mut repeated = Vec::new();
            let mut refused = Vec::new();
            for (at, play) in &todo {
                if records.iter().any(|(_, record)| record.play_id == play.play_id) {
                    repeated.push((*at, play));
                    continue;
                }
                match fold(rules, entry.as_ref(), play.points, play.played_at) {
                    Ok((next, improved)) => {
                        records.push((
                            *at,
                            PlayRecord {
                                user: user.clone(),
                                board: board.id.clone(),
                                play_id: play.play_id.clone(),
                                season: live.span.season.clone(),
                                points: play.points,
                                played_at: play.played_at,
                                accepted_at,
                                score_after: next.score,
                                entry_version: next.version,
                                previous_rank,
                                improved,
                            },
                        ));
                        entry = Some(next);
                    }
                    Err(error) => refused.push((*at, play, error)),
                }
            }
            let decimals = rules.decimals;
            let written = match entry {
                Some(entry) if !records.is_empty() => {
                    let condition =
                        stored.map_or(Condition::Absent, |stored| Condition::VersionEquals(stored.version));
                    let puts = records
                        .iter()
                        .map(|(_, record)| Operation::put_if(self.play_item(record), Condition::Absent));
                    let entry_item = entry.to_item(user, &board.id, &live.span.season, live.shards);
                    let operations = puts.chain([Operation::put_if(entry_item, condition)]).collect();
                    self.table.transact(operations).await.map(|_| Some(entry))
                }
                _ => Ok(None),
            };
            match written {
                Ok(entry) => {
                    for (at, play, error) in refused {
                        // Whatever is wrong with this one, the others are written and the ranking must hear of them.
                        let counted_later = records.iter().any(|(_, record)| record.play_id == play.play_id);
                        let known = match counted_later {
                            true => Ok(None),
                            false => self.known(board, user, play, decimals).await,
                        };
                        results.push((at, known.and_then(|known| known.ok_or(error))));
                    }
                    for (at, play) in repeated {
                        let first = records.iter().find(|(_, record)| record.play_id == play.play_id);
                        let first = first.map(|(_, record)| record.clone()).ok_or(Error::Contended)?;
                        results.push((at, check_same(&first, play.points, decimals).map(|()| (first, true))));
                    }
                    results.extend(records.into_iter().map(|(at, record)| (at, Ok((record, false)))));
                    return Ok(entry);
                }
                Err(TableError::ConditionFailed { failed }) => {
                    Self::count(
                        &self.statistics.conflicts,
                        u64::from(failed.iter().any(|f| f.operation == records.len())),
                    );
                    // Plays that are there already are answered as they were; the rest is tried again without them.
                    for failure in failed.iter().filter(|failure| failure.operation < records.len()) {
                        let (_, record) = &records[failure.operation];
                        // All of that id at once: one after the other would use up the attempts.
                        for (at, play) in plays.iter().filter(|(_, play)| play.play_id == record.play_id) {
                            let known = self.known(board, user, play, decimals).await;
                            // Gone again in between: tried once more.
                            let Some(answer) = known.transpose() else { continue };
                            tracing::debug!(play_id = %record.play_id, "a play that had counted before");
                            results.push((*at, answer));
                            todo.retain(|(place, _)| place != at);
                        }
                    }
                    if todo.is_empty() {
                        return Ok(None);
                    }
                }
                Err(TableError::Conflict) => tokio::task::yield_now().await,
                Err(error @ TableError::OutcomeUnknown { .. }) => {
                    // Either all of it happened or nothing: the last play tells.
                    let Some((_, last)) = records.last() else { return Err(error.into()) };
                    let key = PlayRecord::key(user, &board.id, &last.play_id);
                    let item = self.table.get(&key, Consistency::Strong).await.map_err(|_| error.clone())?;
                    let play = item.as_ref().map(PlayRecord::from_item).transpose()?;
                    if play.as_ref() != Some(last) {
                        return Err(error.into());
                    }
                    results.extend(records.into_iter().map(|(at, record)| (at, Ok((record, false)))));
                    return Ok(entry);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }

    fn play_item(&self, play: &PlayRecord) -> standings_table::Item {
        let mut item = play.to_item();
        if let Some(days) = self.settings.plays_keep_days {
            let seconds = play.accepted_at.div_euclid(1_000_000) + i64::from(days) * 86_400;
            item.attributes.set(standings_table::item::EXPIRES_AT, seconds);
        }
        item
    }

    /// The play of that id, if it counted before; an error if it was another one.
    async fn known(
        &self,
        board: &Board,
        user: &UserId,
        play: &Checked,
        decimals: u8,
    ) -> Result<Option<(PlayRecord, bool)>> {
        let key = PlayRecord::key(user, &board.id, &play.play_id);
        let Some(item) = self.table.get(&key, Consistency::Strong).await? else { return Ok(None) };
        let first = PlayRecord::from_item(&item)?;
        check_same(&first, play.points, decimals)?;
        Ok(Some((first, true)))
    }
}

struct Refusal {
    user: UserId,
    play_id: Option<PlayId>,
    points: Option<i64>,
    error: Error,
}

fn check_same(first: &PlayRecord, points: i64, decimals: u8) -> Result<()> {
    if first.points == points {
        return Ok(());
    }
    let play_id = first.play_id.to_string();
    Err(Error::PlayIdReused { play_id, points: points::format(first.points, decimals) })
}

fn add_to_groups(groups: &mut Vec<Group>, at: usize, user: UserId, live: Arc<Live>, checked: Checked) {
    // Users mostly differ; looking through a thousand groups a thousand times would take longer than the plays themselves,
    // so groups are kept sorted by user and season.
    let place = groups.binary_search_by(|group| {
        group.user.as_str().cmp(user.as_str()).then_with(|| group.live.key.cmp(&live.key))
    });
    match place {
        Ok(found) => groups[found].plays.push((at, checked)),
        Err(place) => groups.insert(place, Group { user, live, plays: vec![(at, checked)] }),
    }
}

fn counted(play: PlayRecord, duplicate: bool, rank: Option<u64>, decimals: u8) -> Counted {
    Counted {
        user: play.user,
        score: play.score_after,
        rank,
        previous_rank: play.previous_rank.and_then(|rank| u64::try_from(rank).ok()),
        season: play.season,
        play_id: play.play_id,
        duplicate,
        improved: play.improved,
        decimals,
    }
}
