//! Timestamps as ISO 8601 strings in UTC, which sort like the times.

use super::Timestamp;

const MICROS_PER_DAY: i64 = 86_400_000_000;
/// The years 0 to 9999, in microseconds since 1970. Other times are written as the nearest of these.
const MICROS: std::ops::RangeInclusive<i64> = -62_167_219_200_000_000..=253_402_300_799_999_999;

impl Timestamp {
    /// Returns a time such as `2026-11-23T03:04:05.000250Z`.
    pub fn to_iso(self) -> String {
        let micros = self.as_micros().clamp(*MICROS.start(), *MICROS.end());
        let (days, micros) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
        let (year, month, day) = civil_from_days(days);
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
    }

    /// Returns a time such as `2026-11-23T03:04:05.000Z`, truncated to milliseconds.
    pub fn to_iso_millis(self) -> String {
        let mut text = self.to_iso();
        text.truncate(text.len().saturating_sub("000Z".len()));
        text.push('Z');
        text
    }

    /// Parses a UTC time with any number of fractional digits; those after microseconds are dropped. `None` if it is
    /// not one of the years 0 to 9999.
    pub fn from_iso(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let [year, month, day] = numbers(date, '-')?;
        let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
        let [hour, minute, second] = numbers(clock, ':')?;
        let is_valid = (0..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            // A leap second is the next one.
            && (0..=60).contains(&second)
            && fraction.bytes().all(|byte| byte.is_ascii_digit());
        if !is_valid {
            return None;
        }
        let micros: i64 = format!("{fraction:0<6.6}").parse().ok()?;
        let seconds = (hour * 60 + minute) * 60 + second;
        Some(Self::from_micros(days_from_civil(year, month, day) * MICROS_PER_DAY + seconds * 1_000_000 + micros))
    }
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut numbers = text.split(separator).map(|number| number.parse().ok());
    let parsed = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(parsed)
}

/// Returns the date of a day since 1970. Years begin in March, so that a leap day is the last of its year.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the day since 1970 of a date.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_written_in_utc_with_microseconds() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (1_700_000_000_250_000, "2023-11-14T22:13:20.250000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (i64::MAX, "9999-12-31T23:59:59.999999Z"),
            (i64::MIN, "0000-01-01T00:00:00.000000Z"),
        ] {
            assert_eq!(Timestamp::from_micros(micros).to_iso(), text);
        }
    }

    #[test]
    fn times_with_up_to_nine_fractional_digits_are_read() {
        for (text, micros) in [
            ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
            ("2023-11-14T22:13:20.25Z", 1_700_000_000_250_000),
            ("2023-11-14T22:13:20.250000999Z", 1_700_000_000_250_000),
        ] {
            assert_eq!(Timestamp::from_iso(text), Some(Timestamp::from_micros(micros)));
        }
        for text in [
            "",
            "2023-11-14",
            "2023-11-14T22:13Z",
            "2023-11-14T22:13:20",
            "2023-11-14T22:13:20.xZ",
            "2023-13-14T22:13:20Z",
            "2023-11-14T24:13:20Z",
            "99999999999-01-01T00:00:00Z",
        ] {
            assert_eq!(Timestamp::from_iso(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_time_is_read_back_and_ordered_as_text(one in MICROS, other in MICROS) {
            let [first, second] = [one, other].map(Timestamp::from_micros);
            prop_assert_eq!(Timestamp::from_iso(&first.to_iso()), Some(first));
            let millis = Timestamp::from_micros(one.div_euclid(1_000) * 1_000);
            prop_assert_eq!(Timestamp::from_iso(&first.to_iso_millis()), Some(millis));
            prop_assert_eq!(first.to_iso().cmp(&second.to_iso()), one.cmp(&other));
        }
    }
}
