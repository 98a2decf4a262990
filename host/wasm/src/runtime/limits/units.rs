//! Sizes and times as people write them.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error};

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Text(String),
}

impl Written {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// The longest time, so that deadlines can be computed.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

const SIZES: &[(&str, f64)] =
    &[("KiB", 1024.0), ("MiB", 1048576.0), ("GiB", 1073741824.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("B", 1.0)];

const TIMES: &[(&str, f64)] = &[("ms", 1e-3), ("min", 60.0), ("s", 1.0), ("h", 3600.0)];

/// Bytes, as a number or a text such as `64MiB`.
pub fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(written) = Option::<Written>::deserialize(deserializer)? else { return Ok(None) };
    let help = "is not a size; write bytes or a number with KiB, MiB or GiB";
    number(&written, SIZES, help).map(|bytes| Some(bytes as u64)).map_err(D::Error::custom)
}

/// The same where it cannot be left empty.
pub(crate) fn byte_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    size(deserializer)?
        .ok_or_else(|| D::Error::custom("a size is missing; write bytes or a number with KiB, MiB or GiB"))
}

/// A time, as seconds or a text such as `500ms`.
pub fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    Option::<Written>::deserialize(deserializer)?.as_ref().map(read_time).transpose()
}

/// The same where it cannot be left empty.
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    read_time(&Written::deserialize(deserializer)?)
}

fn read_time<E: Error>(written: &Written) -> Result<Duration, E> {
    let help = "is not a time; write seconds or a number with ms, s, min or h";
    let seconds = number(written, TIMES, help).map_err(E::custom)?;
    if seconds > LONGEST.as_secs_f64() {
        return Err(E::custom(format!("`{}` is too long; a time is at most 24h", written.text())));
    }
    Duration::try_from_secs_f64(seconds).map_err(E::custom)
}

/// Bytes for people.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0 => "0 B".into(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

fn number(written: &Written, units: &[(&str, f64)], help: &str) -> Result<f64, String> {
    let value = match written {
        Written::Number(number) => Some(*number),
        Written::Text(text) => with_unit(text.trim(), units),
    };
    value.filter(|value| value.is_finite() && *value >= 0.0).ok_or_else(|| format!("`{}` {help}", written.text()))
}

fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let plain = text.parse().ok();
    let suffixed = || {
        units.iter().find_map(|(unit, factor)| {
            let number = text.strip_suffix(unit)?.trim_end().parse::<f64>().ok()?;
            Some(number * factor)
        })
    };
    plain.or_else(suffixed)
}
