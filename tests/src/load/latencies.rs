//! Percentiles of latencies.

use std::time::Duration;

use serde::Serialize;

/// Percentiles in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latencies {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
}

impl Latencies {
    /// Returns the percentiles of some measurements; zero if there are none.
    pub fn new(mut measured: Vec<Duration>) -> Self {
        measured.sort_unstable();
        let at = |share: f64| {
            let last = measured.len().saturating_sub(1);
            let index = (last as f64 * share).round() as usize;
            measured.get(index).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
        };
        Self { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_computed_from_the_sorted_measurements() {
        let measured = (0..=100).rev().map(Duration::from_micros).collect();
        assert_eq!(Latencies::new(measured), Latencies { p50: 50.0, p99: 99.0, max: 100.0 });
        assert_eq!(Latencies::new(Vec::new()), Latencies { p50: 0.0, p99: 0.0, max: 0.0 });
    }
}
