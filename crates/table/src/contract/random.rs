//! Random operations on a backend and on the reference, compared step by step.
//!
//! Keys, sort values and attributes come from small pools, so that overwrites, ties, moved index rows,
//! failed conditions and expiries happen all the time.

use crate::Table;
use crate::contract::{Random, START_SECONDS, Subject};
use crate::error::{Error, Result};
use crate::item::Item;
use crate::key::Key;
use crate::operation::{Condition, Operation, Receipt};
use crate::query::{Consistency, Query, SortRange};
use crate::reference::ReferenceTable;

const PARTITIONS: [&str; 5] = ["A", "A\0", "AB", "B", "USER#a-rather-long-user-id-that-is-not-inline"];
const SORTS: [&str; 6] = ["1", "1\0", "12", "2", "PLAY#x", "é"];
const TEXTS: [&str; 5] = ["t", "t\0", "ta", "u", "a longer text that does not fit inline"];
const NUMBERS: [i64; 6] = [i64::MIN, -1, 0, 1, 300, i64::MAX];
/// Each index of the contract's schema with the partitions worth asking for.
const INDEXES: [&str; 7] = ["ByScore", "ByRank", "Inverted", "ByData", "ByTime", "Recent", "Best"];

/// Does `steps` random things to both tables and panics at the first difference.
pub async fn compare_with_reference(subject: &Subject, random: &mut Random, steps: usize) {
    let reference = ReferenceTable::new(subject.table.schema().clone(), subject.clock.clone());
    for step in 0..steps {
        match random.below(20) {
            0..=8 => transact_on_both(subject, &reference, random).await,
            9..=11 => transact_all_on_both(subject, &reference, random).await,
            12..=17 => query_both(subject, &reference, random).await,
            18 => subject.clock.advance_ms(i64::try_from(random.below(1_500)).expect("small")),
            _ => get_from_both(subject, &reference, random).await,
        }
        if step % 100 == 99 {
            compare_everything(subject, &reference).await;
        }
    }
    compare_everything(subject, &reference).await;
}

async fn transact_on_both(subject: &Subject, reference: &ReferenceTable, random: &mut Random) {
    let operations = random_transaction(random);
    let ours = subject.table.transact(operations.clone()).await;
    compare_results(&operations, ours, reference.transact(operations.clone()).await);
}

/// Several handed in together, on few items: they meet in one batch of the committer, and on the reference one comes after another.
async fn transact_all_on_both(subject: &Subject, reference: &ReferenceTable, random: &mut Random) {
    let transactions: Vec<_> = (0..random.below(12)).map(|_| random_transaction(random)).collect();
    let ours = subject.table.transact_all(transactions.clone()).await;
    assert_eq!(ours.len(), transactions.len());
    for (operations, ours) in transactions.iter().zip(ours) {
        compare_results(operations, ours, reference.transact(operations.clone()).await);
    }
}

fn compare_results(operations: &[Operation], ours: Result<Receipt>, theirs: Result<Receipt>) {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{operations:?}"),
        (Err(Error::ConditionFailed { failed: ours }), Err(Error::ConditionFailed { failed: theirs })) => {
            assert_eq!(ours, theirs, "{operations:?}");
        }
        (ours, theirs) => panic!("{operations:?}: {ours:?}, reference {theirs:?}"),
    }
}

/// A few random operations on different items.
pub fn random_transaction(random: &mut Random) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    for _ in 0..=random.below(4) {
        let operation = random_operation(random);
        if operations.iter().all(|other| other.key() != operation.key()) {
            operations.push(operation);
        }
    }
    operations
}

async fn query_both(subject: &Subject, reference: &ReferenceTable, random: &mut Random) {
    let query = random_query(random);
    (subject.settle)();
    let (mut ours, mut theirs) = (query.clone(), query.clone());
    let (mut our_items, mut their_items) = (Vec::new(), Vec::new());
    loop {
        let page = subject.table.query(&ours).await.expect("the query is answered");
        our_items.extend(page.items);
        if page.next.is_none() {
            break;
        }
        ours.start_after = page.next;
    }
    loop {
        let page = reference.query(&theirs).await.expect("the query is answered");
        their_items.extend(page.items);
        if page.next.is_none() {
            break;
        }
        theirs.start_after = page.next;
    }
    assert_eq!(our_items, their_items, "{query:?}");
}

async fn get_from_both(subject: &Subject, reference: &ReferenceTable, random: &mut Random) {
    let key = random_key(random);
    let ours = subject.table.get(&key, Consistency::Strong).await.expect("read");
    let theirs = reference.get(&key, Consistency::Strong).await.expect("read");
    assert_eq!(ours, theirs, "{key}");
}

async fn compare_everything(subject: &Subject, reference: &ReferenceTable) {
    let mut ours = subject.scan_all(3, Some(7)).await;
    let mut theirs = reference.scan(&crate::query::Scan::all()).await.expect("answered").items;
    ours.sort_by(|a, b| a.key.cmp(&b.key));
    theirs.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(ours, theirs);
}

fn random_key(random: &mut Random) -> Key {
    Key::new(*random.pick(&PARTITIONS), *random.pick(&SORTS))
}

fn random_operation(random: &mut Random) -> Operation {
    let condition = match random.below(8) {
        0 => Some(Condition::Absent),
        1 => Some(Condition::Present),
        2 => Some(Condition::VersionEquals(i64::try_from(random.below(3)).expect("small"))),
        _ => None,
    };
    let key = random_key(random);
    match random.below(10) {
        0 | 1 => Operation::Delete { key, condition },
        2 => Operation::Check { key, condition: condition.unwrap_or(Condition::Present) },
        _ => Operation::Put { item: random_item(random, key), condition },
    }
}

fn random_item(random: &mut Random, key: Key) -> Item {
    let mut item = Item { key, attributes: crate::item::Attributes::new() };
    for name in
        ["score_partition", "rank_partition", "inverted", "data", "log", "log_time", "recent", "best", "name"]
    {
        if random.one_in(2) {
            item.attributes.set(name, *random.pick(&TEXTS));
        }
    }
    for name in ["score", "rank", "other"] {
        if random.one_in(2) {
            item.attributes.set(name, *random.pick(&NUMBERS));
        }
    }
    if random.one_in(2) {
        item.attributes.set("version", i64::try_from(random.below(3)).expect("small"));
    }
    if random.one_in(6) {
        let after_start = i64::try_from(random.below(120)).expect("small");
        item.attributes.set("expires_at", START_SECONDS + after_start);
    }
    item
}

fn random_query(random: &mut Random) -> Query {
    let index = if random.one_in(4) { None } else { Some(*random.pick(&INDEXES)) };
    let mut query = match index {
        None => Query::table(*random.pick(&PARTITIONS)),
        Some(name @ ("Recent" | "Best")) => Query::index(name, *random.pick(&PARTITIONS)).strong(),
        Some(name) => Query::index(name, *random.pick(&TEXTS)),
    };
    let numeric = matches!(index, Some("ByScore" | "ByRank"));
    let value = |random: &mut Random| match index {
        _ if numeric => (*random.pick(&NUMBERS)).into(),
        None | Some("ByData") => (*random.pick(&SORTS)).into(),
        Some("Inverted") => (*random.pick(&PARTITIONS)).into(),
        Some(_) => (*random.pick(&TEXTS)).into(),
    };
    query.sort = match random.below(7) {
        0 => SortRange::Equals(value(random)),
        1 if !numeric => SortRange::BeginsWith((*random.pick(&["", "t", "1", "A", "PLAY#", "\0"])).into()),
        2 => SortRange::Between(value(random), value(random)),
        3 => SortRange::Less(value(random)),
        4 => SortRange::Greater(value(random)),
        _ => SortRange::All,
    };
    if random.one_in(2) {
        query = query.backward();
    }
    if random.one_in(2) {
        query.limit = Some(1 + usize::try_from(random.below(4)).expect("small"));
    }
    query
}
