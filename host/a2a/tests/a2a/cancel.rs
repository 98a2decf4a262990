//! Cancellation of tasks with several runs.

use serde_json::json;

use crate::support::{Options, Server, answer, state};

#[tokio::test]
async fn all_runs_of_a_task_are_cancelled() {
    let server = Server::new(Options::default());
    let task = server.begin("wait", json!({})).await;
    server.stopped().await;
    let more = server.begin("more", json!({"taskId": task["id"]})).await;
    assert_eq!((&more["id"], state(&more)), (&task["id"], "WORKING"));
    let canceled = server.result("CancelTask", json!({"id": task["id"]})).await;
    assert_eq!(state(&canceled), "CANCELED");
    // Were the first run still in progress, this would wait for it.
    server.runner.drain().await;
    assert_eq!(state(&server.task(&task).await), "CANCELED");
    let (code, message) = server.error("CancelTask", json!({"id": task["id"]})).await;
    assert_eq!((code, message.as_str()), (-32002, "the task has ended as Canceled and cannot be canceled"));
}

#[tokio::test]
async fn a_task_that_still_waits_for_one_of_two_answers_is_cancelled() {
    let server = Server::new(Options::default());
    let task = server.send("ask a b", json!({})).await;
    let waiting = server.send_parts(answer("a"), json!({"taskId": task["id"]})).await;
    assert_eq!(state(&waiting), "INPUT_REQUIRED");
    let canceled = server.result("CancelTask", json!({"id": task["id"]})).await;
    assert_eq!(state(&canceled), "CANCELED");
}

#[tokio::test]
async fn a_task_is_in_progress_until_all_of_its_runs_have_ended() {
    let server = Server::new(Options::default());
    let task = server.begin("wait", json!({})).await;
    server.stopped().await;
    let more = server.begin("more", json!({"taskId": task["id"]})).await;
    let last = more["metadata"]["adk_invocation_id"].as_str().unwrap();
    let session = hatchery_core::SessionKey::new(
        "app",
        more["metadata"]["adk_user_id"].as_str().unwrap(),
        more["metadata"]["adk_session_id"].as_str().unwrap(),
    );
    server.runner.cancel_run(&session, last).await.unwrap().unwrap();
    assert_eq!(state(&server.task(&task).await), "WORKING");
    server.agent.released.add_permits(1);
    server.runner.drain().await;
    assert_eq!(state(&server.task(&task).await), "COMPLETED");
}
