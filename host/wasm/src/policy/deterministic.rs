//! Deterministic clocks and random numbers, for tests and for replaying earlier calls.

use std::convert::Infallible;
use std::time::Duration;

use rand::TryRng;
use serde::Deserialize;
use wasmtime_wasi::HostWallClock;

/// The wall clock of a component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ClockGrant {
    /// The host's clock.
    #[default]
    Real,
    /// A frozen clock: always this long after 1970-01-01T00:00:00Z. Only the wall clock stands still. The monotonic
    /// clock and timers start at 0 in each instance and advance.
    Frozen(Duration),
}

impl TryFrom<String> for ClockGrant {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "real" {
            return Ok(Self::Real);
        }
        let since = seconds_since_1970(&text).map(Duration::from_secs);
        since
            .map(Self::Frozen)
            .ok_or_else(|| format!("`{text}` is neither `real` nor a time such as `2026-01-01T00:00:00Z`"))
    }
}

/// Parses a time such as `2026-01-01T00:00:00Z` as seconds since 1970.
fn seconds_since_1970(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, by: char, digits: [usize; 3]| -> Option<[u64; 3]> {
        let parts: Vec<_> = text.split(by).collect();
        let [a, b, c] = parts.try_into().ok()?;
        let number = |text: &str, digits: usize| {
            let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().ok()).flatten()
        };
        let [first, second, third] = digits;
        Some([number(a, first)?, number(b, second)?, number(c, third)?])
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days_of = |month: u64| match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is_time = (1..=12).contains(&month) && (1..=days_of(month)).contains(&day);
    if year < 1970 || !is_time || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let before = year - 1;
    // Leap days of all earlier years, minus those before 1970.
    let leap_days = before / 4 - before / 100 + before / 400 - 477;
    let days = (year - 1970) * 365 + leap_days + (1..month).map(days_of).sum::<u64>() + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// A wall clock that always returns the same time.
pub(super) struct FrozenClock(pub(super) Duration);

impl HostWallClock for FrozenClock {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        self.0
    }
}

/// The source of a component's random numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RandomConfig")]
pub enum RandomGrant {
    /// The host's cryptographically secure generator.
    #[default]
    Real,
    /// A generator with this seed, restarted in each instance.
    Seeded(u64),
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields, expecting = "random numbers are `real` or `{seed: NUMBER}`")]
enum RandomConfig {
    Word(String),
    Seed { seed: u64 },
}

impl TryFrom<RandomConfig> for RandomGrant {
    type Error = String;

    fn try_from(config: RandomConfig) -> Result<Self, String> {
        match config {
            RandomConfig::Word(word) if word == "real" => Ok(Self::Real),
            RandomConfig::Word(word) => Err(format!("`{word}` is neither `real` nor `{{seed: NUMBER}}`")),
            RandomConfig::Seed { seed } => Ok(Self::Seeded(seed)),
        }
    }
}

/// The SplitMix64 generator: sufficient for hash maps and dice, and predictable by design.
pub(super) struct SeededRng(pub(super) u64);

impl SeededRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl TryRng for SeededRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let next = self.next().to_le_bytes();
            chunk.iter_mut().zip(next).for_each(|(byte, next)| *byte = next);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        assert_eq!(seconds_since_1970("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds_since_1970("2026-01-01T00:00:00Z"), Some(1_767_225_600));
        assert_eq!(seconds_since_1970("2000-03-01T12:34:56Z"), Some(951_914_096));
        assert_eq!(seconds_since_1970("2024-02-29T23:59:59Z"), Some(1_709_251_199));
        for wrong in
            ["2026-01-01", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-1-1T0:0:0Z"]
        {
            assert_eq!(seconds_since_1970(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn wrong_clocks_and_random_numbers_are_explained() {
        let clock = |json: &str| serde_json::from_str::<ClockGrant>(json).unwrap_err().to_string();
        assert_eq!(clock("\"noon\""), "`noon` is neither `real` nor a time such as `2026-01-01T00:00:00Z`");
        let random = |json: &str| serde_json::from_str::<RandomGrant>(json).map_err(|error| error.to_string());
        assert_eq!(random("{\"seed\": 7}"), Ok(RandomGrant::Seeded(7)));
        assert_eq!(random("\"real\""), Ok(RandomGrant::Real));
        assert_eq!(random("\"dice\"").unwrap_err(), "`dice` is neither `real` nor `{seed: NUMBER}`");
        assert_eq!(random("{\"seed\": -1}").unwrap_err(), "random numbers are `real` or `{seed: NUMBER}`");
    }

    #[test]
    fn seeded_numbers_are_the_known_ones() {
        let mut numbers = SeededRng(1_234_567);
        assert_eq!(numbers.try_next_u64(), Ok(6_457_827_717_110_365_317));
        assert_eq!(numbers.try_next_u64(), Ok(3_203_168_211_198_807_973));
    }
}
