//! Statistics of the calls of a revision: resource usage and exceeded limits.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hatchery_core::sync::MutexExt;
use serde::Serialize;

use crate::runtime::limits::Limit;

/// Bits of a value after its first one that choose the bucket. Quantiles are at most an eighth too high.
const PRECISION: u32 = 3;

const STEPS: usize = 1 << PRECISION;

/// A bucket for each value below [`STEPS`], and [`STEPS`] for each further power of two.
const BUCKETS: usize = STEPS * (u64::BITS - PRECISION + 1) as usize;

/// Statistics of the calls of one revision of a component, without those that describe it.
#[derive(Default)]
pub(crate) struct CallStatistics {
    /// Bytes.
    memory: Distribution,
    /// Nanoseconds.
    cpu: Distribution,
    wall: Distribution,
    agent_wall: Distribution,
    limit_hits: Mutex<BTreeMap<&'static str, u64>>,
}

/// The resource usage of a component's calls since its current revision was loaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentUsage {
    /// Number of calls that have ended.
    pub calls: u64,
    /// Bytes. `None` without a call, as the times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<Quantiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_seconds: Option<Quantiles>,
    /// Of agents and of models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_wall_seconds: Option<Quantiles>,
    /// Numbers of calls that ended at a limit, by its key in `hatchery.yaml`; `fixed` for those without one.
    pub limit_hits: BTreeMap<String, u64>,
}

/// The median, the 99th percentile and the maximum. The first two are at most an eighth too high.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl CallStatistics {
    /// Counts a call that has ended after `wall`, which is limited by `limit`.
    pub(super) fn count_call(&self, limit: Limit, wall: Duration, cpu: Duration) {
        let times = if matches!(limit, Limit::AgentWall) { &self.agent_wall } else { &self.wall };
        times.add(nanoseconds(wall));
        self.cpu.add(nanoseconds(cpu));
    }

    /// Records the peak memory of an instance during a call.
    pub(super) fn record_peak_memory(&self, bytes: u64) {
        self.memory.add(bytes);
    }

    /// Counts a call that has ended at the limit with this key.
    pub(super) fn count_limit(&self, key: &'static str) {
        *self.limit_hits.lock_unpoisoned().entry(key).or_default() += 1;
    }

    /// Returns the numbers so far.
    pub(crate) fn usage(&self) -> ComponentUsage {
        let seconds = |times: &Distribution| times.quantiles(1e9);
        let limit_hits = self.limit_hits.lock_unpoisoned();
        ComponentUsage {
            calls: self.cpu.count(),
            memory: self.memory.quantiles(1.0),
            cpu_seconds: seconds(&self.cpu),
            wall_seconds: seconds(&self.wall),
            agent_wall_seconds: seconds(&self.agent_wall),
            limit_hits: limit_hits.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect(),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A histogram with logarithmic buckets, which any number of threads add to without waiting.
struct Distribution {
    buckets: [AtomicU32; BUCKETS],
    max: AtomicU64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { buckets: [const { AtomicU32::new(0) }; BUCKETS], max: AtomicU64::new(0) }
    }
}

impl Distribution {
    fn add(&self, value: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(value)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| u64::from(bucket.load(Ordering::Relaxed))).sum()
    }

    /// Returns the quantiles as multiples of `unit`. `None` without a value.
    fn quantiles(&self, unit: f64) -> Option<Quantiles> {
        let count = self.count();
        let max = self.max.load(Ordering::Relaxed);
        let quantile = |percent: u64| {
            let rank = (count * percent).div_ceil(100);
            let mut sum = 0;
            let bucket = self.buckets.iter().position(|bucket| {
                sum += u64::from(bucket.load(Ordering::Relaxed));
                sum >= rank
            });
            bucket.map_or(max, |bucket| largest_in(bucket).min(max)) as f64 / unit
        };
        (count > 0).then(|| Quantiles { p50: quantile(50), p99: quantile(99), max: max as f64 / unit })
    }
}

fn bucket_of(value: u64) -> usize {
    match value.checked_ilog2().filter(|exponent| *exponent >= PRECISION) {
        // The leading bits of the value without the first one, which is always 1. They follow the buckets of smaller
        // powers of two.
        Some(exponent) => {
            let shift = exponent - PRECISION;
            shift as usize * STEPS + (value >> shift) as usize
        }
        None => value as usize,
    }
}

/// Returns the largest value in a bucket.
fn largest_in(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    let first_bits = bucket - shift * STEPS;
    let next = (first_bits as u128 + 1) << shift;
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_one_bucket_at_most_an_eighth_below_its_largest_value() {
        let values = (0..100).chain((0..64).flat_map(|power| {
            let value = 1_u64 << power;
            [value - 1, value, value + value / 2, value.saturating_add(value - 1)]
        }));
        for value in values.chain([u64::MAX]) {
            let bucket = bucket_of(value);
            let largest = largest_in(bucket);
            assert!(
                bucket < BUCKETS && value <= largest && largest - value <= value / 8,
                "{value}: {bucket} {largest}"
            );
            assert!(bucket == 0 || largest_in(bucket - 1) < value, "{value}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_computed_from_all_calls() {
        let statistics = CallStatistics::default();
        assert_eq!(statistics.usage(), ComponentUsage::default());
        for milliseconds in 1..=100 {
            statistics.count_call(Limit::Wall, Duration::from_millis(milliseconds), Duration::from_nanos(7));
        }
        statistics.count_call(Limit::AgentWall, Duration::from_secs(60), Duration::from_nanos(7));
        statistics.record_peak_memory(1 << 20);
        statistics.count_limit("limits.wall");
        statistics.count_limit("limits.wall");
        let usage = statistics.usage();
        assert_eq!((usage.calls, usage.limit_hits), (101, BTreeMap::from([("limits.wall".to_owned(), 2)])));
        let wall = usage.wall_seconds.unwrap();
        assert!((0.05..=0.05625).contains(&wall.p50) && (0.099..=0.1).contains(&wall.p99), "{wall:?}");
        assert_eq!(wall.max, 0.1);
        assert_eq!(usage.agent_wall_seconds.unwrap().p50, 60.0);
        assert_eq!(usage.memory.unwrap(), Quantiles { p50: 1048576.0, p99: 1048576.0, max: 1048576.0 });
    }
}
