//! Sessions in a SQLite database.
//!
//! An event is one row with its unchanged JSON. Reading a session reads the rows of its events and state through
//! indexes, so other sessions and, with [`EventWindow::AfterRevision`], earlier events cost nothing. An append is one
//! row, a few counters and the changed state keys. [`Durability`] determines the data that a crash can lose; it is
//! never a part of an append.
//!
//! Writes of all sessions share one writing thread and its [transactions](crate::sqlite).

mod history;
mod journal;
mod presence;
mod queries;
mod reads;
mod runs;
mod state;
mod turns;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    CallJournal, Event, EventWindow, ExpiredSession, ExpiryRule, JsonMap, RunService, Session, SessionCursor,
    SessionKey, SessionPage, SessionService, State, StoreError, Timestamp, TurnOpening, TurnStart, Usage,
};
use imbl::Vector;
use rusqlite::{CachedStatement, Connection, Params, Row, params};

use self::history::{Restoration, RestorePlan};
use self::presence::Presence;
use self::state::StateChange;
use self::turns::OpenOutcome;
use super::{id_hash, new_session_id, own_state_json, reject_partial, too_few_events};
use crate::sqlite::{Database, Durability, Failure, Owner, Schema, read_transaction};

/// The schema of session databases: "HtSe".
static SCHEMA: Schema = Schema {
    noun: "session database",
    application_id: 0x4874_5365,
    migrations: &[
        include_str!("sqlite/migrations/0001_sessions.sql"),
        include_str!("sqlite/migrations/0002_usage.sql"),
        include_str!("sqlite/migrations/0003_turns.sql"),
        include_str!("sqlite/migrations/0004_calls.sql"),
        include_str!("sqlite/migrations/0005_appends.sql"),
        include_str!("sqlite/migrations/0006_runs.sql"),
        include_str!("sqlite/migrations/0007_initial_state.sql"),
        include_str!("sqlite/migrations/0008_lists.sql"),
    ],
};

/// A [`SessionService`] in a SQLite database.
pub struct SqliteSessions {
    database: Database,
    /// `None` if the file system has no locks.
    _presence: Option<Presence>,
}

/// The result of an insertion of an event.
enum Append {
    /// The event is in the session, with this revision.
    Stored(u64),
    /// The session has another event of the id.
    OtherEvent,
    /// Another turn has begun.
    Fenced,
    /// The session does not exist.
    NoSession,
}

impl SqliteSessions {
    /// Opens the database, and creates the file and its parent folders if they are missing.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] for the database of another program or of a newer version,
    /// [`StoreError::Backend`] if the file cannot be used.
    pub async fn open(file: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(file, Durability::default()).await
    }

    /// Opens the database with this durability.
    ///
    /// # Errors
    /// As [`SqliteSessions::open`].
    pub async fn open_with(file: impl AsRef<Path>, durability: Durability) -> Result<Self, StoreError> {
        let file = file.as_ref().to_owned();
        let database = Database::open(&file, &SCHEMA, durability).await?;
        let presence = announce(&database, file).await?;
        Ok(Self { database, _presence: presence })
    }

    /// Waits for running operations and closes the file. Later calls fail.
    pub async fn close(&self) {
        self.database.close().await;
    }

    fn error_for<'a>(&'a self, activity: &'a str, key: &'a SessionKey) -> impl FnOnce(Failure) -> StoreError + 'a {
        move |failure| self.database.error(format_args!("{activity} ({key})"))(failure)
    }

    /// Runs a change of the session in the writing thread.
    async fn write<T: Send + 'static>(
        &self,
        activity: &str,
        key: &SessionKey,
        change: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.database.write(Owner::new(key), change).await.map_err(self.error_for(activity, key))
    }

    /// Runs a change of the session in the writing thread, soon. A failure is logged.
    fn write_later(
        &self,
        activity: &'static str,
        key: &SessionKey,
        change: impl Fn(&Connection) -> rusqlite::Result<()> + Send + 'static,
    ) {
        let activity = format!("{activity} ({key})");
        self.database.write_later(Owner::new(key), activity, change);
    }

    /// Waits for the changes that were left for later.
    async fn wait_for_deferred(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.database
            .wait_for_deferred(Owner::new(key))
            .await
            .map_err(self.error_for("store the runs of the session", key))
    }

    /// Makes the `change` of a fork or a rewind. A long session is read before, so that the writes of others do not
    /// wait for it; this begins again if the session was rewound since then.
    async fn restore(
        &self,
        activity: &str,
        key: &SessionKey,
        revision: i64,
        change: impl Fn(&Connection, &RestorePlan) -> rusqlite::Result<Option<Restoration>> + Clone + Send + 'static,
    ) -> Result<Restoration, StoreError> {
        loop {
            let own_key = key.clone();
            let read = move |connection: &Connection| {
                read_transaction(connection, |connection| RestorePlan::read(connection, &own_key, revision))
            };
            let plan = match self.read(activity, key, read).await? {
                Ok(plan) => plan,
                Err(refusal) => return Ok(refusal),
            };
            let change = change.clone();
            if let Some(restored) = self.write(activity, key, move |connection| change(connection, &plan)).await? {
                return Ok(restored);
            }
        }
    }

    async fn read<T: Send + 'static>(
        &self,
        activity: &str,
        key: &SessionKey,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.database.read(read).await.map_err(self.error_for(activity, key))
    }
}

#[async_trait]
impl SessionService for SqliteSessions {
    async fn close(&self) {
        SqliteSessions::close(self).await;
    }

    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        let key = SessionKey::new(app, user, new_session_id(id));
        let created = Timestamp::now();
        let (own_key, change, initial) =
            (key.clone(), StateChange::from_delta(&state), own_state_json(&State::from(&state)));
        let inserted = self.write("create the session", &key, move |connection| {
            let Some(row) = insert_row(connection, &own_key, created, &initial)? else { return Ok(None) };
            change.apply(connection, &own_key, row)?;
            state::read(connection, &own_key, row).map(Some)
        });
        match inserted.await? {
            Some(state) => {
                Ok(Session { key, state, events: Vector::new(), revision: 0, created, last_update_time: created })
            }
            None => Err(StoreError::SessionExists(key)),
        }
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        let own_key = key.clone();
        let read = move |connection: &Connection| {
            read_transaction(connection, |connection| reads::session(connection, own_key, window))
        };
        self.read("read the session", key, read).await
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        let owner: (Arc<str>, Arc<str>) = (app.into(), user.into());
        let listed = self.database.read(move |connection| reads::list(connection, &owner.0, &owner.1)).await;
        listed.map_err(self.database.error(format_args!("list the sessions of appName={app}, userId={user}")))
    }

    async fn list_page(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        let (own_app, own_user, after): (Arc<str>, Arc<str>, _) = (app.into(), user.into(), after.cloned());
        let listed = self
            .database
            .read(move |connection| reads::list_page(connection, &own_app, &own_user, after.as_ref(), limit));
        let listed = listed.await;
        listed.map_err(self.database.error(format_args!("list the sessions of appName={app}, userId={user}")))
    }

    async fn fork(&self, key: &SessionKey, revision: u64, id: Option<&str>) -> Result<Session, StoreError> {
        let fork = SessionKey::new(key.app.clone(), key.user.clone(), new_session_id(id));
        let (own_key, own_fork, created) = (key.clone(), fork.clone(), Timestamp::now());
        let at = i64::try_from(revision).unwrap_or(i64::MAX);
        let forked = self.restore("fork the session", key, at, move |connection, plan| {
            history::fork(connection, plan, &own_key, at, &own_fork, created)
        });
        restored_session(forked.await?, key, fork, revision)
    }

    async fn rewind(&self, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
        let own_key = key.clone();
        let at = i64::try_from(revision).unwrap_or(i64::MAX);
        let rewound = self.restore("rewind the session", key, at, move |connection, plan| {
            history::rewind(connection, plan, &own_key, at)
        });
        restored_session(rewound.await?, key, key.clone(), revision)
    }

    async fn close_session(&self, _: &SessionKey) -> Result<(), StoreError> {
        Ok(())
    }

    async fn list_expired(
        &self,
        app: &str,
        rule: &ExpiryRule,
        limit: usize,
    ) -> Result<Vec<ExpiredSession>, StoreError> {
        let (own_app, rule) = (app.to_owned(), *rule);
        let found = self.database.read(move |connection| reads::list_expired(connection, &own_app, &rule, limit)).await;
        found.map_err(self.database.error(format_args!("find sessions to delete of appName={app}")))
    }

    fn has_retention(&self) -> bool {
        true
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        let own_key = key.clone();
        let deleted = self.write("delete the session", key, move |connection| {
            connection.prepare_cached(queries::DELETE)?.execute(params![own_key.app, own_key.user, own_key.id])
        });
        deleted.await.map(drop)
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        let own_key = key.clone();
        let turn_start = self.write("begin a turn of the session", key, move |connection| {
            turns::begin(connection, &own_key, previous, lease)
        });
        turn_start.await?.ok_or_else(|| StoreError::SessionNotFound(key.clone()))
    }

    async fn open_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
        window: EventWindow,
    ) -> Result<TurnOpening, StoreError> {
        let own_key = key.clone();
        let opened = self.write("begin a turn of the session", key, move |connection| {
            turns::open(connection, &own_key, previous, lease, window)
        });
        match opened.await? {
            OpenOutcome::Complete(opening) => Ok(opening),
            OpenOutcome::Unread(start) => {
                let end = |fence| self.renew_turn(key, fence, Duration::ZERO);
                TurnOpening::complete(key, start, SessionService::get(self, key, window), end).await
            }
            OpenOutcome::NoSession => Err(StoreError::SessionNotFound(key.clone())),
        }
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        let own_key = key.clone();
        let renewed = self.write("renew a turn of the session", key, move |connection| {
            turns::renew(connection, &own_key, fence, lease)
        });
        match renewed.await? {
            Some(true) => Ok(()),
            Some(false) => Err(StoreError::Fenced(key.clone())),
            None => Err(StoreError::SessionNotFound(key.clone())),
        }
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        reject_partial(event)?;
        // Made here, so that the writing thread has less to do.
        event.json();
        let (own_key, own_event, id_hash) = (key.clone(), event.clone(), id_hash(&event.id));
        let change = StateChange::from_delta(&event.actions.state_delta);
        let appended = self.write("append to the session", key, move |connection| {
            insert_event(connection, &own_key, &own_event, id_hash, fence, &change)
        });
        match appended.await? {
            Append::Stored(revision) => Ok(revision),
            Append::OtherEvent => Err(StoreError::EventExists(event.id.clone())),
            Append::Fenced => Err(StoreError::Fenced(key.clone())),
            Append::NoSession => Err(StoreError::SessionNotFound(key.clone())),
        }
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        Some(self)
    }

    fn runs(&self) -> Option<&dyn RunService> {
        Some(self)
    }

    async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        self.wait_for_deferred(key).await?;
        let own_key = key.clone();
        self.read("read the usage of the session", key, move |connection| reads::usage(connection, &own_key)).await
    }
}

/// Makes this process known to others. If it is alone, the turns of processes that have died are ended.
async fn announce(database: &Database, file: PathBuf) -> Result<Option<Presence>, StoreError> {
    let failed =
        |error: &dyn Display| tracing::warn!(%error, "turns of dead hosts are not ended before their leases expire");
    let opened = tokio::task::spawn_blocking(move || Presence::open(&file)).await;
    let (presence, is_alone) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            failed(&error);
            return Ok(None);
        }
        Err(error) => return Err(StoreError::backend("cannot lock the session database", error)),
    };
    if is_alone {
        let ended =
            database.write(Owner::NONE, |connection| connection.prepare_cached(queries::END_LEASES)?.execute([]));
        ended.await.map_err(database.error("end the turns of hosts that have died"))?;
    }
    let shared = tokio::task::spawn_blocking(move || presence.share().map(|()| presence)).await;
    match shared {
        Ok(Ok(presence)) => Ok(Some(presence)),
        Ok(Err(error)) => {
            failed(&error);
            Ok(None)
        }
        Err(error) => Err(StoreError::backend("cannot lock the session database", error)),
    }
}

/// Inserts a row for a session. Returns its number, `None` if the session exists already.
fn insert_row(
    connection: &Connection,
    key: &SessionKey,
    created: Timestamp,
    initial_state: &str,
) -> rusqlite::Result<Option<i64>> {
    let mut create = connection.prepare_cached(queries::CREATE)?;
    let values = params![key.app, key.user, key.id, created.as_micros(), initial_state];
    first(&mut create, values, |row| row.get(0))
}

/// Returns the session `result` of a fork or a rewind of `key`.
fn restored_session(
    restoration: Restoration,
    key: &SessionKey,
    result: SessionKey,
    revision: u64,
) -> Result<Session, StoreError> {
    match restoration {
        Restoration::Done { state, created, updated: last_update_time } => {
            Ok(Session { key: result, state, events: Vector::new(), revision, created, last_update_time })
        }
        Restoration::NoSession => Err(StoreError::SessionNotFound(key.clone())),
        Restoration::TooFewEvents(count) => Err(too_few_events(key, revision, count)),
        Restoration::Exists => Err(StoreError::SessionExists(result)),
        Restoration::Held => Err(StoreError::session_in_use(key)),
    }
}

/// Appends an event. What the session has already is compared first, so that a repeated append succeeds in later turns.
fn insert_event(
    connection: &Connection,
    key: &SessionKey,
    event: &Event,
    id_hash: i64,
    fence: Option<u64>,
    change: &StateChange,
) -> rusqlite::Result<Append> {
    let json = str::from_utf8(event.json()).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let mut find = connection.prepare_cached(queries::FIND_FOR_APPEND)?;
    let found =
        first(&mut find, params![key.app, key.user, key.id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let Some((row, revision, turn)): Option<(i64, i64, i64)> = found else { return Ok(Append::NoSession) };
    let revision = revision + 1;
    let is_fenced = fence.is_some_and(|fence| fence.cast_signed() != turn);
    let inserts_id = |connection: &Connection| {
        connection
            .prepare_cached(queries::INSERT_EVENT_ID)?
            .execute(params![row, id_hash, revision])
            .map(|rows| rows > 0)
    };
    if is_fenced || !inserts_id(connection)? {
        let mut find = connection.prepare_cached(queries::FIND_EVENT)?;
        let stored: Option<(i64, bool)> = first(&mut find, params![row, id_hash], |stored| {
            Ok((stored.get(0)?, stored.get_ref(1)?.as_bytes()? == json.as_bytes()))
        })?;
        return Ok(match stored {
            None => Append::Fenced,
            Some((revision, true)) => Append::Stored(revision.cast_unsigned()),
            Some((_, false)) => Append::OtherEvent,
        });
    }
    let time = event.timestamp.as_micros();
    connection.prepare_cached(queries::INSERT_EVENT)?.execute(params![row, revision, time, json])?;
    let bytes = json.len().cast_signed();
    connection.prepare_cached(queries::COUNT_EVENT)?.execute(params![row, revision, time, bytes])?;
    connection.prepare_cached(queries::COUNT_USER_EVENT)?.execute(params![key.app, key.user, bytes])?;
    change.apply(connection, key, row)?;
    Ok(Append::Stored(revision.cast_unsigned()))
}

/// Runs a statement to its end. Returns its first row, if it has one.
fn first<T>(
    statement: &mut CachedStatement<'_>,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let mut rows = statement.query(values)?;
    let first = match rows.next()? {
        Some(row) => Some(read(row)?),
        None => return Ok(None),
    };
    while rows.next()?.is_some() {}
    Ok(first)
}

#[cfg(test)]
mod tests;
