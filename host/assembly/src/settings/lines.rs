//! The lines of the keys of a YAML file. They are found by parsing up to a key and failing there: errors have a
//! location.

use std::collections::BTreeMap;
use std::fmt;

use hatchery_core::without_byte_order_mark;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_yaml::Value;

/// The lines of keys without keys below them.
#[derive(Debug, Default)]
pub(super) struct Lines(BTreeMap<String, usize>);

impl Lines {
    /// Returns no lines if the text is not YAML.
    pub(super) fn parse(text: &str) -> Self {
        let text = without_byte_order_mark(text);
        let mut paths = Vec::new();
        collect(&serde_yaml::from_str(text).unwrap_or_default(), &mut Vec::new(), &mut paths);
        let lines = paths.iter().filter_map(|path| Some((path.join("."), line(text, path)?)));
        Self(lines.collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(key, line)| (key.as_str(), *line))
    }

    /// Returns the line of a key, or of the first key below it.
    pub(super) fn find(&self, key: &str) -> Option<usize> {
        let below = format!("{key}.");
        self.0
            .get(key)
            .or_else(|| self.0.iter().find(|(other, _)| other.starts_with(&below)).map(|(_, line)| line))
            .copied()
    }
}

/// Adds the paths of keys without keys below them.
fn collect(value: &Value, path: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let Some(mapping) = value.as_mapping().filter(|mapping| !mapping.is_empty()) else {
        if !path.is_empty() {
            paths.push(path.clone());
        }
        return;
    };
    for (key, value) in mapping {
        let Ok(key) = serde_yaml::to_string(key) else { continue };
        path.push(key.trim().trim_matches(['\'', '"']).to_owned());
        collect(value, path, paths);
        path.pop();
    }
}

fn line(text: &str, path: &[String]) -> Option<usize> {
    let found = KeyFinder { path }.deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
    found.location().map(|location| location.line())
}

/// Fails at the last key of a path.
struct KeyFinder<'a> {
    path: &'a [String],
}

impl<'de> DeserializeSeed<'de> for KeyFinder<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeyFinder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((name, rest)) = self.path.split_first() else { return Ok(()) };
        while let Some(is_found) = map.next_key_seed(Key { name, is_last: rest.is_empty() })? {
            if is_found {
                map.next_value_seed(KeyFinder { path: rest })?
            } else {
                map.next_value::<IgnoredAny>().map(|_| ())?
            }
        }
        Ok(())
    }
}

/// Returns true if a key has a name. Fails at the last key of a path.
struct Key<'a> {
    name: &'a str,
    is_last: bool,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        match key == self.name {
            true if self.is_last => Err(E::custom("the key is here")),
            is_found => Ok(is_found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_lines() {
        let text = "# first\na: 1\nb:\n  c: [1,\n    2]\n\n  d:\n    - x\n  'e f': {g: 1,\n    2: x}\nh: {}\n";
        let lines: Vec<_> = Lines::parse(text).0.into_iter().collect();
        let expected = [("a", 2), ("b.c", 4), ("b.d", 7), ("b.e f.2", 10), ("b.e f.g", 9), ("h", 11)];
        assert_eq!(lines, expected.map(|(key, line)| (key.to_owned(), line)));
        assert_eq!((Lines::parse(text).find("b"), Lines::parse(text).find("x")), (Some(4), None));
        assert!(Lines::parse("a: [").0.is_empty());
    }
}
