//! How often a key may ask: a token bucket for each key.
//!
//! The bucket is `governor`'s (GCRA: one atomic a key, no lock, no timer). It belongs to the key's place in the
//! [`KeyRing`](crate::auth::KeyRing), so a request that has found its key looks nothing else up. The clock is
//! passed in, so that tests do not wait.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

/// Time since some fixed moment.
type Now = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The rule for all keys, and the clock it goes by.
#[derive(Clone)]
pub struct RateLimits {
    per_second: Option<NonZeroU32>,
    clock: SharedClock,
}

impl RateLimits {
    /// So many requests a second for each key, as many at once; none means no limit.
    pub fn new(per_second: Option<NonZeroU32>) -> RateLimits {
        let start = Instant::now();
        RateLimits::with_clock(per_second, Arc::new(move || start.elapsed()))
    }

    /// The same by another clock, which gives the time since some fixed moment and never goes back.
    pub fn with_clock(
        per_second: Option<NonZeroU32>,
        now: Arc<dyn Fn() -> Duration + Send + Sync>,
    ) -> RateLimits {
        RateLimits { per_second, clock: SharedClock(now) }
    }

    /// A full bucket for one key.
    pub fn bucket(&self) -> Bucket {
        Bucket(self.per_second.map(|per_second| {
            (
                RateLimiter::direct_with_clock(Quota::per_second(per_second), self.clock.clone()),
                self.clock.clone(),
            )
        }))
    }
}

impl std::fmt::Debug for RateLimits {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RateLimits").field("per_second", &self.per_second).finish_non_exhaustive()
    }
}

/// What one key has left.
pub struct Bucket(Option<(Limiter, SharedClock)>);

type Limiter = RateLimiter<NotKeyed, InMemoryState, SharedClock, NoOpMiddleware<Duration>>;

impl Bucket {
    /// Takes one request from the bucket.
    pub fn take(&self) -> Result<(), RateLimited> {
        let Some((limiter, clock)) = &self.0 else { return Ok(()) };
        limiter.check().map_err(|not_until| {
            let wait = not_until.wait_time_from(clock.now());
            // Whole seconds, upwards: an early client would only be refused again.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            RateLimited { retry_after_seconds: seconds.max(1) }
        })
    }
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if self.0.is_some() { "Bucket(limited)" } else { "Bucket(unlimited)" })
    }
}

/// A key has asked too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this key asks too often; try again in {retry_after_seconds} s, or raise `rate_limit_per_second`")]
pub struct RateLimited {
    /// When to try again.
    pub retry_after_seconds: u64,
}

#[derive(Clone)]
struct SharedClock(Now);

impl Clock for SharedClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        (self.0)()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn manual(per_second: u32) -> (RateLimits, Arc<AtomicU64>) {
        let millis = Arc::new(AtomicU64::new(0));
        let read = millis.clone();
        let now = Arc::new(move || Duration::from_millis(read.load(Ordering::Relaxed)));
        (RateLimits::with_clock(NonZeroU32::new(per_second), now), millis)
    }

    #[test]
    fn a_bucket_gives_its_burst_then_its_rate() {
        let (limits, millis) = manual(5);
        let bucket = limits.bucket();
        assert!((0..5).all(|_| bucket.take().is_ok()));
        assert_eq!(bucket.take(), Err(RateLimited { retry_after_seconds: 1 }));
        millis.store(200, Ordering::Relaxed);
        assert_eq!(bucket.take(), Ok(()));
        assert!(bucket.take().is_err());
        millis.store(60_000, Ordering::Relaxed);
        assert_eq!((0..100).filter(|_| bucket.take().is_ok()).count(), 5, "time unused is not saved up");
    }

    #[test]
    fn buckets_do_not_share() {
        let (limits, _) = manual(1);
        let (one, other) = (limits.bucket(), limits.bucket());
        assert!(one.take().is_ok() && one.take().is_err());
        assert!(other.take().is_ok());
    }

    #[test]
    fn no_limit_never_refuses() {
        let (limits, _) = manual(0);
        let bucket = limits.bucket();
        assert!((0..100_000).all(|_| bucket.take().is_ok()));
    }
}
