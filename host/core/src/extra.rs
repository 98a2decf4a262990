//! JSON keys that are kept but not understood.
//!
//! A type that keeps such keys says by [`KnownKeys`] which ones have a field of their own. These never belong into its
//! [`Extra`]: they would be written beside the field, and reading the JSON back would give something else or fail.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use serde_json::Value;

use crate::content::JsonMap;

static NOTHING: LazyLock<JsonMap> = LazyLock::new(JsonMap::new);

/// A map that is nearly always empty, and then takes 8 bytes where a [`JsonMap`] takes 72: events and parts hold several of them.
#[derive(Debug, Clone, Default)]
pub struct Extra(Option<Box<JsonMap>>);

/// A type with a JSON form whose keys each have a field.
pub trait KnownKeys {
    /// A value of the type in words, as in "a part".
    const NOUN: &'static str;

    /// The keys that have a field, in camelCase, with the aliases that are more than another spelling.
    const KEYS: &'static [&'static str];
}

/// Returns the first key of `map` for which `T` has a field. Underscores and case do not count: readers in other
/// languages take `function_call` for `functionCall`.
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
    /// The same without keys whose value is `null`, which is as good as absent.
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
        self.0.as_deref().unwrap_or(&NOTHING)
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
