//! Session services: appending and reading events.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use hatchery_core::{
    Content, Event, EventActions, EventData, EventWindow, SessionKey, SessionService, StoreError, Timestamp, TurnStart,
};
use serde_json::json;

use crate::support::{LONG, append, create, delta, event, event_at, ids, map, state};

on_every_session_backend!([
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
    concurrent_appends_keep_every_event,
]);

// Agent Engine lists sessions with its own time, and does not count events.
#[cfg(feature = "agent-engine")]
every_backend!(
    [
        an_event_is_read_back_unchanged,
        a_repeated_append_changes_nothing_and_returns_the_revision,
        another_event_with_a_stored_id_is_rejected,
        a_partial_event_is_rejected_and_changes_nothing,
        appending_to_an_unknown_session_is_an_error,
        appending_to_a_deleted_session_is_an_error,
        the_newest_events_can_be_requested,
        events_since_a_time_can_be_requested,
        events_after_a_revision_can_be_requested,
        concurrent_appends_keep_every_event,
    ],
    agent_engine(_folder) => crate::fake_engine::FakeEngine::start().await.sessions(),
);

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
