//! Writes of several commits, and hosts and services that fail between them.

use super::*;

#[tokio::test]
async fn sessions_that_take_several_commits_are_forked_rewound_and_deleted() {
    let Some(([sessions, _], project)) = two_hosts() else { return };
    let key = create(&sessions, "ann", "s1").await;
    let all: Vec<_> = (0..450).map(|number| delta(json!({"last": number}))).collect();
    append(&sessions, &key, all.clone()).await;
    let recent = ids(&sessions, &key, EventWindow::Recent(20)).await;
    assert!(recent.iter().eq(all[430..].iter().map(|event| &event.id)));

    let fork = sessions.fork(&key, 420, Some("copy")).await.unwrap();
    assert_eq!(fork.state.get("last"), Some(&json!(419)));
    assert_eq!(ids(&sessions, &fork.key, EventWindow::All).await.len(), 420);
    assert_eq!(sessions.list("app", "ann").await.unwrap().len(), 2);

    let rewound = sessions.rewind(&key, 5).await.unwrap();
    assert_eq!(rewound.state.get("last"), Some(&json!(4)));
    assert_eq!(documents(&project, "adk-session/ann/sessions/app~s1/user-event").await.len(), 5);
    assert_eq!(sessions.append(&key, &all[300]).await.unwrap(), 6);

    sessions.delete(&fork.key).await.unwrap();
    assert!(documents(&project, "adk-session/ann/sessions/app~copy/user-event").await.is_empty());
    assert_eq!(documents(&project, "adk-session/ann/sessions").await, ["app~s1"]);
}

/// Sets a field of a document as a host leaves it that ends between two commits.
async fn interrupt(project: &str, path: &str, field: &str, value: Value) {
    let path = format!("{path}?updateMask.fieldPaths={field}");
    rest(project, &path, Some(json!({"fields": {field: value}}))).await;
}

#[tokio::test]
async fn a_deletion_that_a_host_has_not_completed_is_completed_by_the_next_one() {
    let Some(([first, second], project)) = two_hosts() else { return };
    let path = "adk-session/ann/sessions/app~s1";
    for status in ["removing", "copying"] {
        let key = create(&first, "ann", "s1").await;
        append(&first, &key, [event("one"), event("two")]).await;
        interrupt(&project, path, "status", json!({"stringValue": status})).await;
        assert!(second.get(&key, EventWindow::All).await.unwrap().is_none());
        let late = first.append(&key, &event("late")).await;
        assert!(matches!(late, Err(StoreError::SessionNotFound(_))), "{late:?}");
        create(&second, "ann", "s1").await;
        assert!(documents(&project, &format!("{path}/user-event")).await.is_empty());
        assert_eq!(second.append(&key, &event("new")).await.unwrap(), 1);
        second.delete(&key).await.unwrap();
        assert!(documents(&project, "adk-session/ann/sessions").await.is_empty());
    }
}

#[tokio::test]
async fn a_rewind_that_a_host_has_not_completed_is_completed_by_the_next_one() {
    let Some(([first, second], project)) = two_hosts() else { return };
    let (path, key) = ("adk-session/ann/sessions/app~s1", create(&first, "ann", "s1").await);
    append(&first, &key, (0..4).map(|number| event(&number.to_string()))).await;
    interrupt(&project, path, "revision", json!({"integerValue": "2"})).await;
    interrupt(&project, path, "status", json!({"stringValue": "trimming"})).await;
    for window in [EventWindow::All, EventWindow::Since(Timestamp::from_micros(0))] {
        assert_eq!(ids(&second, &key, window).await.len(), 2, "events that are undone are not read");
    }
    assert_eq!(second.append(&key, &event("new")).await.unwrap(), 3);
    assert_eq!(documents(&project, &format!("{path}/user-event")).await.len(), 3);
    assert_eq!(first.append(&key, &event("next")).await.unwrap(), 4);
}

#[tokio::test]
async fn a_rewind_that_another_host_completes_is_not_done_again() {
    let Some(proxy) = Proxy::start().await else { return };
    let project = format!("test-{}", uuid::Uuid::new_v4());
    let first = FirestoreSessionService::new(proxy.client_of(&project));
    let second = FirestoreSessionService::new(emulator::project(&project).unwrap());
    let key = create(&second, "ann", "s1").await;
    append(&second, &key, (0..450).map(|number| event(&number.to_string()))).await;
    proxy.fail_next(":commit", Fault::AnswerHeld);
    let meanwhile = async {
        proxy.held().await;
        let revision = second.append(&key, &event("new")).await;
        proxy.release();
        revision
    };
    let (rewound, revision) = tokio::join!(first.rewind(&key, 5), meanwhile);
    assert_eq!((rewound.unwrap().revision, revision.unwrap()), (5, 6));
    assert_eq!(ids(&second, &key, EventWindow::All).await.len(), 6);
}

#[tokio::test]
async fn a_rewind_deletes_what_the_undone_run_has_recorded() {
    let Some(([sessions, _], project)) = two_hosts() else { return };
    let key = create(&sessions, "ann", "s1").await;
    let TurnStart::Begun(turn) = sessions.begin_turn(&key, None, LONG).await.unwrap() else { panic!("it is held") };
    let run = StoredRun { is_background: true, request: Some("{}".into()), ..StoredRun::new(key.clone(), "r1", 0) };
    sessions.runs().unwrap().start(&run, turn.fence).await.unwrap();
    let data = EventData { invocation_id: "r1".into(), ..EventData::default() };
    sessions.append_with(&key, &Event::new(data), Some(turn.fence)).await.unwrap();
    let record = hatchery_core::CallRecord { call: "c".into(), outcome: Some("1".into()) };
    sessions.journal().unwrap().record(&key, "r1", turn.fence, &record).await.unwrap();
    sessions.renew_turn(&key, turn.fence, std::time::Duration::ZERO).await.unwrap();
    let pending = "background-runs/app/pending";
    assert_eq!(documents(&project, pending).await.len(), 1);
    sessions.rewind(&key, 0).await.unwrap();
    assert_eq!(sessions.usage(&key).await.unwrap().session.event_bytes, 0);
    for path in [pending, "adk-session/ann/sessions/app~s1/runs", "adk-session/ann/sessions/app~s1/calls"] {
        assert!(documents(&project, path).await.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn an_append_whose_answer_is_lost_is_stored_once() {
    let Some(proxy) = Proxy::start().await else { return };
    let sessions = FirestoreSessionService::new(proxy.client());
    let key = create(&sessions, "ann", "s1").await;
    let event = delta(json!({"a": 1}));
    proxy.fail_next(":commit", Fault::AnswerLost);
    assert_eq!(sessions.append(&key, &event).await.unwrap(), 1);
    assert_eq!(ids(&sessions, &key, EventWindow::All).await, [event.id.as_str()]);
    assert_eq!(sessions.usage(&key).await.unwrap().session.state.keys, 1);
}

#[tokio::test]
async fn a_service_that_is_not_available_is_asked_again_to_read_and_to_append() {
    let Some(proxy) = Proxy::start().await else { return };
    let client = proxy.client();
    let sessions = FirestoreSessionService::new(client.clone());
    let key = create(&sessions, "ann", "s1").await;
    for method in [":batchGet", ":commit"] {
        proxy.fail_next(method, Fault::Unavailable);
        let sessions = FirestoreSessionService::new(client.clone());
        sessions.append(&key, &event("hello")).await.unwrap();
    }
    proxy.fail_next(":runQuery", Fault::Unavailable);
    assert_eq!(ids(&sessions, &key, EventWindow::All).await.len(), 2);
    proxy.fail_next(":commit", Fault::Unavailable);
    let error = sessions.begin_turn(&key, None, LONG).await.unwrap_err();
    assert_eq!(error.code(), "STORE_BUSY");
    assert_eq!(error.to_string(), "the Firestore database is busy or not available; try again in 1 s");
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_busy() {
    // Connections to it are accepted by the system.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let sessions = FirestoreSessionService::new(FirestoreClient::builder("project").emulator(address).build().unwrap());
    let error = sessions.get(&SessionKey::new("app", "ann", "s1"), EventWindow::All).await.err().unwrap();
    assert_eq!(error.code(), "STORE_BUSY", "{error}");
}
