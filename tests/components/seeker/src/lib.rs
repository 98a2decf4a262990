//! Tools that use every import that needs a grant, and return the result; and one that reports progress.

mod surroundings;

use hatchery_guest::prelude::*;
use surroundings::{environment, files, time_and_chance};

/// One name.
#[derive(Deserialize, JsonSchema)]
struct Name {
    /// The name.
    name: String,
}

/// Asks a model.
#[tool]
async fn ask(model: Name, cx: ToolContext) -> Result<String, Error> {
    Ok(cx.generate(LlmRequest::new(model.name, "Hello?")).await?.text_content())
}

/// Searches memory.
#[tool]
async fn remember(query: Name, cx: ToolContext) -> Result<usize, Error> {
    Ok(cx.memory().search(query.name).await?.len())
}

/// Performs an operation on the artifact `chart`.
#[tool]
async fn artifacts(what: Name, cx: ToolContext) -> Result<Value, Error> {
    let artifacts = cx.artifacts();
    Ok(match what.name.as_str() {
        "save" => json!(artifacts.save("chart", Part::text("a text")).await?),
        "save_with" => json!(artifacts.save_with("chart", Part::text("a text"), json!({"author": "ada"})).await?),
        "save_with_list" => json!(artifacts.save_with("chart", Part::text("a text"), ["ada"]).await?),
        "save_with_much" => {
            let much = json!({ "a": "x".repeat(70_000) });
            json!(artifacts.save_with("chart", Part::text("a text"), much).await?)
        }
        "version" => json!(artifacts.version("chart", None).await?.map(|version| version.version)),
        "load" => json!(artifacts.load("chart").await?.is_some()),
        "versions" => json!(artifacts.versions("chart").await?),
        "delete" => json!(artifacts.delete("chart").await?),
        _ => json!(artifacts.list().await?),
    })
}

/// A state key.
#[derive(Deserialize, JsonSchema)]
struct Key {
    /// The key.
    key: String,
    /// The new value; absent to read the key.
    value: Option<String>,
    /// The number of repetitions.
    #[serde(default)]
    more: u32,
}

/// Sets a state key, or returns its value.
#[tool]
async fn state(key: Key, cx: ToolContext) -> Result<Option<Value>, Error> {
    for _ in 0..key.more {
        // Repeated after a denial, too.
        let _ = cx.state::<Value>(&key.key);
    }
    match key.value {
        Some(value) => cx.set_state(&key.key, value).map(|()| None),
        None => cx.state(&key.key),
    }
}

/// Returns all state.
#[tool]
async fn all_state(cx: ToolContext) -> Result<Value, Error> {
    Ok(Value::Object(cx.all_state()?))
}

/// Calls another tool.
#[tool]
async fn call(tool: Name, cx: ToolContext) -> Result<Value, ToolError> {
    cx.call_tool(&tool.name, &json!({})).await
}

/// Returns nothing, to be called by `call`.
#[tool]
async fn own() -> &'static str {
    "own"
}

/// Yields an event that sets the key in the user's message.
#[agent]
async fn setter(cx: AgentContext) -> Result<(), Error> {
    let key = cx.user_content()?.text();
    cx.emit(Event::text("set").with_state(key, 1)).await
}

/// The height of a mountain.
#[derive(Deserialize, JsonSchema)]
struct Mountain {
    /// In metres.
    metres: u32,
}

/// Reports progress for each metre, and returns the metadata of the run.
#[tool]
async fn climb(mountain: Mountain, cx: ToolContext) -> Result<Value, Error> {
    for metre in 1..=mountain.metres {
        cx.report_progress(f64::from(metre), f64::from(mountain.metres), format!("{metre} m"))?;
    }
    Ok(Value::Object(cx.run_metadata()?))
}

/// Relays `setter`, and emits the keys that the visible events set.
#[agent(sub_agents = [setter])]
async fn watcher(cx: AgentContext) -> Result<(), Error> {
    let mut seen = Vec::new();
    let mut events = cx.sub_agent("setter").await?;
    while let Some(event) = events.next().await? {
        seen.extend(event.actions.state_delta.keys().cloned());
        cx.relay(event).await?;
    }
    for event in cx.events(0, 100)? {
        seen.extend(event.actions.state_delta.keys().cloned());
    }
    cx.say(format!("seen: {}", seen.join(", "))).await
}

/// Sets a key of the user with every event that it sees.
struct Meddler;

#[plugin]
impl Meddler {
    async fn on_event(mut event: Event) -> Result<Option<Event>, Error> {
        event.actions.state_delta.insert("user:meddled".into(), json!(true));
        Ok(Some(event))
    }
}

hatchery_guest::requests! {
    models: ["seek-*"] because "it asks around",
    memory: read,
    state: { read: ["app:theme"] },
    files: [{ guest: "/data", access: read }],
}

hatchery_guest::export! {
    agents: [watcher],
    tools: [ask, remember, artifacts, state, all_state, call, own, climb, environment, files, time_and_chance],
    plugins: [Meddler],
}
