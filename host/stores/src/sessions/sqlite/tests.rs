//! Tests of queries and statements.

use hatchery_core::{Content, EventActions, EventData};
use serde_json::json;

use super::*;

#[tokio::test]
async fn every_statement_finds_its_rows_through_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
    let statements = [
        queries::FIND,
        queries::STATE,
        queries::EVENTS,
        queries::LIST,
        queries::LIST_PAGE,
        queries::OWN_STATE,
        queries::LIST_STATE,
        queries::SHARED_STATE,
        queries::DELETE,
        queries::FIND_FOR_APPEND,
        queries::COUNT_EVENT,
        queries::COUNT_USER_EVENT,
        queries::FIND_EVENT,
        queries::BEGIN_TURN,
        queries::RENEW_TURN,
        queries::FIND_LEASE,
        queries::RECORD_CALL,
        queries::CALLS,
        queries::DELETE_CALLS,
        queries::MARK_FINISHED,
        queries::RUN_IN_PROGRESS,
        queries::SESSION_USAGE,
        queries::USER_USAGE,
        queries::APP_USAGE,
        queries::READ_BYTES,
        queries::USER_KEY_BYTES,
        queries::DELETE_SESSION_STATE,
        queries::FIND_FOR_RESTORATION,
        queries::COPY_EVENTS,
        queries::COPY_EVENT_IDS,
        queries::DELETE_CALLS_AFTER,
        queries::DELETE_EVENT_IDS_AFTER,
        queries::DELETE_EVENTS_AFTER,
        queries::SET_REVISION,
        queries::SET_CREATED,
        queries::DELETE_SESSION_KEY,
        queries::DELETE_USER_KEY,
        queries::DELETE_APP_KEY,
    ];
    for statement in statements {
        let plan = sessions.database.read(move |connection| {
            let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}"))?;
            // Parameters that are not bound are NULL.
            explain.raw_query().mapped(|row| row.get("detail")).collect::<rusqlite::Result<Vec<String>>>()
        });
        let plan = plan.await.unwrap();
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

#[tokio::test]
async fn sessions_with_much_state_are_not_read_by_the_writing_thread() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
    let create = async |app: &str, id: &str, state: serde_json::Value| {
        let state = serde_json::from_value(state).unwrap();
        sessions.create(app, "ann", Some(id), state).await.unwrap().key
    };
    let large = "x".repeat(70_000);
    let small = create("small", "s", json!({"user:b": 1, "app:c": 1})).await;
    create("small", "of-another-session", json!({"a": large.clone()})).await;
    for (key, is_read) in [
        (small, true),
        (create("own", "s", json!({"a": large.clone()})).await, false),
        (create("user", "s", json!({"user:a": large.clone()})).await, false),
        (create("app", "s", json!({"app:a": large})).await, false),
    ] {
        for window in [EventWindow::All, EventWindow::AfterRevision(0)] {
            let own_key = key.clone();
            let opened = sessions.write("begin a turn of the session", &key, move |connection| {
                turns::open(connection, &own_key, None, Duration::ZERO, window)
            });
            assert_eq!(matches!(opened.await.unwrap(), OpenOutcome::Complete(_)), is_read, "{key}");
            let opened = sessions.open_turn(&key, None, Duration::ZERO, window).await.unwrap();
            let TurnOpening::Begun { session, .. } = opened else { panic!("{key} is held") };
            assert_eq!(session.state, SessionService::get(&sessions, &key, window).await.unwrap().unwrap().state);
        }
    }
}

/// Limits the pages of the file.
async fn limit_pages(sessions: &SqliteSessions, pages: u32) {
    let limit = move |connection: &Connection| {
        connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, i64>(0))
    };
    sessions.database.write(Owner::NONE, limit).await.unwrap();
}

#[tokio::test]
async fn on_a_full_disk_only_the_append_fails_and_writes_work_again_when_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let sessions = SqliteSessions::open(&file).await.unwrap();
    let key = sessions.create("app", "ann", Some("s"), JsonMap::new()).await.unwrap().key;
    let large = "x".repeat(8000);
    for state in [json!({}), json!({"a": large.clone(), "user:b": large.clone()})] {
        limit_pages(&sessions, 1).await;
        let mut acknowledged = sessions.usage(&key).await.unwrap().session.events;
        let error = loop {
            match sessions.append(&key, &event(&large, state.clone())).await {
                Ok(revision) => acknowledged = revision,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        assert_eq!(error.code(), "STORE_FULL");
        let (text, file) = (error.to_string(), file.display());
        let expected = format!("session database {file}: cannot append to the session ({key}): no space is left: ");
        assert!(text.starts_with(&expected), "{text}");
        let session = SessionService::get(&sessions, &key, EventWindow::All).await.unwrap().unwrap();
        assert_eq!((session.revision, session.events.len() as u64), (acknowledged, acknowledged));

        // Space is freed.
        limit_pages(&sessions, 1_073_741_823).await;
        let append = event(&large, json!({"c": large.clone(), "app:d": large.clone()}));
        assert_eq!(sessions.append(&key, &append).await.unwrap(), acknowledged + 1);
        sessions.create("app", "ann", None, JsonMap::new()).await.unwrap();
    }
}

#[tokio::test]
async fn on_a_full_disk_writes_that_need_no_space_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
    let key = sessions.create("app", "ann", Some("s"), JsonMap::new()).await.unwrap().key;
    limit_pages(&sessions, 1).await;
    let large = event(&"x".repeat(100_000), json!({}));
    let other = SessionKey::new("app", "ann", "other");
    // The three share a transaction, or follow each other.
    let (turn_start, appended, deleted) = futures::join!(
        sessions.begin_turn(&key, None, Duration::from_secs(60)),
        sessions.append(&key, &large),
        sessions.delete(&other),
    );
    assert!(matches!(turn_start, Ok(TurnStart::Begun(_))), "{turn_start:?}");
    assert!(matches!(appended, Err(StoreError::Full { .. })), "{appended:?}");
    deleted.unwrap();
}

/// Occupies the writing thread until the result is dropped.
async fn occupy_writer(sessions: &Arc<SqliteSessions>) -> std::sync::mpsc::Sender<()> {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (turn_start, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let released = std::sync::Mutex::new(released);
    let occupied = sessions.clone();
    tokio::spawn(async move {
        let wait = move |_: &Connection| {
            turn_start.send(()).unwrap();
            let _ = released.lock().unwrap().recv();
            Ok(())
        };
        occupied.database.write(Owner::NONE, wait).await.unwrap();
    });
    has_begun.recv().await.unwrap();
    release
}

#[tokio::test]
async fn the_events_of_a_session_are_not_read_by_the_writing_thread_for_a_fork_or_a_rewind() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Arc::new(SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap());
    let key = sessions.create("app", "ann", Some("s"), JsonMap::new()).await.unwrap().key;
    sessions.append(&key, &event("one", json!({}))).await.unwrap();
    let release = occupy_writer(&sessions).await;
    let forked = sessions.fork(&key, 2, None).await.unwrap_err();
    let rewound = sessions.rewind(&key, 2).await.unwrap_err();
    assert_eq!((forked.to_string(), rewound.to_string()), (too_few_events(&key, 2, 1).to_string(), forked.to_string()));
    drop(release);
    assert_eq!(sessions.fork(&key, 1, None).await.unwrap().revision, 1);
}

#[tokio::test]
async fn a_session_that_was_rewound_since_it_was_read_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
    let key = sessions.create("app", "ann", Some("s"), JsonMap::new()).await.unwrap().key;
    for count in 1..=3 {
        sessions.append(&key, &event("more", json!({"count": count}))).await.unwrap();
    }
    let own_key = key.clone();
    let read = sessions.read("read the session", &key, move |connection| RestorePlan::read(connection, &own_key, 2));
    let Ok(plan) = read.await.unwrap() else { panic!("the session has three events") };
    sessions.rewind(&key, 1).await.unwrap();
    sessions.append(&key, &event("other", json!({"count": 7}))).await.unwrap();
    let (own_key, fork) = (key.clone(), SessionKey::new("app", "ann", "fork"));
    let are_refused = sessions.write("restore the session", &key, move |connection| {
        Ok([
            history::fork(connection, &plan, &own_key, 2, &fork, Timestamp::now())?.is_none(),
            history::rewind(connection, &plan, &own_key, 2)?.is_none(),
        ])
    });
    assert_eq!(are_refused.await.unwrap(), [true, true]);
    let forked = sessions.fork(&key, 2, None).await.unwrap();
    assert_eq!(forked.state.get("count"), Some(&json!(7)));
}

#[tokio::test]
async fn a_write_that_waits_too_long_for_the_writer_is_told_to_retry() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Arc::new(SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap());
    let [ann, bob] = ["ann", "bob"].map(|user| SessionKey::new("app", user, "s"));
    sessions.create("app", "ann", Some("s"), JsonMap::new()).await.unwrap();
    let release = occupy_writer(&sessions).await;
    let (first, second) = (event("one", json!({})), event("two", json!({})));
    tokio::time::pause();
    let (first, second) = futures::join!(sessions.append(&ann, &first), sessions.append(&ann, &second));
    let (first, second) = (first.unwrap_err(), second.unwrap_err());
    assert_eq!((first.code(), second.code()), ("STORE_BUSY", "STORE_BUSY"));
    let advice = "this request has waited for 5 s and nothing was changed; try again in 1 s";
    assert_eq!(first.to_string(), format!("the session database is busy: {advice}"));
    let delete = sessions.delete(&bob).await.unwrap_err();
    assert_eq!(delete.to_string(), first.to_string());
    tokio::time::resume();
    drop(release);
    assert_eq!(sessions.append(&ann, &event("three", json!({}))).await.unwrap(), 1);
}
