//! The test doubles do what they are for: lag, and fail.

use standings_table::contract::{Subject, schema};
use standings_table::{
    Consistency, DelayedTable, Error, Fault, FaultyTable, Item, Key, Operation, Query, ReferenceTable, Table,
};

#[test]
fn code_that_trusts_a_global_index_fails_on_the_delayed_table() {
    let clock = Subject::start_clock();
    let table = DelayedTable::new(ReferenceTable::new(schema(), clock.clone()), clock, 1);
    pollster::block_on(async {
        let item = |n: i64| Item::new("A", format!("{n}")).with("data", "D").with("recent", "r");
        table.transact(vec![Operation::put(item(1))]).await.unwrap();
        let global = async || table.query(&Query::index("ByData", "D")).await.unwrap().items.len();
        assert_eq!(global().await, 0, "the row is not there yet");
        let local = table.query(&Query::index("Recent", "A").strong()).await.unwrap();
        assert_eq!(local.items.len(), 1, "a local index is strong");
        table.transact(vec![Operation::put(item(2))]).await.unwrap();
        assert_eq!(global().await, 1);
        table.catch_up().await.unwrap();
        assert_eq!(global().await, 2);
    });
}

#[test]
fn a_lost_answer_was_written_and_a_lost_request_was_not() {
    let clock = Subject::start_clock();
    let table = FaultyTable::new(ReferenceTable::new(schema(), clock));
    table.fail_next([Fault::LostRequest, Fault::LostAnswer, Fault::Throttled, Fault::Conflict]);
    pollster::block_on(async {
        let key = Key::new("A", "1");
        let put = || table.transact(vec![Operation::put(Item::new("A", "1"))]);
        let there = async || table.get(&key, Consistency::Strong).await.unwrap().is_some();
        assert!(matches!(put().await, Err(Error::OutcomeUnknown { .. })));
        assert!(!there().await);
        assert!(matches!(put().await, Err(Error::OutcomeUnknown { .. })));
        assert!(there().await);
        for _ in 0..2 {
            assert!(put().await.unwrap_err().is_retryable());
        }
        put().await.unwrap();
    });
}
