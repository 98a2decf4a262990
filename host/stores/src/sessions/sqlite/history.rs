//! Forks and rewinds: sessions as they were at an earlier event.

use hatchery_core::{SessionKey, State, StateScope, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, params};

use super::state::{StateChange, read_own};
use super::turns::latest_end;
use super::{first, insert_row, queries};
use crate::sessions::{own_state_json, state_delta_of};

/// The result of a fork or a rewind.
pub(super) enum Restoration {
    /// The session is as requested, with this state and these times of creation and of the last update.
    Done { state: State, created: Timestamp, updated: Timestamp },
    /// The session does not exist.
    NoSession,
    /// The session has only this many events.
    TooFewEvents(u64),
    /// A fork's id is taken.
    Exists,
    /// A turn of the session is held.
    Held,
}

struct SessionRow {
    row: i64,
    revision: i64,
    leased_until: i64,
    created: Timestamp,
    initial_state: Option<String>,
}

/// What a fork or a rewind needs from the events of a session. They are read before the change, and not by the writing
/// thread: events before a revision change only with the row or the time of creation of their session.
pub(super) struct RestorePlan {
    row: i64,
    created: Timestamp,
    /// The session's own state at its creation, as JSON.
    initial_state: String,
    /// The session's own state at the revision.
    own_state: StateChange,
}

impl RestorePlan {
    /// Reads a session up to a revision, or returns why it cannot be restored.
    pub(super) fn read(
        connection: &Connection,
        key: &SessionKey,
        revision: i64,
    ) -> rusqlite::Result<Result<Self, Restoration>> {
        let Some(found) = find(connection, key)? else { return Ok(Err(Restoration::NoSession)) };
        if revision > found.revision {
            return Ok(Err(Restoration::TooFewEvents(found.revision.cast_unsigned())));
        }
        let (initial, own) = states_at(connection, &found, revision)?;
        Ok(Ok(Self {
            row: found.row,
            created: found.created,
            initial_state: own_state_json(&initial),
            own_state: StateChange::from_state(&own),
        }))
    }

    /// Returns the session of this plan. `None` if it was rewound or deleted since it was read.
    fn find(&self, connection: &Connection, key: &SessionKey) -> rusqlite::Result<Option<SessionRow>> {
        let found = find(connection, key)?;
        Ok(found.filter(|found| (found.row, found.created) == (self.row, self.created)))
    }
}

/// Creates the session `fork` with the first `revision` events of `key`. `None` if the plan is out of date.
pub(super) fn fork(
    connection: &Connection,
    plan: &RestorePlan,
    key: &SessionKey,
    revision: i64,
    fork: &SessionKey,
    created: Timestamp,
) -> rusqlite::Result<Option<Restoration>> {
    let Some(source) = plan.find(connection, key)? else { return Ok(None) };
    let Some(row) = insert_row(connection, fork, created, &plan.initial_state)? else {
        return Ok(Some(Restoration::Exists));
    };
    connection.prepare_cached(queries::COPY_EVENT_IDS)?.execute(params![row, source.row, revision])?;
    connection.prepare_cached(queries::COPY_EVENTS)?.execute(params![row, source.row, revision])?;
    plan.own_state.apply(connection, fork, row)?;
    let bytes = event_bytes(connection, row, 0, revision)?;
    let updated = set_revision(connection, fork, row, revision, bytes, created)?;
    let state = super::state::read(connection, fork, row)?;
    Ok(Some(Restoration::Done { state, created, updated }))
}

/// Removes the events after `revision`. `None` if the plan is out of date.
pub(super) fn rewind(
    connection: &Connection,
    plan: &RestorePlan,
    key: &SessionKey,
    revision: i64,
) -> rusqlite::Result<Option<Restoration>> {
    let Some(found) = plan.find(connection, key)? else { return Ok(None) };
    let now = Timestamp::now().as_micros();
    if found.leased_until > now && found.leased_until <= latest_end(now) {
        return Ok(Some(Restoration::Held));
    }
    let freed =
        event_bytes(connection, found.row, revision, found.revision)? + rewind_runs(connection, found.row, revision)?;
    for statement in [queries::DELETE_CALLS_AFTER, queries::DELETE_EVENT_IDS_AFTER, queries::DELETE_EVENTS_AFTER] {
        connection.prepare_cached(statement)?.execute(params![found.row, revision])?;
    }
    connection.prepare_cached(queries::DELETE_SESSION_STATE)?.execute(params![found.row])?;
    plan.own_state.apply(connection, key, found.row)?;
    // Another time than before, even if the clock was set back.
    let created = Timestamp::from_micros(now.max(found.created.as_micros() + 1));
    connection.prepare_cached(queries::SET_CREATED)?.execute(params![found.row, created.as_micros()])?;
    let updated = set_revision(connection, key, found.row, revision, -freed, created)?;
    let state = super::state::read(connection, key, found.row)?;
    Ok(Some(Restoration::Done { state, created, updated }))
}

/// Deletes the runs that have begun after a revision. Returns their bytes.
fn rewind_runs(connection: &Connection, row: i64, revision: i64) -> rusqlite::Result<i64> {
    let mut delete = connection.prepare_cached(queries::DELETE_RUNS_AFTER)?;
    let bytes = delete.query_map(params![row, revision], |row| row.get::<_, i64>(0))?;
    let freed = bytes.sum::<rusqlite::Result<i64>>()?;
    connection.prepare_cached(queries::REWIND_RUNS)?.execute(params![row, revision])?;
    Ok(freed)
}

fn find(connection: &Connection, key: &SessionKey) -> rusqlite::Result<Option<SessionRow>> {
    let mut find = connection.prepare_cached(queries::FIND_FOR_RESTORATION)?;
    first(&mut find, params![key.app, key.user, key.id], |row| {
        Ok(SessionRow {
            row: row.get(0)?,
            revision: row.get(1)?,
            leased_until: row.get(2)?,
            created: Timestamp::from_micros(row.get(3)?),
            initial_state: row.get(4)?,
        })
    })
}

/// Returns a session's own state at its creation and at a revision.
fn states_at(connection: &Connection, session: &SessionRow, revision: i64) -> rusqlite::Result<(State, State)> {
    let mut select = connection.prepare_cached(queries::EVENTS)?;
    let rows = select.query_map(params![session.row, 0, i64::MIN, -1], |row| {
        Ok((row.get::<_, i64>(0)?, state_delta_of(row.get_ref(1)?.as_bytes()?)))
    })?;
    let deltas = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let initial = match &session.initial_state {
        Some(json) => serde_json::from_str(json)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(4, Type::Text, error.into()))?,
        // State that no event has changed is part of the initial state.
        None => {
            let mut state = read_own(connection, session.row)?;
            state.retain(|name| !deltas.iter().any(|(_, delta)| delta.contains_key(name)));
            state
        }
    };
    let mut state = initial.clone();
    for (_, delta) in deltas.iter().take_while(|(event, _)| *event <= revision) {
        for (name, value) in delta.iter().filter(|(name, _)| StateScope::split_key(name).0 == StateScope::Session) {
            state.set(name, value.clone());
        }
    }
    Ok((initial, state))
}

/// Returns the bytes of the events after one revision, up to another.
fn event_bytes(connection: &Connection, row: i64, after: i64, last: i64) -> rusqlite::Result<i64> {
    connection.prepare_cached(queries::EVENT_BYTES)?.query_row(params![row, after, last], |row| row.get(0))
}

/// Sets the revision and the time of a session, and adds the change of its bytes. Returns the time.
fn set_revision(
    connection: &Connection,
    key: &SessionKey,
    row: i64,
    revision: i64,
    bytes: i64,
    created: Timestamp,
) -> rusqlite::Result<Timestamp> {
    let updated = connection
        .prepare_cached(queries::TIME_OF_EVENT)?
        .query_row(params![row, revision, created.as_micros()], |row| row.get(0))?;
    connection.prepare_cached(queries::SET_REVISION)?.execute(params![row, revision, updated, bytes])?;
    connection.prepare_cached(queries::COUNT_USER_EVENT)?.execute(params![key.app, key.user, bytes])?;
    Ok(Timestamp::from_micros(updated))
}
