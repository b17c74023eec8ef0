//! Writers whose work can be judged afterwards, whatever happened to them on the way.
//!
//! Writer `w` does transactions 1, 2, 3, …, each of them: a play put if absent, the entry put if its version is as
//! expected, and the play `KEPT` before deleted. So at any moment the entry's version `v` says exactly which
//! plays there must be: `v - KEPT + 1 ..= v`. Any other set is a lost, repeated or half-done transaction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use standings_table::contract::Random;
use standings_table::{Condition, Consistency, Error, Item, Key, Operation, Query, Table};

/// How many plays of a writer are kept.
const KEPT: i64 = 40;

fn user(writer: usize) -> String {
    format!("USER#{writer:03}")
}

fn entry_key(writer: usize) -> Key {
    Key::new(user(writer), "ENTRY#default#all")
}

fn transaction(writer: usize, n: i64, blob_bytes: usize) -> Vec<Operation> {
    let play = Item::new(user(writer), format!("PLAY#{n:010}"))
        .with("n", n)
        .with("recent", format!("{n:010}"))
        .with("log", format!("LOG#{}", n / 100))
        .with("log_time", format!("{n:010}#{writer}"))
        .with("blob", vec![n as u8; blob_bytes]);
    let entry = Item { key: entry_key(writer), attributes: Default::default() }
        .with("version", n)
        .with("score", n * 10)
        .with("score_partition", format!("SHARD#{}", writer % 4));
    let condition = if n == 1 { Condition::Absent } else { Condition::VersionEquals(n - 1) };
    let mut operations =
        vec![Operation::put_if(play, Condition::Absent), Operation::put_if(entry, condition)];
    if n > KEPT {
        let key = Key::new(user(writer), format!("PLAY#{:010}", n - KEPT));
        operations.push(Operation::delete_if(key, Condition::Present));
    }
    operations
}

/// The version a writer's entry has reached.
pub(crate) fn version(table: &dyn Table, writer: usize) -> i64 {
    let entry =
        pollster::block_on(table.get(&entry_key(writer), Consistency::Strong)).expect("the entry is read");
    entry.and_then(|entry| entry.version()).unwrap_or(0)
}

/// Runs the writers until told to stop or refused; `acknowledge` is called after each answer.
/// Returns the error that ended them, if one did.
pub(crate) fn run(
    table: &Arc<dyn Table>,
    writers: usize,
    blob_bytes_max: u64,
    stop: &AtomicBool,
    acknowledge: impl Fn(usize, i64) + Sync,
) -> Option<Error> {
    let first_error = Mutex::new(None);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (first_error, acknowledge) = (&first_error, &acknowledge);
            scope.spawn(move || {
                let mut n = version(&**table, writer);
                let mut random = Random::new(n as u64 * 1_000 + writer as u64);
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let blob_bytes = random.below(blob_bytes_max) as usize;
                    match pollster::block_on(table.transact(transaction(writer, n, blob_bytes))) {
                        Ok(_) => acknowledge(writer, n),
                        Err(error) => {
                            first_error.lock().expect("no writer panics").get_or_insert(error);
                            return;
                        }
                    }
                }
            });
        }
    });
    first_error.into_inner().expect("no writer panics")
}

/// Panics unless every acknowledged transaction is there in full and none is half there.
pub(crate) fn verify(table: &dyn Table, writers: usize, acknowledged: &BTreeMap<usize, i64>) {
    for writer in 0..writers {
        let version = version(table, writer);
        let told = acknowledged.get(&writer).copied().unwrap_or(0);
        assert!(
            version >= told,
            "writer {writer}: transaction {told} was acknowledged, the entry is at {version}"
        );
        let mut query = Query::table(user(writer));
        let mut plays = Vec::new();
        loop {
            let page = pollster::block_on(table.query(&query)).expect("the plays are read");
            plays.extend(page.items.iter().filter_map(|item| item.number("n")));
            match page.next {
                Some(next) => query.start_after = Some(next),
                None => break,
            }
        }
        let expected: Vec<i64> = ((version - KEPT + 1).max(1)..=version).collect();
        assert_eq!(plays, expected, "writer {writer} at version {version}");
    }
}
