//! Routes that start runs.

use std::time::Duration;

use async_trait::async_trait;
use hatchery::ServerConfig;
use hatchery_core::{EventWindow, RunError, SessionKey};
use hatchery_engine::{PluginSource, Plugins};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::support::{Host, chunks, post_bytes, problem, run_body, wait_for};

/// Runs over SSE on a separate connection. Returns the head and the frames of the response.
async fn stream(host: &Host, body: &Value) -> (String, Vec<String>) {
    chunks(&host.exchange(&post_bytes("/run_sse", body)).await)
}

fn parse(frame: &str) -> Value {
    serde_json::from_str(frame.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap()).unwrap()
}

#[tokio::test]
async fn a_run_returns_the_agent_s_events_and_stores_them() {
    let host = Host::start().await;
    host.session("says").await;
    let events = host.post_json("/run", &run_body("says", "hello")).await;
    assert_eq!(events.as_array().unwrap().len(), 1, "{events}");
    assert_eq!(events[0]["author"], "says");
    assert_eq!(events[0]["content"], json!({"role": "model", "parts": [{"text": "You said: hello"}]}));
    assert!(events[0]["invocationId"].as_str().unwrap().starts_with("e-"));
    let session = host.get_json("/apps/says/users/u/sessions/s").await;
    assert_eq!(session["events"][0]["author"], "user");
    assert_eq!(session["events"][1], events[0]);
    assert_eq!(session["state"], json!({"said": "hello"}));
}

#[tokio::test]
async fn keys_may_be_in_snake_case_and_unknown_ones_are_ignored() {
    let host = Host::start().await;
    host.session("says").await;
    let body = json!({
        "app_name": "says", "user_id": "u", "session_id": "s", "new_message": {"parts": [{"text": "hello"}]},
        "streaming": false, "state_delta": {"k": 1}, "function_call_event_id": "x", "serviceTier": null,
        "customMetadata": {"k": [1]},
    });
    let events = host.post_json("/run", &body).await;
    assert_eq!(events[0]["content"]["parts"][0]["text"], "You said: hello");
    let session = host.get_json("/apps/says/users/u/sessions/s").await;
    assert_eq!(session["state"], json!({"k": 1, "said": "hello"}));
}

#[tokio::test]
async fn every_event_of_a_run_has_the_custom_metadata_of_its_request() {
    let host = Host::start().await;
    let reserved = ["hatchery:proof", "a2a:context_id", "__adk_internal_x", "_compaction", "_usage_metadata"];
    let own = |event: &Value| {
        let mut metadata = event["customMetadata"].as_object().unwrap().clone();
        metadata.remove("hatchery:proof");
        metadata
    };
    for (app, count) in [("says", 1), ("streams", 3), ("fails", 2)] {
        host.session(app).await;
        let mut body = run_body(app, "hello");
        body["streaming"] = json!(true);
        body["customMetadata"] = json!({"ticket": {"number": 7}});
        for key in reserved {
            body["customMetadata"][key] = json!("forged");
        }
        let (_, frames) = stream(&host, &body).await;
        let expected = json!({"ticket": {"number": 7}}).as_object().unwrap().clone();
        for frame in &frames[..count] {
            assert_eq!(own(&parse(frame)), expected, "{frame}");
            assert!(!frame.contains("forged"), "{frame}");
        }
        let session = host.get_json(&format!("/apps/{app}/users/u/sessions/s")).await;
        assert_eq!(session["events"][0]["author"], "user");
        assert_eq!(own(&session["events"][0]), expected, "{session}");
        assert!(session["events"][0]["customMetadata"]["hatchery:proof"].is_string(), "{session}");
    }
}

#[tokio::test]
async fn custom_metadata_of_a_run_has_a_limit() {
    let host = Host::start().await;
    host.session("says").await;
    let mut body = run_body("says", "hello");
    body["customMetadata"] = json!({"a": "x".repeat(16 << 10)});
    let refused = problem(host.post("/run", &body).await, 400, "BAD_INPUT").await;
    let expected = "the custom metadata of the run has 16392 bytes, and at most 16384 are stored with each event; send \
                    larger data as state";
    assert_eq!(refused["detail"], expected);
}

#[tokio::test]
async fn null_is_the_same_as_absent() {
    let host = Host::start().await;
    host.session("says").await;
    let mut body = run_body("says", "hello");
    body["stateDelta"] = Value::Null;
    body["streaming"] = Value::Null;
    body["customMetadata"] = Value::Null;
    body["cancelOnDisconnect"] = Value::Null;
    body["newMessage"]["role"] = Value::Null;
    assert_eq!(host.post_json("/run", &body).await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn each_streamed_event_is_one_data_line_in_one_chunk() {
    let host = Host::start().await;
    host.session("streams").await;
    let mut body = run_body("streams", "hello");
    body["streaming"] = json!(true);
    let (head, frames) = stream(&host, &body).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("\r\ncontent-type: text/event-stream\r\n"), "{head}");
    assert!(head.contains("\r\ncache-control: no-cache\r\n"), "{head}");
    assert_eq!(frames.len(), 3, "{frames:?}");
    for frame in &frames {
        assert!(frame.starts_with("data: {"), "{frame}");
        assert!(frame.ends_with("}\n\n"), "{frame}");
        assert_eq!(frame.matches('\n').count(), 2, "{frame}");
        assert!(!frame.contains(":null"), "{frame}");
    }
    let events: Vec<_> = frames.iter().map(|frame| parse(frame)).collect();
    assert_eq!(events[0]["partial"], true);
    assert_eq!(events[1]["content"]["parts"][0]["text"], "lo\n");
    assert_eq!(events[2]["content"]["parts"][0]["text"], "Hello\n");
    assert_eq!(events[2].get("partial"), None);

    // The sent bytes are equal to the stored ones.
    let key = SessionKey::new("streams", "u", "s");
    let session = host.services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    let stored = std::str::from_utf8(session.events.last().unwrap().json()).unwrap();
    assert_eq!(frames[2], format!("data: {stored}\n\n"));
}

#[tokio::test]
async fn both_spellings_of_the_stream_route_work() {
    let host = Host::start().await;
    host.session("says").await;
    for path in ["/run_sse", "/run-sse"] {
        let response = host.post(path, &run_body("says", "hello")).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert!(response.text().await.unwrap().contains("You said: hello"));
    }
}

#[tokio::test]
async fn a_stream_of_an_unknown_app_or_session_is_404() {
    let host = Host::start().await;
    for path in ["/run", "/run_sse", "/run-sse"] {
        problem(host.post(path, &run_body("nobody", "hello")).await, 404, "APP_NOT_FOUND").await;
        let body = problem(host.post(path, &run_body("says", "hello")).await, 404, "SESSION_NOT_FOUND").await;
        assert_eq!(
            body["detail"],
            "Session not found: appName=says, userId=u, sessionId=s; create it with POST /apps/says/users/u/sessions/s"
        );
    }
}

/// A plugin source whose plugin is missing.
struct MissingPluginSource;

#[async_trait]
impl PluginSource for MissingPluginSource {
    fn current(&self) -> Result<Plugins, RunError> {
        Err(RunError::PluginMissing { plugin: "redact".into(), reason: "plugin `redact` not found".into() })
    }

    async fn close(&self) {}
}

#[tokio::test]
async fn no_run_starts_while_a_plugin_is_missing() {
    let host = Host::with_plugins(MissingPluginSource).await;
    host.session("says").await;
    for path in ["/run", "/run_sse"] {
        let body = problem(host.post(path, &run_body("says", "secret")).await, 503, "PLUGIN_MISSING").await;
        assert_eq!(body["detail"], "no run can begin without plugin `redact`; the server's log holds the cause");
    }
    assert_eq!(host.get_json("/apps/says/users/u/sessions/s").await["events"], json!([]));
}

#[tokio::test]
async fn a_failed_run_is_an_error_with_the_events_so_far() {
    let host = Host::start().await;
    host.session("fails").await;
    let body = problem(host.post("/run", &run_body("fails", "bake")).await, 500, "AGENT_FAILED").await;
    assert!(body["detail"].as_str().unwrap().contains("the oven is cold"), "{body}");
    assert_eq!(body["events"][0]["content"]["parts"][0]["text"], "So far so good.");
    assert_eq!(body["events"][1]["errorCode"], "AGENT_FAILED");
    let session = host.get_json("/apps/fails/users/u/sessions/s").await;
    assert_eq!(session["events"][1], body["events"][0], "what came before the failure is kept");
}

#[tokio::test]
async fn a_failed_stream_ends_with_an_error_event_and_an_error() {
    let host = Host::start().await;
    host.session("fails").await;
    let (head, frames) = stream(&host, &run_body("fails", "bake")).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let [first, failed, error] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!(parse(first)["content"]["parts"][0]["text"], "So far so good.");
    assert_eq!(parse(failed)["errorCode"], "AGENT_FAILED");
    assert_eq!(error, "data: {\"error\":\"agent `fails`: the oven is cold\",\"code\":\"AGENT_FAILED\"}\n\n");
}

#[tokio::test]
async fn an_idle_stream_sends_keep_alive_comments() {
    let config = ServerConfig { keep_alive: Duration::from_millis(10), ..ServerConfig::default() };
    let host = Host::with(config).await;
    host.session("waits").await;
    let stream = host.connect(&post_bytes("/run_sse", &run_body("waits", "hello"))).await;
    let mut lines = BufReader::new(stream).lines();
    while lines.next_line().await.unwrap().expect("the stream ended in silence") != ": keep-alive" {}
    host.signals.resume.add_permits(1);
    let mut rest = String::new();
    lines.into_inner().read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("Done."), "{rest}");
}

/// Starts a run of `waits` and disconnects while it waits.
async fn disconnect(host: &Host, path: &str, cancel: Option<bool>) {
    let mut body = run_body("waits", "hello");
    if let Some(cancel) = cancel {
        body["cancelOnDisconnect"] = json!(cancel);
    }
    let stream = host.connect(&post_bytes(path, &body)).await;
    wait_for(&host.signals.started).await;
    drop(stream);
}

#[tokio::test]
async fn a_run_continues_when_its_client_disconnects() {
    let host = Host::start().await;
    for path in ["/run", "/run_sse"] {
        host.session("waits").await;
        disconnect(&host, path, None).await;
        host.signals.resume.add_permits(1);
        // Turns of a session are serialized, so the next one starts after the first.
        host.signals.resume.add_permits(1);
        host.post_json("/run", &run_body("waits", "again")).await;
        wait_for(&host.signals.started).await;
        let session = host.get_json("/apps/waits/users/u/sessions/s").await;
        let texts: Vec<_> =
            session["events"].as_array().unwrap().iter().map(|event| &event["content"]["parts"][0]["text"]).collect();
        assert_eq!(texts, ["hello", "Waiting.", "Done.", "again", "Waiting.", "Done."], "{path}");
        host.request(reqwest::Method::DELETE, "/apps/waits/users/u/sessions/s").send().await.unwrap();
    }
}

#[tokio::test]
async fn a_run_is_cancelled_on_disconnect_if_the_request_says_so() {
    let host = Host::start().await;
    host.session("waits").await;
    for path in ["/run", "/run_sse"] {
        disconnect(&host, path, Some(true)).await;
        wait_for(&host.signals.cancelled).await;
    }
}

#[tokio::test]
async fn a_run_is_cancelled_on_disconnect_if_the_configuration_says_so() {
    let host = Host::with(ServerConfig { cancel_on_disconnect: Some(true), ..ServerConfig::default() }).await;
    host.session("waits").await;
    disconnect(&host, "/run_sse", None).await;
    wait_for(&host.signals.cancelled).await;
    disconnect(&host, "/run_sse", Some(false)).await;
    host.signals.resume.add_permits(2);
    let events = host.post_json("/run", &run_body("waits", "again")).await;
    assert_eq!(events[1]["content"]["parts"][0]["text"], "Done.");
}

#[tokio::test]
async fn an_invalid_message_is_rejected_and_the_session_stays_usable() {
    let host = Host::start().await;
    host.session("says").await;
    let call = json!({"id": "c1", "name": "pay", "args": {"amount": 1}});
    for (part, wrong) in [
        (
            json!({"foo": 1}),
            "newMessage.parts[1] has `foo`, which is not a supported kind of data; send `text`, `inlineData`, `fileData` or \
             `functionResponse`",
        ),
        (json!({"text": "hi", "foo": 1}), "newMessage.parts[1] has the unknown key `foo`"),
        (json!({"functionCall": call}), "newMessage.parts[1] is a `functionCall`, which only a model can make"),
        (json!({"function_call": call}), "newMessage.parts[1] is a `functionCall`, which only a model can make"),
        (
            json!({"text": "hi", "functionCall": call}),
            "newMessage.parts[1] has both `text` and `functionCall`; a part holds one kind of data",
        ),
        (
            json!({"functionResponse": {"id": "c1", "name": "pay", "response": {"done": true}}}),
            "newMessage.parts[1] has a `functionResponse` of id `c1`, but the session has no such call",
        ),
    ] {
        for path in ["/run", "/run_sse", "/run-sse"] {
            let mut body = run_body("says", "hello");
            body["newMessage"]["parts"] = json!([{"text": "hello"}, part]);
            let body = problem(host.post(path, &body).await, 422, "INVALID_MESSAGE").await;
            assert_eq!(body["detail"], wrong);
        }
    }
    let session = host.get_json("/apps/says/users/u/sessions/s").await;
    assert_eq!(session["events"], json!([]), "nothing of it is stored");
    let events = host.post_json("/run", &run_body("says", "hello")).await;
    assert_eq!(events[0]["content"]["parts"][0]["text"], "You said: hello");
}

#[tokio::test]
async fn a_request_with_a_run_id_can_be_repeated() {
    let host = Host::start().await;
    host.session("says").await;
    for key in ["runId", "run_id"] {
        let mut body = run_body("says", "hello");
        body[key] = json!("r-1");
        let events = host.post_json("/run", &body).await;
        assert_eq!(events[0]["invocationId"], "r-1");
        let (_, frames) = stream(&host, &body).await;
        assert_eq!(frames.iter().map(|frame| parse(frame)).collect::<Vec<_>>(), *events.as_array().unwrap());
    }
    let session = host.get_json("/apps/says/users/u/sessions/s").await;
    assert_eq!(session["events"].as_array().unwrap().len(), 2, "{session}");
}
