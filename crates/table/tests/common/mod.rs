//! What the tests of the embedded table share.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::path::Path;

use standings_table::contract::schema;
use standings_table::embedded::Options;
use standings_table::{EmbeddedTable, Error, Item, Operation, Scan, Table};

pub(crate) fn open(path: &Path) -> Result<EmbeddedTable, Error> {
    EmbeddedTable::open(path, Options::new(schema()))
}

pub(crate) fn put(table: &dyn Table, item: Item) {
    pollster::block_on(table.transact(vec![Operation::put(item)])).expect("the item is put");
}

pub(crate) fn everything(table: &dyn Table) -> Vec<Item> {
    let mut items = Vec::new();
    let mut scan = Scan::all();
    loop {
        let page = pollster::block_on(table.scan(&scan)).expect("the scan is answered");
        items.extend(page.items);
        match page.next {
            Some(next) => scan.start_after = Some(next),
            None => break,
        }
    }
    items.sort_by(|a, b| a.key.cmp(&b.key));
    items
}

pub(crate) fn busy_item(n: i64) -> Item {
    Item::new(format!("USER#{}", n % 50), format!("PLAY#{n}"))
        .with("data", format!("d{}", n % 7))
        .with("recent", format!("{n:08}"))
        .with("score_partition", "S")
        .with("score", n)
        .with("version", n)
}
