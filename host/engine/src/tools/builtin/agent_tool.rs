//! An agent as a tool of another agent.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentKind, CallContext, Content, Event, EventData, EventSink, FunctionDeclaration, InvocationWriter,
    JsonMap, RunError, StoreError, Tool, ToolError, TreeError, USER_AUTHOR,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::agents::past::Past;
use crate::agents::{self, Frame, Lane};
use crate::app::App;
use crate::history::contents::PromptViews;
use crate::plugins::Plugins;
use crate::tasks::joined;

use super::declaration;

/// How deep agents may call agents.
const MAX_DEPTH: u32 = 16;

/// Runs an agent in a session of its own that begins with the caller's state and ends with the call. Its last answer is the tool's
/// answer; what it sets in state becomes the caller's; artifacts, memory and the limit of model calls are shared. Plugins follow
/// it to its models and tools, as far as they want to. No person sees it: a tool that needs a confirmation does not run.
pub struct AgentTool {
    app: Arc<App>,
    declaration: Arc<FunctionDeclaration>,
    /// The answer is JSON of a schema.
    is_structured: bool,
    skip_summarization: bool,
}

impl AgentTool {
    /// This agent, with everything below it. With `skip_summarization` its answer is the caller's answer.
    ///
    /// # Errors
    /// When the agents do not form a tree of unique names.
    pub fn new(agent: Agent, skip_summarization: bool) -> Result<Self, TreeError> {
        let request = json!({"type": "object", "properties": {"request": {"type": "string"}}, "required": ["request"]});
        let parameters = first_llm(&agent).and_then(|llm| llm.input_schema.clone()).unwrap_or(request);
        let is_structured = last_llm(&agent).is_some_and(|llm| llm.output_schema.is_some());
        let declaration = declaration(&agent.name, &agent.description, Some(parameters));
        let app = Arc::new(App::new(agent.name.clone(), agent)?);
        Ok(Self { app, declaration, is_structured, skip_summarization })
    }

    async fn answer(&self, args: JsonMap, cx: &CallContext) -> Result<Option<Arc<Event>>, RunError> {
        let caller = &cx.invocation;
        if caller.depth >= MAX_DEPTH {
            let message = format!(
                "is called {MAX_DEPTH} agents deep, and may not call another; let fewer agents call each other"
            );
            return Err(RunError::Agent { agent: cx.agent.to_string(), code: "LIMIT_REACHED".into(), message });
        }
        let message = Arc::new(Content::user(match args.get("request") {
            Some(Value::String(request)) if args.len() == 1 => request.clone(),
            _ => Value::Object(args).to_string(),
        }));
        let (invocation, writer) = caller.child(message.clone(), cx.full_state());
        let heard = Arc::new(Heard { writer, caller: cx.clone() });
        let said = EventData { author: USER_AUTHOR.into(), content: Some(message), ..EventData::default() };
        heard.emit(Event::new(said)).await?;
        let plugins = cx.host().map(|host| host.plugins()).unwrap_or_default();
        let plugins = Plugins::new_unchecked(plugins);
        let frame = Frame::new(self.app.clone(), invocation.clone(), plugins, PromptViews::default(), None);
        // In a task of its own: agents that call agents would otherwise use up the stack of one. Dropping it ends the task.
        let mut task = JoinSet::new();
        let lane = Lane { branch: None, past: Past::none(), sink: heard };
        task.spawn(agents::run(frame, self.app.root_id(), lane));
        task.join_next().await.map_or(Err(RunError::Cancelled), joined)?;
        let events = invocation.events();
        Ok(events.iter().skip(1).rev().find(|event| event.content.is_some()).cloned())
    }
}

#[async_trait]
impl Tool for AgentTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        format!("agent:{}", self.app.root().name).into()
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let name = &self.declaration.name;
        let answer = self.answer(args, cx).await.map_err(|error| match error {
            RunError::Tool(error @ ToolError::Fatal { .. }) => error,
            RunError::Store(
                error @ (StoreError::Backend { .. } | StoreError::Full { .. } | StoreError::Busy { .. }),
            ) => error.into(),
            error if matches!(error.code(), "CANCELLED" | "LIMIT_REACHED") => ToolError::Fatal {
                tool: name.clone(),
                code: error.code().to_owned().into(),
                message: error.to_string(),
            },
            error => ToolError::Recoverable(format!("agent `{name}` failed: {}", error.client_message())),
        })?;
        if self.skip_summarization {
            cx.actions().skip_summarization = Some(true);
        }
        let Some(answer) = answer else { return Ok(Value::Object(JsonMap::new())) };
        let text = answer.content.as_ref().map(|content| content.text()).unwrap_or_default();
        if let Some(failure) = answer.error_message.as_ref().filter(|_| text.is_empty()) {
            return Err(ToolError::Recoverable(format!("agent `{name}` failed: {failure}")));
        }
        if !self.is_structured {
            return Ok(json!({ "result": text }));
        }
        serde_json::from_str(&text).map_err(|error| {
            ToolError::Recoverable(format!("agent `{name}` did not answer with the JSON that it should: {error}"))
        })
    }
}

/// The session of the call: what the agent says is remembered for as long as it runs, and what it sets is set for the caller.
struct Heard {
    writer: InvocationWriter,
    caller: CallContext,
}

#[async_trait]
impl EventSink for Heard {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        self.writer.invocation().count_event(&event)?;
        if event.partial {
            return Ok(event);
        }
        self.writer.append_unstored(&event);
        let mut actions = self.caller.actions();
        actions.state_delta.extend(event.actions.state_delta.clone());
        actions.artifact_delta.extend(event.actions.artifact_delta.clone());
        drop(actions);
        Ok(event)
    }
}

/// The LLM agent that reads what the agent is asked: its own, or that of a sequence's first.
fn first_llm(agent: &Agent) -> Option<&hatchery_core::LlmAgent> {
    match &agent.kind {
        AgentKind::Llm(llm) => Some(llm),
        AgentKind::Sequential => agent.sub_agents.first().and_then(first_llm),
        AgentKind::Parallel | AgentKind::Loop { .. } | AgentKind::Custom(_) => None,
    }
}

/// The LLM agent that gives the answer.
fn last_llm(agent: &Agent) -> Option<&hatchery_core::LlmAgent> {
    match &agent.kind {
        AgentKind::Llm(llm) => Some(llm),
        AgentKind::Sequential => agent.sub_agents.last().and_then(last_llm),
        AgentKind::Parallel | AgentKind::Loop { .. } | AgentKind::Custom(_) => None,
    }
}
