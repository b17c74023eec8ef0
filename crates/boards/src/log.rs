//! Times of the play log: when plays came here, never going back, and up to when all of them are done.
//!
//! A checkpoint of a ranking says: everything up to this time is in me. That is true of a time before which no play is still under way. A play
//! that is on its way has a [`Ticket`] until the ranking has it. The clock may be set back: times of the log are not, neither while the
//! process runs nor, by [`PlayLog::advance_to`], over a restart.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct PlayLog {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: i64,
    under_way: BTreeMap<i64, u32>,
}

/// A play under way.
pub(crate) struct Ticket<'a> {
    log: &'a PlayLog,
    /// Its time in the log.
    pub(crate) accepted_at: i64,
}

impl PlayLog {
    /// No later play gets an earlier time.
    pub(crate) fn advance_to(&self, time: i64) {
        let mut state = self.state();
        state.last = state.last.max(time);
    }

    /// A play came.
    pub(crate) fn enter(&self, now: i64) -> Ticket<'_> {
        let mut state = self.state();
        state.last = state.last.max(now);
        let accepted_at = state.last;
        *state.under_way.entry(accepted_at).or_default() += 1;
        Ticket { log: self, accepted_at }
    }

    /// A time before which every play is done, and at or after which every later one will be.
    pub(crate) fn done_before(&self, now: i64) -> i64 {
        let mut state = self.state();
        state.last = state.last.max(now);
        state.under_way.first_key_value().map_or(state.last, |(time, _)| *time)
    }

    /// How many plays are under way.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> u64 {
        self.state().under_way.values().map(|count| u64::from(*count)).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.log.state();
        if let Some(count) = state.under_way.get_mut(&self.accepted_at) {
            *count -= 1;
            if *count == 0 {
                state.under_way.remove(&self.accepted_at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_waits_for_the_oldest_play_under_way_and_time_never_goes_back() {
        let log = PlayLog::default();
        log.advance_to(100);
        let first = log.enter(50);
        assert_eq!(first.accepted_at, 100, "the clock was set back");
        let second = log.enter(120);
        let third = log.enter(110);
        assert_eq!((second.accepted_at, third.accepted_at), (120, 120));
        assert_eq!((log.done_before(130), log.under_way()), (100, 3));
        drop(first);
        drop(second);
        assert_eq!(log.done_before(130), 120);
        drop(third);
        assert_eq!((log.done_before(140), log.under_way()), (140, 0));
        assert_eq!(log.enter(0).accepted_at, 140, "nothing enters before a time that was called done");
    }
}
