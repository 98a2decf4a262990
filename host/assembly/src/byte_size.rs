//! Parsing and formatting of byte sizes such as `16 MiB`.

use std::fmt;
use std::str::FromStr;

use hatchery_core::parse_byte_size;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// A number of bytes. In the configuration it is a number or a string such as `16 MiB` or `1.5 GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub usize);

/// The units in which sizes are displayed.
const UNITS: [(&str, usize); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl ByteSize {
    pub fn bytes(self) -> usize {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size));
        match unit {
            Some((name, size)) => write!(f, "{} {name} ({} bytes)", self.0 / size, self.0),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = parse_byte_size(text)?;
        usize::try_from(bytes)
            .map(Self)
            .map_err(|_| format!("`{text}` is larger than the memory of this machine can be"))
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

    fn visit_i64<E: Error>(self, number: i64) -> Result<ByteSize, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<ByteSize, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_numbers_and_strings() {
        let read = |yaml: &str| serde_yaml::from_str::<ByteSize>(yaml).map_err(|error| error.to_string());
        for (yaml, bytes) in [("1048576", 1 << 20), ("16 MiB", 16 << 20), ("1.5 mib", 3 << 19), ("1.5", 1)] {
            assert_eq!(read(yaml), Ok(ByteSize(bytes)), "{yaml}");
        }
        for yaml in ["-1", "-1.5", "3 parsecs"] {
            let error = read(yaml).unwrap_err();
            let expected = format!("`{yaml}` is not a size; write for example `16 MiB` or 1048576");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_size_is_displayed_in_the_largest_unit_that_divides_it() {
        assert_eq!(ByteSize(16 << 20).to_string(), "16 MiB (16777216 bytes)");
        assert_eq!(ByteSize(1 << 10).to_string(), "1 KiB (1024 bytes)");
        assert_eq!(ByteSize(1000).to_string(), "1000 bytes");
    }
}
