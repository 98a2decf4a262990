//! JSON keys that are kept but not understood.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use serde_json::Value;

use crate::content::JsonMap;

static NOTHING: LazyLock<JsonMap> = LazyLock::new(JsonMap::new);

/// A map that is nearly always empty, and then takes 8 bytes where a [`JsonMap`] takes 72: events and parts hold several of them.
#[derive(Debug, Clone, Default)]
pub struct Extra(Option<Box<JsonMap>>);

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
