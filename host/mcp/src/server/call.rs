//! Calls of clients: a run of an app, or one call of a tool in its own session.

use std::collections::BTreeSet;
use std::sync::Arc;

use hatchery_core::{
    Content, Event, InputClient, InputError, InputKind, JsonMap, RunConfig, SessionKey, StoreError, StreamingMode,
    USER_AUTHOR, new_event_id, pluralize,
};
use hatchery_engine::{App, RunRequest};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, InputRequests,
    InputRequiredResult, InputResponses, Resource,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::McpService;
use super::confirmation::{self, Question, questions};
use super::content;
use super::exposure::Target;
use super::input::CallInput;
use super::logging::log_event;
use super::progress::{report_event, report_tool};
use super::resources;
use super::session::scope;
use super::state::{CallIdentity, CallState, WaitingRun};
use super::subscriptions::ArtifactChange;
use super::tool_call::{TOOL_CALL_APP, ToolCall};

/// The user of the runs of MCP clients that are not authenticated.
const ANONYMOUS_USER: &str = "mcp";

/// Prefix of the users that stand for authenticated clients without a user.
const CLIENT_USER_PREFIX: &str = "MCP_CLIENT_";

/// Maximum number of files of an answer.
const MAX_FILES: usize = 16;

/// Maximum number of bytes of the files of an answer, and of a resource.
pub(super) const MAX_FILE_BYTES: u64 = 16 << 20;

/// Maximum number of times that a person is asked during one call.
const MAX_QUESTIONS: usize = 8;

/// The reason why a call has no result.
enum Incomplete {
    /// The error for the client's model.
    Failed(String),
    /// The client must make the call again with its responses.
    InputRequired(InputRequests, CallState),
    /// The error of the request.
    Refused(ErrorData),
}

impl From<String> for Incomplete {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl From<ErrorData> for Incomplete {
    fn from(error: ErrorData) -> Self {
        Self::Refused(error)
    }
}

/// Returns the id of the session that the arguments name, or a new id.
fn session_id(args: &JsonMap) -> Result<String, String> {
    match args.get("session") {
        None | Some(Value::Null) => Ok(new_event_id()),
        Some(Value::String(session)) => Ok(session.clone()),
        Some(_) => Err("`session` must be a string".into()),
    }
}

impl McpService {
    /// Performs a call. Its failures are results, so that the client's model can read them.
    ///
    /// # Errors
    /// If the client lacks a capability that the call needs, or sends an invalid state.
    pub(super) async fn call(
        &self,
        target: &Target,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = request.arguments.unwrap_or_default();
        let args_text = serde_json::to_string(&args).unwrap_or_default();
        let identity = CallIdentity { user: user(context), tool: &request.name, args: args_text };
        let state = identity.open(self.0.runner.signer(), request.request_state.as_deref())?;
        let responses = request.input_responses.unwrap_or_default();
        let result = match target {
            Target::App(app) => self.run_app(app, &args, state, responses, context).await,
            Target::Tool(name) => self.call_tool(name, &args, state, responses, context).await,
        };
        match result {
            Ok(result) => Ok(result.into()),
            Err(Incomplete::Failed(message)) => Ok(CallToolResult::error(vec![ContentBlock::text(message)]).into()),
            Err(Incomplete::InputRequired(requests, state)) => {
                let state = identity.seal(self.0.runner.signer(), &state);
                Ok(InputRequiredResult::new(Some(requests), Some(state)).into())
            }
            Err(Incomplete::Refused(error)) => Err(error),
        }
    }

    async fn run_app(
        &self,
        name: &str,
        args: &JsonMap,
        state: CallState,
        responses: InputResponses,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, Incomplete> {
        let text = args.get("message").and_then(Value::as_str);
        let text = text.ok_or_else(|| "`message` is missing; it must be a string".to_owned())?;
        let session = session_id(args)?;
        let app = self.0.catalog.app(name).ok_or_else(|| format!("the app `{name}` is not loaded any more"))?;
        let client = Arc::new(CallInput::new(context, responses));
        let (session, mut message) = match state.run {
            None => (session, Content::user(text)),
            Some(run) => {
                let answers = ask(&run.session, &run.questions, &client).await?;
                (run.session, answers)
            }
        };
        // A run cannot be made again, so only clients of earlier revisions can be asked in the middle of it.
        let input = client.is_interactive().then(|| client.clone() as Arc<dyn InputClient>);
        let (mut events, mut last_run) = (Vec::new(), 0);
        for question in 0..=MAX_QUESTIONS {
            let run =
                self.run(app.clone(), session.as_str(), message, StreamingMode::Off, input.clone(), context).await?;
            let asked = questions(&run);
            last_run = events.len();
            events.extend(run);
            if asked.is_empty() || question == MAX_QUESTIONS || !client.supports(InputKind::Form) {
                break;
            }
            message = match ask(&session, &asked, &client).await {
                Ok(message) => message,
                // The answer contains the question that the run waits for.
                Err(Incomplete::Failed(_)) => break,
                Err(incomplete) => return Err(incomplete),
            };
        }
        if events.iter().any(|event| !event.actions.artifact_delta.is_empty()) {
            // Fails if the client is gone.
            let _ = context.peer.notify_resource_list_changed().await;
        }
        let key = SessionKey::new(name, user(context), session.as_str());
        // Messages of the agent from before the answer of a person belong to the question.
        let last_run = events.get(last_run..).unwrap_or_default();
        Ok(self.app_result(&key, last_run, &events).await)
    }

    /// Returns the texts and files of a run's final responses, the calls for which it waits, and the files that the
    /// events of the whole call have stored.
    async fn app_result(&self, key: &SessionKey, run: &[Arc<Event>], events: &[Arc<Event>]) -> CallToolResult {
        let finals = run.iter().filter(|event| event.author != USER_AUTHOR && event.is_final_response());
        let contents: Vec<_> = finals.filter_map(|event| event.content.as_deref()).collect();
        let texts: Vec<_> = contents.iter().map(|content| content.text()).filter(|text| !text.is_empty()).collect();
        let answer = texts.join("\n\n");
        let waiting = waiting_calls(run);
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
        blocks.extend(self.files_of(key, events).await);
        let mut result = CallToolResult::success(blocks);
        result.structured_content = Some(structured);
        result
    }

    async fn call_tool(
        &self,
        name: &str,
        args: &JsonMap,
        mut state: CallState,
        responses: InputResponses,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, Incomplete> {
        let tool = self.0.catalog.tool(name).ok_or_else(|| format!("the tool `{name}` is not loaded any more"))?;
        let call = ToolCall::new(tool, args.clone())?;
        state.responses.extend(responses);
        let client = Arc::new(CallInput::new(context, state.responses.clone()));
        let session = new_event_id();
        let key = SessionKey::new(TOOL_CALL_APP, user(context), session.as_str());
        let result = self.run_tool(&call, &key, &client, context).await;
        self.delete(&key).await;
        let pending = client.pending()?;
        if pending.is_empty() {
            result.map_err(Incomplete::Failed)
        } else {
            Err(Incomplete::InputRequired(pending, state))
        }
    }

    /// Runs the tool, and again after each question to the person at the client.
    async fn run_tool(
        &self,
        call: &ToolCall,
        key: &SessionKey,
        client: &Arc<CallInput>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, String> {
        let mut message = Content::user("call");
        let mut events = Vec::new();
        for question in 0..=MAX_QUESTIONS {
            let input: Arc<dyn InputClient> = client.clone();
            // Only a run with streaming has the progress of its tool.
            let run = self.run(call.app.clone(), &key.id, message, StreamingMode::On, Some(input), context).await?;
            let asked = questions(&run);
            events.extend(run);
            if asked.is_empty() {
                let mut result = call.result(&events)?;
                result.content.extend(self.files_of(key, &events).await);
                return Ok(result);
            }
            if question == MAX_QUESTIONS {
                break;
            }
            message = confirmation::ask(&asked, client.as_ref()).await.map_err(|error| match error {
                InputError::Unsupported(_) => {
                    "the call needs the answer of a person, and this client cannot ask one: it does not support elicitation"
                        .to_owned()
                }
                error @ (InputError::Pending | InputError::Failed(_)) => error.to_string(),
            })?;
        }
        Err(format!("the tool asked a person more than {MAX_QUESTIONS} times"))
    }

    /// Runs an app to the end, or until the client cancels the call. Each event of an agent is reported as progress,
    /// and the progress of a single tool.
    async fn run(
        &self,
        app: Arc<App>,
        session: &str,
        message: Content,
        streaming_mode: StreamingMode,
        input: Option<Arc<dyn InputClient>>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Vec<Arc<Event>>, String> {
        let key = SessionKey::new(app.name.as_str(), user(context), session);
        let request = RunRequest {
            config: RunConfig { auto_create_session: true, streaming_mode, ..RunConfig::default() },
            origin: self.0.origin,
            input,
            cancel: context.ct.child_token(),
            trace_parent: context.meta.get_traceparent().and_then(|parent| parent.parse().ok()),
            ..RunRequest::new(user(context), session, message)
        };
        // If the connection ends, this future is dropped, and the run with it.
        let _cancel = request.cancel.clone().drop_guard();
        let max = self.0.settings.load().max_runs;
        let permit = self.0.runner.try_acquire(max);
        let permit = permit
            .ok_or_else(|| format!("the maximum of {} is active; try again later", pluralize(max, "run", "runs")))?;
        let mut run = self.0.runner.run(app, request).await.map_err(|error| error.client_message())?;
        drop(permit);
        let mut events: Vec<Arc<Event>> = Vec::new();
        while let Some(event) = run.next().await {
            let event = event.map_err(|error| error.client_message())?;
            if event.partial {
                report_tool(context, &event).await;
            } else if event.author != USER_AUTHOR {
                events.push(event.clone());
                if &*key.app != TOOL_CALL_APP {
                    report_event(context, events.len(), &event).await;
                    log_event(context, &event).await;
                    self.publish_changes(&key, &event);
                }
            }
        }
        Ok(events)
    }

    /// Tells clients of the artifacts that an event has stored.
    fn publish_changes(&self, key: &SessionKey, event: &Event) {
        for name in event.actions.artifact_delta.keys() {
            let change = ArtifactChange { user: key.user.clone(), uri: resources::uri(key, name).into() };
            // Fails if no client watches anything.
            let _ = self.0.changes.send(change);
        }
    }

    /// Returns the files that the events have stored, newest version of each: their content, or a link if the content
    /// is too large.
    async fn files_of(&self, key: &SessionKey, events: &[Arc<Event>]) -> Vec<ContentBlock> {
        let names: BTreeSet<_> = events.iter().flat_map(|event| event.actions.artifact_delta.keys()).collect();
        let mut blocks = Vec::new();
        let mut free = MAX_FILE_BYTES;
        for name in names.into_iter().take(MAX_FILES) {
            let uri = file_uri(key, name);
            match self.artifact_block(key, name, &uri, &mut free).await {
                Ok(block) => blocks.extend(block),
                Err(error) => tracing::warn!("artifact `{name}` cannot be read for an MCP client: {error}"),
            }
        }
        blocks
    }

    /// Returns the newest version of a file, and subtracts its number of bytes from `free`.
    async fn artifact_block(
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
            services.artifacts.delete_all(key).await?;
            services.sessions.delete(key).await
        };
        if let Err(error) = delete.await {
            tracing::debug!("session {key} of an MCP call is kept: {error}");
        }
    }
}

/// Asks the person at the client for the answers to a run of an app. Returns the message that continues the run.
async fn ask(session: &str, asked: &[Question], client: &CallInput) -> Result<Content, Incomplete> {
    match confirmation::ask(asked, client).await {
        Ok(message) => Ok(message),
        Err(InputError::Pending) => {
            let run = WaitingRun { session: session.to_owned(), questions: asked.to_vec() };
            let state = CallState { run: Some(run), ..CallState::default() };
            Err(Incomplete::InputRequired(client.pending()?, state))
        }
        Err(error @ (InputError::Unsupported(_) | InputError::Failed(_))) => Err(Incomplete::Failed(error.to_string())),
    }
}

/// Returns the URI of a file of a result. Files of a single tool's call are not kept, so they are no resources.
fn file_uri(key: &SessionKey, name: &str) -> String {
    match &*key.app {
        TOOL_CALL_APP => format!("artifact://{name}"),
        _ => resources::uri(key, name),
    }
}

/// Returns the user for whom a client acts.
pub(super) fn user(context: &RequestContext<RoleServer>) -> &str {
    scope(context).and_then(|scope| scope.user.as_deref()).unwrap_or(ANONYMOUS_USER)
}

/// Returns the user id for an authenticated client without a user, such as `key ci`.
pub fn client_user(client: &str) -> String {
    format!("{CLIENT_USER_PREFIX}{}", client.replacen(' ', "_", 1))
}

/// Returns true for the user id of a client without a user.
pub fn is_reserved_user(id: &str) -> bool {
    id == ANONYMOUS_USER || id.starts_with(CLIENT_USER_PREFIX)
}

/// Returns the calls of a run that wait for an answer from outside.
fn waiting_calls(events: &[Arc<Event>]) -> Vec<Value> {
    let mut waiting = Vec::new();
    for event in events {
        let is_waiting = |id: &String| event.long_running_tool_ids.contains(id);
        let calls = event.function_calls().filter(|call| call.id.as_ref().is_some_and(is_waiting));
        waiting.extend(calls.map(|call| json!({"id": call.id, "name": call.name, "args": call.args})));
    }
    waiting
}
