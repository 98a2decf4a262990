//! Hash index of the allowed values of an `enum` or a `const`, so that a check does not compare a value with each of
//! them.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use hatchery_core::truncate_bytes;
use jsonschema::{Keyword, ValidationError};
use serde_json::Value;

use super::counted::{CountedJson, CountedNode, equal};
use super::faults::{MAX_OPTIONS_BYTES, MAX_VALUE_BYTES, shorten};
use super::steps::{count, count_bytes};

/// The keyword that replaces indexed values. Its value is the position of the index in a list, so a reference to it
/// does not resolve to a schema.
pub(super) const KEYWORD: &str = "hatchery:among";

/// A set of values with a hash index.
pub(super) struct Index {
    values: Vec<Value>,
    /// The positions of the values by hash.
    positions: HashMap<u64, Vec<usize>>,
    hasher: RandomState,
    /// The end of the message for any other value.
    expected: String,
}

impl Index {
    /// Creates an index of the values of an `enum`.
    pub(super) fn from_enum(values: &[Value]) -> Self {
        let options =
            values.iter().map(|value| shorten(value, MAX_VALUE_BYTES)).take(MAX_OPTIONS_BYTES).collect::<Vec<_>>();
        let options = truncate_bytes(&format!("[{}]", options.join(",")), MAX_OPTIONS_BYTES);
        Self::new(values, format!("is not one of {options}"))
    }

    /// Creates an index of the value of a `const`.
    pub(super) fn from_const(value: &Value) -> Self {
        Self::new(std::slice::from_ref(value), format!("is not {}", shorten(value, MAX_OPTIONS_BYTES)))
    }

    fn new(values: &[Value], expected: String) -> Self {
        let hasher = RandomState::new();
        let mut positions: HashMap<u64, Vec<usize>> = HashMap::new();
        for (position, value) in values.iter().enumerate() {
            positions.entry(hash(&hasher, value, &|_| ())).or_default().push(position);
        }
        Self { values: values.to_vec(), positions, hasher, expected }
    }

    fn contains(&self, value: &Value) -> bool {
        let positions = self.positions.get(&hash(&self.hasher, value, &count_one));
        let mut candidates = positions.into_iter().flatten().filter_map(|position| self.values.get(*position));
        candidates.any(|candidate| equal(value, candidate))
    }
}

/// Hashes a value. Equal values have equal hashes: numbers are hashed by value, and objects independent of key order.
fn hash(hasher: &RandomState, value: &Value, count: &impl Fn(&Value)) -> u64 {
    count(value);
    let mut state = hasher.build_hasher();
    match value {
        Value::Null => 0_u8.hash(&mut state),
        Value::Bool(value) => (1_u8, value).hash(&mut state),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            // Positive and negative zero are equal.
            let number = if number == 0.0 { 0.0 } else { number };
            (2_u8, number.to_bits()).hash(&mut state);
        }
        Value::String(text) => (3_u8, text).hash(&mut state),
        Value::Array(items) => {
            (4_u8, items.len()).hash(&mut state);
            items.iter().for_each(|item| hash(hasher, item, count).hash(&mut state));
        }
        Value::Object(map) => {
            let member = |(key, value): (&String, &Value)| hasher.hash_one((key, hash(hasher, value, count)));
            let members = map.iter().map(member).fold(0, u64::wrapping_add);
            (5_u8, map.len(), members).hash(&mut state);
        }
    }
    state.finish()
}

fn count_one(value: &Value) {
    match value {
        Value::String(text) => count_bytes(text),
        Value::Object(map) => {
            count(1);
            map.keys().for_each(|key| count_bytes(key));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => count(1),
    }
}

pub(super) struct IndexKeyword(pub(super) Arc<Index>);

impl<'i> Keyword<'i, CountedJson> for IndexKeyword {
    fn validate(&self, instance: CountedNode<'i>) -> Result<(), ValidationError<'i>> {
        if self.0.contains(instance.0) {
            return Ok(());
        }
        Err(ValidationError::custom(format!("{} {}", shorten(instance.0, MAX_VALUE_BYTES), self.0.expected)))
    }

    fn is_valid(&self, instance: CountedNode<'i>) -> bool {
        self.0.contains(instance.0)
    }
}
