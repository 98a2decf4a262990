//! Deletion of a session with its artifacts.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{Part, SessionKey, SessionService, StoreError, WrapperSessionService};
use hatchery_stores::MemorySessions;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

use crate::support::{Host, TIMEOUT, problem, run_body, wait_for};

/// Waits for a permit after each deletion.
struct HeldDeletions {
    inner: MemorySessions,
    deleted: Semaphore,
    leave: Semaphore,
}

#[async_trait]
impl WrapperSessionService for HeldDeletions {
    fn inner(&self) -> &dyn SessionService {
        &self.inner
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.inner.delete(key).await?;
        self.deleted.add_permits(1);
        self.leave.acquire().await.unwrap().forget();
        Ok(())
    }
}

#[tokio::test]
async fn the_artifacts_of_a_session_are_deleted_if_the_client_goes_away() {
    let (inner, deleted, leave) = (MemorySessions::new(), Semaphore::new(0), Semaphore::new(0));
    let sessions = Arc::new(HeldDeletions { inner, deleted, leave });
    let host = Host::with_sessions(sessions.clone()).await;
    host.session("says").await;
    let artifact = json!({"filename": "a", "artifact": {"text": "b"}});
    host.post_json("/apps/says/users/u/sessions/s/artifacts", &artifact).await;
    let client = host.connect(b"DELETE /apps/says/users/u/sessions/s HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    wait_for(&sessions.deleted).await;
    drop(client);
    // Lets the server notice that.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    sessions.leave.add_permits(1);
    let key = SessionKey::new("says", "u", "s");
    let emptied = async {
        while !host.services.artifacts.list(&key).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, emptied).await.expect("the artifacts are still there");
}

#[tokio::test]
async fn an_artifact_that_arrives_while_its_session_is_deleted_is_deleted_too() {
    let host = Host::start().await;
    host.session("says").await;
    let head = "PUT /apps/says/users/u/sessions/s/artifacts/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\
                Expect: 100-continue\r\nConnection: close\r\n\r\n";
    let mut upload = host.connect(head.as_bytes()).await;
    let mut go_on = [0; 25];
    upload.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n", "the session was found, and the bytes are awaited");
    let deleted = host.request(Method::DELETE, "/apps/says/users/u/sessions/s").send().await.unwrap();
    assert_eq!(deleted.status(), 204);
    upload.write_all(b"hi").await.unwrap();
    let mut answer = String::new();
    upload.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("SESSION_NOT_FOUND"), "{answer}");
    let key = SessionKey::new("says", "u", "s");
    assert!(host.services.artifacts.list(&key).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_run_saves_after_the_deletion_of_its_session_is_deleted_too() {
    let host = Host::start().await;
    host.session("waits").await;
    let run = host.request(Method::POST, "/run").json(&run_body("waits", "hi")).send();
    let run = tokio::spawn(run);
    wait_for(&host.signals.started).await;
    let deleted = host.request(Method::DELETE, "/apps/waits/users/u/sessions/s").send().await.unwrap();
    assert_eq!(deleted.status(), 204);
    let key = SessionKey::new("waits", "u", "s");
    // As a tool of the run would.
    host.services.artifacts.save(&key, "late", &Part::text("hi")).await.unwrap();
    host.signals.resume.add_permits(1);
    problem(run.await.unwrap().unwrap(), 404, "SESSION_NOT_FOUND").await;
    assert!(host.services.artifacts.list(&key).await.unwrap().is_empty());
}
