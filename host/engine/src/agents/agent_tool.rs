//! `AgentTool`: an agent as a tool of another agent.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentKind, AgentTree, CallContext, Content, Event, EventActions, EventData, EventSink, FunctionDeclaration,
    InvocationWriter, JsonMap, RunError, RunJournal, StoreError, Tool, ToolError, TreeError, USER_AUTHOR,
    new_invocation_id,
};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::app::App;
use crate::plugins::Plugins;
use crate::run::{AgentScope, MAX_DEPTH, Replay, RunContext};
use crate::tasks::{in_current_scope, propagate_panic};
use crate::tools::builtin::declaration;

use super::{engine_host, run_agent};

/// Runs an agent in a temporary session, which starts with the caller's state and ends with the call. Its last answer
/// is the tool's result, and its state changes are applied to the caller. Artifacts, memory and the limits of the run
/// are shared. Plugins that [follow into tools](hatchery_core::Plugin::follows_into_tools) apply to it. Nobody can be
/// asked for confirmation in it, so a tool that requires confirmation does not run.
pub struct AgentTool {
    app: Arc<App>,
    declaration: Arc<FunctionDeclaration>,
    /// True if the agent has an output schema, so that its answer is parsed as JSON.
    has_output_schema: bool,
    skip_summarization: bool,
}

impl AgentTool {
    /// Creates a tool that runs `agent` and its sub-agents.
    ///
    /// # Errors
    /// If the agents do not form a tree of unique names.
    pub fn new(agent: Agent) -> Result<Self, TreeError> {
        let request = json!({"type": "object", "properties": {"request": {"type": "string"}}, "required": ["request"]});
        let parameters = first_llm(&agent).and_then(|llm| llm.input_schema.clone()).unwrap_or(request);
        let has_output_schema = last_llm(&agent).is_some_and(|llm| llm.output_schema.is_some());
        let declaration = declaration(&agent.name, &agent.description, Some(parameters));
        let app = Arc::new(App::new(agent.name.clone(), agent)?);
        Ok(Self { app, declaration, has_output_schema, skip_summarization: false })
    }

    /// Ends the caller's turn with the agent's answer, without another model call.
    #[must_use]
    pub fn skip_summarization(self) -> Self {
        Self { skip_summarization: true, ..self }
    }

    /// Runs the agent. Returns its last event with text, an answer of a tool or an error.
    async fn run_agent(&self, args: JsonMap, cx: &CallContext) -> Result<Option<Arc<Event>>, RunError> {
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
        let id = cx.call_key.as_deref().map_or_else(new_invocation_id, Into::into);
        // Without a key, the call would not be found again.
        let journal = caller.journal.clone().filter(|_| cx.call_key.is_some());
        let recorded = journal.as_ref().map(|journal| journal.events(&id)).unwrap_or_default();
        let (invocation, writer) = caller.child(id, message.clone(), cx.full_state(), cx.span().clone());
        let collector = Arc::new(AnswerCollector {
            writer,
            caller: cx.clone(),
            journal,
            recorded_ids: recorded.iter().map(|event| event.id.clone()).collect(),
            count: Mutex::default(),
        });
        let replay = Replay::new(&self.app.tree, recorded.iter().skip(1));
        let input = recorded.into_iter().next().unwrap_or_else(|| {
            Event::new(EventData { author: USER_AUTHOR.into(), content: Some(message), ..EventData::default() })
        });
        collector.emit(input).await?;
        let plugins = cx.host().map(|host| host.plugins()).unwrap_or_default();
        let plugins = Plugins::new_unchecked(plugins);
        let run = Arc::new(RunContext::new(self.app.clone(), invocation.clone(), plugins, engine_host));
        // A separate task, because nested agents could overflow the stack of one. Dropping the set aborts the task.
        let mut task = JoinSet::new();
        let scope = AgentScope { branch: None, replay, sink: collector, span: cx.span().clone() };
        task.spawn(in_current_scope(run_agent(run, self.app.root_id(), scope)));
        match task.join_next().await.map_or(Err(RunError::Cancelled), propagate_panic) {
            Err(RunError::Stopped) if invocation.is_ended() => {}
            result => drop(result?),
        }
        let events = invocation.events();
        let is_answer =
            |event: &&Arc<Event>| event.error_code.is_some() || has_text(event) || tool_answer(event).is_some();
        Ok(events.iter().skip(1).rev().find(is_answer).cloned())
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

    fn agents(&self) -> Option<&AgentTree> {
        Some(&self.app.tree)
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let name = &self.declaration.name;
        let answer = self.run_agent(args, cx).await.map_err(|error| match error {
            RunError::Tool(error @ ToolError::Fatal { .. }) => error,
            RunError::Store(
                error @ (StoreError::Backend { .. }
                | StoreError::Full { .. }
                | StoreError::Busy { .. }
                | StoreError::Fenced(_)),
            ) => error.into(),
            error if matches!(error.code(), "CANCELLED" | "LIMIT_REACHED") => {
                ToolError::Fatal { tool: name.clone(), code: error.code().to_owned().into(), message: error.redact() }
            }
            error => failure(name, &error.redact()),
        })?;
        if self.skip_summarization {
            cx.actions().skip_summarization = Some(true);
        }
        let Some(answer) = answer else { return Ok(Value::Object(JsonMap::new())) };
        let text = answer.content.as_ref().map(|content| content.text()).unwrap_or_default();
        let reason = answer.error_message.as_ref().or(answer.error_code.as_ref());
        if let Some(reason) = reason.filter(|_| text.is_empty()) {
            return Err(failure(name, reason));
        }
        if let Some(answer) = tool_answer(&answer).filter(|_| text.is_empty()) {
            return Ok(answer);
        }
        if !self.has_output_schema {
            return Ok(json!({ "result": text }));
        }
        serde_json::from_str(&text).map_err(|error| {
            ToolError::Recoverable(format!("agent `{name}` did not answer with the JSON that it should: {error}"))
        })
    }
}

/// Returns the error that agent `name` failed. A reason that begins with the agent does not name it again.
fn failure(name: &str, reason: &str) -> ToolError {
    let reason = reason.strip_prefix(&format!("agent `{name}`: ")).unwrap_or(reason);
    ToolError::Recoverable(format!("agent `{name}` failed: {reason}"))
}

/// Collects the agent's events in its temporary session, and applies state and artifact changes to the caller.
struct AnswerCollector {
    writer: InvocationWriter,
    caller: CallContext,
    journal: Option<Arc<RunJournal>>,
    /// Ids of the events from before the run was interrupted, which are replayed.
    recorded_ids: HashSet<String>,
    /// How many events were recorded since. Locked while one is recorded, so that the journal and the session have the
    /// same order.
    count: Mutex<usize>,
}

#[async_trait]
impl EventSink for AnswerCollector {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        self.writer.invocation().count_event(&event)?;
        if event.partial {
            return Ok(event);
        }
        let mut count = self.count.lock().await;
        if self.writer.invocation().is_ended() {
            return Err(RunError::Stopped);
        }
        if let Some(journal) = &self.journal
            && !self.recorded_ids.contains(&event.id)
        {
            let index = self.recorded_ids.len() + *count;
            journal.append(&self.writer.invocation().id, index, &event).await?;
            *count += 1;
        }
        self.writer.append_unstored(&event);
        drop(count);
        let mut actions = self.caller.actions();
        actions.merge(EventActions {
            state_delta: event.actions.state_delta.clone(),
            artifact_delta: event.actions.artifact_delta.clone(),
            deleted_artifact_ids: event.actions.deleted_artifact_ids.clone(),
            ..EventActions::default()
        });
        drop(actions);
        if self.writer.invocation().is_ended() { Err(RunError::Stopped) } else { Ok(event) }
    }
}

fn has_text(event: &Event) -> bool {
    let mut parts = event.content.iter().flat_map(|content| &content.parts);
    parts.any(|part| !part.thought && part.as_text().is_some_and(|text| !text.is_empty()))
}

/// Returns the answer of the tool call that the event ends in; several answers by the names of their tools, as a list
/// if a tool has several. `None` if the answers are empty, like the answer of `exit_loop`.
fn tool_answer(event: &Event) -> Option<Value> {
    let mut answers = event.function_responses().filter(|answer| !answer.response.is_empty()).peekable();
    let first = answers.next()?;
    if answers.peek().is_none() {
        return Some(Value::Object(first.response.clone()));
    }
    let mut by_tool = JsonMap::new();
    for answer in std::iter::once(first).chain(answers) {
        let response = Value::Object(answer.response.clone());
        match by_tool.get_mut(&answer.name) {
            Some(Value::Array(list)) => list.push(response),
            Some(earlier) => *earlier = Value::Array(vec![earlier.take(), response]),
            None => drop(by_tool.insert(answer.name.clone(), response)),
        }
    }
    Some(Value::Object(by_tool))
}

/// Returns the LLM agent that gets the request: the agent itself, or the first one of a sequence.
fn first_llm(agent: &Agent) -> Option<&hatchery_core::LlmAgent> {
    match &agent.kind {
        AgentKind::Llm(llm) => Some(llm),
        AgentKind::Sequential => agent.sub_agents.first().and_then(first_llm),
        AgentKind::Parallel | AgentKind::Loop { .. } | AgentKind::Custom(_) => None,
    }
}

/// Returns the LLM agent that answers: the agent itself, or the last one of a sequence.
fn last_llm(agent: &Agent) -> Option<&hatchery_core::LlmAgent> {
    match &agent.kind {
        AgentKind::Llm(llm) => Some(llm),
        AgentKind::Sequential => agent.sub_agents.last().and_then(last_llm),
        AgentKind::Parallel | AgentKind::Loop { .. } | AgentKind::Custom(_) => None,
    }
}
