//! Parsing of JSON and YAML with a bound on the memory of the result. A few lines of YAML with aliases can stand for
//! gigabytes.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Maximum size of values, in bytes, per byte of text.
const EXPANSION: usize = 16;

/// Size of values, in bytes, that is allowed for every text.
const MIN_BUDGET: usize = 1 << 20;

/// Bytes that a value takes in addition to its string, with the header of an allocation.
const VALUE_SIZE: usize = size_of::<Value>() + 16;

/// Bytes that a key of an object takes in addition to its string, with the entry of the index.
const KEY_SIZE: usize = size_of::<String>() + 24;

/// Parses a text as JSON if it begins with a brace, and as YAML otherwise.
///
/// # Errors
/// The reason and the location, or that the text expands to too many values.
pub(super) fn parse(text: &[u8]) -> Result<Value, String> {
    let left = Cell::new(text.len().saturating_mul(EXPANSION).max(MIN_BUDGET));
    let bounded = BoundedValue { left: &left, overhead: VALUE_SIZE };
    let begins_with_brace = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if begins_with_brace {
        let mut json = serde_json::Deserializer::from_slice(text);
        let parsed = bounded.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
        parsed.map_err(|error| format!("it is not JSON: {error}"))
    } else {
        let yaml = serde_yaml::Deserializer::from_slice(text);
        bounded.deserialize(yaml).map_err(|error| format!("it is neither JSON nor YAML: {error}"))
    }
}

/// Deserializes a value and subtracts its size from the bytes that are left.
#[derive(Clone, Copy)]
struct BoundedValue<'a> {
    left: &'a Cell<usize>,
    /// Bytes that a value takes in addition to its string.
    overhead: usize,
}

impl BoundedValue<'_> {
    fn take<E: Error>(self, bytes: usize) -> Result<(), E> {
        match self.left.get().checked_sub(bytes + self.overhead) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(E::custom("it expands to far more values than its size suggests")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.take(0).map(|()| value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.take(0).map(|()| value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.take(0).map(|()| value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.take(0).map(|()| Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.take(value.len()).map(|()| value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.take(0).map(|()| Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.take(0)?;
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.take(0)?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key_seed(Self { overhead: KEY_SIZE, ..self })? {
            // Codes of responses are numbers in YAML.
            let key = match key {
                Value::String(key) => key,
                key @ (Value::Null | Value::Bool(_) | Value::Number(_)) => key.to_string(),
                Value::Array(_) | Value::Object(_) => return Err(A::Error::custom("a key is not a string")),
            };
            map.insert(key, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_and_yaml_are_the_same() {
        let expected = json!({"openapi": "3.1.0", "responses": {"200": {"ok": true, "n": [1, -2, 1.5, null]}}});
        assert_eq!(parse(expected.to_string().as_bytes()), Ok(expected.clone()));
        let yaml = "openapi: 3.1.0\nresponses:\n  200: {ok: true, n: [1, -2, 1.5, ~]}\n";
        assert_eq!(parse(yaml.as_bytes()), Ok(expected));
    }

    #[test]
    fn the_place_of_a_mistake_is_told() {
        assert_eq!(parse(b"{\"a\": 1,}"), Err("it is not JSON: trailing comma at line 1 column 9".into()));
        assert!(parse(b"a: [1").unwrap_err().starts_with("it is neither JSON nor YAML: "));
        assert!(parse(b"{} {}").unwrap_err().starts_with("it is not JSON: trailing characters"));
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let text = format!("a: &a [{}]\n", "x, ".repeat(2_000));
        let b = format!("b: &b [{}]\n", "*a, ".repeat(300));
        let c = format!("c: [{}]\n", "*b, ".repeat(300));
        let error = parse(format!("{text}{b}{c}").as_bytes()).unwrap_err();
        assert!(error.contains("it expands to far more values") || error.contains("repetition limit"), "{error}");
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(10_000));
        let error = parse(long.as_bytes()).unwrap_err();
        assert!(error.contains("it expands to far more values than its size suggests"), "{error}");
    }
}
