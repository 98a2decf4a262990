//! Sessions in a SQLite file.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hatchery_core::{
    Content, Event, EventActions, EventData, EventWindow, JsonMap, Part, SessionKey, SessionService, SessionUsage,
    StateUsage, StoreError, StoredRun, Turn, TurnStart, Usage, UsageMetadata, UserUsage,
};
use hatchery_stores::SqliteSessions;
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

/// A typical model response with metadata: about 500 bytes of JSON.
fn typical_event(number: usize) -> Arc<Event> {
    let text =
        format!("Answer {number}: the dice show {} and {}, which is what you asked for.", number % 6, number % 5);
    Event::new(EventData {
        invocation_id: hatchery_core::new_invocation_id(),
        author: "dice_agent".into(),
        content: Some(Arc::new(Content::new("model", vec![Part::text(text)]))),
        finish_reason: Some("STOP".into()),
        usage_metadata: Some(Box::new(UsageMetadata {
            prompt_token_count: Some(1200),
            candidates_token_count: Some(18),
            total_token_count: Some(1218),
            ..UsageMetadata::default()
        })),
        model_version: Some("scripted-1".into()),
        ..EventData::default()
    })
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

    // What a killed process leaves behind: the files as they are now.
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
async fn a_database_of_a_newer_version_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    SqliteSessions::open(&file).await.unwrap().close().await;
    execute(&raw(&file), "PRAGMA user_version = 99");
    let error = error(SqliteSessions::open(&file).await);
    assert!(matches!(error, StoreError::InvalidRequest(_)));
    assert_eq!(
        error.to_string(),
        format!(
            "session database {} has schema version 99, but this version of Hatchery knows only up to 7: \
             use a newer Hatchery or another file",
            file.display()
        )
    );
}

#[tokio::test]
async fn another_programs_database_is_rejected_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.db");
    execute(&raw(&file), "CREATE TABLE sessions (anything)");
    let error = error(SqliteSessions::open(&file).await);
    assert!(matches!(error, StoreError::InvalidRequest(_)));
    assert_eq!(
        error.to_string(),
        format!("{} is another program's database: name a file that does not exist yet", file.display())
    );
    let tables: i64 = raw(&file).query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);
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
    for (error, doing) in [
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
        let expected = format!("session database {}: cannot {doing}: ", file.display());
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
async fn an_event_uses_at_most_a_fifth_more_than_its_json() {
    let (empty, _) = stored_bytes(1, 0).await;
    for sessions in [1, 50] {
        let (file, json) = stored_bytes(sessions, 1000).await;
        let ratio = (file - empty) as f64 / json as f64;
        println!("{sessions} sessions: {} bytes of JSON per event, stored with {ratio:.3} times that", json / 1000);
        assert!(ratio <= 1.2, "{sessions} sessions: {ratio}");
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
    // What was there before keeps what its owner chose.
    assert_eq!(mode(folder.path()), 0o755);
    sessions.close().await;
    std::fs::set_permissions(data.join("sessions.db"), std::fs::Permissions::from_mode(0o640)).unwrap();
    SqliteSessions::open(data.join("sessions.db")).await.unwrap();
    assert_eq!(mode(&data.join("sessions.db")), 0o640);
}

#[tokio::test]
async fn usage_of_a_database_of_the_previous_version_is_counted_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let old = raw(&file);
    execute(&old, include_str!("../../src/sessions/sqlite/migrations/0001_sessions.sql"));
    let rows = "INSERT INTO sessions (app, user, id, created, updated) VALUES \
                  ('app', 'ann', 's1', 1, 1), ('app', 'ann', 's2', 1, 1), ('app', 'bob', 's1', 1, 1); \
                INSERT INTO events (session, revision, time, json) VALUES (1, 1, 1, '{\"é\":1}'), (2, 1, 1, '{}'); \
                INSERT INTO session_state VALUES (1, 'é', '12'), (2, 'b', '1'); \
                INSERT INTO user_state VALUES ('app', 'ann', 'user:c', '1'), ('app', 'cem', 'user:c', '1'); \
                INSERT INTO app_state VALUES ('app', 'app:d', '1'), ('app', 'app:e', '22')";
    execute(&old, rows);
    drop(old);
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let usage = sessions.usage(&SessionKey::new("app", "ann", "s1")).await.unwrap();
    let session = SessionUsage { events: 1, event_bytes: 8, state: StateUsage { keys: 1, bytes: 4 } };
    let user = UserUsage { sessions: 2, event_bytes: 10, state: StateUsage { keys: 3, bytes: 4 + 2 + 7 } };
    assert_eq!(usage, Usage { session, user, app: StateUsage { keys: 2, bytes: 6 + 7 } });
    let cem = sessions.usage(&SessionKey::new("app", "cem", "s1")).await.unwrap();
    assert_eq!((cem.session, cem.user.state.keys), (SessionUsage::default(), 1));
}

#[tokio::test]
async fn sessions_of_the_previous_version_have_turns_and_unique_events_from_now_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let old = raw(&file);
    execute(&old, include_str!("../../src/sessions/sqlite/migrations/0001_sessions.sql"));
    execute(&old, include_str!("../../src/sessions/sqlite/migrations/0002_usage.sql"));
    // Nothing kept ids unique then.
    let rows = "INSERT INTO sessions (app, user, id, created, updated) VALUES ('app', 'ann', 's1', 1, 1); \
                INSERT INTO events (session, revision, time, json) VALUES \
                  (1, 1, 1, '{\"id\":\"e1\",\"author\":\"user\",\"timestamp\":1}'), \
                  (1, 2, 1, '{\"id\":\"e1\",\"author\":\"user\",\"timestamp\":1}')";
    execute(&old, rows);
    drop(old);
    let key = SessionKey::new("app", "ann", "s1");
    let sessions = SqliteSessions::open(&file).await.unwrap();
    assert_eq!(sessions.get(&key, EventWindow::All).await.unwrap().unwrap().events.len(), 2);
    let TurnStart::Begun(turn) = sessions.begin_turn(&key, None, Duration::from_secs(60)).await.unwrap() else {
        panic!("nobody holds a turn")
    };
    assert_eq!(turn, Turn { fence: 1, revision: 2 });
    let event = user_event("hello");
    for _ in 0..2 {
        assert_eq!(sessions.append_with(&key, &event, Some(turn.fence)).await.unwrap(), 3);
    }
    let fenced = error(sessions.append_with(&key, &user_event("late"), Some(0)).await);
    assert!(matches!(fenced, StoreError::Fenced(_)), "{fenced}");
    sessions.close().await;
    let sessions = SqliteSessions::open(&file).await.unwrap();
    assert_eq!(sessions.get(&key, EventWindow::All).await.unwrap().unwrap().events.len(), 3);
}

#[tokio::test]
async fn a_database_of_schema_4_keeps_its_sessions_and_the_ids_of_their_events() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let old = raw(&file);
    execute(&old, "PRAGMA page_size = 16384; PRAGMA journal_mode = WAL");
    for migration in [
        include_str!("../../src/sessions/sqlite/migrations/0001_sessions.sql"),
        include_str!("../../src/sessions/sqlite/migrations/0002_usage.sql"),
        include_str!("../../src/sessions/sqlite/migrations/0003_turns.sql"),
        include_str!("../../src/sessions/sqlite/migrations/0004_calls.sql"),
    ] {
        execute(&old, migration);
    }
    // The hash is that of `e1`.
    let rows = "INSERT INTO sessions (app, user, id, created, updated) VALUES ('app', 'ann', 's1', 1, 1); \
                INSERT INTO events (session, revision, time, json, id_hash) VALUES \
                  (1, 1, 1, '{\"id\":\"e1\",\"author\":\"user\",\"timestamp\":1}', -8404626340394009294); \
                INSERT INTO session_state VALUES (1, 'a', '1'); \
                INSERT INTO run_calls VALUES (1, 'e-1', 'call', 'null')";
    execute(&old, rows);
    drop(old);
    let key = SessionKey::new("app", "ann", "s1");
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!((session.events[0].id.as_str(), session.state.get("a")), ("e1", Some(&json!(1))));
    assert_eq!(sessions.append(&key, &session.events[0]).await.unwrap(), 1);
    let other = Event::new(EventData { id: "e1".into(), ..EventData::default() });
    assert!(matches!(error(sessions.append(&key, &other).await), StoreError::EventExists(_)));
    let event = user_event("hello");
    assert_eq!(sessions.append(&key, &event).await.unwrap(), 2);
    let bytes = |events: &[&Arc<Event>]| events.iter().map(|event| event.json().len() as u64).sum::<u64>();
    let used = sessions.usage(&key).await.unwrap();
    assert_eq!(used.user.event_bytes, bytes(&[&session.events[0], &event]) + 8);
    assert_eq!(used.session.event_bytes, used.user.event_bytes);
    // Its initial state is not stored: what no event has changed was there from the beginning.
    let set = EventActions { state_delta: [("b".into(), json!(2))].into_iter().collect(), ..EventActions::default() };
    sessions.append(&key, &Event::new(EventData { actions: set, ..EventData::default() })).await.unwrap();
    let rewound = sessions.rewind(&key, 1).await.unwrap();
    assert_eq!(serde_json::to_value(&rewound.state).unwrap(), json!({"a": 1}));
    sessions.close().await;
    let page: i64 = raw(&file).query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
    assert_eq!(page, 16384);
}

#[tokio::test]
async fn a_lease_that_ends_too_late_is_the_result_of_a_clock_that_was_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let key = sessions.create("app", "ann", None, JsonMap::new()).await.unwrap().key;
    let lease = Duration::from_secs(60);
    assert!(matches!(sessions.begin_turn(&key, None, lease).await.unwrap(), TurnStart::Begun(_)));
    execute(&raw(&file), "UPDATE sessions SET leased_until = leased_until + 3600000000");
    assert!(matches!(sessions.begin_turn(&key, None, lease).await.unwrap(), TurnStart::Begun(_)));
    assert!(matches!(sessions.begin_turn(&key, None, lease).await.unwrap(), TurnStart::Held { .. }));
}

#[tokio::test]
async fn a_turn_is_held_against_other_handles_on_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let (one, other) = (SqliteSessions::open(&file).await.unwrap(), SqliteSessions::open(&file).await.unwrap());
    let key = one.create("app", "ann", None, JsonMap::new()).await.unwrap().key;
    let lease = Duration::from_secs(60);
    let TurnStart::Begun(turn) = one.begin_turn(&key, None, lease).await.unwrap() else { panic!("nobody holds it") };
    assert!(matches!(other.begin_turn(&key, None, lease).await.unwrap(), TurnStart::Held { .. }));
    one.renew_turn(&key, turn.fence, Duration::ZERO).await.unwrap();
    assert!(matches!(other.begin_turn(&key, None, lease).await.unwrap(), TurnStart::Begun(_)));
    let error = error(one.append_with(&key, &user_event("late"), Some(turn.fence)).await);
    assert!(matches!(error, StoreError::Fenced(_)), "{error}");
}

/// Such a change once occupied the writer for more than a minute.
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

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_first_host_with_the_database_need_not_wait_for_hosts_that_have_died() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let dead = SqliteSessions::open(&file).await.unwrap();
    let key = dead.create("app", "ann", Some("s1"), JsonMap::new()).await.unwrap().key;
    let TurnStart::Begun(turn) = dead.begin_turn(&key, None, LEASE).await.unwrap() else { panic!("it is held") };
    // While that host lives, nobody takes its turn.
    let other = SqliteSessions::open(&file).await.unwrap();
    assert!(matches!(other.begin_turn(&key, None, LEASE).await.unwrap(), TurnStart::Held { .. }));
    drop(dead);
    assert!(matches!(other.begin_turn(&key, None, LEASE).await.unwrap(), TurnStart::Held { .. }));
    drop(other);
    let next = SqliteSessions::open(&file).await.unwrap();
    let begun = next.begin_turn(&key, None, LEASE).await.unwrap();
    assert_eq!(begun, TurnStart::Begun(Turn { fence: turn.fence + 1, ..turn }));
}

#[tokio::test]
async fn a_run_of_an_earlier_process_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let first = SqliteSessions::open(&file).await.unwrap();
    let key = first.create("app", "ann", Some("s1"), JsonMap::new()).await.unwrap().key;
    let run = StoredRun { is_background: true, request: Some("{}".into()), ..StoredRun::new(key.clone(), "r1", 3) };
    first.runs().unwrap().add(&run).await.unwrap();
    first.close().await;
    let second = SqliteSessions::open(&file).await.unwrap();
    assert_eq!(second.runs().unwrap().get(&key, "r1").await.unwrap(), Some(run.clone()));
    assert_eq!(
        second.runs().unwrap().interrupted(&["app".into()], 10).await.unwrap(),
        [StoredRun { request: None, ..run }]
    );
}
