//! Snapshots: an immutable copy of all entries of a season under a label, with everybody's final rank.
//!
//! The label is the season's own name once it is over (`closing.rs`), a day, or what somebody chose (`days.rs`). A snapshot is one item a user, in the
//! user's own partition, and a ladder. It is written in order of places, block by block; after each block its record says how far it is. What is not
//! complete answers nothing. A copy that a crash interrupts goes on where it was if nothing can have changed (a closed season), and begins anew otherwise.
//!
//! This file writes; `past.rs` reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use standings_table::{Operation, limits};

use crate::board::Rules;
use crate::error::{Error, Result};
use crate::ids::{BoardId, Label, UserId};
use crate::ranking::{FrozenView, Listed, Placed, SeasonKey};
use crate::records::{LabelRecord, LadderRecord, SeasonRecord, SnapshotFacts, SnapshotRow};
use crate::season::Season;
use crate::service::{Board, Shared, State};

/// Users taken from the ranking at a time: changes wait for some tens of microseconds.
const PAGE_USERS: usize = 500;

/// A snapshot: where it is and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) board: BoardId,
    pub(crate) label: Label,
    pub(crate) facts: SnapshotFacts,
}

impl Past {
    fn of_season(record: &SeasonRecord) -> Option<Self> {
        let label = Label::stored(record.season.as_str());
        Some(Self { board: record.board.clone(), label, facts: record.snapshot.clone()? })
    }

    fn of_label(record: &LabelRecord) -> Self {
        Self { board: record.board.clone(), label: record.label.clone(), facts: record.snapshot.clone() }
    }
}

/// How far a snapshot is that is being taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotProgress {
    /// The board.
    pub board: BoardId,
    /// The label.
    pub label: Label,
    /// How many users are copied.
    pub done: u64,
    /// How many there are.
    pub players: u64,
}

/// What a board knows of its snapshots.
#[derive(Default)]
pub(crate) struct Snapshots {
    state: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    seasons: BTreeMap<Season, (SeasonRecord, Arc<Past>)>,
    labels: BTreeMap<Label, (LabelRecord, Arc<Past>)>,
    /// Of those being taken: users copied, and all of them.
    under_way: BTreeMap<Label, (u64, u64)>,
}

impl Snapshots {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A season that is over for good, or what is now known of it.
    pub(crate) fn add_season(&self, record: SeasonRecord) {
        if let Some(past) = Past::of_season(&record) {
            self.known().seasons.insert(record.season.clone(), (record, Arc::new(past)));
        }
    }

    pub(crate) fn remove_season(&self, season: &Season) {
        self.known().seasons.remove(season);
    }

    /// A label, or what is now known of it.
    pub(crate) fn add_label(&self, record: LabelRecord) {
        let past = Arc::new(Past::of_label(&record));
        self.known().labels.insert(record.label.clone(), (record, past));
    }

    pub(crate) fn remove_label(&self, label: &Label) {
        self.known().labels.remove(label);
    }

    pub(crate) fn is_empty(&self) -> bool {
        let known = self.known();
        known.seasons.is_empty() && known.labels.is_empty()
    }

    /// Whether a season is over for good, also if it is being removed.
    pub(crate) fn has_season(&self, season: &Season) -> bool {
        self.known().seasons.contains_key(season)
    }

    /// A finished season.
    pub(crate) fn of_season(&self, season: &Season) -> Option<Arc<Past>> {
        let known = self.known();
        known.seasons.get(season).filter(|(record, _)| !record.removing).map(|(_, past)| past.clone())
    }

    /// A complete snapshot.
    pub(crate) fn of_label(&self, label: &Label) -> Option<Arc<Past>> {
        let known = self.known();
        let complete = |(record, _): &&(LabelRecord, Arc<Past>)| {
            record.snapshot.finished_at.is_some() && !record.removing
        };
        known.labels.get(label).filter(complete).map(|(_, past)| past.clone())
    }

    /// Finished seasons, oldest first, those on their way out included.
    pub(crate) fn seasons(&self) -> Vec<SeasonRecord> {
        self.known().seasons.values().map(|(record, _)| record.clone()).collect()
    }

    /// Labels by name, unfinished ones and those on their way out included.
    pub(crate) fn labels(&self) -> Vec<LabelRecord> {
        self.known().labels.values().map(|(record, _)| record.clone()).collect()
    }

    /// How many finished seasons there are, and how many are on their way out.
    pub(crate) fn season_counts(&self) -> (usize, usize) {
        let known = self.known();
        let removing = known.seasons.values().filter(|(record, _)| record.removing).count();
        (known.seasons.len() - removing, removing)
    }

    /// Whether a snapshot is not complete, or is on its way out, or has left entries behind.
    pub(crate) fn has_work(&self) -> bool {
        let known = self.known();
        let label = |record: &LabelRecord| record.snapshot.finished_at.is_none() || record.removing;
        known.labels.values().any(|(record, _)| label(record))
            || known.seasons.values().any(|(record, _)| !record.swept)
    }

    /// Whether there are more finished seasons than are kept, and one of them may go.
    pub(crate) fn has_too_many(&self, rules: &Rules, now: i64) -> bool {
        let known = self.known();
        let mut kept = known.seasons.values().map(|(record, _)| record).filter(|record| !record.removing);
        kept.clone().count() < known.seasons.len()
            || kept.clone().count() > rules.keep_seasons as usize
                && kept.any(|record| !record.span().takes_plays(rules, now))
    }

    /// One label.
    pub(crate) fn label(&self, label: &Label) -> Option<LabelRecord> {
        self.known().labels.get(label).map(|(record, _)| record.clone())
    }

    /// The newest complete snapshot of a day, or of all if there is none of a day.
    pub(crate) fn latest(&self) -> Option<LabelRecord> {
        let known = self.known();
        let complete = known.labels.values().map(|(record, _)| record);
        let complete = complete.filter(|record| record.snapshot.finished_at.is_some() && !record.removing);
        complete.max_by_key(|record| (record.due_at, record.snapshot.taken_at)).cloned()
    }

    /// The end of the last day before this time of which there is a snapshot, complete or not.
    pub(crate) fn newest_day(&self, now: i64) -> Option<i64> {
        self.known().labels.values().filter_map(|(record, _)| record.due_at).filter(|day| *day <= now).max()
    }

    /// Labels whose snapshot is not complete.
    pub(crate) fn unfinished(&self) -> Vec<LabelRecord> {
        self.labels_that(|record| record.snapshot.finished_at.is_none() && !record.removing)
    }

    /// Labels on their way out.
    pub(crate) fn removed_labels(&self) -> Vec<LabelRecord> {
        self.labels_that(|record| record.removing)
    }

    fn labels_that(&self, wanted: impl Fn(&LabelRecord) -> bool) -> Vec<LabelRecord> {
        let known = self.known();
        known.labels.values().map(|(record, _)| record).filter(|record| wanted(record)).cloned().collect()
    }

    /// Finished seasons whose live entries are not all gone.
    pub(crate) fn unswept(&self) -> Vec<SeasonRecord> {
        let known = self.known();
        let seasons = known.seasons.values().map(|(record, _)| record);
        seasons.filter(|record| !record.swept).cloned().collect()
    }

    /// All snapshots that answer.
    pub(crate) fn complete(&self) -> Vec<Arc<Past>> {
        let known = self.known();
        let seasons = known.seasons.values().filter(|(record, _)| !record.removing).map(|(_, past)| past);
        let labels = known.labels.values().filter(|(record, _)| !record.removing).map(|(_, past)| past);
        seasons.chain(labels).filter(|past| past.facts.finished_at.is_some()).cloned().collect()
    }

    /// What of a snapshot is written already, while it is being taken.
    pub(crate) fn under_way(&self, label: &Label) -> Option<u64> {
        self.known().under_way.get(label).map(|(done, _)| *done)
    }

    /// Label, users copied, all users.
    pub(crate) fn all_under_way(&self) -> Vec<(Label, u64, u64)> {
        let known = self.known();
        known.under_way.iter().map(|(label, (done, players))| (label.clone(), *done, *players)).collect()
    }

    fn note(&self, label: &Label, done: u64) {
        if let Some((noted, _)) = self.known().under_way.get_mut(label) {
            *noted = done;
        }
    }
}

/// How much of a snapshot is handed to the table at a time: while plays come in, so little that they hardly wait behind it.
struct Pace {
    plays: u64,
    /// Rows in a transaction.
    rows: usize,
    /// Transactions under way at a time.
    under_way: usize,
}

impl Pace {
    fn new(shared: &Shared) -> Self {
        Self { plays: shared.statistics.plays.load(Ordering::Relaxed), rows: 0, under_way: 0 }.look(shared)
    }

    #[must_use]
    fn look(self, shared: &Shared) -> Self {
        let plays = shared.statistics.plays.load(Ordering::Relaxed);
        if plays == self.plays {
            Self { plays, rows: limits::TRANSACTION_OPERATIONS_MAX, under_way: 4 }
        } else {
            Self { plays, rows: limits::TRANSACTION_OPERATIONS_MAX / 2, under_way: 1 }
        }
    }
}

/// Says that a snapshot is being taken, for as long as it is.
pub(crate) struct UnderWay<'a> {
    board: &'a Board,
    label: Label,
}

impl<'a> UnderWay<'a> {
    /// Nothing if somebody is taking it already.
    pub(crate) fn begin(board: &'a Board, label: &Label, players: u64) -> Option<Self> {
        let mut known = board.snapshots.known();
        if known.under_way.contains_key(label) {
            return None;
        }
        known.under_way.insert(label.clone(), (0, players));
        Some(Self { board, label: label.clone() })
    }

    /// Says how many users there are.
    pub(crate) fn of(&self, players: u64) {
        if let Some((_, noted)) = self.board.snapshots.known().under_way.get_mut(&self.label) {
            *noted = players;
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.board.snapshots.known().under_way.remove(&self.label);
    }
}

/// Where a snapshot's record is.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// In the season's.
    Season(SeasonKey),
    /// In a record of its own.
    Label,
}

impl Shared {
    /// What is known of a snapshot when it begins.
    pub(crate) fn new_facts(
        &self,
        state: &State,
        season: &Season,
        shards: u32,
        players: u64,
    ) -> SnapshotFacts {
        let rules = &state.record.rules;
        SnapshotFacts {
            season: season.to_string(),
            taken_at: self.clock.now_us(),
            players,
            done: 0,
            finished_at: None,
            shards,
            block: self.settings.snapshot_block.max(1),
            step: self.settings.snapshot_step.max(1),
            official: rules.official,
            order: rules.order,
            ties: rules.ties,
        }
    }

    /// Writes the rows of a snapshot that are not there yet, and says in its record that it is complete.
    pub(crate) async fn write_snapshot(
        &self,
        board: &Board,
        past: &mut Past,
        record: &Record,
        view: &mut dyn FrozenView,
    ) -> Result<()> {
        let begin = std::time::Instant::now();
        let begun_at = past.facts.done;
        if past.facts.done == 0 {
            // Of an attempt that did not get far.
            let ladder = LadderRecord::partition(&past.board, &past.label);
            while self.table.delete_partition(&ladder).await? {}
        }
        self.write_rows(board, past, record, view).await?;
        past.facts.finished_at = Some(self.clock.now_us());
        self.note_snapshot(past, record).await?;
        tracing::info!(
            board = %past.board, label = %past.label, users = past.facts.players,
            users_now = past.facts.players - begun_at, elapsed_ms = begin.elapsed().as_millis() as u64,
            "snapshot complete"
        );
        Ok(())
    }

    async fn write_rows(
        &self,
        board: &Board,
        past: &mut Past,
        record: &Record,
        view: &mut dyn FrozenView,
    ) -> Result<()> {
        let SnapshotFacts { players, block, step, .. } = past.facts;
        let best = matches!(record, Record::Season(_));
        let mut logged = std::time::Instant::now();
        let mut pending: VecDeque<Listed> = VecDeque::new();
        let mut pace = Pace::new(self);
        while past.facts.done < players {
            // One block. What is under way is forgotten if anything fails: it is written again then.
            let mut under_way = FuturesUnordered::new();
            let snapshot: &Past = past;
            let mut done = snapshot.facts.done;
            let block_end = (done / block + 1).saturating_mul(block).min(players);
            let mut ladder = LadderRecord { first: done + 1, scores: Vec::new() };
            let mut chunk: Vec<Listed> = Vec::with_capacity(limits::TRANSACTION_OPERATIONS_MAX);
            while done < block_end {
                let Some(row) = pending.pop_front() else {
                    board.snapshots.note(&past.label, done);
                    if board.state().record.deleted_users.is_some() {
                        return Err(Error::BoardBeingDeleted { board: board.id.clone() });
                    }
                    pending.extend(view.next(PAGE_USERS).await?);
                    if pending.is_empty() {
                        return Err(Error::Damaged {
                            key: format!("the ranking of board {}", past.board),
                            why: "it has fewer users than it had when the snapshot began",
                        });
                    }
                    continue;
                };
                if (row.place - ladder.first).is_multiple_of(step) {
                    ladder.scores.push(row.placed.score);
                }
                done = row.place;
                chunk.push(row);
                if chunk.len() >= pace.rows || done == block_end {
                    under_way.push(self.write_chunk(snapshot, std::mem::take(&mut chunk), best));
                    while under_way.len() >= pace.under_way {
                        under_way.next().await.transpose()?;
                    }
                    pace = pace.look(self);
                }
            }
            while under_way.next().await.transpose()?.is_some() {}
            drop(under_way);
            let item = ladder.to_item(&past.board, &past.label, past.facts.order);
            self.table.transact(vec![Operation::put(item)]).await?;
            past.facts.done = done;
            if done < players {
                self.note_snapshot(past, record).await?;
                if logged.elapsed().as_secs() >= 1 {
                    logged = std::time::Instant::now();
                    tracing::info!(board = %past.board, label = %past.label, done, players, "taking a snapshot");
                }
            }
        }
        Ok(())
    }

    async fn write_chunk(&self, past: &Past, rows: Vec<Listed>, best: bool) -> Result<()> {
        let mut puts = Vec::with_capacity(rows.len());
        let (places, placed): (Vec<(u64, u64)>, Vec<Placed>) =
            rows.into_iter().map(|row| ((row.place, row.better), row.placed)).unzip();
        for ((place, better), row) in places.into_iter().zip(self.name(placed).await?) {
            let row = SnapshotRow {
                user: UserId::new(&row.user)?,
                name: row.name.map(|name| name.to_string()),
                score: row.score,
                reached_at: row.reached_at,
                place,
                rank: row.rank,
                better,
            };
            puts.push(Operation::put(row.to_item(&past.board, &past.label, &past.facts, best)));
        }
        self.table.transact(puts).await?;
        Ok(())
    }

    /// Says in a snapshot's record how far it is.
    async fn note_snapshot(&self, past: &Past, record: &Record) -> Result<()> {
        match record {
            Record::Season(key) => {
                self.change_season(key, |record| {
                    record.snapshot = Some(past.facts.clone());
                    if past.facts.finished_at.is_some() {
                        record.checkpoint = None;
                    }
                    true
                })
                .await?;
            }
            Record::Label => {
                self.change_label(&past.board, &past.label, |record| {
                    record.snapshot = past.facts.clone();
                })
                .await?;
            }
        }
        Ok(())
    }
}
