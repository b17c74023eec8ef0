//! The committer: one thread that makes transactions durable, as many at a time as are waiting.
//!
//! Callers put requests into a queue and wait for their answers. The committer takes whatever waits, checks
//! the transactions in order, writes all rows as one batch, syncs once, and answers all of them. While it
//! syncs, the next ones gather: the busier the table, the larger the batches. A lone writer is not delayed to
//! gather company, and nobody waits by spinning.
//!
//! Nothing is answered before the sync, not even a failed condition: it may have failed because of a
//! transaction of the same batch, which does not exist until it is on disk. After a failed write nothing is
//! tried again: every later request is refused until the table is opened anew.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::embedded::engine::Engine;
use crate::embedded::plan::{History, Plan, Prepared};
use crate::error::{Error, Result, WriteFailure};
use crate::operation::Receipt;
use crate::schema::Schema;

/// At most so many transactions a batch, so that one sync never takes long; and so many at most may be handed in together.
pub(crate) const BATCH_TRANSACTIONS_MAX: usize = 1_024;
/// A batch takes no further transaction once it holds so many bytes.
pub(crate) const BATCH_BYTES_MAX: usize = 4 << 20;
/// More waiting than this is refused as too much, rather than held in memory.
const WAITING_TRANSACTIONS_MAX: usize = 64 * 1_024;
const WAITING_BYTES_MAX: usize = 256 << 20;
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Where a caller gets the answers to what it handed in together.
pub(crate) type Answers = oneshot::Receiver<Vec<Result<Receipt>>>;

/// Transactions that one caller handed in together.
struct Request {
    transactions: Vec<Prepared>,
    bytes: usize,
    answer: oneshot::Sender<Vec<Result<Receipt>>>,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    transactions: usize,
    bytes: usize,
    closed: bool,
}

/// The queue in front of the committer, shared by callers and the thread.
pub(crate) struct Queue {
    folder: PathBuf,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    failure: OnceLock<WriteFailure>,
    counters: Counters,
}

/// What the committer has done since it started.
#[derive(Debug, Default)]
struct Counters {
    /// Also the number of the last batch that was committed; see `History`.
    batches: AtomicU64,
    transactions: AtomicU64,
    rows: AtomicU64,
    sizes: [AtomicU64; COMMIT_SIZES],
}

/// Sizes of batches are counted by powers of two, up to the largest batch.
pub const COMMIT_SIZES: usize = BATCH_TRANSACTIONS_MAX.ilog2() as usize + 1;

/// What the committer has done since the table was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitStatistics {
    /// Batches written, each with one sync.
    pub batches: u64,
    /// Transactions answered, successful or not.
    pub transactions: u64,
    /// Rows written, of items, indexes and expiry times.
    pub rows: u64,
    /// Batches by how many transactions they had: at `n`, those of more than half of 2ⁿ and up to 2ⁿ.
    pub sizes: [u64; COMMIT_SIZES],
}

impl Queue {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            failure: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// Hands transactions to the committer, at most [`BATCH_TRANSACTIONS_MAX`]; the answers come through the receiver, in their order.
    pub(crate) fn submit(&self, transactions: Vec<Prepared>) -> Result<Answers> {
        if let Some(refused) = self.refused() {
            return Err(refused);
        }
        let (answer, receiver) = oneshot::channel();
        let mut waiting = self.waiting();
        if waiting.closed {
            return Err(self.refused().unwrap_or(Error::Closed));
        }
        if waiting.transactions >= WAITING_TRANSACTIONS_MAX || waiting.bytes >= WAITING_BYTES_MAX {
            return Err(Error::Throttled { retry_after: RETRY_AFTER });
        }
        let bytes = transactions.iter().map(|prepared| prepared.bytes).sum();
        waiting.transactions += transactions.len();
        waiting.bytes += bytes;
        waiting.requests.push_back(Request { transactions, bytes, answer });
        // The committer sleeps only on an empty queue: later arrivals need not wake it.
        let first = waiting.requests.len() == 1;
        drop(waiting);
        if first {
            self.arrived.notify_one();
        }
        Ok(receiver)
    }

    /// The number of the last batch whose rows can be read.
    pub(crate) fn committed(&self) -> u64 {
        self.counters.batches.load(Ordering::Acquire)
    }

    /// The error for every write, once one has failed.
    pub(crate) fn refused(&self) -> Option<Error> {
        let cause = self.failure.get()?.clone();
        Some(Error::WritesRefused { folder: self.folder.clone(), cause })
    }

    /// No more requests; those waiting are still done.
    pub(crate) fn close(&self) {
        self.waiting().closed = true;
        self.arrived.notify_all();
    }

    pub(crate) fn statistics(&self) -> CommitStatistics {
        CommitStatistics {
            batches: self.counters.batches.load(Ordering::Relaxed),
            transactions: self.counters.transactions.load(Ordering::Relaxed),
            rows: self.counters.rows.load(Ordering::Relaxed),
            sizes: std::array::from_fn(|at| self.counters.sizes[at].load(Ordering::Relaxed)),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for requests; nothing when the queue is closed and empty.
    ///
    /// After a batch of several their callers are about to come back, one after the other. On a machine with few cores the first of
    /// them would wake this thread in the midst of the others and get a sync for itself alone, so it lets them run first; where
    /// every thread has a core, that costs nothing.
    fn take_batch(&self, last: usize) -> Option<Vec<Request>> {
        let waiting = self.waiting();
        let idle = |waiting: &mut Waiting| waiting.requests.is_empty() && !waiting.closed;
        let mut waiting = self.arrived.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner);
        if waiting.requests.len() < last {
            drop(waiting);
            std::thread::yield_now();
            waiting = self.waiting();
        }
        if waiting.requests.is_empty() {
            return None;
        }
        let (mut count, mut transactions, mut bytes) = (0, 0, 0);
        for request in &waiting.requests {
            let full = transactions + request.transactions.len() > BATCH_TRANSACTIONS_MAX;
            if count > 0 && (full || bytes >= BATCH_BYTES_MAX) {
                break;
            }
            count += 1;
            transactions += request.transactions.len();
            bytes += request.bytes;
        }
        waiting.transactions -= transactions;
        waiting.bytes -= bytes;
        if count == waiting.requests.len() {
            return Some(std::mem::take(&mut waiting.requests).into());
        }
        Some(waiting.requests.drain(..count).collect())
    }

    fn fail(&self, cause: WriteFailure) -> Error {
        tracing::error!(folder = %self.folder.display(), %cause, "the table takes no more writes");
        let cause = self.failure.get_or_init(|| cause).clone();
        Error::WritesRefused { folder: self.folder.clone(), cause }
    }
}

/// The committer's thread: runs until the queue is closed and empty. Calls `full` when a memtable has reached its size.
pub(crate) fn run(queue: &Queue, engine: &Engine, schema: &Schema, clock: &dyn Clock, full: impl Fn()) {
    // However this thread ends, nobody is left waiting for an answer that cannot come.
    struct CloseOnExit<'a>(&'a Queue);
    impl Drop for CloseOnExit<'_> {
        fn drop(&mut self) {
            self.0.close();
            self.0.waiting().requests.clear();
        }
    }
    let _close = CloseOnExit(queue);
    let mut history = History::new();
    let mut last = 0;
    while let Some(requests) = queue.take_batch(last) {
        last = requests.len();
        match queue.refused() {
            Some(refused) => {
                requests.into_iter().for_each(|request| {
                    let results = request.transactions.iter().map(|_| Err(refused.clone())).collect();
                    answer(request.answer, results);
                });
            }
            None => {
                let batch = queue.committed() + 1;
                let transactions = requests.iter().map(|request| request.transactions.len()).sum();
                let plan = Plan::new(engine, schema, clock.now_seconds(), &mut history, batch, transactions);
                commit(queue, engine, plan, requests);
                if engine.has_full_memtable() {
                    full();
                }
            }
        }
    }
}

fn commit(queue: &Queue, engine: &Engine, mut plan: Plan<'_>, requests: Vec<Request>) {
    let mut transactions = 0;
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        transactions += request.transactions.len();
        let results: Vec<_> = request.transactions.into_iter().map(|prepared| plan.add(prepared)).collect();
        answers.push((request.answer, results));
    }
    let rows = plan.into_rows();
    let row_count = rows.len();
    let written = match row_count {
        0 => Ok(()),
        _ => engine.wait_for_room().and_then(|()| engine.commit(rows)),
    };
    // Only now may a caller that reads rely on seeing this batch.
    queue.counters.batches.fetch_add(u64::from(row_count > 0), Ordering::Release);
    queue.counters.transactions.fetch_add(transactions as u64, Ordering::Relaxed);
    queue.counters.rows.fetch_add(row_count as u64, Ordering::Relaxed);
    let size = transactions.next_power_of_two().ilog2() as usize;
    queue.counters.sizes[size.min(COMMIT_SIZES - 1)].fetch_add(1, Ordering::Relaxed);
    match written {
        Ok(()) => answers.into_iter().for_each(|(sender, results)| answer(sender, results)),
        Err(cause) => {
            let refused = queue.fail(cause);
            answers.into_iter().for_each(|(sender, results)| {
                answer(sender, results.iter().map(|_| Err(refused.clone())).collect());
            });
        }
    }
}

/// A caller that has gone away does not want its answers any more.
fn answer(sender: oneshot::Sender<Vec<Result<Receipt>>>, results: Vec<Result<Receipt>>) {
    let _ = sender.send(results);
}
