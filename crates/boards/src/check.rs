//! Proving that what is derived agrees with what it is derived from: every entry with its plays, every ranking with the entries, the marks of those who
//! may have a name with the profiles; and repairing entries.
//!
//! One pass over the whole table finds everything, also plays whose entry is missing: all items of a user come together, entries before plays.

use std::collections::{BTreeMap, HashMap};

use standings_table::{Condition, Consistency, Item, Operation, Scan, Text};

use crate::board::Rules;
use crate::error::{Error, Result};
use crate::fold::fold;
use crate::ids::UserId;
use crate::ranking::SeasonKey;
use crate::records::{self, Entry, PlayRecord, UserRecord};
use crate::season::Season;
use crate::service::Boards;

/// Differences named in a report; more are only counted.
const NAMED_MAX: usize = 100;

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Entries looked at.
    pub entries: u64,
    /// Plays looked at.
    pub plays: u64,
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
        let mut seasons: Vec<SeasonKey> = user.entries.keys().chain(user.plays.keys()).cloned().collect();
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
