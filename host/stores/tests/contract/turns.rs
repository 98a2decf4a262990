//! Session services: turns, their fence and their lease.

use std::time::Duration;

use futures::future::join_all;
use hatchery_core::{
    EventWindow, MAX_TURN_LEASE, Session, SessionKey, SessionService, StoreError, Turn, TurnOpening, TurnStart,
};
use serde_json::json;

use crate::support::{LONG, create, delta, event, ids, state};

on_every_session_backend!([
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
    an_opened_turn_has_the_session_with_the_events_of_the_window,
    an_opened_turn_has_a_long_session_too,
    a_turn_is_not_opened_while_another_one_is_held,
]);

// Turns belong to the process.
#[cfg(feature = "agent-engine")]
every_backend!(
    [
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
        an_opened_turn_has_the_session_with_the_events_of_the_window,
        an_opened_turn_has_a_long_session_too,
        a_turn_is_not_opened_while_another_one_is_held,
    ],
    agent_engine(_folder) => crate::fake_engine::FakeEngine::start().await.sessions(),
);

async fn begin(sessions: &dyn SessionService, key: &SessionKey, previous: Option<u64>) -> Option<Turn> {
    match sessions.begin_turn(key, previous, LONG).await.unwrap() {
        TurnStart::Begun(turn) => Some(turn),
        TurnStart::Held { remaining } => {
            assert!(remaining > Duration::ZERO && remaining <= LONG, "{remaining:?}");
            None
        }
    }
}

async fn open(
    sessions: &dyn SessionService,
    key: &SessionKey,
    previous: Option<u64>,
    window: EventWindow,
) -> (u64, Session) {
    match sessions.open_turn(key, previous, LONG, window).await.unwrap() {
        TurnOpening::Begun { fence, session } => (fence, session),
        TurnOpening::Held { remaining } => panic!("it is held for {remaining:?}"),
    }
}

async fn an_opened_turn_has_the_session_with_the_events_of_the_window(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let (first, session) = open(sessions, &key, None, EventWindow::All).await;
    assert_eq!((session.revision, session.events.len()), (0, 0));
    let (hello, change) = (event("hello"), delta(json!({"a": 1, "user:b": 2})));
    for event in [&hello, &change] {
        sessions.append_with(&key, event, Some(first)).await.unwrap();
    }
    let (second, session) = open(sessions, &key, Some(first), EventWindow::All).await;
    assert!(second > first);
    let stored = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert!(session.events.iter().map(|event| &event.id).eq([&hello.id, &change.id]));
    assert_eq!((session.revision, session.created), (2, stored.created));
    assert_eq!(serde_json::to_value(&session.state).unwrap(), json!({"a": 1, "user:b": 2}));
    for (window, expected) in [(EventWindow::AfterRevision(1), 1), (EventWindow::AfterRevision(2), 0)] {
        let (fence, session) = open(sessions, &key, Some(second), window).await;
        assert_eq!((session.revision, session.events.len()), (2, expected));
        sessions.renew_turn(&key, fence, Duration::ZERO).await.unwrap();
    }
}

/// SQLite reads such a session outside of the thread that writes.
async fn an_opened_turn_has_a_long_session_too(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let (first, _) = open(sessions, &key, None, EventWindow::All).await;
    let text = "long ".repeat(8 << 10);
    for _ in 0..3 {
        sessions.append_with(&key, &event(&text), Some(first)).await.unwrap();
    }
    let (second, session) = open(sessions, &key, Some(first), EventWindow::Recent(2)).await;
    assert_eq!((session.revision, session.events.len()), (3, 2));
    sessions.append_with(&key, &event("next"), Some(second)).await.unwrap();
}

async fn a_turn_is_not_opened_while_another_one_is_held(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let (fence, _) = open(sessions, &key, None, EventWindow::All).await;
    let other = sessions.open_turn(&key, None, LONG, EventWindow::All).await.unwrap();
    assert!(matches!(other, TurnOpening::Held { remaining } if remaining <= LONG), "{other:?}");
    sessions.append_with(&key, &event("hello"), Some(fence)).await.unwrap();
    let unknown = SessionKey::new(key.app.clone(), key.user.clone(), "unknown");
    let error = sessions.open_turn(&unknown, None, LONG, EventWindow::All).await.unwrap_err();
    assert!(matches!(error, StoreError::SessionNotFound(_)), "{error:?}");
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
    let turn_start = sessions.begin_turn(&key, None, LONG).await;
    assert!(matches!(turn_start, Err(StoreError::SessionNotFound(_))), "{turn_start:?}");
    let renewed = sessions.renew_turn(&key, 1, LONG).await;
    assert!(matches!(renewed, Err(StoreError::SessionNotFound(_))), "{renewed:?}");
    let appended = sessions.append_with(&key, &event("hello"), Some(1)).await;
    assert!(matches!(appended, Err(StoreError::SessionNotFound(_))), "{appended:?}");
}

async fn a_session_created_again_knows_no_earlier_turns(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let hello = event("hello");
    let first = begin(sessions, &key, None).await.unwrap();
    sessions.append_with(&key, &hello, Some(first.fence)).await.unwrap();
    sessions.delete(&key).await.unwrap();
    create(sessions, "ann", "s1").await;
    assert!(begin(sessions, &key, None).await.is_some(), "nobody holds a turn of the new session");
    assert_eq!(begin(sessions, &key, Some(first.fence)).await, None, "it is not the caller's own turn");
    let late = sessions.append_with(&key, &event("late"), Some(first.fence)).await;
    assert!(matches!(late, Err(StoreError::Fenced(_))), "{late:?}");
    assert_eq!(sessions.append(&key, &hello).await.unwrap(), 1);
    assert_eq!(ids(sessions, &key, EventWindow::All).await, [hello.id.as_str()]);
}

async fn only_one_of_many_hosts_begins_a_turn(sessions: &dyn SessionService) {
    let key = create(sessions, "ann", "s1").await;
    let turn_start = join_all((0..8).map(|_| begin(sessions, &key, None))).await;
    assert_eq!(turn_start.iter().flatten().count(), 1, "{turn_start:?}");
}
