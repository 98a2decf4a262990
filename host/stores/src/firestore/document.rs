//! Documents, values and writes, as the REST API has them in JSON.

use std::collections::BTreeMap;

use hatchery_core::Timestamp;
use serde::{Deserialize, Serialize};

/// The fields of a document or of a map.
pub(super) type Fields = BTreeMap<String, Value>;

/// The value of a field, in the JSON of the REST API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Value {
    #[serde(rename = "nullValue")]
    Null(()),
    #[serde(rename = "booleanValue")]
    Boolean(bool),
    /// A 64-bit integer as a string.
    #[serde(rename = "integerValue")]
    Integer(String),
    #[serde(rename = "doubleValue")]
    Double(serde_json::Value),
    #[serde(rename = "timestampValue")]
    Timestamp(String),
    #[serde(rename = "stringValue")]
    String(String),
    #[serde(rename = "bytesValue")]
    Bytes(String),
    #[serde(rename = "referenceValue")]
    Reference(String),
    #[serde(rename = "geoPointValue")]
    GeoPoint(serde_json::Value),
    #[serde(rename = "arrayValue")]
    Array(Values),
    #[serde(rename = "mapValue")]
    Map(Map),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Values {
    pub(super) values: Vec<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Map {
    pub(super) fields: Fields,
}

/// A document that was read. The fields that were not requested are missing.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Document {
    /// The full name, from `projects/` on.
    pub(super) name: String,
    pub(super) fields: Fields,
    /// The time of the last change, which conditions of writes name.
    pub(super) update_time: String,
}

/// A condition of a write. If it does not hold, the whole commit fails.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Precondition {
    /// The document exists, or does not.
    Exists(bool),
    /// The document has not changed since.
    UpdateTime(String),
}

/// A write of one document. Names are relative to the database; the client completes them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Write {
    #[serde(flatten)]
    pub(super) operation: Operation,
    #[serde(skip_serializing_if = "Option::is_none")]
    update_mask: Option<Mask>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_document: Option<Precondition>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Operation {
    Update { name: String, fields: Fields },
    Delete(String),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mask {
    field_paths: Vec<String>,
}

impl Write {
    /// Creates a document, or replaces it.
    pub(super) fn set(name: String, fields: Fields) -> Self {
        Self { operation: Operation::Update { name, fields }, update_mask: None, current_document: None }
    }

    /// Sets these fields of a document, and creates it if it is missing.
    pub(super) fn merge(name: String, fields: Fields) -> Self {
        let update_mask = Some(Mask { field_paths: fields.keys().map(|field| quote(field)).collect() });
        Self { update_mask, ..Self::set(name, fields) }
    }

    pub(super) fn delete(name: String) -> Self {
        Self { operation: Operation::Delete(name), update_mask: None, current_document: None }
    }

    /// Changes only one key of a map: sets it, or removes it if `value` is `None`. The other fields of the write stay.
    pub(super) fn set_map_key(&mut self, map: &str, key: &str, value: Option<Value>) {
        if let Some(mask) = &mut self.update_mask {
            mask.field_paths.push(format!("{}.{}", quote(map), quote(key)));
        }
        if let (Operation::Update { fields, .. }, Some(value)) = (&mut self.operation, value) {
            let entry = fields.entry(map.to_owned()).or_insert_with(|| Value::Map(Map::default()));
            if let Value::Map(map) = entry {
                map.fields.insert(key.to_owned(), value);
            }
        }
    }

    /// Sets one more field.
    pub(super) fn set_field(&mut self, name: &str, value: Value) {
        if let Some(mask) = &mut self.update_mask
            && !mask.field_paths.contains(&quote(name))
        {
            mask.field_paths.push(quote(name));
        }
        if let Operation::Update { fields, .. } = &mut self.operation {
            fields.insert(name.to_owned(), value);
        }
    }

    /// Removes a field of a document that is created, and returns its value.
    pub(super) fn take_field(&mut self, name: &str) -> Option<Value> {
        match &mut self.operation {
            Operation::Update { fields, .. } => fields.remove(name),
            Operation::Delete(_) => None,
        }
    }

    /// Returns a document after the write of its fields at a time. Keys of maps are omitted.
    pub(super) fn applied_to(&self, document: &Document, time: String) -> Document {
        let mut changed = Document { update_time: time, ..document.clone() };
        if let Operation::Update { fields, .. } = &self.operation {
            let plain = fields.iter().filter(|(_, value)| !matches!(value, Value::Map(_)));
            changed.fields.extend(plain.map(|(name, value)| (name.clone(), value.clone())));
        }
        changed
    }

    /// Returns the name of the document.
    pub(super) fn name(&self) -> &str {
        match &self.operation {
            Operation::Update { name, .. } | Operation::Delete(name) => name,
        }
    }

    /// Returns the write with this condition.
    pub(super) fn with_condition(mut self, condition: Precondition) -> Self {
        self.current_document = Some(condition);
        self
    }

    /// Returns roughly the bytes of the write.
    pub(super) fn bytes(&self) -> usize {
        match &self.operation {
            Operation::Update { name, fields } => name.len() + fields_bytes(fields),
            Operation::Delete(name) => name.len(),
        }
    }
}

fn fields_bytes(fields: &Fields) -> usize {
    fields.iter().map(|(name, value)| name.len() + value_bytes(value) + 32).sum()
}

fn value_bytes(value: &Value) -> usize {
    match value {
        Value::String(text)
        | Value::Bytes(text)
        | Value::Reference(text)
        | Value::Integer(text)
        | Value::Timestamp(text) => text.len(),
        Value::Array(array) => array.values.iter().map(|value| value_bytes(value) + 32).sum(),
        Value::Map(map) => fields_bytes(&map.fields),
        Value::Null(()) | Value::Boolean(_) | Value::Double(_) | Value::GeoPoint(_) => 16,
    }
}

/// Returns a field's name as a segment of a field path.
pub(super) fn quote(field: &str) -> String {
    let is_simple = field.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && field.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    if is_simple { field.to_owned() } else { format!("`{}`", field.replace('\\', "\\\\").replace('`', "\\`")) }
}

impl Precondition {
    /// Returns the condition that the document is unchanged since it was read. `None` stands for a document that does
    /// not exist.
    pub(super) fn unchanged(read: Option<&Document>) -> Self {
        read.map_or(Self::Exists(false), |read| Self::UpdateTime(read.update_time.clone()))
    }
}

impl Document {
    pub(super) fn text(&self, field: &str) -> Option<&str> {
        match self.fields.get(field) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns an integer; 0 if the field is missing.
    pub(super) fn integer(&self, field: &str) -> i64 {
        match self.fields.get(field) {
            Some(Value::Integer(number)) => number.parse().unwrap_or_default(),
            _ => 0,
        }
    }

    pub(super) fn unsigned(&self, field: &str) -> u64 {
        self.integer(field).max(0).cast_unsigned()
    }

    pub(super) fn boolean(&self, field: &str) -> bool {
        matches!(self.fields.get(field), Some(Value::Boolean(true)))
    }

    /// Returns a time; 1970 if the field is missing.
    pub(super) fn time(&self, field: &str) -> Timestamp {
        self.text(field).and_then(Timestamp::from_iso).unwrap_or_default()
    }

    pub(super) fn map(&self, field: &str) -> impl Iterator<Item = (&str, &Value)> {
        let map = match self.fields.get(field) {
            Some(Value::Map(map)) => Some(map),
            _ => None,
        };
        map.into_iter().flat_map(|map| map.fields.iter()).map(|(key, value)| (key.as_str(), value))
    }

    pub(super) fn texts(&self, field: &str) -> impl Iterator<Item = &str> {
        let array = match self.fields.get(field) {
            Some(Value::Array(array)) => Some(array),
            _ => None,
        };
        array.into_iter().flat_map(|array| &array.values).filter_map(|value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Value {
    fn from(boolean: bool) -> Self {
        Self::Boolean(boolean)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number.to_string())
    }
}

/// Numbers above the largest integer of Firestore are stored as that one.
impl From<u64> for Value {
    fn from(number: u64) -> Self {
        i64::try_from(number).unwrap_or(i64::MAX).into()
    }
}

impl From<Timestamp> for Value {
    fn from(time: Timestamp) -> Self {
        time.to_iso().into()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null(()), Into::into)
    }
}

/// Creates fields from names and values.
pub(super) fn fields<const N: usize>(entries: [(&str, Value); N]) -> Fields {
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_write_has_the_json_of_the_api() {
        let mut write = Write::merge("c/d".into(), fields([("n", 5_i64.into()), ("none", None::<i64>.into())]));
        write.set_map_key("state", "a`b\\c", Some("1".into()));
        write.set_map_key("state", "gone", None);
        let write = write.with_condition(Precondition::UpdateTime("t".into()));
        assert_eq!(
            serde_json::to_value(&write).unwrap(),
            json!({
                "update": {"name": "c/d", "fields": {
                    "n": {"integerValue": "5"},
                    "none": {"nullValue": null},
                    "state": {"mapValue": {"fields": {"a`b\\c": {"stringValue": "1"}}}},
                }},
                "updateMask": {"fieldPaths": ["n", "none", "state.`a\\`b\\\\c`", "state.gone"]},
                "currentDocument": {"updateTime": "t"},
            })
        );
        let delete = Write::delete("c/d".into()).with_condition(Precondition::Exists(true));
        assert_eq!(
            serde_json::to_value(&delete).unwrap(),
            json!({"delete": "c/d", "currentDocument": {"exists": true}})
        );
    }

    #[test]
    fn values_of_every_kind_are_parsed() {
        let fields = json!({
            "a": {"nullValue": null}, "b": {"booleanValue": true}, "c": {"doubleValue": "NaN"}, "d": {"mapValue": {}},
            "e": {"arrayValue": {}}, "f": {"geoPointValue": {"latitude": 1.5}}, "g": {"bytesValue": "AA=="},
            "h": {"timestampValue": "2026-11-23T00:00:00Z"}, "i": {"referenceValue": "x"}, "j": {"integerValue": "-7"},
        });
        let document: Document = serde_json::from_value(json!({"name": "x", "fields": fields})).unwrap();
        assert_eq!((document.fields.len(), document.integer("j"), document.unsigned("j")), (10, -7, 0));
        assert_eq!((document.integer("a"), document.boolean("b"), document.text("c")), (0, true, None));
    }
}
