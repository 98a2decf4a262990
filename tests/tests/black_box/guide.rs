//! `docs/agents.md`: its YAML becomes a served folder, its Rust a component, and its JSON is compared with requests and
//! events.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use hatchery_tests::host::{USER, message};
use hatchery_tests::{Conversation, Folder, Host, code_blocks, event, paths};
use serde_json::{Value, json};

use crate::cli::hatchery;

fn read_guide() -> Result<String> {
    let path = paths::repository().join("docs/agents.md");
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Creates the folder that the guide describes.
fn folder() -> Result<Folder> {
    let (guide, folder) = (read_guide()?, Folder::empty()?);
    for block in code_blocks::parse(&guide).filter(|block| block.info.starts_with("yaml")) {
        let path = block.text.lines().next().and_then(|line| line.strip_prefix("# "));
        let path = path.filter(|path| path.ends_with(".yaml"));
        let path =
            path.with_context(|| format!("docs/agents.md:{}: the first line is no `# path.yaml`", block.line))?;
        ensure!(!folder.file(path).exists(), "docs/agents.md:{}: {path} is there already", block.line);
        folder.write(path, block.text)?;
    }
    folder.put("guide.wasm", paths::component("guide")?)?;
    Ok(folder)
}

/// Returns the JSON block with this name.
fn json_block(name: &str) -> Result<Value> {
    let guide = read_guide()?;
    let block = code_blocks::parse(&guide).find(|block| block.info.strip_prefix("json ") == Some(name));
    let block = block.with_context(|| format!("docs/agents.md has no block `json {name}`"))?;
    serde_json::from_str(block.text).with_context(|| format!("docs/agents.md:{}", block.line))
}

/// Returns true if a value matches the JSON of the guide, in which `…` matches any text. Further keys are allowed.
fn matches(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        (Value::String(_), Value::String(any)) if any == "…" => true,
        (Value::Object(value), Value::Object(expected)) => {
            expected.iter().all(|(key, expected)| value.get(key).is_some_and(|value| matches(value, expected)))
        }
        (Value::Array(value), Value::Array(expected)) => {
            value.len() == expected.len()
                && value.iter().zip(expected).all(|(value, expected)| matches(value, expected))
        }
        (value, expected) => value == expected,
    }
}

/// Fills the user, the session and an id into a request body of the guide.
fn fill(body: Value, session: &str, id: &Value) -> Value {
    match body {
        Value::String(any) if any == "…" => id.clone(),
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| {
                let value = match key.as_str() {
                    "userId" => json!(USER),
                    "sessionId" => json!(session),
                    _ => fill(value, session, id),
                };
                (key, value)
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(|item| fill(item, session, id)).collect(),
        other => other,
    }
}

/// Returns the event that matches a JSON block of the guide.
fn find_event<'a>(events: &'a [Value], name: &str) -> Result<&'a Value> {
    let expected = json_block(name)?;
    let Some(event) = events.iter().find(|event| matches(event, &expected)) else {
        bail!("no event is as `json {name}` shows it: {events:#?}");
    };
    event.pointer("/content/parts/0/functionCall/id").context("a call has an id")
}

/// Sends a request body of the guide, and returns the events.
async fn send(host: &Host, name: &str, session: &str, id: &Value) -> Result<Vec<Value>> {
    let body = fill(json_block(name)?, session, id);
    Ok(serde_json::from_value(host.post("/run", &body).await?.json(200)?)?)
}

#[tokio::test]
async fn every_conversation_of_the_guide_passes() -> Result<()> {
    let folder = folder()?;
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    assert!(output.success, "{}{}", output.stdout, output.stderr);
    let conversations = Conversation::find(&folder.served())?.len();
    assert!(output.stdout.ends_with(&format!("\n{conversations} passed, 0 failed\n")), "{}", output.stdout);
    Ok(())
}

#[tokio::test]
async fn every_agent_of_the_guide_has_a_conversation() -> Result<()> {
    let folder = folder()?;
    let host = Host::serve(&folder).await?;
    let conversations = Conversation::find(&folder.served())?;
    let talked_to: BTreeSet<_> = conversations.into_iter().map(|(_, conversation)| conversation.app).collect();
    assert_eq!(host.apps().await?.into_iter().collect::<BTreeSet<_>>(), talked_to);
    for entry in std::fs::read_dir(folder.served())? {
        let entry = entry?;
        let served = talked_to.contains(&*entry.file_name().to_string_lossy());
        ensure!(served || !entry.path().join("root_agent.yaml").exists(), "{} is refused", entry.path().display());
    }
    Ok(())
}

#[tokio::test]
async fn a_declared_confirmation_is_requested_and_answered_as_the_guide_shows() -> Result<()> {
    let host = Host::serve(&folder()?).await?;
    let events = host.ask("payments", "s", "Send 50 euros").await?;
    let id = find_event(&events, "asked")?;
    let events = send(&host, "agreed", "s", id).await?;
    assert_eq!(event::texts(&events), ["Sent 50 euros."]);
    Ok(())
}

#[tokio::test]
async fn a_tool_receives_the_payload_of_a_confirmation_as_the_guide_shows() -> Result<()> {
    let host = Host::serve(&folder()?).await?;
    let events = host.ask("holidays", "s", "I need 3 days off").await?;
    let id = find_event(&events, "days-asked")?;
    let events = send(&host, "days-given", "s", id).await?;
    assert_eq!(event::texts(&events), ["You have 2 days off."]);
    Ok(())
}

#[tokio::test]
async fn a_paused_run_continues_with_the_result_as_the_guide_shows() -> Result<()> {
    let host = Host::serve(&folder()?).await?;
    let events = host.ask("orders", "s", "Order a kite").await?;
    let id = find_event(&events, "waiting")?;
    let events = send(&host, "delivered", "s", id).await?;
    assert_eq!(event::texts(&events), ["It is delivered."]);
    Ok(())
}

#[tokio::test]
async fn a_run_is_resumed_by_its_id_as_the_guide_shows() -> Result<()> {
    let host = Host::serve(&folder()?).await?;
    host.create_session("namer", "s").await?;
    let events = host.post("/run", &message("namer", "s", "A name, please")).await?.json(200)?;
    let events = send(&host, "resume", "s", &events[0]["invocationId"]).await?;
    assert_eq!(events, Vec::<Value>::new(), "it has ended: there is nothing more to do");
    Ok(())
}
