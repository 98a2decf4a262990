//! Schema normalization before compilation: Gemini's dialect becomes JSON Schema, references are counted, and lists of
//! values are indexed.

use std::sync::Arc;

use hatchery_core::JsonMap;
use serde_json::{Value, json};

use super::index::{self, Index};
use super::steps;

/// Keywords that refer to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords without effect on validation.
const ANNOTATIONS: [&str; 3] = ["default", "example", "examples"];
/// Keywords whose values are maps from names of properties or definitions to schemas or lists.
const BY_NAME: [&str; 7] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
];
/// Prefix of the keywords of this module.
const OWN_PREFIX: &str = "hatchery:";
/// Maximum number of values of an `enum` that is not indexed.
const MAX_PLAIN_ENUM: usize = 8;

/// A schema ready for compilation.
pub(super) struct NormalizedSchema {
    pub(super) schema: Value,
    /// The indexes that [`index::KEYWORD`] refers to by position.
    pub(super) indexes: Arc<[Arc<Index>]>,
}

/// Normalizes a schema. Gemini's dialect has types in upper case, `nullable`, and limits as strings.
///
/// A reference can point anywhere in the schema, so all of it is normalized, also below unknown keys. Values of `enum`
/// and `const` are moved into indexes, because a reference could otherwise use them as schemas.
///
/// # Errors
/// If `enum` is not a list.
pub(super) fn normalize(schema: &Value) -> Result<NormalizedSchema, String> {
    let mut normalizer = Normalizer::default();
    let schema = normalizer.value(schema)?;
    Ok(NormalizedSchema { schema, indexes: normalizer.indexes.into() })
}

#[derive(Default)]
struct Normalizer {
    indexes: Vec<Arc<Index>>,
}

impl Normalizer {
    fn value(&mut self, schema: &Value) -> Result<Value, String> {
        match schema {
            Value::Object(schema) => self.object(schema),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(schema.clone()),
        }
    }

    fn object(&mut self, schema: &JsonMap) -> Result<Value, String> {
        let mut normalized = JsonMap::with_capacity(schema.len());
        let mut indexed = Vec::new();
        for (key, value) in schema {
            let value = match (key.as_str(), value) {
                ("nullable", _) => continue,
                ("type", Value::String(name)) if name == "TYPE_UNSPECIFIED" => continue,
                (key, _) if ANNOTATIONS.contains(&key) || key.starts_with(OWN_PREFIX) => continue,
                ("type", Value::String(name)) => Value::String(name.to_ascii_lowercase()),
                ("type", Value::Array(names)) => {
                    names.iter().map(|name| self.type_name(name)).collect::<Result<_, String>>()?
                }
                ("enum", Value::Array(values)) if values.len() > MAX_PLAIN_ENUM || !values.iter().all(is_scalar) => {
                    indexed.push(self.add_index(Index::from_enum(values)));
                    continue;
                }
                ("enum", value) if !value.is_array() => return Err(format!("`enum` is {}, not a list", kind(value))),
                ("const", value) if !is_scalar(value) => {
                    indexed.push(self.add_index(Index::from_const(value)));
                    continue;
                }
                ("enum" | "const", value) => value.clone(),
                (
                    "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties",
                    Value::String(limit),
                ) => limit.parse::<u64>().map_or_else(|_| value.clone(), Value::from),
                (key, Value::Object(map)) if BY_NAME.contains(&key) => {
                    let schemas = map.iter().map(|(name, schema)| Ok((name.clone(), self.value(schema)?)));
                    Value::Object(schemas.collect::<Result<_, String>>()?)
                }
                (_, value) => self.value(value)?,
            };
            normalized.insert(key.clone(), value);
        }
        add_constraints(&mut normalized, indexed);
        count_references(&mut normalized);
        Ok(match schema.get("nullable") {
            Some(Value::Bool(true)) => or_null(normalized),
            _ => Value::Object(normalized),
        })
    }

    fn type_name(&mut self, name: &Value) -> Result<Value, String> {
        match name {
            Value::String(name) => Ok(Value::String(name.to_ascii_lowercase())),
            other => self.value(other),
        }
    }

    /// Adds an index. Returns a schema that matches its values.
    fn add_index(&mut self, index: Index) -> Value {
        self.indexes.push(Arc::new(index));
        json!({ index::KEYWORD: self.indexes.len() - 1 })
    }
}

fn is_scalar(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Adds the schemas of indexed values: the first one inline, and a second one, of an `enum` next to a `const`, in
/// `allOf`.
fn add_constraints(schema: &mut JsonMap, indexed: Vec<Value>) {
    let mut indexed = indexed.into_iter().filter_map(|schema| match schema {
        Value::Object(schema) => Some(schema),
        _ => None,
    });
    schema.extend(indexed.next().into_iter().flatten());
    let others: Vec<_> = indexed.map(Value::Object).collect();
    if others.is_empty() {
        return;
    }
    // An `allOf` that is not a list is rejected by the compiler.
    if let Value::Array(all) = schema.entry("allOf").or_insert_with(|| json!([])) {
        all.extend(others);
    }
}

/// Moves references into `allOf`, behind a keyword that counts a step. Older drafts ignore keywords next to a
/// reference.
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

/// Returns a schema that also accepts null. Definitions stay at the top level, where references expect them.
fn or_null(mut schema: JsonMap) -> Value {
    let mut outer = JsonMap::new();
    for key in ["$schema", "$defs", "definitions"] {
        outer.extend(schema.remove_entry(key));
    }
    outer.insert("anyOf".into(), json!([schema, {"type": "null"}]));
    Value::Object(outer)
}
