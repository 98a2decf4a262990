//! What running code is given: the [`Invocation`] that all parts of a run share, the [`CallContext`] of one tool or callback call, and
//! the [`AgentContext`] of a custom agent.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use async_trait::async_trait;
use futures::StreamExt;
use imbl::Vector;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::artifact::ArtifactService;
use crate::caller::Caller;
use crate::confirmation::{REQUEST_CONFIRMATION, ToolConfirmation};
use crate::content::{Content, JsonMap, Part};
use crate::error::{ModelError, RunError, StoreError, ToolError};
use crate::event::{Event, EventActions, EventData, USER_AUTHOR, UsageMetadata};
use crate::memory::{MemoryEntry, MemoryService};
use crate::model::{LlmRequest, LlmResponse, Model, ModelResolver, ResponseStream, StreamingMode};
use crate::plugin::Plugin;
use crate::provenance::{Claim, EventSigner, remove_proof};
use crate::session::{Session, SessionKey, SessionService};
use crate::state::{State, StateScope};
use crate::tool::ToolAuthorizer;

/// The services that a run uses.
#[derive(Clone)]
pub struct Services {
    /// Sessions.
    pub sessions: Arc<dyn SessionService>,
    /// Artifacts.
    pub artifacts: Arc<dyn ArtifactService>,
    /// Memory.
    pub memory: Arc<dyn MemoryService>,
    /// Models by name.
    pub models: Arc<dyn ModelResolver>,
}

/// How a run is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct RunConfig {
    /// Whether pieces of answers are yielded as they come.
    pub streaming_mode: StreamingMode,
    /// Most model calls of the run; 0 is no limit.
    pub max_llm_calls: u32,
    /// Whether the tool calls of one model answer run at the same time.
    pub tool_execution: ToolExecution,
    /// Whether an unknown session is created.
    pub auto_create_session: bool,
    /// Most tokens, as the models count them, of all model calls of the run together; 0 is no limit.
    pub max_tokens: u64,
    /// Most events of the run that are stored; 0 is no limit.
    pub max_events: u32,
    /// Most bytes of the JSON of all events of the run, streamed pieces included; 0 is no limit.
    pub max_run_bytes: u64,
    /// Whether files in the user's message are saved as artifacts, and only named in the session.
    pub save_input_blobs_as_artifacts: bool,
    /// Whether the calls of one turn come before all their responses in a prompt; by default as the model wants it.
    pub group_function_responses: Option<bool>,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            streaming_mode: StreamingMode::Off,
            max_llm_calls: 500,
            tool_execution: ToolExecution::Parallel,
            auto_create_session: false,
            max_tokens: 0,
            max_events: 2_000,
            max_run_bytes: 32 << 20,
            save_input_blobs_as_artifacts: false,
            group_function_responses: None,
        }
    }
}

/// How the tool calls of one model answer run. Their results keep the order of the calls either way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolExecution {
    /// At the same time.
    #[default]
    Parallel,
    /// One after the other.
    Sequential,
}

/// One run for one user message: what all its agents, tools and callbacks share.
pub struct Invocation {
    /// `e-<uuid>`.
    pub id: String,
    /// The session.
    pub session_key: SessionKey,
    /// Who asked for the run.
    pub caller: Caller,
    /// What the user said. A plugin may change it before it is stored, and nobody after that.
    pub user_content: RwLock<Arc<Content>>,
    /// How the run is wanted.
    pub run_config: RunConfig,
    /// The services.
    pub services: Services,
    /// Cancelled when the run is to stop.
    pub cancel: CancellationToken,
    /// The session as it is now. Events and stored state are written by the run's event log only; `temp:` state lives only here.
    pub session: RwLock<Session>,
    /// What the run has used up so far, together with the agents that are called as tools.
    pub spent: Arc<RunUsage>,
    /// How many agents called as tools this run is inside of.
    pub depth: u32,
    /// Proves which events the host itself has made.
    pub signer: EventSigner,
}

/// What a run has used up.
#[derive(Debug, Default)]
pub struct RunUsage {
    /// Model calls.
    pub llm_calls: AtomicU32,
    /// Tokens, as the models count them.
    pub tokens: AtomicU64,
    /// Steps of checks against JSON Schemas.
    pub check_steps: AtomicU64,
    /// Events that are stored or, of agents called as tools, kept until the call ends.
    pub events: AtomicU32,
    /// Bytes of the JSON of these events and of all streamed pieces.
    pub event_bytes: AtomicU64,
    /// The limit of events or bytes that was exceeded first.
    exceeded: OnceLock<ExceededLimit>,
}

/// A limit of the run, and the agent that exceeded it.
#[derive(Debug)]
struct ExceededLimit {
    limit: &'static str,
    value: u64,
    agent: String,
    key: &'static str,
}

impl RunUsage {
    /// The responses of one model call, whose tokens are counted as they come. Each response tells the tokens of the call so far.
    fn counting(self: Arc<Self>, responses: ResponseStream) -> ResponseStream {
        let mut counted = 0;
        let count = move |item: &Result<LlmResponse, ModelError>| {
            let usage = item.as_ref().ok().and_then(|response| response.usage_metadata.as_ref());
            let total = usage.map_or(0, UsageMetadata::total);
            self.tokens.fetch_add(total.saturating_sub(counted), Ordering::Relaxed);
            counted = counted.max(total);
        };
        responses.inspect(count).boxed()
    }
}

impl Invocation {
    /// What the user said.
    pub fn user_content(&self) -> Arc<Content> {
        self.user_content.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state as it is now.
    pub fn state(&self) -> State {
        self.session.read().unwrap_or_else(PoisonError::into_inner).state.clone()
    }

    /// True when the event carries a valid proof of the claim: this host has made it, in this session.
    pub fn proves(&self, event: &EventData, claim: Claim) -> bool {
        self.signer.proves(&self.session_key, event, claim)
    }

    /// The events so far.
    pub fn events(&self) -> Vector<Arc<Event>> {
        self.session.read().unwrap_or_else(PoisonError::into_inner).events.clone()
    }

    /// Takes the `temp:` keys out of a state delta and into the state of this run: they are never stored.
    #[must_use]
    pub fn without_temp(&self, mut delta: JsonMap) -> JsonMap {
        if delta.keys().any(|key| StateScope::of(key).0 == StateScope::Temp) {
            let mut session = self.session.write().unwrap_or_else(PoisonError::into_inner);
            delta.retain(|key, value| {
                let stored = StateScope::of(key).0 != StateScope::Temp;
                if !stored {
                    session.state.set(key, value.take());
                }
                stored
            });
        }
        delta
    }

    /// Counts a model call of `agent`.
    ///
    /// # Errors
    /// When it is one too many.
    pub fn count_llm_call(&self, agent: &str) -> Result<(), RunError> {
        let calls = self.spent.llm_calls.fetch_add(1, Ordering::Relaxed) + 1;
        let most = self.run_config.max_llm_calls;
        if most > 0 && calls > most {
            return Err(RunError::Limit {
                limit: "Max number of llm calls limit",
                value: u64::from(most),
                agent: agent.into(),
                key: "max_llm_calls",
            });
        }
        Ok(())
    }

    /// Counts an event of an agent before it is stored or sent on. Once one is refused, so are all that follow.
    ///
    /// # Errors
    /// [`RunError::Limit`] if it is one too many, or too large.
    pub fn count_event(&self, event: &Event) -> Result<(), RunError> {
        let (most_events, most_bytes) = (self.run_config.max_events, self.run_config.max_run_bytes);
        if !event.partial && most_events > 0 {
            let events = self.spent.events.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            if events > most_events {
                let limit = "the limit of events in one run";
                return Err(self.exceed(limit, u64::from(most_events), "max_events", event));
            }
        }
        if most_bytes > 0 {
            // The JSON is kept for the store or the client, which need it next.
            let bytes = event.json().len() as u64;
            let bytes = self.spent.event_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
            if bytes > most_bytes {
                let limit = "the limit of bytes of events in one run";
                return Err(self.exceed(limit, most_bytes, "max_run_bytes", event));
            }
        }
        Ok(())
    }

    /// Notes that an event has exceeded a limit; the first of a run goes to the audit log.
    fn exceed(&self, limit: &'static str, value: u64, key: &'static str, event: &Event) -> RunError {
        let agent = event.author.clone();
        if self.spent.exceeded.set(ExceededLimit { limit, value, agent: agent.clone(), key }).is_ok() {
            let SessionKey { app, user, id: session } = &self.session_key;
            let origin = self.caller.origin;
            let detail = format!("{limit} of {value} reached by agent `{agent}`");
            tracing::warn!(
                target: "hatchery::audit", %app, %user, %session, invocation = self.id, %origin, limit = key, detail,
                "limit"
            );
        }
        RunError::Limit { limit, value, agent, key }
    }

    /// The error of the limit of events or bytes that the run has exceeded, if any. It ends the run also if an agent goes on.
    pub fn exceeded_limit(&self) -> Option<RunError> {
        let ExceededLimit { limit, value, agent, key } = self.spent.exceeded.get()?;
        Some(RunError::Limit { limit, value: *value, agent: agent.clone(), key })
    }

    /// Refuses `agent` a model call once the run's tokens are spent.
    fn check_tokens(&self, agent: &str) -> Result<(), RunError> {
        let most = self.run_config.max_tokens;
        if most > 0 && self.spent.tokens.load(Ordering::Relaxed) >= most {
            return Err(RunError::Limit {
                limit: "the limit of tokens in one run",
                value: most,
                agent: agent.into(),
                key: "max_tokens",
            });
        }
        Ok(())
    }

    /// Asks a model, counting the call for `agent` and the tokens of the answer; ends early when the run is cancelled. All model calls of
    /// a run go through here.
    ///
    /// # Errors
    /// When the model refuses, a limit is reached or the run is cancelled.
    pub async fn generate(
        &self,
        agent: &str,
        model: &dyn Model,
        request: LlmRequest,
        streaming_mode: StreamingMode,
    ) -> Result<ResponseStream, RunError> {
        self.check_tokens(agent)?;
        self.count_llm_call(agent)?;
        match self.cancel.run_until_cancelled(model.generate(request, streaming_mode)).await {
            Some(responses) => Ok(self.spent.clone().counting(responses?)),
            None => Err(RunError::Cancelled),
        }
    }
}

/// What one call of a tool or a callback, or one run of an agent, may look at and change. Changes are collected as the
/// [`EventActions`] of the event that reports the call, and seen at once by whoever reads state through the same context.
#[derive(Clone)]
pub struct CallContext {
    /// The run.
    pub invocation: Arc<Invocation>,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The agent's branch.
    pub branch: Option<Arc<str>>,
    /// The id of the function call, in tools and tool callbacks.
    pub function_call_id: Option<Arc<str>>,
    confirmation: Option<Arc<ToolConfirmation>>,
    host: Option<Arc<dyn AgentHost>>,
    actions: Arc<Mutex<EventActions>>,
}

impl CallContext {
    /// A context without changes.
    pub fn new(invocation: Arc<Invocation>, agent: impl Into<Arc<str>>, branch: Option<Arc<str>>) -> Self {
        Self {
            invocation,
            agent: agent.into(),
            branch,
            function_call_id: None,
            confirmation: None,
            host: None,
            actions: Arc::default(),
        }
    }

    /// With what the engine can do for running code.
    #[must_use]
    pub fn with_host(mut self, host: Arc<dyn AgentHost>) -> Self {
        self.host = Some(host);
        self
    }

    /// What the engine can do for running code.
    ///
    /// # Errors
    /// When the context was made without an engine.
    pub fn host(&self) -> Result<&Arc<dyn AgentHost>, RunError> {
        self.host.as_ref().ok_or_else(|| RunError::BadInput("this call runs outside an agent".into()))
    }

    /// A context for a function call, with its own changes.
    #[must_use]
    pub fn for_call(&self, id: Option<&str>) -> Self {
        Self { function_call_id: id.map(Into::into), confirmation: None, actions: Arc::default(), ..self.clone() }
    }

    /// With what a person has decided about the call.
    #[must_use]
    pub fn with_confirmation(mut self, confirmation: Option<ToolConfirmation>) -> Self {
        self.confirmation = confirmation.map(Arc::new);
        self
    }

    /// What a person has decided about this call, once they have been asked.
    pub fn confirmation(&self) -> Option<&ToolConfirmation> {
        self.confirmation.as_deref()
    }

    /// Asks a person about this call. The call's answer should say that it waits; once they have decided, the tool is called again with
    /// the same arguments, and [`CallContext::confirmation`] tells the decision.
    ///
    /// # Errors
    /// Outside a function call, and inside of an agent that is called as a tool.
    pub fn request_confirmation(&self, hint: impl Into<String>, payload: Option<Value>) -> Result<(), RunError> {
        let Some(id) = self.function_call_id.as_deref() else {
            return Err(RunError::BadInput("a confirmation can be asked for only in a tool call".into()));
        };
        if self.invocation.depth > 0 {
            let message = "a confirmation cannot be asked for inside of an agent that is called as a tool";
            return Err(RunError::BadInput(message.into()));
        }
        let request = ToolConfirmation { hint: hint.into(), confirmed: false, payload };
        // Of strings, a bool and JSON: this cannot fail.
        let request = serde_json::to_value(request).unwrap_or_default();
        self.actions().requested_tool_confirmations.insert(id.into(), request);
        Ok(())
    }

    /// Who asked for the run.
    pub fn caller(&self) -> &Caller {
        &self.invocation.caller
    }

    /// The value of a state key, own changes included.
    pub fn state(&self, key: &str) -> Option<Value> {
        if let Some(value) = self.actions().state_delta.get(key) {
            return (!crate::state::is_state_removal(value)).then(|| value.clone());
        }
        self.invocation.session.read().unwrap_or_else(PoisonError::into_inner).state.get(key).cloned()
    }

    /// All state, own changes included.
    pub fn full_state(&self) -> State {
        let mut state = self.invocation.state();
        state.apply(&self.actions().state_delta);
        state
    }

    /// Sets a state key; `null` deletes it. Tool calls of one model answer run at the same time: each sees the state from before all of
    /// them and its own changes, and where several set one key, the last of them in the model's order wins.
    pub fn set_state(&self, key: impl Into<String>, value: Value) {
        self.actions().state_delta.insert(key.into(), value);
    }

    /// The changes, to read or to add to.
    pub fn actions(&self) -> MutexGuard<'_, EventActions> {
        self.actions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the changes out.
    pub fn take_actions(&self) -> EventActions {
        std::mem::take(&mut *self.actions())
    }

    /// Saves an artifact, and notes it in the changes.
    ///
    /// # Errors
    /// As the artifact service.
    pub async fn save_artifact(&self, name: &str, part: &Part) -> Result<u64, StoreError> {
        let version = self.invocation.services.artifacts.save(&self.invocation.session_key, name, part).await?;
        self.actions().artifact_delta.insert(name.into(), version);
        Ok(version)
    }

    /// Loads an artifact, the newest version when none is named.
    ///
    /// # Errors
    /// As the artifact service.
    pub async fn load_artifact(&self, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError> {
        self.invocation.services.artifacts.load(&self.invocation.session_key, name, version).await
    }

    /// Names of the artifacts.
    ///
    /// # Errors
    /// As the artifact service.
    pub async fn list_artifacts(&self) -> Result<Vec<String>, StoreError> {
        self.invocation.services.artifacts.list(&self.invocation.session_key).await
    }

    /// Searches the user's memory.
    ///
    /// # Errors
    /// As the memory service.
    pub async fn search_memory(&self, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        let key = &self.invocation.session_key;
        self.invocation.services.memory.search(&key.app, &key.user, query).await
    }
}

/// Where an agent's events go: into the session's log, or to an agent that relays them.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// Takes an event. When this returns, the event is stored (unless it is partial) and the session shows it. Gives the event that was
    /// stored, which a plugin may have put in its place.
    ///
    /// # Errors
    /// When it cannot be stored, or the run is cancelled: the agent must stop.
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError>;
}

/// What a custom agent can have the engine do.
#[async_trait]
pub trait AgentHost: Send + Sync {
    /// Runs the agent named `name`, which must be below the agent of `cx`, sending its events to `sink`.
    ///
    /// # Errors
    /// When there is no such agent, or its run fails.
    async fn run_sub_agent(&self, cx: &CallContext, name: &str, sink: Arc<dyn EventSink>) -> Result<(), RunError>;

    /// Judges an event that the agent of `cx` is about to emit, complete but for its proof, and gives what the host vouches for in it.
    ///
    /// # Errors
    /// When the agent may not say this.
    fn admit(&self, cx: &CallContext, event: &EventData) -> Result<Option<Claim>, RunError> {
        let _ = (cx, event);
        Ok(None)
    }

    /// The plugins that follow the run into agents which are called as tools; by default there are none.
    fn plugins(&self) -> Vec<Arc<dyn Plugin>> {
        Vec::new()
    }

    /// Calls one of the tools that the agent of `cx` was given. Plugins have their say before and after it.
    ///
    /// # Errors
    /// As the tool; an unknown name is an error for the model that lists the valid ones.
    async fn call_tool(&self, cx: &CallContext, name: &str, args: JsonMap) -> Result<Value, ToolError> {
        self.call_checked_tool(cx, name, args, &|_| Ok(())).await
    }

    /// The same, if `check` allows the tool that has this name for the agent.
    ///
    /// # Errors
    /// The error of the check, when nothing is called; else as [`AgentHost::call_tool`].
    async fn call_checked_tool(
        &self,
        cx: &CallContext,
        name: &str,
        args: JsonMap,
        check: ToolAuthorizer<'_>,
    ) -> Result<Value, ToolError>;

    /// The model of the agent of `cx`: its own, or that of the nearest agent above that has one.
    ///
    /// # Errors
    /// When there is none, or the registry does not know it.
    fn model(&self, cx: &CallContext) -> Result<(String, Arc<dyn Model>), RunError>;
}

/// What a custom agent is given for one run.
#[derive(Clone)]
pub struct AgentContext {
    /// State, artifacts, memory, tools and the run.
    pub call: CallContext,
    /// Where its events go.
    pub sink: Arc<dyn EventSink>,
}

impl AgentContext {
    /// Completes an event (author, branch, invocation, pending changes of state) and sends it on. A proof that it carries is taken out.
    ///
    /// # Errors
    /// As [`EventSink::emit`]; when the author is the user, for whom only the user speaks; when it asks for a confirmation in the name of
    /// another agent, whose tool would then run; and as [`AgentHost::admit`].
    pub async fn emit(&self, data: EventData) -> Result<Arc<Event>, RunError> {
        self.complete(data, None).await
    }

    /// The same with a proof of what the event claims. For the engine, which alone knows whether that is true.
    ///
    /// # Errors
    /// As [`AgentContext::emit`].
    pub async fn emit_with_proof(&self, data: EventData, claim: Claim) -> Result<Arc<Event>, RunError> {
        self.complete(data, Some(claim)).await
    }

    async fn complete(&self, mut data: EventData, claim: Option<Claim>) -> Result<Arc<Event>, RunError> {
        if data.author.is_empty() {
            data.author = self.call.agent.to_string();
        } else if data.author == USER_AUTHOR {
            let message = format!("may not speak as `{USER_AUTHOR}`; leave the author of its events empty");
            return Err(RunError::Agent { agent: self.call.agent.to_string(), code: "AGENT_FAILED".into(), message });
        } else if data.author != *self.call.agent && asks_for_confirmation(&data) {
            let message = format!("may not ask for a confirmation as `{}`; that agent asks by itself", data.author);
            return Err(RunError::Agent { agent: self.call.agent.to_string(), code: "AGENT_FAILED".into(), message });
        }
        let vouched = match self.call.host.as_ref() {
            Some(host) => host.admit(&self.call, &data)?,
            None => None,
        };
        data.invocation_id.clone_from(&self.call.invocation.id);
        if data.branch.is_none() {
            data.branch = self.call.branch.as_deref().map(Into::into);
        }
        if !data.partial {
            let mut actions = self.call.take_actions();
            actions.merge(std::mem::take(&mut data.actions));
            actions.state_delta = self.call.invocation.without_temp(actions.state_delta);
            data.actions = actions;
        }
        let Invocation { signer, session_key, .. } = self.call.invocation.as_ref();
        match claim.or(vouched).filter(|_| !data.partial) {
            Some(claim) => signer.sign(session_key, &mut data, claim),
            None => remove_proof(&mut data),
        }
        self.sink.emit(Event::new(data)).await
    }

    /// Stores pending changes in an event of their own, so that others see them.
    ///
    /// # Errors
    /// As [`EventSink::emit`].
    pub async fn flush(&self) -> Result<(), RunError> {
        if !self.call.actions().is_empty() {
            self.emit(EventData::default()).await?;
        }
        Ok(())
    }

    /// Says a text.
    ///
    /// # Errors
    /// As [`EventSink::emit`].
    pub async fn say(&self, text: impl Into<String>) -> Result<Arc<Event>, RunError> {
        let content = Some(Arc::new(Content::model(text)));
        self.emit(EventData { content, ..EventData::default() }).await
    }

    /// Runs a sub agent, its events going where this agent's go. It sees the changes that this agent has made.
    ///
    /// # Errors
    /// As [`AgentHost::run_sub_agent`].
    pub async fn run_sub_agent(&self, name: &str) -> Result<(), RunError> {
        self.flush().await?;
        self.call.host()?.run_sub_agent(&self.call, name, self.sink.clone()).await
    }
}

fn asks_for_confirmation(data: &EventData) -> bool {
    let mut calls = data.content.iter().flat_map(|content| content.function_calls());
    calls.any(|call| call.name == REQUEST_CONFIRMATION)
}
