//! Forks and rewinds: sessions as they were at an earlier event.

use hatchery_core::{JsonMap, MAX_TURN_LEASE, Session, SessionKey, State, StateScope, StoreError, Timestamp};
use imbl::Vector;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

use super::state::{StateChange, set_from_row};
use super::{micros, queries};
use crate::postgres::{Database, Failure, SessionOperation};
use crate::sessions::{own_state_json, state_delta_of, too_few_events};

struct SessionRow {
    number: i64,
    revision: i64,
    /// How long the lease of the last turn lasts; negative if it has ended.
    leased: i64,
    created: Timestamp,
    initial_state: State,
}

/// A session that was restored.
struct RestoredSession {
    state: State,
    created: Timestamp,
    updated: Timestamp,
}

/// Creates the session `fork` with the first `revision` events of `key`.
pub(super) async fn fork(
    database: &Database,
    key: &SessionKey,
    revision: u64,
    fork: SessionKey,
) -> Result<Session, StoreError> {
    let forked = try_fork(database, key, revision, &fork).await;
    let restored = forked.map_err(|failure| database.error(&SessionOperation("fork the session", key), failure))?;
    Ok(session(fork, revision, restored))
}

/// Removes the events after `revision`.
pub(super) async fn rewind(database: &Database, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
    let rewound = try_rewind(database, key, revision).await;
    let restored = rewound.map_err(|failure| database.error(&SessionOperation("rewind the session", key), failure))?;
    Ok(session(key.clone(), revision, restored))
}

fn session(key: SessionKey, revision: u64, RestoredSession { state, created, updated }: RestoredSession) -> Session {
    Session { key, state, events: Vector::new(), revision, created, last_update_time: updated }
}

async fn try_fork(
    database: &Database,
    key: &SessionKey,
    revision: u64,
    fork: &SessionKey,
) -> Result<RestoredSession, Failure> {
    let mut lent = database.pool.lend().await?;
    let transaction = lent.client()?.transaction().await?;
    let (source, at) = find(&transaction, key, revision).await?;
    let own = state_at(&transaction, &source, at).await?;
    let created = Timestamp::now();
    let initial_state = own_state_json(&source.initial_state);
    let values: [&(dyn ToSql + Sync); 5] =
        [&&*fork.app, &&*fork.user, &&*fork.id, &created.as_micros(), &initial_state];
    let Some(row) = transaction.query_opt(queries::CREATE_FORK, &values).await? else {
        return Err(StoreError::SessionExists(fork.clone()).into());
    };
    let number: i64 = row.try_get(0)?;
    transaction.execute(queries::COPY_EVENTS, &[&number, &source.number, &at]).await?;
    let bytes: i64 = transaction.query_one(queries::EVENT_BYTES, &[&number]).await?.try_get(0)?;
    let restored = restore(&transaction, fork, number, at, bytes, created, &own).await?;
    transaction.commit().await?;
    lent.set_usable();
    Ok(restored)
}

async fn try_rewind(database: &Database, key: &SessionKey, revision: u64) -> Result<RestoredSession, Failure> {
    let mut lent = database.pool.lend().await?;
    let transaction = lent.client()?.transaction().await?;
    let (found, at) = find(&transaction, key, revision).await?;
    // A lease that ends later than any can is the result of a clock that was set back.
    if found.leased > 0 && found.leased <= micros(MAX_TURN_LEASE) {
        return Err(StoreError::session_in_use(key).into());
    }
    let own = state_at(&transaction, &found, at).await?;
    let mut freed = 0;
    for statement in [queries::DELETE_RUNS_AFTER, queries::DELETE_CALLS_AFTER, queries::DELETE_EVENTS_AFTER] {
        let bytes: i64 = transaction.query_one(statement, &[&found.number, &at]).await?.try_get(0)?;
        freed += bytes;
    }
    transaction.execute(queries::REWIND_RUNS, &[&found.number, &at]).await?;
    transaction.execute(queries::DELETE_SESSION_STATE, &[&found.number]).await?;
    // Another time than before, even if the clock was set back.
    let created = Timestamp::from_micros(Timestamp::now().as_micros().max(found.created.as_micros() + 1));
    let restored = restore(&transaction, key, found.number, at, -freed, created, &own).await?;
    transaction.commit().await?;
    lent.set_usable();
    Ok(restored)
}

/// Returns the row of a session, locked, and the revision, which it has.
async fn find(transaction: &Transaction<'_>, key: &SessionKey, revision: u64) -> Result<(SessionRow, i64), Failure> {
    let values: [&(dyn ToSql + Sync); 3] = [&&*key.app, &&*key.user, &&*key.id];
    let Some(row) = transaction.query_opt(queries::FIND_FOR_RESTORATION, &values).await? else {
        return Err(StoreError::SessionNotFound(key.clone()).into());
    };
    let initial_state = serde_json::from_str(row.try_get(4)?)
        .map_err(|error| StoreError::backend(format!("cannot read the initial state of the session ({key})"), error))?;
    let found = SessionRow {
        number: row.try_get(0)?,
        revision: row.try_get(1)?,
        leased: row.try_get(2)?,
        created: Timestamp::from_micros(row.try_get(3)?),
        initial_state,
    };
    let at = i64::try_from(revision).unwrap_or(i64::MAX);
    if at > found.revision {
        return Err(too_few_events(key, revision, found.revision.cast_unsigned()).into());
    }
    Ok((found, at))
}

/// Returns a session's own state at a revision.
async fn state_at(transaction: &Transaction<'_>, session: &SessionRow, revision: i64) -> Result<State, Failure> {
    let mut state = session.initial_state.clone();
    for row in transaction.query(queries::FIRST_EVENTS, &[&session.number, &revision]).await? {
        let delta: JsonMap = state_delta_of(row.try_get::<_, &str>(0)?.as_bytes());
        for (name, value) in delta.into_iter().filter(|(name, _)| StateScope::split_key(name).0 == StateScope::Session)
        {
            state.set(&name, value);
        }
    }
    Ok(state)
}

/// Sets the state, the revision and the totals of a session without state. Returns the new session.
async fn restore(
    transaction: &Transaction<'_>,
    key: &SessionKey,
    number: i64,
    revision: i64,
    bytes: i64,
    created: Timestamp,
    own: &State,
) -> Result<RestoredSession, Failure> {
    let change = StateChange::from_state(own);
    let (scopes, keys, values, sizes) = change.columns();
    let (app, user) = (&*key.app, &*key.user);
    let applied =
        transaction.query_one(queries::APPLY_STATE, &[&number, &app, &user, scopes, keys, values, sizes]).await?;
    let (state_keys, state_bytes): (i64, i64) = (applied.try_get(0)?, applied.try_get(1)?);
    let values: [&(dyn ToSql + Sync); 6] =
        [&number, &revision, &created.as_micros(), &bytes, &state_keys, &state_bytes];
    let updated = transaction.query_one(queries::SET_REVISION, &values).await?.try_get(0)?;
    let mut state = State::default();
    for row in transaction.query(queries::STATE, &[&number, &app, &user]).await? {
        set_from_row(&mut state, &row, 0)?;
    }
    Ok(RestoredSession { state, created, updated: Timestamp::from_micros(updated) })
}
