//! Schema versions: old databases are migrated, unknown ones are rejected.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{
    Event, EventActions, EventData, EventWindow, SessionKey, SessionService, SessionUsage, StateUsage, StoreError,
    Turn, TurnStart, Usage, UserUsage,
};
use hatchery_stores::SqliteSessions;
use serde_json::json;

use super::{error, execute, raw, user_event};

/// The migrations of versions that were released.
const MIGRATIONS: [&str; 8] = [
    include_str!("../../../src/sessions/sqlite/migrations/0001_sessions.sql"),
    include_str!("../../../src/sessions/sqlite/migrations/0002_usage.sql"),
    include_str!("../../../src/sessions/sqlite/migrations/0003_turns.sql"),
    include_str!("../../../src/sessions/sqlite/migrations/0004_calls.sql"),
    include_str!("../../../src/sessions/sqlite/migrations/0005_appends.sql"),
    include_str!("../../../src/sessions/sqlite/migrations/0006_runs.sql"),
    include_str!("../../../src/sessions/sqlite/migrations/0007_initial_state.sql"),
    include_str!("../../../src/sessions/sqlite/migrations/0008_lists.sql"),
];

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
            "session database {} has schema version 99, but this version of Hatchery knows only up to 8: \
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
async fn usage_of_a_database_of_the_previous_version_is_counted_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let old = raw(&file);
    execute(&old, MIGRATIONS[0]);
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
    MIGRATIONS[..2].iter().for_each(|migration| execute(&old, migration));
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
    MIGRATIONS[..4].iter().for_each(|migration| execute(&old, migration));
    // The hash of `e1`.
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
async fn sessions_of_schema_7_are_listed_in_pages() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let old = raw(&file);
    MIGRATIONS[..7].iter().for_each(|migration| execute(&old, migration));
    let rows = "INSERT INTO sessions (app, user, id, created, updated) VALUES \
                  ('app', 'ann', 's1', 1, 1), ('app', 'ann', 's2', 1, 3), ('app', 'ann', 's3', 1, 2)";
    execute(&old, rows);
    drop(old);
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let mut after = None;
    for (id, has_more) in [("s2", true), ("s3", true), ("s1", false)] {
        let page = sessions.list_page("app", "ann", after.as_ref(), 1).await.unwrap();
        assert_eq!((&*page.sessions[0].key.id, page.next.is_some()), (id, has_more));
        after = page.next;
    }
}

#[tokio::test]
async fn a_database_of_every_earlier_version_is_migrated() {
    for version in 1..MIGRATIONS.len() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessions.db");
        let old = raw(&file);
        execute(&old, MIGRATIONS[0]);
        let rows = "INSERT INTO sessions (app, user, id, created, updated) VALUES ('app', 'ann', 's1', 1, 1); \
                    INSERT INTO events (session, revision, time, json) VALUES \
                      (1, 1, 1, '{\"id\":\"e1\",\"author\":\"user\",\"timestamp\":1}'); \
                    INSERT INTO session_state VALUES (1, 'a', '1'); \
                    INSERT INTO user_state VALUES ('app', 'ann', 'user:b', '2'); \
                    INSERT INTO app_state VALUES ('app', 'app:c', '3')";
        execute(&old, rows);
        MIGRATIONS[1..version].iter().for_each(|migration| execute(&old, migration));
        drop(old);
        let key = SessionKey::new("app", "ann", "s1");
        let sessions = SqliteSessions::open(&file).await.unwrap();
        let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
        assert_eq!((session.revision, session.events[0].id.as_str()), (1, "e1"), "{version}");
        assert_eq!(
            serde_json::to_value(&session.state).unwrap(),
            json!({"a": 1, "user:b": 2, "app:c": 3}),
            "{version}"
        );
        assert_eq!(sessions.append(&key, &user_event("new")).await.unwrap(), 2, "{version}");
        assert_eq!(sessions.list_page("app", "ann", None, 10).await.unwrap().sessions[0].revision, 2, "{version}");
        let fork = sessions.fork(&key, 1, None).await.unwrap();
        assert_eq!(fork.revision, 1, "{version}");
        sessions.delete(&key).await.unwrap();
        assert!(sessions.get(&key, EventWindow::All).await.unwrap().is_none(), "{version}");
        sessions.close().await;
        let now: i64 = raw(&file).query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(usize::try_from(now).unwrap(), MIGRATIONS.len());
    }
}
