//! Proving that what is derived agrees with what it is derived from: every entry with its plays, every ranking with the entries, every finished season with
//! its plays, every snapshot with itself, the marks of those who may have a name with the profiles; and repairing entries. A finished season is never
//! repaired: it does not change.
//!
//! One pass over the whole table finds everything, also plays whose entry is missing: all items of a user come together. Then each snapshot is read in order.

use std::collections::{BTreeMap, HashMap};

use standings_table::{Condition, Consistency, Item, Operation, Scan, Text};

use crate::board::{Rules, Ties};
use crate::error::{Error, Result};
use crate::fold::fold;
use crate::ids::UserId;
use crate::ranking::SeasonKey;
use crate::records::{self, Entry, PlayRecord, SnapshotFacts, SnapshotRow, UserRecord};
use crate::season::Season;
use crate::service::Boards;
use crate::snapshots::Past;

/// Differences named in a report; more are only counted.
const NAMED_MAX: usize = 100;
/// Rows of a snapshot read at a time.
const SNAPSHOT_PAGE: u64 = 1_000;

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Entries looked at.
    pub entries: u64,
    /// Plays looked at.
    pub plays: u64,
    /// Rows of snapshots looked at.
    pub snapshot_rows: u64,
    /// Entries whose plays are not all kept any more, and which therefore cannot be recomputed.
    pub not_recomputable: u64,
    /// How many differences there are.
    pub differences: u64,
    /// The first of them, for people to read.
    pub named: Vec<String>,
    /// Entries put right.
    pub repaired: u64,
}

impl CheckReport {
    fn differs(&mut self, what: String) {
        self.differences += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(what);
        }
    }
}

/// A user's items, gathered while they pass by.
#[derive(Default)]
struct User {
    partition: Text,
    entries: HashMap<SeasonKey, Entry>,
    plays: HashMap<SeasonKey, Vec<PlayRecord>>,
    finals: HashMap<SeasonKey, SnapshotRow>,
}

impl Boards {
    /// Checks every entry against its plays and every ranking against the entries. `repair` puts entries right that differ; the rankings are then to be
    /// rebuilt. `progress` is called with what has been seen so far.
    ///
    /// To be called while no plays come in: they would pass for differences.
    ///
    /// # Errors
    /// What the table says; [`Error::Damaged`].
    pub async fn check(&self, repair: bool, mut progress: impl FnMut(&CheckReport)) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let mut counts: BTreeMap<SeasonKey, u64> = BTreeMap::new();
        let mut user = User::default();
        let mut scan = Scan { consistency: Consistency::Strong, ..Scan::all() };
        loop {
            let page = self.shared.table.scan(&scan).await?;
            for item in &page.items {
                if item.key.pk != user.partition {
                    self.check_user(std::mem::take(&mut user), repair, &mut report, &mut counts).await?;
                    user.partition = item.key.pk.clone();
                }
                self.gather(&mut user, item, &mut report)?;
            }
            progress(&report);
            match page.next {
                Some(next) => scan.start_after = Some(next),
                None => break,
            }
        }
        self.check_user(user, repair, &mut report, &mut counts).await?;
        for board in self.shared.all_boards() {
            if board.state().record.deleted_users.is_none() {
                for past in board.snapshots.complete() {
                    self.check_snapshot(&past, &mut report, &mut progress).await?;
                }
            }
        }
        for memory in self.shared.memory.seasons().into_iter().filter(|memory| memory.ready) {
            let entries = counts.get(&memory.season).copied().unwrap_or(0);
            if entries != memory.users {
                let SeasonKey { board, season } = &memory.season;
                report.differs(format!(
                    "board {board}, season {season}: {entries} entries, but {} users in the ranking",
                    memory.users
                ));
            }
        }
        Ok(report)
    }

    fn gather(&self, user: &mut User, item: &Item, report: &mut CheckReport) -> Result<()> {
        if !item.key.pk.starts_with("USER#") {
            return Ok(());
        }
        if let Some(rest) = item.key.sk.strip_prefix(Entry::PREFIX) {
            let key = rest.split_once('#').and_then(|(board, season)| {
                Some(SeasonKey { board: crate::BoardId::new(board).ok()?, season: Season::stored(season) })
            });
            let key = key.ok_or_else(|| records::damaged(item, "its key names no season"))?;
            user.entries.insert(key, Entry::from_item(item)?);
            report.entries += 1;
        } else if item.key.sk.starts_with("PLAY#") {
            let play = PlayRecord::from_item(item)?;
            let key = SeasonKey { board: play.board.clone(), season: play.season.clone() };
            user.plays.entry(key).or_default().push(play);
            report.plays += 1;
        } else if let Some((board, label)) = SnapshotRow::parts_of(&item.key)
            && !SnapshotRow::is_kept_best(item)
        {
            let key = SeasonKey { board, season: Season::stored(label.as_str()) };
            if self.shared.find(&key.board).is_ok_and(|board| board.snapshots.has_season(&key.season)) {
                user.finals.insert(key, SnapshotRow::from_item(item)?);
            }
        } else if item.key.sk == records::METADATA {
            let record = UserRecord::from_item(item)?;
            if record.name.is_some() && !self.shared.names.named.may_have(record.user.as_str()) {
                report.differs(format!(
                    "user {}: the profile has a name, but there is no mark of it",
                    record.user
                ));
            }
        }
        Ok(())
    }

    /// Checks that a snapshot has every place once, in order, with the rank that follows from its scores.
    async fn check_snapshot(
        &self,
        past: &Past,
        report: &mut CheckReport,
        progress: &mut impl FnMut(&CheckReport),
    ) -> Result<()> {
        let SnapshotFacts { players, official, order, ties, .. } = past.facts;
        let name = format!("board {}, snapshot {}", past.board, past.label);
        let order: rank_tree::Order = order.into();
        let mut last: Option<SnapshotRow> = None;
        let (mut first_of_score, mut scores) = (0, 0);
        let mut place = 1;
        while place <= players {
            let rows = match self.shared.past_places(past, place, SNAPSHOT_PAGE).await {
                Ok(rows) => rows,
                Err(Error::NotReady { .. }) => {
                    report.differs(format!("{name}: not every place from {place} on is there once"));
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            for row in rows {
                report.snapshot_rows += 1;
                let at = |row: &SnapshotRow| rank_tree::Entry {
                    score: row.score,
                    reached_at: u64::try_from(row.reached_at).unwrap_or(0),
                };
                if let Some(last) = &last
                    && order.compare((at(last), last.user.as_str()), (at(&row), row.user.as_str())).is_ge()
                {
                    report.differs(format!("{name}: place {} comes before the one above it", row.place));
                }
                if last.as_ref().is_none_or(|last| last.score != row.score) {
                    first_of_score = row.place;
                    scores += 1;
                }
                let rank = match ties {
                    Ties::Shared => first_of_score,
                    Ties::Dense => scores,
                    Ties::First => row.place,
                };
                if row.rank != rank {
                    let found = row.rank;
                    report.differs(format!("{name}, user {}: rank {found}, should be {rank}", row.user));
                }
                place = row.place + 1;
                last = Some(row);
            }
            progress(report);
        }
        match self.shared.past_official(past).await {
            Ok(_) => {}
            Err(Error::NotReady { .. }) => {
                report
                    .differs(format!("{name}: not every official place from 1 to {official} is there once"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Checks a user's row in a finished season against their plays, where those are kept.
    fn check_final(
        &self,
        name: &str,
        rules: &Rules,
        plays: Vec<PlayRecord>,
        row: Option<&SnapshotRow>,
        report: &mut CheckReport,
    ) {
        match recompute(rules, plays) {
            Recomputed::Incomplete if self.shared.settings.plays_keep_days.is_some() => {
                report.not_recomputable += 1;
            }
            Recomputed::Entry(None) if row.is_some() && self.shared.settings.plays_keep_days.is_some() => {
                report.not_recomputable += 1;
            }
            Recomputed::Incomplete => report.differs(format!("{name}: some of the plays are missing")),
            Recomputed::Overflow => {
                report.differs(format!("{name}: the plays add up to more than 64 bits"));
            }
            Recomputed::Entry(expected) => {
                let found = row.map(|row| (row.score, row.reached_at));
                let wanted = expected.map(|entry| (entry.score, entry.reached_at));
                if found != wanted {
                    let found = found.map_or_else(|| "missing".to_owned(), |(score, _)| score.to_string());
                    let wanted = show(expected);
                    report.differs(format!("{name}: the final score is {found}, its plays make {wanted}"));
                }
            }
        }
    }

    async fn check_user(
        &self,
        mut user: User,
        repair: bool,
        report: &mut CheckReport,
        counts: &mut BTreeMap<SeasonKey, u64>,
    ) -> Result<()> {
        let Some(id) = user.partition.strip_prefix("USER#").and_then(|id| UserId::new(id).ok()) else {
            return Ok(());
        };
        let seasons = user.entries.keys().chain(user.plays.keys()).chain(user.finals.keys());
        let mut seasons: Vec<SeasonKey> = seasons.cloned().collect();
        seasons.sort();
        seasons.dedup();
        for key in seasons {
            // The plays of a board that is being deleted go before its entries.
            let Ok(board) = self.shared.find(&key.board) else { continue };
            let state = board.state();
            if state.record.deleted_users.is_some() {
                continue;
            }
            let rules = &state.record.rules;
            let entry = user.entries.get(&key).copied();
            let plays = user.plays.remove(&key).unwrap_or_default();
            let name = format!("board {}, season {}, user {id}", key.board, key.season);
            if board.snapshots.has_season(&key.season) {
                // One that is on its way out has lost some of its rows.
                if board.snapshots.of_season(&key.season).is_some() {
                    self.check_final(&name, rules, plays, user.finals.get(&key), report);
                }
                continue;
            }
            if entry.is_none()
                && state.record.removed_until.is_some()
                && board.live_named(&key.season).is_none()
            {
                continue;
            }
            let mut right = entry;
            match recompute(rules, plays) {
                Recomputed::Incomplete if self.shared.settings.plays_keep_days.is_some() => {
                    report.not_recomputable += 1;
                }
                Recomputed::Incomplete => report.differs(format!("{name}: some of the plays are missing")),
                Recomputed::Overflow => {
                    report.differs(format!("{name}: the plays add up to more than 64 bits"));
                }
                Recomputed::Entry(expected) if expected != entry => {
                    let (found, wanted) = (show(entry), show(expected));
                    report.differs(format!("{name}: the entry is {found}, its plays make {wanted}"));
                    right = expected;
                    if repair {
                        self.repair(&id, &key, entry, expected).await?;
                        report.repaired += 1;
                    }
                }
                Recomputed::Entry(_) => {}
            }
            let stored = if repair { right } else { entry };
            *counts.entry(key.clone()).or_default() += u64::from(stored.is_some());
            let Ok(ranked) = self.shared.memory.with_tree(&key, |tree| tree.get(id.as_str())) else {
                continue;
            };
            if !repair && ranked != entry.as_ref().map(Entry::ranked) {
                let ranked = ranked.map_or_else(|| "nothing".to_owned(), |entry| entry.score.to_string());
                report.differs(format!("{name}: the entry is {}, the ranking has {ranked}", show(entry)));
            }
        }
        Ok(())
    }

    async fn repair(
        &self,
        user: &UserId,
        season: &SeasonKey,
        stored: Option<Entry>,
        expected: Option<Entry>,
    ) -> Result<()> {
        let condition = stored.map_or(Condition::Absent, |stored| Condition::VersionEquals(stored.version));
        let operation = match expected {
            Some(entry) => {
                let shards = self
                    .shared
                    .season_record(season)
                    .await?
                    .map_or(records::ENTRY_SHARDS, |record| record.shards);
                Operation::put_if(entry.to_item(user, &season.board, &season.season, shards), condition)
            }
            None => Operation::delete_if(Entry::key(user, &season.board, &season.season), condition),
        };
        match self.shared.table.transact(vec![operation]).await {
            Ok(_) => Ok(()),
            Err(standings_table::Error::ConditionFailed { .. }) => Err(Error::Contended),
            Err(error) => Err(error.into()),
        }
    }
}

enum Recomputed {
    Entry(Option<Entry>),
    Incomplete,
    Overflow,
}

/// Folds plays in the order in which they were counted. Their versions must be 1, 2, 3 and so on: a gap means that a play is missing.
fn recompute(rules: &Rules, mut plays: Vec<PlayRecord>) -> Recomputed {
    plays.sort_by_key(|play| play.entry_version);
    let mut entry = None;
    for (at, play) in plays.iter().enumerate() {
        if play.entry_version != at as i64 + 1 {
            return Recomputed::Incomplete;
        }
        match fold(rules, entry.as_ref(), play.points, play.played_at) {
            Ok((next, _)) => entry = Some(next),
            Err(_) => return Recomputed::Overflow,
        }
    }
    Recomputed::Entry(entry)
}

fn show(entry: Option<Entry>) -> String {
    entry.map_or_else(|| "missing".to_owned(), |entry| format!("{} after {} plays", entry.score, entry.plays))
}
