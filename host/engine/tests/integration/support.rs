//! Shared by the engine's tests: an app on in-memory services, and a short form of events.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentKind, CallContext, Callback, Content, Event, EventWindow, FunctionDeclaration, FunctionResponse,
    Instruction, JsonMap, LlmAgent, LlmRequest, LlmResponse, ModelRef, PartData, RunConfig, RunError, Services,
    Session, SessionKey, StreamingMode, Tool, ToolError,
};
use hatchery_engine::{App, AppSettings, Run, RunRequest, Runner};
use hatchery_models::ModelProviders;
use hatchery_models::scripted::Scripted;
use hatchery_stores::{KeywordMemory, MemoryArtifacts, MemorySessions};
use serde_json::{Value, json};

pub const USER: &str = "ada";
pub const SESSION: &str = "s1";

/// An app with one session on in-memory services.
pub struct Harness {
    pub runner: Runner,
    pub app: Arc<App>,
    pub config: RunConfig,
}

pub fn services() -> Services {
    Services {
        sessions: Arc::new(MemorySessions::new()),
        artifacts: Arc::new(MemoryArtifacts::new()),
        memory: Arc::new(KeywordMemory::new()),
        models: Arc::new(ModelProviders::new()),
    }
}

impl Harness {
    pub async fn new(root: Agent) -> Self {
        Self::with_state(root, json!({})).await
    }

    pub async fn with_state(root: Agent, state: Value) -> Self {
        let app = Arc::new(App::new("app", root).unwrap());
        let runner = Runner::new(services());
        runner.services().sessions.create("app", USER, Some(SESSION), map(state)).await.unwrap();
        Self { runner, app, config: RunConfig::default() }
    }

    pub fn streaming(mut self) -> Self {
        self.config.streaming_mode = StreamingMode::On;
        self
    }

    /// Makes later runs resumable.
    pub fn resumable(&mut self) {
        let app = App::clone(&self.app);
        self.app = Arc::new(app.with_settings(AppSettings { resumable: true, ..AppSettings::default() }));
    }

    pub fn request(&self, message: Content) -> RunRequest {
        RunRequest { config: self.config.clone(), ..RunRequest::new(USER, SESSION, message) }
    }

    pub async fn start(&self, text: &str) -> Run {
        self.runner.run(self.app.clone(), self.request(Content::user(text))).await.unwrap()
    }

    /// Runs a turn with this message, and returns its events.
    pub async fn send(&self, message: Content) -> Vec<Arc<Event>> {
        self.runner.run(self.app.clone(), self.request(message)).await.unwrap().collect().await.unwrap()
    }

    /// Runs a turn with this text, and returns its events.
    pub async fn run(&self, text: &str) -> Vec<Arc<Event>> {
        self.start(text).await.collect().await.unwrap()
    }

    /// Runs a turn with this text, and returns its events in short form.
    pub async fn transcript(&self, text: &str) -> Vec<String> {
        self.run(text).await.iter().map(|event| brief(event)).collect()
    }

    /// Runs a turn that fails, and returns its events in short form and its error.
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
}

pub fn briefs(events: &[Arc<Event>]) -> Vec<String> {
    events.iter().map(|event| brief(event)).collect()
}

/// Returns the message with which a client responds to a function call.
pub fn answer(id: &str, name: &str, response: Value) -> Content {
    let response = FunctionResponse {
        id: Some(id.into()),
        name: name.into(),
        response: map(response),
        ..FunctionResponse::default()
    };
    Content::new("user", vec![PartData::FunctionResponse(response).into()])
}

pub fn map(value: Value) -> JsonMap {
    value.as_object().unwrap().clone()
}

/// Returns an event in short form: `author: text`, `author: call name{args}`, `author: answer name{response}`; `~`
/// marks partial ones.
pub fn brief(event: &Event) -> String {
    let mut items: Vec<String> = Vec::new();
    let content = event.content.as_deref().cloned().unwrap_or_default();
    let text = content.text();
    if !text.is_empty() {
        items.push(text);
    }
    items
        .extend(content.function_calls().map(|call| format!("call {}{}", call.name, Value::Object(call.args.clone()))));
    items.extend(
        content
            .function_responses()
            .map(|answer| format!("answer {}{}", answer.name, Value::Object(answer.response.clone()))),
    );
    if let Some(code) = &event.error_code {
        items.push(format!("error {code}: {}", event.error_message.as_deref().unwrap_or_default()));
    }
    let partial = if event.partial { "~" } else { "" };
    format!("{}{partial}: {}", event.author, items.join("; "))
}

/// Returns an LLM agent with this model.
pub fn llm(name: &str, model: Scripted) -> Agent {
    llm_with(name, model, |_| {})
}

pub fn llm_with(name: &str, model: Scripted, change: impl FnOnce(&mut LlmAgent)) -> Agent {
    llm_on(name, &Arc::new(model), change)
}

/// Like [`llm_with`], for a model whose requests the test reads.
pub fn llm_on(name: &str, model: &Arc<Scripted>, change: impl FnOnce(&mut LlmAgent)) -> Agent {
    let mut agent = LlmAgent {
        model: Some(ModelRef::Object("scripted".into(), model.clone())),
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

/// A tool that calls a closure.
pub struct FnTool {
    declaration: Arc<FunctionDeclaration>,
    kind: FnKind,
    body: Box<ToolBody>,
}

#[derive(PartialEq)]
enum FnKind {
    Plain,
    LongRunning,
    NeedsConfirmation,
}

pub fn tool(
    name: &str,
    body: impl Fn(JsonMap, &CallContext) -> Result<Value, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    Arc::new(FnTool { declaration: declared(name), kind: FnKind::Plain, body: Box::new(body) })
}

pub fn guarded(
    name: &str,
    body: impl Fn(JsonMap, &CallContext) -> Result<Value, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    Arc::new(FnTool { declaration: declared(name), kind: FnKind::NeedsConfirmation, body: Box::new(body) })
}

pub fn long_running(
    name: &str,
    body: impl Fn(JsonMap, &CallContext) -> Result<Value, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    Arc::new(FnTool { declaration: declared(name), kind: FnKind::LongRunning, body: Box::new(body) })
}

pub fn declared(name: &str) -> Arc<FunctionDeclaration> {
    Arc::new(FunctionDeclaration { name: name.into(), ..FunctionDeclaration::default() })
}

#[async_trait]
impl Tool for FnTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn is_long_running(&self) -> bool {
        self.kind == FnKind::LongRunning
    }

    fn requires_confirmation(&self) -> bool {
        self.kind == FnKind::NeedsConfirmation
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        (self.body)(args, cx)
    }
}

/// A callback that returns these answers.
#[derive(Default, Clone)]
pub struct Answers {
    pub name: &'static str,
    pub agent: Option<&'static str>,
    pub model: Option<&'static str>,
    pub tool: Option<Value>,
    /// Merged into tool arguments and added to system instructions.
    pub mark: Option<&'static str>,
    /// The state key that is set by each call.
    pub state: Option<&'static str>,
    pub fails: bool,
}

impl Answers {
    pub fn arc(self) -> Arc<dyn Callback> {
        Arc::new(self)
    }

    fn note(&self, cx: &CallContext) -> Result<(), RunError> {
        if let Some(key) = self.state {
            cx.set_state(key, json!(true));
        }
        if self.fails {
            let (callback, agent) = (self.name.into(), cx.agent.to_string());
            return Err(RunError::Callback {
                callback,
                agent,
                code: "CALLBACK_FAILED".into(),
                message: "it broke".into(),
            });
        }
        Ok(())
    }
}

#[async_trait]
impl Callback for Answers {
    fn name(&self) -> &str {
        self.name
    }

    async fn before_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        self.note(cx)?;
        Ok(self.agent.map(Content::model))
    }

    async fn after_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        self.note(cx)?;
        Ok(self.agent.map(Content::model))
    }

    async fn before_model(&self, cx: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        self.note(cx)?;
        request.system_instructions.extend(self.mark.map(Into::into));
        Ok(self.model.map(LlmResponse::text))
    }

    async fn after_model(&self, cx: &CallContext, _: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        self.note(cx)?;
        Ok(self.model.map(LlmResponse::text))
    }

    async fn before_tool(&self, cx: &CallContext, _: &str, args: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        self.note(cx)?;
        if let Some(mark) = self.mark {
            args.insert("mark".into(), json!(mark));
        }
        Ok(self.tool.clone().map(map))
    }

    async fn after_tool(
        &self,
        cx: &CallContext,
        _: &str,
        _: &JsonMap,
        response: &JsonMap,
    ) -> Result<Option<JsonMap>, RunError> {
        self.note(cx)?;
        Ok(self.tool.clone().map(|tool| {
            let mut merged = response.clone();
            merged.extend(map(tool));
            merged
        }))
    }
}
