//! Getting ready after a start, and proving that what is derived agrees.
//!
//! Method: boards on a real table in a temporary folder, with a clock that stands still until it is told otherwise. Every ranking after a start is
//! compared with the entries by `Boards::check`, which reads both in full.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its folder has nothing to test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use standings_boards::records::{self, BoardRecord, Entry};
use standings_boards::{BoardId, Boards, Error, ListRequest, NewPlay, PlayId, Rules, Settings, UserId};
use standings_table::embedded::Options;
use standings_table::{Consistency, EmbeddedTable, ManualClock, Operation, Table};

const NOW_MS: i64 = 1_794_528_000_000;

struct World {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: Arc::new(ManualClock::new(NOW_MS)) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn open(&self, table: &str) -> (Arc<EmbeddedTable>, Boards) {
        let table = Arc::new(EmbeddedTable::open(self.path(table), Options::new(records::schema())).unwrap());
        let settings = Settings { checkpoints: Some(self.path("checkpoints")), ..Settings::default() };
        let boards =
            Boards::open(table.clone() as Arc<dyn Table>, self.clock.clone(), settings).await.unwrap();
        (table, boards)
    }
}

fn board() -> BoardId {
    BoardId::new("default").unwrap()
}

fn user(at: u64) -> UserId {
    UserId::new(format!("user-{at}")).unwrap()
}

async fn play(boards: &Boards, at: u64, points: i64) {
    let play =
        NewPlay { user: user(at), points: points.to_string().into(), play_id: None, played_at_us: None };
    boards.submit(&board(), play).await.unwrap();
}

async fn agrees(boards: &Boards, players: u64) {
    let report = boards.check(false, |_| {}).await.unwrap();
    assert_eq!((report.differences, report.entries), (0, players), "{:#?}", report.named);
    let list = boards.list(&board(), &ListRequest::default()).await.unwrap();
    assert_eq!(list.players, players);
}

fn checkpoint_files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn nothing_is_answered_before_the_ranking_is_complete() {
    let world = World::new();
    {
        let (_table, boards) = world.open("table").await;
        boards.load(true).await.unwrap();
        play(&boards, 1, 5).await;
    }
    let (_table, boards) = world.open("table").await;
    assert!(!boards.readiness().ready);
    let list = boards.list(&board(), &ListRequest::default()).await;
    assert!(matches!(list, Err(Error::NotReady { .. })), "{list:?}");
    assert!(matches!(boards.standing(&board(), &user(1), None).await, Err(Error::NotReady { .. })));
    let play = NewPlay { user: user(1), points: "1".into(), play_id: None, played_at_us: None };
    assert!(matches!(boards.submit(&board(), play).await, Err(Error::NotReady { .. })));
    boards.load(true).await.unwrap();
    assert!(boards.readiness().ready);
    agrees(&boards, 1).await;
}

#[tokio::test]
async fn a_start_takes_the_checkpoint_and_the_plays_since() {
    let world = World::new();
    {
        let (_table, boards) = world.open("table").await;
        boards.load(true).await.unwrap();
        for at in 0..50 {
            play(&boards, at, 5).await;
        }
        world.clock.advance_ms(70_000);
        assert_eq!(boards.write_checkpoints().await.unwrap(), 1);
        assert_eq!(boards.write_checkpoints().await.unwrap(), 0, "nothing has changed since");
        world.clock.advance_ms(130_000);
        for at in 40..60 {
            play(&boards, at, 7).await;
        }
    }
    let (_table, boards) = world.open("table").await;
    boards.load(true).await.unwrap();
    let readiness = boards.readiness();
    assert_eq!(
        (readiness.users, readiness.plays),
        (50, 20),
        "the checkpoint was used, and only later plays were read"
    );
    agrees(&boards, 60).await;
    // Without checkpoints the same comes out.
    drop(boards);
    drop(_table);
    let (_table, boards) = world.open("table").await;
    boards.load(false).await.unwrap();
    assert_eq!(boards.readiness().plays, 0);
    agrees(&boards, 60).await;
}

#[tokio::test]
async fn a_damaged_or_missing_checkpoint_is_rebuilt_not_trusted() {
    for damage in ["flip", "cut", "remove"] {
        let world = World::new();
        {
            let (_table, boards) = world.open("table").await;
            boards.load(true).await.unwrap();
            for at in 0..20 {
                play(&boards, at, 5).await;
            }
            boards.write_checkpoints().await.unwrap();
        }
        let files = checkpoint_files(&world.path("checkpoints"));
        assert_eq!(files.len(), 1);
        let mut bytes = std::fs::read(&files[0]).unwrap();
        let middle = bytes.len() / 2;
        match damage {
            "flip" => bytes[middle] ^= 1,
            "cut" => bytes.truncate(middle),
            _ => std::fs::remove_file(&files[0]).unwrap(),
        }
        if damage != "remove" {
            std::fs::write(&files[0], bytes).unwrap();
        }
        let (_table, boards) = world.open("table").await;
        boards.load(true).await.unwrap();
        agrees(&boards, 20).await;
    }
}

#[tokio::test]
async fn a_table_restored_from_a_backup_does_not_take_a_newer_checkpoint() {
    let world = World::new();
    {
        let (table, boards) = world.open("table").await;
        boards.load(true).await.unwrap();
        play(&boards, 1, 5).await;
        boards.write_checkpoints().await.unwrap();
        table.backup(world.path("backup")).unwrap();
        play(&boards, 1, 5).await;
        play(&boards, 2, 5).await;
        boards.write_checkpoints().await.unwrap();
    }
    let (_table, boards) = world.open("backup").await;
    boards.load(true).await.unwrap();
    agrees(&boards, 1).await;
}

#[tokio::test]
async fn a_clock_that_was_set_back_loses_nothing() {
    let world = World::new();
    {
        let (_table, boards) = world.open("table").await;
        boards.load(true).await.unwrap();
        play(&boards, 1, 5).await;
        boards.write_checkpoints().await.unwrap();
        world.clock.advance_ms(-600_000);
        // The clock is behind; the play log is not.
        play(&boards, 2, 5).await;
    }
    let (_table, boards) = world.open("table").await;
    boards.load(true).await.unwrap();
    agrees(&boards, 2).await;
    play(&boards, 3, 5).await;
    drop(boards);
    drop(_table);
    world.clock.advance_ms(600_001);
    let (_table, boards) = world.open("table").await;
    boards.load(true).await.unwrap();
    agrees(&boards, 3).await;
}

#[tokio::test]
async fn the_log_is_read_to_its_end_whatever_the_clock_says() {
    let world = World::new();
    {
        let (_table, boards) = world.open("table").await;
        boards.load(true).await.unwrap();
        play(&boards, 1, 5).await;
        boards.write_checkpoints().await.unwrap();
        world.clock.advance_ms(3 * 3_600_000);
        play(&boards, 2, 5).await;
    }
    world.clock.advance_ms(-2 * 3_600_000);
    let (_table, boards) = world.open("table").await;
    boards.load(true).await.unwrap();
    assert_eq!(boards.readiness().plays, 2, "the checkpoint was used; its last play was of its own time");
    agrees(&boards, 2).await;
}

#[tokio::test]
async fn a_season_nobody_plays_in_does_not_make_starts_longer() {
    let world = World::new();
    let idle = BoardId::new("idle").unwrap();
    {
        let (_table, boards) = world.open("table").await;
        boards.load(true).await.unwrap();
        boards.put_board(&idle, Rules::default()).await.unwrap();
        let once = NewPlay { user: user(1), points: "1".into(), play_id: None, played_at_us: None };
        boards.submit(&idle, once).await.unwrap();
        for _ in 0..5 {
            world.clock.advance_ms(2 * 3_600_000);
            play(&boards, 1, 1).await;
            world.clock.advance_ms(1);
            boards.write_checkpoints().await.unwrap();
        }
    }
    let (_table, boards) = world.open("table").await;
    boards.load(true).await.unwrap();
    assert_eq!(boards.readiness().plays, 0, "everything is in the checkpoints, the idle board's included");
    assert_eq!(boards.list(&idle, &ListRequest::default()).await.unwrap().players, 1);
}

#[tokio::test]
async fn a_check_finds_what_differs_and_a_rebuild_puts_it_right() {
    let world = World::new();
    let (table, boards) = world.open("table").await;
    boards.load(true).await.unwrap();
    for at in 0..5 {
        play(&boards, at, 5).await;
        play(&boards, at, 2).await;
    }
    agrees(&boards, 5).await;
    let season = boards.seasons(&board()).await.unwrap()[0].span.season.clone();
    // One entry changed, one lost.
    let key = Entry::key(&user(1), &board(), &season);
    let item = table.get(&key, Consistency::Strong).await.unwrap().unwrap();
    table.transact(vec![Operation::put(item.with("score", 1_000))]).await.unwrap();
    table.transact(vec![Operation::delete(Entry::key(&user(2), &board(), &season))]).await.unwrap();
    let report = boards.check(false, |_| {}).await.unwrap();
    // Each differs from its plays and from the ranking; and one is missing in the count.
    assert_eq!(report.differences, 5, "{:#?}", report.named);
    let report = boards.check(true, |_| {}).await.unwrap();
    assert_eq!(report.repaired, 2);
    boards.load(false).await.unwrap();
    agrees(&boards, 5).await;
    let list = boards.list(&board(), &ListRequest::default()).await.unwrap();
    assert!(list.rows.iter().all(|row| row.score == 7));
}

#[tokio::test]
async fn a_deletion_goes_on_after_a_restart_and_leaves_nothing() {
    let world = World::new();
    let other = BoardId::new("other").unwrap();
    {
        let (table, boards) = world.open("table").await;
        boards.load(true).await.unwrap();
        boards.put_board(&other, Rules::default()).await.unwrap();
        for at in 0..250 {
            let play_id = Some(PlayId::new(format!("p{at}")).unwrap());
            let play = NewPlay { user: user(at), points: "1".into(), play_id, played_at_us: None };
            boards.submit(&other, play).await.unwrap();
        }
        play(&boards, 1, 5).await;
        // As a kill right after the beginning leaves it.
        let record = BoardRecord { deleted_users: Some(0), version: 2, ..boards.board(&other).unwrap() };
        table.transact(vec![Operation::put(record.to_item())]).await.unwrap();
    }
    let (table, boards) = world.open("table").await;
    assert!(matches!(
        boards.list(&other, &ListRequest::default()).await,
        Err(Error::BoardBeingDeleted { .. })
    ));
    boards.load(true).await.unwrap();
    while boards.board(&other).is_ok() {
        tokio::task::yield_now().await;
    }
    let report = boards.check(false, |_| {}).await.unwrap();
    assert_eq!((report.entries, report.plays, report.differences), (1, 1, 0));
    assert!(table.check().unwrap().is_clean());
    let (made, new) = boards.put_board(&other, Rules::default()).await.unwrap();
    assert!(new && made.deleted_users.is_none(), "the name is free again");
}
