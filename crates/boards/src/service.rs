//! [`Boards`]: everything the rules need at hand, and the boards themselves: made, changed, listed.
//!
//! Boards and their seasons are read from the table once, at the start, and kept here. Who changes one changes the table first, under the
//! condition that it is as it was read. A play holds its board's gate shared; a change of rules and a deletion hold it alone, so no play
//! is folded by rules that are just being replaced.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use standings_table::{
    Clock, Condition, Consistency, Error as TableError, Item, Operation, Query, SortRange, Table,
};
use tokio::sync::RwLock as Gate;

use crate::background::to_its_end;
use crate::board::Rules;
use crate::error::{Error, Result};
use crate::ids::BoardId;
use crate::locks::UserLocks;
use crate::log::PlayLog;
use crate::names::Names;
use crate::ranking::{MemoryRanking, Ranking, SeasonKey};
use crate::records::{self, BoardRecord, LabelRecord, SeasonRecord, SeasonState};
use crate::season::{Calendar, Season, SeasonSpan};
use crate::snapshots::Snapshots;

/// The board that is there from the start.
pub const DEFAULT_BOARD: &str = "default";
/// How often a change is tried again when others change the same item.
pub(crate) const ATTEMPTS_MAX: usize = 10;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// How the rules are run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where checkpoints of rankings are kept; nothing keeps none.
    pub checkpoints: Option<PathBuf>,
    /// How many days plays are kept; nothing keeps them for good.
    pub plays_keep_days: Option<u32>,
    /// How far in the future a play may lie, for clocks that differ a little.
    pub skew_us: i64,
    /// How many places of a snapshot are written before it is noted how far it is; an item of its ladder covers as many.
    pub snapshot_block: u64,
    /// How many places lie between two scores of a snapshot's ladder.
    pub snapshot_step: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            checkpoints: None,
            plays_keep_days: None,
            skew_us: 5_000_000,
            snapshot_block: 65_536,
            snapshot_step: 256,
        }
    }
}

/// What has happened since the start.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Plays that counted.
    pub plays: AtomicU64,
    /// Plays that had counted before.
    pub duplicates: AtomicU64,
    /// Times another writer was first and a play was tried again.
    pub conflicts: AtomicU64,
    /// Checkpoints written.
    pub checkpoints: AtomicU64,
    /// Checkpoints that could not be written.
    pub checkpoint_failures: AtomicU64,
    /// Seasons that became final.
    pub seasons_closed: AtomicU64,
    /// Snapshots taken of days and under labels.
    pub snapshots: AtomicU64,
}

/// The rules at work. Cheap to clone.
#[derive(Clone)]
pub struct Boards {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) table: Arc<dyn Table>,
    pub(crate) ranking: Arc<dyn Ranking>,
    pub(crate) memory: Arc<MemoryRanking>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) boards: RwLock<Map<BoardId, Arc<Board>>>,
    pub(crate) locks: UserLocks,
    pub(crate) names: Names,
    pub(crate) log: PlayLog,
    pub(crate) statistics: Statistics,
    pub(crate) requests_under_way: AtomicU64,
    pub(crate) progress: crate::recovery::Progress,
    /// Plays may be filed before this time of the log; see `LogRecord`.
    pub(crate) log_until: AtomicI64,
    pub(crate) extending: tokio::sync::Mutex<()>,
    /// One change of the set of boards at a time.
    changing: tokio::sync::Mutex<()>,
}

/// A board as it is at work.
pub(crate) struct Board {
    pub(crate) id: BoardId,
    state: RwLock<Arc<State>>,
    pub(crate) gate: Gate<()>,
    seasons: RwLock<BTreeMap<Season, Arc<Live>>>,
    /// Snapshots that are complete, and those being taken: what is known of them, not their rows.
    pub(crate) snapshots: Snapshots,
    /// One at a time does what time has made due.
    pub(crate) settling: tokio::sync::Mutex<()>,
    /// The season that was asked for last: almost always the one asked for next.
    recent: RwLock<Option<Arc<Live>>>,
    opening: tokio::sync::Mutex<()>,
}

/// A board's rules with what follows from them.
pub(crate) struct State {
    pub(crate) record: BoardRecord,
    pub(crate) calendar: Calendar,
}

/// A season at work.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) key: SeasonKey,
    pub(crate) span: SeasonSpan,
    pub(crate) shards: u32,
    /// Set once it takes no more plays; under the board's gate.
    pub(crate) closing: AtomicBool,
}

impl Board {
    pub(crate) fn new(record: BoardRecord) -> Result<Self> {
        let calendar = Calendar::new(&record.rules)?;
        Ok(Self {
            id: record.board.clone(),
            state: RwLock::new(Arc::new(State { record, calendar })),
            gate: Gate::default(),
            seasons: RwLock::default(),
            snapshots: Snapshots::default(),
            settling: tokio::sync::Mutex::default(),
            recent: RwLock::default(),
            opening: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace(&self, record: BoardRecord) -> Result<()> {
        let calendar = Calendar::new(&record.rules)?;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // Of two changes, the later one may get here first.
        if record.version >= state.record.version {
            *state = Arc::new(State { record, calendar });
        }
        Ok(())
    }

    /// The seasons that have entries, oldest first.
    pub(crate) fn live(&self) -> Vec<Arc<Live>> {
        self.seasons.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn live_named(&self, season: &Season) -> Option<Arc<Live>> {
        self.seasons.read().unwrap_or_else(PoisonError::into_inner).get(season).cloned()
    }

    /// The season of a moment, if it has entries and was the one asked for last.
    pub(crate) fn recent(&self, time_us: i64) -> Option<Arc<Live>> {
        let recent = self.recent.read().unwrap_or_else(PoisonError::into_inner);
        recent.as_ref().filter(|live| live.span.contains(time_us)).cloned()
    }

    pub(crate) fn add_live(&self, live: Arc<Live>) {
        let mut seasons = self.seasons.write().unwrap_or_else(PoisonError::into_inner);
        seasons.insert(live.span.season.clone(), live.clone());
        drop(seasons);
        *self.recent.write().unwrap_or_else(PoisonError::into_inner) = Some(live);
    }

    pub(crate) fn remove_live(&self, season: &Season) {
        self.seasons.write().unwrap_or_else(PoisonError::into_inner).remove(season);
        let mut recent = self.recent.write().unwrap_or_else(PoisonError::into_inner);
        recent.take_if(|live| live.span.season == *season);
    }
}

impl Boards {
    /// Takes up the boards in a table, making the default one if there are none. Rankings are not loaded yet:
    /// every question about them is refused until [`Boards::load`] is done.
    ///
    /// # Errors
    /// What the table says; [`Error::Damaged`] for an item that is none of ours.
    pub async fn open(table: Arc<dyn Table>, clock: Arc<dyn Clock>, settings: Settings) -> Result<Self> {
        let memory = Arc::new(MemoryRanking::new());
        // Before the default board is made, by which a new table is known.
        let names = Names::open(&*table).await?;
        let shared = Shared {
            table,
            ranking: memory.clone(),
            memory,
            clock,
            settings,
            boards: RwLock::default(),
            locks: UserLocks::new(),
            names,
            log: PlayLog::default(),
            statistics: Statistics::default(),
            requests_under_way: AtomicU64::new(0),
            progress: crate::recovery::Progress::default(),
            log_until: AtomicI64::new(i64::MIN),
            extending: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        };
        let boards = Self { shared: Arc::new(shared) };
        for item in boards.shared.list(records::BOARDS).await? {
            boards.take_up(item).await?;
        }
        let default = BoardId::new(DEFAULT_BOARD)?;
        if boards.shared.find(&default).is_err() {
            boards.create_board(&default, Rules::of_default_board()).await?;
        }
        Ok(boards)
    }

    async fn take_up(&self, record: BoardRecord) -> Result<()> {
        let shared = &self.shared;
        let board = Board::new(record)?;
        let order = board.state().record.rules.order;
        for item in shared.all_of(&board.id, SeasonRecord::PREFIX).await? {
            let record = SeasonRecord::from_item(&item)?;
            if record.state() == SeasonState::Final {
                board.snapshots.add_season(record);
            } else {
                let live = Arc::new(Live::of(&record));
                shared.memory.begin_loading(&live.key, order);
                board.add_live(live);
            }
        }
        for item in shared.all_of(&board.id, LabelRecord::PREFIX).await? {
            board.snapshots.add_label(LabelRecord::from_item(&item)?);
        }
        shared.write_boards().insert(board.id.clone(), Arc::new(board));
        Ok(())
    }

    /// The time now, in microseconds since 1970.
    pub fn now_us(&self) -> i64 {
        self.shared.clock.now_us()
    }

    /// What has happened since the start.
    pub fn statistics(&self) -> &Statistics {
        &self.shared.statistics
    }

    /// Requests with plays that have begun and are not finished, whether or not their callers are still there.
    pub fn plays_under_way(&self) -> u64 {
        self.shared.requests_under_way.load(Ordering::SeqCst)
    }

    /// The rankings, for those who watch over their memory.
    pub fn memory(&self) -> &MemoryRanking {
        &self.shared.memory
    }

    /// The table.
    pub fn table(&self) -> &Arc<dyn Table> {
        &self.shared.table
    }

    /// All boards, by name.
    pub fn boards(&self) -> Vec<BoardRecord> {
        let boards = self.shared.boards.read().unwrap_or_else(PoisonError::into_inner);
        let mut records: Vec<BoardRecord> =
            boards.values().map(|board| board.state().record.clone()).collect();
        records.sort_by(|a, b| a.board.cmp(&b.board));
        records
    }

    /// One board.
    ///
    /// # Errors
    /// [`Error::UnknownBoard`].
    pub fn board(&self, board: &BoardId) -> Result<BoardRecord> {
        Ok(self.shared.find(board)?.state().record.clone())
    }

    /// Makes a board, or gives one other rules. Says whether it was made.
    ///
    /// # Errors
    /// [`Error::InvalidRules`], [`Error::RuleFixed`], [`Error::BoardBeingDeleted`], or what the table says.
    pub async fn put_board(&self, board: &BoardId, rules: Rules) -> Result<(BoardRecord, bool)> {
        let (boards, board) = (self.clone(), board.clone());
        to_its_end(async move { boards.put_board_now(&board, rules).await }).await
    }

    async fn put_board_now(&self, board: &BoardId, rules: Rules) -> Result<(BoardRecord, bool)> {
        rules.check()?;
        let changing = self.shared.changing.lock().await;
        match self.shared.find(board) {
            Ok(_) => {
                drop(changing);
                Ok((self.change_board_now(board, |_| Ok(rules.clone())).await?, false))
            }
            Err(Error::UnknownBoard { .. }) => Ok((self.create_board(board, rules).await?, true)),
            Err(error) => Err(error),
        }
    }

    /// Makes a board; whoever calls this holds `changing` or is alone.
    async fn create_board(&self, board: &BoardId, rules: Rules) -> Result<BoardRecord> {
        let record = BoardRecord {
            board: board.clone(),
            rules,
            created_at: self.now_us(),
            version: 1,
            deleted_users: None,
            removed_until: None,
            last_day: None,
        };
        let put = Operation::put_if(record.to_item(), Condition::Absent);
        match self.shared.table.transact(vec![put]).await {
            Ok(_) => {}
            Err(standings_table::Error::ConditionFailed { .. }) => {
                // The list of boards lags behind the boards themselves: this one is there already.
                let item = self.shared.table.get(&BoardRecord::key(board), Consistency::Strong).await?;
                let record = BoardRecord::from_item(&item.ok_or(Error::Contended)?)?;
                self.take_up(record.clone()).await?;
                return Ok(record);
            }
            Err(error) => return Err(error.into()),
        }
        self.shared.write_boards().insert(board.clone(), Arc::new(Board::new(record.clone())?));
        tracing::info!(%board, "made a board");
        Ok(record)
    }

    /// Gives a board other rules.
    ///
    /// # Errors
    /// As [`Boards::put_board`], and what `change` says.
    pub async fn change_board(
        &self,
        board: &BoardId,
        change: impl Fn(&Rules) -> Result<Rules> + Send + 'static,
    ) -> Result<BoardRecord> {
        let (boards, board) = (self.clone(), board.clone());
        to_its_end(async move { boards.change_board_now(&board, change).await }).await
    }

    async fn change_board_now(
        &self,
        board: &BoardId,
        change: impl Fn(&Rules) -> Result<Rules> + Send,
    ) -> Result<BoardRecord> {
        let found = self.shared.find(board)?;
        let _alone = found.gate.write().await;
        let old = found.state().record.clone();
        if old.deleted_users.is_some() {
            return Err(Error::BoardBeingDeleted { board: board.clone() });
        }
        let rules = change(&old.rules)?;
        rules.check()?;
        if !found.live().is_empty() || !found.snapshots.is_empty() || old.removed_until.is_some() {
            old.rules.check_change(&rules)?;
        }
        if rules == old.rules {
            return Ok(old);
        }
        // Days before it was switched on are none of its business.
        let begins = rules.snapshots == crate::Snapshots::Daily && old.rules.snapshots != rules.snapshots;
        let last_day = if begins { old.last_day.max(Some(self.now_us())) } else { old.last_day };
        let record = BoardRecord { rules, last_day, version: old.version + 1, ..old.clone() };
        self.shared.put_board_record(&found, &old, &record).await?;
        tracing::info!(%board, "changed a board's rules");
        Ok(record)
    }
}

impl Live {
    pub(crate) fn of(record: &SeasonRecord) -> Self {
        let span =
            SeasonSpan { season: record.season.clone(), start_us: record.start_us, end_us: record.end_us };
        let key = SeasonKey { board: record.board.clone(), season: record.season.clone() };
        let closing = AtomicBool::new(record.snapshot.is_some());
        Self { key, span, shards: record.shards, closing }
    }
}

impl Shared {
    pub(crate) fn find(&self, board: &BoardId) -> Result<Arc<Board>> {
        let boards = self.boards.read().unwrap_or_else(PoisonError::into_inner);
        boards.get(board).cloned().ok_or_else(|| Error::UnknownBoard { board: board.clone() })
    }

    pub(crate) fn all_boards(&self) -> Vec<Arc<Board>> {
        self.boards.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn write_boards(&self) -> std::sync::RwLockWriteGuard<'_, Map<BoardId, Arc<Board>>> {
        self.boards.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All items of a board whose sort key begins so.
    pub(crate) async fn all_of(&self, board: &BoardId, prefix: &str) -> Result<Vec<Item>> {
        let mut query =
            Query::table(SeasonRecord::partition(board)).sort(SortRange::BeginsWith(prefix.into()));
        let mut items = Vec::new();
        loop {
            let page = self.table.query(&query).await?;
            items.extend(page.items);
            match page.next {
                Some(next) => query.start_after = Some(next),
                None => return Ok(items),
            }
        }
    }

    /// All boards of the table. The index is eventual, so each is read again.
    async fn list(&self, partition: &str) -> Result<Vec<BoardRecord>> {
        let mut query = Query::index("ByData", partition);
        let mut found = Vec::new();
        loop {
            let page = self.table.query(&query).await?;
            for item in &page.items {
                if let Some(item) = self.table.get(&item.key, Consistency::Strong).await? {
                    found.push(BoardRecord::from_item(&item)?);
                }
            }
            match page.next {
                Some(next) => query.start_after = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// The season of a play: known already, or made now.
    pub(crate) async fn live_at(&self, board: &Board, state: &State, time_us: i64) -> Result<Arc<Live>> {
        if let Some(live) = board.recent(time_us) {
            return Ok(live);
        }
        let span = state.calendar.season_at(time_us)?;
        if let Some(live) = board.live_named(&span.season) {
            // Not made the recent one: late plays must not push out the current season.
            return Ok(live);
        }
        let _one_at_a_time = board.opening.lock().await;
        if let Some(live) = board.live_named(&span.season) {
            return Ok(live);
        }
        let record = SeasonRecord {
            board: board.id.clone(),
            season: span.season.clone(),
            start_us: span.start_us,
            end_us: span.end_us,
            shards: records::ENTRY_SHARDS,
            checkpoint: None,
            snapshot: None,
            swept: false,
            removing: false,
            version: 1,
        };
        let put = Operation::put_if(record.to_item(), Condition::Absent);
        let record = match self.table.transact(vec![put]).await {
            Ok(_) => record,
            Err(standings_table::Error::ConditionFailed { .. }) => {
                let key = SeasonRecord::key(&board.id, &span.season);
                let item = self.table.get(&key, Consistency::Strong).await?;
                SeasonRecord::from_item(&item.ok_or(Error::Contended)?)?
            }
            Err(error) => return Err(error.into()),
        };
        if record.snapshot.is_some() {
            return Err(closed(board, state, &span));
        }
        let live = Arc::new(Live::of(&record));
        self.ranking.open(&live.key, state.record.rules.order).await?;
        board.add_live(live.clone());
        tracing::info!(board = %board.id, season = %live.span.season, "a season begins");
        Ok(live)
    }

    /// Changes a season's record, after as many attempts as it takes. Nothing is written if `change` says no.
    pub(crate) async fn change_season(
        &self,
        season: &SeasonKey,
        change: impl Fn(&mut SeasonRecord) -> bool,
    ) -> Result<SeasonRecord> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(mut record) = self.season_record(season).await? else { return Err(Error::Contended) };
            if !change(&mut record) {
                return Ok(record);
            }
            let condition = Condition::VersionEquals(record.version);
            record.version += 1;
            match self.table.transact(vec![Operation::put_if(record.to_item(), condition)]).await {
                Ok(_) => return Ok(record),
                Err(TableError::ConditionFailed { .. } | TableError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }

    /// Puts a board's new record in place of the old one, in the table and then here.
    pub(crate) async fn put_board_record(
        &self,
        board: &Board,
        old: &BoardRecord,
        new: &BoardRecord,
    ) -> Result<()> {
        let put = Operation::put_if(new.to_item(), Condition::VersionEquals(old.version));
        match self.table.transact(vec![put]).await {
            Ok(_) => board.replace(new.clone()),
            Err(error) => {
                // Others were first, or it is not known who was: what is in the table counts.
                if let Ok(Some(item)) =
                    self.table.get(&BoardRecord::key(&board.id), Consistency::Strong).await
                {
                    board.replace(BoardRecord::from_item(&item)?)?;
                }
                match error {
                    TableError::ConditionFailed { .. } => Err(Error::Contended),
                    error => Err(error.into()),
                }
            }
        }
    }

    /// Changes a board's record, after as many attempts as it takes, if there is one. Rules are changed by [`Boards::change_board`] alone.
    pub(crate) async fn change_board_record(
        &self,
        board: &Board,
        change: impl Fn(&mut BoardRecord),
    ) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let item = self.table.get(&BoardRecord::key(&board.id), Consistency::Strong).await?;
            let Some(item) = item else { return Ok(()) };
            let mut record = BoardRecord::from_item(&item)?;
            let condition = Condition::VersionEquals(record.version);
            change(&mut record);
            record.version += 1;
            match self.table.transact(vec![Operation::put_if(record.to_item(), condition)]).await {
                Ok(_) => return board.replace(record),
                Err(TableError::ConditionFailed { .. } | TableError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }

    pub(crate) fn count(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// Why a play of a season that takes none is refused.
pub(crate) fn closed(board: &Board, state: &State, span: &SeasonSpan) -> Error {
    // Somebody may have closed it before its time.
    let closed_at = board.snapshots.of_season(&span.season).map(|past| past.facts.taken_at);
    let early = closed_at.filter(|at| *at < span.end_us).map(crate::season::format_us);
    Error::SeasonClosed {
        board: board.id.clone(),
        season: span.season.to_string(),
        until: early.unwrap_or_else(|| span.takes_plays_until(&state.record.rules)),
    }
}
