//! Submitting plays: the way from a request to an acknowledged, ranked score.
//!
//! 1. The board, the season by the play's own time, bounds.
//! 2. Under the user's lock: the entry is read, the play folded in, and both written in one transaction: the play if its id is new, the entry if
//!    it is as it was read. If the id is not new, the play counted before and is answered as it was then; if the entry is another
//!    one by now, it is read again.
//! 3. The ranking takes the new entry, still under the lock. 4. The answer.
//!
//! What has begun is finished, also when the caller goes away: between 2 and 3 the ranking lacks a play that is acknowledged or about to be.
//! What a caller leaves behind therefore becomes a task of its own: see `Finished`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use standings_table::{Condition, Consistency, Error as TableError, Item, Key, Operation, Text, limits};
use tokio::runtime::Handle;

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

impl Group {
    fn is_of_season_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.live, &other.live) || self.live.key == other.live.key
    }

    fn entry_key(&self, board: &BoardId) -> Key {
        Entry::key(&self.user, board, &self.live.span.season)
    }
}

/// What became of a group in the table.
struct Written {
    group: Group,
    entry: Option<Entry>,
    results: Vec<(usize, Result<(PlayRecord, bool)>)>,
}

impl Written {
    /// What the ranking has to hear of.
    fn change(&self) -> Option<Change<'_>> {
        let entry = self.entry?;
        let user = self.group.user.as_str();
        Some(Change { user, entry: Some(entry.ranked()), version: entry.version })
    }
}

/// A group on its way into the table.
struct Writing {
    written: Written,
    previous_rank: Option<i64>,
    /// The plays without an answer: places in the group's list.
    todo: Vec<usize>,
    attempts: usize,
}

/// One transaction that is tried: the first plays of those to do, and the entry they make.
struct Attempt {
    /// How many of those to do it is about.
    count: usize,
    stored: Option<Entry>,
    entry: Option<Entry>,
    records: Vec<(usize, PlayRecord)>,
    /// Plays with the id of one before them: the place in the group, the place of the other in `records`.
    repeated: Vec<(usize, usize)>,
    /// Plays that cannot be folded: the place in the group, and why.
    refused: Vec<(usize, Error)>,
}

impl Writing {
    fn new(group: Group, previous_rank: Result<Option<u64>>) -> Self {
        let todo = (0..group.plays.len()).collect();
        let results = Vec::with_capacity(group.plays.len());
        let mut one =
            Self { written: Written { group, entry: None, results }, previous_rank: None, todo, attempts: 0 };
        match previous_rank {
            Ok(rank) => one.previous_rank = rank.and_then(|rank| i64::try_from(rank).ok()),
            Err(error) => one.fail(&error),
        }
        one
    }

    /// All that has no answer yet is answered with the error.
    fn fail(&mut self, error: &Error) {
        let Written { group, results, .. } = &mut self.written;
        results.extend(self.todo.drain(..).map(|place| (group.plays[place].0, Err(error.clone()))));
    }

    fn try_again(&mut self) {
        self.attempts += 1;
        if self.attempts >= ATTEMPTS_MAX {
            self.fail(&Error::Contended);
        }
    }

    /// Answers the plays of an attempt that is written; those refused have their answers.
    fn settle(&mut self, rules: &Rules, attempt: Attempt) {
        let Written { group, results, entry } = &mut self.written;
        for (place, first) in attempt.repeated {
            let (at, play) = &group.plays[place];
            let first = attempt.records[first].1.clone();
            let same = check_same(&first, play.points, rules.decimals);
            results.push((*at, same.map(|()| (first, true))));
        }
        if !attempt.records.is_empty() {
            *entry = attempt.entry;
        }
        results.extend(attempt.records.into_iter().map(|(at, record)| (at, Ok((record, false)))));
        self.todo.drain(..attempt.count);
        self.attempts = 0;
    }

    /// Folds as many plays as fit into one transaction.
    fn attempt(&self, board: &Board, rules: &Rules, stored: Option<Entry>, accepted_at: i64) -> Attempt {
        let Group { user, live, plays } = &self.written.group;
        let todo = &self.todo[..self.todo.len().min(TRANSACTION_PLAYS_MAX)];
        let mut attempt = Attempt {
            count: todo.len(),
            stored,
            entry: stored,
            records: Vec::with_capacity(todo.len()),
            repeated: Vec::new(),
            refused: Vec::new(),
        };
        for place in todo {
            let (at, play) = &plays[*place];
            let first = attempt.records.iter().position(|(_, record)| record.play_id == play.play_id);
            if let Some(first) = first {
                attempt.repeated.push((*place, first));
                continue;
            }
            match fold(rules, attempt.entry.as_ref(), play.points, play.played_at) {
                Ok((next, improved)) => {
                    let record = PlayRecord {
                        user: user.clone(),
                        board: board.id.clone(),
                        play_id: play.play_id.clone(),
                        season: live.span.season.clone(),
                        points: play.points,
                        played_at: play.played_at,
                        accepted_at,
                        score_after: next.score,
                        entry_version: next.version,
                        previous_rank: self.previous_rank,
                        improved,
                    };
                    attempt.records.push((*at, record));
                    attempt.entry = Some(next);
                }
                Err(error) => attempt.refused.push((*place, error)),
            }
        }
        attempt
    }
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
        let counting = Finished::new(async move { begun.0.count_plays(&board, plays).await });
        // A panic inside is a bug of ours, and what it left behind is not known.
        counting.await.unwrap_or_else(|| {
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

/// Work that is finished, whatever becomes of the one who waits for it.
///
/// It runs where it is awaited, because a task of its own for every play would cost two changes of tasks more. Only if the one who
/// waits goes away, what is left of it becomes a task. Whoever has begun to await it goes on or drops it: it may hold users' locks.
struct Finished<F: Future<Output: Send> + Send + 'static>(Option<Pin<Box<F>>>);

impl<F: Future<Output: Send> + Send + 'static> Finished<F> {
    fn new(work: F) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Finished<F> {
    /// Nothing if it panicked.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.0 else { return Poll::Ready(None) };
        // After a panic it is never polled again, so whatever state it broke is only dropped.
        let output = match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Some(output),
            Err(_) => None,
        };
        self.0 = None;
        Poll::Ready(output)
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Finished<F> {
    fn drop(&mut self) {
        // Without a runtime the process is at its end.
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
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
        let mut accepted = Vec::with_capacity(count);
        let mut refusals: Vec<(usize, Refusal)> = Vec::new();
        for (at, play) in plays.into_iter().enumerate() {
            match self.check(board, &state, play, now).await {
                Ok((user, live, checked)) => accepted.push((user, live, at, checked)),
                Err(refusal) => refusals.push((at, refusal)),
            }
        }
        let groups = group(accepted);
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
            let answer = Box::pin(self.answer_refused(board, &state, refusal, counted_later)).await;
            results[at] = Some(answer);
        }
        Ok(results.into_iter().map(|result| result.unwrap_or(Err(Error::Contended))).collect())
    }

    /// Steps 2 to 4 for users whose locks are held. Those of a batch take each step together: one reading of entries, one
    /// hand-over to the table, one change of the ranking.
    async fn count_groups(
        &self,
        board: &Board,
        state: &State,
        groups: Vec<Group>,
        accepted_at: i64,
    ) -> Vec<(usize, Result<Counted>)> {
        let rules = &state.record.rules;
        let written = self.write_groups(board, rules, groups, accepted_at).await;
        let mut answers = Vec::with_capacity(written.iter().map(|written| written.results.len()).sum());
        let mut ranks = Vec::with_capacity(written.len());
        for season in written.chunk_by(|a, b| a.group.is_of_season_of(&b.group)) {
            let key = &season[0].group.live.key;
            let changes: Vec<Change<'_>> = season.iter().filter_map(Written::change).collect();
            if !changes.is_empty()
                && let Err(error) = self.ranking.apply(key, &changes).await
            {
                // The plays count; the ranking will have them when it is loaded again. Until then ranks are not given.
                tracing::error!(%error, board = %board.id, "the ranking did not take plays that count");
            }
            let users: Vec<&str> = season.iter().map(|written| written.group.user.as_str()).collect();
            match self.ranks(key, &users, rules).await {
                Ok(found) => ranks.extend(found),
                Err(_) => ranks.extend(users.iter().map(|_| None)),
            }
        }
        for (Written { group, results, .. }, rank) in written.into_iter().zip(ranks) {
            for (at, result) in results {
                let answer = match result {
                    Ok((play, duplicate)) => {
                        let rank = if play.season == group.live.span.season {
                            rank
                        } else {
                            Box::pin(self.rank_in(board, &play.season, &group.user, state)).await
                        };
                        let counter =
                            if duplicate { &self.statistics.duplicates } else { &self.statistics.plays };
                        Self::count(counter, 1);
                        Ok(counted(play, duplicate, rank, rules.decimals))
                    }
                    Err(error) => Err(error),
                };
                answers.push((at, answer));
            }
        }
        answers
    }

    async fn ranks(&self, season: &SeasonKey, users: &[&str], rules: &Rules) -> Result<Vec<Option<u64>>> {
        let (rows, _) = self.ranking.standings_of(season, users, rules.ties).await?;
        Ok(rows.into_iter().map(|row| row.map(|row| row.rank)).collect())
    }

    async fn rank_in(&self, board: &Board, season: &Season, user: &UserId, state: &State) -> Option<u64> {
        if let Some(live) = board.live_named(season)
            && let Ok(mut ranks) = self.ranks(&live.key, &[user.as_str()], &state.record.rules).await
        {
            return ranks.pop().flatten();
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
        let removed = state.record.removed_until.is_some_and(|until| span.end_us <= until);
        let known_closed = recent.is_none() && (removed || board.snapshots.has_season(&span.season));
        accept!(if span.takes_plays(rules, now) && !known_closed {
            Ok(())
        } else {
            Err(closed(board, state, &span))
        });
        let live = match recent {
            Some(live) => live,
            None => accept!(Box::pin(self.live_at(board, state, played_at)).await),
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

    /// Writes the plays of users whose locks are held, and the entries they make, after as many attempts as it takes.
    async fn write_groups(
        &self,
        board: &Board,
        rules: &Rules,
        groups: Vec<Group>,
        accepted_at: i64,
    ) -> Vec<Written> {
        let mut previous_ranks = Vec::with_capacity(groups.len());
        for season in groups.chunk_by(Group::is_of_season_of) {
            let users: Vec<&str> = season.iter().map(|group| group.user.as_str()).collect();
            match self.ranks(&season[0].live.key, &users, rules).await {
                Ok(ranks) => previous_ranks.extend(ranks.into_iter().map(Ok)),
                Err(error) => previous_ranks.extend(users.iter().map(|_| Err(error.clone()))),
            }
        }
        let mut all: Vec<Writing> =
            groups.into_iter().zip(previous_ranks).map(|(group, rank)| Writing::new(group, rank)).collect();
        loop {
            let open: Vec<&mut Writing> = all.iter_mut().filter(|one| !one.todo.is_empty()).collect();
            if open.is_empty() {
                return all.into_iter().map(|one| one.written).collect();
            }
            self.write_once(board, rules, open, accepted_at).await;
        }
    }

    /// One attempt at a transaction for each of them.
    async fn write_once(&self, board: &Board, rules: &Rules, open: Vec<&mut Writing>, accepted_at: i64) {
        let keys: Vec<Key> = open.iter().map(|one| one.written.group.entry_key(&board.id)).collect();
        let stored = self.entries(&keys).await;
        let mut attempts = Vec::with_capacity(open.len());
        let mut transactions = Vec::with_capacity(open.len());
        for (one, stored) in open.into_iter().zip(stored) {
            let attempt = match stored {
                Ok(stored) => one.attempt(board, rules, stored, accepted_at),
                Err(error) => {
                    one.fail(&error);
                    continue;
                }
            };
            if attempt.records.is_empty() {
                Box::pin(self.settle(board, rules, one, attempt, Ok(()))).await;
                continue;
            }
            transactions.push(self.operations(board, one, &attempt));
            attempts.push((one, attempt));
        }
        let answers = match <[Vec<Operation>; 1]>::try_from(transactions) {
            Ok([operations]) => vec![self.table.transact(operations).await],
            Err(transactions) => self.table.transact_all(transactions).await,
        };
        for ((one, attempt), answer) in attempts.into_iter().zip(answers) {
            match answer {
                Ok(_) if attempt.refused.is_empty() => one.settle(rules, attempt),
                // In a box, as is all that is rare: every play would carry the room it needs.
                answer => Box::pin(self.settle(board, rules, one, attempt, answer.map(drop))).await,
            }
        }
    }

    /// The entries under these keys, each read on its own account: one that is damaged is not the others' trouble.
    async fn entries(&self, keys: &[Key]) -> Vec<Result<Option<Entry>>> {
        let entry = |item: Option<Item>| item.as_ref().map(Entry::from_item).transpose();
        let mut entries = Vec::with_capacity(keys.len());
        for some in keys.chunks(limits::BATCH_GET_KEYS_MAX) {
            if !entries.is_empty() {
                // A large batch takes milliseconds; others on this thread go in between.
                tokio::task::yield_now().await;
            }
            if let [_, _, ..] = some
                && let Ok(items) = self.table.batch_get(some, Consistency::Strong).await
            {
                entries.extend(items.into_iter().map(entry));
                continue;
            }
            for key in some {
                let item = self.table.get(key, Consistency::Strong).await;
                entries.push(item.map_err(Error::from).and_then(entry));
            }
        }
        entries
    }

    /// The plays if their ids are new, the entry if it is as it was read.
    fn operations(&self, board: &Board, one: &Writing, attempt: &Attempt) -> Vec<Operation> {
        let Group { user, live, .. } = &one.written.group;
        let mut operations = Vec::with_capacity(attempt.records.len() + 1);
        for (_, record) in &attempt.records {
            operations.push(Operation::put_if(self.play_item(record), Condition::Absent));
        }
        if let Some(entry) = attempt.entry {
            let condition =
                attempt.stored.map_or(Condition::Absent, |stored| Condition::VersionEquals(stored.version));
            let item = entry.to_item(user, &board.id, &live.span.season, live.shards);
            operations.push(Operation::put_if(item, condition));
        }
        operations
    }

    /// What came of an attempt: answers, or another attempt.
    async fn settle(
        &self,
        board: &Board,
        rules: &Rules,
        one: &mut Writing,
        attempt: Attempt,
        answer: std::result::Result<(), TableError>,
    ) {
        let user = one.written.group.user.clone();
        match answer {
            Ok(()) => self.settle_written(board, rules, one, attempt).await,
            Err(TableError::ConditionFailed { failed }) => {
                let before = one.todo.len();
                let entry_failed = failed.iter().any(|failure| failure.operation == attempt.records.len());
                Self::count(&self.statistics.conflicts, u64::from(entry_failed));
                // Plays that are there already are answered as they were; the rest is tried again without them.
                for failure in failed.iter().filter(|failure| failure.operation < attempt.records.len()) {
                    let play_id = &attempt.records[failure.operation].1.play_id;
                    // All of that id at once: one after the other would use up the attempts.
                    for place in one.todo.clone() {
                        let (at, play) = &one.written.group.plays[place];
                        if play.play_id != *play_id {
                            continue;
                        }
                        let known = self.known(board, &user, play, rules.decimals).await;
                        // Gone again in between: tried once more.
                        let Some(answer) = known.transpose() else { continue };
                        tracing::debug!(%play_id, "a play that had counted before");
                        one.written.results.push((*at, answer));
                        one.todo.retain(|other| *other != place);
                    }
                }
                if one.todo.len() == before {
                    one.try_again();
                }
            }
            Err(TableError::Conflict) => {
                tokio::task::yield_now().await;
                one.try_again();
            }
            Err(error @ TableError::OutcomeUnknown { .. }) => {
                // Either all of it happened or nothing: the last play tells.
                match self.has_happened(board, &user, &attempt).await {
                    Ok(true) => self.settle_written(board, rules, one, attempt).await,
                    Ok(false) => one.fail(&error.into()),
                    Err(Error::Table(_)) => one.fail(&error.into()),
                    Err(damaged) => one.fail(&damaged),
                }
            }
            Err(error) => one.fail(&error.into()),
        }
    }

    async fn settle_written(&self, board: &Board, rules: &Rules, one: &mut Writing, mut attempt: Attempt) {
        for (place, error) in std::mem::take(&mut attempt.refused) {
            // Whatever is wrong with this one, the others are written and the ranking must hear of them.
            let Written { group, results, .. } = &mut one.written;
            let (at, play) = &group.plays[place];
            let counted_later = attempt.records.iter().any(|(_, record)| record.play_id == play.play_id);
            let known = match counted_later {
                true => Ok(None),
                false => self.known(board, &group.user, play, rules.decimals).await,
            };
            results.push((*at, known.and_then(|known| known.ok_or(error))));
        }
        one.settle(rules, attempt);
    }

    /// Whether the plays of an attempt are in the table as it would have put them there.
    async fn has_happened(&self, board: &Board, user: &UserId, attempt: &Attempt) -> Result<bool> {
        let Some((_, last)) = attempt.records.last() else { return Ok(false) };
        let key = PlayRecord::key(user, &board.id, &last.play_id);
        let item = self.table.get(&key, Consistency::Strong).await?;
        let play = item.as_ref().map(PlayRecord::from_item).transpose()?;
        Ok(play.as_ref() == Some(last))
    }

    fn play_item(&self, play: &PlayRecord) -> Item {
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

/// Plays of one user in one season together, in the order in which they came; by season, then by user.
fn group(mut plays: Vec<(UserId, Arc<Live>, usize, Checked)>) -> Vec<Group> {
    plays.sort_by(|(user, live, ..), (other_user, other_live, ..)| {
        let seasons = match Arc::ptr_eq(live, other_live) {
            true => std::cmp::Ordering::Equal,
            false => live.key.cmp(&other_live.key),
        };
        seasons.then_with(|| user.cmp(other_user))
    });
    let mut groups: Vec<Group> = Vec::with_capacity(plays.len());
    for (user, live, at, checked) in plays {
        match groups.last_mut() {
            Some(last) if last.user == user && last.live.key == live.key => last.plays.push((at, checked)),
            _ => groups.push(Group { user, live, plays: vec![(at, checked)] }),
        }
    }
    groups
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
