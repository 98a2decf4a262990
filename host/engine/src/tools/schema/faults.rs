//! Descriptions of a value's faults for a model.

use hatchery_core::truncate_bytes;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use super::counted::{CountedJson, CountedNode};

/// Maximum number of faults of a value, and of alternatives of one fault.
const MAX_FAULTS: usize = 8;
/// Maximum nesting of alternatives.
const MAX_LEVELS: usize = 2;
/// Maximum length of an invalid value in bytes.
pub(super) const MAX_VALUE_BYTES: usize = 80;
/// Maximum length of a list of allowed values in bytes.
pub(super) const MAX_OPTIONS_BYTES: usize = 400;
/// Maximum length of a fault in bytes.
pub(super) const MAX_FAULT_BYTES: usize = 1000;

/// Describes the first faults of a value.
pub(super) fn all(validator: &Validator<CountedJson>, value: &Value) -> String {
    let mut errors = validator.iter_errors(CountedNode(value));
    let mut faults: Vec<_> = errors.by_ref().take(MAX_FAULTS).map(|error| describe(&error, MAX_LEVELS)).collect();
    if errors.next().is_some() {
        faults.push("and more".into());
    }
    faults.join("; ")
}

/// Describes the first fault of a value. `None` if it has none.
pub(super) fn first(validator: &Validator<CountedJson>, value: &Value) -> Option<String> {
    validator.validate(CountedNode(value)).err().map(|error| describe(&error, MAX_LEVELS))
}

fn describe(error: &ValidationError<'_>, levels: usize) -> String {
    let path = error.instance_path().as_str();
    let value = shorten(error.instance(), MAX_VALUE_BYTES);
    let message = match error.kind() {
        ValidationErrorKind::Enum { options } => {
            format!("{value} is not one of {}", shorten(options, MAX_OPTIONS_BYTES))
        }
        ValidationErrorKind::Custom { message, .. } => message.clone(),
        _ => error.masked_with(value).to_string(),
    };
    let message = if path.is_empty() { message } else { format!("at `{path}`: {message}") };
    let mut text = truncate_bytes(&message, MAX_FAULT_BYTES);
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } = error.kind()
        && let Some(levels) = levels.checked_sub(1)
    {
        let first = context.iter().take(MAX_FAULTS).filter_map(|faults| faults.first());
        let alternatives: Vec<_> = first.map(|error| describe(error, levels)).collect();
        if !alternatives.is_empty() {
            text.push_str(&format!(" ({})", alternatives.join(", or ")));
        }
    }
    text
}

pub(super) fn shorten(value: &Value, max_bytes: usize) -> String {
    truncate_bytes(&value.to_string(), max_bytes)
}
