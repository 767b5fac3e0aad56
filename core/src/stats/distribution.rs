//! The distribution of durations.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Each power of two is divided into 2 to the power of this many buckets.
const PRECISION: u32 = 2;

/// The distribution of durations, as a histogram whose buckets grow with the duration.
///
/// A bucket is at most a quarter as wide as the durations in it, so quantiles are at most 25 % too
/// large. It needs at most 2 KB, however many durations it counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// The number of durations in each bucket, up to the last one that is not empty.
    counts: Vec<u64>,
    count: u64,
    /// The sum of all durations in nanoseconds.
    sum: u64,
    /// The longest duration in nanoseconds.
    max: u64,
}

impl Distribution {
    /// Counts a duration of `nanos` nanoseconds `times` times.
    #[doc(hidden)]
    pub fn record(&mut self, nanos: u64, times: u64) {
        let bucket = bucket(nanos);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += times;
        self.count += times;
        self.sum = self.sum.saturating_add(nanos.saturating_mul(times));
        self.max = self.max.max(nanos);
    }

    /// Returns how many durations it counts.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Returns the mean duration; 0 if there is none.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum.checked_div(self.count).unwrap_or(0))
    }

    /// Returns the longest duration.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Returns a duration that `share` (0 to 1) of the durations don't exceed: 0.5 for the median.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return Duration::from_nanos(upper_bound(bucket).min(self.max));
            }
        }
        self.max()
    }

    /// Returns the buckets that are not empty: the longest duration of each, and its number of
    /// durations.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (Duration::from_nanos(upper_bound(bucket)), *count))
    }

    /// Adds the durations of another distribution.
    pub fn merge(&mut self, other: &Distribution) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, other)| *own += other);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

/// Returns the bucket of a duration.
fn bucket(nanos: u64) -> usize {
    let log = nanos.max(1).ilog2();
    if log < PRECISION {
        return nanos as usize;
    }
    let shift = log - PRECISION;
    ((shift as usize) << PRECISION) + (nanos >> shift) as usize
}

/// Returns the longest duration of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let steps = 1_usize << PRECISION;
    if bucket < 2 * steps {
        return bucket as u64;
    }
    let shift = (bucket >> PRECISION) - 1;
    let leading = (bucket - (shift << PRECISION)) as u128;
    u64::try_from(((leading + 1) << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_is_at_most_a_quarter_as_wide_as_its_durations(nanos: u64) {
            let bound = upper_bound(bucket(nanos));
            prop_assert!(bound >= nanos && bound - nanos <= nanos / 4, "{nanos} in {bound}");
            prop_assert!(bound == u64::MAX || bucket(bound + 1) == bucket(nanos) + 1);
        }

        #[test]
        fn a_quantile_is_close_to_the_exact_one(
            mut nanos in prop::collection::vec(0_u64..1 << 40, 1..200),
            share in 0.0_f64..=1.0,
        ) {
            let mut distribution = Distribution::default();
            nanos.iter().for_each(|nanos| distribution.record(*nanos, 1));
            nanos.sort_unstable();
            let rank = ((share * nanos.len() as f64).ceil() as usize).clamp(1, nanos.len());
            let exact = nanos[rank - 1];
            let quantile = distribution.quantile(share).as_nanos() as u64;
            prop_assert!((exact..=exact + exact / 4).contains(&quantile));
        }
    }

    #[test]
    fn distributions_add_up() {
        let (mut one, mut other) = (Distribution::default(), Distribution::default());
        one.record(1_000, 3);
        other.record(2_000_000, 1);
        one.merge(&other);
        assert_eq!((one.count(), one.max()), (4, Duration::from_millis(2)));
        assert_eq!(one.sum(), Duration::from_nanos(2_003_000));
        assert_eq!(one.buckets().map(|(_, count)| count).sum::<u64>(), 4);
        assert_eq!(Distribution::default().quantile(0.5), Duration::ZERO);
    }
}
