//! Settings of the HTTP server.

use anyhow::{Result, ensure};
use hatchery_tests::host::{message, session_path};
use hatchery_tests::sse::Stream;
use hatchery_tests::{Folder, Host};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{apply, folder, setting};

#[tokio::test]
async fn hosts_origins_and_limits_of_requests_change() -> Result<()> {
    let folder = folder("")?;
    let host = Host::serve(&folder).await?;
    let named = || host.request(Method::GET, "/list-apps").header("host", "agents.example");
    let shared = || host.request(Method::GET, "/list-apps").header("origin", "https://page.example");
    let create = |id: &str| {
        host.request(Method::POST, &session_path("hello", id)).json(&json!({"state": {"a": "x".repeat(5000)}}))
    };
    host.send(named()).await?.error(403, "HOST_NOT_ALLOWED")?;
    host.send(shared()).await?.error(403, "ORIGIN_NOT_ALLOWED")?;
    host.send(create("a")).await?.json(200)?;
    let config = "server:\n  allowed_hosts: [agents.example]\n  cors: {origins: ['https://page.example']}\n  \
                  small_body_limit: 1KiB\n  body_limit: 2KiB\n  max_concurrent_runs: 0\n";
    let keys = ["allowed_hosts", "cors", "body_limit", "small_body_limit", "max_concurrent_runs"];
    let keys = keys.map(|key| format!("server.{key}"));
    apply(&host, &folder, config, &keys.each_ref().map(String::as_str)).await?;
    host.send(named()).await?.json(200)?;
    let answer = host.send(shared()).await?;
    ensure!(
        answer.headers.get("access-control-allow-origin").is_some_and(|it| it == "https://page.example"),
        "{answer:?}"
    );
    host.send(create("b")).await?.error(413, "BODY_TOO_LARGE")?;
    let long = message("hello", "a", &"Hi ".repeat(3000));
    host.post("/run", &long).await?.error(413, "BODY_TOO_LARGE")?;
    assert_eq!(setting(&host, "server.small_body_limit").await?["value"], "1 KiB");
    apply(&host, &folder, "server: {max_concurrent_runs: 0}\n", &keys.each_ref().map(String::as_str)[..4]).await?;
    host.send(named()).await?.error(403, "HOST_NOT_ALLOWED")?;
    host.send(shared()).await?.error(403, "ORIGIN_NOT_ALLOWED")?;
    host.send(create("b")).await?.json(200)?;
    host.post("/run", &long).await?.error(503, "BUSY")?;
    apply(&host, &folder, "", &["server.max_concurrent_runs"]).await?;
    host.post("/run", &long).await?.json(200)?;
    Ok(())
}

/// Asks for the state of the host over its own connection. Returns it with the beginning of the answer.
async fn connect(host: &Host) -> Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(host.url.trim_start_matches("http://")).await?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).await?;
    Ok((stream, String::from_utf8_lossy(&begin).into_owned()))
}

#[tokio::test]
async fn the_number_of_connections_changes() -> Result<()> {
    let folder = folder("")?;
    let host = Host::serve(&folder).await?;
    let mut open = Vec::new();
    for _ in 0..20 {
        let (stream, answer) = connect(&host).await?;
        assert_eq!(answer, "HTTP/1.1 200");
        open.push(stream);
    }
    apply(&host, &folder, "server: {max_connections_per_peer: 20}\n", &["server.max_connections_per_peer"]).await?;
    // Fewer than the default of the limit.
    for _ in 0..100 {
        let (stream, answer) = connect(&host).await?;
        open.push(stream);
        if answer == "HTTP/1.1 503" {
            apply(&host, &folder, "", &["server.max_connections_per_peer"]).await?;
            while connect(&host).await?.1 != "HTTP/1.1 200" {}
            return Ok(());
        }
    }
    anyhow::bail!("no connection is refused")
}

#[tokio::test]
async fn authentication_is_switched_on_and_off() -> Result<()> {
    const KEY: &str = "operator-key-0123456789";
    let folder = folder("")?;
    let host = Host::serve_with_environment(&folder, &[("OPERATOR_KEY", KEY)]).await?;
    host.get("/components").await?.json(200)?;
    let config = "server: {auth: {keys: [{name: operator, from: OPERATOR_KEY, role: operate}]}}\n";
    apply(&host, &folder, config, &["server.auth"]).await?;
    host.get("/components").await?.error(401, "UNAUTHENTICATED")?;
    let with_key = || host.request(Method::GET, "/components").bearer_auth(KEY);
    host.send(with_key()).await?.json(200)?;
    // A key that is missing leaves the previous one.
    folder.write_operator_config("server: {auth: {keys: [{name: other, from: NO_SUCH_KEY}]}, max_connections: 9}\n")?;
    host.wait_for_log("server.auth: the API key `other` is missing").await?;
    host.wait_for_log("; the previous settings remain in force").await?;
    host.send(with_key()).await?.json(200)?;
    apply(&host, &folder, "", &["server.auth"]).await?;
    host.get("/components").await?.json(200)?;
    Ok(())
}

#[tokio::test]
async fn the_developer_ui_and_the_audit_log_change() -> Result<()> {
    let folder = folder("")?;
    let host = Host::serve(&folder).await?;
    let log = folder.data().join("other-audit.log");
    ensure!(host.get("/dev-ui/").await?.status == 200);
    let config = format!("server: {{dev_ui: off}}\naudit: {{file: '{}'}}\n", log.display());
    apply(&host, &folder, &config, &["server.dev_ui", "audit"]).await?;
    host.get("/dev-ui/").await?.error(404, "ROUTE_NOT_FOUND")?;
    host.get("/config").await?.error(403, "CONFIG_NOT_SHOWN")?;
    apply(&host, &folder, &format!("{config}components: {{hello: {{grants: {{memory: read}}}}}}\n"), &["components"])
        .await?;
    let text = std::fs::read_to_string(&log)?;
    ensure!(text.contains(r#""kind":"grants""#), "{text}");
    apply(&host, &folder, "", &["components", "server.dev_ui", "audit"]).await?;
    ensure!(host.get("/dev-ui/").await?.status == 200);
    Ok(())
}

#[tokio::test]
async fn sessions_are_deleted_by_rules_that_are_added() -> Result<()> {
    let folder = folder("")?;
    let host = Host::serve(&folder).await?;
    for id in ["a", "b", "c"] {
        host.create_session("hello", id).await?;
    }
    apply(&host, &folder, "retention: {user_sessions: 1}\n", &["retention"]).await?;
    host.wait_for_log("deleted sessions by the rules of `retention`").await?;
    host.get(&session_path("hello", "a")).await?.error(404, "SESSION_NOT_FOUND")?;
    host.get(&session_path("hello", "c")).await?.json(200)?;
    Ok(())
}

/// An app that answers `Hello`, but for the message `wait` after ten minutes.
fn slow_folder(config: &str) -> Result<Folder> {
    let folder = Folder::empty()?;
    folder.write("slow/root_agent.yaml", "name: slow\nmodel: scripted:slow/answers.yaml\ninstruction: Wait.\n")?;
    let answers = "turns:\n  - when: { user: wait }\n    delay_ms: 600000\n    reply: late\n  - reply: Hello\n";
    folder.write("slow/answers.yaml", answers)?;
    folder.write_operator_config(config)?;
    Ok(folder)
}

/// Begins a run that takes ten minutes, and waits until its session has the message.
async fn begin_waiting(host: &Host, session: &str) -> Result<Stream> {
    host.create_session("slow", session).await?;
    let run = host.stream("slow", session, "wait", false).await?;
    while host.get(&session_path("slow", session)).await?.json(200)?.pointer("/events/0").is_none() {}
    Ok(run)
}

#[tokio::test]
async fn a_stop_waits_for_runs_as_long_as_the_changed_configuration_says() -> Result<()> {
    let folder = slow_folder("server: {drain_timeout: 1h}\n")?;
    let host = Host::serve(&folder).await?;
    let run = begin_waiting(&host, "a").await?;
    apply(&host, &folder, "server: {drain_timeout: 1ms}\n", &["server.drain_timeout"]).await?;
    assert_eq!(setting(&host, "server.drain_timeout").await?["value"], "1ms");
    host.signal("-TERM").await?;
    host.wait_for_log("the drain timeout has passed: cancelling runs and connections").await?;
    ensure!(host.wait_for_end().await?);
    drop(run);
    Ok(())
}

#[tokio::test]
async fn others_wait_for_a_host_that_has_died_as_long_as_the_changed_configuration_says() -> Result<()> {
    let folder = slow_folder("server: {turn_lease: 1min}\n")?;
    let host = Host::serve(&folder).await?;
    // The only host of a database does not wait for the leases of hosts that have died.
    let other = Host::serve(&folder).await?;
    let before = begin_waiting(&host, "before").await?;
    apply(&host, &folder, "server: {turn_lease: 100ms}\n", &["server.turn_lease"]).await?;
    let after = begin_waiting(&host, "after").await?;
    host.kill().await?;
    drop((before, after));
    let greet = async |session| other.post("/run", &message("slow", session, "Hi")).await?.json(200);
    tokio::select! {
        answer = greet("before") => anyhow::bail!("its turn was begun with a longer lease: {answer:?}"),
        answer = greet("after") => ensure!(answer?.to_string().contains("Hello")),
    }
    Ok(())
}

#[tokio::test]
async fn prices_of_models_change() -> Result<()> {
    let folder = folder("prices: {models: {a: {input: 1, output: 4}}}\n")?;
    let host = Host::serve(&folder).await?;
    let prices = async || anyhow::Ok(host.get("/config").await?.json(200)?["prices"].clone());
    assert_eq!(prices().await?, json!({"currency": "USD", "models": {"a": {"input": 1.0, "output": 4.0}}}));
    let config = "prices: {models: {a: {input: 2, cached_input: 0.5, output: 4}, b: {input: 3, output: 3}}}\n";
    apply(&host, &folder, config, &["prices"]).await?;
    let a = json!({"input": 2.0, "cachedInput": 0.5, "output": 4.0});
    assert_eq!(prices().await?["models"], json!({"a": a, "b": {"input": 3.0, "output": 3.0}}));
    folder.write_operator_config("prices: {models: {a: {input: -2, output: 4}}}\n")?;
    host.wait_for_log("prices.models.a.input: a price is a number of at least 0").await?;
    host.wait_for_log("; the previous settings remain in force").await?;
    assert_eq!(prices().await?["models"]["b"], json!({"input": 3.0, "output": 3.0}));
    apply(&host, &folder, "", &["prices"]).await?;
    assert_eq!(prices().await?["models"], json!({}));
    Ok(())
}
