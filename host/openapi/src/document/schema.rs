//! Schemas of a document as JSON Schema for models. Targets of references become definitions, so cycles are kept and
//! nothing is repeated.

use std::collections::BTreeMap;

use hatchery_core::{JsonMap, truncate_bytes};
use hatchery_engine::validation::schema_error;
use serde_json::{Value, json};

use super::Document;
use super::name::UniqueNames;

/// Maximum size of the schema of a tool in bytes of JSON.
pub(super) const MAX_SCHEMA: usize = 64 << 10;

/// Maximum length of the description of a schema in bytes.
const MAX_TEXT: usize = 1_000;

/// Keywords with a schema.
const SCHEMA: [&str; 4] = ["items", "not", "contains", "propertyNames"];
/// Keywords with a list of schemas.
const SCHEMAS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords with data of any kind.
const DATA: [&str; 3] = ["enum", "const", "default"];
/// Keywords with a number or a truth value.
const PLAIN: [&str; 14] = [
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
];
/// Keywords with a text that models read or must match.
const TEXT: [&str; 4] = ["title", "description", "format", "contentMediaType"];

/// Converts the schemas of one tool.
pub(super) struct SchemaConverter<'d> {
    document: &'d Document,
    definitions: JsonMap,
    /// Names of definitions by reference.
    names: BTreeMap<&'d str, String>,
    unique_names: UniqueNames,
    /// References whose definitions are not converted yet.
    pending: Vec<&'d str>,
    size: usize,
}

impl<'d> SchemaConverter<'d> {
    pub(super) fn new(document: &'d Document) -> Self {
        Self {
            document,
            definitions: JsonMap::new(),
            names: BTreeMap::new(),
            unique_names: UniqueNames::default(),
            pending: Vec::new(),
            size: 0,
        }
    }

    /// Converts a schema. The targets of its references are converted by [`Self::finish`].
    ///
    /// # Errors
    /// If a reference is invalid, or all schemas together are too large.
    pub(super) fn convert(&mut self, schema: &'d Value) -> Result<Value, String> {
        let Some(schema) = schema.as_object() else {
            self.grow(size(&Value::Null))?;
            // `true` and `false` are schemas.
            return Ok(if schema.is_boolean() { schema.clone() } else { json!({}) });
        };
        let mut converted = JsonMap::new();
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            converted.insert("$ref".into(), format!("#/$defs/{}", self.definition(reference)?).into());
            self.grow(reference.len())?;
            // Before 3.1, other keywords next to a reference are ignored.
            if self.document.is_3_0 {
                return Ok(converted.into());
            }
        }
        for (key, value) in schema {
            if let Some(value) = self.keyword(key, value)? {
                self.grow(key.len() + 4)?;
                converted.insert(key.clone(), value);
            }
        }
        if self.document.is_3_0 {
            convert_3_0(schema, &mut converted);
        }
        omit_read_only(schema, &mut converted);
        Ok(converted.into())
    }

    /// Converts the value of a keyword. `None` if it is of no use to models.
    fn keyword(&mut self, key: &str, value: &'d Value) -> Result<Option<Value>, String> {
        Ok(match (key, value) {
            ("type", Value::String(_) | Value::Array(_)) | ("required", Value::Array(_)) => {
                self.grow(size(value))?;
                Some(value.clone())
            }
            ("pattern", Value::String(pattern)) => {
                self.grow(pattern.len())?;
                // Patterns have the syntax of ECMAScript. Not all of them can be matched in linear time.
                schema_error(&json!({ "pattern": pattern })).is_none().then(|| value.clone())
            }
            ("properties" | "patternProperties", Value::Object(schemas)) => {
                let schemas = schemas.iter().filter(|(_, schema)| !is_read_only(schema));
                let schemas = schemas.map(|(name, schema)| {
                    self.grow(name.len() + 4)?;
                    Ok((name.clone(), self.convert(schema)?))
                });
                Some(Value::Object(schemas.collect::<Result<_, String>>()?))
            }
            ("additionalProperties", _) => Some(self.convert(value)?),
            (key, _) if SCHEMA.contains(&key) => Some(self.convert(value)?),
            (key, Value::Array(schemas)) if SCHEMAS.contains(&key) => {
                let schemas = schemas.iter().map(|schema| self.convert(schema));
                Some(Value::Array(schemas.collect::<Result<_, _>>()?))
            }
            (key, _) if DATA.contains(&key) => {
                self.grow(size(value))?;
                Some(value.clone())
            }
            (key, Value::Number(_) | Value::Bool(_)) if PLAIN.contains(&key) => Some(value.clone()),
            (key, Value::String(text)) if TEXT.contains(&key) => {
                let text = truncate_bytes(text, MAX_TEXT);
                self.grow(text.len())?;
                Some(text.into())
            }
            _ => None,
        })
    }

    /// Returns the name of the definition for a reference.
    fn definition(&mut self, reference: &'d str) -> Result<String, String> {
        if let Some(name) = self.names.get(reference) {
            return Ok(name.clone());
        }
        self.document.lookup(reference)?;
        let last = reference.rsplit('/').next().unwrap_or(reference);
        let name = self.unique_names.add(last);
        self.names.insert(reference, name.clone());
        self.pending.push(reference);
        Ok(name)
    }

    /// Returns the definitions of everything that the converted schemas refer to.
    ///
    /// # Errors
    /// As [`Self::convert`].
    pub(super) fn finish(mut self) -> Result<JsonMap, String> {
        while let Some(reference) = self.pending.pop() {
            let schema = self.convert(self.document.lookup(reference)?)?;
            if let Some(name) = self.names.get(reference) {
                self.definitions.insert(name.clone(), schema);
            }
        }
        Ok(self.definitions)
    }

    /// Counts bytes of the converted schema, so that one that is too large is not built.
    ///
    /// # Errors
    /// If all together is too large.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), String> {
        self.size += bytes;
        if self.size > MAX_SCHEMA { Err(too_large()) } else { Ok(()) }
    }
}

/// Returns the reason why an operation with a schema larger than [`MAX_SCHEMA`] is omitted.
pub(super) fn too_large() -> String {
    format!("the schema of its parameters is larger than {} KiB", MAX_SCHEMA >> 10)
}

/// Converts the keywords of OpenAPI 3.0 that JSON Schema does not have: boolean exclusive limits and `nullable`.
fn convert_3_0(schema: &JsonMap, converted: &mut JsonMap) {
    for (exclusive, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        let Some(Value::Bool(is_exclusive)) = schema.get(exclusive) else { continue };
        converted.shift_remove(exclusive);
        if let (true, Some(value)) = (is_exclusive, schema.get(limit)) {
            converted.shift_remove(limit);
            converted.insert(exclusive.into(), value.clone());
        }
    }
    if schema.get("nullable") != Some(&Value::Bool(true)) {
        return;
    }
    if let Some(Value::String(name)) = converted.get("type") {
        let types = json!([name, "null"]);
        converted.insert("type".into(), types);
    }
    if let Some(Value::Array(values)) = converted.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    // A nullable reference is written as `allOf` with one entry.
    if let Some(all) = converted.shift_remove("allOf") {
        converted.insert("anyOf".into(), json!([{ "allOf": all }, {"type": "null"}]));
    }
}

fn is_read_only(schema: &Value) -> bool {
    schema.get("readOnly") == Some(&Value::Bool(true))
}

/// Removes read-only properties from the required ones.
fn omit_read_only(schema: &JsonMap, converted: &mut JsonMap) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    if let Some(Value::Array(required)) = converted.get_mut("required") {
        required.retain(|name| !name.as_str().and_then(|name| properties.get(name)).is_some_and(is_read_only));
        if required.is_empty() {
            converted.shift_remove("required");
        }
    }
}

/// Returns about how many bytes a value takes in JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value) + 4).sum::<usize>() + 2,
    }
}
