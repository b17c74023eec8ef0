//! What only a table on a disk can get wrong: reopening, two openers, other formats, sweeping, backups, and
//! that `check` finds what it is for.

mod common;

use std::sync::Arc;

use common::{busy_item, everything, open, put};
use standings_table::contract::{Random, START_SECONDS, Subject, random, schema};
use standings_table::embedded::Options;
use standings_table::{
    Condition, Consistency, EmbeddedTable, Error, Index, Item, Key, ManualClock, Operation, Query,
    ReferenceTable, Schema, SortType, Table,
};

#[test]
fn everything_is_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..3 {
        let table = open(folder.path()).unwrap();
        assert_eq!(everything(&table), expected);
        for n in 0..200 {
            put(&table, busy_item(round * 200 + n));
        }
        expected = everything(&table);
        assert!(table.check().unwrap().is_clean());
    }
    assert_eq!(expected.len(), 600);
}

#[test]
fn random_operations_leave_indexes_that_agree_also_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Subject::start_clock();
    let options = || Options::new(schema()).clock(clock.clone());
    let table = Arc::new(EmbeddedTable::open(folder.path(), options()).unwrap());
    let subject = Subject::new(table.clone(), clock.clone());
    let mut numbers = Random::from_environment("random_operations_leave_indexes_that_agree");
    pollster::block_on(random::compare_with_reference(&subject, &mut numbers, 1_500));
    let report = table.check().unwrap();
    assert!(report.is_clean() && report.items > 10 && report.index_rows > 10, "{report:?}");
    let before = everything(&*table);
    drop((subject, table));
    let table = EmbeddedTable::open(folder.path(), options()).unwrap();
    assert_eq!(everything(&table), before);
    assert_eq!(table.check().unwrap(), report);
}

#[test]
fn receipts_are_those_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Subject::start_clock();
    let table = EmbeddedTable::open(folder.path(), Options::new(schema()).clock(clock.clone())).unwrap();
    let reference = ReferenceTable::new(schema(), clock);
    let mut numbers = Random::from_environment("receipts_are_those_of_the_reference");
    for _ in 0..400 {
        let operations = random::random_transaction(&mut numbers);
        let ours = pollster::block_on(table.transact(operations.clone()));
        let theirs = pollster::block_on(reference.transact(operations.clone()));
        assert_eq!(ours.ok(), theirs.ok(), "{operations:?}");
    }
}

#[test]
fn a_folder_opened_twice_is_refused_naming_the_holder() {
    let folder = tempfile::tempdir().unwrap();
    let _table = open(folder.path()).unwrap();
    let error = open(folder.path()).err().expect("refused");
    let Error::Locked { holder, .. } = &error else { panic!("another error: {error}") };
    assert_eq!(*holder, format!("process {}", std::process::id()));
}

#[test]
fn a_newer_or_unknown_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    let format = folder.path().join("FORMAT");
    let text = std::fs::read_to_string(&format).unwrap();
    for version in ["2", "99", "x"] {
        std::fs::write(&format, text.replace("format 1", &format!("format {version}"))).unwrap();
        let error = open(folder.path()).err().expect("refused");
        assert!(matches!(&error, Error::UnsupportedFormat { found, .. } if found == version), "{error}");
    }
    for damaged in ["", "something else", &text.replace("ByScore", "ByScare"), &text.replace("checksum", "")]
    {
        std::fs::write(&format, damaged).unwrap();
        let error = open(folder.path()).err().expect("refused");
        assert!(matches!(&error, Error::Corrupt { file, .. } if file == &format), "{error}");
    }
    std::fs::remove_file(&format).unwrap();
    let error = open(folder.path()).err().expect("data without a format is not a new table");
    assert!(matches!(&error, Error::Corrupt { file, .. } if file == &format), "{error}");
    std::fs::write(&format, text).unwrap();
    open(folder.path()).unwrap();
}

#[test]
fn another_schema_is_refused_naming_the_difference() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    let other =
        Schema::new([Index::global("ByScore", "score_partition", "score", SortType::Number)]).unwrap();
    let error = EmbeddedTable::open(folder.path(), Options::new(other)).err().expect("refused");
    assert!(
        matches!(&error, Error::SchemaMismatch { difference, .. } if difference.contains("ByScore")),
        "{error}"
    );
}

#[test]
fn setting_up_can_be_interrupted_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    let (engine, engine_new) = (folder.path().join("engine"), folder.path().join("engine.new"));
    // Interrupted before the last step: FORMAT is there, the engine still has its first name.
    std::fs::rename(&engine, &engine_new).unwrap();
    drop(open(folder.path()).unwrap());
    // Interrupted earlier: the engine is half there and there is no FORMAT.
    std::fs::remove_file(folder.path().join("FORMAT")).unwrap();
    std::fs::rename(&engine, &engine_new).unwrap();
    std::fs::remove_file(engine_new.join("version")).unwrap();
    put(&open(folder.path()).unwrap(), Item::new("A", "1"));
    assert_eq!(everything(&open(folder.path()).unwrap()).len(), 1);
    // An engine that was there once and is gone is damage.
    std::fs::remove_dir_all(&engine).unwrap();
    assert!(matches!(open(folder.path()).err(), Some(Error::Corrupt { .. })));
}

#[test]
fn sweeping_gives_back_what_expired_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Subject::start_clock();
    let table = EmbeddedTable::open(folder.path(), Options::new(schema()).clock(clock.clone())).unwrap();
    for n in 0..250 {
        put(&table, busy_item(n).with("expires_at", START_SECONDS + 10 + n % 2));
    }
    put(&table, busy_item(1_000));
    put(&table, busy_item(1_001).with("expires_at", START_SECONDS + 1_000));
    assert_eq!(table.sweep_page().unwrap(), 0, "nothing has expired yet");
    clock.set_ms((START_SECONDS + 10) * 1_000);
    // One that was put anew without an end stays, though it had expired.
    put(&table, busy_item(0));
    let mut swept = 0;
    loop {
        match table.sweep_page().unwrap() {
            0 => break,
            count => swept += count,
        }
    }
    assert_eq!(swept, 124);
    let report = table.check().unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.items, 125 + 1 + 2);
}

#[test]
fn the_sweeper_runs_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_SECONDS * 1_000));
    let options =
        Options::new(schema()).clock(clock.clone()).sweep_interval(std::time::Duration::from_millis(5));
    let table = EmbeddedTable::open(folder.path(), options).unwrap();
    put(&table, busy_item(1).with("expires_at", START_SECONDS + 1));
    clock.advance_ms(2_000);
    for _ in 0..2_000 {
        if table.check().unwrap().items == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the expired item was never swept");
}

#[test]
fn a_backup_is_one_moment_and_opens_as_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let table = Arc::new(open(&folder.path().join("table")).unwrap());
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    // Both counters always change together: a backup that shows them different is not one moment.
    let pair = |n: i64| {
        let counter =
            |name: &str| Operation::put(Item::new(name, "counter").with("n", n).with("data", format!("{n}")));
        vec![counter("A"), counter("Z")]
    };
    pollster::block_on(table.transact(pair(0))).unwrap();
    let writer = std::thread::spawn({
        let (table, stop) = (table.clone(), stop.clone());
        move || {
            let mut n = 0;
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                n += 1;
                pollster::block_on(table.transact(pair(n))).unwrap();
                put(&*table, busy_item(n));
            }
        }
    });
    for round in 0..3 {
        let target = folder.path().join(format!("backups/{round}"));
        table.backup(&target).unwrap();
        let copy = open(&target).unwrap();
        let counter = |name: &str| {
            pollster::block_on(copy.get(&Key::new(name, "counter"), Consistency::Strong))
                .unwrap()
                .unwrap()
                .number("n")
        };
        assert_eq!(counter("A"), counter("Z"));
        assert!(copy.check().unwrap().is_clean());
        // The copy is a table of its own: it takes writes and survives being closed.
        put(&copy, Item::new("only in the copy", "1"));
        let items = everything(&copy);
        drop(copy);
        assert_eq!(everything(&open(&target).unwrap()), items);
        assert!(
            matches!(table.backup(&target), Err(Error::Io { .. })),
            "an existing folder is not overwritten"
        );
    }
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    writer.join().unwrap();
    let leftovers = std::fs::read_dir(folder.path().join("backups")).unwrap().count();
    assert_eq!(leftovers, 3, "no half copies are left");
}

#[test]
fn check_finds_rows_that_are_missing_wrong_or_too_many() {
    let folder = tempfile::tempdir().unwrap();
    let table = open(folder.path()).unwrap();
    for n in 0..20 {
        put(&table, busy_item(n));
    }
    drop(table);
    // Behind the table's back: one row of `ByData` goes, one changes, one that nobody calls for appears.
    {
        let database = fjall::Database::builder(folder.path().join("engine")).open().unwrap();
        let index = database.keyspace("index-ByData", fjall::KeyspaceCreateOptions::default).unwrap();
        let rows: Vec<_> = index.iter().map(|row| row.into_inner().unwrap()).collect();
        index.remove(rows[0].0.clone()).unwrap();
        index.insert(rows[1].0.clone(), rows[2].1.clone()).unwrap();
        let mut stray = rows[3].0.to_vec();
        stray[0] = b'x';
        index.insert(stray, rows[3].1.clone()).unwrap();
        index.insert([&rows[4].0[..], b"?"].concat(), rows[4].1.clone()).unwrap();
        database.persist(fjall::PersistMode::SyncAll).unwrap();
    }
    let table = open(folder.path()).unwrap();
    let report = table.check().unwrap();
    assert_eq!(report.differences, 4, "{report:?}");
    assert!(report.examples.iter().any(|example| example.contains("missing")), "{report:?}");
    assert!(report.examples.iter().any(|example| example.contains("something else")), "{report:?}");
    assert!(report.examples.iter().any(|example| example.contains("does not call for")), "{report:?}");
}

#[test]
fn transactions_of_one_batch_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let table = open(folder.path()).unwrap();
    // Sent together without waiting: the committer will mostly find several of them in one batch.
    let sent: Vec<_> = (0..200_i64)
        .map(|n| {
            let condition = if n == 0 { Condition::Absent } else { Condition::VersionEquals(n - 1) };
            let item =
                Item::new("A", "1").with("version", n).with("data", format!("d{n}")).with("recent", "r");
            table.transact(vec![Operation::put_if(item, condition)])
        })
        .collect();
    pollster::block_on(async {
        let mut sent: Vec<_> = sent.into_iter().map(Some).collect();
        // Polling each once submits it; awaiting comes after all are submitted.
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        for slot in &mut sent {
            let future = slot.as_mut().unwrap().as_mut();
            if let std::task::Poll::Ready(result) = future.poll(&mut context) {
                result.unwrap();
                *slot = None;
            }
        }
        for future in sent.into_iter().flatten() {
            future.await.unwrap();
        }
    });
    let statistics = table.commit_statistics();
    assert!(statistics.batches < statistics.transactions, "{statistics:?}");
    assert!(table.check().unwrap().is_clean());
    let rows = pollster::block_on(table.query(&Query::index("ByData", "d199"))).unwrap();
    assert_eq!(rows.items.len(), 1);
    assert_eq!(table.check().unwrap().index_rows, 2);
}
