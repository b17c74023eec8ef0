//! The contract suite on every backend. A new backend is one function and one line here.

use std::sync::Arc;

use standings_table::contract::{Subject, schema};
use standings_table::embedded::Options;
use standings_table::{
    DelayedTable, EmbeddedTable, FaultyTable, MeteredTable, ReferenceTable, contract_tests,
};

contract_tests!(reference, super::reference_table, pollster::block_on);
contract_tests!(embedded, super::embedded_table, pollster::block_on);
contract_tests!(delayed, super::delayed_table, pollster::block_on);
contract_tests!(metered, super::metered_table, pollster::block_on);
contract_tests!(faulty, super::faulty_table, pollster::block_on);

fn reference_table() -> Subject {
    let clock = Subject::start_clock();
    Subject::new(Arc::new(ReferenceTable::new(schema(), clock.clone())), clock)
}

/// A table whose global indexes lag keeps every promise too: the promise is only that they catch up.
fn delayed_table() -> Subject {
    let clock = Subject::start_clock();
    let current = ReferenceTable::new(schema(), clock.clone());
    let table = Arc::new(DelayedTable::new(current, clock.clone(), 5));
    let lagging = table.clone();
    let settle = move || pollster::block_on(lagging.catch_up()).expect("the late table follows");
    Subject { settle: Box::new(settle), ..Subject::new(table, clock) }
}

/// Without faults told, the faulty double is the table it wraps.
fn faulty_table() -> Subject {
    let clock = Subject::start_clock();
    Subject::new(Arc::new(FaultyTable::new(ReferenceTable::new(schema(), clock.clone()))), clock)
}

fn embedded_table() -> Subject {
    let clock = Subject::start_clock();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let table =
        EmbeddedTable::open(folder.path(), Options::new(schema()).clock(clock.clone())).expect("opened");
    Subject::new(Arc::new(table), clock).keeping(folder)
}

fn metered_table() -> Subject {
    let clock = Subject::start_clock();
    let table = ReferenceTable::new(schema(), clock.clone());
    Subject::new(Arc::new(MeteredTable::new(table, clock.clone())), clock)
}
