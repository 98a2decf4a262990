//! Session services: sessions that retention rules want deleted.

use std::sync::Arc;

use hatchery_core::{EventWindow, ExpiryRule, HOST_USER, SessionKey, SessionService, Timestamp, TurnStart};
use hatchery_test_support::{AuditCapture, delete_expired};

use crate::support::{LONG, append, behind_quotas, create, event_at};

every_backend!(
    [
        sessions_without_an_event_for_long_are_found_oldest_first,
        sessions_beyond_the_number_of_their_user_are_found,
        a_session_that_a_turn_holds_is_not_found,
    ],
    memory(_folder) => hatchery_stores::MemorySessions::new(),
    idle_memory(_folder) => hatchery_stores::MemorySessions::new().with_idle_time(std::time::Duration::ZERO),
    sqlite(folder) => hatchery_stores::SqliteSessions::open(folder.join("sessions.db")).await.unwrap(),
    sqlite_behind_quotas(folder) =>
        behind_quotas(hatchery_stores::SqliteSessions::open(folder.join("sessions.db")).await.unwrap()),
    encrypted_memory(_folder) => crate::support::encrypted(hatchery_stores::MemorySessions::new()),
    encrypted_sqlite(folder) =>
        crate::support::encrypted(hatchery_stores::SqliteSessions::open(folder.join("sessions.db")).await.unwrap()),
    encrypted_firestore(_folder) => crate::support::encrypted(emulated!(sessions)),
    encrypted_postgres(_folder) => crate::support::encrypted(in_postgres!(sessions)),
    firestore(_folder) => emulated!(sessions),
    postgres(_folder) => in_postgres!(sessions),
);

/// Creates sessions whose newest events are at these times, one of another app, and two of the host itself.
async fn create_all(sessions: &dyn SessionService) {
    for (user, id, micros) in [("ann", "a3", 300), ("ann", "a1", 100), ("ann", "a2", 200), ("bob", "b1", 150)] {
        let key = create(sessions, user, id).await;
        append(sessions, &key, [event_at(micros)]).await;
    }
    for id in ["h1", "h2"] {
        let key = create(sessions, HOST_USER, id).await;
        append(sessions, &key, [event_at(1)]).await;
    }
    let key = sessions.create("other", "ann", Some("o"), Default::default()).await.unwrap().key;
    append(sessions, &key, [event_at(1)]).await;
}

async fn list_expired(sessions: &dyn SessionService, rule: ExpiryRule, limit: usize) -> Vec<(String, i64)> {
    let found = sessions.list_expired("app", &rule, limit).await.unwrap();
    found.into_iter().map(|session| (session.key.id.to_string(), session.updated.as_micros())).collect()
}

fn before(micros: i64) -> ExpiryRule {
    ExpiryRule { idle_since: Some(Timestamp::from_micros(micros)), ..ExpiryRule::default() }
}

fn at_most(count: u64) -> ExpiryRule {
    ExpiryRule { user_sessions: Some(count), ..ExpiryRule::default() }
}

async fn sessions_without_an_event_for_long_are_found_oldest_first(sessions: &dyn SessionService) {
    create_all(sessions).await;
    let all = [("a1".to_owned(), 100), ("b1".to_owned(), 150)];
    assert_eq!(list_expired(sessions, before(200), 10).await, all);
    assert_eq!(list_expired(sessions, before(200), 1).await, all[..1]);
    assert!(list_expired(sessions, before(100), 10).await.is_empty());
    assert!(list_expired(sessions, ExpiryRule::default(), 10).await.is_empty());
}

async fn sessions_beyond_the_number_of_their_user_are_found(sessions: &dyn SessionService) {
    create_all(sessions).await;
    assert_eq!(list_expired(sessions, at_most(1), 10).await, [("a1".to_owned(), 100), ("a2".to_owned(), 200)]);
    assert!(list_expired(sessions, at_most(3), 10).await.is_empty());
    let both = ExpiryRule { idle_since: Some(Timestamp::from_micros(160)), user_sessions: Some(2) };
    assert_eq!(list_expired(sessions, both, 10).await, [("a1".to_owned(), 100), ("b1".to_owned(), 150)]);
}

async fn a_session_that_a_turn_holds_is_not_found(sessions: &dyn SessionService) {
    create_all(sessions).await;
    let key = SessionKey::new("app", "ann", "a1");
    assert!(matches!(sessions.begin_turn(&key, None, LONG).await.unwrap(), TurnStart::Begun(_)));
    assert_eq!(list_expired(sessions, before(160), 10).await, [("b1".to_owned(), 150)]);
}

/// Returns the services whose lists of sessions are not their own index.
async fn remote_services() -> Vec<Arc<dyn SessionService>> {
    let mut services: Vec<Arc<dyn SessionService>> = Vec::new();
    if let Some(sessions) = crate::emulator::sessions() {
        services.push(Arc::new(sessions));
    }
    #[cfg(feature = "agent-engine")]
    services.push(Arc::new(crate::fake_engine::FakeEngine::start().await.sessions()));
    services
}

#[tokio::test]
async fn sessions_of_remote_services_are_deleted_by_rules_and_each_is_in_the_audit_log() {
    for sessions in remote_services().await {
        let audit = AuditCapture::capture();
        for (id, micros) in [("old", 1), ("new", 2)] {
            let key = create(&*sessions, "ann", id).await;
            append(&*sessions, &key, [event_at(micros)]).await;
        }
        assert_eq!(delete_expired(sessions.clone(), &at_most(1)).await, 1);
        assert_eq!(delete_expired(sessions.clone(), &at_most(1)).await, 0);
        for (id, is_there) in [("old", false), ("new", true)] {
            let found = sessions.get(&SessionKey::new("app", "ann", id), EventWindow::All).await.unwrap();
            assert_eq!(found.is_some(), is_there, "{id}");
        }
        let lines = audit.lines();
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        for part in ["retention", "app=app", "user=ann", "session=old", "decision=\"deleted\"", "newest event at 1"] {
            assert!(line.contains(part), "{line} lacks {part}");
        }
    }
}
