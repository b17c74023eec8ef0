//! Checkpoints: a season's ranking in a file, so that a restart reads that instead of every entry.
//!
//! ```text
//! <checkpoints>/<board>@<season>@<id>.checkpoint      one line of JSON (see `Header`), then the tree
//! ```
//!
//! A checkpoint is *fuzzy*: it is gathered in pages while plays go on. The season's record states a time of the play log before which everything is in it; whoever
//! loads it reads again the entries of all plays since. It belongs to one table at one time, which the record proves too: the file counts only if
//! the record names its id. A table restored from a backup names an older one or none, and its rankings are rebuilt.
//!
//! The order of things: the file under its own name, synced; the record; then older files go. A crash in between leaves a file too many, never a wrong one.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use rank_tree::{CheckpointWriter, Mark, RankTree, Ties};
use serde::{Deserialize, Serialize};
use standings_table::Consistency;

use crate::board::Order;
use crate::error::{Error, Result};
use crate::ranking::{MemoryRanking, SeasonKey};
use crate::records::{CheckpointName, SeasonRecord, SeasonState};
use crate::service::{Boards, Shared};

const FORMAT: u32 = 1;
/// Users gathered at a time: changes wait for about half a millisecond.
const PAGE_USERS: usize = 1_000;
/// How far a checkpoint that still holds may lie behind before its time is moved.
const MOVE_AFTER_US: i64 = 3_600_000_000;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: u32,
    id: String,
    board: String,
    season: String,
}

impl Boards {
    /// Writes a checkpoint of every season that changed since its last one; says how many. Does nothing where no folder for them is set.
    ///
    /// # Errors
    /// [`Error::File`], or what the table says.
    pub async fn write_checkpoints(&self) -> Result<usize> {
        let shared = &self.shared;
        let Some(folder) = &shared.settings.checkpoints else { return Ok(0) };
        let boards: Vec<_> =
            self.boards().into_iter().filter(|record| record.deleted_users.is_none()).collect();
        let (mut written, mut failed) = (0, None);
        for record in boards {
            let Ok(board) = shared.find(&record.board) else { continue };
            for live in board.live() {
                // Before the generation is looked at: if that is the checkpoint's, every play before this time is in it.
                let log_time = shared.log.done_before(shared.clock.now_us());
                let Ok(generation) = shared.ranking.generation(&live.key).await else { continue };
                if shared.progress.checkpointed(&live.key) == Some(generation) {
                    if let Err(error) = shared.move_checkpoint(&live.key, log_time).await {
                        failed.get_or_insert(error);
                    }
                    continue;
                }
                match shared.write_checkpoint(folder, &live.key, record.rules.order).await {
                    Ok(()) => {
                        shared.progress.set_checkpointed(&live.key, generation);
                        Shared::count(&shared.statistics.checkpoints, 1);
                        written += 1;
                    }
                    // Final or deleted meanwhile: it needs none any more.
                    Err(_) if board.live_named(&live.span.season).is_none() => {}
                    Err(error) => {
                        Shared::count(&shared.statistics.checkpoint_failures, 1);
                        failed.get_or_insert(error);
                    }
                }
            }
        }
        failed.map_or(Ok(written), Err)
    }
}

impl Shared {
    async fn write_checkpoint(&self, folder: &Path, season: &SeasonKey, order: Order) -> Result<()> {
        let id = uuid::Uuid::now_v7().simple().to_string();
        let log_time = self.log.done_before(self.clock.now_us());
        let header = Header {
            format: FORMAT,
            id: id.clone(),
            board: season.board.to_string(),
            season: season.season.to_string(),
        };
        let path = folder.join(file_name(season, &id));
        let (memory, key, target) = (self.memory.clone(), season.clone(), path.clone());
        let written =
            tokio::task::spawn_blocking(move || write_file(&memory, &key, order, &header, &target)).await;
        let written = written.unwrap_or_else(|error| Err(file("writing", &path, &error)));
        if let Err(error) = written {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        if let Err(error) = self.name_checkpoint(season, Some(CheckpointName { id, log_time })).await {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        for other in files_of(folder, season) {
            if other != path {
                let _ = std::fs::remove_file(other);
            }
        }
        Ok(())
    }

    /// Names the one checkpoint that belongs to the table from now on, or none.
    pub(crate) async fn name_checkpoint(
        &self,
        season: &SeasonKey,
        name: Option<CheckpointName>,
    ) -> Result<()> {
        let record = self
            .change_season(season, |record| {
                let other = record.checkpoint != name && record.state() != SeasonState::Final;
                if other {
                    record.checkpoint.clone_from(&name);
                }
                other
            })
            .await?;
        // A season that has become final meanwhile needs none any more.
        if record.checkpoint == name { Ok(()) } else { Err(Error::Contended) }
    }

    /// Says that the checkpoint of a season nobody has played in since is as good as one of this time, so that a start need not read the log of all
    /// that time. Once an hour is enough.
    async fn move_checkpoint(&self, season: &SeasonKey, log_time: i64) -> Result<()> {
        let Some(record) = self.season_record(season).await? else { return Ok(()) };
        match record.checkpoint {
            Some(CheckpointName { id, log_time: old }) if old.saturating_add(MOVE_AFTER_US) < log_time => {
                self.name_checkpoint(season, Some(CheckpointName { id, log_time })).await
            }
            _ => Ok(()),
        }
    }

    pub(crate) async fn season_record(&self, season: &SeasonKey) -> Result<Option<SeasonRecord>> {
        let key = SeasonRecord::key(&season.board, &season.season);
        let item = self.table.get(&key, Consistency::Strong).await?;
        item.as_ref().map(SeasonRecord::from_item).transpose()
    }

    /// Removes the files of a season.
    pub(crate) fn remove_checkpoints(&self, season: &SeasonKey) {
        if let Some(folder) = &self.settings.checkpoints {
            for path in files_of(folder, season) {
                let _ = std::fs::remove_file(path);
            }
        }
        self.progress.forget_checkpointed(season);
    }
}

/// Reads a season's checkpoint: the tree and the time of the log from which on plays are to be read again.
/// Nothing if there is none that belongs to this table; why not is in the log, and the season is rebuilt.
pub(crate) fn read(
    folder: &Path,
    record: &SeasonRecord,
    order: Order,
    memory: &MemoryRanking,
) -> Option<(RankTree, i64)> {
    let season = SeasonKey { board: record.board.clone(), season: record.season.clone() };
    let name = record.checkpoint.as_ref()?;
    let path = folder.join(file_name(&season, &name.id));
    match read_file(&path, &season, &name.id, order, memory) {
        Ok(tree) => Some((tree, name.log_time)),
        Err(error) => {
            tracing::warn!(board = %season.board, season = %season.season, %error, "no use of the checkpoint; rebuilding");
            None
        }
    }
}

fn read_file(
    path: &Path,
    season: &SeasonKey,
    id: &str,
    order: Order,
    memory: &MemoryRanking,
) -> Result<RankTree> {
    let mut reader =
        BufReader::with_capacity(1 << 20, File::open(path).map_err(|error| file("opening", path, &error))?);
    let mut line = String::new();
    reader.read_line(&mut line).map_err(|error| file("reading", path, &error))?;
    let header: Header = serde_json::from_str(&line).map_err(|error| file("reading", path, &error))?;
    let expected = (FORMAT, id, season.board.as_str(), season.season.as_str());
    if (header.format, &*header.id, &*header.board, &*header.season) != expected {
        return Err(file("reading", path, &"it is of another season or another format"));
    }
    RankTree::read_checkpoint(order.into(), memory.users().clone(), reader)
        .map_err(|error| file("reading", path, &error))
}

fn write_file(
    memory: &MemoryRanking,
    season: &SeasonKey,
    order: Order,
    header: &Header,
    path: &Path,
) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| file("writing", path, error);
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    let handle = File::create(path).map_err(|error| failed(&error))?;
    let mut out = BufWriter::with_capacity(1 << 20, handle);
    let line = serde_json::to_string(header).map_err(|error| failed(&error))?;
    writeln!(out, "{line}").map_err(|error| failed(&error))?;
    let users = memory.with_tree(season, RankTree::len)?;
    let mut writer = CheckpointWriter::new(&mut out, order.into(), users).map_err(|error| failed(&error))?;
    let mut mark: Option<Mark> = None;
    loop {
        // Collected under the lock, written to the file outside of it.
        let (rows, ids) = memory.with_tree(season, |tree| {
            let start = mark.as_ref().map_or(0, |mark| tree.position_after(mark));
            let rows = tree.page(start, PAGE_USERS, Ties::First);
            let mut ids = vec![String::new(); rows.len()];
            tree.users().with_ids(rows.iter().map(|row| row.user), |at, id| id.clone_into(&mut ids[at]));
            (rows, ids)
        })?;
        let (Some(last), Some(last_id)) = (rows.last(), ids.last()) else { break };
        let entry = last.entry;
        mark = Some(Mark { score: entry.score, reached_at: entry.reached_at, user: last_id.clone() });
        for (row, id) in rows.iter().zip(&ids) {
            writer.push(id, row.entry).map_err(|error| failed(&error))?;
        }
    }
    writer.finish().map_err(|error| failed(&error))?;
    let handle = out.into_inner().map_err(|error| failed(&error))?;
    handle.sync_all().map_err(|error| failed(&error))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed(&error))
}

fn file_name(season: &SeasonKey, id: &str) -> String {
    format!("{}@{}@{id}.checkpoint", season.board, season.season)
}

fn files_of(folder: &Path, season: &SeasonKey) -> Vec<PathBuf> {
    let prefix = format!("{}@{}@", season.board, season.season);
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let ours = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    ours.map(|entry| entry.path()).collect()
}

fn file(doing: &str, path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::File { doing: format!("{doing} {}", path.display()), why: why.to_string() }
}
