//! Names in standings: shown at once, to everyone, after every start; and no reads for users who have none.
//!
//! Method: boards on a table in memory that counts what is read from it and fails when told to.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use standings_boards::records::{self, NamedRecord, UserRecord};
use standings_boards::{BoardId, Boards, ListRequest, NewPlay, Settings, UserId};
use standings_table::{
    Consistency, Fault, FaultyTable, Item, Key, ManualClock, Operation, Page, Query, Receipt, ReferenceTable,
    Result, Scan, Schema, Table,
};

struct World {
    table: FaultyTable<ReferenceTable>,
    reads: AtomicU64,
}

#[async_trait]
impl Table for World {
    fn schema(&self) -> &Schema {
        self.table.schema()
    }
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.table.get(key, consistency).await
    }
    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        self.reads.fetch_add(keys.len() as u64, Ordering::SeqCst);
        // What others do meanwhile may come before the read or after it.
        tokio::task::yield_now().await;
        let items = self.table.batch_get(keys, consistency).await;
        tokio::task::yield_now().await;
        items
    }
    async fn transact(&self, operations: Vec<Operation>) -> Result<Receipt> {
        tokio::task::yield_now().await;
        self.table.transact(operations).await
    }
    async fn query(&self, query: &Query) -> Result<Page> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.table.query(query).await
    }
    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.table.scan(scan).await
    }
}

impl World {
    fn new() -> Arc<Self> {
        let table = FaultyTable::new(ReferenceTable::new(records::schema(), ManualClock::new(NOW_MS)));
        Arc::new(Self { table, reads: AtomicU64::new(0) })
    }

    async fn open(self: &Arc<Self>) -> Boards {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let boards = Boards::open(self.clone() as Arc<dyn Table>, clock, Settings::default()).await.unwrap();
        boards.load(true).await.unwrap();
        boards
    }
}

const NOW_MS: i64 = 1_794_528_000_000;

fn board() -> BoardId {
    BoardId::new("default").unwrap()
}

fn user(at: u64) -> UserId {
    UserId::new(format!("user-{at}")).unwrap()
}

async fn play(boards: &Boards, at: u64) {
    let play = NewPlay { user: user(at), points: "1".into(), play_id: None, played_at_us: None };
    boards.submit(&board(), play).await.unwrap();
}

async fn name(boards: &Boards, at: u64) -> Option<String> {
    let standing = boards.standing(&board(), &user(at), None).await.unwrap();
    standing.row.name.as_deref().map(str::to_owned)
}

async fn names(boards: &Boards) -> Vec<Option<String>> {
    let list = boards.list(&board(), &ListRequest { limit: Some(1_000), ..ListRequest::default() }).await;
    list.unwrap().rows.into_iter().map(|row| row.name.as_deref().map(str::to_owned)).collect()
}

#[tokio::test]
async fn who_has_no_name_costs_no_read() {
    let world = World::new();
    let boards = world.open().await;
    for at in 0..20 {
        play(&boards, at).await;
    }
    let again = world.open().await;
    for boards in [boards, again] {
        let before = world.reads.load(Ordering::SeqCst);
        assert_eq!(names(&boards).await, vec![None; 20]);
        assert_eq!(name(&boards, 7).await, None);
        boards.around(&board(), &user(3), 4, 4, None).await.unwrap();
        boards.lookup(&board(), vec![user(1), user(2)], None).await.unwrap();
        assert_eq!(world.reads.load(Ordering::SeqCst), before);
    }
}

#[tokio::test]
async fn a_name_shows_at_once_and_after_a_start() {
    let world = World::new();
    let boards = world.open().await;
    for at in 0..5 {
        play(&boards, at).await;
    }
    assert_eq!(name(&boards, 3).await, None);
    for new in [Some("Ada"), Some("Ada L."), None, Some("Countess")] {
        boards.put_user(&user(3), new).await.unwrap();
        assert_eq!(name(&boards, 3).await.as_deref(), new);
        assert_eq!(names(&boards).await[3].as_deref(), new);
        assert_eq!(name(&world.open().await, 3).await.as_deref(), new);
    }
    boards.delete_user(&user(3)).await.unwrap();
    assert_eq!(name(&boards, 3).await, None);
    assert_eq!(name(&world.open().await, 3).await, None);
    assert_eq!(boards.check(false, |_| {}).await.unwrap().differences, 0);
}

#[tokio::test]
async fn a_name_that_may_have_been_put_is_looked_for() {
    for fault in [Fault::LostAnswer, Fault::LostRequest] {
        let world = World::new();
        let boards = world.open().await;
        play(&boards, 1).await;
        assert_eq!(name(&boards, 1).await, None);
        world.table.fail_next([fault]);
        boards.put_user(&user(1), Some("Ada")).await.unwrap_err();
        let expected = (fault == Fault::LostAnswer).then_some("Ada");
        assert_eq!(name(&boards, 1).await.as_deref(), expected);
        // What is known of the marks is older than the table now; the next name finds out.
        boards.put_user(&user(1), Some("Ada L.")).await.unwrap();
        for at in 2..500 {
            boards.put_user(&user(at), Some("Bob")).await.unwrap();
        }
        assert_eq!(name(&world.open().await, 1).await.as_deref(), Some("Ada L."));
        assert_eq!(world.open().await.check(false, |_| {}).await.unwrap().differences, 0);
    }
}

#[tokio::test]
async fn a_table_from_before_the_marks_shows_its_names() {
    let world = World::new();
    let boards = world.open().await;
    play(&boards, 1).await;
    play(&boards, 2).await;
    let record = UserRecord { user: user(1), name: Some("Ada".to_owned()), created_at: 1, version: 1 };
    let without_marks = Operation::put(record.to_item());
    world.transact(vec![without_marks]).await.unwrap();
    assert_eq!(world.open().await.check(false, |_| {}).await.unwrap().differences, 1, "a mark is missing");
    world.transact(vec![Operation::delete(NamedRecord::beginning().key)]).await.unwrap();
    for _ in 0..2 {
        let boards = world.open().await;
        assert_eq!(name(&boards, 1).await.as_deref(), Some("Ada"));
        boards.put_user(&user(2), Some("Bob")).await.unwrap();
        assert_eq!(name(&boards, 2).await.as_deref(), Some("Bob"));
        assert_eq!(boards.check(false, |_| {}).await.unwrap().differences, 0);
    }
}

/// Users enough that many share a shard of the marks, and some a group.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn names_given_at_the_same_time_all_show() {
    const USERS: u64 = 400;
    let world = World::new();
    // Two processes on one table: each keeps its own marks.
    let both = [world.open().await, world.open().await];
    for at in 0..USERS {
        play(&both[0], at).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..USERS {
        let boards = both[at as usize % 2].clone();
        let reader = both[0].clone();
        tasks.spawn(async move {
            for new in ["first", "second"] {
                let reading = tokio::spawn({
                    let reader = reader.clone();
                    async move { names(&reader).await }
                });
                boards.put_user(&user(at), Some(new)).await.unwrap();
                if at.is_multiple_of(2) {
                    assert_eq!(name(&reader, at).await.as_deref(), Some(new));
                }
                reading.await.unwrap();
                if at.is_multiple_of(2) {
                    assert_eq!(name(&reader, at).await.as_deref(), Some(new), "an older read came after it");
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let boards = world.open().await;
    assert_eq!(names(&boards).await, vec![Some("second".to_owned()); USERS as usize]);
    assert_eq!(boards.check(false, |_| {}).await.unwrap().differences, 0);
}
