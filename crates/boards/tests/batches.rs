//! Batches of plays: each play answered on its own, whatever happens to the others.
//!
//! Method: boards on a table that fails on purpose; what was answered is compared with what is there by `Boards::check`.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its boards has nothing to test")]

use std::sync::Arc;

use standings_boards::{BoardId, Boards, Counted, Error, NewPlay, PlayId, Settings, UserId, records};
use standings_table::{Fault, FaultyTable, ManualClock, ReferenceTable, Table};

async fn open() -> (Arc<FaultyTable<ReferenceTable>>, Boards) {
    let clock = Arc::new(ManualClock::new(1_794_528_000_000));
    let table = Arc::new(FaultyTable::new(ReferenceTable::new(records::schema(), clock.clone())));
    let boards = Boards::open(table.clone() as Arc<dyn Table>, clock, Settings::default()).await.unwrap();
    boards.load(true).await.unwrap();
    // The season and the end of the play log are in the table from now on, so faults meet plays only.
    submit(&boards, vec![play("first", "0", 1)]).await[0].as_ref().unwrap();
    (table, boards)
}

fn play(user: &str, play_id: &str, points: i64) -> NewPlay {
    NewPlay {
        user: UserId::new(user).unwrap(),
        points: points.to_string().into(),
        play_id: Some(PlayId::new(play_id).unwrap()),
        played_at_us: None,
    }
}

async fn submit(boards: &Boards, plays: Vec<NewPlay>) -> Vec<Result<Counted, Error>> {
    let count = plays.len();
    let results = boards.submit_batch(&BoardId::new("default").unwrap(), plays).await.unwrap();
    assert_eq!(results.len(), count);
    results
}

async fn agrees(boards: &Boards, players: u64) {
    let report = boards.check(false, |_| {}).await.unwrap();
    assert_eq!((report.differences, report.entries), (0, players), "{:#?}", report.named);
}

#[tokio::test]
async fn a_thousand_plays_of_one_user_count_once_each_however_often_they_are_sent() {
    let (_, boards) = open().await;
    let plays: Vec<NewPlay> = (0..1_000).map(|n| play("ann", &format!("p{n}"), 1)).collect();
    for round in 0..2 {
        let results = submit(&boards, plays.clone()).await;
        for (at, result) in results.iter().enumerate() {
            let counted = result.as_ref().unwrap();
            assert_eq!((counted.score, counted.duplicate), (at as i64 + 1, round == 1));
        }
    }
    agrees(&boards, 2).await;
}

#[tokio::test]
async fn in_a_batch_ids_are_counted_once_and_other_points_are_refused() {
    let (_, boards) = open().await;
    let plays = vec![
        play("ann", "a", 5),
        play("bob", "a", 7),
        play("ann", "a", 5),
        play("ann", "a", 6),
        play("ann", "b", 1),
        play("bob", "c", i64::MAX),
        play("first", "0", 1),
    ];
    let results = submit(&boards, plays).await;
    let counted = |at: usize| {
        let counted = results[at].as_ref().unwrap();
        (counted.score, counted.duplicate)
    };
    assert_eq!([counted(0), counted(1), counted(2)], [(5, false), (7, false), (5, true)]);
    assert!(matches!(results[3], Err(Error::PlayIdReused { .. })));
    assert_eq!(counted(4), (6, false));
    assert!(matches!(results[5], Err(Error::ScoreOverflow)));
    assert_eq!(counted(6), (1, true));
    let rank = |at: usize| results[at].as_ref().unwrap().rank;
    assert_eq!([rank(0), rank(1), rank(4)], [Some(2), Some(1), Some(2)], "ranks are those after the batch");
    agrees(&boards, 3).await;
}

#[tokio::test]
async fn what_fails_for_one_user_fails_for_nobody_else() {
    let (table, boards) = open().await;
    for (fault, counts) in [
        (Fault::Conflict, true),
        (Fault::LostAnswer, true),
        (Fault::LostRequest, false),
        (Fault::Throttled, false),
    ] {
        let id = format!("{fault:?}");
        let plays = vec![play("ann", &id, 1), play("bob", &id, 1), play("cec", &id, 1)];
        table.fail_next([Fault::None, fault]);
        let results = submit(&boards, plays.clone()).await;
        assert!(results[0].is_ok() && results[2].is_ok(), "{fault:?}");
        assert_eq!(results[1].is_ok(), counts, "{fault:?}: {:?}", results[1]);
        agrees(&boards, 4).await;
        let again = submit(&boards, plays).await;
        assert!(again.iter().all(Result::is_ok));
        assert_eq!(again[1].as_ref().unwrap().duplicate, counts, "{fault:?}");
        agrees(&boards, 4).await;
    }
}
