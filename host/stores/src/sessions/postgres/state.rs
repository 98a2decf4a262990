//! Rows of state.

use hatchery_core::{JsonMap, State, StateScope, StoreError, is_state_removal, state_entry_bytes};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::postgres::{Failure, escape, unescape};

/// The rows that a delta changes, in columns. They are ordered by key, so that concurrent writers of shared state do
/// not deadlock.
#[derive(Default)]
pub(super) struct StateChange {
    scopes: Vec<&'static str>,
    keys: Vec<String>,
    /// JSON; `None` deletes the key.
    values: Vec<Option<String>>,
    bytes: Vec<i64>,
}

/// Scopes, keys, values and their bytes.
type Columns<'a> = (&'a (dyn ToSql + Sync), &'a (dyn ToSql + Sync), &'a (dyn ToSql + Sync), &'a (dyn ToSql + Sync));

impl StateChange {
    /// Encodes a delta. `temp:` keys are omitted.
    pub(super) fn from_delta(delta: &JsonMap) -> Self {
        let mut entries: Vec<_> = delta.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        let mut change = Self::default();
        for (key, value) in entries {
            let scope = match StateScope::split_key(key).0 {
                StateScope::Session => "session",
                StateScope::User => "user",
                StateScope::App => "app",
                StateScope::Temp => continue,
            };
            change.scopes.push(scope);
            change.keys.push(escape(key).into_owned());
            change.values.push((!is_state_removal(value)).then(|| value.to_string()));
            change.bytes.push(state_entry_bytes(key, value).cast_signed());
        }
        change
    }

    /// Encodes the change that sets all keys of a state.
    pub(super) fn from_state(state: &State) -> Self {
        Self::from_delta(&state.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect())
    }

    /// Returns scopes, keys, values and bytes.
    pub(super) fn columns(&self) -> Columns<'_> {
        (&self.scopes, &self.keys, &self.values, &self.bytes)
    }
}

/// Sets the key of a row, which is in column `first`; the value follows.
pub(super) fn set_from_row(state: &mut State, row: &Row, first: usize) -> Result<(), Failure> {
    let (key, value): (&str, &str) = (row.try_get(first)?, row.try_get(first + 1)?);
    let value = serde_json::from_str(value)
        .map_err(|error| StoreError::backend(format!("cannot read the stored value of state key `{key}`"), error))?;
    state.set(&unescape(key), value);
    Ok(())
}
