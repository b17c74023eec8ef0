//! Seasons: which one a moment belongs to, by the board's rules and in its time zone.
//!
//! Nothing here waits for a timer: a season follows from a time. A day that daylight saving makes 23 or 25 hours long, or that begins at
//! one in the morning because midnight was skipped, is as long as it is.

use std::fmt;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use standings_table::Text;

use crate::board::{Resets, Rules};
use crate::error::{Error, Result};

/// The name of the one season of a board that never resets.
pub(crate) const ALL: &str = "all";

/// A season's name: `2026-11`, `2026-11-13` or `all`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Season(Text);

impl Season {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name that comes from the table, where only names of this module are.
    pub(crate) fn stored(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for Season {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A season with its bounds, in microseconds since 1970: from `start_us` on, until just before `end_us`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeasonSpan {
    /// Its name.
    pub season: Season,
    /// When it begins.
    pub start_us: i64,
    /// When it is over.
    pub end_us: i64,
}

impl SeasonSpan {
    /// Whether a moment lies in the season.
    pub fn contains(&self, time_us: i64) -> bool {
        self.start_us <= time_us && time_us < self.end_us
    }

    /// Whether plays of the season are still taken at a moment.
    pub fn takes_plays(&self, rules: &Rules, now_us: i64) -> bool {
        now_us < self.end_us.saturating_add(i64::from(rules.late_seconds) * 1_000_000)
    }

    /// Until when plays of the season are taken, in words.
    pub fn takes_plays_until(&self, rules: &Rules) -> String {
        format_us(self.end_us.saturating_add(i64::from(rules.late_seconds) * 1_000_000))
    }
}

/// A board's rules about time, with the zone looked up.
#[derive(Clone, Debug)]
pub struct Calendar {
    resets: Resets,
    week_starts: jiff::civil::Weekday,
    zone: TimeZone,
}

impl Calendar {
    /// The calendar of rules that have been checked.
    ///
    /// # Errors
    /// [`Error::InvalidRules`].
    pub fn new(rules: &Rules) -> Result<Self> {
        Ok(Self { resets: rules.resets, week_starts: rules.week_starts.into(), zone: rules.check()? })
    }

    /// The season a moment belongs to.
    ///
    /// # Errors
    /// [`Error::InvalidTime`] for times beyond the year 9998.
    pub fn season_at(&self, time_us: i64) -> Result<SeasonSpan> {
        if self.resets == Resets::Never {
            return Ok(Self::all());
        }
        let invalid = || Error::InvalidTime { what: "played_at" };
        let moment = Timestamp::from_microsecond(time_us).map_err(|_| invalid())?;
        let date = moment.to_zoned(self.zone.clone()).date();
        self.span(self.first_day(date).ok_or_else(invalid)?).ok_or_else(invalid)
    }

    /// The season of that name.
    ///
    /// # Errors
    /// [`Error::InvalidSeason`] if the board cannot have one of that name.
    pub fn season_named(&self, name: &str) -> Result<SeasonSpan> {
        let why = match self.resets {
            Resets::Never => "it never resets, its one season is called `all`",
            Resets::Daily => "they are called by their day, such as 2026-11-13",
            Resets::Weekly => {
                "they are called by their first day, such as 2026-11-13, on which a week of the board begins"
            }
            Resets::Monthly => "they are called by their month, such as 2026-11",
        };
        let found = match self.resets {
            Resets::Never => Some(Self::all()),
            Resets::Monthly => format!("{name}-01").parse().ok().and_then(|date| self.span(date)),
            Resets::Daily | Resets::Weekly => name
                .parse()
                .ok()
                .filter(|date| self.first_day(*date) == Some(*date))
                .and_then(|date| self.span(date)),
        };
        // The name must be written the one way it is stored.
        found
            .filter(|span| span.season.as_str() == name)
            .ok_or_else(|| Error::InvalidSeason { season: name.to_owned(), why })
    }

    fn all() -> SeasonSpan {
        SeasonSpan { season: Season(ALL.into()), start_us: i64::MIN, end_us: i64::MAX }
    }

    /// The first day of the season a day is in.
    fn first_day(&self, date: Date) -> Option<Date> {
        match self.resets {
            Resets::Never | Resets::Daily => Some(date),
            Resets::Weekly => {
                let days = date.weekday().since(self.week_starts);
                date.checked_sub(Span::new().days(i64::from(days))).ok()
            }
            Resets::Monthly => Some(date.first_of_month()),
        }
    }

    fn span(&self, first_day: Date) -> Option<SeasonSpan> {
        let step = match self.resets {
            Resets::Never => return Some(Self::all()),
            Resets::Daily => Span::new().days(1),
            Resets::Weekly => Span::new().days(7),
            Resets::Monthly => Span::new().months(1),
        };
        let midnight = |date: Date| {
            let zoned = date.to_zoned(self.zone.clone()).ok()?;
            Some(zoned.start_of_day().ok()?.timestamp().as_microsecond())
        };
        let name = match self.resets {
            Resets::Monthly => format!("{:04}-{:02}", first_day.year(), first_day.month()),
            _ => first_day.to_string(),
        };
        let end_us = midnight(first_day.checked_add(step).ok()?)?;
        Some(SeasonSpan { season: Season(name.into()), start_us: midnight(first_day)?, end_us })
    }
}

/// A time as callers read it.
pub fn format_us(time_us: i64) -> String {
    Timestamp::from_microsecond(time_us)
        .map_or_else(|_| "the end of time".to_owned(), |time| time.to_string())
}

/// A time as callers write it: RFC 3339, from 1970 on.
///
/// # Errors
/// [`Error::InvalidTime`].
pub fn parse_us(what: &'static str, text: &str) -> Result<i64> {
    let time: Timestamp = text.parse().map_err(|_| Error::InvalidTime { what })?;
    let time_us = time.as_microsecond();
    if time_us < 0 { Err(Error::InvalidTime { what }) } else { Ok(time_us) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Weekday;

    fn calendar(resets: Resets, week_starts: Weekday, zone: &str) -> Calendar {
        Calendar::new(&Rules { resets, week_starts, time_zone: zone.to_owned(), ..Rules::default() }).unwrap()
    }

    fn at(text: &str) -> i64 {
        parse_us("played_at", text).unwrap()
    }

    #[test]
    fn a_week_from_friday_to_thursday_in_seoul() {
        let calendar = calendar(Resets::Weekly, Weekday::Friday, "Asia/Seoul");
        let span = calendar.season_at(at("2014-05-15T14:59:59.999999Z")).unwrap();
        assert_eq!(span.season.as_str(), "2014-05-09");
        assert_eq!(format_us(span.start_us), "2014-05-08T15:00:00Z");
        assert_eq!(format_us(span.end_us), "2014-05-15T15:00:00Z");
        assert_eq!(calendar.season_at(span.end_us).unwrap().season.as_str(), "2014-05-16");
        assert_eq!(calendar.season_named("2014-05-09").unwrap(), span);
        assert!(calendar.season_named("2014-05-10").is_err());
    }

    #[test]
    fn days_are_as_long_as_daylight_saving_makes_them() {
        let hours = |zone: &str, day: &str| {
            let span = calendar(Resets::Daily, Weekday::Monday, zone).season_named(day).unwrap();
            (span.end_us - span.start_us) as f64 / 3.6e9
        };
        assert_eq!(hours("Europe/Berlin", "2026-03-29"), 23.0);
        assert_eq!(hours("Europe/Berlin", "2026-10-25"), 25.0);
        assert_eq!(hours("America/New_York", "2026-03-08"), 23.0);
        assert_eq!(hours("Australia/Lord_Howe", "2026-04-05"), 24.5);
        assert_eq!(hours("Asia/Kolkata", "2026-04-05"), 24.0);
        // Here midnight itself was skipped: the day began at one in the morning.
        let span =
            calendar(Resets::Daily, Weekday::Monday, "America/Sao_Paulo").season_named("2018-11-04").unwrap();
        assert_eq!(format_us(span.start_us), "2018-11-04T03:00:00Z");
        assert_eq!((span.end_us - span.start_us) / 3_600_000_000, 23);
    }

    #[test]
    fn seasons_follow_each_other_without_gap_or_overlap() {
        for resets in [Resets::Daily, Resets::Weekly, Resets::Monthly] {
            for zone in ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia"] {
                let calendar = calendar(resets, Weekday::Wednesday, zone);
                let mut span = calendar.season_at(at("2011-11-30T12:00:00Z")).unwrap();
                for _ in 0..800 {
                    let next = calendar.season_at(span.end_us).unwrap();
                    assert_eq!(calendar.season_named(next.season.as_str()).unwrap(), next);
                    assert_eq!(calendar.season_at(span.end_us - 1).unwrap(), span);
                    assert!(next.season > span.season && next.end_us > span.end_us);
                    assert!(next.contains(span.end_us) && !span.contains(span.end_us));
                    span = next;
                }
            }
        }
    }

    #[test]
    fn names_are_taken_only_as_they_are_written() {
        let monthly = calendar(Resets::Monthly, Weekday::Monday, "UTC");
        assert!(monthly.season_named("2026-11").is_ok());
        for bad in ["2026-13", "2026-1", "2026-11-01", "", "all", "٢٠٢٦-١١", "2026-11 "] {
            assert!(monthly.season_named(bad).is_err(), "{bad}");
        }
        let never = calendar(Resets::Never, Weekday::Monday, "UTC");
        assert!(never.season_named("all").is_ok() && never.season_named("2026-11").is_err());
    }
}
