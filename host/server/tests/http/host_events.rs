//! The stream of what happens in the host.

use std::fs;

use hatchery::{DevUi, ServerConfig};
use reqwest::Response;
use serde_json::{Value, json};

use crate::support::{FolderServer, Host, TIMEOUT, problem};

/// Reads events until `count` of them have arrived.
async fn read(response: &mut Response, count: usize) -> Vec<Value> {
    let mut text = String::new();
    loop {
        let events: Vec<Value> = text
            .split_inclusive("\n\n")
            .filter(|block| block.ends_with("\n\n"))
            .filter_map(|block| block.lines().find_map(|line| line.strip_prefix("data: ")))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        if events.len() >= count {
            return events;
        }
        let chunk = tokio::time::timeout(TIMEOUT, response.chunk()).await.expect("no event").unwrap();
        text.push_str(std::str::from_utf8(&chunk.expect("the stream has ended")).unwrap());
    }
}

#[tokio::test]
async fn changes_of_files_and_ends_of_runs_are_streamed_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("hello")).unwrap();
    let (file, good) = (
        folder.path().join("hello/root_agent.yaml"),
        "name: hello\nmodel: scripted:answers.yaml\ninstruction: Greet.\n",
    );
    fs::write(&file, good).unwrap();
    fs::write(folder.path().join("answers.yaml"), "turns:\n  - reply: Hi\n").unwrap();
    let server =
        FolderServer::start(folder.path(), ServerConfig { dev_ui: Some(DevUi::Full), ..ServerConfig::default() }).await;
    let mut stream = server.get("/events").await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    loop {
        let events = read(&mut stream, 1).await;
        if events.iter().any(|event| event["kind"] == "fileLoaded" && event["name"] == "hello") {
            break;
        }
    }
    server.post("/apps/hello/users/u/sessions/s", &json!({})).await;
    let run = json!({"appName": "hello", "userId": "u", "sessionId": "s", "newMessage": {"parts": [{"text": "Hi"}]}});
    server.post("/run", &run).await;
    let ended = read(&mut stream, 1).await.remove(0);
    assert_eq!((&ended["kind"], &ended["app"], &ended["session"]), (&json!("runEnded"), &json!("hello"), &json!("s")));
    fs::write(&file, "name: hello\nmodle: x\n").unwrap();
    let after = format!("/events?after={}", ended["id"]);
    for mut stream in [server.get(&after).await, server.get_after("/events", &ended["id"].to_string()).await] {
        let mut events = read(&mut stream, 1).await;
        while events.last().unwrap()["kind"] != "fileRejected" {
            events = read(&mut stream, 1).await;
        }
        let rejected = events.last().unwrap();
        assert!(rejected["id"].as_u64() > ended["id"].as_u64());
        assert_eq!((&rejected["name"], &rejected["previousServes"]), (&json!("hello"), &json!(true)));
        assert!(rejected["reason"].as_str().unwrap().contains("modle"), "{rejected}");
    }
}

#[tokio::test]
async fn an_id_that_is_no_number_is_refused_and_the_stream_ends_with_the_server() {
    let mut host = Host::start().await;
    problem(host.get("/events?after=x").await, 422, "INVALID_REQUEST").await;
    let mut stream = host.get("/events").await;
    assert!(stream.chunk().await.unwrap().unwrap().starts_with(b": connected"));
    host.stop();
    while tokio::time::timeout(TIMEOUT, stream.chunk()).await.expect("the stream does not end").unwrap().is_some() {}
    host.stopped().await;
}
