//! Rows of state.

use hatchery_core::{JsonMap, SessionKey, State, StateScope, is_state_removal};
use rusqlite::types::Type;
use rusqlite::{Connection, Row, Rows, params};

use super::queries;

/// The rows that a delta changes, encoded.
pub(super) struct StateChange(Vec<KeyChange>);

struct KeyChange {
    table: Table,
    /// The key with its prefix.
    key: Box<str>,
    /// The value as JSON; `None` deletes the key.
    value: Option<String>,
}

#[derive(Clone, Copy)]
enum Table {
    Session,
    User,
    App,
}

impl StateChange {
    /// Encodes a delta. `temp:` keys are omitted.
    pub(super) fn from_delta(delta: &JsonMap) -> Self {
        let change = |(key, value): (&String, &serde_json::Value)| {
            let table = match StateScope::split_key(key).0 {
                StateScope::Session => Table::Session,
                StateScope::User => Table::User,
                StateScope::App => Table::App,
                StateScope::Temp => return None,
            };
            let value = (!is_state_removal(value)).then(|| value.to_string());
            Some(KeyChange { table, key: key.as_str().into(), value })
        };
        Self(delta.iter().filter_map(change).collect())
    }

    /// Encodes the change that sets all keys of a state.
    pub(super) fn from_state(state: &State) -> Self {
        Self::from_delta(&state.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect())
    }

    /// Applies the change to the rows of the session, its user and its app.
    pub(super) fn apply(&self, connection: &Connection, key: &SessionKey, row: i64) -> rusqlite::Result<()> {
        for KeyChange { table, key: name, value } in &self.0 {
            match (table, value) {
                (Table::Session, Some(value)) => {
                    connection.prepare_cached(queries::SET_SESSION_KEY)?.execute(params![row, name, value])?
                }
                (Table::Session, None) => {
                    connection.prepare_cached(queries::DELETE_SESSION_KEY)?.execute(params![row, name])?
                }
                (Table::User, Some(value)) => {
                    let values = params![key.app, key.user, name, value];
                    connection.prepare_cached(queries::SET_USER_KEY)?.execute(values)?
                }
                (Table::User, None) => {
                    connection.prepare_cached(queries::DELETE_USER_KEY)?.execute(params![key.app, key.user, name])?
                }
                (Table::App, Some(value)) => {
                    connection.prepare_cached(queries::SET_APP_KEY)?.execute(params![key.app, name, value])?
                }
                (Table::App, None) => {
                    connection.prepare_cached(queries::DELETE_APP_KEY)?.execute(params![key.app, name])?
                }
            };
        }
        Ok(())
    }
}

/// Reads a session's own and shared state.
pub(super) fn read(connection: &Connection, key: &SessionKey, row: i64) -> rusqlite::Result<State> {
    from_rows(connection.prepare_cached(queries::STATE)?.query(params![row, key.app, key.user])?)
}

/// Reads a session's own state.
pub(super) fn read_own(connection: &Connection, row: i64) -> rusqlite::Result<State> {
    from_rows(connection.prepare_cached(queries::OWN_STATE)?.query(params![row])?)
}

/// Builds state from rows of keys and values.
pub(super) fn from_rows(mut rows: Rows<'_>) -> rusqlite::Result<State> {
    let mut state = State::default();
    while let Some(row) = rows.next()? {
        set_from_row(&mut state, row, 0)?;
    }
    Ok(state)
}

/// Sets the key of a row, which is in column `first`; the value follows.
pub(super) fn set_from_row(state: &mut State, row: &Row<'_>, first: usize) -> rusqlite::Result<()> {
    let value = row.get_ref(first + 1)?.as_bytes()?;
    let value = serde_json::from_slice(value)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(first + 1, Type::Text, error.into()))?;
    state.set(row.get_ref(first)?.as_str()?, value);
    Ok(())
}
