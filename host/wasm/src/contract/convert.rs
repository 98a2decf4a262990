//! Conversion between the types of `hatchery-core` and of the contract. Lossless in both directions: fields
//! that the contract does not have are carried as JSON in `extra`.

mod code;
mod content;
mod error;
mod event;
mod json;
pub(crate) mod live;
pub(crate) mod llm;
mod parsed_size;
mod size;

use hatchery_core::truncate_chars;
use thiserror::Error;

pub(crate) use crate::contract::bindings::hatchery::agent::types as wit;
pub(crate) use error::{to_model_error, to_tool_error, truncate_error, truncate_event_error, truncate_response_error};
pub(crate) use json::{parse_json, parse_object, to_json};
pub(crate) use parsed_size::ParsedSize;
pub(crate) use size::{EstimateSize, ITEM_SIZE};

/// Maximum number of characters of the reason of a [`BadValue`] that its message has. A reason may quote the value.
const MAX_REASON: usize = 1000;

/// A value of a guest that cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{subject} is not {expected}: {}", truncate_chars(reason, MAX_REASON))]
pub(crate) struct BadValue {
    subject: &'static str,
    expected: &'static str,
    reason: String,
}

impl BadValue {
    pub(crate) fn new(subject: &'static str, expected: &'static str, reason: String) -> Self {
        Self { subject, expected, reason }
    }
}

/// Converts from `hatchery-core` to the contract.
pub(crate) trait ToWit {
    type Wit;

    fn to_wit(&self) -> Self::Wit;
}

/// Converts from the contract to `hatchery-core`.
pub(crate) trait FromWit<Wit>: Sized {
    fn from_wit(wit: Wit) -> Result<Self, BadValue>;
}

fn all_to_wit<'a, T: ToWit + 'a>(items: impl IntoIterator<Item = &'a T>) -> Vec<T::Wit> {
    items.into_iter().map(ToWit::to_wit).collect()
}

pub(crate) fn all_from_wit<T: FromWit<W>, W>(items: Vec<W>) -> Result<Vec<T>, BadValue> {
    items.into_iter().map(T::from_wit).collect()
}

#[cfg(test)]
mod tests;
