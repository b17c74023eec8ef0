//! Seasons that end: closed in time, whatever happens meanwhile, and the same for ever after.
//!
//! Method: boards on a table with a clock that the test drives. What a season must say is worked out by `naive.rs`, the slow and obvious way, and compared
//! with every answer in full. A crash is a table that takes no more writes after so many; the start after it finds what had been written.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its table has nothing to test")]

#[path = "seasons/naive.rs"]
mod naive;

use std::collections::BTreeMap;
use std::sync::Arc;

use standings_boards::records::{self, SeasonState};
use standings_boards::{
    BoardId, Boards, Error, Fold, Label, ListRequest, NewPlay, Order, PlayId, Resets, Rules, Settings, Ties,
    UserId, Weekday, parse_us,
};
use standings_table::embedded::Options;
use standings_table::{
    Clock, DelayedTable, EmbeddedTable, Fault, FaultyTable, ManualClock, ReferenceTable, Scan, Table,
};

const DAY_MS: i64 = 86_400_000;

fn settings() -> Settings {
    // Small, so that a handful of users fills several blocks and steps.
    Settings { snapshot_block: 8, snapshot_step: 3, ..Settings::default() }
}

fn at(text: &str) -> i64 {
    parse_us("time", text).unwrap()
}

fn clock(text: &str) -> Arc<ManualClock> {
    Arc::new(ManualClock::new(at(text) / 1_000))
}

fn id(board: &str) -> BoardId {
    BoardId::new(board).unwrap()
}

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

fn memory(clock: &Arc<ManualClock>) -> Arc<ReferenceTable> {
    Arc::new(ReferenceTable::new(records::schema(), clock.clone()))
}

async fn start(table: Arc<dyn Table>, clock: &Arc<ManualClock>) -> Boards {
    let boards = Boards::open(table, clock.clone(), settings()).await.unwrap();
    boards.load(true).await.unwrap();
    boards
}

async fn play(boards: &Boards, board: &BoardId, who: &str, points: i64, played_at_us: Option<i64>) {
    let play = NewPlay { user: user(who), points: points.to_string().into(), play_id: None, played_at_us };
    boards.submit(board, play).await.unwrap();
}

async fn agrees(boards: &Boards) {
    let report = boards.check(false, |_| {}).await.unwrap();
    assert_eq!(report.differences, 0, "{:#?}", report.named);
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[tokio::test]
async fn a_finished_season_answers_everything_as_it_was_for_all_ties_and_orders() {
    for (ties, order) in [
        (Ties::Shared, Order::High),
        (Ties::Dense, Order::Low),
        (Ties::First, Order::High),
        (Ties::Shared, Order::Low),
    ] {
        let clock = clock("2026-11-10T12:00:00Z");
        let boards = start(memory(&clock), &clock).await;
        let board = id("wins");
        let rules = Rules { ties, order, resets: Resets::Monthly, ..Rules::default() };
        boards.put_board(&board, rules.clone()).await.unwrap();
        let mut season = naive::Season::new();
        let mut random = Random(7);
        for _ in 0..60 {
            clock.advance_ms(1_000);
            let (who, points) = (format!("u{}", random.below(27)), random.below(5) as i64);
            play(&boards, &board, &who, points, None).await;
            naive::play(&rules, &mut season, &who, points, clock.now_us());
        }
        naive::compare(&boards, &board, &rules, "2026-11", &season).await;
        // Over, but late plays are still taken.
        clock.set_ms(at("2026-12-01T00:04:59Z") / 1_000);
        assert_eq!(boards.settle().await.unwrap(), 0);
        let late = at("2026-11-30T23:59:59Z");
        play(&boards, &board, "u1", 2, Some(late)).await;
        naive::play(&rules, &mut season, "u1", 2, late);
        clock.set_ms(at("2026-12-01T00:05:00Z") / 1_000);
        assert_eq!(boards.settle().await.unwrap(), 1);
        assert_eq!(boards.settle().await.unwrap(), 0, "it is done once");
        let info = boards.season(&board, "2026-11").await.unwrap();
        assert_eq!(
            (info.state, info.players, info.takes_plays),
            (SeasonState::Final, season.len() as u64, false)
        );
        naive::compare(&boards, &board, &rules, "2026-11", &season).await;
        assert!(boards.memory().seasons().is_empty(), "it costs no memory");
        let entries = all_keys(&boards).await.into_iter().filter(|key| key.contains("ENTRY#")).count();
        assert_eq!(entries, 0, "its live entries are gone");
        let refused =
            NewPlay { user: user("u1"), points: "1".into(), play_id: None, played_at_us: Some(late) };
        let refused = boards.submit(&board, refused).await;
        assert!(matches!(refused, Err(Error::SeasonClosed { .. })), "{refused:?}");
        // The next one shows empty, and opens at its first play.
        assert_eq!(boards.list(&board, &ListRequest::default()).await.unwrap().players, 0);
        play(&boards, &board, "u2", 1, None).await;
        assert_eq!(boards.list(&board, &ListRequest::default()).await.unwrap().season.as_str(), "2026-12");
        naive::compare(&boards, &board, &rules, "2026-11", &season).await;
        agrees(&boards).await;
    }
}

async fn all_keys(boards: &Boards) -> Vec<String> {
    let (mut scan, mut keys) = (Scan::all(), Vec::new());
    loop {
        let page = boards.table().scan(&scan).await.unwrap();
        keys.extend(page.items.iter().map(|item| item.key.to_string()));
        match page.next {
            Some(next) => scan.start_after = Some(next),
            None => return keys,
        }
    }
}

/// Closes a season on a table that takes only so many writes, starts anew, and compares. Says whether it was done within them.
async fn close_with_writes(writes: usize, fault: Fault) -> bool {
    let clock = clock("2026-11-10T12:00:00Z");
    let table = memory(&clock);
    let board = id("laps");
    let rules = Rules { score: Fold::Best, resets: Resets::Daily, ..Rules::default() };
    let mut season = naive::Season::new();
    let faulty = Arc::new(FaultyTable::new(table.clone()));
    let boards = start(faulty.clone(), &clock).await;
    boards.put_board(&board, rules.clone()).await.unwrap();
    for at in 0..29 {
        clock.advance_ms(1);
        let (who, points) = (format!("u{at}"), at % 6);
        play(&boards, &board, &who, points, None).await;
        naive::play(&rules, &mut season, &who, points, clock.now_us());
    }
    clock.advance_ms(DAY_MS);
    faulty.fail_next(std::iter::repeat_n(Fault::None, writes).chain(std::iter::repeat_n(fault, 10_000)));
    let done = boards.settle().await.is_ok();
    drop(boards);
    let boards = start(table, &clock).await;
    if !done {
        // Between the crash and the end of the closing, readers are answered all the same, and plays are refused.
        naive::compare_quickly(&boards, &board, &rules, "2026-11-10", &season).await;
    }
    let late = at("2026-11-10T23:00:00Z");
    let refused = NewPlay { user: user("u1"), points: "9".into(), play_id: None, played_at_us: Some(late) };
    assert!(matches!(boards.submit(&board, refused).await, Err(Error::SeasonClosed { .. })));
    boards.settle().await.unwrap();
    assert_eq!(boards.season(&board, "2026-11-10").await.unwrap().state, SeasonState::Final);
    naive::compare_quickly(&boards, &board, &rules, "2026-11-10", &season).await;
    assert!(boards.memory().seasons().iter().all(|season| season.season.board != board));
    assert!(!all_keys(&boards).await.iter().any(|key| key.contains("ENTRY#")));
    agrees(&boards).await;
    done
}

#[tokio::test]
async fn closing_goes_on_after_a_crash_at_any_write() {
    for fault in [Fault::LostRequest, Fault::LostAnswer, Fault::Throttled] {
        let mut writes = 0;
        while !close_with_writes(writes, fault).await {
            writes += 1;
        }
        assert!(writes > 10, "a closing of several blocks takes many writes, not {writes}");
    }
}

#[tokio::test]
async fn resets_that_were_slept_through_are_settled_in_order_at_the_next_start() {
    let clock = clock("2026-11-10T12:00:00Z");
    let table = memory(&clock);
    let rules = Rules { resets: Resets::Daily, ..Rules::default() };
    let board = id("daily");
    {
        let boards = start(table.clone(), &clock).await;
        boards.put_board(&board, rules.clone()).await.unwrap();
        for day in 0..3 {
            for who in 0..=day {
                play(&boards, &board, &format!("u{who}"), 5 + day, None).await;
            }
            clock.advance_ms(DAY_MS);
        }
        // Nobody called `settle`: as good as down.
    }
    clock.advance_ms(2 * DAY_MS);
    let boards = start(table, &clock).await;
    assert_eq!(boards.settle().await.unwrap(), 3);
    let seasons = boards.seasons(&board).await.unwrap();
    let told: Vec<(&str, SeasonState, u64)> =
        seasons.iter().map(|info| (info.span.season.as_str(), info.state, info.players)).collect();
    assert_eq!(
        told,
        [
            ("2026-11-15", SeasonState::Open, 0),
            ("2026-11-12", SeasonState::Final, 3),
            ("2026-11-11", SeasonState::Final, 2),
            ("2026-11-10", SeasonState::Final, 1)
        ]
    );
    let closed: Vec<i64> = seasons.iter().filter_map(|info| info.final_at).collect();
    assert!(closed.is_sorted_by(|newer, older| newer >= older), "the oldest first");
    agrees(&boards).await;
}

/// A year of weeks, and months of days, over daylight saving in several zones, beside the naive model: every season that ends is compared in full.
#[tokio::test]
async fn a_year_of_seasons_over_daylight_saving_is_as_the_model_says() {
    let clock = clock("2026-01-05T00:00:00Z");
    let folder = tempfile::tempdir().unwrap();
    let table = EmbeddedTable::open(folder.path().join("table"), Options::new(records::schema())).unwrap();
    let boards = start(Arc::new(table), &clock).await;
    let zones = ["Europe/Berlin", "America/New_York", "Asia/Seoul", "Australia/Lord_Howe"];
    let mut worlds = Vec::new();
    for (at, zone) in zones.into_iter().enumerate() {
        let weekly = Rules {
            score: Fold::Best,
            resets: Resets::Weekly,
            week_starts: Weekday::Friday,
            time_zone: zone.to_owned(),
            keep_seasons: 100,
            ..Rules::default()
        };
        let daily = Rules {
            ties: Ties::First,
            resets: Resets::Daily,
            keep_seasons: 400,
            late_seconds: 0,
            ..weekly.clone()
        };
        let monthly =
            Rules { score: Fold::Sum, order: Order::Low, resets: Resets::Monthly, ..weekly.clone() };
        for (name, rules) in [("weekly", weekly), ("daily", daily), ("monthly", monthly)] {
            let board = id(&format!("{name}-{at}"));
            boards.put_board(&board, rules.clone()).await.unwrap();
            worlds.push((board, rules, BTreeMap::<String, naive::Season>::new()));
        }
    }
    let mut random = Random(11);
    let mut compared = 0;
    // Days only around the changes of clocks; weeks and months all year.
    let near_a_change = |now: i64| {
        ["2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01"]
            .iter()
            .any(|day| (now - at(&format!("{day}T12:00:00Z"))).abs() < 3 * DAY_MS * 1_000)
    };
    while clock.now_us() < at("2027-01-20T00:00:00Z") {
        let detailed = near_a_change(clock.now_us());
        clock.advance_ms(if detailed { 1_700_000 } else { 31_000_000 } + random.below(900_000) as i64);
        let now = clock.now_us();
        for (board, rules, seasons) in &mut worlds {
            let is_daily = rules.resets == Resets::Daily;
            if random.below(3) > 0 || (is_daily && !detailed) {
                continue;
            }
            let (who, points) = (format!("u{}", random.below(12)), random.below(50) as i64);
            // Some come late: into the season they were played in, if it still takes plays.
            let played_at = now - random.below(4) as i64 * 100_000_000;
            let zone = jiff_zone(&rules.time_zone);
            let name = season_name(rules, &zone, played_at);
            let expected_open =
                season_end(rules, &zone, played_at) + i64::from(rules.late_seconds) * 1_000_000 > now;
            let new = NewPlay {
                user: user(&who),
                points: points.to_string().into(),
                play_id: None,
                played_at_us: Some(played_at),
            };
            match boards.submit(board, new).await {
                Ok(counted) => {
                    assert!(expected_open, "{board} took a play of {name} at {now}");
                    assert_eq!(counted.season.as_str(), name);
                    naive::play(rules, seasons.entry(name).or_default(), &who, points, played_at);
                }
                Err(Error::SeasonClosed { season, .. }) => {
                    assert!(!expected_open, "{board} refused a play of {name} at {now}");
                    assert_eq!(season, name);
                }
                Err(error) => panic!("{error}"),
            }
        }
        let closed = boards.settle().await.unwrap();
        if closed > 0 {
            for (board, rules, seasons) in &worlds {
                for info in boards.seasons(board).await.unwrap() {
                    let name = info.span.season.as_str();
                    let new = info.final_at == Some(clock.now_us());
                    if new && info.state == SeasonState::Final {
                        if compared % 8 == 0 {
                            naive::compare(&boards, board, rules, name, &seasons[name]).await;
                        } else {
                            naive::compare_quickly(&boards, board, rules, name, &seasons[name]).await;
                        }
                        compared += 1;
                    }
                }
            }
        }
    }
    assert!(compared > 4 * (50 + 12 + 20), "only {compared} seasons ended");
    // A year later every one of them is still what it was, and each user's own view of it too.
    for (board, rules, seasons) in &worlds {
        let open: Vec<String> = boards
            .seasons(board)
            .await
            .unwrap()
            .into_iter()
            .filter(|info| info.state == SeasonState::Open)
            .map(|info| info.span.season.to_string())
            .collect();
        for (at, (name, season)) in seasons.iter().enumerate() {
            if at % 7 == 0 {
                naive::compare_quickly(&boards, board, rules, name, season).await;
            }
        }
        for who in 0..12 {
            compare_user(&boards, board, rules, seasons, &open, &format!("u{who}")).await;
        }
    }
    agrees(&boards).await;
}

/// A user's seasons, newest first, in pages; and their best.
async fn compare_user(
    boards: &Boards,
    board: &BoardId,
    rules: &Rules,
    seasons: &BTreeMap<String, naive::Season>,
    open: &[String],
    who: &str,
) {
    let mut expected: Vec<(String, i64, u64, bool)> = Vec::new();
    for (name, season) in seasons.iter().rev() {
        if let Some(row) = naive::ranked(rules, season).into_iter().find(|row| row.user == who) {
            expected.push((name.clone(), row.score, row.rank, !open.contains(name)));
        }
    }
    let (mut cursor, mut found) = (None::<String>, Vec::new());
    loop {
        let page = boards.user_seasons(&user(who), board, Some(5), cursor.as_deref()).await.unwrap();
        assert!(page.seasons.len() <= 5);
        found.extend(page.seasons.into_iter().map(|season| {
            let is_final = season.state == SeasonState::Final;
            (season.season.to_string(), season.score, season.rank, is_final)
        }));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, expected, "{board} {who}");
    let key = |score: i64| if rules.order == Order::High { -score } else { score };
    let best = expected.iter().min_by_key(|(name, score, ..)| (key(*score), name.clone()));
    if let Some((name, score, rank, _)) = best {
        let (found, _) = boards.user_best(&user(who), board).await.unwrap();
        assert_eq!(
            (found.season.as_str(), found.score, found.rank),
            (name.as_str(), *score, *rank),
            "{board} {who}"
        );
    }
}

fn jiff_zone(name: &str) -> jiff::tz::TimeZone {
    jiff::tz::TimeZone::get(name).unwrap()
}

/// The first day of the season of a moment: by counting days back, not by the code under test.
fn first_day(rules: &Rules, zone: &jiff::tz::TimeZone, time_us: i64) -> jiff::civil::Date {
    let mut day = jiff::Timestamp::from_microsecond(time_us).unwrap().to_zoned(zone.clone()).date();
    loop {
        let begins = match rules.resets {
            Resets::Weekly => day.weekday() == jiff::civil::Weekday::Friday,
            Resets::Monthly => day.day() == 1,
            _ => true,
        };
        if begins {
            return day;
        }
        day = day.yesterday().unwrap();
    }
}

fn season_name(rules: &Rules, zone: &jiff::tz::TimeZone, time_us: i64) -> String {
    let day = first_day(rules, zone, time_us).to_string();
    if rules.resets == Resets::Monthly { day[..7].to_owned() } else { day }
}

fn season_end(rules: &Rules, zone: &jiff::tz::TimeZone, time_us: i64) -> i64 {
    let mut day = first_day(rules, zone, time_us);
    let first = day;
    loop {
        day = day.tomorrow().unwrap();
        let ends = match rules.resets {
            Resets::Weekly => day.weekday() == jiff::civil::Weekday::Friday,
            Resets::Monthly => day.day() == 1,
            _ => day != first,
        };
        if ends {
            return day.to_zoned(zone.clone()).unwrap().timestamp().as_microsecond();
        }
    }
}

#[tokio::test]
async fn an_admin_ends_a_season_now() {
    let clock = clock("2026-11-10T12:00:00Z");
    let table = memory(&clock);
    let boards = start(table.clone(), &clock).await;
    let board = id("default");
    let nobody = boards.close_season(&board, "2026-11").await;
    assert!(matches!(nobody, Err(Error::UnknownSeason { .. })), "{nobody:?}");
    let first = NewPlay {
        user: user("ann"),
        points: "5".into(),
        play_id: Some(PlayId::new("p1").unwrap()),
        played_at_us: None,
    };
    let counted = boards.submit(&board, first.clone()).await.unwrap();
    play(&boards, &board, "bob", 9, None).await;
    let info = boards.close_season(&board, "2026-11").await.unwrap();
    assert_eq!((info.state, info.players), (SeasonState::Final, 2));
    for boards in [boards, start(table, &clock).await] {
        // A play that had counted answers as it did, with its final rank; a new one is refused until the next season begins.
        let again = boards.submit(&board, first.clone()).await.unwrap();
        assert_eq!((again.duplicate, again.score, again.rank), (true, counted.score, Some(2)));
        let new = NewPlay { play_id: None, ..first.clone() };
        assert!(matches!(boards.submit(&board, new).await, Err(Error::SeasonClosed { .. })));
        let list = boards.list(&board, &ListRequest::default()).await.unwrap();
        assert_eq!(
            (list.season.as_str(), list.players),
            ("2026-11", 2),
            "the season of this moment is the closed one"
        );
        assert!(
            matches!(boards.close_season(&board, "2026-11").await, Ok(info) if info.state == SeasonState::Final)
        );
        // The clock is set back: what is closed stays closed.
        clock.set_ms(at("2026-11-02T00:00:00Z") / 1_000);
        let new = NewPlay { play_id: None, ..first.clone() };
        assert!(matches!(boards.submit(&board, new).await, Err(Error::SeasonClosed { .. })));
        clock.set_ms(at("2026-11-10T12:00:00Z") / 1_000);
    }
    clock.set_ms(at("2026-12-01T00:00:00Z") / 1_000);
}

/// The season's own time is not over: only its record says that it takes no more plays.
#[tokio::test]
async fn a_closing_by_hand_that_was_interrupted_takes_no_plays() {
    let clock = clock("2026-11-10T12:00:00Z");
    let table = memory(&clock);
    let faulty = Arc::new(FaultyTable::new(table.clone()));
    let boards = start(faulty.clone(), &clock).await;
    let board = id("default");
    play(&boards, &board, "ann", 5, None).await;
    faulty.fail_next([Fault::None].into_iter().chain(std::iter::repeat_n(Fault::LostRequest, 1_000)));
    boards.close_season(&board, "2026-11").await.unwrap_err();
    for boards in [boards, start(table, &clock).await] {
        assert_eq!(boards.season(&board, "2026-11").await.unwrap().state, SeasonState::Closing);
        let new = NewPlay { user: user("ann"), points: "1".into(), play_id: None, played_at_us: None };
        let refused = boards.submit(&board, new).await;
        assert!(matches!(refused, Err(Error::SeasonClosed { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn the_oldest_seasons_go_and_a_best_outlives_them() {
    let clock = clock("2026-11-01T12:00:00Z");
    let table = memory(&clock);
    let mut boards = start(table.clone(), &clock).await;
    let board = id("daily");
    let rules = Rules { score: Fold::Best, resets: Resets::Daily, keep_seasons: 3, ..Rules::default() };
    boards.put_board(&board, rules).await.unwrap();
    for day in 0..8 {
        play(&boards, &board, "ann", if day == 1 { 100 } else { day }, None).await;
        play(&boards, &board, "bob", 10 + day, None).await;
        clock.advance_ms(DAY_MS);
        if day % 3 == 2 {
            boards = start(table.clone(), &clock).await;
        }
        boards.settle().await.unwrap();
    }
    let finals: Vec<String> = boards
        .seasons(&board)
        .await
        .unwrap()
        .iter()
        .filter(|info| info.state == SeasonState::Final)
        .map(|info| info.span.season.to_string())
        .collect();
    assert_eq!(finals, ["2026-11-08", "2026-11-07", "2026-11-06"]);
    let gone = ListRequest { season: Some("2026-11-02".into()), ..ListRequest::default() };
    assert!(matches!(boards.list(&board, &gone).await, Err(Error::UnknownSeason { .. })));
    let (best, _) = boards.user_best(&user("ann"), &board).await.unwrap();
    assert_eq!((best.season.as_str(), best.score, best.rank, best.players), ("2026-11-02", 100, 1, None));
    let (best, _) = boards.user_best(&user("bob"), &board).await.unwrap();
    assert_eq!((best.season.as_str(), best.score), ("2026-11-08", 17));
    assert_eq!(boards.user_seasons(&user("ann"), &board, None, None).await.unwrap().seasons.len(), 3);
    agrees(&boards).await;
    // A board that goes leaves nothing behind, not even plays of seasons that went before it.
    boards.delete_board(&board).await.unwrap();
    for _ in 0..1_000 {
        if boards.board(&board).is_err() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let left: Vec<String> = all_keys(&boards).await.into_iter().filter(|key| key.contains("daily")).collect();
    assert_eq!(left, [] as [String; 0]);
}

#[tokio::test]
async fn removing_a_season_goes_on_after_a_crash_at_any_write() {
    for writes in 0.. {
        let clock = clock("2026-11-01T12:00:00Z");
        let table = memory(&clock);
        let faulty = Arc::new(FaultyTable::new(table.clone()));
        let boards = start(faulty.clone(), &clock).await;
        let board = id("daily");
        let rules = Rules { resets: Resets::Daily, keep_seasons: 0, ..Rules::default() };
        boards.put_board(&board, Rules { keep_seasons: 5, ..rules.clone() }).await.unwrap();
        for at in 0..12 {
            play(&boards, &board, &format!("u{at}"), at, None).await;
        }
        clock.advance_ms(DAY_MS);
        boards.settle().await.unwrap();
        boards.put_board(&board, rules).await.unwrap();
        let crash = std::iter::repeat_n(Fault::LostRequest, 10_000);
        faulty.fail_next(std::iter::repeat_n(Fault::None, writes).chain(crash));
        let done = boards.settle().await.is_ok();
        let boards = start(table, &clock).await;
        boards.settle().await.unwrap();
        assert_eq!(boards.seasons(&board).await.unwrap().len(), 1, "only the one of this moment");
        let keys = all_keys(&boards).await;
        let kept: Vec<&String> = keys.iter().filter(|key| key.contains("SNAP#")).collect();
        assert_eq!(kept.len(), 12, "of each user the best, and no ladder: {kept:#?}");
        agrees(&boards).await;
        if done {
            assert!(writes > 5, "{writes}");
            return;
        }
    }
}

#[tokio::test]
async fn a_row_that_has_not_reached_the_index_is_waited_for_and_never_passed_over() {
    let clock = clock("2026-11-01T12:00:00Z");
    let delayed = Arc::new(DelayedTable::new(memory(&clock), clock.clone(), 15));
    let boards = start(delayed.clone(), &clock).await;
    let board = id("daily");
    boards.put_board(&board, Rules { resets: Resets::Daily, ..Rules::default() }).await.unwrap();
    let mut season = naive::Season::new();
    for at in 0..20 {
        clock.advance_ms(1);
        play(&boards, &board, &format!("u{at:02}"), at % 4, None).await;
        naive::play(&Rules::default(), &mut season, &format!("u{at:02}"), at % 4, clock.now_us());
    }
    clock.advance_ms(DAY_MS);
    boards.settle().await.unwrap();
    let request =
        ListRequest { season: Some("2026-11-01".into()), limit: Some(20), ..ListRequest::default() };
    let early = boards.list(&board, &request).await;
    assert!(matches!(early, Err(Error::NotReady { .. })), "{early:?}");
    // One user is a read of the user's own item, and right at once.
    assert_eq!(boards.standing(&board, &user("u03"), Some("2026-11-01")).await.unwrap().row.rank, 1);
    delayed.catch_up().await.unwrap();
    let rules = Rules { resets: Resets::Daily, ..Rules::default() };
    naive::compare(&boards, &board, &rules, "2026-11-01", &season).await;
}

#[tokio::test]
async fn readers_see_a_season_whole_while_it_becomes_final() {
    let clock = clock("2026-11-01T12:00:00Z");
    let boards = start(memory(&clock), &clock).await;
    let board = id("daily");
    boards.put_board(&board, Rules { resets: Resets::Daily, ..Rules::default() }).await.unwrap();
    for at in 0..200 {
        play(&boards, &board, &format!("u{at}"), at % 9, None).await;
    }
    clock.advance_ms(DAY_MS);
    let request =
        ListRequest { season: Some("2026-11-01".into()), limit: Some(50), ..ListRequest::default() };
    let expected = boards.list(&board, &request).await.unwrap();
    let closing = tokio::spawn({
        let boards = boards.clone();
        async move { boards.settle().await }
    });
    let mut reads = 0;
    while !closing.is_finished() {
        assert_eq!(boards.list(&board, &request).await.unwrap(), expected);
        boards.standing(&board, &user("u7"), Some("2026-11-01")).await.unwrap();
        reads += 1;
        tokio::task::yield_now().await;
    }
    closing.await.unwrap().unwrap();
    assert!(reads > 0);
    assert_eq!(boards.list(&board, &request).await.unwrap(), expected);
}

#[tokio::test]
async fn a_label_that_means_something_else_is_refused() {
    let clock = clock("2026-11-01T12:00:00Z");
    let boards = start(memory(&clock), &clock).await;
    let board = id("level");
    boards.put_board(&board, Rules::default()).await.unwrap();
    for bad in ["2026-11-01", "2026-11", "all", "latest"] {
        let refused = boards.take_snapshot(&board, Some(Label::new(bad).unwrap())).await;
        assert!(matches!(refused, Err(Error::InvalidSnapshot { .. })), "{bad}: {refused:?}");
    }
    let empty = boards.take_snapshot(&board, Some(Label::new("final").unwrap())).await;
    assert!(matches!(empty, Err(Error::UnknownSeason { .. })), "{empty:?}");
}

#[tokio::test]
async fn a_season_that_was_removed_does_not_begin_anew() {
    let clock = clock("2026-11-01T12:00:00Z");
    let boards = start(memory(&clock), &clock).await;
    let board = id("daily");
    let rules = Rules { resets: Resets::Daily, keep_seasons: 0, ..Rules::default() };
    boards.put_board(&board, rules.clone()).await.unwrap();
    play(&boards, &board, "ann", 5, None).await;
    let then = clock.now_us();
    clock.advance_ms(DAY_MS);
    boards.settle().await.unwrap();
    assert_eq!(boards.seasons(&board).await.unwrap().len(), 1, "only the one of this moment");
    boards.put_board(&board, Rules { late_seconds: 604_800, ..rules.clone() }).await.unwrap();
    let late = NewPlay { user: user("ann"), points: "1".into(), play_id: None, played_at_us: Some(then) };
    let refused = boards.submit(&board, late).await;
    assert!(matches!(refused, Err(Error::SeasonClosed { .. })), "{refused:?}");
    // What its scores meant stays, because bests of it do.
    let turned = boards.put_board(&board, Rules { order: Order::Low, ..rules }).await;
    assert!(matches!(turned, Err(Error::RuleFixed { .. })), "{turned:?}");
}

#[tokio::test]
async fn a_board_that_goes_in_the_middle_of_a_closing_leaves_nothing() {
    for writes in 0..9 {
        let clock = clock("2026-11-01T12:00:00Z");
        let table = memory(&clock);
        let faulty = Arc::new(FaultyTable::new(table.clone()));
        let boards = start(faulty.clone(), &clock).await;
        let board = id("daily");
        boards.put_board(&board, Rules { resets: Resets::Daily, ..Rules::default() }).await.unwrap();
        for at in 0..20 {
            play(&boards, &board, &format!("u{at}"), at, None).await;
        }
        clock.advance_ms(DAY_MS);
        let crash = std::iter::repeat_n(Fault::LostRequest, 10_000);
        faulty.fail_next(std::iter::repeat_n(Fault::None, writes).chain(crash));
        boards.settle().await.unwrap_err();
        // Deleted while rankings are being loaded: it begins when that is done.
        let boards = Boards::open(table, clock.clone(), settings()).await.unwrap();
        boards.delete_board(&board).await.unwrap();
        boards.load(true).await.unwrap();
        while boards.board(&board).is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        let keys = all_keys(&boards).await;
        let left: Vec<&String> = keys.iter().filter(|key| key.contains("daily")).collect();
        assert_eq!(left, [] as [&String; 0], "after {writes} writes");
    }
}
