//! Twelve hot paths of the host, for counting instructions: `hot_paths NAME COUNT` prepares a path and takes it COUNT
//! times. Without arguments it prints the names. `cargo xtask instructions` runs it with valgrind.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use axum::routing::{get, post};
use axum::{Json, Router};
use hatchery_a2a::{Aggregation, CardSource, ClientLimits, Egress, RemoteAgent, RemoteAgentConfig, Url};
use hatchery_core::{
    Agent, Content, Event, EventWindow, ItemResolver, JsonMap, MemoryService, ResponseGrouping, Services, SessionKey,
    SessionService, Tool,
};
use hatchery_engine::contents::PromptView;
use hatchery_engine::{AgentTool, App, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_stores::{MemorySessions, SqliteMemory, SqliteSessions};
use hatchery_test_services::serve_http;
use hatchery_test_support::{llm, llm_with, services, tool, typical_event};
use hatchery_wasm::{CatalogHandle, CodeCache, Engine, EngineOptions, LoadOptions};
use imbl::Vector;
use serde_json::{Value, json};

const USER: &str = "ada";

/// Earlier events or turns of a session that is called long.
const LONG: usize = 400;

const NAMES: [&str; 12] = [
    "event_to_json",
    "event_from_json",
    "prompt_update",
    "model_stream",
    "turn_new_session",
    "turn_with_tool",
    "turn_with_component",
    "turn_with_remote_agent",
    "turn_long_session",
    "turn_sqlite",
    "session_window_sqlite",
    "memory_search",
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        println!("{}", NAMES.join("\n"));
        return Ok(());
    };
    let count: usize = arguments.next().context("hot_paths NAME COUNT")?.parse()?;
    let folder = tempfile::tempdir()?;
    run(&name, count, folder.path()).await
}

async fn run(name: &str, count: usize, folder: &Path) -> anyhow::Result<()> {
    match name {
        "event_to_json" => (0..count).for_each(|number| drop(black_box(typical_event(number).json().clone()))),
        "event_from_json" => read_events(count)?,
        "prompt_update" => update_prompt(count),
        "model_stream" => read_streams(count).await,
        "turn_new_session" => Turns::new(services(), answering_agent()?).in_new_sessions(count).await?,
        "turn_with_tool" => Turns::new(services(), calling_agent()?).in_new_sessions(count).await?,
        "turn_with_component" => {
            let agent = calling_tool(component_tool(folder).await?, json!({"value": {"text": "Hello"}}));
            Turns::new(services(), agent).in_new_sessions(count).await?;
        }
        "turn_with_remote_agent" => {
            let agent = calling_tool(remote_agent().await?, json!({"request": "Hello"}));
            Turns::new(services(), agent).in_new_sessions(count).await?;
        }
        "turn_long_session" => Turns::new(services(), calling_agent()?).in_one_session(LONG + count).await?,
        "turn_sqlite" => {
            let sessions = Arc::new(SqliteSessions::open(folder.join("sessions.db")).await?);
            Turns::new(Services { sessions, ..services() }, calling_agent()?).in_one_session(count).await?;
        }
        "session_window_sqlite" => read_windows(count, folder).await?,
        "memory_search" => search_memory(count, folder).await?,
        other => bail!("`{other}` is none of {}", NAMES.join(", ")),
    }
    Ok(())
}

fn read_events(count: usize) -> anyhow::Result<()> {
    let json = typical_event(1).json().clone();
    for _ in 0..count {
        black_box(Event::from_json(json.clone())?);
    }
    Ok(())
}

/// Updates a prompt with one new event after the other.
fn update_prompt(count: usize) {
    let mut events: Vector<Arc<Event>> = (0..LONG).map(typical_event).collect();
    let mut view = PromptView::new("dice_agent".into(), None, ResponseGrouping::PerCall);
    view.read(&events);
    for number in 0..count {
        events.push_back(typical_event(number));
        view.read(&events);
        black_box(view.contents());
    }
}

/// Reads a response stream of ten chunks as each provider would.
async fn read_streams(count: usize) {
    let chunk = json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "You rolled a five. "}]}}]});
    let body = format!("data: {chunk}\r\n\r\n").repeat(10);
    for _ in 0..count {
        black_box(hatchery_models::fuzz::read_event_streams(body.as_bytes(), 1460).await);
    }
}

/// An app that answers at once.
fn answering_agent() -> anyhow::Result<Agent> {
    Ok(llm("adder", Scripted::new().default_reply(Reply::text("You are welcome."))))
}

/// An app that calls a tool and then answers.
fn calling_agent() -> anyhow::Result<Agent> {
    let model =
        Scripted::new().on_tool("add", "The sum is three.").default_reply(Reply::call("add", json!({"a": 1, "b": 2})));
    Ok(llm_with("adder", model, |agent| agent.tools = vec![tool("add", |_, _| Ok(json!(3)))]))
}

/// An app that calls this tool and then answers.
fn calling_tool(tool: Arc<dyn Tool>, args: Value) -> Agent {
    let name = tool.declaration().name.clone();
    let model = Scripted::new().on_tool(&name, "It said hello.").default_reply(Reply::call(&name, args));
    llm_with("adder", model, |agent| agent.tools = vec![tool])
}

/// Returns the tool of a built component. Its compiled code is kept for later runs.
async fn component_tool(folder: &Path) -> anyhow::Result<Arc<dyn Tool>> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(3).context("the program is not in the target folder")?;
    let component = target.join("wasm32-wasip2/guest/misbehaver.wasm");
    std::fs::copy(&component, folder.join("misbehaver.wasm"))
        .with_context(|| format!("{}: build it with `cargo xtask components`", component.display()))?;
    let engine = Engine::new(&EngineOptions { instances: 4, ..EngineOptions::default() })?;
    let cache = CodeCache::new(Some(target.join("tmp/hot-paths")));
    let catalog = CatalogHandle::open(folder, LoadOptions { cache, ..LoadOptions::new(engine) }).await?;
    Ok(catalog.current().tool("echo")?)
}

/// A policy that allows everything.
struct Anywhere;

impl Egress for Anywhere {
    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    fn check_address(&self, _: &Url, _: IpAddr) -> Result<(), String> {
        Ok(())
    }
}

/// Returns an A2A agent, which repeats its input, as a tool. Its server runs in this process.
async fn remote_agent() -> anyhow::Result<Arc<dyn Tool>> {
    // Clients need a provider of TLS, also without it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let answer = async |Json(call): Json<Value>| {
        let parts = call.pointer("/params/message/parts").cloned().unwrap_or_default();
        let message = json!({"messageId": "answer", "role": "ROLE_AGENT", "parts": parts});
        Json(json!({"jsonrpc": "2.0", "id": 1, "result": {"message": message}}))
    };
    let interface = json!({"url": "/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    let card = json!({"name": "echo", "supportedInterfaces": [interface]});
    let routes = Router::new().route("/card", get(|| async move { Json(card) })).route("/a2a", post(answer));
    let agent = RemoteAgent::new(RemoteAgentConfig {
        card: CardSource::Url(format!("{}/card", serve_http(routes).await)),
        headers: BTreeMap::new(),
        egress: Arc::new(Anywhere),
        aggregation: Aggregation::default(),
        limits: ClientLimits::default(),
    });
    Ok(Arc::new(AgentTool::new(agent.agent("echo", "Repeats a text."))?))
}

struct Turns {
    runner: Runner,
    app: Arc<App>,
}

impl Turns {
    fn new(services: Services, root: Agent) -> Self {
        let app = App::new("adder", root).unwrap_or_else(|error| unreachable!("a valid agent: {error}"));
        Self { runner: Runner::new(services), app: Arc::new(app) }
    }

    async fn in_new_sessions(&self, count: usize) -> anyhow::Result<()> {
        for number in 0..count {
            self.run(&self.create(&number.to_string()).await?).await?;
        }
        Ok(())
    }

    async fn in_one_session(&self, count: usize) -> anyhow::Result<()> {
        let session = self.create("only").await?;
        for _ in 0..count {
            self.run(&session).await?;
        }
        Ok(())
    }

    async fn create(&self, id: &str) -> anyhow::Result<SessionKey> {
        let sessions = &self.runner.services().sessions;
        Ok(sessions.create("adder", USER, Some(id), JsonMap::new()).await?.key)
    }

    async fn run(&self, session: &SessionKey) -> anyhow::Result<()> {
        let request = RunRequest::new(USER, &*session.id, Content::user("What is one and two?"));
        black_box(self.runner.run(self.app.clone(), request).await?.collect().await?);
        Ok(())
    }
}

/// Reads the newest events of a long session.
async fn read_windows(count: usize, folder: &Path) -> anyhow::Result<()> {
    let sessions = SqliteSessions::open(folder.join("sessions.db")).await?;
    let key = sessions.create("app", USER, None, JsonMap::new()).await?.key;
    for number in 0..LONG {
        sessions.append(&key, &typical_event(number)).await?;
    }
    for _ in 0..count {
        black_box(sessions.get(&key, EventWindow::Recent(20)).await?);
    }
    Ok(())
}

async fn search_memory(count: usize, folder: &Path) -> anyhow::Result<()> {
    let memory = SqliteMemory::open(folder.join("memory.db")).await?;
    let session = MemorySessions::new().create("app", USER, None, JsonMap::new()).await?.key;
    let events: Vec<_> = (0..LONG).map(typical_event).collect();
    memory.add_events(&session, &events).await?;
    for _ in 0..count {
        black_box(memory.search("app", USER, "which dice were asked for").await?);
    }
    Ok(())
}
