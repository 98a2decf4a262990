//! Sessions in a SQLite file.
//!
//! An event is one row with its JSON as it came; reading a session takes the rows of its events and of its state through indexes, so
//! other sessions and, with [`EventWindow::AfterRevision`], earlier events cost nothing. An append is one transaction of one row, a
//! counter and the state keys that change. The log is synchronised at checkpoints only: a crash of the process loses
//! nothing, a crash of the machine may lose the newest appends but never half of one. Several processes may use one file; they
//! wait for each other's writes for up to five seconds.

mod database;
mod queries;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use hatchery_core::state::{Scope, is_removal};
use hatchery_core::{Event, EventWindow, JsonMap, Session, SessionKey, SessionService, State, StoreError, Timestamp};
use imbl::Vector;
use sqlx::sqlite::SqliteConnection;
use sqlx::{query, query_as, query_scalar};

use self::database::Database;
use super::{new_session_id, refuse_partial};

/// A [`SessionService`] on a SQLite file.
pub struct SqliteSessions {
    file: PathBuf,
    database: Database,
}

impl SqliteSessions {
    /// Opens the database, making the file and the folders above it when they are missing.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for another program's database or one of a newer version, [`StoreError::Backend`] when the
    /// file cannot be used.
    pub async fn open(file: impl AsRef<Path>) -> Result<Self, StoreError> {
        let file = file.as_ref().to_owned();
        let database = Database::open(&file).await?;
        Ok(Self { file, database })
    }

    /// Waits for what is under way and closes the file. Whatever is asked afterwards fails.
    pub async fn close(&self) {
        self.database.close().await;
    }

    fn failed<'a>(&'a self, doing: &'a str, key: &'a SessionKey) -> impl FnOnce(sqlx::Error) -> StoreError + 'a {
        move |source| {
            StoreError::backend(format!("session database {}: cannot {doing} ({key})", self.file.display()), source)
        }
    }

    async fn insert_session(
        &self,
        key: &SessionKey,
        created: Timestamp,
        state: &JsonMap,
    ) -> Result<Option<State>, sqlx::Error> {
        let mut transaction = self.database.writer.begin_with("BEGIN IMMEDIATE").await?;
        let row: Option<i64> = query_scalar(queries::CREATE)
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.id)
            .bind(created.as_micros())
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(row) = row else { return Ok(None) };
        apply(&mut transaction, key, row, state).await?;
        let state = read_state(&mut transaction, key, row).await?;
        transaction.commit().await?;
        Ok(Some(state))
    }

    async fn read_session(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, sqlx::Error> {
        // All of it in one transaction, so that state and events fit together.
        let mut transaction = self.database.readers.begin().await?;
        let found: Option<(i64, i64, i64, i64)> = query_as(queries::FIND)
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.id)
            .fetch_optional(&mut *transaction)
            .await?;
        let Some((row, revision, created, updated)) = found else { return Ok(None) };
        let state = read_state(&mut transaction, key, row).await?;
        let events = read_events(&mut transaction, row, revision, window).await?;
        Ok(Some(Session {
            key: key.clone(),
            state,
            events,
            revision: revision.cast_unsigned(),
            created: Timestamp::from_micros(created),
            last_update_time: Timestamp::from_micros(updated),
        }))
    }

    async fn read_list(&self, app: &Arc<str>, user: &Arc<str>) -> Result<Vec<Session>, sqlx::Error> {
        let mut transaction = self.database.readers.begin().await?;
        let found: Vec<(i64, String, i64, i64, i64)> =
            query_as(queries::LIST).bind(&**app).bind(&**user).fetch_all(&mut *transaction).await?;
        let shared: Vec<(String, String)> =
            query_as(queries::SHARED_STATE).bind(&**app).bind(&**user).fetch_all(&mut *transaction).await?;
        let own: Vec<(i64, String, String)> =
            query_as(queries::LIST_STATE).bind(&**app).bind(&**user).fetch_all(&mut *transaction).await?;
        drop(transaction);
        let shared = state_of(shared)?;
        let mut states: HashMap<i64, State> = HashMap::new();
        for (row, name, value) in own {
            states.entry(row).or_insert_with(|| shared.clone()).set(&name, from_json(&value)?);
        }
        let session = |(row, id, revision, created, updated): (i64, String, i64, i64, i64)| Session {
            key: SessionKey::new(app.clone(), user.clone(), id),
            state: states.remove(&row).unwrap_or_else(|| shared.clone()),
            events: Vector::new(),
            revision: revision.cast_unsigned(),
            created: Timestamp::from_micros(created),
            last_update_time: Timestamp::from_micros(updated),
        };
        Ok(found.into_iter().map(session).collect())
    }

    /// Gives the new revision, or `None` when there is no such session.
    async fn insert_event(&self, key: &SessionKey, event: &Event) -> Result<Option<u64>, sqlx::Error> {
        let json = str::from_utf8(event.json()).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let insert = query_as(queries::APPEND)
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.id)
            .bind(event.timestamp.as_micros())
            .bind(json);
        let delta = &event.actions.state_delta;
        // Rows are fetched to the end: only then has a statement that is its own transaction been committed.
        let inserted: Vec<(i64, i64)> = if delta.keys().all(|name| Scope::of(name).0 == Scope::Temp) {
            insert.fetch_all(&self.database.writer).await?
        } else {
            let mut transaction = self.database.writer.begin_with("BEGIN IMMEDIATE").await?;
            let inserted: Vec<(i64, i64)> = insert.fetch_all(&mut *transaction).await?;
            if let Some((row, _)) = inserted.first() {
                apply(&mut transaction, key, *row, delta).await?;
            }
            transaction.commit().await?;
            inserted
        };
        Ok(inserted.first().map(|(_, revision)| revision.cast_unsigned()))
    }

    async fn delete_session(&self, key: &SessionKey) -> Result<(), sqlx::Error> {
        query(queries::DELETE)
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.id)
            .execute(&self.database.writer)
            .await
            .map(drop)
    }
}

#[async_trait]
impl SessionService for SqliteSessions {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        let key = SessionKey::new(app, user, new_session_id(id));
        let created = Timestamp::now();
        let inserted =
            self.insert_session(&key, created, &state).await.map_err(self.failed("create the session", &key))?;
        match inserted {
            Some(state) => {
                Ok(Session { key, state, events: Vector::new(), revision: 0, created, last_update_time: created })
            }
            None => Err(StoreError::SessionExists(key)),
        }
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        self.read_session(key, window).await.map_err(self.failed("read the session", key))
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        let (app, user): (Arc<str>, Arc<str>) = (app.into(), user.into());
        self.read_list(&app, &user).await.map_err(|source| {
            let file = self.file.display();
            let what = format!("session database {file}: cannot list the sessions of appName={app}, userId={user}");
            StoreError::backend(what, source)
        })
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.delete_session(key).await.map_err(self.failed("delete the session", key))
    }

    async fn append(&self, key: &SessionKey, event: &Arc<Event>) -> Result<u64, StoreError> {
        refuse_partial(event)?;
        let appended = self.insert_event(key, event).await.map_err(self.failed("append to the session", key))?;
        appended.ok_or_else(|| StoreError::SessionNotFound(key.clone()))
    }
}

async fn read_state(connection: &mut SqliteConnection, key: &SessionKey, row: i64) -> Result<State, sqlx::Error> {
    let rows = query_as(queries::STATE).bind(row).bind(&*key.app).bind(&*key.user).fetch_all(connection).await?;
    state_of(rows)
}

fn state_of(rows: Vec<(String, String)>) -> Result<State, sqlx::Error> {
    let mut state = State::default();
    for (name, value) in rows {
        state.set(&name, from_json(&value)?);
    }
    Ok(state)
}

/// Revisions count events without a gap, so every window but [`EventWindow::Since`] is a range of them.
async fn read_events(
    connection: &mut SqliteConnection,
    row: i64,
    revision: i64,
    window: EventWindow,
) -> Result<Vector<Arc<Event>>, sqlx::Error> {
    let (after, since) = match window {
        EventWindow::All => (0, i64::MIN),
        EventWindow::Recent(count) => (revision.saturating_sub_unsigned(count as u64), i64::MIN),
        EventWindow::Since(time) => (0, time.as_micros()),
        EventWindow::AfterRevision(seen) => (i64::try_from(seen).unwrap_or(i64::MAX), i64::MIN),
    };
    if after >= revision {
        return Ok(Vector::new());
    }
    let rows: Vec<Vec<u8>> =
        query_scalar(queries::EVENTS).bind(row).bind(after).bind(since).fetch_all(connection).await?;
    rows.into_iter()
        .map(|json| Event::from_json(Bytes::from(json)).map_err(|error| sqlx::Error::Decode(error.into())))
        .collect()
}

/// Applies a delta to the rows of whoever owns each key.
async fn apply(
    connection: &mut SqliteConnection,
    key: &SessionKey,
    row: i64,
    delta: &JsonMap,
) -> Result<(), sqlx::Error> {
    for (name, value) in delta {
        let removal = is_removal(value);
        let statement = match Scope::of(name).0 {
            Scope::Session => query(if removal { queries::UNSET_SESSION } else { queries::SET_SESSION }).bind(row),
            Scope::User => {
                query(if removal { queries::UNSET_USER } else { queries::SET_USER }).bind(&*key.app).bind(&*key.user)
            }
            Scope::App => query(if removal { queries::UNSET_APP } else { queries::SET_APP }).bind(&*key.app),
            Scope::Temp => continue,
        };
        let statement = statement.bind(name);
        let statement = if removal { statement } else { statement.bind(value.to_string()) };
        statement.execute(&mut *connection).await?;
    }
    Ok(())
}

fn from_json(text: &str) -> Result<serde_json::Value, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Row};

    use super::*;

    #[tokio::test]
    async fn every_statement_finds_its_rows_through_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
        for statement in [
            queries::FIND,
            queries::STATE,
            queries::EVENTS,
            queries::LIST,
            queries::LIST_STATE,
            queries::SHARED_STATE,
            queries::DELETE,
            queries::APPEND,
            queries::UNSET_SESSION,
            queries::UNSET_USER,
            queries::UNSET_APP,
        ] {
            let explain = format!("EXPLAIN QUERY PLAN {statement}");
            let plan = query(AssertSqlSafe(explain)).fetch_all(&sessions.database.writer).await.unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.get("detail")).collect();
            assert!(plan.iter().any(|step| step.contains("SEARCH")), "{statement}\n{plan:?}");
            assert!(!plan.iter().any(|step| step.contains("SCAN")), "{statement}\n{plan:?}");
        }
    }
}
