//! Deletion of sessions by the rules of the operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hatchery::RetentionConfig;
use hatchery_core::{
    ExpiredSession, ExpiryRule, JsonMap, SessionKey, SessionService, StoreError, Timestamp, WrapperSessionService,
};
use hatchery_stores::MemorySessions;
use hatchery_test_support::AuditCapture;
use reqwest::Method;
use serde_json::json;

use crate::support::{Host, TIMEOUT, problem};

const SESSIONS: &str = "/apps/says/users/u/sessions";

#[tokio::test]
async fn sessions_beyond_the_rules_are_deleted_with_their_artifacts_and_each_is_in_the_audit_log() {
    let audit = AuditCapture::capture();
    let host = Host::with_retention(RetentionConfig { user_sessions: Some(1), ..RetentionConfig::default() }).await;
    for id in ["old", "new"] {
        host.post_json(SESSIONS, &json!({"sessionId": id})).await;
        let artifact = json!({"filename": "a.txt", "artifact": {"text": id}});
        host.post_json(&format!("{SESSIONS}/{id}/artifacts"), &artifact).await;
    }
    // The server checked at its start, and checks again after a minute, or later if that took long.
    let deletions = || audit.lines().into_iter().filter(|line| line.contains("decision")).collect::<Vec<_>>();
    while deletions().is_empty() {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(61)).await;
        tokio::time::resume();
        tokio::task::yield_now().await;
    }
    problem(host.get(&format!("{SESSIONS}/old")).await, 404, "SESSION_NOT_FOUND").await;
    assert_eq!(host.get_json(&format!("{SESSIONS}/new/artifacts")).await, json!(["a.txt"]));
    host.post_json(SESSIONS, &json!({"sessionId": "old"})).await;
    assert_eq!(host.get_json(&format!("{SESSIONS}/old/artifacts")).await, json!([]));
    let lines = deletions();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    for part in ["retention", "app=says", "user=u", "session=old", "decision=\"deleted\"", "newest event at "] {
        assert!(line.contains(part), "{line} lacks {part}");
    }
}

#[tokio::test]
async fn artifacts_of_deleted_sessions_stay_if_the_operator_keeps_them() {
    let keeps = RetentionConfig { keep_artifacts: true, ..RetentionConfig::default() };
    for (rules, left) in [(RetentionConfig::default(), json!([])), (keeps, json!(["a.txt"]))] {
        let host = Host::with_retention(rules).await;
        host.post_json(SESSIONS, &json!({"sessionId": "s"})).await;
        host.post_json(&format!("{SESSIONS}/s/artifacts"), &json!({"filename": "a.txt", "artifact": {"text": "x"}}))
            .await;
        let deleted = host.request(Method::DELETE, &format!("{SESSIONS}/s")).send().await.unwrap();
        assert_eq!(deleted.status(), 204);
        host.post_json(SESSIONS, &json!({"sessionId": "s"})).await;
        assert_eq!(host.get_json(&format!("{SESSIONS}/s/artifacts")).await, left);
    }
}

/// A session service that refuses the first deletion.
struct RefusedDeletion {
    inner: MemorySessions,
    is_refused: AtomicBool,
}

#[async_trait]
impl WrapperSessionService for RefusedDeletion {
    fn inner(&self) -> &dyn SessionService {
        &self.inner
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        if !self.is_refused.swap(true, Ordering::SeqCst) {
            return Err(StoreError::InvalidRequest("not this one".into()));
        }
        self.inner.delete(key).await
    }
}

#[tokio::test]
async fn a_refused_deletion_is_tried_again() {
    let sessions = Arc::new(RefusedDeletion { inner: MemorySessions::new(), is_refused: AtomicBool::new(false) });
    let rules = RetentionConfig { user_sessions: Some(1), ..RetentionConfig::default() };
    let host = Host::with_retention_of(rules, sessions.clone()).await;
    for id in ["old", "new"] {
        host.post_json(SESSIONS, &json!({"sessionId": id})).await;
    }
    for _ in 0..10_000 {
        if sessions.inner.list("says", "u").await.unwrap().len() == 1 {
            return;
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(61)).await;
        tokio::time::resume();
        tokio::task::yield_now().await;
    }
    panic!("no session was deleted");
}

/// Sessions that look two days older than they are.
struct AgedSessions(MemorySessions);

#[async_trait]
impl WrapperSessionService for AgedSessions {
    fn inner(&self) -> &dyn SessionService {
        &self.0
    }

    async fn list_expired(
        &self,
        app: &str,
        rule: &ExpiryRule,
        limit: usize,
    ) -> Result<Vec<ExpiredSession>, StoreError> {
        let later = |time: Timestamp| Timestamp::from_micros(time.as_micros() + 2 * 24 * 60 * 60 * 1_000_000);
        let rule = ExpiryRule { idle_since: rule.idle_since.map(later), ..*rule };
        self.0.list_expired(app, &rule, limit).await
    }
}

#[tokio::test]
async fn sessions_that_calls_of_mcp_clients_have_left_are_deleted_after_a_day() {
    let sessions = Arc::new(AgedSessions(MemorySessions::new()));
    for app in ["says", "mcp-tools"] {
        sessions.0.create(app, "u", Some("s"), JsonMap::new()).await.unwrap();
    }
    let rules = RetentionConfig { max_idle_days: Some(90), ..RetentionConfig::default() };
    let _host = Host::with_retention_of(rules, sessions.clone()).await;
    let deleted = async {
        while !sessions.0.list("mcp-tools", "u").await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, deleted).await.expect("it is still there");
    assert_eq!(sessions.0.list("says", "u").await.unwrap().len(), 1);
}
