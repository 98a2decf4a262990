//! Schemas of answers, in the part of JSON Schema that the Anthropic API accepts.

use std::collections::HashSet;

use hatchery_core::JsonMap;
use serde_json::Value;

/// Keywords that are refused. Without them a schema accepts more, which the engine checks.
const REFUSED: [&str; 13] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
];

/// Keywords that are refused, and without which a schema has another meaning.
const UNKNOWN: [&str; 9] =
    ["not", "if", "then", "else", "prefixItems", "contains", "patternProperties", "propertyNames", "dependentSchemas"];

/// The formats of texts that are accepted.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// Returns a schema in which objects are closed, which the API requires, and which has no refused keyword. `None` if
/// there is none for these answers, such as for objects with any keys.
pub(super) fn accepted_schema(schema: &Value) -> Option<Value> {
    let is_recursive = is_recursive(schema, schema, &mut Vec::new(), &mut HashSet::new());
    if is_recursive { None } else { accepted(schema) }
}

fn accepted(schema: &Value) -> Option<Value> {
    // A boolean is a schema, too.
    let schema = schema.as_object()?;
    if schema.keys().any(|key| UNKNOWN.contains(&key.as_str())) {
        return None;
    }
    let mut map = JsonMap::new();
    for (key, value) in schema {
        let value = match (key.as_str(), value) {
            (key, _) if REFUSED.contains(&key) => continue,
            ("minItems", least) if least.as_u64().is_none_or(|least| least > 1) => continue,
            ("format", format) if !FORMATS.iter().any(|accepted| format == accepted) => continue,
            ("properties" | "$defs" | "definitions", Value::Object(schemas)) => Value::Object(all(schemas)?),
            ("items", items) => accepted(items)?,
            ("anyOf" | "oneOf" | "allOf", Value::Array(schemas)) => {
                Value::Array(schemas.iter().map(accepted).collect::<Option<_>>()?)
            }
            (_, value) => value.clone(),
        };
        let key = if key == "oneOf" { "anyOf" } else { key };
        map.insert(key.to_owned(), value);
    }
    if is_object(&map) {
        close(&mut map)?;
    }
    Some(Value::Object(map))
}

fn all(schemas: &JsonMap) -> Option<JsonMap> {
    schemas.iter().map(|(name, schema)| Some((name.clone(), accepted(schema)?))).collect()
}

fn is_object(schema: &JsonMap) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
        None => false,
    }
}

/// Closes an object. `None` if it may have any keys.
fn close(object: &mut JsonMap) -> Option<()> {
    let has_properties = object.contains_key("properties");
    match object.get("additionalProperties") {
        Some(Value::Bool(false)) => return Some(()),
        None | Some(Value::Bool(true)) if has_properties => {}
        _ => return None,
    }
    object.insert("additionalProperties".to_owned(), Value::Bool(false));
    Some(())
}

/// Returns true if a schema refers to itself, directly or through others. `path` has the references that lead to it,
/// `done` those that end.
fn is_recursive<'a>(schema: &'a Value, root: &'a Value, path: &mut Vec<&'a str>, done: &mut HashSet<&'a str>) -> bool {
    match schema {
        Value::Object(map) => map.iter().any(|(key, value)| match value {
            Value::String(target) if key == "$ref" => leads_back(target, root, path, done),
            value => is_recursive(value, root, path, done),
        }),
        Value::Array(items) => items.iter().any(|item| is_recursive(item, root, path, done)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn leads_back<'a>(target: &'a str, root: &'a Value, path: &mut Vec<&'a str>, done: &mut HashSet<&'a str>) -> bool {
    if path.contains(&target) {
        return true;
    }
    let schema = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
    let Some(schema) = schema.filter(|_| done.insert(target)) else { return false };
    path.push(target);
    let is_recursive = is_recursive(schema, root, path, done);
    path.pop();
    is_recursive
}
