//! Parsing and display of sizes and durations in `hatchery.yaml`.

use std::fmt::Display;
use std::time::Duration;

use hatchery_core::parse_byte_size;
use serde::{Deserialize, Deserializer, de::Error};

#[derive(Deserialize)]
#[serde(untagged)]
enum Quantity {
    Integer(u64),
    Number(f64),
    Text(String),
}

impl Quantity {
    /// Returns true if the unit is missing.
    fn is_plain(&self) -> bool {
        match self {
            Self::Integer(_) | Self::Number(_) => true,
            Self::Text(text) => text.trim().parse::<f64>().is_ok(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Size in bytes of a page of linear memory.
const PAGE: u64 = 64 << 10;

/// The least size in bytes of what a component returns, sends or receives.
const MIN_MESSAGE: u64 = 1 << 10;

/// The longest duration, so that deadlines can be computed.
const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

const DURATIONS: &[(&str, f64)] = &[("ms", 1e-3), ("min", 60.0), ("s", 1.0), ("h", 3600.0)];

/// Deserializes an optional number of bytes, given as a number or a string such as `64MiB`.
pub fn deserialize_optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let quantity = Option::<Quantity>::deserialize(deserializer)?;
    quantity.map(|quantity| parse_byte_size(&quantity.text())).transpose().map_err(D::Error::custom)
}

/// Like [`deserialize_optional_size`], for memory of guests: at least one page. A number without a unit that is less
/// was meant as mebibytes.
pub(crate) fn deserialize_optional_memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let bytes = deserialize_optional_size(deserializer)?;
    match bytes.filter(|bytes| *bytes < PAGE) {
        None => Ok(bytes),
        Some(bytes) => Err(D::Error::custom(format!(
            "a memory of {} is less than one page, {}; write for example `128 MiB`",
            format_size(bytes),
            format_size(PAGE)
        ))),
    }
}

/// Like [`deserialize_optional_size`], for results of guests and for HTTP messages, none of which fits into less than a
/// kibibyte. A number without a unit that is less was meant as mebibytes.
pub(crate) fn deserialize_optional_message_size<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let bytes = deserialize_optional_size(deserializer)?;
    match bytes.filter(|bytes| *bytes < MIN_MESSAGE) {
        None => Ok(bytes),
        Some(bytes) => Err(D::Error::custom(format!(
            "a limit of {} is less than {}; write for example `16 MiB`",
            format_size(bytes),
            format_size(MIN_MESSAGE)
        ))),
    }
}

/// Deserializes a number of bytes. Returns an error if it is missing.
pub(crate) fn deserialize_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserialize_optional_size(deserializer)?
        .ok_or_else(|| D::Error::custom("a size is missing; write for example `16 MiB` or 1048576"))
}

/// Deserializes an optional duration, given as seconds or a string such as `500ms`.
pub fn deserialize_optional_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    Option::<Quantity>::deserialize(deserializer)?.as_ref().map(parse_duration).transpose()
}

/// Like [`deserialize_optional_duration`], but not zero, which would end every call. It was meant as no limit.
pub(crate) fn deserialize_optional_time_limit<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let duration = deserialize_optional_duration(deserializer)?;
    if duration.is_some_and(|duration| duration.is_zero()) {
        return Err(D::Error::custom("a limit of no time ends every call; write for example `30s`, or `24h` at most"));
    }
    Ok(duration)
}

/// Deserializes a duration. Returns an error if it is missing.
pub fn deserialize_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_duration(&Quantity::deserialize(deserializer)?)
}

fn parse_duration<E: Error>(quantity: &Quantity) -> Result<Duration, E> {
    let seconds =
        parse_seconds(quantity).filter(|seconds| seconds.is_finite() && *seconds >= 0.0).ok_or_else(|| {
            E::custom(format!(
                "`{}` is not a duration; write seconds or a number with ms, s, min or h",
                quantity.text()
            ))
        })?;
    if seconds > MAX_DURATION.as_secs_f64() {
        let unit = if quantity.is_plain() { ", and a number without a unit is in seconds" } else { "" };
        return Err(E::custom(format!("`{}` is too long; a duration is at most 24h{unit}", quantity.text())));
    }
    Duration::try_from_secs_f64(seconds).map_err(E::custom)
}

/// Formats bytes with the largest unit that divides them, such as `64 MiB`.
pub fn format_size(bytes: u64) -> String {
    match bytes {
        0 => "0 B".into(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Deserializes an optional number without a unit.
pub(crate) fn deserialize_optional_count<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// Formats a number without a unit.
pub(crate) fn format_count(count: impl Display) -> String {
    count.to_string()
}

/// Formats a duration, such as `500ms` or `30s`.
pub fn format_duration(duration: Duration) -> String {
    format!("{duration:?}")
}

fn parse_seconds(quantity: &Quantity) -> Option<f64> {
    let text = match quantity {
        Quantity::Integer(number) => return Some(*number as f64),
        Quantity::Number(number) => return Some(*number),
        Quantity::Text(text) => text.trim(),
    };
    let suffixed = || {
        DURATIONS.iter().find_map(|(unit, seconds)| {
            let number = text.strip_suffix(unit)?.trim_end().parse::<f64>().ok()?;
            Some(number * seconds)
        })
    };
    text.parse::<f64>().ok().or_else(suffixed)
}
