//! Deleting a board: in the background, in pages, to be taken up again after a restart.
//!
//! First the board's record says that it is being deleted, under its gate: no play comes after that. Then, season by season and user by user, plays and
//! entry go; an entry goes after its user's plays, so a user who is not done is found again. At last the seasons and the board.

use std::sync::Arc;

use standings_table::{
    Condition, Consistency, Error as TableError, Key, Operation, Query, SortRange, limits,
};

use crate::error::{Error, Result};
use crate::ids::{BoardId, UserId};
use crate::records::{self, BoardRecord, Entry, PlayRecord, SeasonRecord};
use crate::service::{ATTEMPTS_MAX, Board, Boards, DEFAULT_BOARD, Live, Shared};

impl Boards {
    /// Begins to delete a board. It answers no more; [`Boards::board`] shows how far it is until it is gone.
    ///
    /// # Errors
    /// [`Error::UnknownBoard`], [`Error::DefaultBoardStays`], or what the table says.
    pub async fn delete_board(&self, board: &BoardId) -> Result<BoardRecord> {
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
        let put = Operation::put_if(record.to_item(), Condition::VersionEquals(old.version));
        match self.shared.table.transact(vec![put]).await {
            Ok(_) => {}
            Err(TableError::ConditionFailed { .. }) => return Err(Error::Contended),
            Err(error) => return Err(error.into()),
        }
        found.replace(record.clone())?;
        drop(alone);
        tracing::info!(%board, "deleting a board");
        self.spawn_deletion(found);
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
            if let Err(error) = shared.delete(&board).await {
                tracing::error!(%error, board = %board.id, "deleting a board stopped; it goes on at the next start");
            }
        });
    }
}

impl Shared {
    async fn delete(&self, board: &Board) -> Result<()> {
        for live in board.live() {
            self.ranking.close(&live.key).await?;
            self.remove_checkpoints(&live.key);
            for shard in 0..live.shards {
                self.delete_entries(board, &live, shard).await?;
            }
            let season = Operation::delete(SeasonRecord::key(&board.id, &live.span.season));
            self.table.transact(vec![season]).await?;
            board.remove_live(&live.span.season);
        }
        self.table.transact(vec![Operation::delete(BoardRecord::key(&board.id))]).await?;
        self.write_boards().remove(&board.id);
        tracing::info!(board = %board.id, "deleted a board");
        Ok(())
    }

    async fn delete_entries(&self, board: &Board, live: &Live, shard: u32) -> Result<()> {
        let partition = Entry::partition(&board.id, &live.span.season, shard);
        let mut query = Query::index("ByScore", partition).limit(limits::TRANSACTION_OPERATIONS_MAX);
        loop {
            let page = self.table.query(&query).await?;
            let users: Vec<UserId> =
                page.items.iter().filter_map(|item| records::user_of(&item.key)).collect();
            for user in &users {
                self.delete_plays(board, user).await?;
            }
            if !users.is_empty() {
                let keys = users.iter().map(|user| Entry::key(user, &board.id, &live.span.season));
                self.table.transact(keys.map(Operation::delete).collect()).await?;
                self.note_deleted(board, users.len()).await?;
            }
            match page.next {
                Some(next) => query.start_after = Some(next),
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
        for _ in 0..ATTEMPTS_MAX {
            let item = self.table.get(&BoardRecord::key(&board.id), Consistency::Strong).await?;
            let Some(item) = item else { return Ok(()) };
            let old = BoardRecord::from_item(&item)?;
            let deleted = old.deleted_users.unwrap_or(0) + i64::try_from(users).unwrap_or(0);
            let record =
                BoardRecord { deleted_users: Some(deleted), version: old.version + 1, ..old.clone() };
            let put = Operation::put_if(record.to_item(), Condition::VersionEquals(old.version));
            match self.table.transact(vec![put]).await {
                Ok(_) => return board.replace(record),
                Err(TableError::ConditionFailed { .. } | TableError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }
}
