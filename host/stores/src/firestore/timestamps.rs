//! Timestamps as ISO 8601 text, in which the order of texts is that of times.

use hatchery_core::Timestamp;

const MICROS_PER_DAY: i64 = 86_400_000_000;
/// The years 0 to 9999, in microseconds since 1970. Other times are stored as the nearest of these.
const MICROS: std::ops::RangeInclusive<i64> = -62_167_219_200_000_000..=253_402_300_799_999_999;

/// Returns a time such as `2026-11-23T03:04:05.000250Z`.
pub(crate) fn to_iso(time: Timestamp) -> String {
    let micros = time.as_micros().clamp(*MICROS.start(), *MICROS.end());
    let (days, micros) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
    let (year, month, day) = civil_from_days(days);
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
}

/// Parses a UTC time with any number of fractional digits; those after microseconds are dropped.
pub(crate) fn from_iso(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [hour, minute, second] = numbers(clock, ':')?;
    let micros: i64 = format!("{fraction:0<6.6}").parse().ok()?;
    let seconds = (hour * 60 + minute) * 60 + second;
    Some(Timestamp::from_micros(days_from_civil(year, month, day) * MICROS_PER_DAY + seconds * 1_000_000 + micros))
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
            assert_eq!(to_iso(Timestamp::from_micros(micros)), text);
        }
    }

    #[test]
    fn times_of_firestore_have_up_to_nine_fractional_digits() {
        for (text, micros) in [
            ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
            ("2023-11-14T22:13:20.25Z", 1_700_000_000_250_000),
            ("2023-11-14T22:13:20.250000999Z", 1_700_000_000_250_000),
        ] {
            assert_eq!(from_iso(text), Some(Timestamp::from_micros(micros)));
        }
        for text in ["", "2023-11-14", "2023-11-14T22:13Z", "2023-11-14T22:13:20", "2023-11-14T22:13:20.xZ"] {
            assert_eq!(from_iso(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_time_is_read_back_and_ordered_as_text(one in MICROS, other in MICROS) {
            let [first, second] = [one, other].map(Timestamp::from_micros);
            prop_assert_eq!(from_iso(&to_iso(first)), Some(first));
            prop_assert_eq!(to_iso(first).cmp(&to_iso(second)), one.cmp(&other));
        }
    }
}
