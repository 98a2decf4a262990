//! Remote agents that misbehave: each is an error that says what to do, and the host serves on.

use anyhow::{Result, ensure};
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use hatchery_tests::host::message;
use hatchery_tests::{Folder, Host};
use serde_json::{Value, json};

/// What a peer answers to any request but that for its card.
#[derive(Debug, Clone, Copy)]
enum Behaviour {
    Hangs,
    SendsGarbage,
    SendsTooMuch,
    NeverStops,
    EndsEarly,
    Refuses,
}

/// Starts a peer. Returns its URL.
async fn peer(behaviour: Behaviour, card: impl Fn(&str) -> String + Clone + Send + Sync + 'static) -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let own = url.clone();
    let answer = move |request: Request| {
        let (card, own) = (card.clone(), own.clone());
        async move {
            if request.uri().path() == "/card" {
                return card(&own).into_response();
            }
            respond(behaviour).await
        }
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    Ok(url)
}

async fn respond(behaviour: Behaviour) -> Response {
    let event_stream = [("content-type", "text/event-stream")];
    match behaviour {
        Behaviour::Hangs => std::future::pending().await,
        Behaviour::SendsGarbage => "<html>".into_response(),
        Behaviour::SendsTooMuch => (event_stream, format!("data: {}\n\n", "x".repeat(10_000))).into_response(),
        Behaviour::NeverStops => {
            let artifact = json!({"artifactId": "a", "parts": [{"kind": "text", "text": "x".repeat(700)}]});
            let update = json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "append": true, "artifact": artifact});
            let item = format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": 1, "result": update}));
            let items = futures::stream::repeat_with(move || Ok::<_, std::io::Error>(item.clone()));
            (event_stream, axum::body::Body::from_stream(items)).into_response()
        }
        Behaviour::EndsEarly => (event_stream, ": nothing\n\n").into_response(),
        Behaviour::Refuses => {
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no such\nmethod"}})
                .to_string()
                .into_response()
        }
    }
}

fn card(url: &str) -> String {
    json!({"name": "bad", "url": url, "protocolVersion": "0.3.0", "capabilities": {"streaming": true}}).to_string()
}

/// Serves an agent that is the peer, with settings of it, and returns the code and the detail of its failure.
async fn failure(peer: &str, settings: Value) -> Result<(String, String)> {
    let folder = Folder::empty()?;
    let mut agent = json!({"card": format!("{peer}/card")});
    if let (Some(agent), Value::Object(settings)) = (agent.as_object_mut(), settings) {
        agent.extend(settings);
    }
    folder.write_operator_config(&json!({"a2a": {"agents": {"bad": agent}}}).to_string())?;
    folder.write("far/root_agent.yaml", "agent_class: A2aAgent\nname: far\nargs: {agent: bad}\n")?;
    let host = Host::serve(&folder).await?;
    host.create_session("far", "s").await?;
    let answer = host.post("/run", &message("far", "s", "hi")).await?;
    let code = answer.json(answer.status)?.get("code").and_then(Value::as_str).unwrap_or_default().to_owned();
    let detail = answer.error(answer.status, &code)?;
    host.get("/health").await?.json(200)?;
    Ok((code, detail))
}

#[tokio::test]
async fn each_misbehaviour_is_an_error_of_its_own() -> Result<()> {
    let settings = || json!({"read_timeout": "300ms", "max_message": "1 KiB", "max_answer": "8 KiB"});
    for (behaviour, code, reason) in [
        (Behaviour::Hangs, "A2A_TIMEOUT", "it did not answer within 0.3 s, so its task was canceled"),
        (Behaviour::SendsGarbage, "A2A_BAD_RESPONSE", "Failed to convert the remote agent's response: "),
        (
            Behaviour::SendsTooMuch,
            "A2A_TOO_LARGE",
            "it sent more than 1024 bytes in one item of a stream; raise `max_message`",
        ),
        (
            Behaviour::NeverStops,
            "A2A_TOO_LARGE",
            "it sent more than 8192 bytes in one answer; raise `max_answer` to allow more",
        ),
        (Behaviour::EndsEarly, "A2A_BAD_RESPONSE", "it ended without an answer"),
        (Behaviour::Refuses, "A2A_REFUSED", "it refused the request with the code -32601: no such\\nmethod"),
    ] {
        let url = peer(behaviour, card).await?;
        let (actual, detail) = failure(&url, settings()).await?;
        assert_eq!(actual, code, "{behaviour:?}: {detail}");
        ensure!(
            detail.starts_with("agent `far`: the remote agent: ") && detail.contains(reason),
            "{behaviour:?}: {detail}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_card_must_be_small_valid_and_point_where_the_operator_allows_it() -> Result<()> {
    let large = |_: &str| format!("{{\"name\": \"{}\"}}", "x".repeat(10_000));
    let url = peer(Behaviour::Hangs, large).await?;
    let (code, detail) = failure(&url, json!({"max_card": "1 KiB"})).await?;
    ensure!(
        code == "A2A_TOO_LARGE" && detail.contains("more than 1024 bytes in one card; raise `max_card`"),
        "{detail}"
    );
    let url = peer(Behaviour::Hangs, |_: &str| "[]".to_owned()).await?;
    let (code, detail) = failure(&url, json!({})).await?;
    ensure!(code == "A2A_CARD" && detail.ends_with("its card cannot be read: it is not a JSON object"), "{detail}");
    let grpc = |_: &str| {
        let interface = json!({"url": "https://a.example", "protocolBinding": "GRPC", "protocolVersion": "1.0"});
        json!({"name": "a", "supportedInterfaces": [interface]}).to_string()
    };
    let url = peer(Behaviour::Hangs, grpc).await?;
    let (code, detail) = failure(&url, json!({})).await?;
    ensure!(code == "A2A_CARD" && detail.contains("it speaks GRPC 1.0; this host speaks JSONRPC"), "{detail}");
    // A card that points at the metadata service of a cloud, or at another port of this machine.
    for (target, settings, reason) in [
        ("http://169.254.169.254/latest", json!({}), "a2a.agents.bad.network: [\"http://169.254.169.254\"]"),
        ("http://127.0.0.1:1/x", json!({}), "a2a.agents.bad.network: [\"http://127.0.0.1:1\"]"),
        (
            "http://127.0.0.1:1/x",
            json!({"network": ["http://127.0.0.1:1"]}),
            "is at 127.0.0.1, a loopback address; allow it by `a2a.agents.bad.private_network: [\"127.0.0.1:1\"]`",
        ),
        (
            "http://localhost:1/x",
            json!({"network": ["http://localhost:1"]}),
            "a loopback address; allow it by `a2a.agents.bad.private_network: [\"localhost:1\"]`",
        ),
    ] {
        let url = peer(Behaviour::Hangs, move |_: &str| card(target)).await?;
        let (code, detail) = failure(&url, settings).await?;
        ensure!(
            matches!(code.as_str(), "A2A_NOT_ALLOWED" | "A2A_UNREACHABLE") && detail.contains(reason),
            "{target}: {code}: {detail}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_missing_variable_is_named() -> Result<()> {
    let url = peer(Behaviour::Hangs, card).await?;
    let (code, detail) =
        failure(&url, json!({"headers": {"Authorization": {"from": "NO_SUCH_TOKEN", "prefix": "Bearer "}}})).await?;
    assert_eq!(code, "A2A_CONFIGURATION");
    ensure!(
        detail.ends_with(
            "the header `Authorization` needs the environment variable NO_SUCH_TOKEN of the host, which is not set"
        ),
        "{detail}"
    );
    Ok(())
}

#[tokio::test]
async fn an_agent_file_opens_no_connection_of_its_own() -> Result<()> {
    let folder = Folder::empty()?;
    let agent = |args: &str| format!("agent_class: A2aAgent\nname: far\nargs: {{{args}}}\n");
    folder.write("a/root_agent.yaml", agent("agent_card: 'https://evil.example/card'"))?;
    folder.write("b/root_agent.yaml", agent("agent: nobody"))?;
    let host = Host::serve(&folder).await?;
    let reason = host.wait_for_refusal("a/root_agent.yaml").await?;
    let lines = "a2a:\n  agents:\n    NAME:\n      card: https://evil.example/card";
    ensure!(reason.contains("an agent file cannot open a connection of its own") && reason.contains(lines), "{reason}");
    let reason = host.wait_for_refusal("b/root_agent.yaml").await?;
    ensure!(
        reason.contains("hatchery.yaml has no remote agent `nobody`; available: none; add it there below `a2a.agents`"),
        "{reason}"
    );
    Ok(())
}
