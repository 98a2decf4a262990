//! Subscriptions to tasks that wait for their client.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_a2a::ServerSettings;
use hatchery_core::{
    RunService, RunState, SessionKey, SessionService, StoreError, StoredRun, Timestamp, WrapperRunService,
    WrapperSessionService,
};
use hatchery_test_support::services;
use serde_json::json;

use crate::support::{Options, Server, answer, state, texts};

#[tokio::test]
async fn in_version_1_0_a_subscription_goes_on_when_its_task_does() {
    let server = Server::new(Options::default());
    let task = server.send("ask a", json!({})).await;
    let mut subscription = server.stream("SubscribeToTask", json!({"id": task["id"]})).await;
    assert_eq!(state(&subscription.next().await.unwrap()["task"]), "INPUT_REQUIRED");
    assert_eq!(state(&subscription.next().await.unwrap()["statusUpdate"]), "INPUT_REQUIRED");
    let done = server.send_parts(answer("a"), json!({"taskId": task["id"]})).await;
    assert_eq!((state(&done), texts(&done)), ("COMPLETED", vec!["got a"]));
    let update = subscription.next().await.unwrap();
    assert_eq!(update["artifactUpdate"]["artifact"]["parts"][0]["text"], "got a", "{update}");
    assert_eq!(state(&subscription.next().await.unwrap()["statusUpdate"]), "COMPLETED");
    assert_eq!(subscription.next().await, None);
}

#[tokio::test]
async fn in_version_0_3_a_subscription_ends_when_its_task_waits() {
    let server = Server::new(Options::default());
    let task = server.send("ask a", json!({})).await;
    let mut subscription = server.stream("tasks/resubscribe", json!({"id": task["id"]})).await;
    assert_eq!(subscription.next().await.unwrap()["status"]["state"], "input-required");
    let update = subscription.next().await.unwrap();
    assert_eq!((&update["status"]["state"], &update["final"]), (&json!("input-required"), &json!(true)));
    assert_eq!(subscription.next().await, None);
}

#[tokio::test]
async fn a_subscription_ends_when_its_waiting_task_is_canceled() {
    let server = Server::new(Options::default());
    let task = server.send("ask a", json!({})).await;
    let mut subscription = server.stream("SubscribeToTask", json!({"id": task["id"]})).await;
    for _ in 0..2 {
        subscription.next().await.unwrap();
    }
    server.result("CancelTask", json!({"id": task["id"]})).await;
    assert_eq!(state(&subscription.next().await.unwrap()["statusUpdate"]), "CANCELED");
    assert_eq!(subscription.next().await, None);
}

#[tokio::test]
async fn what_another_host_does_to_a_waiting_task_is_noticed() {
    continue_on_another_host(services().sessions).await;
}

/// Subscribes to a task that waits, and answers it at another host on the same sessions.
async fn continue_on_another_host(sessions: Arc<dyn SessionService>) {
    let settings = ServerSettings { keep_alive: Duration::from_millis(20), ..ServerSettings::default() };
    let server = Server::new(Options { settings, sessions: Some(sessions.clone()), ..Options::default() });
    let other = Server::new(Options { sessions: Some(sessions), ..Options::default() });
    let task = server.send("ask a", json!({})).await;
    let mut subscription = server.stream("SubscribeToTask", json!({"id": task["id"]})).await;
    for _ in 0..2 {
        subscription.next().await.unwrap();
    }
    other.send_parts(answer("a"), json!({"taskId": task["id"]})).await;
    let update = tokio::time::timeout(Duration::from_secs(20), subscription.next()).await;
    assert!(update.unwrap().unwrap().get("artifactUpdate").is_some());
}

/// Sessions whose runs began to wait on a host with a clock that is five seconds ahead.
struct SkewedSessions(Arc<dyn SessionService>);

impl WrapperSessionService for SkewedSessions {
    fn inner(&self) -> &dyn SessionService {
        &*self.0
    }

    fn runs(&self) -> Option<&dyn RunService> {
        Some(self)
    }
}

#[async_trait]
impl WrapperRunService for SkewedSessions {
    fn inner(&self) -> &dyn RunService {
        self.0.runs().unwrap()
    }

    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError> {
        let mut run = WrapperRunService::inner(self).get(session, run).await?;
        if let Some(run) = run.as_mut().filter(|run| run.state == RunState::Waiting) {
            run.updated = Timestamp::from_micros(run.updated.as_micros() + 5_000_000);
        }
        Ok(run)
    }
}

#[tokio::test]
async fn what_a_host_with_a_slow_clock_does_to_a_waiting_task_is_noticed() {
    continue_on_another_host(Arc::new(SkewedSessions(services().sessions))).await;
}

#[tokio::test]
async fn a_host_that_stops_ends_the_subscriptions_to_waiting_tasks() {
    let server = Server::new(Options::default());
    let task = server.send("ask a", json!({})).await;
    let mut subscription = server.stream("SubscribeToTask", json!({"id": task["id"]})).await;
    for _ in 0..2 {
        subscription.next().await.unwrap();
    }
    server.endpoint.close();
    assert_eq!(subscription.next().await, None);
}
