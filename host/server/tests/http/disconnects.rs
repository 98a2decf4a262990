//! Clients that disconnect while the host stores their runs, and clients of another UI.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery::{DevUi, ServerConfig};
use hatchery_core::{RunService, SessionService, StoreError, StoredRun, WrapperRunService, WrapperSessionService};
use hatchery_stores::MemorySessions;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::{Host, chunks, post_bytes, run_body, wait_for};

/// Waits for a permit after a run that waits for its turn is stored.
struct HeldRuns {
    inner: MemorySessions,
    added: Semaphore,
    leave: Semaphore,
}

impl HeldRuns {
    fn new() -> Arc<Self> {
        Arc::new(Self { inner: MemorySessions::new(), added: Semaphore::new(0), leave: Semaphore::new(0) })
    }
}

impl WrapperSessionService for HeldRuns {
    fn inner(&self) -> &dyn SessionService {
        &self.inner
    }

    fn runs(&self) -> Option<&dyn RunService> {
        Some(self)
    }
}

#[async_trait]
impl WrapperRunService for HeldRuns {
    fn inner(&self) -> &dyn RunService {
        self.inner.runs().unwrap()
    }

    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        let added = WrapperRunService::inner(self).add(run).await;
        self.added.add_permits(1);
        self.leave.acquire().await.unwrap().forget();
        added
    }
}

/// Disconnects a client while its run is stored, behind another run of its session. Returns the frames of the run.
async fn disconnect_while_stored(path: &str, cancel_on_disconnect: bool) -> Vec<String> {
    let sessions = HeldRuns::new();
    // The next connection is accepted once the host has noticed the end of the last one.
    let config = ServerConfig { max_connections: 1, ..ServerConfig::default() };
    let host = Host::with_sessions_and(sessions.clone(), config).await;
    host.session_closing("waits").await;
    let first = host.connect(&post_bytes("/run", &run_body("waits", "one"))).await;
    wait_for(&host.signals.started).await;
    drop(first);
    let mut body = run_body("waits", "two");
    body["runId"] = json!("r2");
    body["cancelOnDisconnect"] = json!(cancel_on_disconnect);
    let second = host.connect(&post_bytes(path, &body)).await;
    wait_for(&sessions.added).await;
    drop(second);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(host.exchange(get("/health").as_bytes()).await.starts_with(b"HTTP/1.1 200"));
    sessions.leave.add_permits(1);
    // Both runs may end.
    host.signals.resume.add_permits(2);
    let followed = host.exchange(get("/apps/waits/users/u/sessions/s/runs/r2/events").as_bytes()).await;
    chunks(&followed).1
}

#[tokio::test]
async fn a_run_is_cancelled_on_disconnect_while_it_is_stored_if_the_request_says_so() {
    for path in ["/run", "/run_sse"] {
        let frames = disconnect_while_stored(path, true).await;
        let [end] = frames.as_slice() else { panic!("{path}: {frames:?}") };
        assert!(end.starts_with("event: end\n") && end.contains(r#""state":"cancelled""#), "{path}: {end}");
    }
}

#[tokio::test]
async fn a_run_whose_client_disconnects_while_it_is_stored_takes_its_turn() {
    let frames = disconnect_while_stored("/run_sse", false).await;
    let [waiting, done, end] = frames.as_slice() else { panic!("{frames:?}") };
    assert!(waiting.contains("Waiting.") && done.contains("Done."), "{frames:?}");
    assert!(end.starts_with("event: end\n") && end.contains(r#""state":"done""#), "{end}");
}

/// The configuration of a server with ADK's web client.
fn with_other_ui(folder: &Path) -> ServerConfig {
    ServerConfig { dev_ui_folder: Some(folder.into()), ..ServerConfig::default() }
}

#[tokio::test]
async fn where_another_ui_is_served_a_run_is_cancelled_when_its_client_disconnects() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::with(with_other_ui(folder.path())).await;
    host.session("waits").await;
    for path in ["/run", "/run_sse"] {
        let client = host.connect(&post_bytes(path, &run_body("waits", "hello"))).await;
        wait_for(&host.signals.started).await;
        drop(client);
        wait_for(&host.signals.cancelled).await;
    }
}

#[tokio::test]
async fn another_ui_cancels_no_run_if_the_configuration_says_so_or_it_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    for config in [
        ServerConfig { cancel_on_disconnect: Some(false), ..with_other_ui(folder.path()) },
        ServerConfig { dev_ui: Some(DevUi::Off), ..with_other_ui(folder.path()) },
    ] {
        // The next connection is accepted once the host has noticed the end of the last one.
        let host = Host::with(ServerConfig { max_connections: 1, ..config }).await;
        host.session_closing("waits").await;
        let client = host.connect(&post_bytes("/run_sse", &run_body("waits", "hello"))).await;
        wait_for(&host.signals.started).await;
        drop(client);
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert!(host.exchange(get("/health").as_bytes()).await.starts_with(b"HTTP/1.1 200"));
        // The next turn of the session begins when this one has ended.
        host.signals.resume.add_permits(2);
        host.exchange(&post_bytes("/run", &run_body("waits", "again"))).await;
        let session = host.exchange(get("/apps/waits/users/u/sessions/s").as_bytes()).await;
        assert_eq!(String::from_utf8(session).unwrap().matches("Done.").count(), 2);
    }
}
