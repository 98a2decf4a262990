//! Session services: state and its scopes.

use hatchery_core::{EventWindow, JsonMap, SessionService};
use serde_json::json;

use crate::support::{append, create, delta, map, state};

on_every_session_backend!([
    state_deltas_accumulate,
    a_removed_key_is_deleted,
    values_of_every_kind_are_read_back,
    app_state_is_shared_by_all_users_of_the_app,
    user_state_is_shared_by_the_sessions_of_the_user,
    initial_state_is_split_by_scope,
    temporary_state_is_never_stored,
    shared_state_outlives_its_session,
]);

// Agent Engine shares no state between sessions.
#[cfg(feature = "agent-engine")]
every_backend!(
    [
        state_deltas_accumulate,
        a_removed_key_is_deleted,
        values_of_every_kind_are_read_back,
        temporary_state_is_never_stored,
    ],
    agent_engine(_folder) => crate::fake_engine::FakeEngine::start().await.sessions(),
);

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
