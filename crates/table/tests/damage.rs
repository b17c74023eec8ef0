//! Damaged files: reported with file and key, never a panic, never a guess; and a torn tail is not damage.
//!
//! Method: a closed table is copied, bytes of the copy are changed, and the copy is opened and read through.

mod common;

use std::path::{Path, PathBuf};

use standings_table::contract::{Random, schema};
use standings_table::embedded::Options;
use standings_table::{EmbeddedTable, Error, Item, Operation, Table};

fn open(path: &Path) -> Result<EmbeddedTable, Error> {
    EmbeddedTable::open(path, Options::new(schema()).memtable_bytes(128 << 10))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder is made");
    for entry in std::fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("the folder is read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("the folder is read").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("the file is copied");
        }
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder is read").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
    found.sort();
}

fn journal(folder: &Path) -> PathBuf {
    let mut found = Vec::new();
    files(&folder.join("engine"), &mut found);
    found
        .into_iter()
        .rfind(|path| path.extension().is_some_and(|end| end == "jnl"))
        .expect("there is a journal")
}

/// A table of ten transactions of two items each, and where each ends in the journal. None of them is written
/// out to data files: a batch that is there has been synced, and cannot be torn any more.
fn small_table(folder: &Path) -> Vec<usize> {
    let mut ends = Vec::new();
    for n in 0..10_i64 {
        let table = common::open(folder).expect("opened");
        let pair = ["A", "B"].map(|pk| {
            Operation::put(Item::new(pk, format!("{n}")).with("data", "d").with("blob", vec![7_u8; 9_000]))
        });
        pollster::block_on(table.transact(pair.into())).expect("written");
        drop(table);
        let bytes = std::fs::read(journal(folder)).expect("the journal is read");
        ends.push(bytes.iter().rposition(|byte| *byte != 0).expect("something was written") + 1);
    }
    ends
}

fn pairs(table: &EmbeddedTable) -> usize {
    let items = common::everything(table);
    let count = |pk: &str| items.iter().filter(|item| item.key.pk == pk).count();
    assert_eq!(count("A"), count("B"), "both items of a transaction or none");
    let report = table.check().expect("checked");
    assert!(report.is_clean(), "{report:?}");
    count("A")
}

#[test]
fn a_torn_last_batch_is_cut_off_and_the_rest_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    let ends = small_table(&original);
    // Not closed in good order: the machine stopped.
    std::fs::remove_file(original.join("CLOSED")).unwrap();
    let (start, end) = (ends[8], ends[9]);
    let mut random = Random::from_environment("a_torn_last_batch");
    for round in 0..40 {
        let torn = folder.path().join("torn");
        copy(&original, &torn);
        let path = journal(&torn);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = start + random.below((end - start) as u64) as usize;
        if round % 2 == 0 {
            // The file ends in the middle of the batch.
            bytes.truncate(at);
        } else {
            // A page in the middle never reached the disk, those after it did.
            let page = at & !0xFFF;
            let until = (page + 0x1000).min(end);
            bytes[page.max(start)..until].fill(0);
        }
        std::fs::write(&path, bytes).unwrap();
        let table = common::open(&torn).unwrap_or_else(|error| panic!("round {round}, byte {at}: {error}"));
        assert_eq!(pairs(&table), 9);
        common::put(&table, Item::new("C", "1"));
        drop(table);
        assert_eq!(pairs(&common::open(&torn).unwrap()), 9);
        std::fs::remove_dir_all(&torn).unwrap();
    }
}

#[test]
fn a_damaged_batch_before_the_last_is_reported_naming_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    let ends = small_table(&original);
    let mut random = Random::from_environment("a_damaged_batch_before_the_last");
    for round in 0..40 {
        let damaged = folder.path().join("damaged");
        copy(&original, &damaged);
        let path = journal(&damaged);
        // After a crash, all but the last batch can be judged; closed in good order, all of them.
        let closed = round % 2 == 0;
        if !closed {
            std::fs::remove_file(damaged.join("CLOSED")).unwrap();
        }
        let end = if closed { ends[9] } else { ends[8] };
        let mut bytes = std::fs::read(&path).unwrap();
        let at = random.below(end as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        std::fs::write(&path, bytes).unwrap();
        let error =
            common::open(&damaged).err().unwrap_or_else(|| panic!("round {round}, byte {at}: opened"));
        assert!(matches!(&error, Error::Corrupt { file, .. } if *file == path), "byte {at}: {error}");
        std::fs::remove_dir_all(&damaged).unwrap();
    }
}

#[test]
fn a_changed_byte_anywhere_is_reported_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    let table = open(&original).unwrap();
    for n in 0..4_000 {
        let next =
            || common::busy_item(n).with("blob", vec![n as u8; 100]).with("best", format!("{}", n % 13));
        // Not waiting for each answer would be faster; a few hundred at a time are fast enough.
        if n % 50 == 0 {
            let puts = (n..n + 50).map(|n| Operation::put(common::busy_item(n).with("best", "b"))).collect();
            pollster::block_on(table.transact(puts)).unwrap();
        } else if n % 50 < 3 {
            common::put(&table, next());
        }
    }
    let expected = common::everything(&table);
    drop(table);
    drop(open(&original).unwrap());
    let mut paths = Vec::new();
    files(&original, &mut paths);
    paths.retain(|path| path.file_name().is_some_and(|name| name != "LOCK" && name != "lock"));
    let tables =
        paths.iter().filter(|path| path.parent().is_some_and(|parent| parent.ends_with("tables"))).count();
    assert!(tables > 5, "there are data files to damage: {paths:?}");
    let mut random = Random::from_environment("a_changed_byte_anywhere");
    let (mut reported, mut harmless) = (0, 0);
    let rounds =
        std::env::var("STANDINGS_DAMAGE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(80);
    for _ in 0..rounds {
        let damaged = folder.path().join("damaged");
        copy(&original, &damaged);
        let path = damaged.join(random.pick(&paths).strip_prefix(&original).unwrap());
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.is_empty() {
            std::fs::remove_dir_all(&damaged).unwrap();
            continue;
        }
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        std::fs::write(&path, &bytes).unwrap();
        let what = format!("{} byte {at} of {}", path.display(), bytes.len());
        match read_through(&damaged) {
            Ok((items, report)) => {
                harmless += 1;
                assert_eq!(items.len(), expected.len(), "{what}: items lost without a word");
                assert_eq!(items, expected, "{what}: items changed without a word");
                assert!(report.is_clean(), "{what}: {} differences", report.differences);
            }
            Err(Error::Corrupt { detail, .. }) => {
                reported += 1;
                assert!(!detail.is_empty(), "{what}");
            }
            Err(Error::UnsupportedFormat { .. } | Error::SchemaMismatch { .. }) => reported += 1,
            Err(error) => panic!("{what}: another error: {error:?}"),
        }
        std::fs::remove_dir_all(&damaged).unwrap();
    }
    println!("{reported} reported, {harmless} harmless");
    assert!(reported > 0);
}

#[test]
fn every_byte_of_the_lists_of_files_counts() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original");
    drop(open(&original).unwrap());
    let keyspace = original.join("engine/keyspaces/1");
    let current = std::fs::read(keyspace.join("current")).unwrap();
    let list = format!("v{}", u64::from_le_bytes(current[..8].try_into().unwrap()));
    for name in ["current", &list] {
        let length = std::fs::read(keyspace.join(name)).unwrap().len();
        for at in (0..length).step_by(3) {
            let damaged = folder.path().join("damaged");
            copy(&original, &damaged);
            let path = damaged.join("engine/keyspaces/1").join(name);
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[at] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            let error = open(&damaged).err().unwrap_or_else(|| panic!("{name} byte {at}: opened"));
            assert!(matches!(error, Error::Corrupt { .. }), "{name} byte {at}: {error}");
            std::fs::remove_dir_all(&damaged).unwrap();
        }
    }
}

fn read_through(folder: &Path) -> Result<(Vec<Item>, standings_table::embedded::CheckReport), Error> {
    let table = open(folder)?;
    let report = table.check()?;
    let mut items = Vec::new();
    let mut scan = standings_table::Scan::all();
    loop {
        let page = pollster::block_on(table.scan(&scan))?;
        items.extend(page.items);
        match page.next {
            Some(next) => scan.start_after = Some(next),
            None => break,
        }
    }
    items.sort_by(|a, b| a.key.cmp(&b.key));
    Ok((items, report))
}
