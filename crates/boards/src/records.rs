//! The single-table design: every kind of item, its keys, its place in the indexes. Readable top to bottom.
//!
//! ```text
//! item      PK                    SK                        indexes
//! board     BOARD#<id>            METADATA                  ByData  BOARDS
//! season    BOARD#<id>            SEASON#<season>           —
//! label     BOARD#<id>            SNAP#<label>              —
//! ladder    SNAP#<board>#<label>  LADDER#<score>#<place>    —
//! user      USER#<id>             METADATA                  ByData  NAME#<lower-case name>
//! name      NAMES#<two letters>   <lower-case name>#<id>    —
//! named     NAMED                 METADATA, MARKS#<shard>   —
//! entry     USER#<id>             ENTRY#<board>#<season>    ByScore ENTRY#<board>#<season>#p<shard>, always 0
//! snapshot  USER#<id>             SNAP#<board>#<label>      ByScore SNAP#<board>#<label>#p<shard>, place;  ByRank, if official;
//!                                                           Best <board>#<score, best first>#<label>, if of a season
//! log       LOG                   METADATA                  —
//! play      USER#<id>             PLAY#<board>#<play_id>    ByTime  LOG#<minute>#p<shard>, time;  Recent <board>#<time>
//! key       KEY#<id>              METADATA                  ByData  KEYS
//! ```
//!
//! A snapshot's rows in `ByScore` are sorted by their place in the list, which is the order of scores with every tie settled: a page from any place on is
//! one range of each shard, and a row that has not reached the index yet leaves a gap that shows. The ladder tells the place of a score.
//!
//! An entry's row in `ByScore` carries nothing that a play changes: it is written once, at the first play, and is read only
//! when a ranking is rebuilt. A play then writes two items and two index rows. Times are microseconds since 1970.
//!
//! Only this file knows attribute names. Reading trusts nothing: an item that lacks what it must have is reported as damaged.

use compact_str::format_compact;
use serde::{Deserialize, Serialize};
use standings_table::item::VERSION;
use standings_table::{Attributes, Index, Item, Key, Projection, Schema, SortType, Text, Value};

use crate::board::{Order, Resets, Rules, Snapshots, Ties};
use crate::error::{Error, Result};
use crate::ids::{BoardId, Label, PlayId, UserId};
use crate::season::Season;

/// The sort key of what a thing is, as opposed to what it has.
pub const METADATA: &str = "METADATA";
/// The partition of `ByData` with all boards.
pub const BOARDS: &str = "BOARDS";
/// The partition of `ByData` with all keys.
pub const KEYS: &str = "KEYS";
/// Over how many partitions each minute of the play log is spread.
pub const LOG_SHARDS: u32 = 8;
/// Over how many partitions the entries of a new season are spread.
pub const ENTRY_SHARDS: u32 = 8;
/// The length of a partition of the play log.
pub const LOG_PARTITION_US: i64 = 60_000_000;

/// The table's indexes.
pub fn schema() -> Schema {
    use SortType::{Number, String};
    let include = |names: &[&str]| Projection::Include(names.iter().map(|name| Text::from(*name)).collect());
    let snapshot = include(&["name", "final_score", "final_rank", "final_reached_at"]);
    let indexes = [
        Index::global("ByScore", "by_score", "by_score_sort", Number).projecting(snapshot.clone()),
        Index::global("ByRank", "by_rank", "official_rank", Number).projecting(snapshot),
        Index::global("Inverted", "inverted", "PK", String),
        Index::global("ByData", "data", "SK", String).projecting(include(&["name"])),
        Index::global("ByTime", "log", "log_time", Number).projecting(include(&["season"])),
        Index::local("Recent", "recent", String).projecting(include(&[
            "points",
            "played_at",
            "season",
            "score_after",
        ])),
        Index::local("Best", "best", String).projecting(include(&["best_score", "final_rank"])),
    ];
    Schema::new(indexes).expect("the schema is a constant, and the tests open a table with it")
}

/// The shard of a user among so many.
pub fn shard_of(user: &UserId, shards: u32) -> u32 {
    // The shard is stored, so this must never change: FNV-1a, stirred once more because its high bits alone are not even.
    let hash = user.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let stirred = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    ((stirred ^ (stirred >> 33)) % u64::from(shards.max(1))) as u32
}

/// A board's rules, and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardRecord {
    /// Its name.
    pub board: BoardId,
    /// Its rules.
    pub rules: Rules,
    /// When it was made.
    pub created_at: i64,
    /// Counts changes.
    pub version: i64,
    /// Set while it is being deleted: how many users' plays and entries are gone already.
    pub deleted_users: Option<i64>,
    /// The end of the last season it has let go of: those until then do not begin anew, and users may have plays that nothing else points to.
    pub removed_until: Option<i64>,
    /// The end of the last day that a snapshot was taken of, also if that snapshot has been deleted since.
    pub last_day: Option<i64>,
}

impl BoardRecord {
    /// Its key.
    pub fn key(board: &BoardId) -> Key {
        Key::new(format!("BOARD#{board}"), METADATA)
    }

    /// Whether it takes a snapshot a day.
    pub fn takes_days(&self) -> bool {
        self.rules.snapshots == Snapshots::Daily && self.rules.resets == Resets::Never
    }

    /// As an item.
    pub fn to_item(&self) -> Item {
        let rules = serde_json::to_value(&self.rules).expect("rules are plain data");
        let mut item = with_key(Self::key(&self.board))
            .with("created_at", self.created_at)
            .with("data", BOARDS)
            .with("rules", json_to_value(&rules))
            .with(VERSION, self.version);
        if let Some(users) = self.deleted_users {
            item.attributes.set("deleted_users", users);
        }
        if let Some(end) = self.removed_until {
            item.attributes.set("removed_until", end);
        }
        if let Some(day) = self.last_day {
            item.attributes.set("last_day", day);
        }
        item
    }

    /// From an item.
    pub fn from_item(item: &Item) -> Result<Self> {
        let board = item.key.pk.strip_prefix("BOARD#").and_then(|board| BoardId::new(board).ok());
        let rules = item.get("rules").map(value_to_json).and_then(|rules| serde_json::from_value(rules).ok());
        Ok(Self {
            board: board.ok_or_else(|| damaged(item, "its key names no board"))?,
            rules: rules.ok_or_else(|| damaged(item, "its rules do not parse"))?,
            created_at: number(item, "created_at")?,
            version: number(item, VERSION)?,
            deleted_users: item.number("deleted_users"),
            removed_until: item.number("removed_until"),
            last_day: item.number("last_day"),
        })
    }
}

/// A season's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeasonRecord {
    /// The board.
    pub board: BoardId,
    /// The season.
    pub season: Season,
    /// When it begins and ends.
    pub start_us: i64,
    /// When it is over.
    pub end_us: i64,
    /// Over how many partitions its entries are spread.
    pub shards: u32,
    /// The checkpoint of its ranking that belongs to this table; others are of other tables or other times.
    pub checkpoint: Option<CheckpointName>,
    /// Its snapshot: there once the season takes no more plays, finished once it is final.
    pub snapshot: Option<SnapshotFacts>,
    /// Whether its live entries are gone.
    pub swept: bool,
    /// Whether it is on its way out, as one season too many.
    pub removing: bool,
    /// Counts changes.
    pub version: i64,
}

/// Where a season is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeasonState {
    /// Its plays are taken.
    Open,
    /// It takes no more plays, and its snapshot is being written.
    Closing,
    /// It will never change again.
    Final,
}

impl SeasonState {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Final => "final",
        }
    }
}

/// Which file holds a ranking, and of what time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointName {
    /// The file's id.
    pub id: String,
    /// Every play before this time of the log is in it.
    pub log_time: i64,
}

impl SeasonRecord {
    /// The partition of a board's seasons.
    pub fn partition(board: &BoardId) -> String {
        format!("BOARD#{board}")
    }

    /// What the sort keys of seasons begin with.
    pub const PREFIX: &str = "SEASON#";

    /// Its key.
    pub fn key(board: &BoardId, season: &Season) -> Key {
        Key::new(Self::partition(board), format!("{}{season}", Self::PREFIX))
    }

    /// As an item.
    pub fn to_item(&self) -> Item {
        let mut item = with_key(Self::key(&self.board, &self.season))
            .with("end", self.end_us)
            .with("shards", i64::from(self.shards))
            .with("start", self.start_us)
            .with("state", self.state().as_str())
            .with(VERSION, self.version);
        if let Some(checkpoint) = &self.checkpoint {
            item.attributes.set("checkpoint", checkpoint.id.as_str());
            item.attributes.set("checkpoint_log_time", checkpoint.log_time);
        }
        if let Some(snapshot) = &self.snapshot {
            item.attributes.set("snapshot", snapshot.to_value());
        }
        for (name, value) in [("swept", self.swept), ("removing", self.removing)] {
            if value {
                item.attributes.set(name, true);
            }
        }
        item
    }

    /// Where it is in its life.
    pub fn state(&self) -> SeasonState {
        match &self.snapshot {
            None => SeasonState::Open,
            Some(SnapshotFacts { finished_at: None, .. }) => SeasonState::Closing,
            Some(_) => SeasonState::Final,
        }
    }

    /// From an item.
    pub fn from_item(item: &Item) -> Result<Self> {
        let board = item.key.pk.strip_prefix("BOARD#").and_then(|board| BoardId::new(board).ok());
        let season = item.key.sk.strip_prefix(Self::PREFIX).map(Season::stored);
        Ok(Self {
            board: board.ok_or_else(|| damaged(item, "its key names no board"))?,
            season: season.ok_or_else(|| damaged(item, "its key names no season"))?,
            start_us: number(item, "start")?,
            end_us: number(item, "end")?,
            shards: u32::try_from(number(item, "shards")?)
                .map_err(|_| damaged(item, "its shards are no count"))?,
            checkpoint: item
                .text("checkpoint")
                .zip(item.number("checkpoint_log_time"))
                .map(|(id, log_time)| CheckpointName { id: id.to_owned(), log_time }),
            snapshot: SnapshotFacts::of(item)?,
            swept: flag(item, "swept"),
            removing: flag(item, "removing"),
            version: number(item, VERSION)?,
        })
    }
}

/// How a snapshot was taken and how far it is: everything its readers must know that its rows do not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotFacts {
    /// The season it is a copy of.
    pub season: String,
    /// The moment it shows.
    pub taken_at: i64,
    /// How many users it has.
    pub players: u64,
    /// How many of them are written, in order of their places.
    pub done: u64,
    /// When it was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<i64>,
    /// Over how many partitions its rows are spread.
    pub shards: u32,
    /// How many places an item of its ladder covers.
    pub block: u64,
    /// How many places lie between two scores of its ladder.
    pub step: u64,
    /// How many places are official.
    pub official: u32,
    /// Which way was up.
    pub order: Order,
    /// How equal scores were ranked.
    pub ties: Ties,
}

impl SnapshotFacts {
    fn to_value(&self) -> Value {
        json_to_value(&serde_json::to_value(self).expect("facts are plain data"))
    }

    fn of(item: &Item) -> Result<Option<Self>> {
        let read = |value| serde_json::from_value(value_to_json(value));
        let facts = item.get("snapshot").map(read).transpose();
        facts.map_err(|_| damaged(item, "its snapshot does not parse"))
    }
}

/// A snapshot that is not of a finished season: of a day, or under a label that somebody chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRecord {
    /// The board.
    pub board: BoardId,
    /// The label.
    pub label: Label,
    /// The midnight it was due at, if it is one of a day.
    pub due_at: Option<i64>,
    /// How it was taken and how far it is.
    pub snapshot: SnapshotFacts,
    /// Whether it is on its way out.
    pub removing: bool,
    /// Counts changes.
    pub version: i64,
}

impl LabelRecord {
    /// What the sort keys of labels begin with.
    pub const PREFIX: &str = "SNAP#";

    /// Its key.
    pub fn key(board: &BoardId, label: &Label) -> Key {
        Key::new(SeasonRecord::partition(board), format!("{}{label}", Self::PREFIX))
    }

    /// As an item.
    pub fn to_item(&self) -> Item {
        let mut item = with_key(Self::key(&self.board, &self.label))
            .with("snapshot", self.snapshot.to_value())
            .with(VERSION, self.version);
        if let Some(due_at) = self.due_at {
            item.attributes.set("due_at", due_at);
        }
        if self.removing {
            item.attributes.set("removing", true);
        }
        item
    }

    /// From an item.
    pub fn from_item(item: &Item) -> Result<Self> {
        let board = item.key.pk.strip_prefix("BOARD#").and_then(|board| BoardId::new(board).ok());
        let label = item.key.sk.strip_prefix(Self::PREFIX).map(Label::stored);
        Ok(Self {
            board: board.ok_or_else(|| damaged(item, "its key names no board"))?,
            label: label.ok_or_else(|| damaged(item, "its key names no label"))?,
            due_at: item.number("due_at"),
            snapshot: SnapshotFacts::of(item)?.ok_or_else(|| damaged(item, "it has no snapshot"))?,
            removing: flag(item, "removing"),
            version: number(item, VERSION)?,
        })
    }
}

/// A user in a snapshot. Never changes once the snapshot is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRow {
    /// Who.
    pub user: UserId,
    /// Their name at that time.
    pub name: Option<String>,
    /// Their score.
    pub score: i64,
    /// When they reached it.
    pub reached_at: i64,
    /// Their place in the list, from 1, counting everyone.
    pub place: u64,
    /// Their rank, by the board's ties.
    pub rank: u64,
    /// How many users had a better score.
    pub better: u64,
}

impl SnapshotRow {
    /// What the sort keys of a board's snapshots begin with, in a user's partition.
    pub fn prefix(board: &BoardId) -> String {
        format!("SNAP#{board}#")
    }

    /// Its key.
    pub fn key(user: &UserId, board: &BoardId, label: &Label) -> Key {
        Key::new(format!("USER#{user}"), format!("SNAP#{board}#{label}"))
    }

    /// The partition of `ByRank` with the official places.
    pub fn official_partition(board: &BoardId, label: &Label) -> String {
        format!("SNAP#{board}#{label}")
    }

    /// The partition of `ByScore` that a shard is in.
    pub fn partition(board: &BoardId, label: &Label, shard: u32) -> String {
        format!("SNAP#{board}#{label}#p{shard}")
    }

    /// What the sort values of a board in `Best` begin with.
    pub fn best_prefix(board: &BoardId) -> String {
        format!("{board}#")
    }

    /// As an item. `best` says whether it counts for the user's best: a finished season does, a day does not.
    pub fn to_item(&self, board: &BoardId, label: &Label, facts: &SnapshotFacts, best: bool) -> Item {
        let place = i64::try_from(self.place).unwrap_or(i64::MAX);
        let mut attributes = Attributes::with_capacity(11);
        if best {
            // The label behind it: of equal scores the earliest is the best.
            attributes.set("best", format!("{board}#{}#{label}", best_first(facts.order, self.score)));
            attributes.set("best_score", self.score);
        }
        attributes.set("better", i64::try_from(self.better).unwrap_or(i64::MAX));
        if self.place <= u64::from(facts.official) {
            attributes.set("by_rank", Self::official_partition(board, label));
        }
        attributes.set("by_score", Self::partition(board, label, shard_of(&self.user, facts.shards)));
        attributes.set("by_score_sort", place);
        attributes.set("final_rank", i64::try_from(self.rank).unwrap_or(i64::MAX));
        attributes.set("final_reached_at", self.reached_at);
        attributes.set("final_score", self.score);
        if let Some(name) = &self.name {
            attributes.set("name", name.as_str());
        }
        if self.place <= u64::from(facts.official) {
            attributes.set("official_rank", place);
        }
        Item { key: Self::key(&self.user, board, label), attributes }
    }

    /// What stays of a removed season where it was the user's best.
    pub fn kept_best(item: &Item) -> Item {
        let mut kept = with_key(item.key.clone()).with("kept", true);
        for name in ["best", "best_score", "final_rank", "final_reached_at", "final_score", "name"] {
            if let Some(value) = item.get(name) {
                kept.attributes.set(name, value.clone());
            }
        }
        kept
    }

    /// Whether this is all that is left of a removed season.
    pub fn is_kept_best(item: &Item) -> bool {
        flag(item, "kept")
    }

    /// From an item or from a row of `ByScore` or `ByRank`, neither of which says how many were better.
    pub fn from_item(item: &Item) -> Result<Self> {
        let count = |name: &'static str| {
            let value = number(item, name)?;
            u64::try_from(value).map_err(|_| damaged(item, "a count is less than nothing"))
        };
        let place = if item.get("by_score_sort").is_some() { "by_score_sort" } else { "official_rank" };
        Ok(Self {
            user: user_of(&item.key).ok_or_else(|| damaged(item, "its key names no user"))?,
            name: item.text("name").map(str::to_owned),
            score: number(item, "final_score")?,
            reached_at: number(item, "final_reached_at")?,
            place: if flag(item, "kept") { 0 } else { count(place)? },
            rank: count("final_rank")?,
            better: item.number("better").and_then(|better| u64::try_from(better).ok()).unwrap_or(0),
        })
    }

    /// The board and label of a key in a user's partition.
    pub fn parts_of(key: &Key) -> Option<(BoardId, Label)> {
        let (board, label) = key.sk.strip_prefix("SNAP#")?.split_once('#')?;
        Some((BoardId::new(board).ok()?, Label::stored(label)))
    }
}

/// Every so manyth score of a snapshot: tells where in the list a score is without reading the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderRecord {
    /// The place of the first score.
    pub first: u64,
    /// Scores, a step of the snapshot apart.
    pub scores: Vec<i64>,
}

impl LadderRecord {
    /// The partition of a snapshot's ladder.
    pub fn partition(board: &BoardId, label: &Label) -> String {
        format!("SNAP#{board}#{label}")
    }

    /// Sort keys before this one belong to items whose first score is better than this score.
    pub fn sort(order: Order, score: i64) -> String {
        format!("LADDER#{}", best_first(order, score))
    }

    /// As an item.
    pub fn to_item(&self, board: &BoardId, label: &Label, order: Order) -> Item {
        let first_score = self.scores.first().copied().unwrap_or(0);
        let sk = format!("{}#{:012}", Self::sort(order, first_score), self.first);
        with_key(Key::new(Self::partition(board, label), sk))
            .with("first", i64::try_from(self.first).unwrap_or(i64::MAX))
            .with("scores", Value::List(self.scores.iter().copied().map(Value::Number).collect()))
    }

    /// From an item.
    pub fn from_item(item: &Item) -> Result<Self> {
        let Some(Value::List(scores)) = item.get("scores") else {
            return Err(damaged(item, "it has no scores"));
        };
        let score = |value: &Value| match value {
            Value::Number(score) => Ok(*score),
            _ => Err(damaged(item, "a score is no number")),
        };
        Ok(Self {
            first: u64::try_from(number(item, "first")?)
                .map_err(|_| damaged(item, "its place is no place"))?,
            scores: scores.iter().map(score).collect::<Result<_>>()?,
        })
    }
}

/// A score as twenty digits that sort the best score first.
fn best_first(order: Order, score: i64) -> String {
    let turned = match order {
        Order::High => !score,
        Order::Low => score,
    };
    // From 0 on, so that digits sort as numbers do.
    format!("{:020}", turned.wrapping_sub(i64::MIN) as u64)
}

/// How far the play log may reach: every play is filed before this time.
///
/// Moved ahead, some minutes at a time, before a play is filed behind it. So whoever reads the log knows where it ends, whatever clocks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The end.
    pub until: i64,
    /// Counts changes.
    pub version: i64,
}

impl LogRecord {
    /// Its key.
    pub fn key() -> Key {
        Key::new("LOG", METADATA)
    }

    /// As an item.
    pub fn to_item(self) -> Item {
        with_key(Self::key()).with("until", self.until).with(VERSION, self.version)
    }

    /// From an item.
    pub fn from_item(item: &Item) -> Result<Self> {
        Ok(Self { until: number(item, "until")?, version: number(item, VERSION)? })
    }
}

/// A user's score in one live season.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The score.
    pub score: i64,
    /// When it was reached.
    pub reached_at: i64,
    /// The time of the latest play: what a later play must not be older than to replace it.
    pub latest_at: i64,
    /// How many plays it is made of.
    pub plays: i64,
    /// Counts changes.
    pub version: i64,
}

impl Entry {
    /// What the sort keys of entries begin with.
    pub const PREFIX: &str = "ENTRY#";

    /// Its key.
    pub fn key(user: &UserId, board: &BoardId, season: &Season) -> Key {
        let mut pk = Text::with_capacity(5 + user.as_str().len());
        pk.push_str("USER#");
        pk.push_str(user.as_str());
        let mut sk = Text::with_capacity(7 + board.as_str().len() + season.as_str().len());
        sk.push_str(Self::PREFIX);
        sk.push_str(board.as_str());
        sk.push('#');
        sk.push_str(season.as_str());
        Key { pk, sk }
    }

    /// The partition of `ByScore` that a shard of a season's entries is in.
    pub fn partition(board: &BoardId, season: &Season, shard: u32) -> Text {
        format_compact!("ENTRY#{board}#{season}#p{shard}")
    }

    /// As an item.
    pub fn to_item(self, user: &UserId, board: &BoardId, season: &Season, shards: u32) -> Item {
        let mut attributes = Attributes::with_capacity(7);
        attributes.set("by_score", Self::partition(board, season, shard_of(user, shards)));
        attributes.set("by_score_sort", 0);
        attributes.set("latest_at", self.latest_at);
        attributes.set("plays", self.plays);
        attributes.set("reached_at", self.reached_at);
        attributes.set("score", self.score);
        attributes.set(VERSION, self.version);
        Item { key: Self::key(user, board, season), attributes }
    }

    /// From an item.
    pub fn from_item(item: &Item) -> Result<Self> {
        Ok(Self {
            score: number(item, "score")?,
            reached_at: number(item, "reached_at")?,
            latest_at: number(item, "latest_at")?,
            plays: number(item, "plays")?,
            version: number(item, VERSION)?,
        })
    }

    /// As a ranking takes it.
    pub fn ranked(&self) -> rank_tree::Entry {
        // Times before 1970 are refused where they come in.
        rank_tree::Entry { score: self.score, reached_at: u64::try_from(self.reached_at).unwrap_or(0) }
    }
}

/// One submitted score. Never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayRecord {
    /// Who.
    pub user: UserId,
    /// Where.
    pub board: BoardId,
    /// Which one.
    pub play_id: PlayId,
    /// The season it counts for.
    pub season: Season,
    /// What was scored.
    pub points: i64,
    /// When it was played, as the caller says.
    pub played_at: i64,
    /// When it came here: its place in the play log.
    pub accepted_at: i64,
    /// The score after it.
    pub score_after: i64,
    /// The entry's version after it: plays fold in this order.
    pub entry_version: i64,
    /// The user's rank before it.
    pub previous_rank: Option<i64>,
    /// Whether it made the score better.
    pub improved: bool,
}

impl PlayRecord {
    /// What the sort keys of a board's plays begin with.
    pub fn prefix(board: &BoardId) -> String {
        format!("PLAY#{board}#")
    }

    /// Its key.
    pub fn key(user: &UserId, board: &BoardId, play_id: &PlayId) -> Key {
        let mut pk = Text::with_capacity(5 + user.as_str().len());
        pk.push_str("USER#");
        pk.push_str(user.as_str());
        let mut sk = Text::with_capacity(6 + board.as_str().len() + play_id.as_str().len());
        sk.push_str("PLAY#");
        sk.push_str(board.as_str());
        sk.push('#');
        sk.push_str(play_id.as_str());
        Key { pk, sk }
    }

    /// What the sort values of a board in `Recent` begin with.
    pub fn recent_prefix(board: &BoardId) -> String {
        format!("{board}#")
    }

    /// The partition of the play log that a shard of a minute is in.
    pub fn log_partition(minute: i64, shard: u32) -> Text {
        format_compact!("LOG#{minute}#p{shard}")
    }

    /// As an item.
    pub fn to_item(&self) -> Item {
        let minute = self.accepted_at.div_euclid(LOG_PARTITION_US);
        let mut attributes = Attributes::with_capacity(10);
        attributes.set("entry_version", self.entry_version);
        attributes.set("improved", self.improved);
        attributes.set("log", Self::log_partition(minute, shard_of(&self.user, LOG_SHARDS)));
        attributes.set("log_time", self.accepted_at);
        attributes.set("played_at", self.played_at);
        attributes.set("points", self.points);
        if let Some(rank) = self.previous_rank {
            attributes.set("previous_rank", rank);
        }
        attributes.set("recent", format_compact!("{}#{:017}", self.board, self.played_at));
        attributes.set("score_after", self.score_after);
        attributes.set("season", self.season.as_str());
        Item { key: Self::key(&self.user, &self.board, &self.play_id), attributes }
    }

    /// From an item.
    pub fn from_item(item: &Item) -> Result<Self> {
        let (user, board, play_id) =
            Self::parts_of(&item.key).ok_or_else(|| damaged(item, "its key names no play"))?;
        Ok(Self {
            user,
            board,
            play_id,
            season: item
                .text("season")
                .map(Season::stored)
                .ok_or_else(|| damaged(item, "it has no season"))?,
            points: number(item, "points")?,
            played_at: number(item, "played_at")?,
            accepted_at: number(item, "log_time")?,
            score_after: number(item, "score_after")?,
            entry_version: number(item, "entry_version")?,
            previous_rank: item.number("previous_rank"),
            improved: flag(item, "improved"),
        })
    }

    /// What a play's key says.
    pub fn parts_of(key: &Key) -> Option<(UserId, BoardId, PlayId)> {
        let (board, play_id) = key.sk.strip_prefix("PLAY#")?.split_once('#')?;
        Some((user_of(key)?, BoardId::new(board).ok()?, PlayId::new(play_id).ok()?))
    }
}

/// A user's profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRecord {
    /// Who.
    pub user: UserId,
    /// The name others see.
    pub name: Option<String>,
    /// When the profile was made.
    pub created_at: i64,
    /// Counts changes.
    pub version: i64,
}

impl UserRecord {
    /// Its key.
    pub fn key(user: &UserId) -> Key {
        Key::new(format!("USER#{user}"), METADATA)
    }

    /// The partition of `ByData` with the users of a name, whatever its case.
    pub fn name_partition(name: &str) -> String {
        format!("NAME#{}", name.to_lowercase())
    }

    /// As an item.
    pub fn to_item(&self) -> Item {
        let mut item =
            with_key(Self::key(&self.user)).with("created_at", self.created_at).with(VERSION, self.version);
        if let Some(name) = &self.name {
            item.attributes.set("name", name.as_str());
            item.attributes.set("data", Self::name_partition(name));
        }
        item
    }

    /// From an item.
    pub fn from_item(item: &Item) -> Result<Self> {
        Ok(Self {
            user: user_of(&item.key).ok_or_else(|| damaged(item, "its key names no user"))?,
            name: item.text("name").map(str::to_owned),
            created_at: number(item, "created_at")?,
            version: number(item, VERSION)?,
        })
    }
}

/// A user's name where it can be found by how it begins: names that begin with the same two characters are one partition, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRecord {
    /// Who.
    pub user: UserId,
    /// The name.
    pub name: String,
}

impl NameRecord {
    /// How many characters of a name must be known to look for it.
    pub const PREFIX_CHARACTERS: usize = 2;

    /// The partition of names that begin so.
    pub fn partition(lower_case: &str) -> String {
        let first: String = lower_case.chars().take(Self::PREFIX_CHARACTERS).collect();
        format!("NAMES#{first}")
    }

    /// Its key.
    pub fn key(user: &UserId, name: &str) -> Key {
        let lower_case = name.to_lowercase();
        Key::new(Self::partition(&lower_case), format!("{lower_case}#{user}"))
    }

    /// As an item.
    pub fn to_item(&self) -> Item {
        with_key(Self::key(&self.user, &self.name)).with("name", self.name.as_str())
    }

    /// From an item.
    pub fn from_item(item: &Item) -> Result<Self> {
        // The name may hold a `#`, the id may not.
        let user = item.key.sk.rsplit_once('#').and_then(|(_, user)| UserId::new(user).ok());
        Ok(Self {
            user: user.ok_or_else(|| damaged(item, "its key names no user"))?,
            name: item.text("name").map(str::to_owned).ok_or_else(|| damaged(item, "it has no name"))?,
        })
    }
}

/// Which groups of users have somebody with a name, or had once: a shard of the marks. See `named.rs`.
///
/// Whoever puts a profile with a name sees to it that the group's mark is there, in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRecord {
    /// Which shard.
    pub shard: usize,
    /// A bit a group.
    pub marks: [u8; NamedRecord::BYTES],
    /// Counts changes; 0 if it is not in the table.
    pub version: i64,
}

impl NamedRecord {
    /// How many groups there are. Which group a user is in is stored, so this must never change.
    pub const GROUPS: usize = 1 << 16;
    /// In how many items the marks are: all can be read at once, and none costs more than one unit to write.
    pub const SHARDS: usize = 64;
    const BYTES: usize = Self::GROUPS / Self::SHARDS / 8;
    const PARTITION: &str = "NAMED";

    /// Says that all names of a table have their marks.
    pub fn beginning() -> Item {
        with_key(Key::new(Self::PARTITION, METADATA)).with(VERSION, 1)
    }

    /// The key of a shard.
    pub fn key(shard: usize) -> Key {
        Key::new(Self::PARTITION, format!("MARKS#{shard:02}"))
    }

    /// The group of a user.
    pub fn group_of(user: &str) -> usize {
        (xxhash_rust::xxh3::xxh3_64(user.as_bytes()) >> 48) as usize
    }

    /// The shard of a group.
    pub fn shard_of(group: usize) -> usize {
        group / (Self::GROUPS / Self::SHARDS)
    }

    /// A shard without marks.
    pub fn new(shard: usize) -> Self {
        Self { shard, marks: [0; Self::BYTES], version: 0 }
    }

    /// The groups of this shard that have a mark.
    pub fn groups(&self) -> impl Iterator<Item = usize> + '_ {
        let first = self.shard * Self::BYTES * 8;
        (0..Self::BYTES * 8)
            .filter(|bit| self.marks[bit / 8] >> (bit % 8) & 1 == 1)
            .map(move |bit| first + bit)
    }

    /// The next version, with a mark for a group of this shard; nothing if it has one.
    pub fn with(&self, group: usize) -> Option<Self> {
        let (byte, bit) = (group / 8 % Self::BYTES, group % 8);
        let mut next = self.clone();
        next.marks[byte] |= 1 << bit;
        next.version += 1;
        (next.marks != self.marks).then_some(next)
    }

    /// As an item.
    pub fn to_item(&self) -> Item {
        with_key(Self::key(self.shard)).with("marks", self.marks.to_vec()).with(VERSION, self.version)
    }

    /// From an item.
    pub fn from_item(shard: usize, item: &Item) -> Result<Self> {
        let Some(Value::Bytes(marks)) = item.get("marks") else {
            return Err(damaged(item, "it has no marks"));
        };
        Ok(Self {
            shard,
            marks: marks
                .as_slice()
                .try_into()
                .map_err(|_| damaged(item, "its marks are not as many as there are"))?,
            version: number(item, VERSION)?,
        })
    }
}

/// An API key: what is kept of it, which is not the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its public part.
    pub id: String,
    /// Everything else, in the server's own words.
    pub content: serde_json::Value,
    /// Counts changes.
    pub version: i64,
}

impl KeyRecord {
    /// Its key in the table.
    pub fn key(id: &str) -> Key {
        Key::new(format!("KEY#{id}"), METADATA)
    }

    /// As an item.
    pub fn to_item(&self) -> Item {
        with_key(Self::key(&self.id))
            .with("content", json_to_value(&self.content))
            .with("data", KEYS)
            .with(VERSION, self.version)
    }

    /// From an item.
    pub fn from_item(item: &Item) -> Result<Self> {
        let id = item.key.pk.strip_prefix("KEY#").ok_or_else(|| damaged(item, "its key names no API key"))?;
        let content = item.get("content").ok_or_else(|| damaged(item, "it has no content"))?;
        Ok(Self { id: id.to_owned(), content: value_to_json(content), version: number(item, VERSION)? })
    }
}

/// The user whose partition a key is in.
pub fn user_of(key: &Key) -> Option<UserId> {
    key.pk.strip_prefix("USER#").and_then(|user| UserId::new(user).ok())
}

fn with_key(key: Key) -> Item {
    Item { key, attributes: Attributes::new() }
}

pub(crate) fn damaged(item: &Item, why: &'static str) -> Error {
    Error::Damaged { key: item.key.to_string(), why }
}

fn flag(item: &Item, name: &str) -> bool {
    item.get(name) == Some(&Value::Bool(true))
}

fn number(item: &Item, name: &'static str) -> Result<i64> {
    item.number(name).ok_or_else(|| damaged(item, name_missing(name)))
}

fn name_missing(name: &'static str) -> &'static str {
    match name {
        "score" => "it has no score",
        "points" => "it has no points",
        VERSION => "it has no version",
        _ => "a number it must have is missing",
    }
}

/// JSON as the table keeps it. Numbers must be whole; `null` is left out of maps and becomes an empty list in lists.
pub fn json_to_value(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::List(vec![]),
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => {
            number.as_i64().map_or_else(|| Value::from(number.to_string()), Value::Number)
        }
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(values) => Value::List(values.iter().map(json_to_value).collect()),
        Json::Object(map) => Value::Map(
            map.iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.as_str(), json_to_value(value)))
                .collect(),
        ),
    }
}

/// The way back.
pub fn value_to_json(value: &Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match value {
        Value::Bool(value) => Json::Bool(*value),
        Value::Number(number) => Json::from(*number),
        Value::String(text) => Json::from(text.as_str()),
        Value::Bytes(bytes) => Json::from(bytes.clone()),
        Value::List(values) => Json::Array(values.iter().map(value_to_json).collect()),
        Value::Map(map) => {
            Json::Object(map.iter().map(|(name, value)| (name.to_string(), value_to_json(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_comes_back_from_its_item() {
        let (user, board) = (UserId::new("ann").unwrap(), BoardId::new("default").unwrap());
        let season = Season::stored("2026-11");
        let record = BoardRecord {
            board: board.clone(),
            rules: Rules { max_points: Some(7), ..Rules::of_default_board() },
            created_at: 5,
            version: 2,
            deleted_users: Some(3),
            removed_until: Some(9),
            last_day: Some(8),
        };
        assert_eq!(BoardRecord::from_item(&record.to_item()).unwrap(), record);
        let record = SeasonRecord {
            board: board.clone(),
            season: season.clone(),
            start_us: -1,
            end_us: i64::MAX,
            shards: 8,
            checkpoint: Some(CheckpointName { id: "c".into(), log_time: 7 }),
            snapshot: None,
            swept: false,
            removing: false,
            version: 1,
        };
        assert_eq!(SeasonRecord::from_item(&record.to_item()).unwrap(), record);
        assert_eq!(record.state(), SeasonState::Open);
        let mut facts = SnapshotFacts {
            season: "2026-11".into(),
            taken_at: 5,
            players: 9,
            done: 4,
            finished_at: None,
            shards: 8,
            block: 64,
            step: 2,
            official: 2,
            order: Order::Low,
            ties: Ties::Dense,
        };
        let record = SeasonRecord { snapshot: Some(facts.clone()), ..record };
        assert_eq!(SeasonRecord::from_item(&record.to_item()).unwrap(), record);
        assert_eq!(record.to_item().text("state"), Some("closing"));
        facts.finished_at = Some(6);
        let record = SeasonRecord { snapshot: Some(facts.clone()), swept: true, removing: true, ..record };
        assert_eq!(SeasonRecord::from_item(&record.to_item()).unwrap(), record);
        assert_eq!(record.state(), SeasonState::Final);
        let label = Label::new("2026-02-21").unwrap();
        let record = LabelRecord {
            board: board.clone(),
            label: label.clone(),
            due_at: Some(3),
            snapshot: facts.clone(),
            removing: true,
            version: 4,
        };
        assert_eq!(LabelRecord::from_item(&record.to_item()).unwrap(), record);
        for place in 2..4 {
            let name = Some("Änn".to_owned());
            let row =
                SnapshotRow { user: user.clone(), name, score: -3, reached_at: 5, place, rank: 1, better: 0 };
            let item = row.to_item(&board, &label, &facts, true);
            assert_eq!(SnapshotRow::from_item(&item).unwrap(), row);
            assert_eq!(item.number("official_rank"), (place == 2).then_some(2));
            let kept = SnapshotRow::kept_best(&item);
            assert!(SnapshotRow::is_kept_best(&kept) && kept.get("by_score").is_none());
            assert_eq!(SnapshotRow::from_item(&kept).unwrap(), SnapshotRow { place: 0, ..row });
        }
        let ladder = LadderRecord { first: 65, scores: vec![i64::MAX, 0, i64::MIN] };
        assert_eq!(LadderRecord::from_item(&ladder.to_item(&board, &label, Order::High)).unwrap(), ladder);
        let entry = Entry { score: i64::MIN, reached_at: 9, latest_at: 9, plays: 1, version: 1 };
        assert_eq!(Entry::from_item(&entry.to_item(&user, &board, &season, 8)).unwrap(), entry);
        let mut play = PlayRecord {
            user: user.clone(),
            board,
            play_id: PlayId::generate(),
            season,
            points: -4,
            played_at: 77,
            accepted_at: 78,
            score_after: 6,
            entry_version: 1,
            previous_rank: None,
            improved: true,
        };
        assert_eq!(PlayRecord::from_item(&play.to_item()).unwrap(), play);
        (play.previous_rank, play.improved) = (Some(4), false);
        assert_eq!(PlayRecord::from_item(&play.to_item()).unwrap(), play);
        let mut record = UserRecord { user, name: Some("Änn".into()), created_at: 1, version: 1 };
        assert_eq!(record.to_item().text("data"), Some("NAME#änn"));
        assert_eq!(UserRecord::from_item(&record.to_item()).unwrap(), record);
        let name = NameRecord { user: record.user.clone(), name: "Ä#n".into() };
        assert_eq!(name.to_item().key.to_string(), Key::new("NAMES#ä#", "ä#n#ann").to_string());
        assert_eq!(NameRecord::from_item(&name.to_item()).unwrap(), name);
        record.name = None;
        assert_eq!(UserRecord::from_item(&record.to_item()).unwrap(), record);
    }

    #[test]
    fn marks_come_back_and_groups_never_change() {
        assert_eq!(NamedRecord::group_of("ann"), 18_476);
        let mut records: Vec<NamedRecord> = (0..NamedRecord::SHARDS).map(NamedRecord::new).collect();
        let groups = [0, 7, 8, 1_023, 1_024, 40_000, 65_535];
        for group in groups {
            let record = &mut records[NamedRecord::shard_of(group)];
            *record = record.with(group).unwrap();
            assert_eq!(record.with(group), None, "it has the mark already");
            assert_eq!(NamedRecord::from_item(record.shard, &record.to_item()).unwrap(), *record);
        }
        assert!(records.iter().flat_map(NamedRecord::groups).eq(groups));
    }

    #[test]
    fn scores_in_keys_sort_as_scores_do() {
        let scores = [i64::MIN, -1, 0, 1, 1 << 40, i64::MAX];
        for pair in scores.windows(2) {
            assert!(best_first(Order::High, pair[0]) > best_first(Order::High, pair[1]));
            assert!(best_first(Order::Low, pair[0]) < best_first(Order::Low, pair[1]));
        }
    }

    #[test]
    fn an_item_that_lacks_something_is_damaged_not_guessed_at() {
        let item = Item::new("USER#ann", "ENTRY#default#2026-11").with("score", 5);
        assert!(matches!(Entry::from_item(&item), Err(Error::Damaged { .. })));
        assert!(matches!(PlayRecord::from_item(&item), Err(Error::Damaged { .. })));
    }

    #[test]
    fn shards_are_even_and_never_change() {
        let mut counts = [0; 8];
        for at in 0..8_000 {
            counts[shard_of(&UserId::new(format!("user-{at}")).unwrap(), 8) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
        assert_eq!(shard_of(&UserId::new("ann").unwrap(), 1_000_000), 616_546);
    }
}
