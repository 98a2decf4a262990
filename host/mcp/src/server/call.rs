//! Calls of clients: a run of an app, or one call of a tool in a session of its own.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Agent, AgentContext, AgentKind, Content, CustomAgent, CustomAgentSpec, Event, JsonMap, RunConfig, RunError,
    SessionKey, StoreError, StreamingMode, TOOL_PROGRESS_KEY, Tool, ToolError, USER_AUTHOR, new_event_id,
};
use hatchery_engine::{App, RunRequest};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, ProgressNotificationParam, Resource};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::McpService;
use super::content;
use super::exposure::Target;
use super::logging::log_event;
use super::resources;
use super::session::scope;

/// The user of the runs of MCP clients that are not authenticated, or may act for any user.
pub const ANONYMOUS_USER: &str = "mcp";

/// The app of calls of single tools.
const TOOL_APP: &str = "mcp-tools";

/// Maximum number of files of an answer.
const MAX_FILES: usize = 16;

/// Maximum number of bytes of the files of an answer, and of a resource.
pub(super) const MAX_FILE_BYTES: u64 = 16 << 20;

impl McpService {
    /// Performs a call. Its failures are results, so that the client's model can read them.
    pub(super) async fn call(
        &self,
        target: &Target,
        args: JsonMap,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let result = match target {
            Target::App(app) => self.run_app(app, &args, context).await,
            Target::Tool(name) => self.call_tool(name, args, context).await,
        };
        result.unwrap_or_else(failure)
    }

    async fn run_app(
        &self,
        name: &str,
        args: &JsonMap,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, String> {
        let message = args.get("message").and_then(Value::as_str).ok_or("`message` is missing; it must be a text")?;
        let session = match args.get("session") {
            None | Some(Value::Null) => new_event_id(),
            Some(Value::String(session)) => session.clone(),
            Some(_) => return Err("`session` must be a text".into()),
        };
        let Some(app) = self.0.catalog.app(name) else {
            return Err(format!("the app `{name}` is not loaded any more"));
        };
        let events = self.run(app, &session, message, StreamingMode::Off, context).await?;
        if events.iter().any(|event| !event.actions.artifact_delta.is_empty()) {
            // Fails if the client is gone.
            let _ = context.peer.notify_resource_list_changed().await;
        }
        let key = SessionKey::new(name, user(context), session.as_str());
        Ok(self.app_result(&key, &events).await)
    }

    /// Returns the texts and files of a run's final responses, and the calls for which it waits.
    async fn app_result(&self, key: &SessionKey, events: &[Arc<Event>]) -> CallToolResult {
        let finals = events.iter().filter(|event| event.author != USER_AUTHOR && event.is_final_response());
        let contents: Vec<_> = finals.filter_map(|event| event.content.as_deref()).collect();
        let texts: Vec<_> = contents.iter().map(|content| content.text()).filter(|text| !text.is_empty()).collect();
        let answer = texts.join("\n\n");
        let waiting: Vec<_> = events.iter().flat_map(|event| waiting_calls(event)).collect();
        let mut structured = json!({"session": &*key.id, "response": answer});
        let mut text = answer;
        if !waiting.is_empty() {
            let names: Vec<_> = waiting.iter().filter_map(|call| call.get("name")?.as_str()).collect();
            let separator = if text.is_empty() { "" } else { "\n\n" };
            text.push_str(&format!(
                "{separator}The agent waits for an answer to {}, which a person gives in session `{}` of the app `{}`.",
                names.join(", "),
                key.id,
                key.app
            ));
            if let Some(structured) = structured.as_object_mut() {
                structured.insert("waiting_for".into(), waiting.into());
            }
        }
        let mut blocks = vec![ContentBlock::text(text)];
        let parts = contents.iter().flat_map(|content| &content.parts);
        blocks.extend(parts.filter_map(|part| content::block(part, "inline", "artifact://inline")).take(MAX_FILES));
        blocks.extend(self.files(key, events).await);
        let mut result = CallToolResult::success(blocks);
        result.structured_content = Some(structured);
        result
    }

    async fn call_tool(
        &self,
        name: &str,
        args: JsonMap,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, String> {
        let Some(tool) = self.0.catalog.tool(name) else {
            return Err(format!("the tool `{name}` is not loaded any more"));
        };
        let (app, outcome) = calling_app(tool, args)?;
        let session = new_event_id();
        let key = SessionKey::new(TOOL_APP, user(context), session.as_str());
        // Only a run with streaming has the progress of its tool.
        let run = self.run(Arc::new(app), &session, name, StreamingMode::On, context).await;
        let outcome = outcome.lock_unpoisoned().take();
        let result = match (run, outcome) {
            (_, Some(Err(message))) | (Err(message), None) => Err(message),
            (Ok(events), Some(Ok(value))) => {
                let mut result = content::result(value);
                result.content.extend(self.files(&key, &events).await);
                Ok(result)
            }
            (Err(message), Some(Ok(_))) => Err(message),
            (Ok(_), None) => Err(format!("the tool `{name}` has not run")),
        };
        self.delete(&key).await;
        result
    }

    /// Runs an app to its end, or until the client cancels the call. Each event is reported as progress, unless its tool
    /// reports progress of its own.
    async fn run(
        &self,
        app: Arc<App>,
        session: &str,
        message: &str,
        streaming_mode: StreamingMode,
        context: &RequestContext<RoleServer>,
    ) -> Result<Vec<Arc<Event>>, String> {
        let request = RunRequest {
            config: RunConfig { auto_create_session: true, streaming_mode, ..RunConfig::default() },
            origin: self.0.origin,
            cancel: context.ct.child_token(),
            trace_parent: context.meta.get_traceparent().and_then(|parent| parent.parse().ok()),
            ..RunRequest::new(user(context), session, Content::user(message))
        };
        // If the connection ends, this future is dropped, and the run with it.
        let _cancel = request.cancel.clone().drop_guard();
        let max = self.0.max_runs;
        let permit = self.0.runner.try_acquire(max);
        let permit = permit.ok_or_else(|| format!("the maximum of {max} runs is active; try again later"))?;
        let mut run = self.0.runner.run(app, request).await.map_err(|error| error.client_message())?;
        drop(permit);
        let mut events: Vec<Arc<Event>> = Vec::new();
        let mut has_own_progress = false;
        while let Some(event) = run.next().await {
            let event = event.map_err(|error| error.client_message())?;
            if event.partial {
                has_own_progress |= forward_progress(context, &event).await;
            } else if event.author != USER_AUTHOR {
                events.push(event.clone());
                if !has_own_progress {
                    report_progress(context, events.len(), &event).await;
                }
                log_event(context, &event).await;
            }
        }
        Ok(events)
    }

    /// Returns the files that the events have stored, newest version of each: their content, or a link if that is too large.
    async fn files(&self, key: &SessionKey, events: &[Arc<Event>]) -> Vec<ContentBlock> {
        let names: std::collections::BTreeSet<_> =
            events.iter().flat_map(|event| event.actions.artifact_delta.keys()).collect();
        let mut blocks = Vec::new();
        let mut free = MAX_FILE_BYTES;
        for name in names.into_iter().take(MAX_FILES) {
            let uri = file_uri(key, name);
            match self.file(key, name, &uri, &mut free).await {
                Ok(block) => blocks.extend(block),
                Err(error) => tracing::warn!("artifact `{name}` cannot be read for an MCP client: {error}"),
            }
        }
        blocks
    }

    /// Returns the newest version of a file, whose bytes it subtracts from `free`.
    async fn file(
        &self,
        key: &SessionKey,
        name: &str,
        uri: &str,
        free: &mut u64,
    ) -> Result<Option<ContentBlock>, StoreError> {
        let stored = self.0.runner.services().artifacts.load_stream(key, name, None).await?;
        let Some(artifact) = stored else { return Ok(None) };
        let Some(rest) = free.checked_sub(artifact.len) else {
            return Ok(Some(ContentBlock::ResourceLink(Resource::new(uri, name))));
        };
        *free = rest;
        let part = artifact.into_part(name, MAX_FILE_BYTES).await?;
        Ok(content::block(&part, name, uri))
    }

    /// Deletes the session of a single call, with its files.
    async fn delete(&self, key: &SessionKey) {
        let services = self.0.runner.services();
        let delete = async {
            for name in services.artifacts.list(key).await? {
                if !name.starts_with("user:") {
                    services.artifacts.delete(key, &name).await?;
                }
            }
            services.sessions.delete(key).await
        };
        if let Err(error) = delete.await {
            tracing::debug!("session {key} of an MCP call is kept: {error}");
        }
    }
}

/// Returns the URI of a file of a result. Those of a single tool do not stay, so that they are no resources.
fn file_uri(key: &SessionKey, name: &str) -> String {
    match &*key.app {
        TOOL_APP => format!("artifact://{name}"),
        _ => resources::uri(key, name),
    }
}

/// Returns the user for whom a client acts.
pub(super) fn user(context: &RequestContext<RoleServer>) -> &str {
    scope(context).and_then(|scope| scope.user.as_deref()).unwrap_or(ANONYMOUS_USER)
}

fn failure(message: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}

/// Returns the calls of an event that wait for an answer from outside.
fn waiting_calls(event: &Event) -> impl Iterator<Item = Value> {
    let is_waiting = |id: &Option<String>| id.as_ref().is_some_and(|id| event.long_running_tool_ids.contains(id));
    let calls = event.function_calls().filter(move |call| is_waiting(&call.id));
    calls.map(|call| json!({"id": call.id, "name": call.name, "args": call.args}))
}

async fn report_progress(context: &RequestContext<RoleServer>, count: usize, event: &Event) {
    let Some(token) = context.meta.get_progress_token() else { return };
    let calls: Vec<_> = event.function_calls().map(|call| call.name.as_str()).collect();
    let message = match calls.is_empty() {
        true => event.author.clone(),
        false => format!("{} calls {}", event.author, calls.join(", ")),
    };
    let params = ProgressNotificationParam::new(token, count as f64).with_message(message);
    // Fails if the client is gone, which also ends the run.
    let _ = context.peer.notify_progress(params).await;
}

/// Reports the progress of a tool. Returns false if the event has none.
async fn forward_progress(context: &RequestContext<RoleServer>, event: &Event) -> bool {
    let metadata = event.custom_metadata.as_deref().and_then(|metadata| metadata.get(TOOL_PROGRESS_KEY));
    let number = |key: &str| metadata?.get(key)?.as_f64();
    let (Some(token), Some(progress)) = (context.meta.get_progress_token(), number("progress")) else { return false };
    let mut params = ProgressNotificationParam::new(token, progress);
    params.total = number("total");
    params.message = metadata.and_then(|metadata| Some(metadata.get("message")?.as_str()?.to_owned()));
    // Fails if the client is gone, which also ends the run.
    let _ = context.peer.notify_progress(params).await;
    true
}

/// The result of a tool, once it has run.
type Outcome = Arc<Mutex<Option<Result<Value, String>>>>;

/// Returns an app that calls a tool once, through the same hooks and checks as the call of an agent.
fn calling_app(tool: Arc<dyn Tool>, args: JsonMap) -> Result<(App, Outcome), String> {
    let outcome = Outcome::default();
    let name = tool.declaration().name.clone();
    let code = Arc::new(ToolCaller { tool: name, args, outcome: outcome.clone() });
    let kind = AgentKind::Custom(CustomAgentSpec { code, model: None, tools: vec![tool] });
    let app = App::new(TOOL_APP, Agent::new("mcp", "", kind)).map_err(|error| error.to_string())?;
    Ok((app, outcome))
}

struct ToolCaller {
    tool: String,
    args: JsonMap,
    outcome: Outcome,
}

#[async_trait]
impl CustomAgent for ToolCaller {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let call = cx.call.clone().with_progress_sink(cx.sink.clone());
        let result = cx.call.host()?.call_tool(&call, &self.tool, self.args.clone()).await;
        let result = result.map_err(|error| match error {
            ToolError::Recoverable(message) | ToolError::Fatal { message, .. } => message,
        });
        *self.outcome.lock_unpoisoned() = Some(result);
        cx.flush().await
    }
}
