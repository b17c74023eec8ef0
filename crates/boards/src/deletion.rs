//! Deleting a board: in the background, in pages, to be taken up again after a restart.
//!
//! First the board's record says that it is being deleted, under its gate: no play comes after that. Then, season by season, snapshot by snapshot and
//! user by user, plays and entry go; an entry goes after its user's plays, so a user who is not done is found again. At last the seasons and the board.

use std::sync::Arc;

use standings_table::{Consistency, Key, Operation, Query, Scan, SortRange, limits};

use crate::background::{self, to_its_end};
use crate::error::{Error, Result};
use crate::ids::{BoardId, Label, UserId};
use crate::records::{self, BoardRecord, Entry, LabelRecord, PlayRecord, SeasonRecord, SnapshotRow};
use crate::season::Season;
use crate::service::{Board, Boards, DEFAULT_BOARD, Shared};

impl Boards {
    /// Begins to delete a board. It answers no more; [`Boards::board`] shows how far it is until it is gone.
    ///
    /// # Errors
    /// [`Error::UnknownBoard`], [`Error::DefaultBoardStays`], or what the table says.
    pub async fn delete_board(&self, board: &BoardId) -> Result<BoardRecord> {
        let (boards, board) = (self.clone(), board.clone());
        to_its_end(async move { boards.delete_board_now(&board).await }).await
    }

    async fn delete_board_now(&self, board: &BoardId) -> Result<BoardRecord> {
        if board.as_str() == DEFAULT_BOARD {
            return Err(Error::DefaultBoardStays);
        }
        let found = self.shared.find(board)?;
        let alone = found.gate.write().await;
        let old = found.state().record.clone();
        if old.deleted_users.is_some() {
            return Ok(old);
        }
        let record = BoardRecord { deleted_users: Some(0), version: old.version + 1, ..old.clone() };
        self.shared.put_board_record(&found, &old, &record).await?;
        drop(alone);
        tracing::info!(%board, "deleting a board");
        // While rankings are being loaded, it begins when that is done.
        if self.readiness().ready {
            self.spawn_deletion(found);
        }
        Ok(record)
    }

    /// Goes on with deletions that a restart has interrupted.
    pub(crate) fn resume_deletions(&self) {
        for record in self.boards().into_iter().filter(|record| record.deleted_users.is_some()) {
            if let Ok(board) = self.shared.find(&record.board) {
                self.spawn_deletion(board);
            }
        }
    }

    fn spawn_deletion(&self, board: Arc<Board>) {
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let deleted = board.clone();
            if let Err(error) = background::run(async move { shared.delete(&deleted).await }).await {
                tracing::error!(%error, board = %board.id, "deleting a board stopped; it goes on at the next start");
            }
        });
    }
}

/// What becomes of the items behind rows of `ByScore`.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// They go.
    Delete,
    /// They go, but what is a user's best on the board stays as that.
    KeepBest(&'a BoardId),
    /// They go, after all their user's plays on the board.
    WithPlays(&'a Board),
}

impl Shared {
    async fn delete(&self, board: &Board) -> Result<()> {
        let _one_at_a_time = board.settling.lock().await;
        // Whoever takes a snapshot stops when it sees that the board is going.
        while !board.snapshots.all_under_way().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        for live in board.live() {
            self.ranking.close(&live.key).await?;
            self.remove_checkpoints(&live.key);
            self.delete_entries(board, &live.span.season, live.shards).await?;
            // It may have been closing.
            self.remove_rows(&board.id, &live.label(), live.shards, Rows::WithPlays(board)).await?;
            self.remove_season_item(board, &live.span.season).await?;
            board.remove_live(&live.span.season);
        }
        for record in board.snapshots.seasons() {
            self.delete_entries(board, &record.season, record.shards).await?;
            if let Some(facts) = &record.snapshot {
                let label = Label::stored(record.season.as_str());
                self.remove_rows(&board.id, &label, facts.shards, Rows::WithPlays(board)).await?;
            }
            self.remove_season_item(board, &record.season).await?;
            board.snapshots.remove_season(&record.season);
        }
        for record in board.snapshots.labels() {
            let shards = record.snapshot.shards;
            self.remove_rows(&board.id, &record.label, shards, Rows::WithPlays(board)).await?;
            self.table.transact(vec![Operation::delete(LabelRecord::key(&board.id, &record.label))]).await?;
            board.snapshots.remove_label(&record.label);
        }
        if board.state().record.removed_until.is_some() {
            self.delete_forgotten(board).await?;
        }
        self.table.transact(vec![Operation::delete(BoardRecord::key(&board.id))]).await?;
        self.write_boards().remove(&board.id);
        tracing::info!(board = %board.id, "deleted a board");
        Ok(())
    }

    async fn remove_season_item(&self, board: &Board, season: &Season) -> Result<()> {
        self.table.transact(vec![Operation::delete(SeasonRecord::key(&board.id, season))]).await?;
        Ok(())
    }

    async fn delete_entries(&self, board: &Board, season: &Season, shards: u32) -> Result<()> {
        for shard in 0..shards {
            let partition = Entry::partition(&board.id, season, shard);
            self.delete_rows(&partition, Rows::WithPlays(board)).await?;
        }
        Ok(())
    }

    /// Takes every item out of a partition of `ByScore`, a transaction at a time; says how many there were. What is done
    /// stays done, so this may be interrupted and begun again.
    pub(crate) async fn delete_rows(&self, partition: &str, how: Rows<'_>) -> Result<u64> {
        let mut query = Query::index("ByScore", partition).limit(limits::TRANSACTION_OPERATIONS_MAX);
        let mut rows = 0;
        loop {
            let page = self.table.query(&query).await?;
            let mut operations = Vec::with_capacity(page.items.len());
            for item in &page.items {
                operations.push(match how {
                    Rows::KeepBest(board) if self.is_best(board, item).await? => {
                        let whole = self.table.get(&item.key, Consistency::Strong).await?;
                        Operation::put(SnapshotRow::kept_best(whole.as_ref().unwrap_or(item)))
                    }
                    _ => Operation::delete(item.key.clone()),
                });
                if let (Rows::WithPlays(board), Some(user)) = (how, records::user_of(&item.key)) {
                    self.delete_plays(board, &user).await?;
                }
            }
            let count = operations.len();
            rows += count as u64;
            if count > 0 {
                self.table.transact(operations).await?;
                if let Rows::WithPlays(board) = how {
                    self.note_deleted(board, count).await?;
                }
            }
            match page.next {
                Some(next) => query.start_after = Some(next),
                None => return Ok(rows),
            }
        }
    }

    /// Plays and bests of seasons that are gone: nothing points to them, so the whole table is looked through.
    async fn delete_forgotten(&self, board: &Board) -> Result<()> {
        let (plays, bests) = (PlayRecord::prefix(&board.id), SnapshotRow::prefix(&board.id));
        let mut scan = Scan { consistency: Consistency::Strong, ..Scan::all() };
        loop {
            let page = self.table.scan(&scan).await?;
            let ours = page.items.into_iter().map(|item| item.key).filter(|key| {
                key.pk.starts_with("USER#")
                    && (key.sk.starts_with(plays.as_str()) || key.sk.starts_with(bests.as_str()))
            });
            let keys: Vec<Key> = ours.collect();
            for chunk in keys.chunks(limits::TRANSACTION_OPERATIONS_MAX) {
                self.table.transact(chunk.iter().cloned().map(Operation::delete).collect()).await?;
            }
            match page.next {
                Some(next) => scan.start_after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn delete_plays(&self, board: &Board, user: &UserId) -> Result<()> {
        let prefix = SortRange::BeginsWith(PlayRecord::prefix(&board.id).into());
        let query =
            Query::table(format!("USER#{user}")).sort(prefix).limit(limits::TRANSACTION_OPERATIONS_MAX);
        let mut query = query;
        loop {
            let page = self.table.query(&query).await?;
            let keys: Vec<Key> = page.items.into_iter().map(|item| item.key).collect();
            if !keys.is_empty() {
                self.table.transact(keys.into_iter().map(Operation::delete).collect()).await?;
            }
            match page.next {
                Some(next) => query.start_after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Counts users whose plays and entry are gone, in the board's record.
    async fn note_deleted(&self, board: &Board, users: usize) -> Result<()> {
        let users = i64::try_from(users).unwrap_or(0);
        self.change_board_record(board, |record| {
            record.deleted_users = Some(record.deleted_users.unwrap_or(0) + users);
        })
        .await
    }
}
