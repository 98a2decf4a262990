//! Schemas as they are compiled: in the words of JSON Schema where Gemini has its own, and with their references counted.

use hatchery_core::JsonMap;
use serde_json::{Value, json};

use super::steps;

/// Keywords that lead to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords that only tell something.
const TELLING: [&str; 3] = ["default", "example", "examples"];

/// The schema in the words of JSON Schema, where Gemini has its own: types in upper case, `nullable`, and limits written as texts.
///
/// References can point anywhere, so all of a schema is gone through, also under keys that are no keywords.
///
/// # Errors
/// When a value that answers are compared with holds references: it is no schema, but might be used as one.
pub(super) fn normalised(schema: &Value) -> Result<Value, String> {
    match schema {
        Value::Object(schema) => object(schema),
        Value::Array(items) => items.iter().map(normalised).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(schema.clone()),
    }
}

fn object(schema: &JsonMap) -> Result<Value, String> {
    let mut plain = JsonMap::with_capacity(schema.len());
    for (key, value) in schema {
        let value = match (key.as_str(), value) {
            ("nullable", _) => continue,
            ("type", Value::String(name)) if name == "TYPE_UNSPECIFIED" => continue,
            (key, _) if TELLING.contains(&key) => continue,
            ("type", Value::String(name)) => Value::String(name.to_ascii_lowercase()),
            ("type", Value::Array(names)) => names.iter().map(type_name).collect::<Result<_, String>>()?,
            ("enum" | "const", value) if refers(value) => return Err(format!("`{key}` holds references")),
            ("enum" | "const", value) => value.clone(),
            (
                "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties",
                Value::String(limit),
            ) => limit.parse::<u64>().map_or_else(|_| value.clone(), Value::from),
            ("properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas", Value::Object(map)) => {
                let schemas = map.iter().map(|(name, schema)| Ok::<_, String>((name.clone(), normalised(schema)?)));
                Value::Object(schemas.collect::<Result<_, String>>()?)
            }
            (_, value) => normalised(value)?,
        };
        plain.insert(key.clone(), value);
    }
    count_references(&mut plain);
    Ok(match schema.get("nullable") {
        Some(Value::Bool(true)) => or_null(plain),
        _ => Value::Object(plain),
    })
}

fn type_name(name: &Value) -> Result<Value, String> {
    match name {
        Value::String(name) => Ok(Value::String(name.to_ascii_lowercase())),
        other => normalised(other),
    }
}

/// True when there is a reference anywhere in the value.
fn refers(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| REFERENCES.contains(&key.as_str()) || refers(value)),
        Value::Array(items) => items.iter().any(refers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Moves references into `allOf`, behind a step that is counted each time. Older drafts would not look at a step beside a reference.
fn count_references(schema: &mut JsonMap) {
    let mut references = Vec::new();
    for key in REFERENCES {
        if schema.get(key).is_some_and(Value::is_string) {
            references.extend(schema.remove(key).map(|target| json!({ key: target })));
        }
    }
    if references.is_empty() {
        return;
    }
    let mut all = vec![json!({ steps::KEYWORD: true })];
    if let Some(Value::Array(others)) = schema.remove("allOf") {
        all.extend(others);
    }
    all.extend(references);
    schema.insert("allOf".into(), Value::Array(all));
}

/// The schema, or null. Keys that others refer to stay at the top.
fn or_null(mut schema: JsonMap) -> Value {
    let mut outer = JsonMap::new();
    for key in ["$schema", "$defs", "definitions"] {
        outer.extend(schema.remove_entry(key));
    }
    outer.insert("anyOf".into(), json!([schema, {"type": "null"}]));
    Value::Object(outer)
}
