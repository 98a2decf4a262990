//! Schema compilation, with a cache by schema value. A tool whose declaration is created for each run hits the cache
//! too.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, RwLock};

use hatchery_core::sync::RwLockExt;
use hatchery_core::truncate_bytes;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::counted::CountedJson;
use super::faults::MAX_FAULT_BYTES;
use super::index::{self, IndexKeyword};
use super::normal::{self, NormalizedSchema};
use super::steps;

/// Maximum weight of all cached schemas. The cache is cleared when it is exceeded.
pub(super) const MAX_CACHED_WEIGHT: usize = 100_000;
/// Maximum weight of one schema.
pub(super) const MAX_WEIGHT: usize = 20_000;
/// The weight of a pattern, whose compiled size is up to [`PATTERN_BYTES`]. Any other value has the weight 1.
const PATTERN_WEIGHT: usize = 200;
/// Maximum size of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;
/// Maximum size of a small compiled pattern, which matches a byte within about a microsecond.
const SMALL_PATTERN_BYTES: usize = 64 << 10;

/// The cost of reading a byte of a string, in 64ths of a step, by the patterns in the schema.
const WITHOUT_PATTERNS: u64 = 1;
const WITH_SMALL_PATTERNS: u64 = 16;
const WITH_LARGE_PATTERNS: u64 = 64 * 64;

pub(super) static CACHE: LazyLock<RwLock<Cache>> = LazyLock::new(RwLock::default);

/// The cached schemas, and the reasons why others are invalid.
#[derive(Default)]
pub(super) struct Cache {
    pub(super) schemas: HashMap<Value, Result<Arc<CompiledSchema>, Arc<str>>>,
    pub(super) weight: usize,
}

pub(super) struct CompiledSchema {
    pub(super) validator: Validator<CountedJson>,
    /// The cost of reading a byte of a string, in 64ths of a step.
    pub(super) per_byte: u64,
    /// The number of values in the normalized schema, which bounds the steps for one value.
    pub(super) weight: usize,
}

/// Returns the cached schema, if any.
pub(super) fn get_cached(schema: &Value) -> Option<Result<Arc<CompiledSchema>, Arc<str>>> {
    CACHE.read_unpoisoned().schemas.get(schema).cloned()
}

/// Returns the compiled schema from the cache, and compiles it if needed.
///
/// # Errors
/// The reason why the schema is invalid.
pub(super) fn get_or_compile(schema: &Value) -> Result<Arc<CompiledSchema>, Arc<str>> {
    if let Some(cached) = get_cached(schema) {
        return cached;
    }
    let weight = weight(schema);
    let new = compile(schema, weight).map(Arc::new).map_err(Arc::from);
    if weight <= MAX_WEIGHT {
        let mut cache = CACHE.write_unpoisoned();
        if cache.weight + weight > MAX_CACHED_WEIGHT {
            *cache = Cache::default();
        }
        if cache.schemas.insert(schema.clone(), new.clone()).is_none() {
            cache.weight += weight;
        }
    }
    new
}

/// Returns the weight of a schema, an estimate of the memory of its compiled form.
pub(super) fn weight(schema: &Value) -> usize {
    match schema {
        Value::Object(map) => {
            let member_weight = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                ("pattern", Value::String(_)) => PATTERN_WEIGHT,
                ("patternProperties", Value::Object(patterns)) => patterns.len() * PATTERN_WEIGHT + weight(value),
                _ => weight(value),
            };
            1 + map.iter().map(member_weight).sum::<usize>()
        }
        Value::Array(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Value::String(text) => 1 + text.len() / 1024,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// Compiles a schema of this weight.
///
/// # Errors
/// The reason why the schema is invalid, with the keyword.
pub(super) fn compile(schema: &Value, weight: usize) -> Result<CompiledSchema, String> {
    if weight > MAX_WEIGHT {
        return Err(format!(
            "it is too large: with {PATTERN_WEIGHT} for each pattern and 1 for any other value it comes to {weight}, of at most \
             {MAX_WEIGHT}"
        ));
    }
    let NormalizedSchema { schema, indexes } = normal::normalize(schema)?;
    let weight = self::weight(&schema);
    let build = |pattern_bytes| {
        let indexes = indexes.clone();
        let options = jsonschema::options_for::<CountedJson>()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(pattern_bytes))
            .with_keyword(steps::KEYWORD, |_, _, _| Ok(Box::new(steps::Step)))
            .with_keyword(index::KEYWORD, move |_, place, _| {
                let place = place.as_u64().and_then(|place| usize::try_from(place).ok());
                match place.and_then(|place| indexes.get(place)) {
                    Some(index) => Ok(Box::new(IndexKeyword(index.clone()))),
                    None => Err(ValidationError::custom("it leads to the values of an `enum` or a `const`")),
                }
            });
        options.build(&schema)
    };
    if !has_patterns(&schema) {
        let validator = build(SMALL_PATTERN_BYTES).map_err(|error| reason(&error))?;
        return Ok(CompiledSchema { validator, per_byte: WITHOUT_PATTERNS, weight });
    }
    if let Ok(validator) = build(SMALL_PATTERN_BYTES) {
        return Ok(CompiledSchema { validator, per_byte: WITH_SMALL_PATTERNS * patterns_of_names(&schema), weight });
    }
    let validator = build(PATTERN_BYTES).map_err(|error| reason(&error))?;
    Ok(CompiledSchema { validator, per_byte: WITH_LARGE_PATTERNS * patterns_of_names(&schema), weight })
}

/// Formats an error with its position in the schema.
fn reason(error: &ValidationError<'_>) -> String {
    let places = [error.instance_path().as_str(), error.schema_path().as_str()];
    let place = places.into_iter().find(|place| !place.is_empty());
    let place = place.map(|place| format!("at `{place}`: ")).unwrap_or_default();
    truncate_bytes(&format!("{place}{error}"), MAX_FAULT_BYTES)
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

/// Returns the maximum number of patterns that the property names of one object are matched against, at least 1.
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
