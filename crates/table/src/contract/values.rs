//! Promises 10, 11 and 12: what can be stored, for how long, and that it comes back.

use std::slice::from_ref;

use crate::contract::promises::{STRONG, get, put, put_all};
use crate::contract::{START_SECONDS, Subject};
use crate::error::Error;
use crate::item::{Attributes, Item, Value};
use crate::key::Key;
use crate::limits::{self, Limit};
use crate::operation::{Condition, Operation};
use crate::query::{Position, Query, Scan, SortRange};

/// Promise 10: one over each limit is refused with the limit's name; exactly at the limit is accepted.
pub async fn p10_limits_are_refused_before_anything_is_written(subject: &Subject) {
    let refused = |operations: Vec<Operation>, expected: Limit| async move {
        let error = subject.table.transact(operations).await.expect_err("over the limit");
        assert!(
            matches!(error, Error::LimitExceeded { limit, .. } if limit == expected),
            "{expected:?}: {error}"
        );
    };
    let overhead = Item::new("A", "big").with("b", Vec::<u8>::new()).size_bytes();
    let sized = |bytes: usize| Item::new("A", "big").with("b", vec![0_u8; bytes - overhead]);
    refused(vec![Operation::put(sized(limits::ITEM_BYTES_MAX + 1))], Limit::ItemBytes).await;
    let long = |bytes: usize| "k".repeat(bytes);
    let pk_max = limits::PARTITION_KEY_BYTES_MAX;
    let sk_max = limits::SORT_KEY_BYTES_MAX;
    refused(vec![Operation::put(Item::new(long(pk_max + 1), "1"))], Limit::PartitionKeyBytes).await;
    refused(vec![Operation::put(Item::new("A", long(sk_max + 1)))], Limit::SortKeyBytes).await;
    refused(vec![Operation::delete(Key::new("A", long(sk_max + 1)))], Limit::SortKeyBytes).await;
    let indexed = Item::new("A", "1").with("data", long(pk_max + 1));
    refused(vec![Operation::put(indexed)], Limit::PartitionKeyBytes).await;
    refused(vec![Operation::put(Item::new("A", "1").with("recent", long(sk_max + 1)))], Limit::SortKeyBytes)
        .await;
    refused(vec![Operation::put(Item::new("A", "1").with(long(256), 1))], Limit::NameBytes).await;
    let nested = |depth: usize| (0..depth).fold(Value::Number(1), |inner, _| Value::List(vec![inner]));
    refused(vec![Operation::put(Item::new("A", "1").with("n", nested(limits::DEPTH_MAX + 1)))], Limit::Depth)
        .await;
    let many =
        |count: usize| (0..count).map(|n| Operation::put(Item::new("M", format!("{n}")))).collect::<Vec<_>>();
    refused(many(limits::TRANSACTION_OPERATIONS_MAX + 1), Limit::TransactionOperations).await;
    let heavy =
        (0..11).map(|n| Operation::put(Item::new("H", format!("{n}")).with("b", vec![0_u8; 390 * 1_024])));
    refused(heavy.collect(), Limit::TransactionBytes).await;
    let keys: Vec<Key> = (0..=limits::BATCH_GET_KEYS_MAX).map(|n| Key::new("A", format!("{n}"))).collect();
    let error = subject.table.batch_get(&keys, STRONG).await.expect_err("over the limit");
    assert!(matches!(error, Error::LimitExceeded { limit: Limit::BatchGetKeys, .. }), "{error}");
    // A good operation beside a bad one is not done either.
    refused(
        vec![Operation::put(Item::new("A", "good")), Operation::put(sized(limits::ITEM_BYTES_MAX + 1))],
        Limit::ItemBytes,
    )
    .await;
    assert!(subject.scan_all(1, None).await.is_empty(), "a refused transaction writes nothing");

    put(subject, sized(limits::ITEM_BYTES_MAX)).await;
    put(
        subject,
        Item::new(long(pk_max), long(sk_max)).with("data", long(pk_max)).with("recent", long(sk_max)),
    )
    .await;
    put(subject, Item::new("A", "deep").with("n", nested(limits::DEPTH_MAX))).await;
    subject.table.transact(many(limits::TRANSACTION_OPERATIONS_MAX)).await.expect("at the limit");
    assert_eq!(subject.scan_all(1, None).await.len(), 3 + limits::TRANSACTION_OPERATIONS_MAX);
    assert_eq!(subject.query_all(Query::index("ByData", long(pk_max))).await.len(), 1);
}

/// Promise 10: what DynamoDB calls a validation error.
pub async fn p10_senseless_requests_are_refused(subject: &Subject) {
    let table = &subject.table;
    let put = |item: Item| vec![Operation::put(item)];
    let twice = vec![Operation::put(Item::new("A", "1")), Operation::delete(Key::new("A", "1"))];
    for operations in [vec![], twice] {
        let error = table.transact(operations).await.expect_err("refused");
        assert!(matches!(error, Error::InvalidRequest { .. }), "{error}");
    }
    let items = [
        Item::new("", "1"),
        Item::new("A", ""),
        Item::new("A", "1").with("version", "one"),
        Item::new("A", "1").with("expires_at", "tomorrow"),
        Item::new("A", "1").with("score", "ten"),
        Item::new("A", "1").with("data", 5),
        Item::new("A", "1").with("data", ""),
        Item::new("A", "1").with("recent", ""),
        Item::new("A", "1").with("PK", "B"),
        Item::new("A", "1").with("", 1),
    ];
    for item in items {
        let error = table.transact(put(item.clone())).await.expect_err("refused");
        assert!(matches!(error, Error::InvalidItem { .. }), "{item:?}: {error}");
    }
    let position = |sort| Some(Position { key: Key::new("A", "1"), sort });
    let queries = [
        Query::table(""),
        Query::table("A").limit(0),
        Query::table("A").sort(SortRange::Equals(1.into())),
        Query::index("ByScore", "S").sort(SortRange::BeginsWith("1".into())),
        Query::index("ByScore", "S").sort(SortRange::Between(1.into(), "2".into())),
        Query::table("B").after(position(None)),
        Query::table("A").after(position(Some(1.into()))),
        Query::index("ByScore", "S").after(position(None)),
        Query::index("ByScore", "S").after(position(Some("1".into()))),
    ];
    for query in queries {
        let error = table.query(&query).await.expect_err("refused");
        assert!(matches!(error, Error::InvalidRequest { .. }), "{query:?}: {error}");
    }
    let error = table.query(&Query::index("Nowhere", "S")).await.expect_err("refused");
    assert!(matches!(error, Error::UnknownIndex { .. }), "{error}");
    for scan in [Scan::segment(0, 0), Scan::segment(2, 2), Scan::all().limit(0)] {
        let error = table.scan(&scan).await.expect_err("refused");
        assert!(matches!(error, Error::InvalidRequest { .. }), "{scan:?}: {error}");
    }
    let error =
        table.batch_get(&[Key::new("A", "1"), Key::new("A", "1")], STRONG).await.expect_err("refused");
    assert!(matches!(error, Error::InvalidRequest { .. }), "{error}");
    assert!(subject.scan_all(1, None).await.is_empty());
}

/// Promise 11: reads, indexes, scans and conditions all agree that it is gone, from that second on.
pub async fn p11_expired_is_absent(subject: &Subject) {
    let expires_at = START_SECONDS + 10;
    let item = Item::new("A", "1")
        .with("expires_at", expires_at)
        .with("recent", "r")
        .with("data", "d")
        .with("version", 1);
    let lasting = Item::new("A", "2").with("recent", "s").with("data", "d");
    put_all(subject, [item.clone(), lasting.clone()]).await;
    let key = item.key.clone();
    let count = async || {
        let mut counts = vec![usize::from(get(subject, "A", "1").await.is_some())];
        let batch = subject.table.batch_get(from_ref(&key), STRONG).await.expect("read");
        counts.push(batch.iter().flatten().count());
        for query in [Query::table("A"), Query::index("Recent", "A"), Query::index("ByData", "d")] {
            counts.push(subject.query_all(query.limit(1)).await.len() - 1);
        }
        counts.push(subject.scan_all(1, Some(1)).await.len() - 1);
        counts
    };
    subject.clock.set_ms(expires_at * 1_000 - 1);
    assert_eq!(count().await, [1; 6]);
    subject.clock.set_ms(expires_at * 1_000);
    assert_eq!(count().await, [0; 6]);
    for condition in [Condition::Present, Condition::VersionEquals(1)] {
        let operations = vec![Operation::put_if(Item::new("A", "1"), condition)];
        let error = subject.table.transact(operations).await.expect_err("an expired item meets no condition");
        assert!(matches!(error, Error::ConditionFailed { .. }), "{error}");
    }
    let again = Item::new("A", "1").with("data", "e");
    let operations = vec![Operation::put_if(again.clone(), Condition::Absent)];
    subject.table.transact(operations).await.expect("an expired item is absent");
    assert_eq!(subject.query_all(Query::table("A")).await, [again.clone(), lasting.clone()]);
    // The rows of the expired item went with it, even if the clock were to go back.
    subject.clock.set_ms(START_SECONDS * 1_000);
    assert_eq!(subject.query_all(Query::index("Recent", "A")).await, from_ref(&lasting));
    assert_eq!(subject.query_all(Query::index("ByData", "d")).await, [lasting]);
    assert_eq!(subject.query_all(Query::index("ByData", "e")).await, [again]);
}

/// Promise 12: every type, at its edges, nested.
pub async fn p12_what_is_put_is_what_is_read(subject: &Subject) {
    let map: Attributes =
        [("é", Value::from(i64::MIN)), ("z", Value::from(true)), ("empty", Value::from(""))]
            .into_iter()
            .collect();
    let item = Item::new("PK with spaces, #, / and \0", "😀")
        .with("min", i64::MIN)
        .with("max", i64::MAX)
        .with("beyond doubles", (1_i64 << 53) + 1)
        .with("zero", 0)
        .with("text", "long enough that it does not fit inline, with \0 and ü")
        .with("empty text", "")
        .with("bytes", (0..=255).collect::<Vec<u8>>())
        .with("no bytes", Vec::<u8>::new())
        .with("false", false)
        .with("list", vec![Value::from(1), Value::List(vec![]), Value::from("x"), map.clone().into()])
        .with("map", map);
    put(subject, item.clone()).await;
    assert_eq!(get(subject, &item.key.pk, &item.key.sk).await.as_ref(), Some(&item));
    assert_eq!(subject.query_all(Query::table(item.key.pk.clone())).await, from_ref(&item));
    assert_eq!(subject.scan_all(2, None).await, [item]);
}
