//! Parsing and formatting of byte sizes such as `16 MiB`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// A number of bytes. In the configuration it is an integer or a string such as `16 MiB` or `500kB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub usize);

const UNITS: [(&str, usize); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
    ("", 1),
];

impl ByteSize {
    pub fn bytes(self) -> usize {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().take(3).find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size));
        match unit {
            Some((name, size)) => write!(f, "{} {name} ({} bytes)", self.0 / size, self.0),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let size = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim())).map(|(_, size)| *size);
        size.zip(number.parse::<usize>().ok())
            .and_then(|(size, number)| number.checked_mul(size))
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a size; write for example `16 MiB` or 1048576"))
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0 as u64)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as `16 MiB` or 1048576")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<ByteSize, E> {
        usize::try_from(number).map(ByteSize).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_and_without_units() {
        for (text, bytes) in [("1048576", 1 << 20), ("16 MiB", 16 << 20), ("2kB", 2000), ("1 gib", 1 << 30), ("7b", 7)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_rejected_with_an_example() {
        for text in ["", "MiB", "-1", "1.5 MiB", "3 parsecs", "99999999999999999999"] {
            let error = text.parse::<ByteSize>().unwrap_err();
            assert_eq!(error, format!("`{text}` is not a size; write for example `16 MiB` or 1048576"));
        }
    }

    #[test]
    fn a_size_is_displayed_in_the_largest_unit_that_divides_it() {
        assert_eq!(ByteSize(16 << 20).to_string(), "16 MiB (16777216 bytes)");
        assert_eq!(ByteSize(1 << 10).to_string(), "1 KiB (1024 bytes)");
        assert_eq!(ByteSize(1000).to_string(), "1000 bytes");
    }
}
