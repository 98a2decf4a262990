//! Session services: creating, listing and deleting sessions.

use futures::future::join_all;
use hatchery_core::{EventWindow, JsonMap, SessionKey, SessionService, StoreError, Timestamp};
use serde_json::json;

use crate::support::{append, create, delta, event, event_at, ids, map, state};

on_every_session_backend!([
    an_unknown_session_is_none,
    a_created_session_is_found,
    a_session_without_an_id_gets_a_uuid,
    whitespace_around_an_id_is_ignored,
    a_duplicate_id_is_an_error_and_changes_nothing,
    other_users_may_use_the_same_id,
    names_may_contain_any_characters,
    sessions_are_listed_without_events_newest_first,
    a_list_contains_only_the_users_sessions_in_the_app,
    the_newest_events_since_a_time_can_be_requested,
    events_can_be_read_page_by_page,
    sessions_are_listed_page_by_page,
    pages_follow_the_order_of_the_list_after_every_change,
    a_deleted_session_is_gone,
    deleting_an_unknown_session_is_no_error,
    a_session_created_again_is_empty,
    a_session_that_was_read_does_not_change_later,
    concurrent_creations_of_one_id_succeed_once,
]);

// Agent Engine has one name space for the ids of all users, restricts them, and lists sessions by its own time.
#[cfg(feature = "agent-engine")]
every_backend!(
    [
        an_unknown_session_is_none,
        a_created_session_is_found,
        a_session_without_an_id_gets_a_uuid,
        whitespace_around_an_id_is_ignored,
        a_duplicate_id_is_an_error_and_changes_nothing,
        a_list_contains_only_the_users_sessions_in_the_app,
        the_newest_events_since_a_time_can_be_requested,
        events_can_be_read_page_by_page,
        a_deleted_session_is_gone,
        deleting_an_unknown_session_is_no_error,
        a_session_created_again_is_empty,
        a_session_that_was_read_does_not_change_later,
        concurrent_creations_of_one_id_succeed_once,
    ],
    agent_engine(_folder) => crate::fake_engine::FakeEngine::start().await.sessions(),
);

async fn an_unknown_session_is_none(sessions: &dyn SessionService) {
    create(sessions, "ann", "known").await;
    let unknown = SessionKey::new("app", "ann", "unknown");
    assert!(sessions.get(&unknown, EventWindow::All).await.unwrap().is_none());
    assert!(sessions.get(&SessionKey::new("app", "bob", "known"), EventWindow::All).await.unwrap().is_none());
}

async fn a_created_session_is_found(sessions: &dyn SessionService) {
    let before = Timestamp::now();
    let created = sessions.create("app", "ann", Some("s1"), map(json!({"mood": "good"}))).await.unwrap();
    assert_eq!(created.key, SessionKey::new("app", "ann", "s1"));
    assert!(created.created >= before && created.last_update_time == created.created);
    assert_eq!((created.revision, created.events.len()), (0, 0));

    let found = sessions.get(&created.key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(found.key, created.key);
    assert_eq!((found.created, found.last_update_time), (created.created, created.created));
    assert_eq!(found.state, created.state);
    assert_eq!(found.state.get("mood"), Some(&json!("good")));
    assert_eq!((found.revision, found.events.len()), (0, 0));
}

async fn a_session_without_an_id_gets_a_uuid(sessions: &dyn SessionService) {
    let first = sessions.create("app", "ann", None, JsonMap::new()).await.unwrap().key;
    let second = sessions.create("app", "ann", Some("  "), JsonMap::new()).await.unwrap().key;
    assert_ne!(first.id, second.id);
    for key in [first, second] {
        assert_eq!(key.id.len(), 36, "{key}");
        assert!(sessions.get(&key, EventWindow::All).await.unwrap().is_some());
    }
}

async fn whitespace_around_an_id_is_ignored(sessions: &dyn SessionService) {
    assert_eq!(create(sessions, "ann", " s1\n").await, SessionKey::new("app", "ann", "s1"));
    let again = sessions.create("app", "ann", Some("s1"), JsonMap::new()).await;
    assert!(matches!(again, Err(StoreError::SessionExists(_))), "{again:?}");
}

async fn a_duplicate_id_is_an_error_and_changes_nothing(sessions: &dyn SessionService) {
    let key = sessions.create("app", "ann", Some("s1"), map(json!({"a": 1}))).await.unwrap().key;
    append(sessions, &key, [event("hello")]).await;
    let again = sessions.create("app", "ann", Some("s1"), map(json!({"a": 2, "user:b": 2, "app:c": 2}))).await;
    let Err(error @ StoreError::SessionExists(_)) = again else { panic!("{again:?}") };
    assert_eq!(error.to_string(), "Session already exists: s1");
    assert_eq!(state(sessions, &key).await, json!({"a": 1}));
    assert_eq!(ids(sessions, &key, EventWindow::All).await.len(), 1);
}

async fn other_users_may_use_the_same_id(sessions: &dyn SessionService) {
    let ann = create(sessions, "ann", "s1").await;
    let bob = create(sessions, "bob", "s1").await;
    let elsewhere = sessions.create("other", "ann", Some("s1"), JsonMap::new()).await.unwrap().key;
    append(sessions, &ann, [event("hello")]).await;
    assert_eq!(ids(sessions, &ann, EventWindow::All).await.len(), 1);
    assert_eq!(ids(sessions, &bob, EventWindow::All).await.len(), 0);
    assert_eq!(ids(sessions, &elsewhere, EventWindow::All).await.len(), 0);
}

async fn names_may_contain_any_characters(sessions: &dyn SessionService) {
    let name = "a/b'; DROP TABLE sessions; --%_\\ é東";
    let state_key = format!("{name}\u{0}");
    let key = sessions.create(name, name, Some(name), map(json!({&state_key: name}))).await.unwrap().key;
    append(sessions, &key, [delta(json!({format!("app:{state_key}"): name}))]).await;
    assert_eq!(sessions.list(name, name).await.unwrap().len(), 1);
    assert_eq!(state(sessions, &key).await, json!({&state_key: name, format!("app:{state_key}"): name}));
    let similar = SessionKey::new("a/b'; DROP TABLE sessions; --", name, name);
    assert!(sessions.get(&similar, EventWindow::All).await.unwrap().is_none());
}

async fn sessions_are_listed_without_events_newest_first(sessions: &dyn SessionService) {
    for (id, micros) in [("a", 20), ("b", 30), ("c", 10), ("d", 20)] {
        let key = create(sessions, "ann", id).await;
        append(sessions, &key, [delta(json!({"id": id})), event_at(micros)]).await;
    }
    let listed = sessions.list("app", "ann").await.unwrap();
    let ids: Vec<&str> = listed.iter().map(|session| &*session.key.id).collect();
    assert_eq!(ids, ["b", "a", "d", "c"]);
    for session in listed {
        assert!(session.events.is_empty());
        assert_eq!((session.revision, session.state.get("id")), (2, Some(&json!(&*session.key.id))));
    }
}

async fn a_list_contains_only_the_users_sessions_in_the_app(sessions: &dyn SessionService) {
    for user in ["ann", "an", "anna", "bob"] {
        create(sessions, user, user).await;
    }
    sessions.create("ap", "ann", None, JsonMap::new()).await.unwrap();
    let keys: Vec<_> = sessions.list("app", "ann").await.unwrap().into_iter().map(|session| session.key).collect();
    assert_eq!(keys, [SessionKey::new("app", "ann", "ann")]);
    assert!(sessions.list("app", "nobody").await.unwrap().is_empty());
}

async fn a_deleted_session_is_gone(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let other = create(sessions, "ann", "s2").await;
    append(sessions, &key, [event("hello"), delta(json!({"a": 1}))]).await;
    append(sessions, &other, [event("hello"), delta(json!({"a": 2}))]).await;
    sessions.delete(&key).await.unwrap();
    assert!(sessions.get(&key, EventWindow::All).await.unwrap().is_none());
    assert_eq!(sessions.list("app", "ann").await.unwrap().len(), 1);
    assert_eq!(ids(sessions, &other, EventWindow::All).await.len(), 2);
    assert_eq!(state(sessions, &other).await, json!({"a": 2}));
}

async fn deleting_an_unknown_session_is_no_error(sessions: &dyn SessionService) {
    create(sessions, "ann", "s1").await;
    sessions.delete(&SessionKey::new("app", "ann", "unknown")).await.unwrap();
    assert_eq!(sessions.list("app", "ann").await.unwrap().len(), 1);
}

async fn a_session_created_again_is_empty(sessions: &dyn SessionService) {
    let first = sessions.create("app", "ann", Some("s1"), map(json!({"a": 1}))).await.unwrap();
    append(sessions, &first.key, [event("hello")]).await;
    sessions.delete(&first.key).await.unwrap();
    let second = sessions.create("app", "ann", Some("s1"), JsonMap::new()).await.unwrap();
    assert!(second.created > first.created);
    let found = sessions.get(&first.key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!((found.created, found.revision, found.events.len()), (second.created, 0, 0));
    assert!(found.state.is_empty());
}

async fn a_session_that_was_read_does_not_change_later(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    append(sessions, &key, [delta(json!({"a": 1, "app:b": 1}))]).await;
    let read = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    append(sessions, &key, [delta(json!({"a": 2, "app:b": 2}))]).await;
    assert_eq!((read.events.len(), read.revision), (1, 1));
    assert_eq!(serde_json::to_value(&read.state).unwrap(), json!({"a": 1, "app:b": 1}));
}

async fn concurrent_creations_of_one_id_succeed_once(sessions: &dyn SessionService) {
    let created = join_all((0..8).map(|number| {
        let state = map(json!({ format!("k{number}"): number }));
        sessions.create("app", "ann", Some("s1"), state)
    }))
    .await;
    assert_eq!(created.iter().filter(|created| created.is_ok()).count(), 1);
    let key = SessionKey::new("app", "ann", "s1");
    assert_eq!(sessions.get(&key, EventWindow::All).await.unwrap().unwrap().state.len(), 1);
}

async fn the_newest_events_since_a_time_can_be_requested(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    append(sessions, &key, [10, 20, 30, 25].map(event_at)).await;
    let all = ids(sessions, &key, EventWindow::All).await;
    let window = |count, micros| EventWindow::RecentSince { count, time: Timestamp::from_micros(micros) };
    assert_eq!(ids(sessions, &key, window(usize::MAX, 20)).await, all[1..]);
    assert_eq!(ids(sessions, &key, window(2, 20)).await, all[2..]);
    assert_eq!(ids(sessions, &key, window(2, 26)).await, all[2..3]);
    assert!(ids(sessions, &key, window(1, 26)).await.is_empty());
    assert!(ids(sessions, &key, window(0, 0)).await.is_empty());
}

async fn events_can_be_read_page_by_page(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    append(sessions, &key, (0..5).map(|number| event(&number.to_string()))).await;
    let all = ids(sessions, &key, EventWindow::All).await;
    for (after, limit, expected) in [
        (0, 2, 0..2),
        (2, 2, 2..4),
        (4, 2, 4..5),
        (5, 2, 5..5),
        (u64::MAX, 2, 5..5),
        (1, usize::MAX, 1..5),
        (0, 0, 0..0),
    ] {
        assert_eq!(ids(sessions, &key, EventWindow::Page { after, limit }).await, all[expected], "{after}, {limit}");
    }
}

async fn sessions_are_listed_page_by_page(sessions: &dyn SessionService) {
    for (id, micros) in [("a", 20), ("b", 30), ("c", 10), ("d", 20), ("e", 20)] {
        let key = create(sessions, "ann", id).await;
        append(sessions, &key, [delta(json!({"id": id, "user:last": id})), event_at(micros)]).await;
    }
    create(sessions, "bob", "other").await;
    let mut after = None;
    let mut pages = Vec::new();
    loop {
        let page = sessions.list_page("app", "ann", after.as_ref(), 2).await.unwrap();
        for session in &page.sessions {
            assert!(session.events.is_empty());
            let own = (session.state.get("id"), session.state.get("user:last"));
            assert_eq!(own, (Some(&json!(&*session.key.id)), Some(&json!("e"))));
        }
        pages.push(page.sessions.iter().map(|session| session.key.id.to_string()).collect::<Vec<_>>());
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, [vec!["b", "a"], vec!["d", "e"], vec!["c"]]);
    let all = sessions.list_page("app", "ann", None, 5).await.unwrap();
    assert_eq!((all.sessions.len(), all.next), (5, None), "there is no page after the last session");
    let none = sessions.list_page("app", "nobody", None, 5).await.unwrap();
    assert!(none.sessions.is_empty() && none.next.is_none());
}

/// Returns the ids of the pages, in sequence.
async fn paged_ids(sessions: &dyn SessionService, limit: usize) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = sessions.list_page("app", "ann", after.as_ref(), limit).await.unwrap();
        assert!(page.sessions.len() <= limit);
        ids.extend(page.sessions.iter().map(|session| session.key.id.to_string()));
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

async fn pages_follow_the_order_of_the_list_after_every_change(sessions: &dyn SessionService) {
    let key = |id: &str| SessionKey::new("app", "ann", id);
    let check = async |expected: &[&str]| {
        let listed = sessions.list("app", "ann").await.unwrap();
        assert_eq!(listed.iter().map(|session| &*session.key.id).collect::<Vec<_>>(), expected);
        for limit in [1, 2, 100] {
            assert_eq!(paged_ids(sessions, limit).await, expected, "pages of {limit}");
        }
    };
    for (id, micros) in [("a", 50), ("b", 40), ("c", 30), ("d", 30), ("e", 20)] {
        create(sessions, "ann", id).await;
        append(sessions, &key(id), [event_at(micros)]).await;
    }
    check(&["a", "b", "c", "d", "e"]).await;
    append(sessions, &key("d"), [event_at(60)]).await;
    check(&["d", "a", "b", "c", "e"]).await;
    // The time of an event may be before the time of the event before.
    append(sessions, &key("a"), [event_at(30)]).await;
    check(&["d", "b", "a", "c", "e"]).await;
    sessions.delete(&key("b")).await.unwrap();
    check(&["d", "a", "c", "e"]).await;
    sessions.rewind(&key("d"), 1).await.unwrap();
    check(&["a", "c", "d", "e"]).await;
    sessions.fork(&key("c"), 1, Some("aa")).await.unwrap();
    check(&["a", "aa", "c", "d", "e"]).await;
}
