//! The life of a season: open, closing, final; and at last, when there are too many, gone.
//!
//! What is due follows from the time and from what is in the table, never from a timer: [`Boards::settle`] looks, does what is due, oldest first, and may be
//! called at any time by anyone. A server that was down over three resets settles all three when it is up again.
//!
//! 1. *Closing.* Under the board's gate the season's record says so: every play that counts has counted, and none comes after that. Readers are still
//!    answered by the ranking, which does not change any more.
//! 2. The snapshot is written (`snapshots.rs`), in blocks; after a crash it goes on with the block it was at.
//! 3. *Final.* The record says so; readers are answered by the snapshot, and the ranking lets go of its memory.
//! 4. The live entries are deleted, in pages, found by what is left of them; then the record says that too.
//!
//! Beyond the board's `keep_seasons`, the oldest seasons go: first the record says so, then the rows, in pages. A user's best season stays
//! as their best, without being a row of a list any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::{self, StreamExt as _};
use standings_table::{Error as TableError, Item, Operation, Query, SortRange};

use crate::background;
use crate::deletion::Rows;
use crate::error::{Error, Result};
use crate::ids::{BoardId, Label};
use crate::ranking::SeasonKey;
use crate::records::{Entry, LabelRecord, LadderRecord, SeasonRecord, SeasonState, SnapshotRow, user_of};
use crate::season::SeasonSpan;
use crate::service::{Board, Boards, Live, Shared};
use crate::snapshots::{Past, Record, SnapshotProgress, UnderWay};

/// Boards settled at a time.
const BOARDS_AT_A_TIME: usize = 4;

/// A season as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeasonInfo {
    /// Its name and bounds.
    pub span: SeasonSpan,
    /// Where it is in its life.
    pub state: SeasonState,
    /// Whether it still takes plays.
    pub takes_plays: bool,
    /// How many users have an entry.
    pub players: u64,
    /// How many of them have their final rank written, while it is closing.
    pub done: Option<u64>,
    /// When it took its last play.
    pub closed_at: Option<i64>,
    /// When it became final.
    pub final_at: Option<i64>,
    /// Whether its live entries are gone.
    pub swept: bool,
}

impl Boards {
    /// Does everything that time has made due on any board: closes seasons, takes snapshots, lets go of what is too old. Says how much it did.
    ///
    /// # Errors
    /// The first one; what is due on other boards is done all the same, and what failed is due again.
    pub async fn settle(&self) -> Result<u64> {
        if !self.readiness().ready {
            return Ok(0);
        }
        let now = self.now_us();
        let due = self.shared.all_boards().into_iter().filter(|board| is_due(board, now));
        let settle = |board: Arc<Board>| {
            let shared = self.shared.clone();
            async move {
                // Not in the background: plays wait while it is decided.
                shared.begin_due(&board).await?;
                background::run(async move { shared.settle_board(&board).await }).await
            }
        };
        let mut results = stream::iter(due).map(settle).buffer_unordered(BOARDS_AT_A_TIME);
        let (mut done, mut failed) = (0, None);
        while let Some(result) = results.next().await {
            match result {
                Ok(count) => done += count,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(done), Err)
    }

    /// Ends a season now: no more plays, everybody's rank is final. Returns when it is.
    ///
    /// # Errors
    /// [`Error::UnknownSeason`] if nobody has played in it; what the table says, and then it goes on by itself.
    pub async fn close_season(&self, board: &BoardId, season: &str) -> Result<SeasonInfo> {
        let found = self.shared.find(board)?;
        let state = found.state();
        if state.record.deleted_users.is_some() {
            return Err(Error::BoardBeingDeleted { board: board.clone() });
        }
        let span = state.calendar.season_named(season)?;
        if let Some(live) = found.live_named(&span.season) {
            self.shared.begin_closing(&found, &live).await?;
            let shared = self.shared.clone();
            let board = found.clone();
            // In a task of its own: it is finished also if the caller goes away.
            let closed = tokio::spawn(background::run(async move {
                let _one_at_a_time = board.settling.lock().await;
                match board.live_named(&live.span.season) {
                    Some(live) => shared.close(&board, &live).await,
                    None => Ok(()),
                }
            }));
            closed.await.unwrap_or(Err(Error::Contended))?;
        }
        let info = self.season(board, season).await?;
        match info.state {
            // The season of this moment, which nobody has played in yet: there is nothing to close.
            SeasonState::Open => {
                Err(Error::UnknownSeason { board: board.clone(), season: season.to_owned() })
            }
            SeasonState::Closing | SeasonState::Final => Ok(info),
        }
    }

    /// A board's seasons, newest first: those with entries, the finished ones, and the one of this moment.
    ///
    /// # Errors
    /// [`Error::UnknownBoard`].
    pub async fn seasons(&self, board: &BoardId) -> Result<Vec<SeasonInfo>> {
        let board = self.shared.find(board)?;
        let now = self.now_us();
        let mut seasons: Vec<SeasonInfo> = Vec::new();
        for live in board.live() {
            seasons.push(self.shared.live_info(&board, &live, now).await?);
        }
        for record in board.snapshots.seasons() {
            if !record.removing && !seasons.iter().any(|info| info.span.season == record.season) {
                seasons.extend(final_info(&record));
            }
        }
        let current = board.state().calendar.season_at(now)?;
        if !seasons.iter().any(|info| info.span.season == current.season) {
            seasons.push(empty_info(current));
        }
        seasons.sort_by(|a, b| b.span.season.cmp(&a.span.season));
        Ok(seasons)
    }

    /// One season.
    ///
    /// # Errors
    /// [`Error::UnknownBoard`], [`Error::InvalidSeason`], [`Error::UnknownSeason`].
    pub async fn season(&self, board: &BoardId, season: &str) -> Result<SeasonInfo> {
        self.shared.find(board)?.state().calendar.season_named(season)?;
        let seasons = self.seasons(board).await?;
        let found = seasons.into_iter().find(|info| info.span.season.as_str() == season);
        found.ok_or_else(|| Error::UnknownSeason { board: board.clone(), season: season.to_owned() })
    }

    /// How many seasons of each board are in each state, those on their way out left out.
    pub fn season_counts(&self) -> Vec<(BoardId, [(SeasonState, u64); 3])> {
        let count = |board: Arc<Board>| {
            let live = board.live();
            let closing = live.iter().filter(|live| live.closing.load(Ordering::Acquire)).count();
            let (finished, _) = board.snapshots.season_counts();
            let counts = [
                (SeasonState::Open, (live.len() - closing) as u64),
                (SeasonState::Closing, closing as u64),
                (SeasonState::Final, finished as u64),
            ];
            (board.id.clone(), counts)
        };
        self.shared.all_boards().into_iter().map(count).collect()
    }

    /// How far the snapshots are that are being taken, those of closing seasons included.
    pub fn snapshots_under_way(&self) -> Vec<SnapshotProgress> {
        let mut progress = Vec::new();
        for board in self.shared.all_boards() {
            for (label, done, players) in board.snapshots.all_under_way() {
                progress.push(SnapshotProgress { board: board.id.clone(), label, done, players });
            }
        }
        progress
    }
}

/// Whether there is anything to do on a board.
fn is_due(board: &Board, now: i64) -> bool {
    let state = board.state();
    if state.record.deleted_users.is_some() {
        return false;
    }
    let rules = &state.record.rules;
    let over = |live: &Arc<Live>| live.closing.load(Ordering::Acquire) || !live.span.takes_plays(rules, now);
    board.live().iter().any(over)
        || board.snapshots.has_work()
        || board.snapshots.has_too_many(rules, now)
        || !crate::days::due_days(board, now).is_ok_and(|days| days.is_empty())
}

fn empty_info(span: SeasonSpan) -> SeasonInfo {
    SeasonInfo {
        span,
        state: SeasonState::Open,
        takes_plays: true,
        players: 0,
        done: None,
        closed_at: None,
        final_at: None,
        swept: false,
    }
}

fn final_info(record: &SeasonRecord) -> Option<SeasonInfo> {
    let facts = record.snapshot.as_ref()?;
    Some(SeasonInfo {
        span: record.span(),
        state: SeasonState::Final,
        takes_plays: false,
        players: facts.players,
        done: None,
        closed_at: Some(facts.taken_at),
        final_at: facts.finished_at,
        swept: record.swept,
    })
}

impl Shared {
    async fn live_info(&self, board: &Board, live: &Live, now: i64) -> Result<SeasonInfo> {
        let state = board.state();
        let players = match self.ranking.standings_of(&live.key, &[], state.record.rules.ties).await {
            Ok((_, players)) => players,
            // It has just become final.
            Err(error) => match board.snapshots.of_season(&live.span.season) {
                Some(past) => past.facts.players,
                None => return Err(error),
            },
        };
        let closing = live.closing.load(Ordering::Acquire);
        let label = live.label();
        let closed_at = if closing { self.season_record(&live.key).await? } else { None };
        Ok(SeasonInfo {
            span: live.span.clone(),
            state: if closing { SeasonState::Closing } else { SeasonState::Open },
            takes_plays: !closing && live.span.takes_plays(&state.record.rules, now),
            players,
            done: closing.then(|| board.snapshots.under_way(&label).unwrap_or(0)),
            closed_at: closed_at.and_then(|record| record.snapshot).map(|facts| facts.taken_at),
            final_at: None,
            swept: false,
        })
    }

    /// From now on the seasons that are over take no plays.
    async fn begin_due(&self, board: &Board) -> Result<()> {
        let state = board.state();
        let now = self.clock.now_us();
        for live in board.live() {
            let over = !live.span.takes_plays(&state.record.rules, now);
            if over && !live.closing.load(Ordering::Acquire) {
                self.begin_closing(board, &live).await?;
            }
        }
        Ok(())
    }

    /// Does what is due on a board. What fails does not keep the rest from being done.
    async fn settle_board(&self, board: &Board) -> Result<u64> {
        let _one_at_a_time = board.settling.lock().await;
        if board.state().record.deleted_users.is_some() {
            return Ok(0);
        }
        let (mut done, mut failed) = (0, None);
        let mut note = |result: Result<u64>| match result {
            Ok(count) => done += count,
            Err(error) => failed = failed.take().or(Some(error)),
        };
        for live in board.live() {
            if live.closing.load(Ordering::Acquire) {
                note(self.close(board, &live).await.map(|()| 1));
            }
        }
        for record in board.snapshots.unswept() {
            note(self.sweep(board, &record).await.map(|()| 0));
        }
        note(self.settle_days(board).await);
        note(self.remove_old_seasons(board).await);
        for record in board.snapshots.removed_labels() {
            note(self.remove_label_rows(board, &record).await.map(|()| 1));
        }
        failed.map_or(Ok(done), Err)
    }

    /// From now on a season takes no plays.
    async fn begin_closing(&self, board: &Board, live: &Live) -> Result<()> {
        // Alone: whatever counts has counted, and nothing is on its way.
        let _alone = board.gate.write().await;
        if let Some(record) = self.season_record(&live.key).await?
            && record.snapshot.is_some()
        {
            live.closing.store(true, Ordering::Release);
            return Ok(());
        }
        let state = board.state();
        let players = self.ranking.standings_of(&live.key, &[], state.record.rules.ties).await?.1;
        let facts = self.new_facts(&state, &live.span.season, live.shards, players);
        // Before it is written: if it is not known whether it was, no play may come.
        live.closing.store(true, Ordering::Release);
        let begun = self.change_season(&live.key, |record| {
            let new = record.snapshot.is_none();
            record.snapshot.get_or_insert_with(|| facts.clone());
            new
        });
        match begun.await {
            Ok(_) => {
                tracing::info!(board = %board.id, season = %live.span.season, players, "a season is over");
                Ok(())
            }
            Err(error) => {
                if !matches!(error, Error::Table(TableError::OutcomeUnknown { .. })) {
                    live.closing.store(false, Ordering::Release);
                }
                Err(error)
            }
        }
    }

    /// Writes the snapshot of a season that takes no plays, and lets go of it.
    async fn close(&self, board: &Board, live: &Live) -> Result<()> {
        let season = &live.span.season;
        let label = live.label();
        let Some(record) = self.season_record(&live.key).await? else { return Err(Error::Contended) };
        let Some(facts) = record.snapshot else { return Err(Error::Contended) };
        let Some(under_way) = UnderWay::begin(board, &label, facts.players) else {
            return Err(Error::Contended);
        };
        let mut past = Past { board: board.id.clone(), label, facts };
        if past.facts.finished_at.is_none() {
            let (mut view, players) =
                self.ranking.freeze(&live.key, past.facts.ties, past.facts.done).await?;
            if players != past.facts.players {
                return Err(Error::Damaged {
                    key: SeasonRecord::key(&board.id, season).to_string(),
                    why: "it has other users than when it was closed",
                });
            }
            let record = Record::Season(live.key.clone());
            self.write_snapshot(board, &mut past, &record, &mut *view).await?;
        }
        let record = self.season_record(&live.key).await?.ok_or(Error::Contended)?;
        Shared::count(&self.statistics.seasons_closed, 1);
        board.snapshots.add_season(record.clone());
        board.remove_live(season);
        self.ranking.close(&live.key).await?;
        self.remove_checkpoints(&live.key);
        self.progress.forget_checkpointed(&live.key);
        tracing::info!(board = %board.id, %season, players = past.facts.players, "a season is final");
        drop(under_way);
        self.sweep(board, &record).await
    }

    /// Deletes the live entries of a final season.
    async fn sweep(&self, board: &Board, record: &SeasonRecord) -> Result<()> {
        for shard in 0..record.shards {
            let partition = Entry::partition(&board.id, &record.season, shard);
            self.delete_rows(&partition, Rows::Delete).await?;
        }
        let key = SeasonKey { board: board.id.clone(), season: record.season.clone() };
        let record = self
            .change_season(&key, |record| {
                record.swept = true;
                true
            })
            .await?;
        board.snapshots.add_season(record);
        Ok(())
    }

    /// Lets go of finished seasons beyond those that the board keeps.
    async fn remove_old_seasons(&self, board: &Board) -> Result<u64> {
        let state = board.state();
        let now = self.clock.now_us();
        let (kept, removing) = board.snapshots.season_counts();
        let mut too_many = kept.saturating_sub(state.record.rules.keep_seasons as usize);
        let mut removed = 0;
        if too_many == 0 && removing == 0 {
            return Ok(0);
        }
        for record in board.snapshots.seasons() {
            // One that was closed early stays until its time is over: it must not begin anew.
            if !record.removing && too_many > 0 && !record.span().takes_plays(&state.record.rules, now) {
                too_many -= 1;
                let key = SeasonKey { board: board.id.clone(), season: record.season.clone() };
                let record = self
                    .change_season(&key, |record| {
                        record.removing = true;
                        true
                    })
                    .await?;
                board.snapshots.add_season(record);
            } else if !record.removing {
                continue;
            }
            let Some(facts) = &record.snapshot else { continue };
            let label = Label::stored(record.season.as_str());
            // First of all: from here on nothing may point to the season's plays.
            let until = board.state().record.removed_until.max(Some(record.end_us));
            if board.state().record.removed_until != until {
                self.change_board_record(board, |record| record.removed_until = until).await?;
            }
            let users = self.remove_rows(&board.id, &label, facts.shards, Rows::KeepBest(&board.id)).await?;
            let gone = Operation::delete(SeasonRecord::key(&board.id, &record.season));
            self.table.transact(vec![gone]).await?;
            board.snapshots.remove_season(&record.season);
            removed += 1;
            tracing::info!(board = %board.id, season = %record.season, users, "removed an old season");
        }
        Ok(removed)
    }

    pub(crate) async fn remove_label_rows(&self, board: &Board, record: &LabelRecord) -> Result<()> {
        let users = self.remove_rows(&board.id, &record.label, record.snapshot.shards, Rows::Delete).await?;
        self.table.transact(vec![Operation::delete(LabelRecord::key(&board.id, &record.label))]).await?;
        board.snapshots.remove_label(&record.label);
        tracing::info!(board = %board.id, label = %record.label, users, "removed a snapshot");
        Ok(())
    }

    /// Deletes the rows and the ladder of a snapshot.
    pub(crate) async fn remove_rows(
        &self,
        board: &BoardId,
        label: &Label,
        shards: u32,
        how: Rows<'_>,
    ) -> Result<u64> {
        let mut users = 0;
        for shard in 0..shards {
            let partition = SnapshotRow::partition(board, label, shard);
            users += self.delete_rows(&partition, how).await?;
        }
        while self.table.delete_partition(&LadderRecord::partition(board, label)).await? {}
        Ok(users)
    }

    /// Whether a snapshot's row is its user's best on the board.
    pub(crate) async fn is_best(&self, board: &BoardId, item: &Item) -> Result<bool> {
        let Some(user) = user_of(&item.key) else { return Ok(false) };
        Ok(self.best_of(&user, board).await?.is_some_and(|best| best.key == item.key))
    }

    /// A user's best finished season on a board: a row of `Best`.
    pub(crate) async fn best_of(&self, user: &crate::UserId, board: &BoardId) -> Result<Option<Item>> {
        let mut query = Query::table(format!("USER#{user}"))
            .sort(SortRange::BeginsWith(SnapshotRow::best_prefix(board).into()))
            .limit(1);
        query.index = Some("Best".into());
        loop {
            let page = self.table.query(&query).await?;
            match (page.items.into_iter().next(), page.next) {
                (Some(item), _) => return Ok(Some(item)),
                (None, Some(next)) => query.start_after = Some(next),
                (None, None) => return Ok(None),
            }
        }
    }
}

impl SeasonRecord {
    /// Its name and bounds.
    pub fn span(&self) -> SeasonSpan {
        SeasonSpan { season: self.season.clone(), start_us: self.start_us, end_us: self.end_us }
    }
}

impl Live {
    /// The label its snapshot will have.
    pub(crate) fn label(&self) -> Label {
        Label::stored(self.span.season.as_str())
    }
}
