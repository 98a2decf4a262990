//! `docs/agents.md`: its YAML is one served folder, its Rust one component, and its JSON is what a client sees and sends.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use hatchery_tests::host::{USER, message};
use hatchery_tests::{Conversation, Folder, Host, blocks, event, paths};
use serde_json::{Value, json};

use crate::cli::hatchery;

fn guide() -> Result<String> {
    let path = paths::repository().join("docs/agents.md");
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The folder that the guide describes.
fn folder() -> Result<Folder> {
    let (guide, folder) = (guide()?, Folder::empty()?);
    for block in blocks::of(&guide).filter(|block| block.info.starts_with("yaml")) {
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

/// The JSON that the guide calls by this name.
fn json_block(name: &str) -> Result<Value> {
    let guide = guide()?;
    let block = blocks::of(&guide).find(|block| block.info.strip_prefix("json ") == Some(name));
    let block = block.with_context(|| format!("docs/agents.md has no block `json {name}`"))?;
    serde_json::from_str(block.text).with_context(|| format!("docs/agents.md:{}", block.line))
}

/// True when a value is as the guide shows it, where `…` stands for any text and what is left out may be there.
fn is_as_shown(value: &Value, shown: &Value) -> bool {
    match (value, shown) {
        (Value::String(_), Value::String(any)) if any == "…" => true,
        (Value::Object(value), Value::Object(shown)) => {
            shown.iter().all(|(key, shown)| value.get(key).is_some_and(|value| is_as_shown(value, shown)))
        }
        (Value::Array(value), Value::Array(shown)) => {
            value.len() == shown.len() && value.iter().zip(shown).all(|(value, shown)| is_as_shown(value, shown))
        }
        (value, shown) => value == shown,
    }
}

/// A body that the guide shows, for this user and session, with an id in the place that the guide leaves open.
fn filled(shown: Value, session: &str, id: &Value) -> Value {
    match shown {
        Value::String(any) if any == "…" => id.clone(),
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| {
                let value = match key.as_str() {
                    "userId" => json!(USER),
                    "sessionId" => json!(session),
                    _ => filled(value, session, id),
                };
                (key, value)
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(|item| filled(item, session, id)).collect(),
        other => other,
    }
}

/// The one of these events that the guide shows under this name, and the id of its call.
fn shown<'a>(events: &'a [Value], name: &str) -> Result<&'a Value> {
    let shown = json_block(name)?;
    let Some(event) = events.iter().find(|event| is_as_shown(event, &shown)) else {
        bail!("no event is as `json {name}` shows it: {events:#?}");
    };
    event.pointer("/content/parts/0/functionCall/id").context("a call has an id")
}

/// What comes back for a body of the guide.
async fn send(host: &Host, name: &str, session: &str, id: &Value) -> Result<Vec<Value>> {
    let body = filled(json_block(name)?, session, id);
    Ok(serde_json::from_value(host.post("/run", &body).await?.json(200)?)?)
}

#[tokio::test]
async fn every_conversation_of_the_guide_goes_as_it_says() -> Result<()> {
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
async fn a_declared_confirmation_is_asked_and_answered_as_the_guide_shows() -> Result<()> {
    let host = Host::serve(&folder()?).await?;
    let events = host.ask("payments", "s", "Send 50 euros").await?;
    let id = shown(&events, "asked")?;
    let events = send(&host, "agreed", "s", id).await?;
    assert_eq!(event::texts(&events), ["Sent 50 euros."]);
    Ok(())
}

#[tokio::test]
async fn a_tool_that_asks_gets_what_the_person_gave_as_the_guide_shows() -> Result<()> {
    let host = Host::serve(&folder()?).await?;
    let events = host.ask("holidays", "s", "I need 3 days off").await?;
    let id = shown(&events, "days-asked")?;
    let events = send(&host, "days-given", "s", id).await?;
    assert_eq!(event::texts(&events), ["You have 2 days off."]);
    Ok(())
}

#[tokio::test]
async fn a_run_that_waits_goes_on_with_the_result_as_the_guide_shows() -> Result<()> {
    let host = Host::serve(&folder()?).await?;
    let events = host.ask("orders", "s", "Order a kite").await?;
    let id = shown(&events, "waiting")?;
    let events = send(&host, "delivered", "s", id).await?;
    assert_eq!(event::texts(&events), ["It is delivered."]);
    Ok(())
}

#[tokio::test]
async fn a_run_goes_on_by_its_id_as_the_guide_shows() -> Result<()> {
    let host = Host::serve(&folder()?).await?;
    host.create_session("namer", "s").await?;
    let events = host.post("/run", &message("namer", "s", "A name, please")).await?.json(200)?;
    let events = send(&host, "resume", "s", &events[0]["invocationId"]).await?;
    assert_eq!(events, Vec::<Value>::new(), "it has ended: there is nothing more to do");
    Ok(())
}
