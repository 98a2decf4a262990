//! Points in time as ADK clients write them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Microseconds since 1970 (UTC). In JSON float seconds; milliseconds are understood when read (a number above 10^11 can't be seconds
/// of this age).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

/// Furthest from 1970 that a timestamp is read. Up to here a float holds microseconds, so that what is written is read as the same.
const MOST_SECONDS: f64 = 4_294_967_296.0;

impl Timestamp {
    /// Now. Each call of a process gives a later time than the one before it, also when the clock is set back: what happened later is
    /// later, and a time tells one event from the others.
    pub fn now() -> Self {
        static LAST: AtomicI64 = AtomicI64::new(0);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        let later = |last: i64| Some(clock.max(last.saturating_add(1)));
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).unwrap_or_default();
        Self(clock.max(last.saturating_add(1)))
    }

    /// From microseconds since 1970.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// Seconds since 1970.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }
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
        if seconds.abs() > MOST_SECONDS {
            return Err(D::Error::custom("a timestamp must lie between the years 1834 and 2106"));
        }
        Ok(Self((seconds * 1e6).round() as i64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_that_a_float_cannot_hold_is_refused() {
        for text in ["4294967297", "-4294967297", "1e13", "17952492455555555555555555555", "4294967296001"] {
            let error = serde_json::from_str::<Timestamp>(text).unwrap_err().to_string();
            assert!(error.starts_with("a timestamp must lie between the years 1834 and 2106"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(micros in -4_294_967_296_000_000_i64..=4_294_967_296_000_000) {
            let time = Timestamp::from_micros(micros);
            let written = serde_json::to_string(&time).unwrap();
            prop_assert_eq!(serde_json::from_str::<Timestamp>(&written).unwrap(), time);
        }
    }
}
