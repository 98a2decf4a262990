//! Setting up a mock host.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::Value;

use super::answer::ModelAnswer;
use super::mock_state::{CallableTool, MockSession, MockState};
use super::{Host, HttpRequest, HttpResponse, item_name};
use crate::content::{Content, JsonMap, Part};
use crate::context::MemoryEntry;
use crate::credential::Credential;
use crate::error::{Error, ToolError};
use crate::event::Event;
use crate::model::LlmRequest;
use crate::run_info::{PluginInfo, RemainingLimits, StreamingMode};
use crate::runner::RunRequest;
use crate::tool::Tool;

/// Setup. These methods can also be called between two runs, as in `let host = host.user_says("And then?");`.
impl Host {
    /// Creates an empty mock host: the session `session` of the user `user` of the app `app`, without events.
    pub fn new() -> Self {
        Self(Rc::new(RefCell::new(MockState::new())))
    }

    /// Adds the user message that starts the run. A further message starts a new run: `temp:…` keys are removed, and
    /// confirmation requests, transfers and escalations are reset.
    pub fn user_says(self, text: impl Into<String>) -> Self {
        self.user_sends(Content::user(text))
    }

    /// Adds a user message with any content.
    pub fn user_sends(self, content: Content) -> Self {
        self.with(|mock| mock.user_says(content))
    }

    /// Sets a state key; `null` deletes it.
    pub fn state(self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        let (key, value) = (key.into(), value.into());
        self.with(|mock| match value {
            Value::Null => drop(mock.state.remove(&key)),
            value => drop(mock.state.insert(key, value)),
        })
    }

    /// Sets a setting of the component, as in `hatchery.yaml`.
    pub fn config(self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.with(|mock| drop(mock.config.insert(key.into(), value.into())))
    }

    /// Adds a plugin of the run that code looks up.
    pub fn has_plugin(self, plugin: PluginInfo) -> Self {
        self.with(|mock| mock.plugins.push(plugin))
    }

    /// Sets the arguments with which the configuration uses the tool or plugin that is called.
    pub fn arguments(self, arguments: impl Into<Value>) -> Self {
        self.with(|mock| mock.arguments = Some(arguments.into()))
    }

    /// Sets a key of the custom metadata that the request for the run has.
    pub fn run_metadata(self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.with(|mock| drop(mock.run_metadata.insert(key.into(), value.into())))
    }

    /// Adds an event to the session, and applies its state changes.
    pub fn event(self, event: impl Into<Event>) -> Self {
        self.with(|mock| {
            let event = mock.complete(event.into(), "agent");
            mock.store(&event);
        })
    }

    /// Saves a version of an artifact: of the session, or of the user when its name starts with `user:`.
    pub fn artifact(self, name: impl Into<String>, part: impl Into<Part>) -> Self {
        self.with(|mock| {
            mock.save_artifact(name.into(), part.into(), JsonMap::new());
        })
    }

    /// Adds a user message from an earlier session to the memory. A memory search finds entries that contain words of
    /// the query.
    pub fn remembers(self, text: impl Into<String>) -> Self {
        let content = Content::user(text);
        self.remembers_entry(MemoryEntry { content, author: Some("user".into()), timestamp_micros: 0 })
    }

    /// Adds an entry from an earlier session to the memory. A timestamp of 0 means later than all before it.
    pub fn remembers_entry(self, mut entry: MemoryEntry) -> Self {
        self.with(|mock| {
            if entry.timestamp_micros == 0 {
                entry.timestamp_micros = mock.now();
            }
            mock.memory.push(entry);
        })
    }

    /// Answers all model calls: with a string, an [`LlmResponse`](crate::LlmResponse), an [`Error`], or a
    /// [`ModelAnswer`] with partial responses. The request contains the model's name.
    pub fn model<A: Into<ModelAnswer>>(self, answer: impl Fn(LlmRequest) -> A + 'static) -> Self {
        self.with(|mock| mock.model = Some(Rc::new(move |request| answer(request).into())))
    }

    /// Adds a name or pattern to the models that the component is granted.
    pub fn may_use_model(self, pattern: impl Into<String>) -> Self {
        self.with(|mock| mock.models.push(pattern.into()))
    }

    /// Embeds all texts.
    pub fn embedder(self, embed: impl Fn(String) -> Vec<f32> + 'static) -> Self {
        self.with(|mock| mock.embedder = Some(Rc::new(embed)))
    }

    /// Adds a mock tool by its name or as `component/tool`: a function from arguments to result.
    pub fn tool(self, name: impl AsRef<str>, answer: impl Fn(Value) -> Result<Value, ToolError> + 'static) -> Self {
        let name = item_name(name.as_ref()).to_owned();
        self.with(|mock| drop(mock.tools.insert(name, CallableTool::Mock(Rc::new(answer)))))
    }

    /// Adds a tool of the component that its other code may call. It runs in this host as well.
    pub fn own_tool(self, tool: impl FnOnce() -> Tool) -> Self {
        let tool = tool();
        self.with(|mock| drop(mock.tools.insert(tool.name.to_owned(), CallableTool::Own(tool))))
    }

    /// Adds a mock sub-agent by its name or as `component/agent`, with the events that it emits in each run. An event
    /// with an error code is its failure. For a custom agent of the same component, these can be the events that
    /// [`Host::run`] returned.
    pub fn sub_agent<E: Into<Event>>(self, name: impl AsRef<str>, events: impl IntoIterator<Item = E>) -> Self {
        let name = item_name(name.as_ref()).to_owned();
        let events = events.into_iter().map(Into::into).collect();
        self.with(|mock| drop(mock.sub_agents.insert(name, events)))
    }

    /// Adds a mock app that code can run: a function from the request to the events of the run. An event with an error
    /// code is its failure.
    pub fn runs_app<E, I>(self, name: impl Into<String>, answer: impl Fn(RunRequest) -> I + 'static) -> Self
    where
        E: Into<Event>,
        I: IntoIterator<Item = E>,
    {
        let answer = Rc::new(move |request| answer(request).into_iter().map(Into::into).collect());
        self.with(|mock| drop(mock.apps.insert(name.into(), answer)))
    }

    /// Adds another session of the user, in any app.
    pub fn other_session<E: Into<Event>>(
        self,
        app: impl Into<String>,
        id: impl Into<String>,
        events: impl IntoIterator<Item = E>,
    ) -> Self {
        let events: Vec<_> = events.into_iter().map(Into::into).collect();
        self.with(|mock| {
            let now = mock.now();
            let mut session =
                MockSession { state: JsonMap::new(), events: Vec::new(), created_micros: now, updated_micros: now };
            for event in events {
                session.append(mock.complete(event, "agent"));
            }
            mock.sessions.insert((app.into(), id.into()), session);
        })
    }

    /// Answers all HTTP requests. An [`Error`] means no response, for example one with the code `DENIED` for a host
    /// that is not granted.
    pub fn http(self, answer: impl Fn(HttpRequest) -> Result<HttpResponse, Error> + 'static) -> Self {
        self.with(|mock| mock.server = Some(Rc::new(answer)))
    }

    /// Sets the app.
    pub fn app(self, name: impl Into<String>) -> Self {
        self.with(|mock| mock.info.app = name.into())
    }

    /// Sets the user.
    pub fn user(self, id: impl Into<String>) -> Self {
        self.with(|mock| mock.info.user = id.into())
    }

    /// Sets the id of the session.
    pub fn session(self, id: impl Into<String>) -> Self {
        self.with(|mock| mock.info.session = id.into())
    }

    /// Sets the agent that tools, callbacks and other items run for. A custom agent runs under its own name.
    pub fn agent(self, name: impl Into<String>) -> Self {
        self.with(|mock| mock.info.agent = name.into())
    }

    /// Sets the agent's branch, a dot-joined path.
    pub fn branch(self, path: impl Into<String>) -> Self {
        self.with(|mock| mock.info.branch = Some(path.into()))
    }

    /// Sets how the client receives the responses of models.
    pub fn streaming_mode(self, mode: StreamingMode) -> Self {
        self.with(|mock| mock.info.streaming_mode = mode)
    }

    /// Sets whether the run can pause and be continued later.
    pub fn resumable(self, is_resumable: bool) -> Self {
        self.with(|mock| mock.info.is_resumable = is_resumable)
    }

    /// Sets the remaining limits of the run.
    pub fn remaining(self, remaining: RemainingLimits) -> Self {
        self.with(|mock| mock.info.remaining = remaining)
    }

    /// Lets a person approve the tool call.
    pub fn approve(self) -> Self {
        self.with(|mock| mock.decision = Some((true, None)))
    }

    /// Lets a person approve the tool call with this payload.
    pub fn approve_with(self, payload: impl Into<Value>) -> Self {
        self.with(|mock| mock.decision = Some((true, Some(payload.into()))))
    }

    /// Lets a person reject the tool call.
    pub fn reject(self) -> Self {
        self.with(|mock| mock.decision = Some((false, None)))
    }

    /// Lets the user grant this credential to all requests for one.
    pub fn grant_credential(self, credential: Credential) -> Self {
        self.with(|mock| mock.credential = Some(credential.0))
    }

    fn with(self, change: impl FnOnce(&mut MockState)) -> Self {
        change(&mut self.0.borrow_mut());
        self
    }
}
