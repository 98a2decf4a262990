//! Schemas as they are compiled: in the words of JSON Schema where Gemini has its own, with their references counted and their lists of
//! values indexed.

use std::sync::Arc;

use hatchery_core::JsonMap;
use serde_json::{Value, json};

use super::index::{self, Index};
use super::steps;

/// Keywords that lead to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords that only tell something.
const TELLING: [&str; 3] = ["default", "example", "examples"];
/// Keywords whose values are schemas, or lists, by the names of properties or definitions.
const BY_NAME: [&str; 7] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
];
/// Begins the keywords of this module.
const OWN: &str = "hatchery:";
/// An `enum` of so many plain values stays as it is.
const FEW: usize = 8;

/// A schema as it is compiled.
pub(super) struct Normal {
    pub(super) schema: Value,
    /// What [`index::KEYWORD`] stands for, by place.
    pub(super) indexes: Arc<[Arc<Index>]>,
}

/// The schema in the words of JSON Schema, where Gemini has its own: types in upper case, `nullable`, and limits written as texts.
///
/// References can point anywhere, so all of a schema is gone through, also under keys that are no keywords. Values that answers are
/// compared with are taken out, since they are no schemas and might be used as such.
///
/// # Errors
/// When a list of values is none.
pub(super) fn normalized(schema: &Value) -> Result<Normal, String> {
    let mut indexes = Indexes::default();
    let schema = indexes.normalized(schema)?;
    Ok(Normal { schema, indexes: indexes.0.into() })
}

/// The indexes of the values that have been taken out.
#[derive(Default)]
struct Indexes(Vec<Arc<Index>>);

impl Indexes {
    fn normalized(&mut self, schema: &Value) -> Result<Value, String> {
        match schema {
            Value::Object(schema) => self.object(schema),
            Value::Array(items) => items.iter().map(|item| self.normalized(item)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(schema.clone()),
        }
    }

    fn object(&mut self, schema: &JsonMap) -> Result<Value, String> {
        let mut plain = JsonMap::with_capacity(schema.len());
        let mut compared = Vec::new();
        for (key, value) in schema {
            let value = match (key.as_str(), value) {
                ("nullable", _) => continue,
                ("type", Value::String(name)) if name == "TYPE_UNSPECIFIED" => continue,
                (key, _) if TELLING.contains(&key) || key.starts_with(OWN) => continue,
                ("type", Value::String(name)) => Value::String(name.to_ascii_lowercase()),
                ("type", Value::Array(names)) => {
                    names.iter().map(|name| self.type_name(name)).collect::<Result<_, String>>()?
                }
                ("enum", Value::Array(values)) if values.len() > FEW || !values.iter().all(is_plain) => {
                    compared.push(self.add(Index::of_enum(values)));
                    continue;
                }
                ("enum", value) if !value.is_array() => return Err(format!("`enum` is {}, not a list", kind(value))),
                ("const", value) if !is_plain(value) => {
                    compared.push(self.add(Index::of_const(value)));
                    continue;
                }
                ("enum" | "const", value) => value.clone(),
                (
                    "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties",
                    Value::String(limit),
                ) => limit.parse::<u64>().map_or_else(|_| value.clone(), Value::from),
                (key, Value::Object(map)) if BY_NAME.contains(&key) => {
                    let schemas = map.iter().map(|(name, schema)| Ok((name.clone(), self.normalized(schema)?)));
                    Value::Object(schemas.collect::<Result<_, String>>()?)
                }
                (_, value) => self.normalized(value)?,
            };
            plain.insert(key.clone(), value);
        }
        require(&mut plain, compared);
        count_references(&mut plain);
        Ok(match schema.get("nullable") {
            Some(Value::Bool(true)) => or_null(plain),
            _ => Value::Object(plain),
        })
    }

    fn type_name(&mut self, name: &Value) -> Result<Value, String> {
        match name {
            Value::String(name) => Ok(Value::String(name.to_ascii_lowercase())),
            other => self.normalized(other),
        }
    }

    /// A schema of the values of an index.
    fn add(&mut self, index: Index) -> Value {
        self.0.push(Arc::new(index));
        json!({ index::KEYWORD: self.0.len() - 1 })
    }
}

fn is_plain(value: &Value) -> bool {
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

/// Adds schemas of values: the first where the values stood, the second, of an `enum` beside a `const`, in `allOf`.
fn require(schema: &mut JsonMap, compared: Vec<Value>) {
    let mut compared = compared.into_iter().filter_map(|schema| match schema {
        Value::Object(schema) => Some(schema),
        _ => None,
    });
    schema.extend(compared.next().into_iter().flatten());
    let others: Vec<_> = compared.map(Value::Object).collect();
    if others.is_empty() {
        return;
    }
    // A schema whose `allOf` is no list is refused when it is compiled.
    if let Value::Array(all) = schema.entry("allOf").or_insert_with(|| json!([])) {
        all.extend(others);
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
