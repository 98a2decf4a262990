//! Journals of calls, which session services store.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{
    CallJournal, CallRecord, Event, EventData, JsonMap, SessionKey, SessionService, SessionUsage, StoreError, TurnStart,
};
use hatchery_stores::quotas::QuotaSessions;
use hatchery_stores::{Quota, Quotas};

on_every_plain_session_backend!([
    records_are_read_back_in_the_order_of_their_keys,
    a_record_replaces_the_record_of_the_same_call,
    runs_and_sessions_have_journals_of_their_own,
    a_finished_run_has_no_records_and_says_so,
    a_turn_that_was_taken_over_records_nothing,
    a_deleted_session_has_no_records,
    records_count_as_bytes_of_the_session,
    the_journal_of_an_unknown_session_is_empty,
]);

// Encrypted data has more bytes.
on_every_encrypted_session_backend!([
    records_are_read_back_in_the_order_of_their_keys,
    a_record_replaces_the_record_of_the_same_call,
    runs_and_sessions_have_journals_of_their_own,
    a_finished_run_has_no_records_and_says_so,
    a_turn_that_was_taken_over_records_nothing,
    a_deleted_session_has_no_records,
    the_journal_of_an_unknown_session_is_empty,
]);

fn journal(sessions: &dyn SessionService) -> &dyn CallJournal {
    sessions.journal().unwrap()
}

/// Creates a session, and begins a turn.
async fn begin(sessions: &dyn SessionService, id: &str) -> (SessionKey, u64) {
    let key = sessions.create("app", "ann", Some(id), JsonMap::new()).await.unwrap().key;
    let turn_start = sessions.begin_turn(&key, None, Duration::from_secs(60)).await.unwrap();
    let TurnStart::Begun(turn) = turn_start else { panic!("it is held") };
    (key, turn.fence)
}

fn record(call: &str, outcome: Option<&str>) -> CallRecord {
    CallRecord { call: call.into(), outcome: outcome.map(Into::into) }
}

async fn records_are_read_back_in_the_order_of_their_keys(sessions: &dyn SessionService) {
    let (key, fence) = begin(sessions, "s1").await;
    let records = [record("b", Some("{\"é\":\"\\u0000\"}")), record("c", None), record("a/'%_", Some("1"))];
    for record in &records {
        journal(sessions).record(&key, "e-1", fence, record).await.unwrap();
    }
    let read = journal(sessions).read(&key, "e-1").await.unwrap().unwrap();
    assert_eq!(read, [records[2].clone(), records[0].clone(), records[1].clone()]);
}

async fn a_record_replaces_the_record_of_the_same_call(sessions: &dyn SessionService) {
    let (key, fence) = begin(sessions, "s1").await;
    for record in [record("a", None), record("a", Some("1"))] {
        journal(sessions).record(&key, "e-1", fence, &record).await.unwrap();
        assert_eq!(journal(sessions).read(&key, "e-1").await.unwrap().unwrap(), [record]);
    }
}

async fn runs_and_sessions_have_journals_of_their_own(sessions: &dyn SessionService) {
    let (key, fence) = begin(sessions, "s1").await;
    let (other, _) = begin(sessions, "s2").await;
    journal(sessions).record(&key, "e-1", fence, &record("a", Some("1"))).await.unwrap();
    assert_eq!(journal(sessions).read(&key, "e-2").await.unwrap().unwrap(), []);
    assert_eq!(journal(sessions).read(&other, "e-1").await.unwrap().unwrap(), []);
    journal(sessions).finish(&other, "e-1").await.unwrap();
    journal(sessions).finish(&key, "e-2").await.unwrap();
    assert_eq!(journal(sessions).read(&key, "e-1").await.unwrap().unwrap().len(), 1);
}

async fn a_finished_run_has_no_records_and_says_so(sessions: &dyn SessionService) {
    let (key, fence) = begin(sessions, "s1").await;
    journal(sessions).record(&key, "e-1", fence, &record("a", Some("1"))).await.unwrap();
    for _ in 0..2 {
        journal(sessions).finish(&key, "e-1").await.unwrap();
        assert_eq!(journal(sessions).read(&key, "e-1").await.unwrap(), None);
    }
    assert_eq!(sessions.usage(&key).await.unwrap().session.event_bytes, 0);
    // An answer that comes later continues it.
    journal(sessions).record(&key, "e-1", fence, &record("b", Some("1"))).await.unwrap();
    assert_eq!(journal(sessions).read(&key, "e-1").await.unwrap().unwrap(), [record("b", Some("1"))]);
}

async fn a_turn_that_was_taken_over_records_nothing(sessions: &dyn SessionService) {
    let (key, fence) = begin(sessions, "s1").await;
    journal(sessions).record(&key, "e-1", fence, &record("a", None)).await.unwrap();
    sessions.begin_turn(&key, Some(fence), Duration::from_secs(60)).await.unwrap();
    for late in [record("a", Some("1")), record("b", Some("1"))] {
        let recorded = journal(sessions).record(&key, "e-1", fence, &late).await;
        assert!(matches!(recorded, Err(StoreError::Fenced(_))), "{recorded:?}");
    }
    assert_eq!(journal(sessions).read(&key, "e-1").await.unwrap().unwrap(), [record("a", None)]);
}

async fn a_deleted_session_has_no_records(sessions: &dyn SessionService) {
    let (key, fence) = begin(sessions, "s1").await;
    journal(sessions).record(&key, "e-1", fence, &record("a", Some("1"))).await.unwrap();
    sessions.delete(&key).await.unwrap();
    assert_eq!(sessions.usage(&key).await.unwrap().user.event_bytes, 0);
    begin(sessions, "s1").await;
    assert_eq!(journal(sessions).read(&key, "e-1").await.unwrap().unwrap(), []);
}

async fn records_count_as_bytes_of_the_session(sessions: &dyn SessionService) {
    let (key, fence) = begin(sessions, "s1").await;
    let event = Event::new(EventData::default());
    sessions.append_with(&key, &event, Some(fence)).await.unwrap();
    let bytes = event.json().len() as u64;
    for (outcome, expected) in [(None, 4), (Some("12345678"), 12), (Some("1"), 5)] {
        journal(sessions).record(&key, "e-1", fence, &record("call", outcome)).await.unwrap();
        let usage = sessions.usage(&key).await.unwrap();
        assert_eq!(usage.session, SessionUsage { events: 1, event_bytes: bytes + expected, ..usage.session });
        assert_eq!(usage.user.event_bytes, bytes + expected);
    }
    journal(sessions).finish(&key, "e-1").await.unwrap();
    assert_eq!(sessions.usage(&key).await.unwrap().session.event_bytes, bytes);
}

async fn the_journal_of_an_unknown_session_is_empty(sessions: &dyn SessionService) {
    let key = SessionKey::new("app", "ann", "unknown");
    let recorded = journal(sessions).record(&key, "e-1", 1, &record("a", None)).await;
    assert!(matches!(recorded, Err(StoreError::SessionNotFound(_))), "{recorded:?}");
    assert_eq!(journal(sessions).read(&key, "e-1").await.unwrap().unwrap_or_default(), []);
    journal(sessions).finish(&key, "e-1").await.unwrap();
}

#[tokio::test]
async fn a_journal_that_is_too_large_for_the_session_is_rejected() {
    let quotas = Quotas::default().with(Quota::SessionBytes, 100);
    let inner = Arc::new(hatchery_stores::MemorySessions::new());
    let sessions = QuotaSessions::new(inner, Arc::new(quotas.into()));
    let (key, fence) = begin(&sessions, "s1").await;
    journal(&sessions).record(&key, "e-1", fence, &record("a", Some(&"x".repeat(90)))).await.unwrap();
    let error = journal(&sessions).record(&key, "e-1", fence, &record("b", Some(&"x".repeat(20)))).await.unwrap_err();
    assert_eq!(error.code(), "QUOTA_EXCEEDED");
    assert_eq!(journal(&sessions).read(&key, "e-1").await.unwrap().unwrap().len(), 1);
}
