//! The context of one call of a tool or a callback.

use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;
use serde_json::{Value, json};

use crate::agent_context::{AgentContext, AgentHost, EventSink};
use crate::caller::Caller;
use crate::confirmation::ToolConfirmation;
use crate::error::{RunError, StoreError, ToolError};
use crate::event::{EventActions, EventData};
use crate::id::SessionKey;
use crate::invocation::Invocation;
use crate::journal::{hash_arguments, hash_hex};
use crate::json::JsonMap;
use crate::live::{LiveRequestQueue, LiveResults};
use crate::memory::MemoryEntry;
use crate::model::StreamingMode;
use crate::state::{State, is_state_removal};
use crate::sync::MutexExt;
use crate::trace::SpanContext;

mod artifacts;
mod model_call;

/// The key of a call's progress in the metadata of an event: a [`ToolProgress`] with the `name` of the tool and the
/// `id` of the call.
pub const TOOL_PROGRESS_KEY: &str = "tool_progress";

/// The progress of a tool call.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ToolProgress {
    /// The amount done, in a unit of the tool.
    pub progress: f64,
    /// The total amount; `None` if the tool does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// A human-readable text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The context of one call of a tool or a callback, or of one run of an agent. Changes are collected as the
/// [`EventActions`] of the event that reports the call. They are immediately visible to code that reads state through
/// the same context. Clones share their changes.
#[derive(Clone)]
pub struct CallContext {
    /// The run to which the call belongs.
    pub invocation: Arc<Invocation>,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The agent's branch; `None` outside parallel agents.
    pub branch: Option<Arc<str>>,
    /// The id of the function call, in tools and tool callbacks.
    pub function_call_id: Option<Arc<str>>,
    /// The key of the call in the journal of the run, in tools and tool callbacks.
    pub call_key: Option<Arc<str>>,
    /// The prefix of the keys of calls by the code of a custom agent.
    agent_scope: Option<Arc<str>>,
    /// The arguments with which the configuration uses the item that is called.
    arguments: Option<Arc<JsonMap>>,
    /// True if changes are refused.
    is_read_only: bool,
    confirmation: Option<Arc<ToolConfirmation>>,
    host: Option<Arc<dyn AgentHost>>,
    /// The destination of progress; `None` outside of a model's calls.
    sink: Option<Arc<dyn EventSink>>,
    span: SpanContext,
    actions: Arc<Mutex<EventActions>>,
}

impl CallContext {
    /// Creates a context without changes.
    pub fn new(invocation: Arc<Invocation>, agent: impl Into<Arc<str>>, branch: Option<Arc<str>>) -> Self {
        Self {
            span: invocation.span.clone(),
            invocation,
            agent: agent.into(),
            branch,
            function_call_id: None,
            call_key: None,
            agent_scope: None,
            arguments: None,
            is_read_only: false,
            confirmation: None,
            host: None,
            sink: None,
            actions: Arc::default(),
        }
    }

    /// Sets the span context of the call, in which its spans begin.
    #[must_use]
    pub fn with_span(mut self, span: SpanContext) -> Self {
        self.span = span;
        self
    }

    /// Returns the span context of the call.
    pub fn span(&self) -> &SpanContext {
        &self.span
    }

    /// Sets the engine's services for running code.
    #[must_use]
    pub fn with_host(mut self, host: Arc<dyn AgentHost>) -> Self {
        self.host = Some(host);
        self
    }

    /// Sets the destination of the call's progress.
    #[must_use]
    pub fn with_progress_sink(mut self, sink: Arc<dyn EventSink>) -> Self {
        self.sink = Some(sink);
        self
    }

    /// Reports the progress of a call of the tool named `tool`: in a run with streaming, as a partial event with the
    /// metadata [`TOOL_PROGRESS_KEY`]. Does nothing otherwise.
    ///
    /// # Errors
    /// As [`EventSink::emit`].
    pub async fn report_progress(&self, tool: &str, progress: &ToolProgress) -> Result<(), RunError> {
        let Some(sink) = self.sink.clone().filter(|_| self.invocation.run_config.streaming_mode == StreamingMode::On)
        else {
            return Ok(());
        };
        let mut metadata = json!({ TOOL_PROGRESS_KEY: progress });
        if let Some(Value::Object(report)) = metadata.get_mut(TOOL_PROGRESS_KEY) {
            report.insert("name".into(), tool.into());
            report.extend(self.function_call_id.as_deref().map(|id| ("id".to_owned(), id.into())));
        }
        let data = EventData { partial: true, custom_metadata: Some(Box::new(metadata)), ..EventData::default() };
        AgentContext { call: self.clone(), sink }.emit(data).await.map(drop)
    }

    /// Returns the engine's services for running code.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the context was created without an engine.
    pub fn host(&self) -> Result<&Arc<dyn AgentHost>, RunError> {
        self.host.as_ref().ok_or_else(|| RunError::BadInput("this call runs outside an agent".into()))
    }

    /// Returns the context of a function call, which collects its own changes.
    #[must_use]
    pub fn for_call(&self, id: Option<&str>) -> Self {
        Self {
            function_call_id: id.map(Into::into),
            call_key: None,
            agent_scope: None,
            arguments: None,
            confirmation: None,
            actions: Arc::default(),
            ..self.clone()
        }
    }

    /// Sets the key of the call in the journal of the run.
    #[must_use]
    pub fn with_call_key(mut self, key: Option<impl Into<Arc<str>>>) -> Self {
        self.call_key = key.map(Into::into);
        self
    }

    /// Returns the idempotency key of the call, for services that ignore repeated requests: 32 hexadecimal digits. A
    /// call that is repeated after a crash has the same key; no other call of any session has it. `None` outside of
    /// tools and tool callbacks.
    pub fn idempotency_key(&self) -> Option<String> {
        self.call_key.as_deref().map(|key| self.hash_key(key))
    }

    /// Returns the idempotency key of the next request with this method and URL. It consists of the call's key, a hash
    /// of method and URL, and the number of such requests. `None` if the code of this context is not replayed.
    pub fn next_request_key(&self, method: &str, url: &str) -> Option<String> {
        let scope = self.key_scope()?;
        let request = hash_arguments(&(method, url));
        let number = self.invocation.journal.as_ref()?.count(&format!("{scope}/http/{request}")) + 1;
        Some(format!("{}-{request}-{number}", self.hash_key(scope)))
    }

    /// Returns a key that no other session has: clients can choose the ids of sessions and runs.
    fn hash_key(&self, key: &str) -> String {
        let SessionKey { app, user, id } = &self.invocation.session_key;
        let created = self.invocation.read_session().created.as_micros();
        hash_hex(&(app, user, id, created, &self.invocation.id, key), 16)
    }

    /// Returns the prefix of the journal keys of calls by code with this context.
    fn key_scope(&self) -> Option<&str> {
        self.call_key.as_deref().or(self.agent_scope.as_deref())
    }

    /// Marks this as the context of a custom agent's code, whose calls of tools and models are recorded. The code runs
    /// again from its beginning when its run is continued.
    #[must_use]
    pub fn for_agent_code(mut self) -> Self {
        self.agent_scope = Some(format!("{}/{}", self.invocation.id, self.agent).into());
        self
    }

    /// Returns the key of the next call of a tool or model. `None` if the code of this context is not replayed.
    pub fn next_call_key(&self, name: &str, arguments: &impl Serialize) -> Option<String> {
        let scope = self.key_scope()?;
        let journal = self.invocation.journal.as_ref()?;
        Some(journal.number(&format!("{scope}/{name}/{}", hash_arguments(arguments))))
    }

    /// Starts a streaming tool, whose results are sent to the live model while the conversation continues. `start` gets
    /// a queue of the requests that the user sends while the tool runs. Returns the result of the call. The tool ends
    /// with its stream, by the built-in tool `stop_streaming`, or with the conversation.
    ///
    /// # Errors
    /// [`ToolError::Recoverable`] outside of a live conversation.
    pub fn stream_results(
        &self,
        tool: &str,
        start: impl FnOnce(LiveRequestQueue) -> LiveResults,
    ) -> Result<Value, ToolError> {
        self.invocation.live_streams.start(tool, start)
    }

    /// Returns the context of a call of an item that the configuration uses with arguments: `args` of a tool in an
    /// agent definition or of a plugin in a list. The changes are shared.
    #[must_use]
    pub fn with_arguments(&self, arguments: Option<Arc<JsonMap>>) -> Self {
        Self { arguments, ..self.clone() }
    }

    /// Returns the arguments with which the configuration uses the item that is called; `None` if there are none.
    pub fn arguments(&self) -> Option<&JsonMap> {
        self.arguments.as_deref()
    }

    /// Returns a context for code that only reads, such as an instruction provider. It sees the changes made so far,
    /// and drops those that are made through it; [`CallContext::check_writable`] fails.
    #[must_use]
    pub fn read_only(&self) -> Self {
        let actions = self.actions().clone();
        Self { is_read_only: true, actions: Arc::new(Mutex::new(actions)), ..self.clone() }
    }

    /// Checks that changes made through this context are kept. Call it before a change that takes effect immediately,
    /// and in code that reports errors to an author.
    ///
    /// # Errors
    /// [`RunError::ReadOnly`] in a [read-only context](CallContext::read_only).
    pub fn check_writable(&self) -> Result<(), RunError> {
        if self.is_read_only { Err(RunError::ReadOnly) } else { Ok(()) }
    }

    /// Sets a person's decision about the call.
    #[must_use]
    pub fn with_confirmation(mut self, confirmation: Option<ToolConfirmation>) -> Self {
        self.confirmation = confirmation.map(Arc::new);
        self
    }

    /// Returns a person's decision about this call; `None` if no decision was requested.
    pub fn confirmation(&self) -> Option<&ToolConfirmation> {
        self.confirmation.as_deref()
    }

    /// Requests a person's decision about this call. The tool should return a result that reports that it waits. After
    /// the decision the tool is called again with the same arguments, and [`CallContext::confirmation`] returns the
    /// decision.
    ///
    /// # Errors
    /// [`RunError::BadInput`] outside a function call, and inside an agent that is called as a tool.
    pub fn request_confirmation(&self, hint: impl Into<String>, payload: Option<Value>) -> Result<(), RunError> {
        self.check_writable()?;
        let Some(id) = self.function_call_id.as_deref() else {
            return Err(RunError::BadInput("a confirmation can only be requested in a tool call".into()));
        };
        if self.invocation.is_in_tool {
            let message = "a confirmation cannot be requested inside an agent that is called as a tool";
            return Err(RunError::BadInput(message.into()));
        }
        let request = ToolConfirmation { hint: hint.into(), confirmed: false, payload };
        // It consists of strings, a bool and JSON, so this cannot fail.
        let request = serde_json::to_value(request).unwrap_or_default();
        self.actions().requested_tool_confirmations.insert(id.into(), request);
        Ok(())
    }

    /// Returns the user or process that requested the run.
    pub fn caller(&self) -> &Caller {
        &self.invocation.caller
    }

    /// Returns the value of a state key, changes of this call included.
    pub fn state(&self, key: &str) -> Option<Value> {
        if let Some(value) = self.actions().state_delta.get(key) {
            return (!is_state_removal(value)).then(|| value.clone());
        }
        self.invocation.read_session().state.get(key).cloned()
    }

    /// Returns all state, changes of this call included.
    pub fn full_state(&self) -> State {
        let mut state = self.invocation.state();
        state.apply(&self.actions().state_delta);
        state
    }

    /// Sets a state key; `null` deletes it. Tool calls of one model response run concurrently: each sees the state from
    /// before all of them and its own changes. If several set the same key, the last of them in the model's order wins,
    /// except that objects are merged member by member.
    pub fn set_state(&self, key: impl Into<String>, value: Value) {
        self.actions().state_delta.insert(key.into(), value);
    }

    /// Transfers the conversation to the agent named `target` after this call of a tool or a callback.
    ///
    /// # Errors
    /// As [`AgentHost::check_transfer`]; [`RunError::BadInput`] if the context was created without an engine.
    pub fn transfer_to(&self, target: &str) -> Result<(), RunError> {
        self.host()?.check_transfer(self, target)?;
        self.actions().transfer_to_agent = Some(target.into());
        Ok(())
    }

    /// Locks the changes, to read or to extend them. Do not hold the guard across an `await`.
    pub fn actions(&self) -> MutexGuard<'_, EventActions> {
        self.actions.lock_unpoisoned()
    }

    /// Removes and returns the changes.
    pub fn take_actions(&self) -> EventActions {
        std::mem::take(&mut *self.actions())
    }

    /// Searches the user's earlier sessions in this app.
    pub async fn search_memory(&self, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        let key = &self.invocation.session_key;
        self.invocation.services.memory.search(&key.app, &key.user, query).await
    }
}
