//! Sessions in a SQLite file.

mod lists;
mod schema;
mod turns;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use futures::future::join_all;
use hatchery_core::{
    Content, Event, EventActions, EventData, EventWindow, JsonMap, SessionKey, SessionService, StoreError,
};
use hatchery_stores::SqliteSessions;
use hatchery_test_support::typical_event;
use rusqlite::Connection;
use serde_json::json;

/// Opens the file as another program does.
fn raw(file: &Path) -> Connection {
    Connection::open(file).unwrap()
}

fn execute(connection: &Connection, sql: &str) {
    connection.execute_batch(sql).unwrap();
}

/// Returns the error of a call.
fn error<T>(result: Result<T, StoreError>) -> StoreError {
    result.err().expect("this should fail")
}

fn user_event(text: &str) -> Arc<Event> {
    let content = Some(Arc::new(Content::user(text)));
    Event::new(EventData { author: "user".into(), content, ..EventData::default() })
}

#[tokio::test]
async fn everything_is_found_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("missing/folders/sessions.db");
    let state: JsonMap = serde_json::from_value(json!({"a": 1, "user:b": 2, "app:c": 3})).unwrap();
    let before = SqliteSessions::open(&file).await.unwrap();
    let created = before.create("app", "ann", Some("s1"), state).await.unwrap();
    let events = [user_event("hello"), user_event("again")];
    for event in &events {
        before.append(&created.key, event).await.unwrap();
    }
    before.close().await;

    let after = SqliteSessions::open(&file).await.unwrap();
    let found = after.get(&created.key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!((found.created, found.revision), (created.created, 2));
    assert_eq!(found.last_update_time, events[1].timestamp);
    assert_eq!(found.state, created.state);
    assert!(found.events.iter().zip(&events).all(|(found, event)| ***found == ***event), "{found:?}");
    assert_eq!(after.append(&created.key, &user_event("more")).await.unwrap(), 3);
}

#[tokio::test]
async fn appended_events_survive_a_process_that_never_closes_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
    let key = sessions.create("app", "ann", None, JsonMap::new()).await.unwrap().key;
    sessions.append(&key, &user_event("hello")).await.unwrap();

    // A killed process leaves the files as they are now.
    let left = tempfile::tempdir().unwrap();
    for name in ["sessions.db", "sessions.db-wal"] {
        std::fs::copy(folder.path().join(name), left.path().join(name)).unwrap();
    }
    let after = SqliteSessions::open(left.path().join("sessions.db")).await.unwrap();
    assert_eq!(after.get(&key, EventWindow::All).await.unwrap().unwrap().events.len(), 1);
}

#[tokio::test]
async fn appended_events_are_visible_to_other_connections_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let (one, other) = (SqliteSessions::open(&file).await.unwrap(), SqliteSessions::open(&file).await.unwrap());
    let key = one.create("app", "ann", None, JsonMap::new()).await.unwrap().key;
    one.append(&key, &user_event("hello")).await.unwrap();
    assert_eq!(other.get(&key, EventWindow::All).await.unwrap().unwrap().events.len(), 1);
    assert_eq!(other.append(&key, &user_event("hi")).await.unwrap(), 2);
    assert_eq!(one.get(&key, EventWindow::AfterRevision(1)).await.unwrap().unwrap().events.len(), 1);
    other.delete(&key).await.unwrap();
    assert!(matches!(error(one.append(&key, &user_event("still there?")).await), StoreError::SessionNotFound(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handles_on_a_file_append_concurrently() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let handles = [SqliteSessions::open(&file).await.unwrap(), SqliteSessions::open(&file).await.unwrap()];
    let key = handles[0].create("app", "ann", None, JsonMap::new()).await.unwrap().key;
    let appends = (0..100).map(|number| {
        let state_delta: JsonMap =
            if number % 3 == 0 { [("n".into(), number.into())].into_iter().collect() } else { JsonMap::new() };
        let actions = EventActions { state_delta, ..EventActions::default() };
        let (sessions, key) = (&handles[number % 2], &key);
        async move { sessions.append(key, &Event::new(EventData { actions, ..EventData::default() })).await }
    });
    let revisions: BTreeSet<u64> = join_all(appends).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(revisions, (1..=100).collect());
    assert_eq!(handles[1].get(&key, EventWindow::All).await.unwrap().unwrap().events.len(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_file_may_be_opened_concurrently() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessions.db");
        let opened = join_all((0..8).map(|_| SqliteSessions::open(&file))).await;
        for sessions in opened {
            sessions.unwrap().create("app", "ann", None, JsonMap::new()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_append_waits_for_another_programs_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let key = sessions.create("app", "ann", None, JsonMap::new()).await.unwrap().key;
    let other = raw(&file);
    execute(&other, "BEGIN IMMEDIATE");
    let event = user_event("hello");
    let append = sessions.append(&key, &event);
    let (revision, ()) = futures::join!(append, async { execute(&other, "COMMIT") });
    assert_eq!(revision.unwrap(), 1);
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error_text = error(SqliteSessions::open(folder.path()).await).to_string();
    let expected = format!("cannot open session database {}: ", folder.path().display());
    assert!(error_text.starts_with(&expected), "{error_text}");

    let not_a_folder = folder.path().join("file");
    std::fs::write(&not_a_folder, "text").unwrap();
    let file = not_a_folder.join("sessions.db");
    let error_text = error(SqliteSessions::open(&file).await).to_string();
    let expected = format!("cannot make the folder of session database {}: ", file.display());
    assert!(error_text.starts_with(&expected), "{error_text}");

    let error_text = error(SqliteSessions::open(&not_a_folder).await).to_string();
    assert!(error_text.contains(&*not_a_folder.to_string_lossy()), "{error_text}");
}

#[tokio::test]
async fn an_event_that_cannot_be_read_leaves_its_session_readable() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let key = sessions.create("app", "ann", Some("s1"), JsonMap::new()).await.unwrap().key;
    for text in ["one", "two", "three"] {
        sessions.append(&key, &user_event(text)).await.unwrap();
    }
    // The first has two values for one key, the second is no JSON at all.
    let twice = "UPDATE events SET json = '{\"id\":\"e1\",\"author\":\"ann\",\"timestamp\":5.5,\"actions\":\
                 {\"stateDelta\":{\"a\":1},\"stateDelta\":{\"a\":2}}}' WHERE revision = 1";
    execute(&raw(&file), twice);
    execute(&raw(&file), "UPDATE events SET json = 'damaged' WHERE revision = 2");
    let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    let texts: Vec<_> = session.events.iter().map(|event| event.content.as_ref().map(|it| it.text())).collect();
    assert_eq!(texts, [None, None, Some("three".into())]);
    let codes: Vec<_> = session.events.iter().map(|event| event.error_code.as_deref()).collect();
    assert_eq!(codes, [Some("UNREADABLE_EVENT"), Some("UNREADABLE_EVENT"), None]);
    let (first, second) = (&session.events[0], &session.events[1]);
    assert_eq!((first.id.as_str(), first.author.as_str(), first.timestamp.as_seconds()), ("e1", "ann", 5.5));
    assert!(first.actions.is_empty(), "it changes nothing");
    assert_eq!((second.id.as_str(), second.author.as_str()), ("unreadable-2", "hatchery"));
    let message = second.error_message.as_deref().unwrap();
    assert!(message.starts_with("event 2 of the session cannot be read and is left out: expected value"), "{message}");
    let again = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert!(
        again.events.iter().zip(&session.events).all(|(one, other)| ***one == ***other),
        "each reading is the same"
    );
    assert_eq!(sessions.append(&key, &user_event("four")).await.unwrap(), 4);
}

#[tokio::test]
async fn errors_name_the_file_and_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let key = sessions.create("app", "ann", Some("s1"), JsonMap::new()).await.unwrap().key;
    sessions.append(&key, &user_event("hello")).await.unwrap();
    sessions.close().await;
    for (error, activity) in [
        (
            error(sessions.get(&key, EventWindow::All).await).to_string(),
            "read the session (appName=app, userId=ann, sessionId=s1)",
        ),
        (
            error(sessions.append(&key, &user_event("hello")).await).to_string(),
            "append to the session (appName=app, userId=ann, sessionId=s1)",
        ),
        (error(sessions.delete(&key).await).to_string(), "delete the session (appName=app, userId=ann, sessionId=s1)"),
        (
            error(sessions.create("app", "ann", Some("s2"), JsonMap::new()).await).to_string(),
            "create the session (appName=app, userId=ann, sessionId=s2)",
        ),
        (error(sessions.list("app", "ann").await).to_string(), "list the sessions of appName=app, userId=ann"),
    ] {
        let expected = format!("session database {}: cannot {activity}: ", file.display());
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[tokio::test]
async fn a_failed_append_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let key = sessions.create("app", "ann", None, JsonMap::new()).await.unwrap().key;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON app_state BEGIN SELECT RAISE(ABORT, 'refused'); END";
    execute(&raw(&file), refuse);
    let state_delta: JsonMap = serde_json::from_value(json!({"own": 1, "app:shared": 1})).unwrap();
    let actions = EventActions { state_delta, ..EventActions::default() };
    let event = Event::new(EventData { actions, ..EventData::default() });
    assert!(error(sessions.append(&key, &event).await).to_string().contains("refused"));
    let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!((session.revision, session.events.len(), session.state.len()), (0, 0, 0));
    assert_eq!(sessions.append(&key, &user_event("hello")).await.unwrap(), 1);
}

#[tokio::test]
async fn deleting_a_session_deletes_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let state: JsonMap = serde_json::from_value(json!({"a": 1})).unwrap();
    let key = sessions.create("app", "ann", None, state).await.unwrap().key;
    sessions.append(&key, &user_event("hello")).await.unwrap();
    sessions.delete(&key).await.unwrap();
    let count = "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM session_state)";
    let rows: i64 = raw(&file).query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

/// Returns the size of the closed file, and of the events' JSON, in bytes.
async fn stored_bytes(sessions: usize, events: usize) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let service = SqliteSessions::open(&file).await.unwrap();
    let mut keys: Vec<SessionKey> = Vec::new();
    for _ in 0..sessions {
        keys.push(service.create("dice", "ann", None, JsonMap::new()).await.unwrap().key);
    }
    let mut json = 0;
    for number in 0..events {
        let event = typical_event(number);
        json += event.json().len() as u64;
        service.append(&keys[number % sessions], &event).await.unwrap();
    }
    service.close().await;
    assert!(!folder.path().join("sessions.db-wal").exists());
    (std::fs::metadata(&file).unwrap().len(), json)
}

#[tokio::test]
async fn an_event_uses_at_most_a_quarter_more_than_its_json() {
    let (empty, _) = stored_bytes(1, 0).await;
    for sessions in [1, 50] {
        let (file, json) = stored_bytes(sessions, 1000).await;
        let ratio = (file - empty) as f64 / json as f64;
        println!("{sessions} sessions: {} bytes of JSON per event, stored with {ratio:.3} times that", json / 1000);
        assert!(ratio <= 1.25, "{sessions} sessions: {ratio}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn created_files_and_folders_are_accessible_to_the_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let data = folder.path().join("new/data");
    let sessions = SqliteSessions::open(data.join("sessions.db")).await.unwrap();
    sessions.create("app", "ann", None, JsonMap::new()).await.unwrap();
    assert_eq!((mode(&folder.path().join("new")), mode(&data)), (0o700, 0o700));
    for name in ["sessions.db", "sessions.db-wal", "sessions.db-shm"] {
        assert_eq!(mode(&data.join(name)), 0o600, "{name}");
    }
    // Existing files and folders keep their permissions.
    assert_eq!(mode(folder.path()), 0o755);
    sessions.close().await;
    std::fs::set_permissions(data.join("sessions.db"), std::fs::Permissions::from_mode(0o640)).unwrap();
    SqliteSessions::open(data.join("sessions.db")).await.unwrap();
    assert_eq!(mode(&data.join("sessions.db")), 0o640);
}

/// This change once occupied the writer for more than a minute.
#[tokio::test]
async fn a_delta_of_a_thousand_keys_needs_few_statements() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
    let state: JsonMap = (0..1000).map(|number| (format!("k{number}"), json!(number))).collect();
    let key = sessions.create("app", "ann", None, state.clone()).await.unwrap().key;
    let removed: JsonMap = state.keys().map(|name| (name.clone(), json!(null))).collect();
    for state_delta in [state.clone(), removed, state.clone()] {
        let actions = EventActions { state_delta, ..EventActions::default() };
        sessions.append(&key, &Event::new(EventData { actions, ..EventData::default() })).await.unwrap();
    }
    let session = sessions.get(&key, EventWindow::Recent(0)).await.unwrap().unwrap();
    assert_eq!(serde_json::to_value(&session.state).unwrap(), json!(state));
    let usage = sessions.usage(&key).await.unwrap();
    assert_eq!(usage.session.state.keys, 1000);
}
