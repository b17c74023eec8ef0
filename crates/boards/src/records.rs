//! The single-table design: every kind of item, its keys, its place in the indexes. Readable top to bottom.
//!
//! ```text
//! item      PK            SK                        indexes
//! board     BOARD#<id>    METADATA                  ByData  BOARDS
//! season    BOARD#<id>    SEASON#<season>           —
//! user      USER#<id>     METADATA                  ByData  NAME#<lower-case name>
//! named     NAMED         METADATA, MARKS#<shard>   —
//! entry     USER#<id>     ENTRY#<board>#<season>    ByScore ENTRY#<board>#<season>#p<shard>, always 0
//! log       LOG           METADATA                  —
//! play      USER#<id>     PLAY#<board>#<play_id>    ByTime  LOG#<minute>#p<shard>, time;  Recent <board>#<time>
//! key       KEY#<id>      METADATA                  ByData  KEYS
//! ```
//!
//! An entry's row in `ByScore` carries nothing that a play changes: it is written once, at the first play, and is read only
//! when a ranking is rebuilt. A play then writes two items and two index rows. Times are microseconds since 1970.
//!
//! Only this file knows attribute names. Reading trusts nothing: an item that lacks what it must have is reported as damaged.

use standings_table::item::VERSION;
use standings_table::{Attributes, Index, Item, Key, Projection, Schema, SortType, Text, Value};

use crate::board::Rules;
use crate::error::{Error, Result};
use crate::ids::{BoardId, PlayId, UserId};
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
}

impl BoardRecord {
    /// Its key.
    pub fn key(board: &BoardId) -> Key {
        Key::new(format!("BOARD#{board}"), METADATA)
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
    /// Counts changes.
    pub version: i64,
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
            .with("state", "open")
            .with(VERSION, self.version);
        if let Some(checkpoint) = &self.checkpoint {
            item.attributes.set("checkpoint", checkpoint.id.as_str());
            item.attributes.set("checkpoint_log_time", checkpoint.log_time);
        }
        item
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
            version: number(item, VERSION)?,
        })
    }
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
    pub fn partition(board: &BoardId, season: &Season, shard: u32) -> String {
        format!("ENTRY#{board}#{season}#p{shard}")
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

    /// The partition of the play log that a shard of a minute is in.
    pub fn log_partition(minute: i64, shard: u32) -> String {
        format!("LOG#{minute}#p{shard}")
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
        attributes.set("recent", format!("{}#{:017}", self.board, self.played_at));
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
            improved: item.get("improved") == Some(&Value::Bool(true)),
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
        };
        assert_eq!(BoardRecord::from_item(&record.to_item()).unwrap(), record);
        let record = SeasonRecord {
            board: board.clone(),
            season: season.clone(),
            start_us: -1,
            end_us: i64::MAX,
            shards: 8,
            checkpoint: Some(CheckpointName { id: "c".into(), log_time: 7 }),
            version: 1,
        };
        assert_eq!(SeasonRecord::from_item(&record.to_item()).unwrap(), record);
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
