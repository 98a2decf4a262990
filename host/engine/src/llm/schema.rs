//! JSON Schemas that a model's arguments and answers have to fit.
//!
//! A schema is compiled once and kept by what it says, so that tools whose declarations are made anew for each run or each model call
//! still meet what was compiled before. References lead nowhere outside the schema, and patterns are matched in linear time: schemas may
//! come from a stranger's component.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use hatchery_core::JsonMap;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// Schemas that are kept. When there are more, all are let go and compiled again as they are met.
const KEPT: usize = 512;
/// Faults of one value that are told.
const TOLD: usize = 8;
/// Bytes of a wrong value that are shown.
const SHOWN: usize = 80;
/// Bytes of a list of allowed values that are shown.
const SHOWN_OPTIONS: usize = 400;

static COMPILED: LazyLock<RwLock<HashMap<Value, Option<Arc<Validator>>>>> = LazyLock::new(RwLock::default);

/// Checks a value.
///
/// A schema that cannot be used lets everything pass; a warning says so once, with `owner`, such as "tool `roll`".
///
/// # Errors
/// What is wrong, each fault with the place (a JSON pointer), the value and what was expected.
pub(super) fn check(schema: &Value, value: &Value, owner: fmt::Arguments<'_>) -> Result<(), String> {
    match compiled(schema, owner) {
        Some(validator) if !validator.is_valid(value) => Err(faults(&validator, value)),
        Some(_) | None => Ok(()),
    }
}

fn compiled(schema: &Value, owner: fmt::Arguments<'_>) -> Option<Arc<Validator>> {
    if let Some(known) = COMPILED.read().unwrap_or_else(PoisonError::into_inner).get(schema) {
        return known.clone();
    }
    let new = match compile(schema) {
        Ok(validator) => Some(Arc::new(validator)),
        Err(error) => {
            tracing::warn!("nothing is checked by the JSON Schema of {owner}, which cannot be used: {error}");
            None
        }
    };
    let mut compiled = COMPILED.write().unwrap_or_else(PoisonError::into_inner);
    if compiled.len() >= KEPT {
        compiled.clear();
    }
    compiled.insert(schema.clone(), new.clone());
    new
}

fn compile(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    let options = jsonschema::options().offline().with_pattern_options(PatternOptions::regex());
    options.build(&normalised(schema))
}

fn faults(validator: &Validator, value: &Value) -> String {
    let mut errors = validator.iter_errors(value);
    let mut told: Vec<_> = errors.by_ref().take(TOLD).map(|error| fault(&error)).collect();
    if errors.next().is_some() {
        told.push("and more".into());
    }
    told.join("; ")
}

fn fault(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().as_str();
    let given = shortened(error.instance(), SHOWN);
    let expected = match error.kind() {
        ValidationErrorKind::Enum { options } => format!("{given} is not one of {}", shortened(options, SHOWN_OPTIONS)),
        _ => error.masked_with(given).to_string(),
    };
    let mut text = if place.is_empty() { expected } else { format!("at `{place}`: {expected}") };
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } = error.kind() {
        let alternatives: Vec<_> = context.iter().take(TOLD).filter_map(|faults| faults.first()).map(fault).collect();
        if !alternatives.is_empty() {
            text.push_str(&format!(" ({})", alternatives.join(", or ")));
        }
    }
    text
}

fn shortened(value: &Value, most: usize) -> String {
    let mut text = value.to_string();
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}

/// The schema in the words of JSON Schema, where Gemini has its own: types in upper case, `nullable`, and limits written as texts.
fn normalised(schema: &Value) -> Value {
    let Value::Object(schema) = schema else { return schema.clone() };
    let mut plain = JsonMap::with_capacity(schema.len());
    for (key, value) in schema {
        let value = match (key.as_str(), value) {
            ("nullable", _) => continue,
            ("type", Value::String(name)) if name == "TYPE_UNSPECIFIED" => continue,
            ("type", value) => type_names(value),
            ("minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties", limit) => {
                limit.as_str().and_then(|text| text.parse::<u64>().ok()).map_or_else(|| limit.clone(), Value::from)
            }
            ("properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas", Value::Object(map)) => {
                Value::Object(map.iter().map(|(name, schema)| (name.clone(), normalised(schema))).collect())
            }
            ("anyOf" | "allOf" | "oneOf" | "prefixItems" | "items", Value::Array(schemas)) => {
                Value::Array(schemas.iter().map(normalised).collect())
            }
            (
                "items"
                | "contains"
                | "additionalProperties"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties"
                | "not"
                | "if"
                | "then"
                | "else",
                schema,
            ) => normalised(schema),
            (_, value) => value.clone(),
        };
        plain.insert(key.clone(), value);
    }
    match schema.get("nullable") {
        Some(Value::Bool(true)) => or_null(plain),
        _ => Value::Object(plain),
    }
}

fn type_names(names: &Value) -> Value {
    match names {
        Value::String(name) => Value::String(name.to_ascii_lowercase()),
        Value::Array(names) => Value::Array(names.iter().map(type_names).collect()),
        other => other.clone(),
    }
}

/// The schema, or null. Keys that others refer to stay at the top.
fn or_null(mut schema: JsonMap) -> Value {
    let mut outer = JsonMap::new();
    for key in ["$schema", "$defs", "definitions"] {
        outer.extend(schema.remove_entry(key));
    }
    outer.insert("anyOf".into(), Value::Array(vec![Value::Object(schema), serde_json::json!({"type": "null"})]));
    Value::Object(outer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault_of(schema: Value, value: Value) -> String {
        check(&schema, &value, format_args!("a test")).err().unwrap_or_default()
    }

    #[test]
    fn a_fault_says_where_and_what_was_expected() {
        let schema = json!({
            "type": "object",
            "properties": {
                "sides": {"type": "integer", "minimum": 2},
                "who": {"type": "array", "items": {"enum": ["ann", "bob"]}},
                "at": {"anyOf": [{"type": "string"}, {"type": "null"}]}
            },
            "required": ["sides"],
            "additionalProperties": false
        });
        for (value, fault) in [
            (json!({"sides": 6}), ""),
            (json!({"sides": 6.0}), ""),
            (json!({}), "\"sides\" is a required property"),
            (json!({"sides": "six"}), "at `/sides`: \"six\" is not of type \"integer\""),
            (json!({"sides": 1}), "at `/sides`: 1 is less than the minimum of 2"),
            (json!({"sides": 6, "who": ["ann", "eve"]}), "at `/who/1`: \"eve\" is not one of [\"ann\",\"bob\"]"),
            (json!({"sides": 6, "x": 1}), "Additional properties are not allowed ('x' was unexpected)"),
            (
                json!({"sides": true, "who": 1}),
                "at `/sides`: true is not of type \"integer\"; at `/who`: 1 is not of type \"array\"",
            ),
            (
                json!({"sides": 6, "at": 5}),
                "at `/at`: 5 is not valid under any of the schemas listed in the 'anyOf' keyword \
                 (at `/at`: 5 is not of type \"string\", or at `/at`: 5 is not of type \"null\")",
            ),
        ] {
            assert_eq!(fault_of(schema.clone(), value), fault);
        }
    }

    #[test]
    fn long_values_and_long_lists_of_faults_are_cut() {
        let fault = fault_of(json!({"type": "integer"}), json!("é".repeat(500)));
        assert!(fault.len() < 150 && fault.contains("é…"), "{fault}");
        let faults = fault_of(json!({"items": {"type": "integer"}}), json!(vec!["x"; 50]));
        assert!(faults.ends_with("at `/7`: \"x\" is not of type \"integer\"; and more"), "{faults}");
    }

    #[test]
    fn schemas_in_geminis_words_are_understood() {
        let schema = json!({
            "type": "OBJECT",
            "properties": {
                "type": {"type": "STRING", "minLength": "2"},
                "nullable": {"type": "INTEGER", "nullable": true},
                "any": {"type": "TYPE_UNSPECIFIED"}
            },
            "required": ["type"]
        });
        assert_eq!(fault_of(schema.clone(), json!({"type": "ab", "nullable": null, "any": 1})), "");
        assert_eq!(fault_of(schema.clone(), json!({"type": 1})), "at `/type`: 1 is not of type \"string\"");
        assert_eq!(fault_of(schema.clone(), json!({"type": "a"})), "at `/type`: \"a\" is shorter than 2 characters");
        assert!(fault_of(schema, json!({"type": "ab", "nullable": "x"})).contains("not of type \"integer\""));
    }

    #[test]
    fn a_schema_that_cannot_be_used_lets_everything_pass() {
        for schema in [
            json!({"$ref": "http://127.0.0.1:9/schema.json"}),
            json!({"$ref": "file:///etc/hostname"}),
            json!({"type": "nonsense"}),
            json!({"pattern": "(?=lookahead)"}),
            json!("text"),
        ] {
            assert_eq!(fault_of(schema.clone(), json!("x")), "", "{schema}");
        }
    }

    #[test]
    fn schemas_that_refer_to_themselves_end() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        ] {
            fault_of(schema, json!({"x": 1}));
        }
        let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}}});
        assert_eq!(fault_of(tree, json!({"left": {"left": 1}})), "at `/left/left`: 1 is not of type \"object\"");
    }

    #[test]
    fn only_so_many_schemas_are_kept() {
        for number in 0..KEPT * 2 {
            assert_eq!(fault_of(json!({"const": number}), json!(number)), "");
        }
        assert!(COMPILED.read().unwrap_or_else(PoisonError::into_inner).len() <= KEPT);
    }
}
