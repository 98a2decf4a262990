//! Helpers of the tests: an app on in-memory services, agents with scripted models, and tools from closures.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentKind, CallContext, Content, Event, EventWindow, FunctionDeclaration, Instruction, JsonMap, LlmAgent,
    ModelRef, RunConfig, RunError, Services, Session, SessionKey, StreamingMode, Tool, ToolError,
};
use hatchery_engine::{App, Run, RunRequest, Runner};
use hatchery_models::ModelProviders;
use hatchery_models::scripted::Scripted;
use hatchery_stores::{KeywordMemory, MemoryArtifacts, MemorySessions};
use serde_json::{Value, json};

pub const USER: &str = "ada";
pub const SESSION: &str = "s1";

/// An app with one session.
pub struct Harness {
    pub runner: Runner,
    pub app: Arc<App>,
    pub config: RunConfig,
}

impl Harness {
    pub async fn new(root: Agent) -> Self {
        Self::with_state(root, json!({})).await
    }

    pub async fn with_state(root: Agent, state: Value) -> Self {
        let services = Services {
            sessions: Arc::new(MemorySessions::new()),
            artifacts: Arc::new(MemoryArtifacts::new()),
            memory: Arc::new(KeywordMemory::new()),
            models: Arc::new(ModelProviders::new()),
        };
        let app = Arc::new(App::new("app", root).unwrap());
        services.sessions.create("app", USER, Some(SESSION), map(state)).await.unwrap();
        Self { runner: Runner::new(services), app, config: RunConfig::default() }
    }

    pub fn streaming(mut self) -> Self {
        self.config.streaming_mode = StreamingMode::On;
        self
    }

    pub fn request(&self, message: Content) -> RunRequest {
        RunRequest { config: self.config.clone(), ..RunRequest::new(USER, SESSION, message) }
    }

    /// Starts a run and returns its events.
    pub async fn run(&self, text: &str) -> Vec<Arc<Event>> {
        self.start(text).await.collect().await.unwrap()
    }

    /// Starts a run and returns its events in short form.
    pub async fn transcript(&self, text: &str) -> Vec<String> {
        self.run(text).await.iter().map(|event| brief(event)).collect()
    }

    /// Starts a run that fails. Returns the events before the error in short form, and the error.
    pub async fn expect_error(&self, text: &str) -> (Vec<String>, RunError) {
        let mut run = self.start(text).await;
        let mut events = Vec::new();
        while let Some(item) = run.next().await {
            match item {
                Ok(event) => events.push(brief(&event)),
                Err(error) => return (events, error),
            }
        }
        panic!("the run did not fail: {events:?}");
    }

    pub async fn session(&self) -> Session {
        let key = SessionKey::new("app", USER, SESSION);
        self.runner.services().sessions.get(&key, EventWindow::All).await.unwrap().unwrap()
    }

    pub async fn state(&self) -> Value {
        serde_json::to_value(&self.session().await.state).unwrap()
    }

    async fn start(&self, text: &str) -> Run {
        self.runner.run(self.app.clone(), self.request(Content::user(text))).await.unwrap()
    }
}

pub fn map(value: Value) -> JsonMap {
    value.as_object().unwrap().clone()
}

/// Formats an event: `author: text`, `author: call name{args}`, `author: answer name{response}`; `~` marks partial
/// events.
pub fn brief(event: &Event) -> String {
    let content = event.content.as_deref().cloned().unwrap_or_default();
    let text = Some(content.text()).filter(|text| !text.is_empty());
    let calls = content.function_calls().map(|call| format!("call {}{}", call.name, Value::Object(call.args.clone())));
    let responses = content
        .function_responses()
        .map(|response| format!("answer {}{}", response.name, Value::Object(response.response.clone())));
    let error = event
        .error_code
        .as_ref()
        .map(|code| format!("error {code}: {}", event.error_message.as_deref().unwrap_or_default()));
    let parts: Vec<_> = text.into_iter().chain(calls).chain(responses).chain(error).collect();
    let partial = if event.partial { "~" } else { "" };
    format!("{}{partial}: {}", event.author, parts.join("; "))
}

/// An LLM agent with its own model.
pub fn llm(name: &str, model: Scripted) -> Agent {
    llm_with(name, model, |_| {})
}

pub fn llm_with(name: &str, model: Scripted, change: impl FnOnce(&mut LlmAgent)) -> Agent {
    let mut agent = LlmAgent {
        model: Some(ModelRef::Object("scripted".into(), Arc::new(model))),
        instruction: Instruction::Template("Be brief.".into()),
        ..LlmAgent::default()
    };
    change(&mut agent);
    Agent::new(name, format!("Does {name}."), AgentKind::Llm(Box::new(agent)))
}

pub fn workflow(name: &str, kind: AgentKind, sub_agents: Vec<Agent>) -> Agent {
    Agent::new(name, "", kind).with_sub_agents(sub_agents)
}

type ToolBody = dyn Fn(JsonMap, &CallContext) -> Result<Value, ToolError> + Send + Sync;

/// A tool from a closure.
struct FnTool {
    declaration: Arc<FunctionDeclaration>,
    is_long_running: bool,
    body: Box<ToolBody>,
}

pub fn tool(
    name: &str,
    body: impl Fn(JsonMap, &CallContext) -> Result<Value, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    Arc::new(FnTool { declaration: declaration(name), is_long_running: false, body: Box::new(body) })
}

pub fn long_running(
    name: &str,
    body: impl Fn(JsonMap, &CallContext) -> Result<Value, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    Arc::new(FnTool { declaration: declaration(name), is_long_running: true, body: Box::new(body) })
}

pub fn declaration(name: &str) -> Arc<FunctionDeclaration> {
    Arc::new(FunctionDeclaration { name: name.into(), ..FunctionDeclaration::default() })
}

#[async_trait]
impl Tool for FnTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn is_long_running(&self) -> bool {
        self.is_long_running
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        (self.body)(args, cx)
    }
}
