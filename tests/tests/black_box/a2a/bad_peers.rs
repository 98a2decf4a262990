//! Remote agents that misbehave: each is an error that says what to do, and the host serves on.

use std::time::Duration;

use anyhow::{Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Redirect, Response};
use futures::stream;
use hatchery_tests::host::message;
use hatchery_tests::{Folder, Host};
use serde_json::{Value, json};

/// The response of a peer to any request except the one for its card.
#[derive(Debug, Clone, Copy)]
enum Behaviour {
    Hangs,
    /// Sends the head of a stream only.
    Stalls,
    /// Sends a comment now and then.
    Drips,
    Redirects,
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

/// An item of a streamed body.
type Item = Result<String, std::io::Error>;

async fn respond(behaviour: Behaviour) -> Response {
    let event_stream = [("content-type", "text/event-stream")];
    match behaviour {
        Behaviour::Hangs => std::future::pending().await,
        Behaviour::Stalls => (event_stream, Body::from_stream(stream::pending::<Item>())).into_response(),
        Behaviour::Drips => {
            let ticks = stream::unfold(tokio::time::interval(Duration::from_millis(50)), |mut ticks| async move {
                ticks.tick().await;
                Some((Item::Ok(": working\n\n".into()), ticks))
            });
            (event_stream, Body::from_stream(ticks)).into_response()
        }
        Behaviour::Redirects => Redirect::temporary("/elsewhere").into_response(),
        Behaviour::SendsGarbage => "<html>".into_response(),
        Behaviour::SendsTooMuch => (event_stream, format!("data: {}\n\n", "x".repeat(10_000))).into_response(),
        Behaviour::NeverStops => {
            let artifact = json!({"artifactId": "a", "parts": [{"kind": "text", "text": "x".repeat(700)}]});
            let update = json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "append": true, "artifact": artifact});
            let item = format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": 1, "result": update}));
            (event_stream, Body::from_stream(stream::repeat_with(move || Item::Ok(item.clone())))).into_response()
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

/// Serves an agent that is the peer, with settings of it. Returns the code and the detail of its failure, and the host,
/// whose log has what is for its operator.
async fn failure(peer: &str, settings: Value) -> Result<(String, String, Host)> {
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
    Ok((code, detail, host))
}

#[tokio::test]
async fn each_misbehaviour_is_an_error_of_its_own() -> Result<()> {
    let settings =
        || json!({"read_timeout": "300ms", "max_time": "10s", "max_message": "1 KiB", "max_answer": "8 KiB"});
    for (behaviour, code, reason, log) in [
        (Behaviour::Hangs, "A2A_TIMEOUT", "it sent nothing for 0.3 s; it may have had an effect", ""),
        (Behaviour::Stalls, "A2A_TIMEOUT", "it sent nothing for 0.3 s; it may have had an effect", ""),
        (Behaviour::SendsGarbage, "A2A_BAD_RESPONSE", "Failed to convert the remote agent's response: ", ""),
        (
            Behaviour::SendsTooMuch,
            "A2A_TOO_LARGE",
            "it sent more than 1024 bytes in one item of a stream",
            "raise `max_message`",
        ),
        (Behaviour::NeverStops, "A2A_TOO_LARGE", "it sent more than 8192 bytes in one answer", "raise `max_answer`"),
        (Behaviour::EndsEarly, "A2A_BAD_RESPONSE", "it ended without an answer", ""),
        (Behaviour::Refuses, "A2A_REFUSED", "it refused the request with the code -32601: no such\\nmethod", ""),
    ] {
        let url = peer(behaviour, card).await?;
        let (actual, detail, host) = failure(&url, settings()).await?;
        assert_eq!(actual, code, "{behaviour:?}: {detail}");
        ensure!(
            detail.starts_with("agent `far`: the remote agent: ") && detail.contains(reason),
            "{behaviour:?}: {detail}"
        );
        ensure!(!detail.contains("raise"), "{behaviour:?}: {detail}");
        host.wait_for_log(log).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_answer_has_a_limit_of_its_time_in_all() -> Result<()> {
    let url = peer(Behaviour::Drips, card).await?;
    let (code, detail, host) = failure(&url, json!({"max_time": "500ms"})).await?;
    assert_eq!(code, "A2A_TIMEOUT", "{detail}");
    ensure!(detail.ends_with("its answer took longer than 0.5 s in all; it may have had an effect"), "{detail}");
    host.wait_for_log("raise `max_time` to allow more").await
}

#[tokio::test]
async fn a_card_must_be_small_valid_and_point_where_the_operator_allows_it() -> Result<()> {
    let large = |_: &str| format!("{{\"name\": \"{}\"}}", "x".repeat(10_000));
    let url = peer(Behaviour::Hangs, large).await?;
    let (code, detail, host) = failure(&url, json!({"max_card": "1 KiB"})).await?;
    ensure!(code == "A2A_TOO_LARGE" && detail.ends_with("it sent more than 1024 bytes in one card"), "{detail}");
    host.wait_for_log("raise `max_card` to allow more").await?;
    let url = peer(Behaviour::Hangs, |_: &str| "[]".to_owned()).await?;
    let (code, detail, _) = failure(&url, json!({})).await?;
    ensure!(code == "A2A_CARD" && detail.ends_with("its card cannot be read: it is not a JSON object"), "{detail}");
    let grpc = |_: &str| {
        let interface = json!({"url": "https://a.example", "protocolBinding": "GRPC", "protocolVersion": "1.0"});
        json!({"name": "a", "supportedInterfaces": [interface]}).to_string()
    };
    let url = peer(Behaviour::Hangs, grpc).await?;
    let (code, detail, _) = failure(&url, json!({})).await?;
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
        let (code, detail, host) = failure(&url, settings).await?;
        assert_eq!(code, "A2A_NOT_ALLOWED", "{target}: {detail}");
        ensure!(detail.ends_with("the server may not connect to it; its log holds the cause"), "{target}: {detail}");
        host.wait_for_log(reason).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_redirect_is_not_followed() -> Result<()> {
    let url = peer(Behaviour::Redirects, card).await?;
    let (code, detail, _) = failure(&url, json!({})).await?;
    assert_eq!(code, "A2A_UNREACHABLE", "{detail}");
    ensure!(detail.contains("the answer has the status 307"), "{detail}");
    Ok(())
}

#[tokio::test]
async fn a_missing_variable_is_named_to_the_operator_only() -> Result<()> {
    let url = peer(Behaviour::Hangs, card).await?;
    let headers = json!({"Authorization": {"from": "NO_SUCH_TOKEN", "prefix": "Bearer "}});
    let (code, detail, host) = failure(&url, json!({"headers": headers})).await?;
    assert_eq!(code, "A2A_CONFIGURATION");
    ensure!(detail.ends_with("its configuration is incomplete; the server's log holds the cause"), "{detail}");
    ensure!(!detail.contains("NO_SUCH_TOKEN") && !detail.contains("Authorization"), "{detail}");
    let reason =
        "the header `Authorization` needs the environment variable NO_SUCH_TOKEN of the host, which is not set";
    host.wait_for_log(reason).await?;
    let status = json!({"name": "bad", "state": "down", "reason": reason});
    assert_eq!(host.components().await?.pointer("/a2aAgents"), Some(&json!([status])));
    Ok(())
}

#[tokio::test]
async fn an_agent_file_opens_no_connection_of_its_own() -> Result<()> {
    let folder = Folder::empty()?;
    let agent = |args: &str| format!("agent_class: A2aAgent\nname: far\nargs: {{{args}}}\n");
    folder.write("a/root_agent.yaml", agent("agent_card: 'https://evil.example/card'"))?;
    folder.write("b/root_agent.yaml", agent("agent: nobody"))?;
    folder.write("c/root_agent.yaml", agent(""))?;
    let host = Host::serve(&folder).await?;
    let reason = host.wait_for_refusal("a/root_agent.yaml").await?;
    let lines = "a2a:\n  agents:\n    NAME:\n      card: https://evil.example/card";
    ensure!(reason.contains("an agent file cannot open a connection of its own") && reason.contains(lines), "{reason}");
    let reason = host.wait_for_refusal("b/root_agent.yaml").await?;
    ensure!(
        reason.contains("hatchery.yaml has no remote agent `nobody`; available: none; add it there below `a2a.agents`"),
        "{reason}"
    );
    let reason = host.wait_for_refusal("c/root_agent.yaml").await?;
    ensure!(reason.contains("`args.agent` is missing: the name of an agent in hatchery.yaml"), "{reason}");
    Ok(())
}
