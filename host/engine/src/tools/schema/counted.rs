//! JSON values whose accesses are counted, as the representation of values for the validator.

use std::borrow::Cow;

use hatchery_core::JsonMap;
use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp, unique};
use serde_json::{Number, Value};

use super::steps::{count, count_bytes, count_string};

/// The representation of counted values.
pub(super) struct CountedJson;

/// A counted value.
#[derive(Clone, Copy)]
pub(super) struct CountedNode<'a>(pub(super) &'a Value);

pub(super) struct CountedObject<'a>(&'a JsonMap);

pub(super) struct CountedArray<'a>(&'a [Value]);

impl Json for CountedJson {
    type Node<'a> = CountedNode<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(CountedNode<'_>) -> T) -> T {
        count_bytes(string);
        *buffer = Value::String(string.to_owned());
        f(CountedNode(buffer))
    }
}

impl<'a> Node<'a, CountedJson> for CountedNode<'a> {
    type Object = CountedObject<'a>;
    type Array = CountedArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<CountedObject<'a>> {
        count(1);
        self.0.as_object().map(CountedObject)
    }

    fn as_array(&self) -> Option<CountedArray<'a>> {
        count(1);
        self.0.as_array().map(|items| CountedArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_str();
        text.map_or_else(|| count(1), count_string);
        text.map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        count(1);
        self.0.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        count(1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        count(1);
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        count(1);
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.0.as_str()?;
        count_bytes(text);
        u64::try_from(text.chars().count()).ok()
    }

    fn equals_value(&self, expected: &Value) -> bool {
        equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        count(1);
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref(self.0).addr()))
    }
}

impl<'a> Object<'a, CountedJson> for CountedObject<'a> {
    type Node = CountedNode<'a>;
    type MemberName = &'a str;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<CountedNode<'a>> {
        count(1);
        self.0.get(key).map(CountedNode)
    }

    fn members(&self) -> Members<'a> {
        Members(self.0.iter())
    }
}

impl<'a> Array<'a, CountedJson> for CountedArray<'a> {
    type Node = CountedNode<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> Elements<'a> {
        Elements(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        self.0.iter().for_each(count_all);
        unique::is_unique(self.0)
    }
}

/// Iterates over the members of an object.
pub(super) struct Members<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, CountedNode<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.0.next()?;
        count_string(key);
        Some((key, CountedNode(value)))
    }
}

/// Iterates over the elements of an array.
pub(super) struct Elements<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for Elements<'a> {
    type Item = CountedNode<'a>;

    fn next(&mut self) -> Option<CountedNode<'a>> {
        count(1);
        self.0.next().map(CountedNode)
    }
}

/// Returns true if two values are equal. Numbers are compared by value, not by representation.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    count(1);
    match (left, right) {
        (Value::String(left), Value::String(right)) => {
            left.len() == right.len() && {
                count_bytes(left);
                left == right
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let is_member = |(key, value): (&String, &Value)| {
                count_bytes(key);
                right.get(key).is_some_and(|other| equal(value, other))
            };
            left.len() == right.len() && left.iter().all(is_member)
        }
        (left, right) => cmp::equal(left, right),
    }
}

/// Counts a value with everything in it.
fn count_all(value: &Value) {
    match value {
        Value::String(text) => count_bytes(text),
        Value::Array(items) => {
            count(1);
            items.iter().for_each(count_all);
        }
        Value::Object(map) => {
            count(1);
            map.iter().for_each(|(key, value)| {
                count_bytes(key);
                count_all(value);
            });
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => count(1),
    }
}
