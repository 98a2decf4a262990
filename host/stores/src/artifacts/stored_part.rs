//! The JSON of a version without the bytes of inline data: its part or, with custom metadata, an array of both.

use hatchery_core::{JsonMap, Part};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A part that is written.
pub(crate) struct NewPart<'a> {
    pub(crate) part: &'a Part,
    pub(crate) custom_metadata: &'a JsonMap,
}

impl Serialize for NewPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { part, custom_metadata } = self;
        if custom_metadata.is_empty() {
            part.serialize(serializer)
        } else {
            (part, custom_metadata).serialize(serializer)
        }
    }
}

/// A part that is read.
#[derive(Debug, PartialEq)]
pub(crate) struct StoredPart {
    pub(crate) part: Part,
    pub(crate) custom_metadata: JsonMap,
}

impl<'de> Deserialize<'de> for StoredPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A part is always an object.
        let json = Value::deserialize(deserializer)?;
        if json.is_array() {
            let (part, custom_metadata) = from_value::<(Part, JsonMap), _>(json)?;
            Ok(Self { part, custom_metadata })
        } else {
            Ok(Self { part: from_value(json)?, custom_metadata: JsonMap::new() })
        }
    }
}

fn from_value<T: DeserializeOwned, E: Error>(json: Value) -> Result<T, E> {
    serde_json::from_value(json).map_err(E::custom)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(part: &Part, custom_metadata: &JsonMap) -> String {
        serde_json::to_string(&NewPart { part, custom_metadata }).unwrap()
    }

    #[test]
    fn a_part_without_metadata_is_written_as_before() {
        let part = Part::text("one");
        let json = written(&part, &JsonMap::new());
        assert_eq!(json, r#"{"text":"one"}"#);
        let read: StoredPart = serde_json::from_str(&json).unwrap();
        assert_eq!(read, StoredPart { part, custom_metadata: JsonMap::new() });
    }

    #[test]
    fn a_part_that_looks_like_metadata_is_a_part() {
        let metadata: JsonMap = serde_json::from_value(json!({"customMetadata": {"a": 1}})).unwrap();
        let part: Part = serde_json::from_value(json!({"part": {"text": "one"}, "customMetadata": {"a": 1}})).unwrap();
        for custom_metadata in [JsonMap::new(), metadata] {
            let read: StoredPart = serde_json::from_str(&written(&part, &custom_metadata)).unwrap();
            assert_eq!(read, StoredPart { part: part.clone(), custom_metadata });
        }
    }
}
