//! Gemini's dialect of schemas, converted to JSON Schema: types in capitals, `nullable`, and limits as strings.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::json::JsonMap;

/// Keywords whose values are maps from names to schemas.
const BY_NAME: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Keywords whose values are data, not schemas.
const DATA: [&str; 5] = ["enum", "const", "default", "example", "examples"];

/// Limits that Gemini writes as strings.
const LIMITS: [&str; 6] = ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];

/// Returns the schema as JSON Schema: unchanged, unless it has words of Gemini's dialect.
pub fn to_json_schema(schema: &Value) -> Cow<'_, Value> {
    if has_dialect(schema) { Cow::Owned(convert(schema)) } else { Cow::Borrowed(schema) }
}

fn has_dialect(schema: &Value) -> bool {
    match schema {
        Value::Object(schema) => schema.iter().any(|(key, value)| match (key.as_str(), value) {
            ("nullable", _) => true,
            ("type", Value::String(name)) => is_capital(name),
            ("type", Value::Array(names)) => names.iter().filter_map(Value::as_str).any(is_capital),
            (key, Value::String(limit)) if LIMITS.contains(&key) => limit.parse::<u64>().is_ok(),
            (key, _) if DATA.contains(&key) => false,
            (key, Value::Object(map)) if BY_NAME.contains(&key) => map.values().any(has_dialect),
            (_, value) => has_dialect(value),
        }),
        Value::Array(schemas) => schemas.iter().any(has_dialect),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn is_capital(name: &str) -> bool {
    name.contains(|char: char| char.is_ascii_uppercase())
}

fn convert(schema: &Value) -> Value {
    match schema {
        Value::Object(schema) => convert_object(schema),
        Value::Array(schemas) => schemas.iter().map(convert).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

fn convert_object(schema: &JsonMap) -> Value {
    let mut converted = JsonMap::with_capacity(schema.len());
    for (key, value) in schema {
        let value = match (key.as_str(), value) {
            ("nullable", _) => continue,
            ("type", Value::String(name)) if name == "TYPE_UNSPECIFIED" => continue,
            ("type", Value::String(name)) => json!(name.to_ascii_lowercase()),
            ("type", Value::Array(names)) => names
                .iter()
                .map(|name| name.as_str().map_or_else(|| name.clone(), |name| json!(name.to_ascii_lowercase())))
                .collect(),
            (key, Value::String(limit)) if LIMITS.contains(&key) => {
                limit.parse::<u64>().map_or_else(|_| value.clone(), Value::from)
            }
            (key, _) if DATA.contains(&key) => value.clone(),
            (key, Value::Object(map)) if BY_NAME.contains(&key) => {
                map.iter().map(|(name, schema)| (name.clone(), convert(schema))).collect()
            }
            (_, value) => convert(value),
        };
        converted.insert(key.clone(), value);
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        allow_null(&mut converted);
    }
    Value::Object(converted)
}

/// Extends a schema by `null`.
fn allow_null(schema: &mut JsonMap) {
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    match schema.get_mut("type") {
        Some(Value::String(name)) => {
            let types = json!([name, "null"]);
            schema.insert("type".into(), types);
        }
        Some(Value::Array(names)) if !names.contains(&json!("null")) => names.push(json!("null")),
        _ => {}
    }
    if let Some(Value::Array(schemas)) = schema.get_mut("anyOf") {
        schemas.push(json!({"type": "null"}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geminis_words_become_json_schema() {
        let schema = json!({
            "type": "OBJECT",
            "properties": {
                "type": {"type": "STRING", "nullable": true, "enum": ["A", "B"], "format": "enum"},
                "nullable": {"type": "ARRAY", "items": {"type": "INTEGER"}, "minItems": "1", "maxItems": "many"},
                "any": {"anyOf": [{"type": "NUMBER"}, {"type": "BOOLEAN"}], "nullable": true},
                "open": {"type": "TYPE_UNSPECIFIED", "default": {"type": "STRING"}},
            },
            "required": ["type"],
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "type": {"type": ["string", "null"], "enum": ["A", "B", null], "format": "enum"},
                "nullable": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": "many"},
                "any": {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "null"}]},
                "open": {"default": {"type": "STRING"}},
            },
            "required": ["type"],
        });
        assert_eq!(*to_json_schema(&schema), expected);
        assert_eq!(*to_json_schema(&expected), expected);
    }

    #[test]
    fn json_schema_is_not_copied() {
        let schema = json!({"type": ["string", "null"], "properties": {"nullable": {"const": "STRING"}}});
        assert!(matches!(to_json_schema(&schema), Cow::Borrowed(_)));
    }
}
