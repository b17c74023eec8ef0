//! Snapshots of boards that go on: of each day, missed days included, and under labels.
//!
//! Method: as in `seasons.rs`, a clock that the test drives, and crashes as tables that take no more writes.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its table has nothing to test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use standings_boards::records::{self, SnapshotRow};
use standings_boards::{
    BoardId, Boards, Error, Fold, HistoryRequest, LATEST, Label, ListRequest, NewPlay, Rules, Settings,
    SnapshotInfo, Snapshots, UserId, format_us, parse_us,
};
use standings_table::embedded::Options;
use standings_table::{Clock as _, EmbeddedTable, Fault, FaultyTable, ManualClock, ReferenceTable, Table};

const DAY_MS: i64 = 86_400_000;

fn clock(text: &str) -> Arc<ManualClock> {
    Arc::new(ManualClock::new(parse_us("time", text).unwrap() / 1_000))
}

fn id(board: &str) -> BoardId {
    BoardId::new(board).unwrap()
}

fn user(at: i64) -> UserId {
    UserId::new(format!("u{at:04}")).unwrap()
}

fn rules() -> Rules {
    Rules {
        score: Fold::Latest,
        snapshots: Snapshots::Daily,
        official: 5,
        time_zone: "Asia/Kolkata".to_owned(),
        ..Rules::default()
    }
}

fn memory(clock: &Arc<ManualClock>) -> Arc<ReferenceTable> {
    Arc::new(ReferenceTable::new(records::schema(), clock.clone()))
}

async fn start(table: Arc<dyn Table>, clock: &Arc<ManualClock>) -> Boards {
    let settings = Settings { snapshot_block: 8, snapshot_step: 3, ..Settings::default() };
    let boards = Boards::open(table, clock.clone(), settings).await.unwrap();
    boards.load(true).await.unwrap();
    boards
}

async fn play(boards: &Boards, board: &BoardId, who: UserId, points: i64) {
    let play = NewPlay { user: who, points: points.to_string().into(), play_id: None, played_at_us: None };
    boards.submit(board, play).await.unwrap();
}

async fn agrees(boards: &Boards) {
    let report = boards.check(false, |_| {}).await.unwrap();
    assert_eq!(report.differences, 0, "{:#?}", report.named);
}

fn labels(snapshots: &[SnapshotInfo]) -> Vec<&str> {
    snapshots.iter().map(|info| info.label.as_str()).collect()
}

/// All rows of a snapshot, in pages of any size.
async fn rows(boards: &Boards, board: &BoardId, label: &str, page_size: usize) -> Vec<SnapshotRow> {
    let mut request = ListRequest { limit: Some(page_size), from_rank: Some(1), ..ListRequest::default() };
    let mut rows = Vec::new();
    loop {
        let page = boards.snapshot_list(board, label, &request).await.unwrap();
        rows.extend(page.rows);
        match page.next_cursor {
            Some(cursor) => {
                request =
                    ListRequest { limit: Some(page_size), cursor: Some(cursor), ..ListRequest::default() };
            }
            None => return rows,
        }
    }
}

#[tokio::test]
async fn a_day_is_taken_at_the_boards_own_midnight_and_a_missed_one_says_when_it_was_taken() {
    // Midnight there is 18:30 here.
    let clock = clock("2026-02-18T18:00:00Z");
    let table = memory(&clock);
    let boards = start(table.clone(), &clock).await;
    let level = id("level");
    boards.put_board(&level, rules()).await.unwrap();
    for at in 0..20 {
        play(&boards, &level, user(at), at).await;
    }
    assert_eq!(boards.settle().await.unwrap(), 0);
    clock.advance_ms(30 * 60_000);
    assert_eq!(boards.settle().await.unwrap(), 1);
    assert_eq!(boards.settle().await.unwrap(), 0);
    let taken = boards.snapshot(&level, "2026-02-18").unwrap();
    assert_eq!(format_us(taken.due_at.unwrap()), "2026-02-18T18:30:00Z");
    assert_eq!((taken.taken_at, taken.players), (taken.due_at.unwrap(), 20));
    for at in 0..5 {
        play(&boards, &level, user(at), 100 + at).await;
    }
    drop(boards);
    // Nobody is up at the next two midnights.
    clock.advance_ms(2 * DAY_MS + 3_600_000);
    let boards = start(table, &clock).await;
    assert_eq!(boards.settle().await.unwrap(), 2);
    let snapshots = boards.snapshots(&level).unwrap();
    assert_eq!(labels(&snapshots), ["2026-02-20", "2026-02-19", "2026-02-18"]);
    for missed in &snapshots[..2] {
        assert_eq!(format_us(missed.taken_at), "2026-02-20T19:30:00Z");
        assert!(missed.due_at.unwrap() < missed.taken_at);
    }
    assert_eq!(boards.snapshot(&level, LATEST).unwrap().label.as_str(), "2026-02-20");
    let scores = |rows: &[SnapshotRow]| rows.iter().map(|row| row.score).collect::<Vec<_>>();
    assert_eq!(scores(&rows(&boards, &level, "2026-02-18", 7).await), (0..20).rev().collect::<Vec<_>>());
    assert_eq!(scores(&rows(&boards, &level, "2026-02-20", 7).await)[..6], [104, 103, 102, 101, 100, 19]);
    // The newest is deleted: it is not due again.
    boards.delete_snapshot(&level, &Label::new("2026-02-20").unwrap()).await.unwrap();
    boards.settle().await.unwrap();
    assert_eq!(labels(&boards.snapshots(&level).unwrap()), ["2026-02-19", "2026-02-18"]);
    agrees(&boards).await;
}

#[tokio::test]
async fn places_hold_exactly_across_pages_of_any_size_and_the_official_ones_are_one_query() {
    let clock = clock("2026-02-20T12:00:00Z");
    let boards = start(memory(&clock), &clock).await;
    let level = id("level");
    boards.put_board(&level, rules()).await.unwrap();
    for at in 0..43 {
        clock.advance_ms(1);
        play(&boards, &level, user(at), 50 + at % 6).await;
    }
    clock.advance_ms(DAY_MS);
    boards.settle().await.unwrap();
    let official = boards.snapshot_official(&level, LATEST).await.unwrap();
    let whole = rows(&boards, &level, LATEST, 1_000).await;
    assert_eq!((official.rows.as_slice(), official.rows.len()), (&whole[..5], 5));
    for page_size in [1, 2, 5, 8, 40] {
        let found = rows(&boards, &level, LATEST, page_size).await;
        for (at, row) in found.iter().enumerate() {
            assert_eq!(row.place as usize, at / page_size * page_size + at % page_size + 1);
        }
        assert_eq!(found, whole);
    }
    // Without saying where, the list begins behind the official places.
    let rest = boards.snapshot_list(&level, LATEST, &ListRequest::default()).await.unwrap();
    assert_eq!((rest.rows[0].place, rest.total), (6, 43));
    let range = ListRequest {
        min_score: Some("51".into()),
        max_score: Some("53".into()),
        limit: Some(100),
        ..ListRequest::default()
    };
    let between = boards.snapshot_list(&level, LATEST, &range).await.unwrap();
    let expected: Vec<SnapshotRow> = whole.into_iter().filter(|row| (51..=53).contains(&row.score)).collect();
    assert_eq!((between.total, between.rows), (expected.len() as u64, expected));
}

#[tokio::test]
async fn a_snapshot_interrupted_at_any_write_is_taken_anew() {
    for fault in [Fault::LostRequest, Fault::LostAnswer] {
        for writes in 0.. {
            let clock = clock("2026-02-20T12:00:00Z");
            let table = memory(&clock);
            let faulty = Arc::new(FaultyTable::new(table.clone()));
            let boards = start(faulty.clone(), &clock).await;
            let level = id("level");
            boards.put_board(&level, rules()).await.unwrap();
            for at in 0..20 {
                play(&boards, &level, user(at), at).await;
            }
            clock.advance_ms(DAY_MS);
            let crash = std::iter::repeat_n(fault, 10_000);
            faulty.fail_next(std::iter::repeat_n(Fault::None, writes).chain(crash));
            let done = boards.settle().await.is_ok();
            if !done {
                let history = boards.user_history(&user(3), &HistoryRequest::default()).await.unwrap();
                assert_eq!(history.days, [], "what is not complete shows nowhere");
                assert!(boards.snapshot_official(&level, "2026-02-20").await.is_err());
            }
            drop(boards);
            clock.advance_ms(60_000);
            let boards = start(table, &clock).await;
            // If only the last answer was lost, it is complete.
            let complete = boards.snapshot(&level, "2026-02-20").is_ok_and(|info| info.finished_at.is_some());
            // Others have played since: the snapshot shows one moment, that of its second attempt.
            if !complete {
                for at in 15..25 {
                    play(&boards, &level, user(at), 1_000 - at).await;
                }
            }
            boards.settle().await.unwrap();
            let expected = if complete { 20 } else { 25 };
            assert_eq!(rows(&boards, &level, "2026-02-20", 6).await.len(), expected, "after {writes} writes");
            assert_eq!(labels(&boards.snapshots(&level).unwrap()), ["2026-02-20"]);
            agrees(&boards).await;
            if done {
                assert!(writes > 5, "{writes}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_history_merges_boards_by_date_newest_first_and_names_are_of_their_day() {
    let clock = clock("2026-01-01T12:00:00Z");
    let boards = start(memory(&clock), &clock).await;
    let (level, power) = (id("level"), id("power"));
    for board in [&level, &power] {
        boards.put_board(board, rules()).await.unwrap();
    }
    let ann = user(1);
    boards.put_user(&ann, Some("Hello")).await.unwrap();
    for day in 0..10 {
        play(&boards, &level, ann.clone(), 10 + day).await;
        if day >= 4 {
            play(&boards, &power, ann.clone(), 1_000 * day).await;
        }
        play(&boards, &level, user(2), 14).await;
        if day == 6 {
            boards.put_user(&ann, Some("Goodbye")).await.unwrap();
        }
        clock.advance_ms(DAY_MS);
        boards.settle().await.unwrap();
    }
    let request = |from: Option<&str>, to: Option<&str>, limit| HistoryRequest {
        boards: vec![level.clone(), power.clone()],
        from: from.map(str::to_owned),
        to: to.map(str::to_owned),
        limit,
        cursor: None,
    };
    let all = boards.user_history(&ann, &request(None, None, None)).await.unwrap().days;
    let dates: Vec<&str> = all.iter().map(|day| day.date.as_str()).collect();
    assert_eq!(dates.len(), 10);
    assert_eq!((dates[0], dates[9]), ("2026-01-10", "2026-01-01"));
    assert_eq!(all[0].boards, [Some((19, 1)), Some((9_000, 1))]);
    assert_eq!(all[9].boards, [Some((10, 2)), None]);
    let some =
        boards.user_history(&ann, &request(Some("2026-01-03"), Some("2026-01-05"), None)).await.unwrap();
    assert_eq!(some.days, all[5..8]);
    // In pages the same comes out.
    let mut paged = request(None, None, Some(3));
    let mut days = Vec::new();
    loop {
        let page = boards.user_history(&ann, &paged).await.unwrap();
        days.extend(page.days);
        paged.cursor = page.next_cursor;
        if paged.cursor.is_none() {
            break;
        }
    }
    assert_eq!(days, all);
    let name = |rows: Vec<SnapshotRow>| rows.into_iter().find(|row| row.user == ann).unwrap().name.unwrap();
    assert_eq!(name(rows(&boards, &level, "2026-01-05", 5).await), "Hello");
    assert_eq!(name(rows(&boards, &level, "2026-01-09", 5).await), "Goodbye");
    for (looked_for, found) in [("gOODBYE", 1), ("Hello", 0), ("goodby", 0)] {
        assert_eq!(boards.users_named(looked_for, None).await.unwrap().len(), found, "{looked_for}");
    }
    assert_eq!(boards.users_beginning("GOO", None).await.unwrap()[0].user, ann);
    assert_eq!(boards.users_beginning("hel", None).await.unwrap().len(), 0);
    boards.delete_user(&ann).await.unwrap();
    assert_eq!(boards.users_beginning("goo", None).await.unwrap().len(), 0);
    assert_eq!(boards.users_named("goodbye", None).await.unwrap().len(), 0);
}

/// Every play moves points from one user to another in a way that keeps a sum: in one moment it holds, in a mixture of moments it does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_under_load_shows_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let table = EmbeddedTable::open(folder.path().join("table"), Options::new(records::schema())).unwrap();
    let clock = clock("2026-02-20T12:00:00Z");
    let boards = start(Arc::new(table), &clock).await;
    let board = id("rounds");
    boards.put_board(&board, Rules::default()).await.unwrap();
    // Several pages of the ranking, so that plays come between them.
    const USERS: i64 = 3_000;
    for first in (0..USERS).step_by(1_000) {
        let new = |at| NewPlay { user: user(at), points: "0".into(), play_id: None, played_at_us: None };
        boards.submit_batch(&board, (first..first + 1_000).map(new).collect()).await.unwrap();
    }
    // One after the other, each user one point more, round after round: at any moment two users differ by one at most, and those who are ahead come first.
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (boards, board, stop, clock) = (boards.clone(), board.clone(), stop.clone(), clock.clone());
        async move {
            let mut plays = 0;
            while !stop.load(Ordering::Relaxed) {
                clock.advance_ms(1);
                play(&boards, &board, user(plays % USERS), 1).await;
                plays += 1;
            }
            plays
        }
    });
    for at in 0..6 {
        let label = Label::new(format!("moment-{at}")).unwrap();
        let taken = boards.take_snapshot(&board, Some(label.clone())).await.unwrap();
        assert_eq!(taken.players, USERS as u64);
        let again = boards.take_snapshot(&board, Some(label.clone())).await;
        assert!(matches!(again, Err(Error::SnapshotExists { .. })), "{again:?}");
        while boards.snapshot(&board, label.as_str()).unwrap().finished_at.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        let found = rows(&boards, &board, label.as_str(), 1_000).await;
        assert_eq!(found.len() as i64, USERS);
        let (best, worst) = (found[0].score, found[found.len() - 1].score);
        assert!(best - worst <= 1, "{best} and {worst} are of different moments");
        let ahead = found.iter().filter(|row| row.score == best).count() as i64;
        if best > worst {
            assert!(found.iter().all(|row| (row.score == best) == (row.user < user(ahead))), "of one moment");
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(writer.await.unwrap() > 100);
    boards.delete_snapshot(&board, &Label::new("moment-0").unwrap()).await.unwrap();
    let gone = boards.snapshot_official(&board, "moment-0").await;
    assert!(matches!(gone, Err(Error::UnknownSnapshot { .. })), "{gone:?}");
    assert!(boards.snapshot_official(&board, "moment-1").await.is_ok());
    agrees(&boards).await;
}

#[tokio::test]
async fn a_day_that_is_none_is_not_made_up() {
    let clock = clock("2026-02-16T12:00:00Z");
    let boards = start(memory(&clock), &clock).await;
    let level = id("level");
    boards.put_board(&level, rules()).await.unwrap();
    // Nobody plays for two days: those days have nothing to show, also not once somebody plays.
    clock.advance_ms(2 * DAY_MS);
    boards.settle().await.unwrap();
    play(&boards, &level, user(1), 5).await;
    assert_eq!(boards.settle().await.unwrap(), 0);
    assert_eq!(boards.snapshots(&level).unwrap(), []);
    // Nor are days before they were asked for.
    let off = Rules { snapshots: Snapshots::None, ..rules() };
    boards.put_board(&level, off).await.unwrap();
    clock.advance_ms(40 * DAY_MS);
    boards.put_board(&level, rules()).await.unwrap();
    assert_eq!(boards.settle().await.unwrap(), 0);
    clock.advance_ms(DAY_MS);
    assert_eq!(boards.settle().await.unwrap(), 1);
}

#[tokio::test]
async fn another_time_zone_or_a_clock_that_was_ahead_stops_no_day_to_come() {
    let clock = clock("2026-02-20T12:00:00Z");
    let boards = start(memory(&clock), &clock).await;
    let level = id("level");
    boards.put_board(&level, Rules { time_zone: "Asia/Seoul".to_owned(), ..rules() }).await.unwrap();
    play(&boards, &level, user(1), 5).await;
    clock.advance_ms(DAY_MS);
    assert_eq!(boards.settle().await.unwrap(), 1);
    // Further west the same day ends later: it is there already.
    boards.put_board(&level, Rules { time_zone: "America/New_York".to_owned(), ..rules() }).await.unwrap();
    for _ in 0..3 {
        clock.advance_ms(DAY_MS);
        boards.settle().await.unwrap();
    }
    let days = ["2026-02-23", "2026-02-22", "2026-02-21", "2026-02-20"];
    assert_eq!(labels(&boards.snapshots(&level).unwrap()), days);
    let now = clock.now_us() / 1_000;
    clock.set_ms(now + 400 * DAY_MS);
    boards.settle().await.unwrap();
    clock.set_ms(now + DAY_MS);
    boards.settle().await.unwrap();
    let found = boards.snapshots(&level).unwrap();
    assert!(labels(&found).contains(&"2026-02-24"), "{:?}", labels(&found));
    agrees(&boards).await;
}

#[tokio::test]
async fn a_board_that_goes_while_a_snapshot_is_taken_leaves_nothing() {
    let clock = clock("2026-02-20T12:00:00Z");
    let boards = start(memory(&clock), &clock).await;
    let level = id("level");
    boards.put_board(&level, rules()).await.unwrap();
    for at in 0..200 {
        play(&boards, &level, user(at), at).await;
    }
    boards.take_snapshot(&level, Some(Label::new("last").unwrap())).await.unwrap();
    boards.delete_board(&level).await.unwrap();
    while boards.board(&level).is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let (mut scan, mut left) = (standings_table::Scan::all(), Vec::new());
    loop {
        let page = boards.table().scan(&scan).await.unwrap();
        left.extend(page.items.iter().map(|item| item.key.to_string()).filter(|key| key.contains("level")));
        match page.next {
            Some(next) => scan.start_after = Some(next),
            None => break,
        }
    }
    assert_eq!(left, [] as [String; 0]);
}
