//! Models, and runs across a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use axum::routing::post;
use axum::{Json, Router};
use hatchery_test_services::serve_http;
use hatchery_tests::host::message;
use hatchery_tests::{Folder, Host, event};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{PIRATE, apply};

/// Returns a chat completion with a message.
fn completion(message: Value, reason: &str) -> Json<Value> {
    Json(json!({
        "id": "c", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }))
}

/// Returns true if the system message of a request has this text.
fn is_instructed(request: &Value, text: &str) -> bool {
    request["messages"].as_array().is_some_and(|messages| messages.iter().any(|it| it.to_string().contains(text)))
}

/// Serves a model that says its name, and whether it talks like a pirate.
async fn model(name: &'static str) -> String {
    let answer = async move |Json(request): Json<Value>| {
        let style = if is_instructed(&request, "like a pirate") { "pirate" } else { "plain" };
        completion(json!({"role": "assistant", "content": format!("{name}, {style}")}), "stop")
    };
    serve_http(Router::new().route("/v1/chat/completions", post(answer))).await
}

/// A model whose first answer waits until it is released. That is a call of a tool that does not exist; the second one
/// is its name.
#[derive(Clone, Default)]
struct HeldModel {
    calls: Arc<AtomicUsize>,
    arrived: Arc<Notify>,
    released: Arc<Notify>,
}

impl HeldModel {
    async fn serve(&self) -> String {
        let held = self.clone();
        let answer = async move |Json(request): Json<Value>| {
            if held.calls.fetch_add(1, Ordering::SeqCst) == 0 {
                held.arrived.notify_one();
                held.released.notified().await;
                let call = json!({"id": "t", "type": "function", "function": {"name": "nothing", "arguments": "{}"}});
                return completion(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls");
            }
            let style = if is_instructed(&request, "like a pirate") { "pirate" } else { "plain" };
            completion(json!({"role": "assistant", "content": format!("first, {style}")}), "stop")
        };
        serve_http(Router::new().route("/v1/chat/completions", post(answer))).await
    }
}

fn folder(config: &str) -> Result<Folder> {
    let folder = Folder::empty()?;
    folder.write("talker/root_agent.yaml", "name: talker\nmodel: vllm/m\ninstruction: Talk.\n")?;
    folder.write_operator_config(config)?;
    Ok(folder)
}

fn base_url(url: &str) -> String {
    format!("models: {{vllm_base_url: '{url}/v1'}}\n")
}

async fn talk(host: &Host, session: &str) -> Result<String> {
    let events = host.ask("talker", session, "Hi").await?;
    Ok(events.last().map(event::text).unwrap_or_default())
}

#[tokio::test]
async fn the_next_run_uses_the_model_server_of_the_changed_configuration() -> Result<()> {
    let (one, two) = (model("one").await, model("two").await);
    let folder = folder(&base_url(&one))?;
    let host = Host::serve(&folder).await?;
    assert_eq!(talk(&host, "a").await?, "one, plain");
    apply(&host, &folder, &base_url(&two), &["models"]).await?;
    assert_eq!(talk(&host, "b").await?, "two, plain");
    // Also a session that has begun before.
    assert_eq!(event::texts(&host.run("talker", "a", "Again").await?), ["two, plain"]);
    Ok(())
}

#[tokio::test]
async fn a_run_in_progress_keeps_what_it_has_started_with() -> Result<()> {
    let held = HeldModel::default();
    let (first, second) = (held.serve().await, model("second").await);
    let folder = folder(&base_url(&first))?;
    let host = Host::serve(&folder).await?;
    host.create_session("talker", "a").await?;
    host.create_session("talker", "b").await?;
    let body = message("talker", "a", "Hi");
    let run = host.post("/run", &body);
    let change = async {
        held.arrived.notified().await;
        let config = format!("{}{PIRATE}apps: {{talker: {{max_llm_calls: 1}}}}\n", base_url(&second));
        apply(&host, &folder, &config, &["models", "plugins", "apps"]).await?;
        // A new run has all of it.
        let events = host.post("/run", &message("talker", "b", "Hi")).await?.json(200)?;
        held.released.notify_one();
        anyhow::Ok(events)
    };
    let (answer, new) = tokio::join!(run, change);
    let texts = |events: &Value| event::texts(events.as_array().map(Vec::as_slice).unwrap_or_default()).concat();
    assert_eq!(texts(&new?), "second, pirate");
    assert_eq!(texts(&answer?.json(200)?), "first, plain");
    assert_eq!(held.calls.load(Ordering::SeqCst), 2);
    Ok(())
}
