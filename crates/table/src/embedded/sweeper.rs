//! The sweeper: takes expired items off the disk, a page at a time, so that plays are never held up for long.
//!
//! Reads hide an expired item from the second it expires; sweeping only gives back its space. Each removal
//! goes through the committer and is done only if the item is still expired by then: one that was put anew
//! meanwhile stays.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::embedded::Inner;
use crate::embedded::encoding;
use crate::embedded::engine::Space;
use crate::embedded::plan::Prepared;
use crate::embedded::range::KeyRange;
use crate::error::{Error, Result};
use crate::query::Direction;

/// How many items a page sweeps.
const PAGE_ITEMS: usize = 100;

/// Tells the sweeper's thread to stop.
#[derive(Default)]
pub(crate) struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(crate) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for `time` or until stopped; says whether it was stopped.
    fn wait(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(stopped, time, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The sweeper's thread.
pub(crate) fn run(inner: &Inner, stop: &Stop, interval: Duration) {
    while !stop.wait(interval) {
        loop {
            match sweep_page(inner) {
                Ok(0) => break,
                Ok(swept) => tracing::debug!(swept, "swept expired items"),
                Err(Error::WritesRefused { .. } | Error::Closed) => break,
                Err(error) => {
                    tracing::warn!(%error, "sweeping expired items failed");
                    break;
                }
            }
            if stop.wait(Duration::ZERO) {
                return;
            }
        }
    }
}

/// Removes up to a page of expired items; says how many were found.
pub(crate) fn sweep_page(inner: &Inner) -> Result<usize> {
    let mut end = Vec::new();
    // Up to and including the current second.
    encoding::push_number(&mut end, inner.clock.now_seconds().saturating_add(1));
    let range = KeyRange { start: vec![], end: Some(end) };
    let mut keys = Vec::with_capacity(PAGE_ITEMS);
    inner.engine.walk(Space::Expiry, &range, Direction::Forward, |key, _| {
        let decoded = encoding::decode_expiry_key(key);
        let (_, key) = decoded.map_err(|detail| inner.engine.corrupt(Space::Expiry, key, detail))?;
        keys.push(key);
        Ok(keys.len() < PAGE_ITEMS)
    })?;
    if !keys.is_empty() {
        let answers = inner.queue.submit(keys.iter().map(Prepared::sweep).collect())?;
        for answer in answers.blocking_recv().map_err(|_| Error::Closed)? {
            answer?;
        }
    }
    Ok(keys.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{START_SECONDS, Subject, schema};
    use crate::embedded::{EmbeddedTable, Options};
    use crate::{Consistency, Item, Operation, Table};

    #[test]
    fn an_item_that_was_put_anew_before_its_turn_stays() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Subject::start_clock();
        let table = EmbeddedTable::open(folder.path(), Options::new(schema()).clock(clock)).unwrap();
        for (sk, expires_at) in [("live", START_SECONDS + 1), ("expired", START_SECONDS)] {
            let item = Item::new("A", sk).with("expires_at", expires_at);
            pollster::block_on(table.transact(vec![Operation::put(item)])).unwrap();
        }
        // As if both had been found expired a moment ago.
        for sk in ["live", "expired", "none"] {
            let answers =
                table.inner().queue.submit(vec![Prepared::sweep(&crate::Key::new("A", sk))]).unwrap();
            assert!(answers.blocking_recv().unwrap().iter().all(std::result::Result::is_ok));
        }
        let live = pollster::block_on(table.get(&crate::Key::new("A", "live"), Consistency::Strong)).unwrap();
        assert!(live.is_some());
        assert_eq!(table.check().unwrap().items, 1);
    }
}
