//! Promises 1, 2 and 4: transactions and what is seen of them.

use std::slice::from_ref;
use std::sync::Arc;

use crate::Table;
use crate::contract::Subject;
use crate::contract::promises::{STRONG, get, put, sort_keys};
use crate::error::{Error, FailedCondition};
use crate::item::Item;
use crate::key::Key;
use crate::operation::{Condition, Operation};
use crate::query::Query;

/// Promise 1: operations take effect together.
pub async fn p01_all_or_nothing(subject: &Subject) {
    put(subject, Item::new("A", "old")).await;
    let operations = vec![
        Operation::put(Item::new("A", "new").with("n", 1)),
        Operation::delete(Key::new("A", "old")),
        Operation::put_if(Item::new("B", "new"), Condition::Absent),
    ];
    subject.table.transact(operations).await.expect("all conditions hold");
    assert_eq!(get(subject, "A", "new").await, Some(Item::new("A", "new").with("n", 1)));
    assert_eq!(get(subject, "A", "old").await, None);
    assert!(get(subject, "B", "new").await.is_some());
}

/// Promise 1: a failed condition leaves items and indexes as they were.
pub async fn p01_conflict_changes_nothing(subject: &Subject) {
    put(subject, Item::new("A", "1").with("version", 3).with("data", "before")).await;
    let operations = vec![
        Operation::put(Item::new("A", "2").with("data", "before")),
        Operation::delete(Key::new("A", "1")),
        Operation::put_if(Item::new("A", "3"), Condition::Present),
    ];
    let error = subject.table.transact(operations).await.expect_err("there is no item A / 3");
    assert!(matches!(error, Error::ConditionFailed { .. }), "{error}");
    let all = subject.scan_all(1, None).await;
    assert_eq!(all, [Item::new("A", "1").with("version", 3).with("data", "before")]);
    assert_eq!(sort_keys(&subject.query_all(Query::index("ByData", "before")).await), ["1"]);
}

/// Promise 1: the error says which conditions failed, all of them.
pub async fn p01_every_failed_condition_is_named(subject: &Subject) {
    put(subject, Item::new("A", "1").with("version", 3)).await;
    let operations = vec![
        Operation::put_if(Item::new("A", "1"), Condition::Absent),
        Operation::put_if(Item::new("A", "2"), Condition::Absent),
        Operation::delete_if(Key::new("A", "3"), Condition::Present),
        Operation::Check { key: Key::new("A", "4"), condition: Condition::VersionEquals(0) },
    ];
    let error = subject.table.transact(operations).await.expect_err("three conditions fail");
    let Error::ConditionFailed { failed } = error else { panic!("another error: {error}") };
    let expected = [
        FailedCondition { operation: 0, condition: Condition::Absent },
        FailedCondition { operation: 2, condition: Condition::Present },
        FailedCondition { operation: 3, condition: Condition::VersionEquals(0) },
    ];
    assert_eq!(failed, expected);
}

/// Promise 2: each kind of condition is judged against the latest state.
pub async fn p02_conditions_see_what_came_before(subject: &Subject) {
    let try_put = |item: Item, condition| async move {
        match subject.table.transact(vec![Operation::put_if(item, condition)]).await {
            Ok(_) => true,
            Err(Error::ConditionFailed { .. }) => false,
            Err(error) => panic!("another error: {error}"),
        }
    };
    let item = |version: i64| Item::new("A", "1").with("version", version);
    assert!(!try_put(item(1), Condition::Present).await);
    assert!(
        !try_put(item(1), Condition::VersionEquals(0)).await,
        "an absent item has no version, not version 0"
    );
    assert!(try_put(item(1), Condition::Absent).await);
    assert!(!try_put(item(2), Condition::Absent).await);
    assert!(try_put(item(2), Condition::VersionEquals(1)).await);
    assert!(!try_put(item(2), Condition::VersionEquals(1)).await);
    assert!(try_put(Item::new("A", "1"), Condition::Present).await);
    assert!(!try_put(item(2), Condition::VersionEquals(2)).await, "an item without a version equals none");
    // A check that holds lets the rest happen and writes nothing itself.
    let check = Operation::Check { key: Key::new("A", "1"), condition: Condition::Present };
    subject.table.transact(vec![check, Operation::put(Item::new("A", "2"))]).await.expect("the check holds");
    assert_eq!(get(subject, "A", "1").await, Some(Item::new("A", "1")));
    assert!(get(subject, "A", "2").await.is_some());
}

/// Promise 2: many threads increment a few counters conditionally; none is lost.
pub async fn p02_concurrent_increments_lose_none(subject: &Subject) {
    const THREADS: i64 = 8;
    const INCREMENTS: i64 = 40;
    let key = |counter: i64| Key::new("COUNTER", format!("{}", counter % 3));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let table: Arc<dyn Table> = subject.table.clone();
            std::thread::spawn(move || {
                for increment in 0..INCREMENTS {
                    let key = key(thread + increment);
                    block_on(increment_once(&*table, &key));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no increment panics");
    }
    let mut sum = 0;
    for counter in 0..3 {
        let key = key(counter);
        sum += get(subject, &key.pk, &key.sk).await.and_then(|item| item.number("count")).unwrap_or(0);
    }
    assert_eq!(sum, THREADS * INCREMENTS);
}

/// Promises 1 and 2: many transactions handed in together are each on their own, however many there are.
pub async fn p02_transactions_handed_in_together_are_each_on_their_own(subject: &Subject) {
    put(subject, Item::new("A", "old").with("version", 1)).await;
    let absent = |pk: &str, sk: &str| Operation::put_if(Item::new(pk, sk), Condition::Absent);
    let mut transactions = vec![
        vec![absent("A", "1"), Operation::delete(Key::new("A", "old"))],
        vec![absent("A", "2"), Operation::put_if(Item::new("A", "none"), Condition::Present)],
        vec![],
        vec![absent("A", "3"), absent("A", "3")],
        vec![absent("B", "same")],
        vec![absent("B", "same")],
    ];
    let first = transactions.len();
    transactions.extend((0..2_500).map(|n| vec![absent("C", &format!("{n:04}"))]));
    let count = transactions.len();
    let results = subject.table.transact_all(transactions).await;
    assert_eq!(results.len(), count);
    assert!(results[0].is_ok());
    let failed = vec![FailedCondition { operation: 1, condition: Condition::Present }];
    assert!(matches!(&results[1], Err(Error::ConditionFailed { failed: found }) if *found == failed));
    assert!(matches!(&results[2], Err(Error::InvalidRequest { .. })), "an empty transaction is refused");
    assert!(matches!(&results[3], Err(Error::InvalidRequest { .. })), "an item named twice is refused");
    assert!(results[4].is_ok() && results[5].is_err(), "of two that exclude each other the first is done");
    assert!(results[first..].iter().all(|result| result.as_ref().is_ok_and(|done| done.writes.len() == 1)));
    assert_eq!(sort_keys(&subject.query_all(Query::table("A")).await), ["1"]);
    assert_eq!(subject.query_all(Query::table("B")).await.len(), 1);
    let expected: Vec<String> = (0..2_500).map(|n| format!("{n:04}")).collect();
    assert_eq!(sort_keys(&subject.query_all(Query::table("C")).await), expected);
    assert!(subject.table.transact_all(vec![]).await.is_empty());
}

/// Promise 4: item, partition, local index and scan, right after the acknowledgement.
pub async fn p04_strong_reads_see_what_was_written(subject: &Subject) {
    for round in 0..20 {
        let item = Item::new("A", "1").with("n", round).with("recent", format!("{round:02}"));
        put(subject, item.clone()).await;
        assert_eq!(get(subject, "A", "1").await.as_ref(), Some(&item));
        let page =
            |query: Query| async move { subject.table.query(&query.strong()).await.expect("answered").items };
        assert_eq!(page(Query::table("A")).await, from_ref(&item));
        assert_eq!(page(Query::index("Recent", "A")).await, from_ref(&item));
        assert_eq!(subject.scan_all(1, None).await, [item]);
    }
}

async fn increment_once(table: &dyn Table, key: &Key) {
    loop {
        let stored = table.get(key, STRONG).await.expect("the counter is read");
        let (count, condition) = match &stored {
            None => (0, Condition::Absent),
            Some(item) => {
                let version = item.version().expect("every counter carries a version");
                (item.number("count").expect("every counter counts"), Condition::VersionEquals(version))
            }
        };
        let item =
            Item::new(key.pk.clone(), key.sk.clone()).with("count", count + 1).with("version", count + 1);
        match table.transact(vec![Operation::put_if(item, condition)]).await {
            Ok(_) => return,
            Err(Error::ConditionFailed { .. } | Error::Conflict | Error::Throttled { .. }) => {}
            Err(error) => panic!("another error: {error}"),
        }
    }
}

/// Waits on any future from a plain thread; the contract depends on no runtime.
fn block_on<F: std::future::Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
