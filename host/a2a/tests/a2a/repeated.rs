//! Repeated requests.

use serde_json::json;

use crate::support::{Options, Server, state, texts};

#[tokio::test]
async fn a_repeated_message_attaches_to_its_task() {
    let server = Server::new(Options::default());
    let mut params = server.params(json!([{"text": "wait"}]), json!({"contextId": "c"}));
    params["configuration"] = json!({"returnImmediately": true});
    let first = server.result("SendMessage", params.clone()).await;
    server.stopped().await;
    let second = server.result("SendMessage", params.clone()).await;
    assert_eq!((&first["task"]["id"], state(&second["task"])), (&second["task"]["id"], "WORKING"));
    server.agent.released.add_permits(1);
    params["configuration"] = json!({});
    let done = server.result("SendMessage", params.clone()).await;
    assert_eq!((state(&done["task"]), texts(&done["task"])), ("COMPLETED", vec!["waited"]));
    let stream = server.post("SendStreamingMessage", params.clone()).await;
    let stream = String::from_utf8_lossy(stream.body()).into_owned();
    assert!(stream.contains("waited") && stream.contains("TASK_STATE_COMPLETED"), "{stream}");
    let listed = server.result("ListTasks", json!({"contextId": "c"})).await;
    assert_eq!(listed["totalSize"], 1);
    // Another message, or another context, is another task.
    params["message"]["messageId"] = json!("other");
    server.agent.released.add_permits(2);
    let other = server.result("SendMessage", params.clone()).await;
    assert_ne!(other["task"]["id"], first["task"]["id"]);
    params["message"]["contextId"] = json!("d");
    let elsewhere = server.result("SendMessage", params).await;
    assert_ne!(elsewhere["task"]["id"], other["task"]["id"]);
}
