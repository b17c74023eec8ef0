//! Time as a parameter: expiry and metering never ask the system for it themselves.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time in milliseconds since 1970.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&self) -> i64;

    /// Microseconds since 1970-01-01T00:00:00Z, as exact as the clock is.
    fn now_us(&self) -> i64 {
        self.now_ms().saturating_mul(1_000)
    }

    /// Whole seconds since 1970-01-01T00:00:00Z, rounded down.
    fn now_seconds(&self) -> i64 {
        self.now_ms().div_euclid(1_000)
    }
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        i64::try_from(since_1970().as_millis()).unwrap_or(i64::MAX)
    }

    fn now_us(&self) -> i64 {
        i64::try_from(since_1970().as_micros()).unwrap_or(i64::MAX)
    }
}

/// A clock set before 1970 reads as 1970: nothing expires, which loses nothing.
fn since_1970() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A clock that stands still until it is told otherwise: for tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        Self(AtomicI64::new(now_ms))
    }

    /// Moves the clock to `now_ms`.
    pub fn set_ms(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }

    /// Moves the clock on by `ms`.
    pub fn advance_ms(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now_ms(&self) -> i64 {
        (**self).now_ms()
    }
    fn now_us(&self) -> i64 {
        (**self).now_us()
    }
}
