//! Snapshots of boards that go on: one a day, at the board's midnight, and others when somebody asks.
//!
//! The snapshot of a day is called by that day and shows the standings at its end, as a daily season would. Which days are due follows from those there
//! are: a day that was missed while nobody was up is taken as soon as somebody is, and says when it really was taken. A snapshot that a crash
//! interrupts is taken anew, and says that time.

use std::sync::Arc;

use jiff::civil::Date;
use standings_table::{Condition, Consistency, Error as TableError, Operation};

use crate::background;
use crate::board::{Resets, Rules, Snapshots as Taken};
use crate::error::{Error, Result};
use crate::ids::{BoardId, Label};
use crate::past::{PastPage, PastStart};
use crate::ranking::SeasonKey;
use crate::records::{LabelRecord, SnapshotRow};
use crate::season::{ALL, Calendar, Season, SeasonSpan, format_us};
use crate::service::{ATTEMPTS_MAX, Board, Boards, Shared};
use crate::snapshots::{Past, Record, UnderWay};
use crate::standings::{ListRequest, PAGE_USERS_MAX, invalid};

/// The label that stands for the newest snapshot.
pub const LATEST: &str = "latest";
/// How many missed days are made up for; each costs as much as a snapshot.
const MISSED_DAYS_MAX: usize = 31;

/// A snapshot as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its label.
    pub label: Label,
    /// The season it is a copy of.
    pub season: String,
    /// The midnight it was due at, if it is one of a day.
    pub due_at: Option<i64>,
    /// The moment it shows.
    pub taken_at: i64,
    /// When it was complete; until then it answers nothing.
    pub finished_at: Option<i64>,
    /// How many users it has.
    pub players: u64,
    /// How many of them are copied.
    pub done: u64,
    /// How many places are official.
    pub official: u32,
}

/// A part of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotList {
    /// What is known of the snapshot.
    pub snapshot: SnapshotInfo,
    /// The users, best first.
    pub rows: Vec<SnapshotRow>,
    /// How many the whole list has.
    pub total: u64,
    /// What brings the next page.
    pub next_cursor: Option<String>,
    /// The board's decimals.
    pub decimals: u8,
}

impl Boards {
    /// A board's snapshots, newest first; those of finished seasons are its seasons.
    ///
    /// # Errors
    /// [`Error::UnknownBoard`].
    pub fn snapshots(&self, board: &BoardId) -> Result<Vec<SnapshotInfo>> {
        let board = self.shared.find(board)?;
        let labels = board.snapshots.labels().into_iter().filter(|record| !record.removing);
        let mut found: Vec<SnapshotInfo> = labels.map(|record| info(&board, &record)).collect();
        found.sort_by(|a, b| b.order().cmp(&a.order()));
        Ok(found)
    }

    /// One snapshot; `latest` is the newest complete one of a day, or of all if there is none of a day. A finished season is
    /// one under its own name.
    ///
    /// # Errors
    /// [`Error::UnknownSnapshot`].
    pub fn snapshot(&self, board: &BoardId, label: &str) -> Result<SnapshotInfo> {
        if let Some(past) = self.shared.find(board)?.snapshots.of_season(&Season::stored(label)) {
            return Ok(SnapshotInfo {
                label: past.label.clone(),
                season: past.facts.season.clone(),
                due_at: None,
                taken_at: past.facts.taken_at,
                finished_at: past.facts.finished_at,
                players: past.facts.players,
                done: past.facts.players,
                official: past.facts.official,
            });
        }
        let found = self.shared.find(board)?;
        let record = match label {
            LATEST => found.snapshots.latest(),
            label => found.snapshots.label(&Label::stored(label)),
        };
        let record = record.filter(|record| !record.removing);
        record
            .map(|record| info(&found, &record))
            .ok_or_else(|| Error::UnknownSnapshot { board: board.clone(), label: label.to_owned() })
    }

    /// Takes a snapshot now, under a label or, without one, under the time. Returns when its moment is fixed; the copy is made in the background.
    ///
    /// # Errors
    /// [`Error::InvalidSnapshot`] for a label that means something else, [`Error::SnapshotExists`], [`Error::UnknownSeason`] if nobody has played.
    pub async fn take_snapshot(&self, board: &BoardId, label: Option<Label>) -> Result<SnapshotInfo> {
        let found = self.shared.find(board)?;
        if found.state().record.deleted_users.is_some() {
            return Err(Error::BoardBeingDeleted { board: board.clone() });
        }
        let now = self.now_us();
        let label = match label {
            Some(label) => label,
            None => Label::new(format_us(now).replace(':', ""))?,
        };
        if let Some(why) = reserved(&label) {
            return Err(Error::InvalidSnapshot { why });
        }
        let season = found.state().calendar.season_at(now)?.season;
        let (taken, started) = tokio::sync::oneshot::channel();
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let (board, under) = (found.clone(), label.clone());
            let take = async move { shared.take(&board, &under, None, &season, Some(taken)).await };
            if let Err(error) = background::run(take).await {
                tracing::warn!(%error, board = %found.id, %label, "taking a snapshot stopped; it is taken anew later");
            }
        });
        let label = started.await.unwrap_or(Err(Error::Contended))?;
        self.snapshot(board, label.as_str())
    }

    /// Deletes a snapshot, in the background.
    ///
    /// # Errors
    /// [`Error::UnknownSnapshot`]; [`Error::InvalidSnapshot`] while it is being taken; what the table says.
    pub async fn delete_snapshot(&self, board: &BoardId, label: &Label) -> Result<()> {
        let found = self.shared.find(board)?;
        let unknown = || Error::UnknownSnapshot { board: board.clone(), label: label.to_string() };
        if found.snapshots.under_way(label).is_some() {
            return Err(Error::InvalidSnapshot { why: "is being taken; delete it when it is complete" });
        }
        let known = found.snapshots.label(label);
        let known = known.filter(|record| !record.removing).ok_or_else(unknown)?;
        if let Some(day) = known.due_at {
            // Or it would be due again.
            let last_day = found.state().record.last_day.max(Some(day));
            self.shared.change_board_record(&found, |record| record.last_day = last_day).await?;
        }
        let record = self.shared.change_label(board, label, |record| record.removing = true).await?;
        found.snapshots.add_label(record.clone());
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let (board, label) = (found.clone(), record.label.clone());
            let remove = async move {
                let _one_at_a_time = board.settling.lock().await;
                shared.remove_label_rows(&board, &record).await
            };
            if let Err(error) = background::run(remove).await {
                tracing::warn!(%error, board = %found.id, %label, "removing a snapshot stopped; it goes on later");
            }
        });
        Ok(())
    }

    /// The official places of a snapshot, best first: one query.
    ///
    /// # Errors
    /// [`Error::UnknownSnapshot`], or what the table says.
    pub async fn snapshot_official(&self, board: &BoardId, label: &str) -> Result<SnapshotList> {
        let (found, past, snapshot) = self.past(board, label)?;
        let rows = self.shared.past_official(&past).await?;
        let decimals = found.state().record.rules.decimals;
        Ok(SnapshotList { snapshot, total: rows.len() as u64, rows, next_cursor: None, decimals })
    }

    /// A page of a snapshot: places after the official ones, unless it is said where to begin or which scores.
    ///
    /// # Errors
    /// [`Error::UnknownSnapshot`], [`Error::InvalidCursor`], [`Error::InvalidQuestion`], or what the table says.
    pub async fn snapshot_list(
        &self,
        board: &BoardId,
        label: &str,
        request: &ListRequest,
    ) -> Result<SnapshotList> {
        let (found, past, snapshot) = self.past(board, label)?;
        let rules = &found.state().record.rules;
        let key = SeasonKey { board: board.clone(), season: Season::stored(&format!("#{}", past.label)) };
        let limit = request.limit.unwrap_or(10);
        if !(1..=PAGE_USERS_MAX).contains(&limit) {
            return invalid("page_size", format!("must be 1 to {PAGE_USERS_MAX}"));
        }
        let range = request.range(rules.decimals)?;
        let start = match (&request.cursor, request.from_rank) {
            (Some(_), Some(_)) => return invalid("from_rank", "cannot be combined with cursor".to_owned()),
            (Some(text), None) => PastStart::After(crate::cursor::decode(&key, text)?),
            (None, Some(0)) => return invalid("from_rank", "must be 1 or more".to_owned()),
            (None, Some(_)) if range.is_some() => {
                return invalid("from_rank", "cannot be combined with min_score or max_score".to_owned());
            }
            (None, Some(rank)) => PastStart::Position(rank - 1),
            (None, None) if range.is_some() => PastStart::Position(0),
            (None, None) => PastStart::Position(u64::from(past.facts.official)),
        };
        let PastPage { rows, total, more } = self.shared.past_page(&past, start, range, limit as u64).await?;
        let last = more.then(|| rows.last()).flatten();
        let next_cursor = last.map(|row| crate::cursor::encode(&key, &crate::standings::mark_of_past(row)));
        Ok(SnapshotList { snapshot, rows, total, next_cursor, decimals: rules.decimals })
    }

    fn past(&self, board: &BoardId, label: &str) -> Result<(Arc<Board>, Arc<Past>, SnapshotInfo)> {
        let found = self.shared.find(board)?;
        if found.state().record.deleted_users.is_some() {
            return Err(Error::BoardBeingDeleted { board: board.clone() });
        }
        let not_ready = |done, players| Error::SnapshotNotReady { label: label.to_owned(), done, players };
        let snapshot = match self.snapshot(board, label) {
            Ok(snapshot) => snapshot,
            // A season that is closing is a snapshot soon.
            Err(error) => {
                let mut under_way = found.snapshots.all_under_way().into_iter();
                let taken = under_way.find(|(taken, _, _)| taken.as_str() == label);
                return Err(taken.map_or(error, |(_, done, players)| not_ready(done, players)));
            }
        };
        if snapshot.finished_at.is_none() {
            return Err(not_ready(snapshot.done, snapshot.players));
        }
        let past = found.snapshots.of_season(&Season::stored(snapshot.label.as_str()));
        let past = past
            .or_else(|| found.snapshots.of_label(&snapshot.label))
            .ok_or_else(|| Error::UnknownSnapshot { board: board.clone(), label: label.to_owned() })?;
        Ok((found, past, snapshot))
    }
}

impl SnapshotInfo {
    fn order(&self) -> (i64, &Label) {
        (self.due_at.unwrap_or(self.taken_at), &self.label)
    }
}

fn info(board: &Board, record: &LabelRecord) -> SnapshotInfo {
    let facts = &record.snapshot;
    SnapshotInfo {
        label: record.label.clone(),
        season: facts.season.clone(),
        due_at: record.due_at,
        taken_at: facts.taken_at,
        finished_at: facts.finished_at,
        players: facts.players,
        done: board.snapshots.under_way(&record.label).unwrap_or(facts.done),
        official: facts.official,
    }
}

/// Why a label cannot be chosen.
fn reserved(label: &Label) -> Option<&'static str> {
    let label = label.as_str();
    if label.parse::<Date>().is_ok() || format!("{label}-01").parse::<Date>().is_ok() {
        return Some("must not be a date or a month: days and seasons are called so");
    }
    [ALL, LATEST].contains(&label).then_some("must not be `all` or `latest`, which mean something else")
}

impl Shared {
    /// Takes the snapshots that are due, and those that a crash has interrupted.
    pub(crate) async fn settle_days(&self, board: &Board) -> Result<u64> {
        let mut taken = 0;
        for record in board.snapshots.unfinished() {
            if board.snapshots.under_way(&record.label).is_none() {
                let season = Season::stored(&record.snapshot.season);
                if board.live_named(&season).is_none() {
                    // What it was to be a copy of is gone.
                    tracing::warn!(board = %board.id, label = %record.label, "a snapshot of a season that is over is dropped");
                    let record = self.change_label(&board.id, &record.label, |r| r.removing = true).await?;
                    board.snapshots.add_label(record);
                    continue;
                }
                self.take(board, &record.label, record.due_at, &season, None).await?;
                taken += 1;
            }
        }
        let due = due_days(board, self.clock.now_us())?;
        let season = Season::stored(ALL);
        if let (Some(last), None) = (due.last(), board.live_named(&season)) {
            // Nobody has played: those days have nothing to show, also when somebody plays later.
            let last_day = Some(last.end_us);
            self.change_board_record(board, |record| record.last_day = last_day).await?;
            return Ok(taken);
        }
        for day in due {
            self.take(board, &Label::stored(day.season.as_str()), Some(day.end_us), &season, None).await?;
            taken += 1;
        }
        Ok(taken)
    }

    /// Takes a snapshot; `started` hears when its moment is fixed, or why not.
    async fn take(
        &self,
        board: &Board,
        label: &Label,
        due_at: Option<i64>,
        season: &Season,
        started: Option<tokio::sync::oneshot::Sender<Result<Label>>>,
    ) -> Result<()> {
        let begun = self.begin_taking(board, label, due_at, season).await;
        let answer = begun.as_ref().map(|_| label.clone()).map_err(Clone::clone);
        if let Some(started) = started {
            let refused = answer.is_err();
            // Whoever asked may have gone away.
            let _ = started.send(answer);
            if refused {
                return Ok(());
            }
        }
        let (_under_way, mut past, mut view) = begun?;
        self.write_snapshot(board, &mut past, &Record::Label, &mut *view).await?;
        board.snapshots.add_label(self.label_record(&board.id, label).await?.ok_or(Error::Contended)?);
        Shared::count(&self.statistics.snapshots, 1);
        Ok(())
    }

    async fn begin_taking<'a>(
        &self,
        board: &'a Board,
        label: &Label,
        due_at: Option<i64>,
        season: &Season,
    ) -> Result<(UnderWay<'a>, Past, Box<dyn crate::ranking::FrozenView>)> {
        let exists = || Error::SnapshotExists { board: board.id.clone(), label: label.to_string() };
        let under_way = UnderWay::begin(board, label, 0).ok_or_else(exists)?;
        if board.state().record.deleted_users.is_some() {
            return Err(Error::BoardBeingDeleted { board: board.id.clone() });
        }
        let live = board
            .live_named(season)
            .ok_or_else(|| Error::UnknownSeason { board: board.id.clone(), season: season.to_string() })?;
        let state = board.state();
        let (view, players) = self.ranking.freeze(&live.key, state.record.rules.ties, 0).await?;
        under_way.of(players);
        let facts = self.new_facts(&state, season, live.shards, players);
        let record = LabelRecord {
            board: board.id.clone(),
            label: label.clone(),
            due_at,
            snapshot: facts.clone(),
            removing: false,
            version: 1,
        };
        match self.table.transact(vec![Operation::put_if(record.to_item(), Condition::Absent)]).await {
            Ok(_) => board.snapshots.add_label(record),
            Err(TableError::ConditionFailed { .. }) => {
                // Left by an attempt that was interrupted: this is the next one. A complete one stays.
                let stored = self.label_record(&board.id, label).await?.ok_or(Error::Contended)?;
                if stored.snapshot.finished_at.is_some() || stored.removing {
                    board.snapshots.add_label(stored);
                    return Err(exists());
                }
                let record =
                    self.change_label(&board.id, label, |record| record.snapshot = facts.clone()).await?;
                board.snapshots.add_label(record);
            }
            Err(error) => return Err(error.into()),
        }
        tracing::info!(board = %board.id, %label, players, "taking a snapshot");
        Ok((under_way, Past { board: board.id.clone(), label: label.clone(), facts }, view))
    }

    async fn label_record(&self, board: &BoardId, label: &Label) -> Result<Option<LabelRecord>> {
        let item = self.table.get(&LabelRecord::key(board, label), Consistency::Strong).await?;
        item.as_ref().map(LabelRecord::from_item).transpose()
    }

    /// Changes a label's record, after as many attempts as it takes.
    pub(crate) async fn change_label(
        &self,
        board: &BoardId,
        label: &Label,
        change: impl Fn(&mut LabelRecord),
    ) -> Result<LabelRecord> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(mut record) = self.label_record(board, label).await? else {
                return Err(Error::UnknownSnapshot { board: board.clone(), label: label.to_string() });
            };
            let condition = Condition::VersionEquals(record.version);
            change(&mut record);
            record.version += 1;
            match self.table.transact(vec![Operation::put_if(record.to_item(), condition)]).await {
                Ok(_) => return Ok(record),
                Err(TableError::ConditionFailed { .. } | TableError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }
}

/// The days whose snapshot should be there and is not, oldest first. Without any snapshot yet that is the last one, if the board was there then.
pub(crate) fn due_days(board: &Board, now: i64) -> Result<Vec<SeasonSpan>> {
    let record = board.state().record.clone();
    if !record.takes_days() {
        return Ok(Vec::new());
    }
    let days = Calendar::new(&Rules { resets: Resets::Daily, snapshots: Taken::None, ..record.rules })?;
    // A clock that was ahead once does not stop the days to come.
    let newest = board.snapshots.newest_day(now).max(record.last_day.filter(|day| *day <= now));
    let mut due = Vec::new();
    let mut day = days.season_at(now)?;
    loop {
        day = days.season_at(day.start_us - 1)?;
        let taken = newest.is_some_and(|newest| day.end_us <= newest);
        let too_old = newest.is_none() && (!due.is_empty() || day.end_us <= record.created_at);
        if taken || too_old || due.len() == MISSED_DAYS_MAX {
            due.reverse();
            return Ok(due);
        }
        // In another time zone the same day ends at another time.
        if board.snapshots.label(&Label::stored(day.season.as_str())).is_none() {
            due.push(day.clone());
        }
    }
}
