//! Compiled schemas, kept by what they say: tools whose declarations are made anew for each run still meet what was compiled before.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, RwLock};

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use hatchery_core::sync::RwLockExt;

use super::counted::Counted;
use super::faults::{SHOWN_FAULT, cut};
use super::index::{self, Among};
use super::normal::{self, Normal};
use super::steps;

/// What the schemas that are kept may weigh. When there are more, all are dropped and compiled again as they are met.
pub(super) const KEPT: usize = 100_000;
/// A schema that weighs more cannot be used.
pub(super) const MAX_WEIGHT: usize = 20_000;
/// What a pattern weighs, where any other value weighs 1: compiled, it can be as large as [`PATTERN_BYTES`].
const PATTERN_WEIGHT: usize = 200;
/// Most bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;
/// Up to here a pattern is small: it matches a byte within a microsecond or so, whatever it is.
const SMALL_PATTERN_BYTES: usize = 64 << 10;

/// What reading a byte of a string costs, in 64ths of a step, by the patterns in the schema.
const WITHOUT_PATTERNS: u64 = 1;
const WITH_SMALL_PATTERNS: u64 = 16;
const WITH_LARGE_PATTERNS: u64 = 64 * 64;

pub(super) static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);

/// The schemas that are kept, with the reason for those that cannot be used.
#[derive(Default)]
pub(super) struct Known {
    pub(super) schemas: HashMap<Value, Result<Arc<Compiled>, Arc<str>>>,
    pub(super) weight: usize,
}

/// A schema that values can be checked against.
pub(super) struct Compiled {
    pub(super) validator: Validator<Counted>,
    /// What a byte of a string costs, in 64ths of a step.
    pub(super) per_byte: u64,
    /// How much of it there is to look at for one value.
    pub(super) weight: usize,
}

/// The schema as it was compiled before, if it is kept.
pub(super) fn known(schema: &Value) -> Option<Result<Arc<Compiled>, Arc<str>>> {
    KNOWN.read_unpoisoned().schemas.get(schema).cloned()
}

/// The schema, compiled and kept.
///
/// # Errors
/// Why it cannot be used.
pub(super) fn compiled(schema: &Value) -> Result<Arc<Compiled>, Arc<str>> {
    if let Some(known) = known(schema) {
        return known;
    }
    let weight = weight(schema);
    let new = compile(schema, weight).map(Arc::new).map_err(Arc::from);
    if weight <= MAX_WEIGHT {
        let mut known = KNOWN.write_unpoisoned();
        if known.weight + weight > KEPT {
            *known = Known::default();
        }
        if known.schemas.insert(schema.clone(), new.clone()).is_none() {
            known.weight += weight;
        }
    }
    new
}

/// How much there is to compile and to keep.
pub(super) fn weight(schema: &Value) -> usize {
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

/// Compiles a schema of this weight.
///
/// # Errors
/// Why it cannot be used, with the keyword.
pub(super) fn compile(schema: &Value, weight: usize) -> Result<Compiled, String> {
    if weight > MAX_WEIGHT {
        return Err(format!(
            "it is too large: with {PATTERN_WEIGHT} for each pattern and 1 for any other value it comes to {weight}, of at most \
             {MAX_WEIGHT}"
        ));
    }
    let Normal { schema, indexes } = normal::normalized(schema)?;
    let weight = self::weight(&schema);
    let build = |pattern_bytes| {
        let indexes = indexes.clone();
        let options = jsonschema::options_for::<Counted>()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(pattern_bytes))
            .with_keyword(steps::KEYWORD, |_, _, _| Ok(Box::new(steps::Step)))
            .with_keyword(index::KEYWORD, move |_, place, _| {
                let place = place.as_u64().and_then(|place| usize::try_from(place).ok());
                match place.and_then(|place| indexes.get(place)) {
                    Some(index) => Ok(Box::new(Among(index.clone()))),
                    None => Err(ValidationError::custom("it leads to the values of an `enum` or a `const`")),
                }
            });
        options.build(&schema)
    };
    if !has_patterns(&schema) {
        let validator = build(SMALL_PATTERN_BYTES).map_err(|error| reason(&error))?;
        return Ok(Compiled { validator, per_byte: WITHOUT_PATTERNS, weight });
    }
    if let Ok(validator) = build(SMALL_PATTERN_BYTES) {
        return Ok(Compiled { validator, per_byte: WITH_SMALL_PATTERNS * patterns_of_names(&schema), weight });
    }
    let validator = build(PATTERN_BYTES).map_err(|error| reason(&error))?;
    Ok(Compiled { validator, per_byte: WITH_LARGE_PATTERNS * patterns_of_names(&schema), weight })
}

/// Where in the schema is what keeps it from being used, and what that is.
fn reason(error: &ValidationError<'_>) -> String {
    let places = [error.instance_path().as_str(), error.schema_path().as_str()];
    let place = places.into_iter().find(|place| !place.is_empty());
    let place = place.map(|place| format!("at `{place}`: ")).unwrap_or_default();
    cut(format!("{place}{error}"), SHOWN_FAULT)
}

fn has_patterns(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.iter().any(|(key, value)| {
            matches!(key.as_str(), "pattern" | "patternProperties" | "format") || has_patterns(value)
        }),
        Value::Array(items) => items.iter().any(has_patterns),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The most patterns that names of properties are matched against in one object, at least 1.
fn patterns_of_names(schema: &Value) -> u64 {
    let most = match schema {
        Value::Object(map) => {
            let own = map.get("patternProperties").and_then(Value::as_object).map_or(0, serde_json::Map::len);
            let own = u64::try_from(own).unwrap_or(u64::MAX);
            map.values().map(patterns_of_names).fold(own, u64::max)
        }
        Value::Array(items) => items.iter().map(patterns_of_names).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    };
    most.max(1)
}
