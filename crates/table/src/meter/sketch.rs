//! Heavy hitters over a sliding second, in bounded memory.
//!
//! The second is cut into [`SLICES`] slices; each holds a *space-saving* sketch (Metwally, Agrawal, El Abbadi): a
//! fixed number of counters. A key that has a counter adds to it. A new key takes over the smallest counter,
//! inherits its count, and remembers it as its possible error. For a slice with `n` units and `k` counters:
//!
//! - a count is never less than the truth, and at most `n / k` more;
//! - every key with more than `n / k` units has a counter.
//!
//! Sums over slices keep both, with the whole second's `n`: a key without a counter in a slice may have had up
//! to that slice's smallest count there, which is what it is charged with. With 256 counters and 100,000 units
//! in the last second the error is below 400 units, and for keys that are hot all the time it is mostly zero.
//!
//! The window ends with the slice the present is in, so it covers between nine and ten tenths of a second that
//! are over and the one under way: a burst shows at once.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Into how many slices the second is cut.
pub const SLICES: usize = 10;
const SLICE_MS: i64 = 100;

/// A key and what is known of its units in the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heavy<K> {
    /// The key.
    pub key: K,
    /// Never less than the truth.
    pub at_most: u64,
    /// Never more than the truth.
    pub at_least: u64,
}

/// Units by key over the last second.
///
/// Every call of the table comes through here, mostly with a key that has no counter. So keys are told apart by 64 bits of a
/// seeded hash, and a key is copied only when it takes over a counter.
pub struct SlidingSketch<K> {
    slices: Vec<Slice<K>>,
    counters: usize,
    hash: foldhash::fast::RandomState,
}

struct Slice<K> {
    /// Which tenth of a second since 1970 it counts.
    number: i64,
    sketch: SpaceSaving<K>,
}

impl<K: Clone + Ord> SlidingSketch<K> {
    /// A sketch with so many counters for each slice.
    pub fn new(counters: usize) -> Self {
        Self { slices: Vec::with_capacity(SLICES), counters, hash: Default::default() }
    }

    /// Adds units to a key, given by reference; `owned` copies it. Both must stand for the same key, and nothing else may hash as it does.
    pub fn add(&mut self, now_ms: i64, key: &(impl Hash + ?Sized), units: u64, owned: impl FnOnce() -> K) {
        let number = now_ms.div_euclid(SLICE_MS);
        let at = match self.slices.iter().position(|slice| slice.number == number) {
            Some(at) => at,
            None => self.begin(number),
        };
        self.slices[at].sketch.add(self.hash.hash_one(key), units, owned);
    }

    /// The keys with the most units in the last second, most first.
    pub fn heaviest(&self, now_ms: i64, count: usize) -> Vec<Heavy<K>> {
        let present = now_ms.div_euclid(SLICE_MS);
        let window = present - SLICES as i64 + 1..=present;
        let slices: Vec<&Slice<K>> =
            self.slices.iter().filter(|slice| window.contains(&slice.number)).collect();
        let keys: HashMap<u64, &K> = slices
            .iter()
            .flat_map(|slice| slice.sketch.counters.iter().map(|counter| (counter.hash, &counter.key)))
            .collect();
        let mut found: Vec<Heavy<K>> = keys
            .into_iter()
            .map(|(hash, key)| {
                let (mut at_most, mut at_least) = (0, 0);
                for slice in &slices {
                    let (most, least) = slice.sketch.bounds(hash);
                    at_most += most;
                    at_least += least;
                }
                Heavy { key: key.clone(), at_most, at_least }
            })
            .collect();
        found.sort_by(|a, b| b.at_most.cmp(&a.at_most).then_with(|| a.key.cmp(&b.key)));
        found.truncate(count);
        found
    }

    /// Starts a slice, in the place of the oldest once there are enough.
    fn begin(&mut self, number: i64) -> usize {
        let slice = Slice { number, sketch: SpaceSaving::new(self.counters) };
        if self.slices.len() < SLICES {
            self.slices.push(slice);
            return self.slices.len() - 1;
        }
        let oldest = (0..SLICES).min_by_key(|at| self.slices[*at].number).unwrap_or(0);
        self.slices[oldest] = slice;
        oldest
    }
}

/// The space-saving sketch. `counters` and `counts` stand side by side; `places` says where a key's are, by the key's hash.
///
/// The smallest count is found without keeping an order. Counts only grow, so no count is below `floor`, the smallest one when it was last
/// looked for, and none before `passed` is equal to it: whoever needs a smallest counter goes on from there, and looks at all
/// of them again only when the end is reached.
struct SpaceSaving<K> {
    places: HashMap<u64, usize, foldhash::fast::RandomState>,
    counts: Vec<u64>,
    counters: Vec<Counter<K>>,
    counters_max: usize,
    floor: u64,
    passed: usize,
}

struct Counter<K> {
    key: K,
    hash: u64,
    /// How much of the count may belong to keys that had the counter before.
    error: u64,
}

impl<K> SpaceSaving<K> {
    fn new(counters_max: usize) -> Self {
        Self {
            places: HashMap::with_capacity_and_hasher(counters_max, Default::default()),
            counts: Vec::with_capacity(counters_max),
            counters: Vec::with_capacity(counters_max),
            counters_max,
            floor: 0,
            passed: 0,
        }
    }

    fn add(&mut self, hash: u64, units: u64, owned: impl FnOnce() -> K) {
        if let Some(place) = self.places.get(&hash) {
            self.counts[*place] += units;
            return;
        }
        if self.counters.len() < self.counters_max {
            self.places.insert(hash, self.counters.len());
            self.counts.push(units);
            self.counters.push(Counter { key: owned(), hash, error: 0 });
            return;
        }
        let place = self.smallest();
        let error = self.counts[place];
        let before = std::mem::replace(&mut self.counters[place], Counter { key: owned(), hash, error });
        self.places.remove(&before.hash);
        self.places.insert(hash, place);
        self.counts[place] += units;
    }

    /// The place of a smallest count of a full sketch.
    fn smallest(&mut self) -> usize {
        loop {
            let rest = &self.counts[self.passed..];
            if let Some(found) = rest.iter().position(|count| *count == self.floor) {
                self.passed += found;
                return self.passed;
            }
            self.floor = self.counts.iter().copied().min().expect("a full sketch has counters");
            self.passed = 0;
        }
    }

    /// At most and at least how many units a key has, by its hash.
    fn bounds(&self, hash: u64) -> (u64, u64) {
        match self.places.get(&hash) {
            Some(place) => (self.counts[*place], self.counts[*place] - self.counters[*place].error),
            None if self.counters.len() < self.counters_max => (0, 0),
            None => (self.counts.iter().copied().min().unwrap_or(0), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Random;

    /// Units as a naive map counts them, over the same window.
    fn truth(events: &[(i64, u64, u64)], now_ms: i64) -> HashMap<u64, u64> {
        let first = now_ms.div_euclid(SLICE_MS) - SLICES as i64 + 1;
        let mut truth = HashMap::new();
        for (at, key, units) in events {
            if at.div_euclid(SLICE_MS) >= first && *at <= now_ms {
                *truth.entry(*key).or_insert(0) += units;
            }
        }
        truth
    }

    #[test]
    fn counts_are_within_their_bounds_and_no_heavy_key_is_missing() {
        const COUNTERS: usize = 32;
        let mut random = Random::from_environment("counts_are_within_their_bounds");
        for _ in 0..20 {
            let mut sketch = SlidingSketch::new(COUNTERS);
            let mut events = Vec::new();
            let mut now_ms = 1_000_000;
            for _ in 0..20_000 {
                now_ms += i64::from(random.one_in(8));
                // Few keys often, many keys seldom.
                let key = if random.one_in(2) { random.below(5) } else { random.below(2_000) };
                let units = 1 + random.below(4);
                sketch.add(now_ms, &key, units, || key);
                events.push((now_ms, key, units));
            }
            let truth = truth(&events, now_ms);
            let total: u64 = truth.values().sum();
            let bound = total / COUNTERS as u64;
            let found = sketch.heaviest(now_ms, usize::MAX);
            for heavy in &found {
                let true_units = truth.get(&heavy.key).copied().unwrap_or(0);
                assert!(
                    heavy.at_least <= true_units && true_units <= heavy.at_most,
                    "{heavy:?}, truly {true_units}"
                );
                assert!(heavy.at_most - true_units <= bound, "{heavy:?}, truly {true_units}, bound {bound}");
            }
            for (key, units) in truth {
                assert!(
                    units <= bound || found.iter().any(|heavy| heavy.key == key),
                    "key {key} with {units} is missing"
                );
            }
            assert!(found.len() <= COUNTERS * SLICES, "memory is bounded");
        }
    }

    #[test]
    fn what_is_over_a_second_old_no_longer_counts() {
        let mut sketch = SlidingSketch::new(4);
        sketch.add(0, "old", 100, || "old");
        sketch.add(950, "new", 1, || "new");
        assert_eq!(sketch.heaviest(950, 10).len(), 2);
        let keys =
            |now_ms| sketch.heaviest(now_ms, 10).into_iter().map(|heavy| heavy.key).collect::<Vec<_>>();
        assert_eq!(keys(1_000), ["new"]);
        assert_eq!(keys(5_000), Vec::<&str>::new());
    }
}
