//! Traces of runs: the routes of ADK's clients.

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::message;
use hatchery_tests::{Folder, Host};
use serde_json::{Value, json};

/// The spans of a session.
pub struct Trace(pub Vec<Value>);

impl Trace {
    pub async fn read(host: &Host, app: &str, session: &str) -> Result<Self> {
        let spans = host.get(&format!("/dev/apps/{app}/debug/trace/session/{session}")).await?.json(200)?;
        Ok(Self(spans.as_array().context("an array of spans")?.clone()))
    }

    /// Returns the first span of this name.
    pub fn span(&self, name: &str) -> Result<&Value> {
        self.0.iter().find(|span| span["name"] == name).with_context(|| format!("{name} in {:?}", self.0))
    }

    /// Returns the names of the spans around one, innermost first.
    pub fn around<'a>(&'a self, span: &'a Value) -> Vec<&'a str> {
        let parent = |span: &&'a Value| self.0.iter().find(|it| it["span_id"] == span["parent_span_id"]);
        std::iter::successors(parent(&span), parent).filter_map(|span| span["name"].as_str()).collect()
    }
}

#[tokio::test]
async fn the_trace_of_a_run_reaches_into_the_component() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    host.create_session("dice", "s1").await?;
    let events = host.run("dice", "s1", "Roll a die with 20 sides").await?;
    let trace = Trace::read(&host, "dice", "s1").await?;
    let (tool, run) = (trace.span("execute_tool roll_die")?, trace.span("invocation")?);
    let inside = |span: &&Value| span["name"] == "call_guest dice" && span["parent_span_id"] == tool["span_id"];
    let guest = trace.0.iter().find(inside).with_context(|| format!("a guest in {:?}", trace.0))?;
    assert_eq!(trace.around(guest), ["execute_tool roll_die", "invoke_agent dice", "invocation"]);
    assert_eq!(guest["attributes"]["hatchery.component"], "dice");
    assert!(guest["attributes"]["hatchery.guest.cpu_ns"].as_u64() > Some(0), "{guest}");
    assert!(trace.0.iter().all(|span| span["trace_id"] == run["trace_id"]));
    let time = |kind: &str| run["attributes"][format!("hatchery.time.{kind}_ns")].as_u64();
    for kind in ["queue", "model", "tool", "guest", "guest_cpu", "store"] {
        ensure!(time(kind) > Some(0), "{kind} in {run}");
    }
    assert!(time("guest_cpu") <= time("guest"), "{run}");
    // A real client rejects the whole answer if a value is null, or if these are missing.
    assert!(
        trace.0.iter().all(|span| !span["attributes"].as_object().is_none_or(|map| map.values().any(Value::is_null)))
    );
    for span in &trace.0 {
        let attributes = &span["attributes"];
        match attributes["gen_ai.operation.name"].as_str() {
            Some("invoke_agent") => assert!(attributes["gen_ai.conversation.id"].is_string(), "{span}"),
            Some("generate_content") => {
                let keys = ["gcp.vertex.agent.event_id", "gcp.vertex.agent.invocation_id"];
                assert!(keys.iter().all(|key| attributes[key].is_string()), "{span}");
            }
            _ => {}
        }
    }
    let last = events.last().context("events")?;
    let attributes = host.get(&format!("/debug/trace/{}", last["id"].as_str().context("an id")?)).await?.json(200)?;
    let json =
        |key: &str| -> Result<Value> { Ok(serde_json::from_str(attributes[key].as_str().context("a string")?)?) };
    let response = json("gcp.vertex.agent.llm_response")?;
    assert_eq!(response["content"], last["content"]);
    assert_eq!(json("gcp.vertex.agent.llm_request")?["contents"][0]["parts"][0]["text"], "Roll a die with 20 sides");
    Ok(())
}

#[tokio::test]
async fn what_a_component_logs_is_on_the_span_of_its_call() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    host.ask("greeter", "s1", "Hello").await?;
    let trace = Trace::read(&host, "greeter", "s1").await?;
    let logs: Vec<_> = trace.0.iter().filter(|span| span.get("logs").is_some()).collect();
    let [guest] = logs.as_slice() else { anyhow::bail!("one span with logs: {:?}", trace.0) };
    assert_eq!(guest["name"], "call_guest greeter");
    let [line] = guest["logs"].as_array().context("lines")?.as_slice() else { anyhow::bail!("one line: {guest}") };
    assert_eq!((&line["level"], &line["text"]), (&json!("info"), &json!("greeted visits=1")));
    // ADK's web client rejects all spans if one has a log of another name.
    assert_eq!(line["event_name"], "gen_ai.client.inference.operation.details");
    ensure!((guest["start_time"].as_u64()..=guest["end_time"].as_u64()).contains(&line["time"].as_u64()), "{guest}");
    Ok(())
}

#[tokio::test]
async fn a_run_continues_the_trace_of_the_request() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    host.create_session("dice", "s1").await?;
    let request = host.request(reqwest::Method::POST, "/run").json(&message("dice", "s1", "Roll a die with 20 sides"));
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    host.send(request.header("traceparent", header)).await?.json(200)?;
    let trace = Trace::read(&host, "dice", "s1").await?;
    let run = trace.span("invocation")?;
    assert_eq!(run["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(run.get("parent_span_id"), None, "it is the root of what clients show");
    Ok(())
}

#[tokio::test]
async fn no_spans_are_kept_if_the_developer_ui_only_reads() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder.write_operator_config("server: {dev_ui: read}\n")?;
    let host = Host::serve(&folder).await?;
    host.create_session("dice", "s1").await?;
    host.run("dice", "s1", "Roll a die with 20 sides").await?;
    assert_eq!(host.get("/debug/trace/session/s1").await?.json(200)?, json!([]));
    Ok(())
}
