//! Unknown JSON keys that are preserved.
//!
//! A type that preserves them lists by [`KnownKeys`] which keys have a field. These keys must not be in its [`Extra`]:
//! they would be written in addition to the field, and parsing the JSON would return something else or fail.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use serde_json::Value;

use crate::json::JsonMap;

static EMPTY: LazyLock<JsonMap> = LazyLock::new(JsonMap::new);

/// A [`JsonMap`] that is almost always empty, and then takes 8 bytes instead of 72: events and parts have several of
/// them.
#[derive(Debug, Clone, Default)]
pub struct Extra(Option<Box<JsonMap>>);

/// A type that has fields for some keys of its JSON, and keeps the other keys in an [`Extra`].
pub trait KnownKeys {
    /// The type as text for messages, such as "a part".
    const NOUN: &'static str;

    /// The keys that have a field, in camelCase, and aliases that differ in more than spelling.
    const KEYS: &'static [&'static str];
}

/// Returns the first key of `map` for which `T` has a field. Ignores underscores and case, because readers in other
/// languages accept `function_call` for `functionCall`.
pub fn known_key<T: KnownKeys>(map: &JsonMap) -> Option<&str> {
    map.keys().map(String::as_str).find(|key| T::KEYS.iter().any(|known| is_same_key(known, key)))
}

fn is_same_key(known: &str, key: &str) -> bool {
    fn letters(text: &str) -> impl Iterator<Item = u8> {
        text.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase())
    }
    letters(known).eq(letters(key))
}

impl Extra {
    /// Removes keys whose value is `null`, which means the same as an absent key.
    #[must_use]
    pub fn without_nulls(mut self) -> Self {
        if self.values().any(Value::is_null) {
            self.retain(|_, value| !value.is_null());
        }
        self
    }
}

impl Deref for Extra {
    type Target = JsonMap;

    fn deref(&self) -> &JsonMap {
        self.0.as_deref().unwrap_or(&EMPTY)
    }
}

impl DerefMut for Extra {
    fn deref_mut(&mut self) -> &mut JsonMap {
        self.0.get_or_insert_default()
    }
}

impl<'a> IntoIterator for &'a Extra {
    type Item = (&'a String, &'a Value);
    type IntoIter = serde_json::map::Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Extra {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl From<JsonMap> for Extra {
    fn from(map: JsonMap) -> Self {
        Self((!map.is_empty()).then(|| Box::new(map)))
    }
}

impl From<Extra> for JsonMap {
    fn from(extra: Extra) -> Self {
        extra.0.map(|map| *map).unwrap_or_default()
    }
}

impl Serialize for Extra {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Extra {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        JsonMap::deserialize(deserializer).map(Self::from)
    }
}
