//! JSON Schemas that a model's arguments and answers have to fit.
//!
//! A schema is compiled once and kept by what it says, so that tools whose declarations are made anew for each run or each model call
//! still meet what was compiled before. References lead nowhere outside the schema, and patterns are matched in linear time: schemas may
//! come from a stranger's component.

mod normal;
mod steps;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// What the schemas that are kept may weigh. When there are more, all are let go and compiled again as they are met.
const KEPT: usize = 100_000;
/// A schema that weighs more cannot be used.
const MOST_WEIGHT: usize = 20_000;
/// What a pattern weighs, where any other value weighs 1: compiled, it can be as large as [`PATTERN_BYTES`].
const PATTERN_WEIGHT: usize = 200;
const PATTERN_BYTES: usize = 1 << 20;
/// Faults of one value that are told, and alternatives of one fault.
const TOLD: usize = 8;
/// How deep alternatives of alternatives are told.
const TOLD_LEVELS: usize = 2;
/// Bytes of a wrong value that are shown.
const SHOWN: usize = 80;
/// Bytes of a list of allowed values, or of a whole fault, that are shown.
const SHOWN_OPTIONS: usize = 400;
const SHOWN_FAULT: usize = 1000;

static COMPILED: LazyLock<RwLock<Compiled>> = LazyLock::new(RwLock::default);

/// The schemas that are kept; those that cannot be used without a validator.
#[derive(Default)]
struct Compiled {
    validators: HashMap<Value, Option<Arc<Validator>>>,
    weight: usize,
}

/// Checks a value.
///
/// A schema that cannot be used lets everything pass; a warning says so once, with `owner`, such as "tool `roll`".
///
/// # Errors
/// What is wrong, each fault with the place (a JSON pointer), the value and what was expected.
pub(super) fn check(schema: &Value, value: &Value, owner: fmt::Arguments<'_>) -> Result<(), String> {
    let Some(validator) = compiled(schema, owner) else { return Ok(()) };
    match steps::within_limit(|| validator.is_valid(value)) {
        Some(true) => Ok(()),
        Some(false) => Err(steps::within_limit(|| faults(&validator, value))
            .unwrap_or_else(|| "the value does not fit its schema, in too many ways to tell them".into())),
        None => Err(format!(
            "the value takes more than {} steps to check, since its schema refers to itself too often; make it simpler",
            steps::MOST
        )),
    }
}

/// Why a schema cannot be used, if it cannot.
pub(crate) fn wrong_with(schema: &Value) -> Option<String> {
    compile(schema, weight(schema)).err()
}

fn compiled(schema: &Value, owner: fmt::Arguments<'_>) -> Option<Arc<Validator>> {
    if let Some(known) = COMPILED.read().unwrap_or_else(PoisonError::into_inner).validators.get(schema) {
        return known.clone();
    }
    let weight = weight(schema);
    let new = match compile(schema, weight) {
        Ok(validator) => Some(Arc::new(validator)),
        Err(reason) => {
            tracing::warn!("nothing is checked by the JSON Schema of {owner}, which cannot be used: {reason}");
            None
        }
    };
    let mut compiled = COMPILED.write().unwrap_or_else(PoisonError::into_inner);
    if compiled.weight + weight > KEPT {
        *compiled = Compiled::default();
    }
    if compiled.validators.insert(schema.clone(), new.clone()).is_none() {
        compiled.weight += weight;
    }
    new
}

/// How much there is to compile and to keep.
fn weight(schema: &Value) -> usize {
    match schema {
        Value::Object(map) => {
            let of = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                ("pattern", Value::String(_)) => PATTERN_WEIGHT,
                ("patternProperties", Value::Object(patterns)) => patterns.len() * PATTERN_WEIGHT + weight(value),
                _ => weight(value),
            };
            1 + map.iter().map(of).sum::<usize>()
        }
        Value::Array(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Value::String(text) => 1 + text.len() / 1024,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

fn compile(schema: &Value, weight: usize) -> Result<Validator, String> {
    if weight > MOST_WEIGHT {
        return Err(format!(
            "it is too large: with {PATTERN_WEIGHT} for each pattern and 1 for any other value it comes to {weight}, of at most \
             {MOST_WEIGHT}"
        ));
    }
    let options = jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES))
        .with_keyword(steps::KEYWORD, |_, _, _| Ok(Box::new(steps::Step)));
    options.build(&normal::normalised(schema)?).map_err(|error| cut(error.to_string(), SHOWN_FAULT))
}

fn faults(validator: &Validator, value: &Value) -> String {
    let mut errors = validator.iter_errors(value);
    let mut told: Vec<_> = errors.by_ref().take(TOLD).map(|error| fault(&error, TOLD_LEVELS)).collect();
    if errors.next().is_some() {
        told.push("and more".into());
    }
    told.join("; ")
}

fn fault(error: &ValidationError<'_>, levels: usize) -> String {
    let place = error.instance_path().as_str();
    let given = shortened(error.instance(), SHOWN);
    let expected = match error.kind() {
        ValidationErrorKind::Enum { options } => format!("{given} is not one of {}", shortened(options, SHOWN_OPTIONS)),
        _ => error.masked_with(given).to_string(),
    };
    let mut text = cut(if place.is_empty() { expected } else { format!("at `{place}`: {expected}") }, SHOWN_FAULT);
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } = error.kind()
        && let Some(levels) = levels.checked_sub(1)
    {
        let first = context.iter().take(TOLD).filter_map(|faults| faults.first());
        let alternatives: Vec<_> = first.map(|error| fault(error, levels)).collect();
        if !alternatives.is_empty() {
            text.push_str(&format!(" ({})", alternatives.join(", or ")));
        }
    }
    text
}

fn shortened(value: &Value, most: usize) -> String {
    cut(value.to_string(), most)
}

fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use hatchery_core::JsonMap;
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

    /// A schema whose definitions each refer twice to the next.
    fn doubling(keyword: &str, place: &str) -> Value {
        let next = |number| json!({"$ref": format!("#/{place}/{number}")});
        let double = |number: usize| (number.to_string(), json!({keyword: [next(number + 1), next(number + 1)]}));
        let mut definitions: JsonMap = (0..60).map(double).collect();
        definitions.insert("60".into(), json!({"type": "string"}));
        json!({place: definitions, "$ref": format!("#/{place}/0")})
    }

    #[test]
    fn a_check_that_would_take_forever_is_given_up() {
        for (keyword, value) in [("allOf", json!("x")), ("anyOf", json!(1)), ("oneOf", json!(1))] {
            for place in ["$defs", "anywhere"] {
                let fault = fault_of(doubling(keyword, place), value.clone());
                assert!(
                    fault.starts_with("the value takes more than 20000 steps to check"),
                    "{keyword} {place}: {fault}"
                );
            }
        }
        let mut old = doubling("allOf", "definitions");
        old["$schema"] = json!("http://json-schema.org/draft-07/schema#");
        assert!(fault_of(old, json!("x")).starts_with("the value takes more than 20000 steps to check"));
    }

    #[test]
    fn values_to_compare_with_are_no_place_to_hide_references() {
        for keyword in ["const", "enum"] {
            let schema = json!({"not": {keyword: [doubling("allOf", "$defs")]}, "$ref": format!("#/not/{keyword}/0")});
            assert_eq!(compile(&schema, 1).err(), Some(format!("`{keyword}` holds references")));
        }
        let schema = json!({"examples": [doubling("allOf", "$defs")], "$ref": "#/examples/0"});
        assert!(compile(&schema, 1).is_err());
        for hidden in ["type", "minItems"] {
            let mut schema = json!({"x": {hidden: [doubling("allOf", "a")]}, "$ref": format!("#/x/{hidden}/0")});
            schema["a"] = schema["x"][hidden][0]["a"].clone();
            assert!(fault_of(schema, json!("x")).starts_with("the value takes more than"), "{hidden}");
        }
        assert_eq!(fault_of(json!({"const": {"ref": 1}}), json!({"ref": 1})), "");
    }

    #[test]
    fn a_deep_value_with_many_ways_to_be_wrong_is_still_refused() {
        let node = json!({"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}}});
        let schema = json!({"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": [node, node]}}});
        let nested = |depth| (0..depth).fold(json!(1), |inner, _| json!({"left": inner}));
        let fault = fault_of(schema.clone(), nested(3));
        assert_eq!(
            fault.matches("at `/left").count(),
            2 + 4,
            "alternatives of alternatives are told, and no more: {fault}"
        );
        assert_eq!(fault_of(schema, nested(60)), "the value does not fit its schema, in too many ways to tell them");
    }

    #[test]
    fn many_items_of_a_schema_that_is_referred_to_can_be_checked() {
        let schema = json!({"items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}});
        assert_eq!(fault_of(schema, json!(vec![1; 10_000])), "");
    }

    #[test]
    fn a_long_fault_is_cut() {
        let names: JsonMap = (0..1000).map(|number| (number.to_string(), json!(1))).collect();
        let fault = fault_of(json!({"properties": {"a": {}}, "additionalProperties": false}), Value::Object(names));
        assert!(fault.len() < 1100 && fault.ends_with('…'), "{fault}");
    }

    #[test]
    fn a_schema_that_is_too_large_lets_everything_pass() {
        let many = |schema: Value| json!({"allOf": vec![schema; 101]});
        assert!(compile(&many(json!({"pattern": "a"})), weight(&many(json!({"pattern": "a"})))).is_err());
        assert_eq!(fault_of(many(json!({"pattern": "a"})), json!("b")), "");
        assert_eq!(fault_of(json!({"pattern": "((a{100}){100}){100}"}), json!("b")), "");
        let fault = compile(&json!({"enum": vec![1; 20_000]}), 20_002).err();
        assert_eq!(
            fault.as_deref(),
            Some(
                "it is too large: with 200 for each pattern and 1 for any other value it comes to 20002, of at most 20000"
            )
        );
        assert_ne!(fault_of(json!({"pattern": "^[\\w-]{1,255}$"}), json!("")), "");
    }

    #[test]
    fn only_so_much_of_schemas_is_kept() {
        for number in 0..200 {
            assert_eq!(fault_of(json!({"enum": vec![number; 1000]}), json!(number)), "");
        }
        let compiled = COMPILED.read().unwrap_or_else(PoisonError::into_inner);
        assert!(compiled.weight <= KEPT && compiled.validators.len() < 200);
        assert_eq!(compiled.weight, compiled.validators.keys().map(weight).sum::<usize>());
    }
}
