//! What a test sets up.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::Value;

use super::answer::ModelAnswer;
use super::world::{AnyTool, World};
use super::{Host, HttpRequest, HttpResponse, item_name};
use crate::content::{Content, Part};
use crate::context::MemoryEntry;
use crate::error::{Error, ToolError};
use crate::event::Event;
use crate::model::LlmRequest;
use crate::tool::Tool;

/// Setting up. Each of these may also be called between two runs, as in `let host = host.user_says("And then?");`.
impl Host {
    /// A host with nothing: the session `session` of the user `user` of the app `app`, in which nobody has said anything.
    pub fn new() -> Self {
        Self(Rc::new(RefCell::new(World::new())))
    }

    /// The user's message that starts the run. A further message starts a new run: keys `temp:…` are gone, and so is what was asked for,
    /// handed over and escalated in the run before.
    pub fn user_says(self, text: impl Into<String>) -> Self {
        self.user_sends(Content::user(text))
    }

    /// The user's message, with more than text in it.
    pub fn user_sends(self, content: Content) -> Self {
        self.with(|world| world.user_says(content))
    }

    /// Sets a state key; `null` deletes it.
    pub fn state(self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        let (key, value) = (key.into(), value.into());
        self.with(|world| match value {
            Value::Null => drop(world.state.remove(&key)),
            value => drop(world.state.insert(key, value)),
        })
    }

    /// A setting of the component, as in the operator's `hatchery.yaml`.
    pub fn config(self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.with(|world| drop(world.config.insert(key.into(), value.into())))
    }

    /// An event that the session has already. What it sets is set.
    pub fn event(self, event: impl Into<Event>) -> Self {
        self.with(|world| {
            let event = world.complete(event.into(), "agent");
            world.store(&event);
        })
    }

    /// Saves a version of an artifact: of the session, or of the user when its name starts with `user:`.
    pub fn artifact(self, name: impl Into<String>, part: impl Into<Part>) -> Self {
        self.with(|world| world.artifacts.entry(name.into()).or_default().push(part.into()))
    }

    /// Something that the user has said in an earlier session. Who searches memory gets what holds words of the query.
    pub fn remembers(self, text: impl Into<String>) -> Self {
        let content = Content::user(text);
        self.remembers_entry(MemoryEntry { content, author: Some("user".into()), timestamp_micros: 0 })
    }

    /// Something that was said in an earlier session, by whom and when. A time of 0 stands for later than all before it.
    pub fn remembers_entry(self, mut entry: MemoryEntry) -> Self {
        self.with(|world| {
            if entry.timestamp_micros == 0 {
                entry.timestamp_micros = world.now();
            }
            world.memory.push(entry);
        })
    }

    /// What models answer, whichever is asked: a text, an [`LlmResponse`](crate::LlmResponse), an [`Error`] or a
    /// [`ModelAnswer`] of several pieces. The request has the model's name.
    pub fn model<A: Into<ModelAnswer>>(self, answer: impl Fn(LlmRequest) -> A + 'static) -> Self {
        self.with(|world| world.model = Some(Rc::new(move |request| answer(request).into())))
    }

    /// A tool that code may call, by its name or as `component/tool`: from arguments to result.
    pub fn tool(self, name: impl AsRef<str>, answer: impl Fn(Value) -> Result<Value, ToolError> + 'static) -> Self {
        let name = item_name(name.as_ref()).to_owned();
        self.with(|world| drop(world.tools.insert(name, AnyTool::Mock(Rc::new(answer)))))
    }

    /// A tool of the component itself that its other code may call: it runs in this host too.
    pub fn own_tool(self, tool: impl FnOnce() -> Tool) -> Self {
        let tool = tool();
        self.with(|world| drop(world.tools.insert(tool.name.to_owned(), AnyTool::Own(tool))))
    }

    /// An agent below the one that runs, by its name or as `component/agent`: what it yields each time it runs. An event with an error
    /// code is its failure. For a custom agent of the same component this may be what [`Host::run`] gave for it.
    pub fn sub_agent<E: Into<Event>>(self, name: impl AsRef<str>, events: impl IntoIterator<Item = E>) -> Self {
        let name = item_name(name.as_ref()).to_owned();
        let events = events.into_iter().map(Into::into).collect();
        self.with(|world| drop(world.sub_agents.insert(name, events)))
    }

    /// What answers HTTP requests, whichever host they go to. An [`Error`] stands for no answer, such as one with the code `DENIED` for a
    /// host that is not granted.
    pub fn http(self, answer: impl Fn(HttpRequest) -> Result<HttpResponse, Error> + 'static) -> Self {
        self.with(|world| world.server = Some(Rc::new(answer)))
    }

    /// The app.
    pub fn app(self, name: impl Into<String>) -> Self {
        self.with(|world| world.info.app = name.into())
    }

    /// The user.
    pub fn user(self, id: impl Into<String>) -> Self {
        self.with(|world| world.info.user = id.into())
    }

    /// The session's id.
    pub fn session(self, id: impl Into<String>) -> Self {
        self.with(|world| world.info.session = id.into())
    }

    /// The agent on whose behalf tools, callbacks and the like run. A custom agent runs under its own name.
    pub fn agent(self, name: impl Into<String>) -> Self {
        self.with(|world| world.info.agent = name.into())
    }

    /// The agent's branch, a dot-joined path.
    pub fn branch(self, path: impl Into<String>) -> Self {
        self.with(|world| world.info.branch = Some(path.into()))
    }

    /// A person has agreed to the tool call.
    pub fn agrees(self) -> Self {
        self.with(|world| world.decision = Some((true, None)))
    }

    /// A person has agreed to the tool call, and given this with it.
    pub fn agrees_with(self, payload: impl Into<Value>) -> Self {
        self.with(|world| world.decision = Some((true, Some(payload.into()))))
    }

    /// A person has refused the tool call.
    pub fn refuses(self) -> Self {
        self.with(|world| world.decision = Some((false, None)))
    }

    fn with(self, change: impl FnOnce(&mut World)) -> Self {
        change(&mut self.0.borrow_mut());
        self
    }
}
