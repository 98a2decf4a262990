//! Session services.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hatchery_core::{
    Content, Event, EventActions, EventData, EventWindow, JsonMap, MAX_TURN_LEASE, SessionKey, SessionService,
    StoreError, Timestamp, Turn, TurnStart,
};
use hatchery_stores::quotas::QuotaSessions;
use serde_json::{Value, json};

every_backend!(
    [
        an_unknown_session_is_none,
        a_created_session_is_found,
        a_session_without_an_id_gets_a_uuid,
        whitespace_around_an_id_is_ignored,
        a_duplicate_id_is_an_error_and_changes_nothing,
        other_users_may_use_the_same_id,
        names_may_contain_any_characters,
        an_event_is_read_back_unchanged,
        an_event_sets_the_update_time,
        revisions_count_the_events,
        a_repeated_append_changes_nothing_and_returns_the_revision,
        another_event_with_a_stored_id_is_rejected,
        a_partial_event_is_rejected_and_changes_nothing,
        appending_to_an_unknown_session_is_an_error,
        appending_to_a_deleted_session_is_an_error,
        the_newest_events_can_be_requested,
        events_since_a_time_can_be_requested,
        events_after_a_revision_can_be_requested,
        state_deltas_accumulate,
        a_removed_key_is_deleted,
        values_of_every_kind_are_read_back,
        app_state_is_shared_by_all_users_of_the_app,
        user_state_is_shared_by_the_sessions_of_the_user,
        initial_state_is_split_by_scope,
        temporary_state_is_never_stored,
        shared_state_outlives_its_session,
        sessions_are_listed_without_events_newest_first,
        a_list_contains_only_the_users_sessions_in_the_app,
        a_deleted_session_is_gone,
        deleting_an_unknown_session_is_no_error,
        a_session_created_again_is_empty,
        a_session_that_was_read_does_not_change_later,
        a_turn_raises_the_fence_and_returns_the_revision,
        a_turn_of_an_earlier_fence_can_append_nothing,
        an_append_outside_of_turns_needs_no_fence,
        a_turn_waits_for_the_lease_of_the_one_before,
        a_turn_may_follow_the_callers_own_last_turn_at_once,
        a_turn_that_was_taken_over_cannot_be_renewed_or_ended,
        a_renewed_turn_is_held_for_its_new_lease,
        a_lease_has_a_limit,
        a_turn_of_an_unknown_session_is_an_error,
        a_session_created_again_knows_no_earlier_turns,
        only_one_of_many_hosts_begins_a_turn,
        concurrent_appends_keep_every_event,
        concurrent_creations_of_one_id_succeed_once,
    ],
    memory(_folder) => hatchery_stores::MemorySessions::new(),
    sqlite(folder) => hatchery_stores::SqliteSessions::open(folder.join("sessions.db")).await.unwrap(),
    memory_behind_quotas(_folder) => behind_quotas(hatchery_stores::MemorySessions::new()),
    sqlite_behind_quotas(folder) =>
        behind_quotas(hatchery_stores::SqliteSessions::open(folder.join("sessions.db")).await.unwrap()),
);

fn behind_quotas(sessions: impl SessionService + 'static) -> QuotaSessions {
    QuotaSessions::new(Arc::new(sessions), Arc::default())
}

fn map(value: Value) -> JsonMap {
    serde_json::from_value(value).unwrap()
}

fn event(text: &str) -> Arc<Event> {
    Event::new(EventData {
        author: "user".into(),
        content: Some(Arc::new(Content::user(text))),
        ..EventData::default()
    })
}

fn event_at(micros: i64) -> Arc<Event> {
    Event::new(EventData { timestamp: Timestamp::from_micros(micros), ..EventData::default() })
}

fn delta(state: Value) -> Arc<Event> {
    Event::new(EventData {
        actions: EventActions { state_delta: map(state), ..EventActions::default() },
        ..EventData::default()
    })
}

async fn create(sessions: &dyn SessionService, user: &str, id: &str) -> SessionKey {
    sessions.create("app", user, Some(id), JsonMap::new()).await.unwrap().key
}

async fn append(sessions: &dyn SessionService, key: &SessionKey, events: impl IntoIterator<Item = Arc<Event>>) {
    for event in events {
        sessions.append(key, &event).await.unwrap();
    }
}

async fn state(sessions: &dyn SessionService, key: &SessionKey) -> Value {
    let session = sessions.get(key, EventWindow::AfterRevision(u64::MAX)).await.unwrap().unwrap();
    serde_json::to_value(&session.state).unwrap()
}

async fn ids(sessions: &dyn SessionService, key: &SessionKey, window: EventWindow) -> Vec<String> {
    let session = sessions.get(key, window).await.unwrap().unwrap();
    session.events.iter().map(|event| event.id.clone()).collect()
}

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

async fn an_event_is_read_back_unchanged(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let json = r#"{"id":"e1","invocationId":"e-1","author":"dice","content":{"role":"model","parts":[{"functionCall":
        {"id":"c1","name":"roll","args":{"sides":6,"ü":[null,1.5]}},"newKey":true}]},"actions":{"stateDelta":{},
        "newAction":{"a":1}},"longRunningToolIds":["c1"],"timestamp":1700000000.25,"unknown":"kept"}"#;
    let appended = Event::from_json(json).unwrap();
    append(sessions, &key, [appended.clone()]).await;
    let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(**session.events[0], **appended);
    assert_eq!(session.events[0].json(), json);
}

async fn an_event_sets_the_update_time(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    append(sessions, &key, [event_at(5_500_000)]).await;
    let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(session.last_update_time.as_seconds(), 5.5);
    assert!(session.created.as_seconds() > 5.5);
    assert_eq!(sessions.list("app", "ann").await.unwrap()[0].last_update_time.as_seconds(), 5.5);
}

async fn revisions_count_the_events(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    for expected in 1..=3 {
        assert_eq!(sessions.append(&key, &event("hello")).await.unwrap(), expected);
        assert_eq!(sessions.get(&key, EventWindow::Recent(0)).await.unwrap().unwrap().revision, expected);
    }
    assert_eq!(sessions.list("app", "ann").await.unwrap()[0].revision, 3);
}

async fn a_repeated_append_changes_nothing_and_returns_the_revision(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let first = delta(json!({"a": 1, "user:b": 1}));
    append(sessions, &key, [first.clone(), delta(json!({"a": 2, "user:b": 2}))]).await;
    let usage = sessions.usage(&key).await.unwrap();
    let again = Event::from_json(first.json().clone()).unwrap();
    assert_eq!(sessions.append(&key, &again).await.unwrap(), 1);
    assert_eq!(state(sessions, &key).await, json!({"a": 2, "user:b": 2}));
    assert_eq!(ids(sessions, &key, EventWindow::All).await.len(), 2);
    assert_eq!(sessions.usage(&key).await.unwrap(), usage);
    let TurnStart::Begun(turn) = sessions.begin_turn(&key, None, LONG).await.unwrap() else { panic!("it is held") };
    assert_eq!(sessions.append_with(&key, &first, Some(turn.fence)).await.unwrap(), 1);
    let other = create(sessions, "ann", "s2").await;
    assert_eq!(sessions.append(&other, &first).await.unwrap(), 1, "ids are unique within a session");
    assert_eq!(sessions.append(&key, &event("next")).await.unwrap(), 3);
}

async fn another_event_with_a_stored_id_is_rejected(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let with_id = |text: &str| {
        let content = Some(Arc::new(Content::user(text)));
        Event::new(EventData { id: "e1".into(), content, ..EventData::default() })
    };
    append(sessions, &key, [with_id("one")]).await;
    let error = sessions.append(&key, &with_id("two")).await.unwrap_err();
    assert_eq!(error.code(), "EVENT_EXISTS");
    assert_eq!(error.to_string(), "the session has another event of the id `e1`; leave the id empty to get a new one");
    assert_eq!(ids(sessions, &key, EventWindow::All).await, ["e1"]);
}

async fn a_partial_event_is_rejected_and_changes_nothing(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let partial = Event::new(EventData {
        id: "p1".into(),
        partial: true,
        actions: EventActions { state_delta: map(json!({"a": 1, "app:b": 1})), ..EventActions::default() },
        ..EventData::default()
    });
    let refused = sessions.append(&key, &partial).await;
    let Err(error @ StoreError::InvalidRequest(_)) = refused else { panic!("{refused:?}") };
    assert_eq!(
        error.to_string(),
        "event `p1` is partial and cannot be stored: append the final event that it leads to"
    );
    assert_eq!(state(sessions, &key).await, json!({}));
    assert_eq!(ids(sessions, &key, EventWindow::All).await.len(), 0);
}

async fn appending_to_an_unknown_session_is_an_error(sessions: &dyn SessionService) {
    let key = SessionKey::new("app", "ann", "unknown");
    for event in [event("hello"), delta(json!({"app:a": 1}))] {
        let appended = sessions.append(&key, &event).await;
        let Err(error @ StoreError::SessionNotFound(_)) = appended else { panic!("{appended:?}") };
        assert_eq!(error.to_string(), "Session not found: appName=app, userId=ann, sessionId=unknown");
    }
    assert!(sessions.get(&key, EventWindow::All).await.unwrap().is_none());
    assert_eq!(state(sessions, &create(sessions, "ann", "s1").await).await, json!({}));
}

async fn appending_to_a_deleted_session_is_an_error(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    append(sessions, &key, [event("hello")]).await;
    sessions.delete(&key).await.unwrap();
    let appended = sessions.append(&key, &event("anybody there?")).await;
    assert!(matches!(appended, Err(StoreError::SessionNotFound(_))), "{appended:?}");
    assert!(sessions.get(&key, EventWindow::All).await.unwrap().is_none());
}

async fn the_newest_events_can_be_requested(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    append(sessions, &key, (0..5).map(|number| event(&number.to_string()))).await;
    let all = ids(sessions, &key, EventWindow::All).await;
    assert_eq!(all.len(), 5);
    for count in 0..=5 {
        assert_eq!(ids(sessions, &key, EventWindow::Recent(count)).await, all[5 - count..]);
    }
    assert_eq!(ids(sessions, &key, EventWindow::Recent(usize::MAX)).await, all);
}

async fn events_since_a_time_can_be_requested(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    // Clocks of clients differ, so times need not ascend.
    append(sessions, &key, [10, 20, 30, 25].map(event_at)).await;
    let all = ids(sessions, &key, EventWindow::All).await;
    let since = |micros| EventWindow::Since(Timestamp::from_micros(micros));
    assert_eq!(ids(sessions, &key, since(0)).await, all);
    assert_eq!(ids(sessions, &key, since(20)).await, all[1..]);
    assert_eq!(ids(sessions, &key, since(25)).await, all[2..]);
    assert_eq!(ids(sessions, &key, since(26)).await, all[2..3]);
    assert!(ids(sessions, &key, since(31)).await.is_empty());
}

async fn events_after_a_revision_can_be_requested(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    append(sessions, &key, (0..200).map(|number| event(&number.to_string()))).await;
    let all = ids(sessions, &key, EventWindow::All).await;
    for revision in [0, 1, 63, 64, 65, 199, 200] {
        let tail = sessions.get(&key, EventWindow::AfterRevision(revision as u64)).await.unwrap().unwrap();
        let ids: Vec<_> = tail.events.iter().map(|event| event.id.clone()).collect();
        assert_eq!(ids, all[revision..]);
        assert_eq!(tail.revision, 200);
    }
    assert!(ids(sessions, &key, EventWindow::AfterRevision(u64::MAX)).await.is_empty());
}

async fn state_deltas_accumulate(sessions: &dyn SessionService) {
    let key = sessions.create("app", "ann", Some("s1"), map(json!({"a": 1, "b": 1}))).await.unwrap().key;
    append(sessions, &key, [delta(json!({"b": 2, "_app_c": 3})), delta(json!({"d": 4}))]).await;
    assert_eq!(state(sessions, &key).await, json!({"_app_c": 3, "a": 1, "b": 2, "d": 4}));
}

async fn a_removed_key_is_deleted(sessions: &dyn SessionService) {
    let initial = map(json!({"a": 1, "b": 1, "c": null, "user:a": 1, "app:a": 1, "d": 1}));
    let key = sessions.create("app", "ann", Some("s1"), initial).await.unwrap().key;
    let removals = json!({"a": null, "b": "__ADK_SENTINEL_REMOVED__", "user:a": null, "app:a": null, "unknown": null});
    append(sessions, &key, [delta(removals)]).await;
    assert_eq!(state(sessions, &key).await, json!({"d": 1}));
}

async fn values_of_every_kind_are_read_back(sessions: &dyn SessionService) {
    let values = json!({
        "array": [1, "two", [null]], "big": u64::MAX, "empty": "", "false": false, "float": 0.1, "negative": i64::MIN,
        "nested": {"z": 1, "a": {"null": null}}, "text": "quote \" backslash \\ newline \n é 🙂 \u{0}",
    });
    let key = create(sessions, "ann", "s1").await;
    append(sessions, &key, [delta(values.clone())]).await;
    assert_eq!(state(sessions, &key).await, values);
}

async fn app_state_is_shared_by_all_users_of_the_app(sessions: &dyn SessionService) {
    let ann = create(sessions, "ann", "s1").await;
    let bob = create(sessions, "bob", "s1").await;
    let elsewhere = sessions.create("other", "ann", Some("s1"), JsonMap::new()).await.unwrap().key;
    append(sessions, &ann, [delta(json!({"app:theme": "dark", "own": 1}))]).await;
    assert_eq!(state(sessions, &bob).await, json!({"app:theme": "dark"}));
    assert_eq!(state(sessions, &elsewhere).await, json!({}));
    append(sessions, &bob, [delta(json!({"app:theme": "light"}))]).await;
    assert_eq!(state(sessions, &ann).await, json!({"app:theme": "light", "own": 1}));
    append(sessions, &bob, [delta(json!({"app:theme": null}))]).await;
    assert_eq!(state(sessions, &ann).await, json!({"own": 1}));
}

async fn user_state_is_shared_by_the_sessions_of_the_user(sessions: &dyn SessionService) {
    let first = create(sessions, "ann", "s1").await;
    append(sessions, &first, [delta(json!({"user:name": "Ann", "app:a": 1}))]).await;
    let second = sessions.create("app", "ann", Some("s2"), map(json!({"own": 2}))).await.unwrap();
    assert_eq!(serde_json::to_value(&second.state).unwrap(), json!({"app:a": 1, "own": 2, "user:name": "Ann"}));
    assert_eq!(state(sessions, &create(sessions, "bob", "s1").await).await, json!({"app:a": 1}));
    let elsewhere = sessions.create("other", "ann", Some("s1"), JsonMap::new()).await.unwrap().key;
    assert_eq!(state(sessions, &elsewhere).await, json!({}));
    let listed = sessions.list("app", "ann").await.unwrap();
    assert!(listed.iter().all(|session| session.state.get("user:name") == Some(&json!("Ann"))), "{listed:?}");
}

async fn initial_state_is_split_by_scope(sessions: &dyn SessionService) {
    let initial = map(json!({"app:a": 1, "user:u": 2, "temp:t": 3, "own": 4}));
    let created = sessions.create("app", "ann", Some("s1"), initial).await.unwrap();
    assert_eq!(serde_json::to_value(&created.state).unwrap(), json!({"app:a": 1, "own": 4, "user:u": 2}));
    assert_eq!(state(sessions, &created.key).await, json!({"app:a": 1, "own": 4, "user:u": 2}));
    assert_eq!(state(sessions, &create(sessions, "ann", "s2").await).await, json!({"app:a": 1, "user:u": 2}));
    assert_eq!(state(sessions, &create(sessions, "bob", "s1").await).await, json!({"app:a": 1}));
}

async fn temporary_state_is_never_stored(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let event = delta(json!({"temp:a": 1}));
    append(sessions, &key, [event.clone(), delta(json!({"temp:b": 1, "c": 1}))]).await;
    assert_eq!(state(sessions, &key).await, json!({"c": 1}));
    let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(session.events[0].json(), event.json());
}

async fn shared_state_outlives_its_session(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    append(sessions, &key, [delta(json!({"app:a": 1, "user:u": 2, "own": 3}))]).await;
    sessions.delete(&key).await.unwrap();
    assert_eq!(state(sessions, &create(sessions, "ann", "s1").await).await, json!({"app:a": 1, "user:u": 2}));
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

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

async fn begin(sessions: &dyn SessionService, key: &SessionKey, previous: Option<u64>) -> Option<Turn> {
    match sessions.begin_turn(key, previous, LONG).await.unwrap() {
        TurnStart::Begun(turn) => Some(turn),
        TurnStart::Held { remaining } => {
            assert!(remaining > Duration::ZERO && remaining <= LONG, "{remaining:?}");
            None
        }
    }
}

async fn a_turn_raises_the_fence_and_returns_the_revision(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let first = begin(sessions, &key, None).await.unwrap();
    assert_eq!(sessions.append_with(&key, &event("hello"), Some(first.fence)).await.unwrap(), 1);
    let second = begin(sessions, &key, Some(first.fence)).await.unwrap();
    assert!(second.fence > first.fence);
    assert_eq!((first.revision, second.revision), (0, 1));
}

async fn a_turn_of_an_earlier_fence_can_append_nothing(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let first = begin(sessions, &key, None).await.unwrap();
    let stored = event("stored");
    sessions.append_with(&key, &stored, Some(first.fence)).await.unwrap();
    let second = begin(sessions, &key, Some(first.fence)).await.unwrap();
    for late in [event("late"), delta(json!({"a": 1, "user:b": 1, "app:c": 1}))] {
        let error = sessions.append_with(&key, &late, Some(first.fence)).await.unwrap_err();
        assert!(matches!(error, StoreError::Fenced(_)), "{error:?}");
        assert_eq!(error.code(), "TURN_TAKEN_OVER");
        assert_eq!(
            error.to_string(),
            "another host has taken over this session, so this run has stopped; what it stored before is kept: read the session, then \
             resume the run with its invocation id or send the message again (appName=app, userId=ann, sessionId=s1)"
        );
    }
    assert_eq!(state(sessions, &key).await, json!({}));
    assert_eq!(sessions.append_with(&key, &stored, Some(first.fence)).await.unwrap(), 1, "it was stored before");
    assert_eq!(sessions.append_with(&key, &event("next"), Some(second.fence)).await.unwrap(), 2);
}

async fn an_append_outside_of_turns_needs_no_fence(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let turn = begin(sessions, &key, None).await.unwrap();
    assert_eq!(sessions.append(&key, &delta(json!({"a": 1}))).await.unwrap(), 1);
    assert_eq!(sessions.append_with(&key, &event("hello"), Some(turn.fence)).await.unwrap(), 2);
    assert_eq!(state(sessions, &key).await, json!({"a": 1}));
}

async fn a_turn_waits_for_the_lease_of_the_one_before(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let first = begin(sessions, &key, None).await.unwrap();
    assert_eq!(begin(sessions, &key, None).await, None);
    sessions.append_with(&key, &event("hello"), Some(first.fence)).await.unwrap();
    sessions.renew_turn(&key, first.fence, Duration::ZERO).await.unwrap();
    let second = begin(sessions, &key, None).await.unwrap();
    assert_eq!((second.fence, second.revision), (first.fence + 1, 1));
}

async fn a_turn_may_follow_the_callers_own_last_turn_at_once(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let first = begin(sessions, &key, None).await.unwrap();
    let second = begin(sessions, &key, Some(first.fence)).await.unwrap();
    assert_eq!(begin(sessions, &key, Some(first.fence)).await, None, "another turn has begun since");
    assert!(begin(sessions, &key, Some(second.fence)).await.is_some());
}

async fn a_turn_that_was_taken_over_cannot_be_renewed_or_ended(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let first = begin(sessions, &key, None).await.unwrap();
    let second = begin(sessions, &key, Some(first.fence)).await.unwrap();
    for lease in [LONG, Duration::ZERO] {
        let renewed = sessions.renew_turn(&key, first.fence, lease).await;
        assert!(matches!(renewed, Err(StoreError::Fenced(_))), "{renewed:?}");
    }
    assert_eq!(begin(sessions, &key, None).await, None, "the second is still held");
    sessions.append_with(&key, &event("hello"), Some(second.fence)).await.unwrap();
}

async fn a_renewed_turn_is_held_for_its_new_lease(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let TurnStart::Begun(turn) = sessions.begin_turn(&key, None, Duration::ZERO).await.unwrap() else {
        panic!("it is held")
    };
    sessions.renew_turn(&key, turn.fence, LONG).await.unwrap();
    assert_eq!(begin(sessions, &key, None).await, None);
    sessions.append_with(&key, &event("hello"), Some(turn.fence)).await.unwrap();
}

async fn a_lease_has_a_limit(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let TurnStart::Begun(turn) = sessions.begin_turn(&key, None, Duration::MAX).await.unwrap() else {
        panic!("it is held")
    };
    for _ in 0..2 {
        let TurnStart::Held { remaining } = sessions.begin_turn(&key, None, LONG).await.unwrap() else {
            panic!("it is not held")
        };
        assert!(remaining <= MAX_TURN_LEASE, "{remaining:?}");
        sessions.renew_turn(&key, turn.fence, Duration::MAX).await.unwrap();
    }
}

async fn a_turn_of_an_unknown_session_is_an_error(sessions: &dyn SessionService) {
    let key = SessionKey::new("app", "ann", "unknown");
    let begun = sessions.begin_turn(&key, None, LONG).await;
    assert!(matches!(begun, Err(StoreError::SessionNotFound(_))), "{begun:?}");
    let renewed = sessions.renew_turn(&key, 1, LONG).await;
    assert!(matches!(renewed, Err(StoreError::SessionNotFound(_))), "{renewed:?}");
    let appended = sessions.append_with(&key, &event("hello"), Some(1)).await;
    assert!(matches!(appended, Err(StoreError::SessionNotFound(_))), "{appended:?}");
}

async fn a_session_created_again_knows_no_earlier_turns(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let event = event("hello");
    let first = begin(sessions, &key, None).await.unwrap();
    sessions.append_with(&key, &event, Some(first.fence)).await.unwrap();
    sessions.delete(&key).await.unwrap();
    create(sessions, "ann", "s1").await;
    assert!(begin(sessions, &key, None).await.is_some(), "nobody holds a turn of the new session");
    assert_eq!(sessions.append(&key, &event).await.unwrap(), 1);
    assert_eq!(ids(sessions, &key, EventWindow::All).await, [event.id.as_str()]);
}

async fn only_one_of_many_hosts_begins_a_turn(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let begun = join_all((0..8).map(|_| begin(sessions, &key, None))).await;
    assert_eq!(begun.iter().flatten().count(), 1, "{begun:?}");
}

async fn concurrent_appends_keep_every_event(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let events: Vec<_> = (0..16).map(|number| delta(json!({format!("k{number}"): number, "last": number}))).collect();
    let appends = join_all(events.iter().map(|event| sessions.append(&key, event))).await;
    let revisions: BTreeSet<u64> = appends.into_iter().map(Result::unwrap).collect();
    assert_eq!(revisions, (1..=16).collect());

    let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    let stored: BTreeSet<_> = session.events.iter().map(|event| event.id.clone()).collect();
    assert_eq!(stored, events.iter().map(|event| event.id.clone()).collect());
    assert_eq!((session.revision, session.state.len()), (16, 17));
    assert_eq!(session.state.get("last"), session.events[15].actions.state_delta.get("last"));
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
