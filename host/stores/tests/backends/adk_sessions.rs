//! Databases of ADK for Python, made by it if it can be installed, else from a dump of one that it has made.

use std::path::Path;
use std::process::Command;

use hatchery_core::{EventWindow, PartData, SessionImport, SessionKey, SessionService, StoreError};
use hatchery_stores::MemorySessions;
use hatchery_stores::adk_sessions::AdkSessions;
use rusqlite::Connection;
use serde_json::json;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/adk_sessions.py");
const DUMP: &str = include_str!("../fixtures/adk_sessions.sql");

fn from_dump(file: &Path) {
    Connection::open(file).unwrap().execute_batch(DUMP).unwrap();
}

/// Writes a database with ADK. Returns false, after a message, if it cannot be installed here.
#[cfg(feature = "object-store")]
fn from_adk(file: &Path) -> bool {
    let folder = crate::object_stores::installed("google-adk-2.13.0", |folder| {
        let environment = folder.join("venv");
        crate::object_stores::run(Command::new("python3").arg("-m").arg("venv").arg(&environment))?;
        let mut install = Command::new(environment.join("bin/pip"));
        crate::object_stores::run(install.args(["install", "--quiet", "google-adk==2.13.0"]))
    });
    match folder {
        Ok(folder) => {
            let mut python = Command::new(folder.join("venv/bin/python"));
            crate::object_stores::run(python.arg(SCRIPT).arg(file)).unwrap();
            true
        }
        Err(reason) => {
            crate::object_stores::skip("a database of ADK for Python, which is replaced by a dump", &reason);
            false
        }
    }
}

#[cfg(not(feature = "object-store"))]
fn from_adk(_: &Path) -> bool {
    let _ = (SCRIPT, Command::new("python3"));
    false
}

async fn check(file: &Path) {
    let database = AdkSessions::open(file).await.unwrap();
    let keys = async |app, user| {
        let keys = database.keys(app, user).await.unwrap();
        keys.iter().map(|key| key.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(keys(None, None).await, ["first", "empty", "elsewhere"]);
    assert_eq!(
        (keys(Some("app"), None).await, keys(None, Some("bob")).await),
        (vec!["first".into(), "empty".into()], vec!["empty".to_owned()])
    );

    let key = SessionKey::new("app", "ada", "first");
    let read = database.read(&key).await.unwrap();
    let state = json!({"mood": "better", "snake_key": 2, "user:name": "Ann", "app:theme": {"dark_mode": true}});
    assert_eq!(json!(read.state), state);
    let sessions = MemorySessions::new();
    let import = SessionImport::ending_with(read.state, read.events).unwrap();
    let stored = import.store(&sessions, &key.app, &key.user, Some(&key.id)).await.unwrap();
    assert_eq!(serde_json::to_value(&stored.state).unwrap(), state);
    let ids: Vec<_> = stored.events.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids, ["e0", "e1", "e2", "e3"]);
    let event = |index: usize| &stored.events[index];
    assert_eq!((event(0).author.as_str(), event(3).invocation_id.as_str()), ("user", "i1"));
    assert_eq!(event(1).timestamp.as_micros(), 1_700_000_001_500_000);
    assert_eq!(event(3).content.as_ref().unwrap().text(), "It is windy");
    assert_eq!(event(1).long_running_tool_ids, ["c1"]);
    assert_eq!(event(3).actions.artifact_delta.keys().collect::<Vec<_>>(), ["my_file.txt"]);
    let part = |index: usize| &event(index).content.as_ref().unwrap().parts[0].data;
    let PartData::FunctionCall(call) = part(1) else { panic!("{:?}", part(1)) };
    assert_eq!((call.name.as_str(), json!(call.args)), ("get_weather", json!({"city_name": "Rome"})));
    let PartData::FunctionResponse(response) = part(2) else { panic!("{:?}", part(2)) };
    assert_eq!(json!(response.response), json!({"wind_speed": 3}));
    let rewound = sessions.rewind(&key, 2).await.unwrap();
    assert_eq!(rewound.state.get("snake_key"), Some(&json!(1)));
    assert!(sessions.get(&key, EventWindow::All).await.unwrap().is_some());

    let unknown = database.read(&SessionKey::new("app", "ada", "none")).await.err().unwrap();
    assert!(matches!(unknown, StoreError::SessionNotFound(_)), "{unknown}");
}

#[tokio::test]
async fn sessions_that_adk_for_python_has_stored_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let dumped = folder.path().join("dumped.db");
    from_dump(&dumped);
    check(&dumped).await;
    let written = folder.path().join("written.db");
    let own = written.clone();
    if tokio::task::spawn_blocking(move || from_adk(&own)).await.unwrap() {
        check(&written).await;
    }
}

#[tokio::test]
async fn other_databases_and_databases_of_earlier_versions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, tables, reason) in [
        ("other.db", "CREATE TABLE events (id TEXT)", "is not a database of sessions of ADK for Python"),
        (
            "old.db",
            "CREATE TABLE events (id TEXT, app_name TEXT, actions BLOB)",
            "was written by an earlier version of ADK for Python: convert it with its command `adk migrate session`",
        ),
    ] {
        let file = folder.path().join(name);
        Connection::open(&file).unwrap().execute_batch(tables).unwrap();
        let error = AdkSessions::open(&file).await.err().unwrap().to_string();
        assert_eq!(error, format!("{} {reason}", file.display()));
    }
    assert!(AdkSessions::open(folder.path().join("none.db")).await.is_err());
}
