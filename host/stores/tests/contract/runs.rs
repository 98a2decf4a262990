//! Stored runs, which session services keep beside their sessions.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{
    Event, EventData, EventWindow, JsonMap, RunFailure, RunPage, RunService, RunState, RunTransition, SessionKey,
    SessionService, StoreError, StoredRun, TurnStart,
};
use hatchery_stores::quotas::QuotaSessions;
use hatchery_stores::{Quota, Quotas};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

on_every_plain_session_backend!([
    a_run_is_read_back_as_it_was_stored,
    a_run_is_added_once,
    a_service_and_the_state_machine_agree_on_every_transition,
    a_run_that_may_be_stored_later_is_seen_at_once,
    a_run_starts_once_although_two_tasks_cancel_and_start_it,
    a_turn_that_was_taken_over_changes_no_run,
    runs_are_listed_page_by_page_newest_first,
    interrupted_background_runs_are_found_once_their_turn_has_ended,
    the_run_that_was_started_last_is_in_progress_while_a_turn_holds_the_session,
    a_session_has_a_turn_until_its_lease_ends,
    a_deleted_session_has_no_runs,
    a_run_is_not_taken_for_one_of_a_deleted_session,
    a_rewind_deletes_the_runs_that_have_begun_since,
    runs_count_as_bytes_of_the_session,
    an_unknown_session_has_no_runs,
]);

// Encrypted data has more bytes.
on_every_encrypted_session_backend!([
    a_run_is_read_back_as_it_was_stored,
    a_run_is_added_once,
    a_service_and_the_state_machine_agree_on_every_transition,
    a_run_that_may_be_stored_later_is_seen_at_once,
    a_run_starts_once_although_two_tasks_cancel_and_start_it,
    a_turn_that_was_taken_over_changes_no_run,
    runs_are_listed_page_by_page_newest_first,
    interrupted_background_runs_are_found_once_their_turn_has_ended,
    the_run_that_was_started_last_is_in_progress_while_a_turn_holds_the_session,
    a_session_has_a_turn_until_its_lease_ends,
    a_deleted_session_has_no_runs,
    a_run_is_not_taken_for_one_of_a_deleted_session,
    an_unknown_session_has_no_runs,
]);

fn runs(sessions: &dyn SessionService) -> &dyn RunService {
    sessions.runs().unwrap()
}

async fn session(sessions: &dyn SessionService, id: &str) -> SessionKey {
    sessions.create("app", "ann", Some(id), JsonMap::new()).await.unwrap().key
}

async fn begin(sessions: &dyn SessionService, key: &SessionKey, previous: Option<u64>) -> u64 {
    let turn_start = sessions.begin_turn(key, previous, Duration::from_secs(60)).await.unwrap();
    let TurnStart::Begun(turn) = turn_start else { panic!("it is held") };
    turn.fence
}

fn failure() -> RunTransition {
    RunTransition::Fail(RunFailure { code: "LIMIT_REACHED".into(), message: "é \u{0} too many".into() })
}

async fn a_run_is_read_back_as_it_was_stored(sessions: &dyn SessionService) {
    let key = session(sessions, "s1").await;
    let run = StoredRun {
        is_background: true,
        request: Some("{\"é\":1}".into()),
        ..StoredRun::new(key.clone(), "r/1 '%_", 7)
    };
    assert_eq!(runs(sessions).add(&run).await.unwrap(), run);
    assert_eq!(runs(sessions).get(&key, &run.id).await.unwrap(), Some(run.clone()));
    let failed = runs(sessions).change(&key, &run.id, None, &failure()).await.unwrap().unwrap();
    assert_eq!((failed.state, failed.failure.is_some(), &failed.request), (RunState::Failed, true, &None));
    assert_eq!(runs(sessions).get(&key, &run.id).await.unwrap(), Some(failed));
    assert_eq!(runs(sessions).get(&key, "r").await.unwrap(), None);
    assert_eq!(runs(sessions).change(&key, "r", None, &RunTransition::Cancel).await.unwrap(), None);
}

async fn a_run_is_added_once(sessions: &dyn SessionService) {
    let key = session(sessions, "s1").await;
    let first = runs(sessions).add(&StoredRun::new(key.clone(), "r1", 0)).await.unwrap();
    let second = StoredRun { is_background: true, ..StoredRun::new(key.clone(), "r1", 3) };
    assert_eq!(runs(sessions).add(&second).await.unwrap(), first);
    let fence = begin(sessions, &key, None).await;
    let started = runs(sessions).start(&second, fence).await.unwrap();
    assert_eq!((started.state, started.attempts, started.first_revision), (RunState::Running, 1, 0));
    let other = session(sessions, "s2").await;
    let run = StoredRun::new(other, "r1", 0);
    assert_eq!(runs(sessions).add(&run).await.unwrap(), run, "ids are unique in a session only");
}

async fn a_service_and_the_state_machine_agree_on_every_transition(sessions: &dyn SessionService) {
    let transitions = [
        RunTransition::Start,
        RunTransition::Wait,
        RunTransition::Finish,
        RunTransition::Answer,
        failure(),
        RunTransition::Cancel,
        RunTransition::RequestCancel,
    ];
    let (key, fence) = {
        let key = session(sessions, "s1").await;
        let fence = begin(sessions, &key, None).await;
        (key, fence)
    };
    let steps = prop::collection::vec(prop::sample::select(transitions.to_vec()), 1..12);
    let mut runner = TestRunner::deterministic();
    for number in 0..24 {
        let mut model = StoredRun {
            is_background: number % 2 == 0,
            request: Some("{}".into()),
            ..StoredRun::new(key.clone(), format!("r{number}"), number)
        };
        runs(sessions).add(&model).await.unwrap();
        for transition in steps.new_tree(&mut runner).unwrap().current() {
            let stored = if transition == RunTransition::Start {
                runs(sessions).start(&model, fence).await.unwrap()
            } else {
                runs(sessions).change(&key, &model.id, Some(fence), &transition).await.unwrap().unwrap()
            };
            let has_changed = model.apply(&transition);
            let expected = StoredRun { updated: stored.updated, ..model.clone() };
            assert_eq!(stored, expected, "{transition:?}");
            assert!(has_changed || stored.updated <= model.updated, "{transition:?}");
            assert_eq!(runs(sessions).get(&key, &model.id).await.unwrap(), Some(stored));
        }
    }
}

async fn a_run_that_may_be_stored_later_is_seen_at_once(sessions: &dyn SessionService) {
    let key = session(sessions, "s1").await;
    let fence = begin(sessions, &key, None).await;
    let run = StoredRun::new(key.clone(), "r1", 0);
    runs(sessions).start_later(&run, fence).await.unwrap();
    let started = runs(sessions).get(&key, "r1").await.unwrap().unwrap();
    assert_eq!((started.state, started.attempts), (RunState::Running, 1));
    assert_eq!(sessions.usage(&key).await.unwrap().session.event_bytes, run.bytes());
    runs(sessions).start_later(&StoredRun::new(key.clone(), "r2", 0), fence).await.unwrap();
    runs(sessions).change_later(&key, "r1", fence, &RunTransition::Finish).await.unwrap();
    let listed = runs(sessions).list(&key, None, 10).await.unwrap().runs;
    let states = || listed.iter().map(|run| (&*run.id, run.state)).collect::<Vec<_>>();
    assert_eq!(states(), [("r2", RunState::Running), ("r1", RunState::Done)]);
    // Another turn has begun: nothing changes, with or without an error.
    let next = begin(sessions, &key, Some(fence)).await;
    let late = runs(sessions).change_later(&key, "r2", fence, &RunTransition::Finish).await;
    assert!(matches!(late, Ok(()) | Err(StoreError::Fenced(_))), "{late:?}");
    let late = runs(sessions).start_later(&StoredRun::new(key.clone(), "r3", 0), fence).await;
    assert!(matches!(late, Ok(()) | Err(StoreError::Fenced(_))), "{late:?}");
    let listed = runs(sessions).list(&key, None, 10).await.unwrap().runs;
    assert_eq!(
        listed.iter().map(|run| (&*run.id, run.state)).collect::<Vec<_>>(),
        [("r2", RunState::Running), ("r1", RunState::Done)]
    );
    runs(sessions).change_later(&key, "r2", next, &RunTransition::Finish).await.unwrap();
    sessions.delete(&key).await.unwrap();
    let gone = runs(sessions).start_later(&run, next).await;
    assert!(matches!(gone, Ok(()) | Err(StoreError::SessionNotFound(_))), "{gone:?}");
    assert_eq!(runs(sessions).get(&key, "r1").await.unwrap(), None);
}

async fn a_run_starts_once_although_two_tasks_cancel_and_start_it(sessions: &dyn SessionService) {
    let key = session(sessions, "s1").await;
    let fence = begin(sessions, &key, None).await;
    for number in 0..20 {
        let run = runs(sessions).add(&StoredRun::new(key.clone(), format!("r{number}"), 0)).await.unwrap();
        let (started, cancelled) = futures::join!(
            runs(sessions).start(&run, fence),
            runs(sessions).change(&key, &run.id, None, &RunTransition::RequestCancel),
        );
        let (started, cancelled) = (started.unwrap(), cancelled.unwrap().unwrap());
        match cancelled.state {
            RunState::Cancelled => assert_eq!(started.state, RunState::Cancelled, "it never ran"),
            _ => assert_eq!((started.state, cancelled.is_cancel_requested), (RunState::Running, true)),
        }
    }
}

async fn a_turn_that_was_taken_over_changes_no_run(sessions: &dyn SessionService) {
    let key = session(sessions, "s1").await;
    let fence = begin(sessions, &key, None).await;
    let run = runs(sessions).start(&StoredRun::new(key.clone(), "r1", 0), fence).await.unwrap();
    begin(sessions, &key, Some(fence)).await;
    let late = runs(sessions).change(&key, "r1", Some(fence), &RunTransition::Finish).await;
    assert!(matches!(late, Err(StoreError::Fenced(_))), "{late:?}");
    for id in ["r1", "r2"] {
        let late = runs(sessions).start(&StoredRun::new(key.clone(), id, 0), fence).await;
        assert!(matches!(late, Err(StoreError::Fenced(_))), "{late:?}");
    }
    assert_eq!(runs(sessions).list(&key, None, 10).await.unwrap().runs, [run]);
}

async fn runs_are_listed_page_by_page_newest_first(sessions: &dyn SessionService) {
    let (key, other) = (session(sessions, "s1").await, session(sessions, "s2").await);
    for number in 0..5 {
        for key in [&key, &other] {
            runs(sessions).add(&StoredRun::new(key.clone(), format!("r{number}"), 0)).await.unwrap();
        }
    }
    let (mut from, mut pages) = (None, Vec::new());
    loop {
        let RunPage { runs, next } = runs(sessions).list(&key, from, 2).await.unwrap();
        assert!(runs.iter().all(|run| run.session == key));
        pages.push(runs.into_iter().map(|run| run.id).collect::<Vec<_>>());
        from = next;
        if from.is_none() {
            break;
        }
        // A run that begins meanwhile does not move the pages.
        runs_added_between_pages(sessions, &key).await;
    }
    assert_eq!(pages, [vec!["r4", "r3"], vec!["r2", "r1"], vec!["r0"]]);
    assert_eq!(runs(sessions).list(&key, None, 100).await.unwrap().next, None);
}

async fn runs_added_between_pages(sessions: &dyn SessionService, key: &SessionKey) {
    runs(sessions).add(&StoredRun::new(key.clone(), hatchery_core::new_invocation_id(), 0)).await.unwrap();
}

async fn interrupted_background_runs_are_found_once_their_turn_has_ended(sessions: &dyn SessionService) {
    let (held, free) = (session(sessions, "s1").await, session(sessions, "s2").await);
    let background = |key: &SessionKey, id: &str| StoredRun {
        is_background: true,
        request: Some("{}".into()),
        ..StoredRun::new(key.clone(), id, 0)
    };
    let apps = ["other".to_owned(), "app".to_owned()];
    let ids = || async {
        let found = runs(sessions).list_interrupted(&apps, 10).await.unwrap();
        assert!(found.iter().all(|run| run.request.is_none()), "requests may be large");
        found.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    runs(sessions).add(&background(&free, "accepted")).await.unwrap();
    runs(sessions).add(&StoredRun::new(free.clone(), "of a client", 0)).await.unwrap();
    let fence = begin(sessions, &held, None).await;
    runs(sessions).start(&background(&held, "running"), fence).await.unwrap();
    assert_eq!(ids().await, ["accepted"]);
    sessions.renew_turn(&held, fence, Duration::ZERO).await.unwrap();
    assert_eq!(ids().await, ["accepted", "running"]);
    assert_eq!(runs(sessions).list_interrupted(&apps, 1).await.unwrap().len(), 1);
    assert_eq!(runs(sessions).list_interrupted(&apps[..1], 10).await.unwrap(), [], "it is of another app");
    runs(sessions).change(&held, "running", None, &RunTransition::Wait).await.unwrap();
    assert_eq!(ids().await, ["accepted"]);
    sessions.delete(&free).await.unwrap();
    assert_eq!(ids().await, [] as [&str; 0]);
}

async fn the_run_that_was_started_last_is_in_progress_while_a_turn_holds_the_session(sessions: &dyn SessionService) {
    let key = session(sessions, "s1").await;
    let (one, other) = (StoredRun::new(key.clone(), "r\"1/", 0), StoredRun::new(key.clone(), "r2", 0));
    let find_running = || async { runs(sessions).find_running(&key).await.unwrap() };
    runs(sessions).add(&StoredRun::new(key.clone(), "queued", 0)).await.unwrap();
    let first = begin(sessions, &key, None).await;
    assert_eq!(find_running().await, None, "none has been started");
    runs(sessions).start(&one, first).await.unwrap();
    assert_eq!(find_running().await.as_ref(), Some(&one.id));
    sessions.renew_turn(&key, first, Duration::ZERO).await.unwrap();
    assert_eq!(find_running().await, None, "its host has ended");
    let second = begin(sessions, &key, None).await;
    runs(sessions).start_later(&other, second).await.unwrap();
    assert_eq!(find_running().await.as_ref(), Some(&other.id), "the turn is of this run");
    runs(sessions).change(&key, &other.id, Some(second), &RunTransition::Wait).await.unwrap();
    let third = begin(sessions, &key, Some(second)).await;
    runs(sessions).start(&one, third).await.unwrap();
    assert_eq!(find_running().await.as_ref(), Some(&one.id), "it has been continued");
    runs(sessions).change(&key, &one.id, Some(third), &RunTransition::Finish).await.unwrap();
    assert_eq!(find_running().await, None, "it has ended");
    let stored = runs(sessions).get(&key, &other.id).await.unwrap().unwrap();
    assert_eq!(stored.state, RunState::Waiting, "nothing is written");
}

async fn a_session_has_a_turn_until_its_lease_ends(sessions: &dyn SessionService) {
    let (key, other) = (session(sessions, "s1").await, session(sessions, "s2").await);
    let has_turn = async |key: &SessionKey| runs(sessions).has_turn(key).await.unwrap();
    assert!(!has_turn(&key).await);
    let fence = begin(sessions, &key, None).await;
    assert!(has_turn(&key).await, "although it has started no run");
    assert!(!has_turn(&other).await);
    sessions.renew_turn(&key, fence, Duration::ZERO).await.unwrap();
    assert!(!has_turn(&key).await);
}

async fn a_deleted_session_has_no_runs(sessions: &dyn SessionService) {
    let key = session(sessions, "s1").await;
    runs(sessions).add(&StoredRun::new(key.clone(), "r1", 0)).await.unwrap();
    sessions.delete(&key).await.unwrap();
    session(sessions, "s1").await;
    assert_eq!(runs(sessions).list(&key, None, 10).await.unwrap(), RunPage::default());
    assert_eq!(sessions.usage(&key).await.unwrap().user.event_bytes, 0);
}

async fn a_run_is_not_taken_for_one_of_a_deleted_session(sessions: &dyn SessionService) {
    let key = session(sessions, "s1").await;
    let background = StoredRun { is_background: true, ..StoredRun::new(key.clone(), "r1", 0) };
    runs(sessions).add(&background).await.unwrap();
    sessions.delete(&key).await.unwrap();
    session(sessions, "s1").await;
    runs(sessions).add(&StoredRun::new(key, "r1", 0)).await.unwrap();
    assert_eq!(runs(sessions).list_interrupted(&["app".into()], 10).await.unwrap(), []);
}

async fn a_rewind_deletes_the_runs_that_have_begun_since(sessions: &dyn SessionService) {
    let key = session(sessions, "s1").await;
    let append = async |run: &str| {
        let data = EventData { invocation_id: run.into(), author: "agent".into(), ..EventData::default() };
        sessions.append(&key, &Event::new(data)).await.unwrap();
    };
    let add = async |run: &str, revision| {
        let request = Some(format!("the request of {run}"));
        let run = StoredRun { is_background: true, request, ..StoredRun::new(key.clone(), run, revision) };
        runs(sessions).add(&run).await.unwrap();
    };
    let start = async |run: &str| {
        let fence = begin(sessions, &key, None).await;
        runs(sessions).start(&StoredRun::new(key.clone(), run, 0), fence).await.unwrap();
        sessions.renew_turn(&key, fence, Duration::ZERO).await.unwrap();
    };
    for (run, revision) in [("before", 0), ("during", 1), ("queued", 1)] {
        add(run, revision).await;
    }
    start("before").await;
    append("before").await;
    start("during").await;
    append("during").await;
    append("during").await;
    start("queued").await;
    append("queued").await;
    for (run, revision) in [("after", 4), ("accepted", 5)] {
        add(run, revision).await;
    }
    start("after").await;
    append("after").await;
    sessions.rewind(&key, 2).await.unwrap();
    let listed = runs(sessions).list(&key, None, 10).await.unwrap().runs;
    let remaining: Vec<_> = listed.iter().map(|run| (&*run.id, run.first_revision)).collect();
    assert_eq!(remaining, [("accepted", 2), ("during", 1), ("before", 0)]);
    for run in &listed {
        assert_eq!(runs(sessions).get(&key, &run.id).await.unwrap().as_ref(), Some(run));
    }
    assert_eq!(runs(sessions).get(&key, "queued").await.unwrap(), None);
    let found = runs(sessions).list_interrupted(&["app".into()], 10).await.unwrap();
    assert_eq!(found.iter().map(|run| &*run.id).collect::<Vec<_>>(), ["before", "during", "accepted"]);
    let events = sessions.get(&key, EventWindow::All).await.unwrap().unwrap().events;
    let bytes = events.iter().map(|event| event.json_len() as u64).sum::<u64>();
    let usage = sessions.usage(&key).await.unwrap();
    assert_eq!(usage.session.event_bytes, bytes + listed.iter().map(StoredRun::bytes).sum::<u64>());
    assert_eq!(usage.user.event_bytes, usage.session.event_bytes);
    // The id of a run that was undone is free.
    add("queued", 2).await;
    assert_eq!(runs(sessions).get(&key, "queued").await.unwrap().unwrap().state, RunState::Accepted);
}

async fn runs_count_as_bytes_of_the_session(sessions: &dyn SessionService) {
    let key = session(sessions, "s1").await;
    let run = StoredRun { request: Some("12345".into()), ..StoredRun::new(key.clone(), "r1", 0) };
    runs(sessions).add(&run).await.unwrap();
    let usage = || async { sessions.usage(&key).await.unwrap() };
    assert_eq!((usage().await.session.event_bytes, usage().await.user.event_bytes), (7, 7));
    runs(sessions).add(&run).await.unwrap();
    assert_eq!(usage().await.session.event_bytes, 7);
    let transition = RunTransition::Fail(RunFailure { code: "123".into(), message: "1".into() });
    runs(sessions).change(&key, "r1", None, &transition).await.unwrap();
    assert_eq!((usage().await.session.event_bytes, usage().await.user.event_bytes), (6, 6));
}

async fn an_unknown_session_has_no_runs(sessions: &dyn SessionService) {
    let key = SessionKey::new("app", "ann", "unknown");
    let added = runs(sessions).add(&StoredRun::new(key.clone(), "r1", 0)).await;
    assert!(matches!(added, Err(StoreError::SessionNotFound(_))), "{added:?}");
    let started = runs(sessions).start(&StoredRun::new(key.clone(), "r1", 0), 1).await;
    assert!(matches!(started, Err(StoreError::SessionNotFound(_))), "{started:?}");
    assert_eq!(runs(sessions).get(&key, "r1").await.unwrap(), None);
    assert_eq!(runs(sessions).list(&key, None, 10).await.unwrap(), RunPage::default());
    assert_eq!(runs(sessions).find_running(&key).await.unwrap(), None);
    assert!(!runs(sessions).has_turn(&key).await.unwrap());
    assert_eq!(runs(sessions).change(&key, "r1", None, &RunTransition::Cancel).await.unwrap(), None);
}

#[tokio::test]
async fn a_run_that_is_too_large_for_the_session_is_rejected() {
    let quotas = Quotas::default().with(Quota::SessionBytes, 100);
    let inner = Arc::new(hatchery_stores::MemorySessions::new());
    let sessions = QuotaSessions::new(inner, Arc::new(quotas.into()));
    let key = session(&sessions, "s1").await;
    let run = StoredRun { request: Some("x".repeat(99)), ..StoredRun::new(key.clone(), "r1", 0) };
    assert_eq!(runs(&sessions).add(&run).await.unwrap_err().code(), "QUOTA_EXCEEDED");
    assert_eq!(runs(&sessions).get(&key, "r1").await.unwrap(), None);
}
