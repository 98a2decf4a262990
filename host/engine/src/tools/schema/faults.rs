//! What is wrong with a value, in words for a model.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use super::counted::{Counted, CountedNode};

/// Faults of one value that are told, and alternatives of one fault.
const TOLD: usize = 8;
/// How deep alternatives of alternatives are told.
const TOLD_LEVELS: usize = 2;
/// Bytes of a wrong value that are shown.
pub(super) const SHOWN: usize = 80;
/// Bytes of a list of allowed values that are shown.
pub(super) const SHOWN_OPTIONS: usize = 400;
/// Bytes of a whole fault that are shown.
pub(super) const SHOWN_FAULT: usize = 1000;

/// The first faults of a value.
pub(super) fn all(validator: &Validator<Counted>, value: &Value) -> String {
    let mut errors = validator.iter_errors(CountedNode(value));
    let mut told: Vec<_> = errors.by_ref().take(TOLD).map(|error| fault(&error, TOLD_LEVELS)).collect();
    if errors.next().is_some() {
        told.push("and more".into());
    }
    told.join("; ")
}

/// The fault of a value that is found first, if it has one.
pub(super) fn first(validator: &Validator<Counted>, value: &Value) -> Option<String> {
    validator.validate(CountedNode(value)).err().map(|error| fault(&error, TOLD_LEVELS))
}

fn fault(error: &ValidationError<'_>, levels: usize) -> String {
    let place = error.instance_path().as_str();
    let given = shortened(error.instance(), SHOWN);
    let expected = match error.kind() {
        ValidationErrorKind::Enum { options } => format!("{given} is not one of {}", shortened(options, SHOWN_OPTIONS)),
        ValidationErrorKind::Custom { message, .. } => message.clone(),
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

pub(super) fn shortened(value: &Value, most: usize) -> String {
    cut(value.to_string(), most)
}

pub(super) fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}
