//! CPU scheduling of components that compute without end, and a host without free instances.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hatchery_tests::event::{text_at, tool_response};
use hatchery_tests::host::message;
use hatchery_tests::{Folder, Host, paths};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const SPINNING: usize = 200;

/// Longer than any test takes.
const FOREVER: Duration = Duration::from_secs(3600);

const LONG_LIMITS: &str = "limits: {cpu: 10min, agent_wall: 10min}\n";

async fn host(config: &str) -> Result<Host> {
    let folder = Folder::empty()?;
    folder.put("misbehaver.wasm", paths::component("misbehaver")?)?;
    folder.write("hatchery.yaml", config)?;
    folder.write("caller/answers.yaml", ANSWERS)?;
    folder.write("caller/root_agent.yaml", CALLER)?;
    Host::serve(&folder).await
}

const CALLER: &str =
    "name: caller\nmodel: scripted:caller/answers.yaml\ninstruction: Call.\ntools:\n  - name: misbehaver/echo\n";

const ANSWERS: &str = "turns:\n  - when: {tool: echo}\n    reply: \"it answered: {tool}\"\n  - reply: [{call: {name: echo, args: {value: 1}}}]\n";

/// Returns the number of running calls of the component.
fn running_calls(components: &Value) -> Option<u64> {
    components.pointer("/components/0/calls")?.as_u64()
}

/// Starts runs that spin until their clients disconnect, and waits until all of them run.
async fn spin(host: &Host, runs: usize) -> Result<JoinSet<()>> {
    let sessions: Vec<_> = (0..runs).map(|run| format!("spin-{run}")).collect();
    for session in &sessions {
        host.create_session("spinning_agent", session).await?;
    }
    let mut clients = JoinSet::new();
    for session in &sessions {
        let mut body = message("spinning_agent", session, "go");
        body.as_object_mut().context("an object")?.insert("cancelOnDisconnect".into(), json!(true));
        let request = host.request(Method::POST, "/run_sse").timeout(FOREVER).json(&body);
        clients.spawn(async move {
            // It is aborted, or its stream ends with the host.
            if let Ok(response) = request.send().await {
                let _ = response.bytes().await;
            }
        });
    }
    host.wait_until("all of them run", |components| running_calls(components) == Some(runs as u64)).await?;
    Ok(clients)
}

#[tokio::test]
async fn two_hundred_spinning_runs_delay_no_answer_and_end_with_their_clients() -> Result<()> {
    let host = host(LONG_LIMITS).await?;
    let mut clients = spin(&host, SPINNING).await?;
    for _ in 0..5 {
        assert_eq!(host.get("/health").await?.json(200)?, json!({"status": "ok"}));
    }
    assert_eq!(running_calls(&host.components().await?), Some(SPINNING as u64), "they still spin");
    let answered = host.ask("caller", "meanwhile", "go").await?;
    assert_eq!(*tool_response(&answered, "echo")?, json!({"value": 1}), "other runs go on");
    clients.shutdown().await;
    host.wait_until("all have ended", |components| running_calls(components) == Some(0)).await?;
    Ok(())
}

#[tokio::test]
async fn a_run_without_a_free_instance_gets_a_retry_time() -> Result<()> {
    let host = host(&format!("{LONG_LIMITS}instances: {{max: 1, queue_timeout: 50ms}}\n")).await?;
    let mut clients = spin(&host, 1).await?;
    let busy = "component `misbehaver`: no free instance after 50ms: all 1 are in use; try again later";

    host.create_session("failing_agent", "s").await?;
    let answer = host.post("/run", &message("failing_agent", "s", "go")).await?;
    assert_eq!(answer.error(503, "COMPONENT_BUSY")?, busy);
    assert_eq!(answer.headers.get("retry-after").context("when to try again")?, "1");

    // A stream has begun before anything is known.
    let events = host.stream("failing_agent", "s", "go", false).await?.collect().await?;
    let last = events.last().context("an event")?;
    assert_eq!((text_at(last, "/code"), text_at(last, "/error")), ("COMPONENT_BUSY", busy));

    // The error is sent to the model, which may answer without the tool.
    let events = host.ask("caller", "s", "go").await?;
    let error = text_at(tool_response(&events, "echo")?, "/error").to_owned();
    ensure!(error.contains("no free instance after 50ms: all 1 are in use; try again later"), "{error}");

    clients.shutdown().await;
    host.wait_until("it has ended", |components| running_calls(components) == Some(0)).await?;
    let events = host.ask("caller", "t", "go").await?;
    assert_eq!(*tool_response(&events, "echo")?, json!({"value": 1}));
    Ok(())
}
