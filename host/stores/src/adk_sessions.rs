//! SQLite databases with the sessions of ADK for Python, which are only read.
//!
//! Its service for SQLite and its service for SQL databases have the same tables: sessions, events as JSON, and the
//! state that sessions share. Events of earlier versions are Python objects, which its own command converts.

use std::path::{Path, PathBuf};

use hatchery_core::{EventData, JsonMap, SessionKey, StoreError};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde_json::Value;

/// A database of ADK for Python.
pub struct AdkSessions {
    file: PathBuf,
}

pub struct AdkSession {
    /// The state at its end, with the shared state of its user and its app.
    pub state: JsonMap,
    /// The events, oldest first.
    pub events: Vec<EventData>,
}

/// Keys of events whose values have their own keys, which no schema defines.
const FREE_KEYS: [&str; 8] = [
    "args",
    "response",
    "state_delta",
    "artifact_delta",
    "custom_metadata",
    "requested_auth_configs",
    "agent_state",
    "payload",
];

impl AdkSessions {
    /// Opens a database.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if the file is no such database, or one of an earlier version of ADK.
    pub async fn open(file: impl AsRef<Path>) -> Result<Self, StoreError> {
        let database = Self { file: file.as_ref().to_owned() };
        let columns = database.run("read", |connection| {
            let mut select = connection.prepare("SELECT name FROM pragma_table_info('events')")?;
            select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()
        });
        let columns = columns.await?;
        let has = |name: &str| columns.iter().any(|column| column == name);
        let reason = if has("event_data") && has("app_name") {
            return Ok(database);
        } else if has("actions") && has("app_name") {
            "was written by an earlier version of ADK for Python: convert it with its command `adk migrate session`"
        } else {
            "is not a database of sessions of ADK for Python"
        };
        Err(StoreError::InvalidRequest(format!("{} {reason}", database.file.display())))
    }

    /// Returns the sessions, of one app and one user if these are given.
    ///
    /// # Errors
    /// [`StoreError::Backend`] if the file cannot be read.
    pub async fn keys(&self, app: Option<&str>, user: Option<&str>) -> Result<Vec<SessionKey>, StoreError> {
        let (app, user) = (app.map(str::to_owned), user.map(str::to_owned));
        self.run("list the sessions of", move |connection| {
            let mut select = connection.prepare(
                "SELECT app_name, user_id, id FROM sessions \
                 WHERE (?1 IS NULL OR app_name = ?1) AND (?2 IS NULL OR user_id = ?2) ORDER BY 1, 2, 3",
            )?;
            let keys = select.query_map(params![app, user], |row| {
                Ok(SessionKey::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
            })?;
            keys.collect()
        })
        .await
    }

    /// Reads a session.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`], [`StoreError::InvalidRequest`] for an event that cannot be read, and
    /// [`StoreError::Backend`] if the file cannot be read.
    pub async fn read(&self, key: &SessionKey) -> Result<AdkSession, StoreError> {
        let own_key = key.clone();
        let read = self.run("read a session of", move |connection| read_rows(connection, &own_key)).await?;
        let (states, events) = read.ok_or_else(|| StoreError::SessionNotFound(key.clone()))?;
        let unreadable = |what: &str, error: serde_json::Error| {
            StoreError::InvalidRequest(format!("{}: {what} cannot be read: {error} ({key})", self.file.display()))
        };
        let mut state = JsonMap::new();
        for (prefix, json) in states {
            let part: JsonMap = serde_json::from_str(&json).map_err(|error| unreadable("the state", error))?;
            state.extend(part.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)));
        }
        let mut parsed = Vec::with_capacity(events.len());
        for (id, json) in events {
            let event = serde_json::from_str(&json).map(to_camel_case).and_then(serde_json::from_value);
            parsed.push(event.map_err(|error| unreadable(&format!("the event `{id}`"), error))?);
        }
        Ok(AdkSession { state, events: parsed })
    }

    async fn run<T: Send + 'static>(
        &self,
        activity: &str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let file = self.file.clone();
        let result = tokio::task::spawn_blocking(move || {
            let connection = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            read(&connection)
        });
        let context = || format!("cannot {activity} {}", self.file.display());
        let result = result.await.map_err(|error| StoreError::backend(context(), error))?;
        result.map_err(|error| StoreError::backend(context(), error))
    }
}

/// Prefixes of keys with the JSON of state, and events by their ids.
type Rows = (Vec<(&'static str, String)>, Vec<(String, String)>);

/// Returns the JSON of the session's states and events; `None` if it does not exist.
fn read_rows(connection: &Connection, key: &SessionKey) -> rusqlite::Result<Option<Rows>> {
    let mut states = Vec::new();
    for (prefix, select) in [
        ("", "SELECT state FROM sessions WHERE app_name = ?1 AND user_id = ?2 AND id = ?3"),
        ("user:", "SELECT state FROM user_states WHERE app_name = ?1 AND user_id = ?2 AND ?3 IS NOT NULL"),
        ("app:", "SELECT state FROM app_states WHERE app_name = ?1 AND ?2 IS NOT NULL AND ?3 IS NOT NULL"),
    ] {
        let state: Option<Option<String>> =
            connection.query_row(select, params![key.app, key.user, key.id], |row| row.get(0)).optional()?;
        match state {
            Some(json) => states.push((prefix, json.unwrap_or_else(|| "{}".to_owned()))),
            None if prefix.is_empty() => return Ok(None),
            None => {}
        }
    }
    let mut select = connection.prepare(
        "SELECT id, event_data FROM events WHERE app_name = ?1 AND user_id = ?2 AND session_id = ?3 AND event_data IS NOT NULL \
         ORDER BY timestamp, rowid",
    )?;
    let events = select.query_map(params![key.app, key.user, key.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Some((states, events.collect::<rusqlite::Result<_>>()?)))
}

/// Writes the keys of an event's schema as Hatchery and ADK's API do. Python writes them with underscores.
fn to_camel_case(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map.into_iter().map(convert_entry).collect()),
        Value::Array(items) => Value::Array(items.into_iter().map(to_camel_case).collect()),
        other => other,
    }
}

fn convert_entry((key, value): (String, Value)) -> (String, Value) {
    let value = match value {
        value if FREE_KEYS.contains(&key.as_str()) => value,
        // By the ids of calls.
        Value::Object(calls) if key == "requested_tool_confirmations" => {
            Value::Object(calls.into_iter().map(|(id, value)| (id, to_camel_case(value))).collect())
        }
        value => to_camel_case(value),
    };
    (camel_case(&key), value)
}

fn camel_case(key: &str) -> String {
    let mut words = key.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut characters = word.chars();
        camel.extend(characters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(characters.as_str());
    }
    camel
}
