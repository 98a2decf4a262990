//! The allowed values of an `enum` or a `const`, found by their hash, so that a check does not compare a value with each of them.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use jsonschema::{Keyword, ValidationError};
use serde_json::Value;

use super::counted::{Counted, CountedNode, equal};
use super::faults::{SHOWN, SHOWN_OPTIONS, shortened};
use super::steps::{count, count_bytes};

/// The keyword that stands for indexed values. Its own value is the place of the index in the list of them: a reference that leads there
/// finds no schema.
pub(super) const KEYWORD: &str = "hatchery:among";

/// Values that are found by their hash.
pub(super) struct Index {
    values: Vec<Value>,
    /// Places of the values of each hash.
    places: HashMap<u64, Vec<usize>>,
    hasher: RandomState,
    /// The message for a value that is not in the list.
    expected: String,
}

impl Index {
    /// The values of an `enum`.
    pub(super) fn of_enum(values: &[Value]) -> Self {
        let options =
            values.iter().map(|value| shortened(value, SHOWN)).take(SHOWN_OPTIONS).collect::<Vec<_>>().join(",");
        Self::new(values, format!("is not one of {}", super::faults::cut(format!("[{options}]"), SHOWN_OPTIONS)))
    }

    /// The value of a `const`.
    pub(super) fn of_const(value: &Value) -> Self {
        Self::new(std::slice::from_ref(value), format!("is not {}", shortened(value, SHOWN_OPTIONS)))
    }

    fn new(values: &[Value], expected: String) -> Self {
        let hasher = RandomState::new();
        let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
        for (place, value) in values.iter().enumerate() {
            places.entry(hash(&hasher, value, &|_| ())).or_default().push(place);
        }
        Self { values: values.to_vec(), places, hasher, expected }
    }

    fn contains(&self, value: &Value) -> bool {
        let places = self.places.get(&hash(&self.hasher, value, &count_one));
        let mut candidates = places.into_iter().flatten().filter_map(|place| self.values.get(*place));
        candidates.any(|candidate| equal(value, candidate))
    }
}

/// Equal values have equal hashes: numbers by what they are worth, objects whatever the order of their keys.
fn hash(hasher: &RandomState, value: &Value, count: &impl Fn(&Value)) -> u64 {
    count(value);
    let mut state = hasher.build_hasher();
    match value {
        Value::Null => 0_u8.hash(&mut state),
        Value::Bool(value) => (1_u8, value).hash(&mut state),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            // Zero has two forms.
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

/// The keyword's part in a check.
pub(super) struct Among(pub(super) Arc<Index>);

impl<'i> Keyword<'i, Counted> for Among {
    fn validate(&self, instance: CountedNode<'i>) -> Result<(), ValidationError<'i>> {
        if self.0.contains(instance.0) {
            return Ok(());
        }
        Err(ValidationError::custom(format!("{} {}", shortened(instance.0, SHOWN), self.0.expected)))
    }

    fn is_valid(&self, instance: CountedNode<'i>) -> bool {
        self.0.contains(instance.0)
    }
}
