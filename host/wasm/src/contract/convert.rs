//! Between the domain's types and those of the contract, in one place. Nothing is lost either way: what the contract has no field for
//! travels in `extra`.

mod code;
mod content;
mod event;
mod failure;
mod json;
pub(crate) mod llm;
mod weight;

use thiserror::Error;

pub(crate) use crate::contract::bindings::hatchery::agent::types as wit;
pub(crate) use failure::{bounded, bounded_event, bounded_response, bounded_tool_error, model_error};
pub(crate) use json::{object, text, value};
pub(crate) use weight::{ITEM, Weigh};

/// Something that a guest sent and that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} is not {wanted}: {reason}")]
pub(crate) struct BadValue {
    what: &'static str,
    wanted: &'static str,
    reason: String,
}

impl BadValue {
    pub(crate) fn new(what: &'static str, wanted: &'static str, reason: String) -> Self {
        Self { what, wanted, reason }
    }
}

/// From the domain to the contract.
pub(crate) trait ToWit {
    /// The contract's type.
    type Wit;

    fn to_wit(&self) -> Self::Wit;
}

/// From the contract to the domain.
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
