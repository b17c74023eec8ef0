//! Getting ready after a start: each season from its checkpoint and the plays since, or from its entries.
//!
//! Until a season is complete, the ranking refuses every question about it: never a wrong number. No play is taken meanwhile either, so nothing
//! changes under the load. Where the play log ends is in the table (`LogRecord`), not read off a clock.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rank_tree::RankTree;
use standings_table::{
    Condition, Consistency, Error as TableError, Key, Operation, Query, SortRange, limits,
};

use crate::checkpoints;
use crate::error::{Error, Result};
use crate::ids::UserId;
use crate::ranking::SeasonKey;
use crate::records::{self, Entry, LOG_PARTITION_US, LOG_SHARDS, LogRecord, PlayRecord};
use crate::season::Season;
use crate::service::{ATTEMPTS_MAX, Board, Boards, Live, Shared};

/// How far the end of the log is moved ahead at a time: a write every ten minutes, and as many empty minutes to read at a start.
const LOG_AHEAD_US: i64 = 600_000_000;

/// How far the start has come.
#[derive(Default)]
pub(crate) struct Progress {
    ready: AtomicBool,
    seasons: AtomicU64,
    seasons_done: AtomicU64,
    users: AtomicU64,
    plays: AtomicU64,
    /// The generation each season had when its last checkpoint was begun.
    checkpointed: Mutex<HashMap<SeasonKey, u64>>,
}

impl Progress {
    pub(crate) fn checkpointed(&self, season: &SeasonKey) -> Option<u64> {
        self.checkpointed.lock().unwrap_or_else(PoisonError::into_inner).get(season).copied()
    }

    pub(crate) fn set_checkpointed(&self, season: &SeasonKey, generation: u64) {
        self.checkpointed.lock().unwrap_or_else(PoisonError::into_inner).insert(season.clone(), generation);
    }

    pub(crate) fn forget_checkpointed(&self, season: &SeasonKey) {
        self.checkpointed.lock().unwrap_or_else(PoisonError::into_inner).remove(season);
    }
}

/// How far the start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether every live season is complete.
    pub ready: bool,
    /// How many seasons there are to load.
    pub seasons: u64,
    /// How many are complete.
    pub seasons_done: u64,
    /// Users loaded.
    pub users: u64,
    /// Plays read again because they are newer than a checkpoint.
    pub plays: u64,
}

struct Loading {
    board: Arc<Board>,
    live: Arc<Live>,
    tree: RankTree,
    /// From which time of the log on plays are to be read again; nothing if the tree is of this moment.
    replay_from: Option<i64>,
}

impl Boards {
    /// How far the start has come.
    pub fn readiness(&self) -> Readiness {
        let progress = &self.shared.progress;
        Readiness {
            ready: progress.ready.load(Ordering::Acquire),
            seasons: progress.seasons.load(Ordering::Relaxed),
            seasons_done: progress.seasons_done.load(Ordering::Relaxed),
            users: progress.users.load(Ordering::Relaxed),
            plays: progress.plays.load(Ordering::Relaxed),
        }
    }

    /// Loads every ranking. `checkpoints` says whether they may be used; without them all is rebuilt from the entries.
    ///
    /// # Errors
    /// What the table says; [`Error::Damaged`]. Seasons that are not loaded stay refused.
    pub async fn load(&self, checkpoints: bool) -> Result<()> {
        let shared = &self.shared;
        let begin = std::time::Instant::now();
        let boards: Vec<Arc<Board>> =
            shared.boards.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let boards = boards.into_iter().filter(|board| board.state().record.deleted_users.is_none());
        let seasons: Vec<(Arc<Board>, Arc<Live>)> = boards
            .flat_map(|board| board.live().into_iter().map(move |live| (board.clone(), live)))
            .collect();
        shared.progress.seasons.store(seasons.len() as u64, Ordering::Relaxed);
        let mut loading = Vec::with_capacity(seasons.len());
        for (board, live) in seasons {
            loading.push(shared.load_season(board, live, checkpoints).await?);
        }
        if let Some(log) = shared.log_record().await? {
            shared.log_until.fetch_max(log.until, Ordering::AcqRel);
        }
        shared.replay(&mut loading).await?;
        for Loading { live, tree, replay_from, .. } in loading {
            let users = tree.len();
            shared.memory.finish_loading(&live.key, tree);
            if replay_from.is_some()
                && let Ok(generation) = shared.ranking.generation(&live.key).await
                && shared.progress.plays.load(Ordering::Relaxed) == 0
            {
                // Exactly what its checkpoint holds: no need for another one.
                shared.progress.set_checkpointed(&live.key, generation);
            }
            shared.progress.seasons_done.fetch_add(1, Ordering::Relaxed);
            tracing::info!(board = %live.key.board, season = %live.key.season, users, "ranking complete");
        }
        shared.progress.ready.store(true, Ordering::Release);
        tracing::info!(elapsed_ms = begin.elapsed().as_millis() as u64, "ready");
        self.resume_deletions();
        Ok(())
    }
}

impl Shared {
    async fn load_season(&self, board: Arc<Board>, live: Arc<Live>, checkpoints: bool) -> Result<Loading> {
        let order = board.state().record.rules.order;
        if let (true, Some(folder)) = (checkpoints, self.settings.checkpoints.clone()) {
            let record = self.season_record(&live.key).await?.ok_or(Error::Contended)?;
            let memory = self.memory.clone();
            let read =
                tokio::task::spawn_blocking(move || checkpoints::read(&folder, &record, order, &memory))
                    .await;
            if let Ok(Some((tree, log_time))) = read {
                self.log.advance_to(log_time);
                self.progress.users.fetch_add(tree.len(), Ordering::Relaxed);
                return Ok(Loading { board, live, tree, replay_from: Some(log_time) });
            }
        }
        // From here on it would be of another time: plays may be filed before its own.
        self.name_checkpoint(&live.key, None).await?;
        let mut entries: Vec<(String, rank_tree::Entry)> = Vec::new();
        for shard in 0..live.shards {
            let partition = Entry::partition(&live.key.board, &live.key.season, shard);
            let mut query = Query::index("ByScore", partition);
            loop {
                let page = self.table.query(&query).await?;
                let users: Vec<UserId> =
                    page.items.iter().filter_map(|item| records::user_of(&item.key)).collect();
                for (user, entry) in self.entries_of(&live.key, &users).await? {
                    if let Some(entry) = entry {
                        entries.push((user.to_string(), entry.ranked()));
                    }
                }
                self.progress.users.fetch_add(users.len() as u64, Ordering::Relaxed);
                if entries.len() / 1_000_000 > (entries.len() - users.len().min(entries.len())) / 1_000_000 {
                    tracing::info!(board = %live.key.board, season = %live.key.season, users = entries.len(), "rebuilding");
                }
                match page.next {
                    Some(next) => query.start_after = Some(next),
                    None => break,
                }
            }
        }
        let users = self.memory.users().clone();
        let damaged = |error: rank_tree::Error| Error::Damaged {
            key: error.to_string(),
            why: "the ranking refused it",
        };
        let tree = RankTree::from_unsorted(order.into(), users, entries).map_err(damaged)?;
        Ok(Loading { board, live, tree, replay_from: None })
    }

    /// Entries of users, read strongly, a hundred at a time.
    pub(crate) async fn entries_of<'a>(
        &self,
        season: &SeasonKey,
        users: &'a [UserId],
    ) -> Result<Vec<(&'a UserId, Option<Entry>)>> {
        let mut found = Vec::with_capacity(users.len());
        for chunk in users.chunks(limits::BATCH_GET_KEYS_MAX) {
            let keys: Vec<Key> =
                chunk.iter().map(|user| Entry::key(user, &season.board, &season.season)).collect();
            let items = self.table.batch_get(&keys, Consistency::Strong).await?;
            for (user, item) in chunk.iter().zip(items) {
                found.push((user, item.as_ref().map(Entry::from_item).transpose()?));
            }
        }
        Ok(found)
    }

    async fn log_record(&self) -> Result<Option<LogRecord>> {
        let item = self.table.get(&LogRecord::key(), Consistency::Strong).await?;
        item.as_ref().map(LogRecord::from_item).transpose()
    }

    /// Makes sure that a play may be filed at this time of the log: that whoever reads the log will read so far.
    pub(crate) async fn reserve_log(&self, time: i64) -> Result<()> {
        if time < self.log_until.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one_at_a_time = self.extending.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            if time < self.log_until.load(Ordering::Acquire) {
                return Ok(());
            }
            let stored = self.log_record().await?;
            let until = time.saturating_add(LOG_AHEAD_US).max(stored.map_or(i64::MIN, |stored| stored.until));
            let version = stored.map_or(0, |stored| stored.version) + 1;
            let condition =
                stored.map_or(Condition::Absent, |stored| Condition::VersionEquals(stored.version));
            let put = Operation::put_if(LogRecord { until, version }.to_item(), condition);
            match self.table.transact(vec![put]).await {
                Ok(_) => {
                    self.log_until.fetch_max(until, Ordering::AcqRel);
                }
                Err(TableError::ConditionFailed { .. } | TableError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }

    /// Reads the play log from where the checkpoints end, and again the entry of everyone who played since.
    async fn replay(&self, loading: &mut [Loading]) -> Result<()> {
        let Some(from) = loading.iter().filter_map(|loading| loading.replay_from).min() else {
            return Ok(());
        };
        let mut touched: HashMap<SeasonKey, HashSet<UserId>> = HashMap::new();
        let until = self.log_until.load(Ordering::Acquire);
        let mut minute = from.div_euclid(LOG_PARTITION_US);
        while minute.saturating_mul(LOG_PARTITION_US) < until {
            for shard in 0..LOG_SHARDS {
                let after = SortRange::Greater(from.saturating_sub(1).into());
                let mut query = Query::index("ByTime", PlayRecord::log_partition(minute, shard)).sort(after);
                loop {
                    let page = self.table.query(&query).await?;
                    self.progress.plays.fetch_add(page.items.len() as u64, Ordering::Relaxed);
                    for item in &page.items {
                        let parts = PlayRecord::parts_of(&item.key).zip(item.text("season"));
                        let ((user, board, _), season) =
                            parts.ok_or_else(|| records::damaged(item, "it is no play"))?;
                        let key = SeasonKey { board, season: Season::stored(season) };
                        touched.entry(key).or_default().insert(user);
                        if let Some(time) = item.number("log_time") {
                            self.log.advance_to(time);
                        }
                    }
                    match page.next {
                        Some(next) => query.start_after = Some(next),
                        None => break,
                    }
                }
            }
            minute += 1;
        }
        for Loading { board, live, tree, replay_from } in loading {
            let Some(users) = replay_from.and_then(|_| touched.remove(&live.key)) else { continue };
            let users: Vec<UserId> = users.into_iter().collect();
            tracing::info!(board = %board.id, season = %live.key.season, users = users.len(), "following the play log");
            for (user, entry) in self.entries_of(&live.key, &users).await? {
                match entry {
                    Some(entry) => {
                        let set = tree.set(user.as_str(), entry.ranked());
                        set.map_err(|error| Error::Damaged {
                            key: error.to_string(),
                            why: "the ranking refused it",
                        })?;
                    }
                    None => {
                        tree.remove(user.as_str());
                    }
                }
            }
        }
        Ok(())
    }
}
