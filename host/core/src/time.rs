//! Points in time as ADK clients write them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Microseconds since 1970 (UTC). In JSON float seconds; milliseconds are understood when read (a number above 10^11 can't be seconds
/// of this age).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

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
        Ok(Self((seconds * 1e6).round() as i64))
    }
}
