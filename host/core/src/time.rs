//! Timestamps in the format of ADK clients, and the clock of leases.

mod iso;

use std::ops::Add;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Microseconds since 1970 (UTC). Written to JSON as float seconds. When read, a number above 10^11 is taken as
/// milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

/// The maximum distance from 1970 of a timestamp that is read. Up to here a float represents microseconds exactly.
const MAX_SECONDS: f64 = 4_294_967_296.0;

/// Microseconds by which the clock of another host may be ahead. A clock beyond this is wrong.
const MAX_AHEAD: i64 = 60_000_000;

/// The latest timestamp of this process.
static LAST: AtomicI64 = AtomicI64::new(0);

impl Timestamp {
    /// Returns the current time. Strictly increasing within a process, even if the clock is set back: timestamps order
    /// events and identify them.
    pub fn now() -> Self {
        let clock = wall_clock();
        let next = |last: i64| Some(clock.max(last.saturating_add(1)));
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        Self(clock.max(last.saturating_add(1)))
    }

    /// Records a timestamp that another host may have made: later ones of this process are after it, although its clock
    /// is behind. A timestamp that is more than a minute ahead has no effect.
    pub fn observe(self) {
        if self.0.saturating_sub(wall_clock()) <= MAX_AHEAD {
            LAST.fetch_max(self.0, Ordering::Relaxed);
        }
    }

    /// Creates a timestamp from microseconds since 1970.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since 1970.
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the seconds since 1970.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

/// Returns the microseconds since 1970 by the clock of the machine.
fn wall_clock() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_seconds())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if !number.is_finite() {
            return Err(D::Error::custom("a timestamp must be a finite number"));
        }
        let seconds = if number.abs() >= 1e11 { number / 1e3 } else { number };
        if seconds.abs() > MAX_SECONDS {
            return Err(D::Error::custom("a timestamp must lie between the years 1834 and 2106"));
        }
        Ok(Self((seconds * 1e6).round() as i64))
    }
}

/// A time since the machine was started. It is never set back, and counts the time that the machine is suspended
/// (`CLOCK_BOOTTIME`; other systems than Linux have only `CLOCK_MONOTONIC`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UptimeInstant(Duration);

impl UptimeInstant {
    /// Returns the current time.
    pub fn now() -> Self {
        use nix::time::{ClockId, clock_gettime};
        #[cfg(target_os = "linux")]
        let clock = ClockId::CLOCK_BOOTTIME;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::CLOCK_MONOTONIC;
        // The clock exists on every system that the host runs on.
        Self(clock_gettime(clock).map(Duration::from).unwrap_or_default())
    }
}

impl Add<Duration> for UptimeInstant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_that_a_float_cannot_represent_is_rejected() {
        for text in ["4294967297", "-4294967297", "1e13", "17952492455555555555555555555", "4294967296001"] {
            let error = serde_json::from_str::<Timestamp>(text).unwrap_err().to_string();
            assert!(error.starts_with("a timestamp must lie between the years 1834 and 2106"), "{text}: {error}");
        }
    }

    #[test]
    fn times_are_after_an_observed_one_unless_its_clock_is_wrong() {
        let in_seconds = |seconds: i64| Timestamp::from_micros(Timestamp::now().as_micros() + seconds * 1_000_000);
        let ahead = in_seconds(5);
        ahead.observe();
        assert!(Timestamp::now() > ahead);
        let wrong = in_seconds(3_600);
        wrong.observe();
        assert!(Timestamp::now() < wrong);
    }

    proptest! {
        #[test]
        fn a_written_time_is_read_unchanged(micros in -4_294_967_296_000_000_i64..=4_294_967_296_000_000) {
            let time = Timestamp::from_micros(micros);
            let written = serde_json::to_string(&time).unwrap();
            prop_assert_eq!(serde_json::from_str::<Timestamp>(&written).unwrap(), time);
        }
    }
}
