//! Sessions in a SQLite database (WAL mode).
//!
//! An event is one row with its unchanged JSON. Reading a session reads the rows of its events and state through
//! indexes, so other sessions and, with [`EventWindow::AfterRevision`], earlier events cost nothing. An append is one
//! transaction with one row, a few counters and the changed state keys. [`Durability`] determines what a crash can
//! lose; it is never a part of an append.
//!
//! There is one writing connection. At most one write per user waits for it, and other writes of the user wait for that
//! one, so that users get the connection in turn (round robin). A write waits for up to five seconds for each of the
//! two, then it fails with [`StoreError::Busy`]. Several processes may use one file; they also wait for each other's
//! writes for up to five seconds.

mod database;
mod failure;
mod journal;
mod queries;
mod state;
mod turns;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hatchery_core::{
    CallJournal, Event, EventWindow, JsonMap, Session, SessionKey, SessionService, SessionUsage, State, StateScope,
    StateUsage, StoreError, Timestamp, TurnStart, Usage, UserUsage,
};
use imbl::Vector;
use sha2::{Digest, Sha256};
use sqlx::sqlite::SqliteConnection;
use sqlx::{query, query_as, query_scalar};

use self::database::Database;
use self::failure::store_error;
use super::{new_session_id, reject_partial};
use crate::keyed_lock::{KeyedLock, KeyedLockGuard, MAX_WAIT, busy};

/// The kind of crash that a stored event survives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// A crash of the process. A power failure or a crash of the machine may lose the newest appends.
    #[default]
    Process,
    /// Also a power failure: every append waits until it is synced to disk.
    Power,
}

/// App and user.
type Owner = (Arc<str>, Arc<str>);

/// A [`SessionService`] in a SQLite database.
pub struct SqliteSessions {
    file: PathBuf,
    database: Database,
    /// Serializes the writes of each user.
    user_locks: KeyedLock<Owner>,
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
        let database = Database::open(&file, durability).await?;
        Ok(Self { file, database, user_locks: KeyedLock::default() })
    }

    /// Waits for running operations and closes the file. Later calls fail.
    pub async fn close(&self) {
        self.database.close().await;
    }

    fn error_for<'a>(&'a self, doing: &'a str, key: &'a SessionKey) -> impl FnOnce(sqlx::Error) -> StoreError + 'a {
        move |source| store_error(format!("session database {}: cannot {doing} ({key})", self.file.display()), source)
    }

    /// Waits for earlier writes of the user.
    async fn lock_user(&self, key: &SessionKey) -> Result<KeyedLockGuard<'_, Owner>, StoreError> {
        let guard = self.user_locks.acquire((key.app.clone(), key.user.clone()), MAX_WAIT).await;
        guard.ok_or_else(|| busy("other writes of this user are under way"))
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
        state::apply(&mut transaction, key, row, state).await?;
        let state = state::read(&mut transaction, key, row).await?;
        transaction.commit().await?;
        Ok(Some(state))
    }

    async fn read_session(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, sqlx::Error> {
        // In one transaction, so that state and events are consistent.
        let mut transaction = self.database.readers.begin().await?;
        let found: Option<(i64, i64, i64, i64)> = query_as(queries::FIND)
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.id)
            .fetch_optional(&mut *transaction)
            .await?;
        let Some((row, revision, created, updated)) = found else { return Ok(None) };
        let state = state::read(&mut transaction, key, row).await?;
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
        let shared = state::from_rows(shared)?;
        let mut states: HashMap<i64, State> = HashMap::new();
        for (row, name, value) in own {
            states.entry(row).or_insert_with(|| shared.clone()).set(&name, state::from_json(&value)?);
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

    /// Returns the new revision; `None` if the event was not inserted.
    async fn insert_event(
        &self,
        key: &SessionKey,
        event: &Event,
        fence: Option<u64>,
    ) -> Result<Option<u64>, sqlx::Error> {
        let json = str::from_utf8(event.json()).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let insert = query_as(queries::APPEND)
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.id)
            .bind(event.timestamp.as_micros())
            .bind(json)
            .bind(id_hash(&event.id))
            .bind(fence.map(u64::cast_signed));
        let delta = &event.actions.state_delta;
        // All rows are fetched, because a statement outside a transaction is committed only then.
        let inserted: Vec<(i64, i64)> = if delta.keys().all(|name| StateScope::of(name).0 == StateScope::Temp) {
            insert.fetch_all(&self.database.writer).await?
        } else {
            let mut transaction = self.database.writer.begin_with("BEGIN IMMEDIATE").await?;
            let inserted: Vec<(i64, i64)> = insert.fetch_all(&mut *transaction).await?;
            if let Some((row, _)) = inserted.first() {
                state::apply(&mut transaction, key, *row, delta).await?;
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

    async fn read_usage(&self, key: &SessionKey) -> Result<Usage, sqlx::Error> {
        let mut transaction = self.database.readers.begin().await?;
        let session: Option<(i64, i64, i64, i64)> = query_as(queries::SESSION_USAGE)
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.id)
            .fetch_optional(&mut *transaction)
            .await?;
        let user: Option<(i64, i64, i64, i64)> =
            query_as(queries::USER_USAGE).bind(&*key.app).bind(&*key.user).fetch_optional(&mut *transaction).await?;
        let app: Option<(i64, i64)> =
            query_as(queries::APP_USAGE).bind(&*key.app).fetch_optional(&mut *transaction).await?;
        let state = |keys: i64, bytes: i64| StateUsage { keys: keys.cast_unsigned(), bytes: bytes.cast_unsigned() };
        let session = session.map_or_else(SessionUsage::default, |(events, event_bytes, keys, bytes)| SessionUsage {
            events: events.cast_unsigned(),
            event_bytes: event_bytes.cast_unsigned(),
            state: state(keys, bytes),
        });
        let user = user.map_or_else(UserUsage::default, |(sessions, event_bytes, keys, bytes)| UserUsage {
            sessions: sessions.cast_unsigned(),
            event_bytes: event_bytes.cast_unsigned(),
            state: state(keys, bytes),
        });
        Ok(Usage { session, user, app: app.map_or_else(StateUsage::default, |(keys, bytes)| state(keys, bytes)) })
    }
}

#[async_trait]
impl SessionService for SqliteSessions {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        let key = SessionKey::new(app, user, new_session_id(id));
        let created = Timestamp::now();
        let _guard = self.lock_user(&key).await?;
        let inserted =
            self.insert_session(&key, created, &state).await.map_err(self.error_for("create the session", &key))?;
        match inserted {
            Some(state) => {
                Ok(Session { key, state, events: Vector::new(), revision: 0, created, last_update_time: created })
            }
            None => Err(StoreError::SessionExists(key)),
        }
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        self.read_session(key, window).await.map_err(self.error_for("read the session", key))
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        let (app, user): (Arc<str>, Arc<str>) = (app.into(), user.into());
        self.read_list(&app, &user).await.map_err(|source| {
            let file = self.file.display();
            let context = format!("session database {file}: cannot list the sessions of appName={app}, userId={user}");
            store_error(context, source)
        })
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        let _guard = self.lock_user(key).await?;
        self.delete_session(key).await.map_err(self.error_for("delete the session", key))
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        let _guard = self.lock_user(key).await?;
        let begun = self.database.begin_turn(key, previous, lease).await;
        begun.map_err(self.error_for("begin a turn of the session", key))?.ok_or_else(not_found(key))
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        let _guard = self.lock_user(key).await?;
        let renewed = self.database.renew_turn(key, fence, lease).await;
        match renewed.map_err(self.error_for("renew a turn of the session", key))? {
            Some(true) => Ok(()),
            Some(false) => Err(StoreError::Fenced(key.clone())),
            None => Err(not_found(key)()),
        }
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        reject_partial(event)?;
        let _guard = self.lock_user(key).await?;
        let doing = "append to the session";
        let inserted = self.insert_event(key, event, fence).await.map_err(self.error_for(doing, key))?;
        if let Some(revision) = inserted {
            return Ok(revision);
        }
        let found = self.database.find_event(key, &event.id).await.map_err(self.error_for(doing, key))?;
        match found.ok_or_else(not_found(key))? {
            Some((revision, json)) if json == event.json()[..] => Ok(revision),
            Some(_) => Err(StoreError::EventExists(event.id.clone())),
            None => Err(StoreError::Fenced(key.clone())),
        }
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        Some(self)
    }

    async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        self.read_usage(key).await.map_err(self.error_for("read what is used", key))
    }
}

/// Returns the key of an event in the index of ids.
fn id_hash(id: &str) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(id));
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

fn not_found(key: &SessionKey) -> impl Fn() -> StoreError + '_ {
    move || StoreError::SessionNotFound(key.clone())
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
    let rows: Vec<(i64, Vec<u8>)> =
        query_as(queries::EVENTS).bind(row).bind(after).bind(since).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(revision, json)| read_event(row, revision.cast_unsigned(), json.into())).collect())
}

/// Parses an event. One that cannot be read is replaced by a placeholder, so that its session stays readable.
fn read_event(session: i64, revision: u64, json: Bytes) -> Arc<Event> {
    Event::from_json(json.clone()).unwrap_or_else(|error| {
        tracing::error!(session, revision, %error, "a stored event cannot be read and is left out");
        Event::unreadable(&json, revision, &error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Content, EventActions, EventData};
    use serde_json::json;
    use sqlx::{AssertSqlSafe, Row};

    use super::*;

    #[tokio::test]
    async fn every_statement_finds_its_rows_through_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
        let state = [state::Table::Session, state::Table::User, state::Table::App].map(|table| table.delete_sql(8));
        let statements = [
            queries::FIND,
            queries::STATE,
            queries::EVENTS,
            queries::LIST,
            queries::LIST_STATE,
            queries::SHARED_STATE,
            queries::DELETE,
            queries::APPEND,
            queries::FIND_EVENT,
            queries::BEGIN_TURN,
            queries::RENEW_TURN,
            queries::FIND_LEASE,
            queries::RECORD_CALL,
            queries::CALLS,
            queries::DELETE_CALLS,
            queries::MARK_FINISHED,
            queries::SESSION_USAGE,
            queries::USER_USAGE,
            queries::APP_USAGE,
        ];
        for statement in statements.into_iter().chain(state.iter().map(String::as_str)) {
            let explain = format!("EXPLAIN QUERY PLAN {statement}");
            let plan = query(AssertSqlSafe(explain)).fetch_all(&sessions.database.writer).await.unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.get("detail")).collect();
            assert!(plan.iter().any(|step| step.contains("SEARCH")), "{statement}\n{plan:?}");
            assert!(!plan.iter().any(|step| step.contains("SCAN")), "{statement}\n{plan:?}");
        }
    }

    fn event(text: &str, state: serde_json::Value) -> Arc<Event> {
        let state_delta = serde_json::from_value(state).unwrap();
        Event::new(EventData {
            content: Some(Arc::new(Content::user(text))),
            actions: EventActions { state_delta, ..EventActions::default() },
            ..EventData::default()
        })
    }

    /// Limits the pages of the file, as if the disk were full.
    async fn fill_the_disk(sessions: &SqliteSessions) {
        let limit = "PRAGMA max_page_count = 1";
        query(limit).execute(&sessions.database.writer).await.unwrap();
    }

    #[tokio::test]
    async fn on_a_full_disk_only_the_append_fails_and_writes_work_again_when_there_is_space() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
        let key = sessions.create("app", "ann", Some("s"), JsonMap::new()).await.unwrap().key;
        let large = "x".repeat(8000);
        for state in [json!({}), json!({"a": large.clone(), "user:b": large.clone()})] {
            fill_the_disk(&sessions).await;
            let mut acknowledged = sessions.usage(&key).await.unwrap().session.events;
            let error = loop {
                match sessions.append(&key, &event(&large, state.clone())).await {
                    Ok(revision) => acknowledged = revision,
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
            assert_eq!(error.code(), "STORE_FULL");
            let (text, file) = (error.to_string(), sessions.file.display());
            let expected = format!("session database {file}: cannot append to the session ({key}): no space is left: ");
            assert!(text.starts_with(&expected), "{text}");
            let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
            assert_eq!((session.revision, session.events.len() as u64), (acknowledged, acknowledged));

            // Space is freed.
            query("PRAGMA max_page_count = 1073741823").execute(&sessions.database.writer).await.unwrap();
            let append = event(&large, json!({"c": large.clone(), "app:d": large.clone()}));
            assert_eq!(sessions.append(&key, &append).await.unwrap(), acknowledged + 1);
            sessions.create("app", "ann", None, JsonMap::new()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_write_that_waits_too_long_for_the_writer_is_told_to_retry() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
        let [ann, bob] = ["ann", "bob"].map(|user| SessionKey::new("app", user, "s"));
        sessions.create("app", "ann", Some("s"), JsonMap::new()).await.unwrap();
        let connection = sessions.database.writer.acquire().await.unwrap();
        let (first, second) = (event("one", json!({})), event("two", json!({})));
        tokio::time::pause();
        // The second write of the user waits for the first one, not for the writer.
        let (first, second) = futures::join!(sessions.append(&ann, &first), sessions.append(&ann, &second));
        let (first, second) = (first.unwrap_err(), second.unwrap_err());
        assert_eq!((first.code(), second.code()), ("STORE_BUSY", "STORE_BUSY"));
        let advice = "this request has waited for 5 s and nothing was changed; try again in 1 s";
        assert_eq!(first.to_string(), format!("the session database is busy: {advice}"));
        let delete = sessions.delete(&bob).await.unwrap_err();
        assert_eq!(delete.to_string(), first.to_string());
        tokio::time::resume();
        drop(connection);
        assert_eq!(sessions.append(&ann, &event("three", json!({}))).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn the_writes_of_one_user_leave_the_writer_to_others_in_between() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
        let [ann, bob] = ["ann", "bob"].map(|user| SessionKey::new("app", user, "s"));
        for key in [&ann, &bob] {
            sessions.create(&key.app, &key.user, Some(&key.id), JsonMap::new()).await.unwrap();
        }
        let connection = sessions.database.writer.acquire().await.unwrap();
        let order = std::sync::Mutex::new(Vec::new());
        let append = async |key: &SessionKey| {
            sessions.append(key, &event("hi", json!({}))).await.unwrap();
            order.lock().unwrap().push(key.user.to_string());
        };
        let flood = futures::future::join_all((0..50).map(|_| append(&ann)));
        let release = async {
            tokio::task::yield_now().await;
            drop(connection);
        };
        // All writes of the flood are requested before that of the other user.
        futures::join!(flood, append(&bob), release);
        let order = order.into_inner().unwrap();
        let position = order.iter().position(|user| user == "bob").unwrap();
        assert!(position <= 2, "the other user's write came after {position} of the flood");
    }
}
