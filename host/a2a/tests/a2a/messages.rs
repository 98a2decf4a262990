//! Messages of agents that are no task, and messages of clients in the history.

use serde_json::{Value, json};

use crate::support::{Options, Server, state};

#[tokio::test]
async fn an_agent_answers_with_a_message_instead_of_a_task() {
    let server = Server::new(Options::default());
    let params = server.params(json!([{"text": "message"}]), json!({"contextId": "c"}));
    let sent = server.result("SendMessage", params.clone()).await;
    let message = &sent["message"];
    assert_eq!(message["parts"], json!([{"text": "Only a message."}]), "{sent}");
    assert_eq!((&message["role"], &message["contextId"]), (&json!("ROLE_AGENT"), &json!("c")));
    assert_eq!((sent.get("task"), message.get("taskId")), (None, None));
    // The repeated request has the same answer.
    assert_eq!(server.result("SendMessage", params.clone()).await, sent);

    let old =
        json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "message"}]});
    let sent = server.result("message/send", json!({ "message": old })).await;
    assert_eq!((&sent["kind"], &sent["parts"][0]["text"]), (&json!("message"), &json!("Only a message.")));

    let mut stream = server.stream("SendStreamingMessage", params).await;
    let mut items = Vec::new();
    while let Some(item) = stream.next().await {
        items.push(item);
    }
    assert_eq!(items.first().unwrap()["task"]["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(items.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn the_history_has_an_answer_as_the_client_has_sent_it() {
    let server = Server::new(Options::default());
    let task = server.send("ask a", json!({})).await;
    let done = server.send("blue", json!({"taskId": task["id"]})).await;
    assert_eq!(state(&done), "COMPLETED");
    let users = |task: &Value| -> Vec<Value> {
        let messages = task["history"].as_array().unwrap().iter();
        messages.filter(|message| message["role"] == "ROLE_USER").map(|message| message["parts"].clone()).collect()
    };
    assert_eq!(users(&done), [json!([{"text": "ask a"}]), json!([{"text": "blue"}])], "{done}");

    let task = server.send("ask a", json!({})).await;
    let sent = crate::support::answer("a");
    let done = server.send_parts(sent, json!({"taskId": task["id"]})).await;
    let part = &users(&done)[1][0];
    assert_eq!(
        (&part["data"]["response"], &part["metadata"]["adk_type"]),
        (&json!({"result": "a"}), &json!("function_response"))
    );
}
