//! The state of a mock host and its records of the effects of code.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::Value;

use super::answer::ModelAnswer;
use super::scope::Call;
use super::{HttpRequest, HttpResponse, LogLine, Progress};
use crate::callback::ToolCall;
use crate::confirmation::ToolConfirmation;
use crate::content::{Content, JsonMap, Part};
use crate::context::MemoryEntry;
use crate::error::{Error, ToolError};
use crate::event::{Event, EventActions};
use crate::model::{LlmRequest, LlmResponse};
use crate::run_info::{PluginInfo, RunInfo};
use crate::runner::RunRequest;
use crate::tool::Tool;

/// Timestamp of a test's first event, in microseconds since 1970: the beginning of 2030. Each further event is one
/// second later.
const BEGINNING: i64 = 1_893_456_000_000_000;

/// A mock model.
pub(super) type MockModel = Rc<dyn Fn(LlmRequest) -> ModelAnswer>;

/// A mock embedder.
pub(super) type MockEmbedder = Rc<dyn Fn(String) -> Vec<f32>>;

/// A mock HTTP server.
pub(super) type Server = Rc<dyn Fn(HttpRequest) -> Result<HttpResponse, Error>>;

/// A mock app.
pub(super) type MockApp = Rc<dyn Fn(RunRequest) -> Vec<Event>>;

/// A session other than the run's own.
pub(super) struct MockSession {
    pub(super) state: JsonMap,
    pub(super) events: Vec<Event>,
    pub(super) created_micros: i64,
    pub(super) updated_micros: i64,
}

impl MockSession {
    /// Appends an event and applies its state changes.
    pub(super) fn append(&mut self, event: Event) {
        for (key, value) in &event.actions.state_delta {
            match value {
                Value::Null => drop(self.state.remove(key)),
                value => drop(self.state.insert(key.clone(), value.clone())),
            }
        }
        self.updated_micros = event.timestamp_micros;
        self.events.push(event);
    }
}

/// A tool that code can call.
#[derive(Clone)]
pub(super) enum CallableTool {
    /// A mock tool.
    Mock(Rc<dyn Fn(Value) -> Result<Value, ToolError>>),
    /// A tool of the component.
    Own(Tool),
}

/// The state of a mock host and its records of the effects of code.
pub(super) struct MockState {
    pub(super) info: RunInfo,
    pub(super) user_content: Option<Content>,
    pub(super) state: BTreeMap<String, Value>,
    pub(super) events: Vec<Event>,
    pub(super) config: JsonMap,
    /// The arguments with which the configuration uses the item that is called.
    pub(super) arguments: Option<Value>,
    /// The custom metadata of the request for the run.
    pub(super) run_metadata: JsonMap,
    /// Versions of artifacts, by name.
    pub(super) artifacts: BTreeMap<String, Vec<SavedArtifact>>,
    pub(super) memory: Vec<MemoryEntry>,
    pub(super) model: Option<MockModel>,
    /// Names and patterns of models that the component is granted.
    pub(super) models: Vec<String>,
    pub(super) embedder: Option<MockEmbedder>,
    /// Answers HTTP requests.
    pub(super) server: Option<Server>,
    pub(super) tools: BTreeMap<String, CallableTool>,
    pub(super) sub_agents: BTreeMap<String, Vec<Event>>,
    /// Mock apps that code runs.
    pub(super) apps: BTreeMap<String, MockApp>,
    /// Other sessions of the user, by app and id.
    pub(super) sessions: BTreeMap<(String, String), MockSession>,
    /// The plugins of the run.
    pub(super) plugins: Vec<PluginInfo>,
    /// A person's decision about tool calls.
    pub(super) decision: Option<(bool, Option<Value>)>,
    /// The credential that the user has granted.
    pub(super) credential: Option<Value>,

    pub(super) requests: Vec<LlmRequest>,
    pub(super) http_requests: Vec<HttpRequest>,
    pub(super) tool_calls: Vec<ToolCall>,
    pub(super) run_requests: Vec<RunRequest>,
    /// Ids of the runs that code has cancelled.
    pub(super) cancelled_runs: Vec<String>,
    pub(super) log: Vec<LogLine>,
    pub(super) progress: Vec<Progress>,
    pub(super) requested_confirmation: Option<ToolConfirmation>,
    /// The configuration of the credential that was requested last.
    pub(super) requested_credential: Option<Value>,
    /// The last confirmation request, which a decision refers to, also in a later run.
    pub(super) hint: String,
    /// Actions of the calls in this run.
    pub(super) actions: EventActions,

    runs: u32,
    function_calls: u32,
    keys: u32,
    ids: u32,
    ticks: i64,
}

impl MockState {
    pub(super) fn new() -> Self {
        let info = RunInfo {
            app: "app".into(),
            user: "user".into(),
            session: "session".into(),
            invocation_id: "e-1".into(),
            agent: "agent".into(),
            ..RunInfo::default()
        };
        Self {
            info,
            user_content: None,
            state: BTreeMap::new(),
            events: Vec::new(),
            config: JsonMap::new(),
            arguments: None,
            run_metadata: JsonMap::new(),
            artifacts: BTreeMap::new(),
            memory: Vec::new(),
            model: None,
            models: Vec::new(),
            embedder: None,
            server: None,
            tools: BTreeMap::new(),
            sub_agents: BTreeMap::new(),
            apps: BTreeMap::new(),
            sessions: BTreeMap::new(),
            plugins: Vec::new(),
            decision: None,
            credential: None,
            requests: Vec::new(),
            http_requests: Vec::new(),
            tool_calls: Vec::new(),
            run_requests: Vec::new(),
            cancelled_runs: Vec::new(),
            log: Vec::new(),
            progress: Vec::new(),
            requested_confirmation: None,
            requested_credential: None,
            hint: String::new(),
            actions: EventActions::default(),
            runs: 1,
            function_calls: 0,
            keys: 0,
            ids: 0,
            ticks: 0,
        }
    }

    /// Adds a user message. The first one belongs to the current run; each further one starts a new run.
    pub(super) fn user_says(&mut self, content: Content) {
        if self.user_content.is_some() {
            self.runs += 1;
            self.info.invocation_id = format!("e-{}", self.runs);
            self.state.retain(|key, _| !is_temp(key));
            self.actions = EventActions::default();
            self.requested_confirmation = None;
            self.requested_credential = None;
        }
        let message = Event { author: "user".into(), ..Event::from(content.clone()) };
        let message = self.complete(message, "user");
        self.store(&message);
        self.user_content = Some(content);
    }

    /// Fills in the fields of an event that the host sets.
    pub(super) fn complete(&mut self, mut event: Event, author: &str) -> Event {
        if event.id.is_empty() {
            event.id = self.new_id();
        }
        if event.author.is_empty() {
            event.author = author.into();
        }
        if event.invocation_id.is_empty() {
            event.invocation_id.clone_from(&self.info.invocation_id);
        }
        if event.branch.is_none() {
            event.branch.clone_from(&self.info.branch);
        }
        if event.timestamp_micros == 0 {
            event.timestamp_micros = self.now();
        }
        event
    }

    /// Stores an event, unless it is partial, and applies its state changes. Returns the stored event.
    pub(super) fn store(&mut self, event: &Event) -> Event {
        let mut event = event.clone();
        if !event.partial {
            self.apply(event.actions.clone());
            event.actions.state_delta.retain(|key, _| !is_temp(key));
            self.events.push(event.clone());
        }
        event
    }

    /// Stores the changes of a call as an event. `None` if there are none.
    pub(super) fn flush(&mut self, call: &Call) -> Option<Event> {
        let actions = call.actions.take();
        (actions != EventActions::default()).then(|| {
            let event = self.complete(Event { actions, ..Event::default() }, &call.agent);
            self.store(&event)
        })
    }

    /// Applies the actions of a call.
    pub(super) fn apply(&mut self, actions: EventActions) {
        for (key, value) in &actions.state_delta {
            if value.is_null() {
                self.state.remove(key);
            } else {
                self.state.insert(key.clone(), value.clone());
            }
        }
        merge(&mut self.actions, actions);
    }

    pub(super) fn new_id(&mut self) -> String {
        self.ids += 1;
        format!("event-{}", self.ids)
    }

    pub(super) fn new_function_call_id(&mut self) -> String {
        self.function_calls += 1;
        format!("call-{}", self.function_calls)
    }

    pub(super) fn new_idempotency_key(&mut self) -> String {
        self.keys += 1;
        format!("key-{}", self.keys)
    }

    /// Returns the state as a call sees it.
    pub(super) fn state_for(&self, call: &Call) -> BTreeMap<String, Value> {
        let mut state = self.state.clone();
        for (key, value) in &call.actions.borrow().state_delta {
            if value.is_null() {
                state.remove(key);
            } else {
                state.insert(key.clone(), value.clone());
            }
        }
        state
    }

    /// Returns the events of a sub-agent.
    pub(super) fn sub_agent(&self, name: &str) -> Option<Vec<Event>> {
        self.sub_agents.get(name).cloned()
    }

    /// Returns memory entries that contain words of the query: those with the most matches first, then the newest.
    pub(super) fn search_memory(&self, query: &str) -> Vec<MemoryEntry> {
        let query_words = words(query);
        let matches = |entry: &MemoryEntry| query_words.intersection(&words(&entry.content.text())).count();
        let mut entries: Vec<_> = self.memory.iter().map(|entry| (matches(entry), entry)).collect();
        entries.retain(|(matches, _)| *matches > 0);
        entries.sort_by_key(|(matches, entry)| std::cmp::Reverse((*matches, entry.timestamp_micros)));
        entries.into_iter().map(|(_, entry)| entry.clone()).collect()
    }

    /// Adds the events with content to the memory, except for those that it has.
    pub(super) fn remember(&mut self, events: Vec<Event>) {
        for event in events {
            let Some(content) = event.content else { continue };
            let entry = MemoryEntry { content, author: Some(event.author), timestamp_micros: event.timestamp_micros };
            if !self.memory.contains(&entry) {
                self.memory.push(entry);
            }
        }
    }

    /// Records a request. Returns the model to call, or an error if there is none.
    pub(super) fn record_request(&mut self, mut request: LlmRequest, own: Option<&str>) -> Result<ModelCall, Error> {
        if request.model.is_empty() {
            request.model = own.unwrap_or_default().to_owned();
        }
        self.requests.push(request.clone());
        let model = self.model.clone().ok_or_else(|| {
            let message =
                format!("model `{}`: there is none; add `.model(|request| \"…\")` to the test's host", request.model);
            Error::new("MODEL_UNKNOWN", message)
        })?;
        Ok(ModelCall { model, request })
    }

    /// Saves a version of an artifact, and returns its number.
    pub(super) fn save_artifact(&mut self, name: String, part: Part, custom_metadata: JsonMap) -> u64 {
        let saved = SavedArtifact { part, custom_metadata, created_micros: self.now() };
        let versions = self.artifacts.entry(name).or_default();
        versions.push(saved);
        versions.len() as u64 - 1
    }

    pub(super) fn now(&mut self) -> i64 {
        self.ticks += 1;
        BEGINNING + (self.ticks - 1) * 1_000_000
    }
}

/// A version of an artifact.
pub(super) struct SavedArtifact {
    pub(super) part: Part,
    pub(super) custom_metadata: JsonMap,
    pub(super) created_micros: i64,
}

/// A mock model with its request.
pub(super) struct ModelCall {
    model: MockModel,
    request: LlmRequest,
}

impl ModelCall {
    /// Returns the responses: partial ones and the complete one, or only the complete one. The mock must not be
    /// borrowed, because the model is code of the test.
    pub(super) fn answer(self, streamed: bool) -> Result<Vec<LlmResponse>, Error> {
        (self.model)(self.request).responses(streamed)
    }
}

/// Merges later actions into earlier ones.
pub(super) fn merge(actions: &mut EventActions, later: EventActions) {
    actions.state_delta.extend(later.state_delta);
    for (name, version) in later.artifact_delta {
        actions.artifact_delta.retain(|(known, _)| *known != name);
        actions.deleted_artifact_ids.retain(|known| *known != name);
        actions.artifact_delta.push((name, version));
    }
    for name in later.deleted_artifact_ids {
        actions.artifact_delta.retain(|(known, _)| *known != name);
        if !actions.deleted_artifact_ids.contains(&name) {
            actions.deleted_artifact_ids.push(name);
        }
    }
    actions.skip_summarization = later.skip_summarization.or(actions.skip_summarization);
    actions.transfer_to_agent = later.transfer_to_agent.or(actions.transfer_to_agent.take());
    actions.escalate = later.escalate.or(actions.escalate);
    actions.end_invocation = later.end_invocation.or(actions.end_invocation);
    actions.end_of_agent = later.end_of_agent.or(actions.end_of_agent);
    actions.extra.extend(later.extra);
}

/// Returns true for keys that only exist during one run.
fn is_temp(key: &str) -> bool {
    key.starts_with("temp:")
}

/// Checks the name of an artifact.
pub(super) fn check_artifact_name(name: &str) -> Result<(), Error> {
    let bare = name.strip_prefix("user:").unwrap_or(name);
    let reason = if bare.is_empty() {
        "an artifact needs a name"
    } else if bare.starts_with('/') {
        "the name of an artifact cannot start with `/`"
    } else if bare.split(['/', '\\']).any(|segment| segment == "..") {
        "the name of an artifact cannot have `..` between its slashes"
    } else if bare.contains('\0') {
        "the name of an artifact cannot hold a NUL character"
    } else {
        return Ok(());
    };
    Err(Error::new("INVALID_NAME", format!("invalid name `{name}`: {reason}")))
}

fn words(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}
