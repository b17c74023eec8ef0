//! The meter counts what DynamoDB would bill, call by call, and names the partitions that run hot.

use std::sync::Arc;

use standings_table::contract::{Subject, schema};
use standings_table::meter::{Kind, Partition, Units};
use standings_table::{
    Condition, Consistency, EmbeddedTable, Item, Key, ManualClock, MeteredTable, Operation, Query,
    ReferenceTable, Scan, Table, embedded::Options,
};

type Metered = MeteredTable<Arc<dyn Table>>;

/// The same on both backends: what is billed does not depend on where the items are.
fn on_both(test: impl Fn(&Metered, &ManualClock)) {
    let clock = Subject::start_clock();
    let reference: Arc<dyn Table> = Arc::new(ReferenceTable::new(schema(), clock.clone()));
    test(&MeteredTable::new(reference, clock.clone()), &clock);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let clock = Subject::start_clock();
    let embedded =
        EmbeddedTable::open(folder.path(), Options::new(schema()).clock(clock.clone())).expect("opened");
    let embedded: Arc<dyn Table> = Arc::new(embedded);
    test(&MeteredTable::new(embedded, clock.clone()), &clock);
}

/// The write units of one transaction.
fn written(table: &Metered, operations: Vec<Operation>) -> f64 {
    let before = table.meter().totals(Kind::Transact).written;
    let _ = pollster::block_on(table.transact(operations));
    table.meter().totals(Kind::Transact).written.as_f64() - before.as_f64()
}

/// The read units of one call.
fn read<T>(table: &Metered, kind: Kind, call: impl Future<Output = T>) -> f64 {
    let before = table.meter().totals(kind).read;
    pollster::block_on(call);
    table.meter().totals(kind).read.as_f64() - before.as_f64()
}

fn sized(sk: &str, bytes: usize) -> Item {
    let overhead = Item::new("A", sk).with("blob", Vec::<u8>::new()).size_bytes();
    Item::new("A", sk).with("blob", vec![0_u8; bytes - overhead])
}

#[test]
fn writes_are_billed_by_the_kilobyte_begun_and_double_in_transactions() {
    on_both(|table, _| {
        assert_eq!(written(table, vec![Operation::put(sized("1", 1_024))]), 1.0);
        assert_eq!(written(table, vec![Operation::put(sized("1", 1_025))]), 2.0);
        assert_eq!(
            written(table, vec![Operation::put(sized("1", 100))]),
            2.0,
            "the larger of before and after"
        );
        assert_eq!(written(table, vec![Operation::put(sized("1", 100))]), 1.0);
        assert_eq!(
            written(table, vec![Operation::put(sized("1", 100)), Operation::put(sized("2", 1_500))]),
            6.0
        );
        assert_eq!(written(table, vec![Operation::delete(Key::new("A", "2"))]), 2.0);
        assert_eq!(
            written(table, vec![Operation::delete(Key::new("A", "2"))]),
            1.0,
            "nothing there costs one"
        );
        let refused = vec![Operation::put_if(sized("1", 3_000), Condition::Absent)];
        assert_eq!(written(table, refused), 3.0, "a failed condition is billed");
    });
}

#[test]
fn every_index_row_written_is_billed_and_an_unchanged_one_is_not() {
    on_both(|table, _| {
        let item = |score: i64, name: &str| {
            Item::new("A", "1")
                .with("score_partition", "S")
                .with("score", score)
                .with("name", name)
                .with("other", score)
        };
        assert_eq!(written(table, vec![Operation::put(item(1, "a"))]), 2.0, "item and row");
        assert_eq!(written(table, vec![Operation::put(item(1, "b"))]), 2.0, "the row carries the name");
        assert_eq!(
            written(table, vec![Operation::put(item(2, "b"))]),
            3.0,
            "the row moves: removed and written"
        );
        let unchanged = item(2, "b").with("not carried", 5);
        assert_eq!(written(table, vec![Operation::put(unchanged)]), 1.0, "the row stays as it is");
        assert_eq!(written(table, vec![Operation::put(Item::new("A", "1"))]), 2.0, "the row is removed");
        let beside = vec![Operation::put(item(1, "a")), Operation::put(Item::new("B", "1"))];
        assert_eq!(written(table, beside), 2.0 * 2.0 + 1.0, "items double in a transaction, rows do not");
        assert_eq!(written(table, vec![Operation::delete(Key::new("A", "1"))]), 2.0);
    });
}

#[test]
fn reads_are_billed_by_four_kilobytes_and_half_if_eventual() {
    on_both(|table, _| {
        let (strong, eventual) = (Consistency::Strong, Consistency::Eventual);
        let puts = vec![Operation::put(sized("1", 4_096)), Operation::put(sized("2", 4_097))];
        pollster::block_on(table.transact(puts)).expect("written");
        let keys = ["1", "2", "none"].map(|sk| Key::new("A", sk));
        assert_eq!(read(table, Kind::Get, table.get(&keys[0], strong)), 1.0);
        assert_eq!(read(table, Kind::Get, table.get(&keys[1], strong)), 2.0);
        assert_eq!(read(table, Kind::Get, table.get(&keys[1], eventual)), 1.0);
        assert_eq!(read(table, Kind::Get, table.get(&keys[2], eventual)), 0.5);
        assert_eq!(read(table, Kind::BatchGet, table.batch_get(&keys, strong)), 1.0 + 2.0 + 1.0);
        let query = Query::table("A");
        assert_eq!(read(table, Kind::Query, table.query(&query)), 3.0, "a page is rounded once");
        let mut query = Query::table("A");
        query.consistency = eventual;
        assert_eq!(read(table, Kind::Query, table.query(&query)), 1.5);
        assert_eq!(read(table, Kind::Scan, table.scan(&Scan::all())), 3.0);
        assert_eq!(table.meter().totals(Kind::Get).calls, 4);
    });
}

#[test]
fn a_hot_partition_is_named_while_it_is_hot() {
    on_both(|table, clock| {
        let now = || table.meter().over_write_limit(standings_table::Clock::now_ms(clock));
        for n in 0..1_000_i64 {
            let item =
                Item::new(format!("USER#{n}"), "1").with("log", "LOG#now").with("log_time", format!("{n}"));
            pollster::block_on(table.transact(vec![Operation::put(item)])).expect("written");
            assert!(now().is_empty(), "{n} units");
            clock.advance_ms(i64::from(n % 10 == 0));
        }
        pollster::block_on(table.transact(vec![Operation::put(
            Item::new("USER#x", "1").with("log", "LOG#now").with("log_time", "x"),
        )]))
        .expect("written");
        let hot = now();
        assert_eq!(hot.len(), 1);
        let index = Partition { index: Some("ByTime".into()), key: "LOG#now".into() };
        assert_eq!(hot[0].partition, index);
        assert_eq!(hot[0].units_at_least, Units::whole(1_001));
        assert!(table.meter().over_read_limit(standings_table::Clock::now_ms(clock)).is_empty());
        clock.advance_ms(1_000);
        assert!(now().is_empty(), "a second later it has cooled down");
    });
}

#[test]
fn rows_of_local_indexes_count_where_their_items_are() {
    on_both(|table, clock| {
        let item = Item::new("A", "1").with("recent", "r");
        pollster::block_on(table.transact(vec![Operation::put(item)])).expect("written");
        pollster::block_on(table.query(&Query::index("Recent", "A").strong())).expect("read");
        let now_ms = standings_table::Clock::now_ms(clock);
        let written = table.meter().hottest_written(now_ms, 10);
        assert_eq!(written.len(), 1);
        assert_eq!(written[0].partition, Partition { index: None, key: "A".into() });
        assert_eq!(written[0].units_at_most, Units::whole(2));
        assert_eq!(table.meter().hottest_read(now_ms, 10)[0].partition, written[0].partition);
    });
}
