//! Sessions in PostgreSQL.
//!
//! An event is one row with its unchanged JSON. An append, the beginning of a turn, a record of a call and the start of
//! a run are one round trip each: a function of the schema locks the row of the session, compares the fence and writes.
//! Reading a session is one statement, so it sees one state of the database, and reads only the events that are asked
//! for. Leases are compared by the clock of the server, so the clocks of the hosts need not agree.

mod history;
mod journal;
mod queries;
mod reads;
mod runs;
mod state;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    CallJournal, Event, EventWindow, ExpiredSession, ExpiryRule, JsonMap, MAX_TURN_LEASE, RunService, Session,
    SessionCursor, SessionKey, SessionPage, SessionService, State, StoreError, Timestamp, Turn, TurnStart, Usage,
};
use imbl::Vector;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use self::state::StateChange;
use super::{id_hash, new_session_id, own_state_json, reject_partial};
use crate::postgres::{Database, PostgresAddress, Repeat, Schema, SessionOperation, escape};

static SCHEMA: Schema = Schema {
    noun: "session database",
    part: "sessions",
    migrations: &[
        include_str!("postgres/migrations/0001_sessions.sql"),
        include_str!("postgres/migrations/0002_lists.sql"),
        include_str!("postgres/migrations/0003_keys.sql"),
        include_str!("postgres/migrations/0004_turns.sql"),
    ],
};

/// A [`SessionService`] in a PostgreSQL database, which several hosts may share.
pub struct PostgresSessions {
    database: Database,
}

impl PostgresSessions {
    /// Opens the database of a URI such as `postgres://user@host/database`, and creates its tables if they are missing.
    /// The password is the value of the environment variable `PGPASSWORD`, unless the URI has one.
    ///
    /// # Errors
    /// [`StoreError::InvalidName`], which lists the valid forms, for any other URI; [`StoreError::InvalidRequest`] for
    /// a database that cannot be used; [`StoreError::Backend`] and [`StoreError::Busy`] if it cannot be reached.
    pub async fn open(uri: &str) -> Result<Self, StoreError> {
        let address = PostgresAddress::parse(uri, |name| std::env::var(name).ok())?;
        Ok(Self { database: Database::open(address, &SCHEMA).await? })
    }

    /// Runs a statement about a session.
    async fn query(
        &self,
        activity: &str,
        key: &SessionKey,
        repeat: Repeat,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        self.database.query(&SessionOperation(activity, key), repeat, sql, values).await
    }

    /// Returns a conversion of errors of columns.
    fn unreadable<'a>(&'a self, key: &'a SessionKey) -> impl Fn(tokio_postgres::Error) -> StoreError + 'a {
        move |error| self.database.error(&SessionOperation("read the session", key), error.into())
    }

    /// Runs a function that returns one string, the outcome.
    async fn outcome(
        &self,
        activity: &str,
        key: &SessionKey,
        repeat: Repeat,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Outcome, StoreError> {
        let rows = self.query(activity, key, repeat, sql, values).await?;
        let outcome = rows.first().map(|row| row.try_get::<_, &str>(0)).transpose().map_err(self.unreadable(key))?;
        Ok(Outcome::from_name(outcome.unwrap_or_default()))
    }
}

/// The outcome of a function of the schema.
enum Outcome {
    /// The function has done its work.
    Done,
    /// Nothing was changed: the data exists already, or was changed concurrently.
    NotDone,
    /// Another turn has begun.
    Fenced,
    /// The session does not exist.
    NoSession,
}

impl Outcome {
    fn from_name(name: &str) -> Self {
        match name {
            "fenced" => Self::Fenced,
            "no_session" => Self::NoSession,
            "known" | "stale" | "other_event" => Self::NotDone,
            _ => Self::Done,
        }
    }

    /// Returns true if the function has done its work.
    fn into_result(self, key: &SessionKey) -> Result<bool, StoreError> {
        match self {
            Self::Done => Ok(true),
            Self::NotDone => Ok(false),
            Self::Fenced => Err(StoreError::Fenced(key.clone())),
            Self::NoSession => Err(StoreError::SessionNotFound(key.clone())),
        }
    }
}

#[async_trait]
impl SessionService for PostgresSessions {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        let key = SessionKey::new(app, user, new_session_id(id));
        let (created, change) = (Timestamp::now(), StateChange::from_delta(&state));
        let initial_state = own_state_json(&State::from(&state));
        let (scopes, keys, values, bytes) = change.columns();
        let rows = self
            .query(
                "create the session",
                &key,
                Repeat::Never,
                queries::CREATE,
                &[
                    &&*key.app,
                    &&*key.user,
                    &&*key.id,
                    &created.as_micros(),
                    &initial_state,
                    scopes,
                    keys,
                    values,
                    bytes,
                ],
            )
            .await?;
        let [_, rows @ ..] = rows.as_slice() else { return Err(StoreError::SessionExists(key)) };
        let mut state = State::default();
        for row in rows {
            state::set_from_row(&mut state, row, 0)
                .map_err(|failure| self.database.error(&SessionOperation("read the session", &key), failure))?;
        }
        Ok(Session { key, state, events: Vector::new(), revision: 0, created, last_update_time: created })
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        reads::session(&self.database, key, window).await
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        reads::list(&self.database, app, user, None, None).await.map(|page| page.sessions)
    }

    async fn list_page(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        reads::list(&self.database, app, user, after, Some(limit)).await
    }

    async fn fork(&self, key: &SessionKey, revision: u64, id: Option<&str>) -> Result<Session, StoreError> {
        let fork = SessionKey::new(key.app.clone(), key.user.clone(), new_session_id(id));
        history::fork(&self.database, key, revision, fork).await
    }

    async fn rewind(&self, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
        history::rewind(&self.database, key, revision).await
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
        reads::list_expired(&self.database, app, rule, limit).await
    }

    fn has_retention(&self) -> bool {
        true
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        let values: [&(dyn ToSql + Sync); 3] = [&&*key.app, &&*key.user, &&*key.id];
        self.query("delete the session", key, Repeat::Safe, queries::DELETE, &values).await.map(drop)
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        let previous = previous.map(u64::cast_signed);
        let rows = self
            .query(
                "begin a turn of the session",
                key,
                Repeat::Never,
                queries::BEGIN_TURN,
                &[&&*key.app, &&*key.user, &&*key.id, &previous, &micros(lease), &micros(MAX_TURN_LEASE)],
            )
            .await?;
        let row = rows.first().ok_or_else(|| StoreError::SessionNotFound(key.clone()))?;
        let column = |index| row.try_get::<_, Option<i64>>(index).map_err(self.unreadable(key));
        match (column(0)?, column(1)?, column(2)?) {
            (Some(fence), Some(revision), _) => {
                Ok(TurnStart::Begun(Turn { fence: fence.cast_unsigned(), revision: revision.cast_unsigned() }))
            }
            (_, _, Some(remaining)) => {
                Ok(TurnStart::Held { remaining: Duration::from_micros(remaining.max(0).cast_unsigned()) })
            }
            _ => Err(StoreError::SessionNotFound(key.clone())),
        }
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        let (fence, lease) = (fence.cast_signed(), micros(lease));
        let values: [&(dyn ToSql + Sync); 5] = [&&*key.app, &&*key.user, &&*key.id, &fence, &lease];
        let outcome = self.outcome("renew a turn of the session", key, Repeat::Safe, queries::RENEW_TURN, &values);
        outcome.await?.into_result(key).map(drop)
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        reject_partial(event)?;
        let failed = |error| StoreError::backend(format!("cannot write the event ({key})"), error);
        let json = str::from_utf8(event.json()).map_err(failed)?;
        let (fence, time, hash) = (fence.map(u64::cast_signed), event.timestamp.as_micros(), id_hash(&event.id));
        let (run, change) = (escape(&event.invocation_id), StateChange::from_delta(&event.actions.state_delta));
        let (scopes, keys, values, bytes) = change.columns();
        let rows = self
            .query(
                "append to the session",
                key,
                Repeat::Safe,
                queries::APPEND,
                &[&&*key.app, &&*key.user, &&*key.id, &fence, &hash, &time, &&*run, &json, scopes, keys, values, bytes],
            )
            .await?;
        let row = rows.first().ok_or_else(|| StoreError::SessionNotFound(key.clone()))?;
        let outcome = Outcome::from_name(row.try_get(0).map_err(self.unreadable(key))?);
        if !outcome.into_result(key)? {
            return Err(StoreError::EventExists(event.id.clone()));
        }
        row.try_get::<_, i64>(1).map(i64::cast_unsigned).map_err(self.unreadable(key))
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        Some(self)
    }

    fn runs(&self) -> Option<&dyn RunService> {
        Some(self)
    }

    async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        reads::usage(&self.database, key).await
    }
}

/// Returns a lease in microseconds, at most [`MAX_TURN_LEASE`].
fn micros(lease: Duration) -> i64 {
    i64::try_from(lease.min(MAX_TURN_LEASE).as_micros()).unwrap_or(i64::MAX)
}
