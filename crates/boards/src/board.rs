//! A board's rules: how plays fold into a score, which way is up, how ties are settled, when it resets.

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::points;

/// How a play changes the entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fold {
    /// Points add up.
    #[default]
    Sum,
    /// The better one stays.
    Best,
    /// The latest one replaces.
    Latest,
}

/// Which way is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// More is better.
    #[default]
    High,
    /// Less is better.
    Low,
}

impl From<Order> for rank_tree::Order {
    fn from(order: Order) -> Self {
        match order {
            Order::High => Self::High,
            Order::Low => Self::Low,
        }
    }
}

/// How equal scores are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ties {
    /// 1, 1, 3.
    #[default]
    Shared,
    /// 1, 1, 2.
    Dense,
    /// 1, 2, 3: whoever was first.
    First,
}

impl From<Ties> for rank_tree::Ties {
    fn from(ties: Ties) -> Self {
        match ties {
            Ties::Shared => Self::Shared,
            Ties::Dense => Self::Dense,
            Ties::First => Self::First,
        }
    }
}

/// When a board begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resets {
    /// One season for good.
    Never,
    /// At midnight.
    Daily,
    /// At the midnight before `week_starts`.
    Weekly,
    /// At the midnight before the first of a month.
    Monthly,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "their names say it all")]
pub enum Weekday {
    #[default]
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl From<Weekday> for jiff::civil::Weekday {
    fn from(day: Weekday) -> Self {
        match day {
            Weekday::Monday => Self::Monday,
            Weekday::Tuesday => Self::Tuesday,
            Weekday::Wednesday => Self::Wednesday,
            Weekday::Thursday => Self::Thursday,
            Weekday::Friday => Self::Friday,
            Weekday::Saturday => Self::Saturday,
            Weekday::Sunday => Self::Sunday,
        }
    }
}

/// Whether daily snapshots are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Snapshots {
    /// None.
    #[default]
    None,
    /// At the board's midnight.
    Daily,
}

/// Everything that makes one board different from another. Points are in the board's smallest unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// How plays fold into a score.
    pub score: Fold,
    /// Which way is up.
    pub order: Order,
    /// How equal scores are ranked.
    pub ties: Ties,
    /// When the board begins anew.
    pub resets: Resets,
    /// The first day of a weekly season.
    pub week_starts: Weekday,
    /// The IANA name of the zone whose midnights count.
    pub time_zone: String,
    /// Digits behind the point.
    pub decimals: u8,
    /// The least points a play may have.
    pub min_points: Option<i64>,
    /// The most points a play may have.
    pub max_points: Option<i64>,
    /// How many ranks of a snapshot are official.
    pub official: u32,
    /// Whether daily snapshots are taken.
    pub snapshots: Snapshots,
    /// How many finished seasons are kept.
    pub keep_seasons: u32,
    /// How long after a season's end its plays are still taken.
    pub late_seconds: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            score: Fold::Sum,
            order: Order::High,
            ties: Ties::Shared,
            resets: Resets::Never,
            week_starts: Weekday::Monday,
            time_zone: "UTC".to_owned(),
            decimals: 0,
            min_points: None,
            max_points: None,
            official: 100,
            snapshots: Snapshots::None,
            keep_seasons: 12,
            late_seconds: 300,
        }
    }
}

/// The longest time a season stays open after its end.
const LATE_SECONDS_MAX: u32 = 7 * 24 * 3_600;
const OFFICIAL_MAX: u32 = 1_000;
const KEEP_SEASONS_MAX: u32 = 10_000;

impl Rules {
    /// The rules of the board that is there from the start.
    pub fn of_default_board() -> Self {
        Self { resets: Resets::Monthly, ..Self::default() }
    }

    /// Checks that the rules make sense together; gives the time zone they name.
    ///
    /// # Errors
    /// [`Error::InvalidRules`] with the field and what is allowed.
    pub fn check(&self) -> Result<TimeZone> {
        let refuse = |field, why: String| Err(Error::InvalidRules { field, why });
        if self.decimals > points::DECIMALS_MAX {
            return refuse("decimals", format!("must be 0 to {}", points::DECIMALS_MAX));
        }
        if let (Some(min), Some(max)) = (self.min_points, self.max_points)
            && min > max
        {
            return refuse("min_points", "must not be more than max_points".to_owned());
        }
        if self.official > OFFICIAL_MAX {
            return refuse("official", format!("must be at most {OFFICIAL_MAX}"));
        }
        if self.late_seconds > LATE_SECONDS_MAX {
            return refuse("late_seconds", format!("must be at most {LATE_SECONDS_MAX} (a week)"));
        }
        if self.snapshots == Snapshots::Daily && self.resets != Resets::Never {
            return refuse(
                "snapshots",
                "daily is for boards that never reset; every finished season of this one is a snapshot anyway"
                    .to_owned(),
            );
        }
        if self.keep_seasons > KEEP_SEASONS_MAX {
            return refuse("keep_seasons", format!("must be at most {KEEP_SEASONS_MAX}"));
        }
        time_zone(&self.time_zone)
    }

    /// Whether a board that has plays may go from these rules to others.
    ///
    /// What decides the meaning of scores and seasons stays; what is worked out at every read, or holds for plays to come, may change.
    ///
    /// # Errors
    /// [`Error::RuleFixed`] with the first field that may not.
    pub fn check_change(&self, to: &Self) -> Result<()> {
        let fixed = [
            ("score", self.score != to.score),
            ("order", self.order != to.order),
            ("decimals", self.decimals != to.decimals),
            ("resets", self.resets != to.resets),
            ("week_starts", self.week_starts != to.week_starts && self.resets == Resets::Weekly),
            ("time_zone", self.time_zone != to.time_zone && self.resets != Resets::Never),
        ];
        match fixed.into_iter().find(|(_, changed)| *changed) {
            Some((field, _)) => Err(Error::RuleFixed { field }),
            None => Ok(()),
        }
    }

    /// Whether a play of so many points is within the board's bounds.
    ///
    /// # Errors
    /// [`Error::PointsOutOfBounds`].
    pub fn check_points(&self, points: i64) -> Result<()> {
        if self.min_points.is_some_and(|min| points < min) || self.max_points.is_some_and(|max| points > max)
        {
            let written = |points| points::format(points, self.decimals);
            return Err(Error::PointsOutOfBounds {
                min: self.min_points.map(written),
                max: self.max_points.map(written),
            });
        }
        Ok(())
    }
}

/// Zone names from a table that comes with the program, so that they mean the same on every machine. `Local` and the like would not.
fn time_zone(name: &str) -> Result<TimeZone> {
    TimeZone::get(name).map_err(|_| Error::InvalidRules {
        field: "time_zone",
        why: format!("must be the IANA name of a time zone such as UTC or Asia/Seoul, not {name:?}"),
    })
}
