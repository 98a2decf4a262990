//! Session services: forks and rewinds.

use std::time::Duration;

use hatchery_core::{EventWindow, SessionKey, SessionService, StoreError, Turn, TurnStart};
use serde_json::{Value, json};

use crate::support::{LONG, append, create, delta, event, ids, map, state};

on_every_plain_session_backend!([
    a_fork_has_the_first_events_and_their_state,
    a_fork_is_independent_of_its_session,
    a_fork_keeps_the_ids_of_its_events_unique,
    a_fork_needs_a_free_id_and_enough_events,
    a_session_can_be_rewound_to_an_event,
    a_rewound_session_is_counted_again,
    a_rewind_waits_for_no_turn_and_fences_out_the_last_one,
    a_rewind_needs_enough_events,
    a_closed_session_keeps_its_data,
]);

// Encrypted data has more bytes.
on_every_encrypted_session_backend!([
    a_fork_has_the_first_events_and_their_state,
    a_fork_is_independent_of_its_session,
    a_fork_keeps_the_ids_of_its_events_unique,
    a_fork_needs_a_free_id_and_enough_events,
    a_session_can_be_rewound_to_an_event,
    a_rewind_waits_for_no_turn_and_fences_out_the_last_one,
    a_rewind_needs_enough_events,
    a_closed_session_keeps_its_data,
]);

async fn begin(sessions: &dyn SessionService, key: &SessionKey) -> Turn {
    match sessions.begin_turn(key, None, LONG).await.unwrap() {
        TurnStart::Begun(turn) => turn,
        TurnStart::Held { remaining } => panic!("a turn is held for {remaining:?}"),
    }
}

/// Creates a session with initial state and three events.
async fn create_with_history(sessions: &dyn SessionService) -> SessionKey {
    let initial = map(json!({"kept": 0, "changed": 0, "removed": 0, "user:shared": 0}));
    let key = sessions.create("app", "ann", Some("s1"), initial).await.unwrap().key;
    let deltas = [
        json!({"changed": 1, "first": 1, "user:shared": 1}),
        json!({"changed": 2, "removed": null, "first": 2, "second": 2, "user:shared": 2, "temp:t": 2}),
        json!({"changed": null, "first": null, "third": 3}),
    ];
    append(sessions, &key, deltas.map(delta)).await;
    key
}

/// The session's own state at each revision, and the state of the user at the end.
fn states() -> [Value; 4] {
    [
        json!({"kept": 0, "changed": 0, "removed": 0, "user:shared": 2}),
        json!({"kept": 0, "changed": 1, "removed": 0, "first": 1, "user:shared": 2}),
        json!({"kept": 0, "changed": 2, "first": 2, "second": 2, "user:shared": 2}),
        json!({"kept": 0, "second": 2, "third": 3, "user:shared": 2}),
    ]
}

async fn a_fork_has_the_first_events_and_their_state(sessions: &dyn SessionService) {
    let key = create_with_history(sessions).await;
    let all = ids(sessions, &key, EventWindow::All).await;
    for (revision, expected) in states().into_iter().enumerate() {
        let fork = sessions.fork(&key, revision as u64, Some(&format!(" f{revision} "))).await.unwrap();
        assert_eq!(fork.key, SessionKey::new("app", "ann", format!("f{revision}")));
        assert_eq!((fork.revision, fork.events.len()), (revision as u64, 0));
        assert_eq!(serde_json::to_value(&fork.state).unwrap(), expected);
        let found = sessions.get(&fork.key, EventWindow::All).await.unwrap().unwrap();
        assert_eq!((found.revision, found.created), (fork.revision, fork.created));
        assert_eq!(found.last_update_time, fork.last_update_time);
        let time = found.events.last().map_or(fork.created, |event| event.timestamp);
        assert_eq!(found.last_update_time, time);
        assert_eq!(ids(sessions, &fork.key, EventWindow::All).await, all[..revision]);
        assert_eq!(state(sessions, &fork.key).await, expected);
        // A fork of a fork goes back as far.
        let again = sessions.fork(&fork.key, 0, None).await.unwrap();
        assert_eq!((again.key.id.len(), state(sessions, &again.key).await), (36, states()[0].clone()));
    }
}

async fn a_fork_is_independent_of_its_session(sessions: &dyn SessionService) {
    let key = create_with_history(sessions).await;
    let before = sessions.usage(&key).await.unwrap();
    let fork = sessions.fork(&key, 2, None).await.unwrap().key;
    let used = sessions.usage(&fork).await.unwrap();
    assert_eq!((used.session.events, used.user.sessions), (2, before.user.sessions + 1));
    assert_eq!(used.user.event_bytes, before.user.event_bytes + used.session.event_bytes);
    assert_eq!(used.session.state.keys, 4);
    append(sessions, &fork, [delta(json!({"kept": 9}))]).await;
    append(sessions, &key, [delta(json!({"kept": 8})), event("hello")]).await;
    assert_eq!(sessions.get(&fork, EventWindow::Recent(0)).await.unwrap().unwrap().revision, 3);
    assert_eq!(sessions.get(&key, EventWindow::Recent(0)).await.unwrap().unwrap().revision, 5);
    sessions.delete(&key).await.unwrap();
    let session = sessions.get(&fork, EventWindow::All).await.unwrap().unwrap();
    assert_eq!((session.events.len(), session.state.get("kept")), (3, Some(&json!(9))));
    sessions.delete(&fork).await.unwrap();
    assert_eq!(sessions.usage(&fork).await.unwrap().user.event_bytes, 0);
}

async fn a_fork_keeps_the_ids_of_its_events_unique(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let events = [event("one"), event("two")];
    append(sessions, &key, events.clone()).await;
    let fork = sessions.fork(&key, 1, None).await.unwrap().key;
    assert_eq!(sessions.append(&fork, &events[0]).await.unwrap(), 1, "the fork has it");
    assert_eq!(sessions.append(&fork, &events[1]).await.unwrap(), 2, "the fork has it not");
    begin(sessions, &fork).await;
}

async fn a_fork_needs_a_free_id_and_enough_events(sessions: &dyn SessionService) {
    let key = create_with_history(sessions).await;
    let conflict = sessions.fork(&key, 1, Some("s1")).await;
    assert!(matches!(conflict, Err(StoreError::SessionExists(_))), "{conflict:?}");
    let error = sessions.fork(&key, 4, None).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the session has 3 events, so there is no event 4: name one of them (appName=app, userId=ann, sessionId=s1)"
    );
    let unknown = sessions.fork(&SessionKey::new("app", "ann", "unknown"), 0, None).await;
    assert!(matches!(unknown, Err(StoreError::SessionNotFound(_))), "{unknown:?}");
    assert_eq!(sessions.list("app", "ann").await.unwrap().len(), 1);
}

async fn a_session_can_be_rewound_to_an_event(sessions: &dyn SessionService) {
    let key = create_with_history(sessions).await;
    let before = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    for revision in (0..=3).rev() {
        let rewound = sessions.rewind(&key, revision as u64).await.unwrap();
        assert_eq!((&rewound.key, rewound.revision, rewound.events.len()), (&key, revision as u64, 0));
        assert!(rewound.created > before.created, "readers can tell that it is another one");
        let found = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
        assert_eq!((found.created, found.last_update_time), (rewound.created, rewound.last_update_time));
        let remaining: Vec<_> = before.events.iter().take(revision).collect();
        assert!(found.events.iter().map(|event| &event.id).eq(remaining.iter().map(|event| &event.id)));
        assert_eq!(found.last_update_time, remaining.last().map_or(found.created, |event| event.timestamp));
        assert_eq!(serde_json::to_value(&found.state).unwrap(), states()[revision]);
        assert_eq!(serde_json::to_value(&rewound.state).unwrap(), states()[revision]);
    }
    // A removed event can be appended again.
    assert_eq!(sessions.append(&key, &before.events[2]).await.unwrap(), 1);
}

async fn a_rewound_session_is_counted_again(sessions: &dyn SessionService) {
    let key = create_with_history(sessions).await;
    let other = sessions.fork(&key, 1, None).await.unwrap().key;
    sessions.rewind(&key, 1).await.unwrap();
    let (one, other) = (sessions.usage(&key).await.unwrap(), sessions.usage(&other).await.unwrap());
    assert_eq!(one.session, other.session);
    assert_eq!(one.user.event_bytes, 2 * one.session.event_bytes);
    sessions.delete(&key).await.unwrap();
    assert_eq!(sessions.usage(&key).await.unwrap().user.event_bytes, other.session.event_bytes);
}

async fn a_rewind_waits_for_no_turn_and_fences_out_the_last_one(sessions: &dyn SessionService) {
    let key = create_with_history(sessions).await;
    let turn = begin(sessions, &key).await;
    let error = sessions.rewind(&key, 1).await.unwrap_err();
    assert_eq!(error.code(), "STORE_BUSY");
    assert_eq!(error.to_string(), "session `s1` of app `app` is in use by another run; try again in 1 s");
    sessions.renew_turn(&key, turn.fence, Duration::ZERO).await.unwrap();
    sessions.rewind(&key, 1).await.unwrap();
    let late = sessions.append_with(&key, &event("late"), Some(turn.fence)).await;
    assert!(matches!(late, Err(StoreError::Fenced(_))), "{late:?}");
    assert_eq!(begin(sessions, &key).await.revision, 1);
}

async fn a_rewind_needs_enough_events(sessions: &dyn SessionService) {
    let key = create_with_history(sessions).await;
    let error = sessions.rewind(&key, 4).await.unwrap_err();
    assert!(error.to_string().starts_with("the session has 3 events, so there is no event 4"), "{error}");
    let unknown = sessions.rewind(&SessionKey::new("app", "ann", "unknown"), 0).await;
    assert!(matches!(unknown, Err(StoreError::SessionNotFound(_))), "{unknown:?}");
    assert_eq!(state(sessions, &key).await, states()[3]);
}

async fn a_closed_session_keeps_its_data(sessions: &dyn SessionService) {
    let key = create_with_history(sessions).await;
    sessions.close_session(&key).await.unwrap();
    assert_eq!(ids(sessions, &key, EventWindow::All).await.len(), 3);
    assert_eq!(sessions.append(&key, &event("hello")).await.unwrap(), 4);
}
