//! Subscriptions to tasks that wait for their client.

use hatchery_a2a::ServerSettings;
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
    let settings = ServerSettings { keep_alive: std::time::Duration::from_millis(20), ..ServerSettings::default() };
    let server = Server::new(Options { settings, ..Options::default() });
    let sessions = Some(server.runner.services().sessions.clone());
    let other = Server::new(Options { sessions, ..Options::default() });
    let task = server.send("ask a", json!({})).await;
    let mut subscription = server.stream("SubscribeToTask", json!({"id": task["id"]})).await;
    for _ in 0..2 {
        subscription.next().await.unwrap();
    }
    other.send_parts(answer("a"), json!({"taskId": task["id"]})).await;
    assert!(subscription.next().await.unwrap().get("artifactUpdate").is_some());
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
