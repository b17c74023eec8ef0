//! Rules and seasons. A season's bounds are searched for, not computed: the first microsecond that the zone says is on its day.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

pub(crate) const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules {
    pub(crate) score: &'static str,
    pub(crate) order: &'static str,
    pub(crate) ties: &'static str,
    pub(crate) resets: &'static str,
    pub(crate) week_starts: &'static str,
    pub(crate) time_zone: &'static str,
    pub(crate) decimals: u32,
    /// In the board's smallest unit, as are all points here.
    pub(crate) min_points: Option<i64>,
    pub(crate) max_points: Option<i64>,
    pub(crate) late_seconds: i64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            score: "sum",
            order: "high",
            ties: "shared",
            resets: "never",
            week_starts: "monday",
            time_zone: "UTC",
            decimals: 0,
            min_points: None,
            max_points: None,
            late_seconds: 300,
        }
    }
}

impl Rules {
    pub(crate) fn of_default_board() -> Rules {
        Rules { resets: "monthly", ..Rules::default() }
    }

    pub(super) fn better(&self, score: i64, than: i64) -> bool {
        if self.order == "high" { score > than } else { score < than }
    }
}

/// A season by name, from `start` until just before `end`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Season {
    pub(crate) name: String,
    pub(crate) start: Option<i64>,
    pub(crate) end: Option<i64>,
}

impl Season {
    pub(crate) fn at(rules: &Rules, us: i64) -> Season {
        let zone = TimeZone::get(rules.time_zone).expect("a zone");
        let day_of = |us| Timestamp::from_microsecond(us).expect("a time").to_zoned(zone.clone()).date();
        let day: Date = day_of(us);
        let (first, next, name) = match rules.resets {
            "never" => return Season { name: "all".to_owned(), start: None, end: None },
            "daily" => (day, day + 1.day(), day.to_string()),
            "weekly" => {
                let mut first = day;
                while WEEKDAYS[first.weekday().to_monday_zero_offset() as usize] != rules.week_starts {
                    first -= 1.day();
                }
                (first, first + 7.days(), first.to_string())
            }
            _ => (day.first_of_month(), day.last_of_month() + 1.day(), day.to_string()[..7].to_owned()),
        };
        // The first microsecond of a day is the first one that the zone says is on it.
        let begin = |day: Date| {
            let (mut before, mut after) = (us - 40 * 86_400_000_000, us + 40 * 86_400_000_000);
            while after - before > 1 {
                let middle = before + (after - before) / 2;
                if day_of(middle) >= day { after = middle } else { before = middle }
            }
            after
        };
        Season { name, start: Some(begin(first)), end: Some(begin(next)) }
    }

    pub(crate) fn named(rules: &Rules, name: &str) -> Option<Season> {
        if rules.resets == "never" {
            return (name == "all").then(|| Season::at(rules, 0));
        }
        let day = if rules.resets == "monthly" { format!("{name}-01") } else { name.to_owned() };
        let noon = day.parse::<Date>().ok()?.at(12, 0, 0, 0).in_tz(rules.time_zone).ok()?;
        let season = Season::at(rules, noon.timestamp().as_microsecond());
        (season.name == name).then_some(season)
    }

    pub(super) fn takes_plays(&self, rules: &Rules, now: i64) -> bool {
        self.end.is_none_or(|end| now < end + rules.late_seconds * 1_000_000)
    }
}
