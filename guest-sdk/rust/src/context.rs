//! What a component's code is given: [`Context`] is what all code may look at and change; [`ToolContext`] and [`CallbackContext`] add
//! steering. ([`AgentContext`](crate::AgentContext) has a module of its own.)
//!
//! A context holds nothing: every method asks the host, which in unit tests is [the test's](crate::testing). Code that runs without a
//! session, such as an agent's builder, must not.

use std::marker::PhantomData;
use std::ops::Deref;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::artifacts::Artifacts;
use crate::confirmation::ToolConfirmation;
use crate::content::{Content, JsonMap};
use crate::convert::{read, read_state};
use crate::error::{Error, ToolError};
use crate::event::Event;
use crate::host::{agents, config, memory, model, session, tools};
use crate::model::{LlmRequest, LlmResponse, ResponseStream};

/// Where code runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInfo {
    /// The app.
    pub app: String,
    /// The user.
    pub user: String,
    /// The session's id.
    pub session: String,
    /// The run.
    pub invocation_id: String,
    /// The agent on whose behalf the code runs.
    pub agent: String,
    /// The agent's branch.
    pub branch: Option<String>,
    /// The function call that is being served, in tools and tool callbacks.
    pub function_call_id: Option<String>,
}

/// Something remembered from the user's earlier sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryEntry {
    /// What was said.
    pub content: Content,
    /// By whom.
    pub author: Option<String>,
    /// When, in microseconds since 1970.
    pub timestamp_micros: i64,
}

/// The session and the services, as all code of a component sees them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Context {}

/// The user's memory.
#[derive(Debug)]
pub struct Memory<'a>(PhantomData<&'a Context>);

impl Memory<'_> {
    /// What fits the query best, best first.
    ///
    /// # Errors
    /// When the component may not look, or the service fails.
    pub async fn search(&self, query: impl Into<String>) -> Result<Vec<MemoryEntry>, Error> {
        memory::search(query.into()).await?.into_iter().map(MemoryEntry::try_from).collect()
    }
}

impl Context {
    pub(crate) fn new() -> Self {
        Self {}
    }

    /// Where the code runs.
    ///
    /// # Errors
    /// When it runs outside a session.
    pub fn info(&self) -> Result<RunInfo, Error> {
        Ok(session::current()?.into())
    }

    /// What the user said to start this run.
    ///
    /// # Errors
    /// When the code runs outside a session.
    pub fn user_content(&self) -> Result<Content, Error> {
        session::user_content()?.try_into()
    }

    /// The value of a state key, own changes included; nothing when it is not set.
    ///
    /// # Errors
    /// When the value is of another shape than `T`.
    pub fn state<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Error> {
        session::get_state(key)?.map(|json| read(&json, &format!("the state key `{key}`"))).transpose()
    }

    /// All state, own changes included.
    ///
    /// # Errors
    /// When the code runs outside a session.
    pub fn all_state(&self) -> Result<JsonMap, Error> {
        read_state(session::all_state()?)
    }

    /// Sets a state key. The change is stored with the event that reports this call; in an agent, with its next event. Keys `app:…` are
    /// shared by all users of the app, `user:…` by the user's sessions, `temp:…` last only for this run.
    ///
    /// Tool calls of one model answer run at the same time: each sees the state from before all of them and its own changes, and where
    /// several set one key, the last of them in the model's order wins.
    ///
    /// # Errors
    /// When the value is not JSON, or the component may not write this key.
    pub fn set_state(&self, key: &str, value: impl Serialize) -> Result<(), Error> {
        let json = serde_json::to_string(&value)?;
        Ok(session::set_state(key, &json)?)
    }

    /// Deletes a state key.
    ///
    /// # Errors
    /// When the component may not write this key.
    pub fn delete_state(&self, key: &str) -> Result<(), Error> {
        self.set_state(key, Value::Null)
    }

    /// How many events the session has.
    ///
    /// # Errors
    /// When the code runs outside a session.
    pub fn event_count(&self) -> Result<u64, Error> {
        Ok(session::event_count()?)
    }

    /// Up to `limit` events from number `offset` on, oldest first.
    ///
    /// # Errors
    /// When the code runs outside a session.
    pub fn events(&self, offset: u64, limit: u32) -> Result<Vec<Event>, Error> {
        session::events(offset, limit)?.into_iter().map(Event::try_from).collect()
    }

    /// The session's files.
    pub fn artifacts(&self) -> Artifacts<'_> {
        Artifacts::of(self)
    }

    /// What was said in the user's earlier sessions.
    pub fn memory(&self) -> Memory<'_> {
        Memory(PhantomData)
    }

    /// Calls a tool that the agent was given. Calls may run at the same time.
    ///
    /// # Errors
    /// As the tool; also when it is unknown, or answers something else than a `T`.
    pub async fn call_tool<T: DeserializeOwned>(&self, name: &str, args: &impl Serialize) -> Result<T, ToolError> {
        let args = serde_json::to_string(args)?;
        let result = tools::call(name.to_owned(), args).await?;
        Ok(read(&result, &format!("the result of tool `{name}`"))?)
    }

    /// The component's own setting, from the operator's `hatchery.yaml`; nothing when it is not set.
    ///
    /// # Errors
    /// When the value is of another shape than `T`.
    pub fn config<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Error> {
        config::get(key)?.map(|json| read(&json, &format!("the setting `{key}`"))).transpose()
    }

    /// Asks a model and waits for the whole answer.
    ///
    /// # Errors
    /// When the model is unknown, denied or fails.
    pub async fn generate(&self, request: LlmRequest) -> Result<LlmResponse, Error> {
        let mut responses = ResponseStream::new(model::generate(request.into(), false).await?);
        let mut last = None;
        while let Some(response) = responses.next().await? {
            last = Some(response);
        }
        last.ok_or_else(|| Error::new("MODEL_BAD_RESPONSE", "the model gave no answer"))
    }

    /// Asks a model for its answer as it comes.
    ///
    /// # Errors
    /// When the model is unknown or denied; what goes wrong later comes out of the stream.
    pub async fn stream(&self, request: LlmRequest) -> Result<ResponseStream, Error> {
        Ok(ResponseStream::new(model::generate(request.into(), true).await?))
    }
}

/// What a tool is given.
#[derive(Debug, Clone)]
pub struct ToolContext(Context);

impl ToolContext {
    pub(crate) fn new() -> Self {
        Self(Context::new())
    }

    /// Hands the conversation over to another agent after this call.
    ///
    /// # Errors
    /// When there is no such agent.
    pub fn transfer_to(&self, agent: &str) -> Result<(), Error> {
        Ok(agents::transfer(agent)?)
    }

    /// Ends the loops and parallel agents around the agent after this call.
    ///
    /// # Errors
    /// When the code runs outside a session.
    pub fn escalate(&self) -> Result<(), Error> {
        Ok(agents::escalate()?)
    }

    /// Makes the tool's result the answer, without a summary by the model.
    ///
    /// # Errors
    /// When the code runs outside a session.
    pub fn skip_summarization(&self) -> Result<(), Error> {
        Ok(agents::skip_summarization()?)
    }

    /// What a person has decided about this call; nothing when they have not been asked.
    ///
    /// # Errors
    /// When the code runs outside a session.
    pub fn confirmation(&self) -> Result<Option<ToolConfirmation>, Error> {
        session::confirmation()?.map(ToolConfirmation::try_from).transpose()
    }

    /// Asks a person about this call, with a question and what they should see or fill in (`()` for nothing). The tool's answer should say
    /// that it waits; once the person has decided, it is called again with the same arguments, and [`ToolContext::confirmation`] tells
    /// the decision.
    ///
    /// # Errors
    /// When the payload is not JSON, or the code runs outside a tool call.
    pub fn request_confirmation(&self, hint: impl AsRef<str>, payload: impl Serialize) -> Result<(), Error> {
        let payload = serde_json::to_value(payload)?;
        let payload = (!payload.is_null()).then(|| payload.to_string());
        Ok(session::request_confirmation(hint.as_ref(), payload.as_deref())?)
    }
}

impl Deref for ToolContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.0
    }
}

/// What a callback or a plugin's hook is given.
#[derive(Debug, Clone)]
pub struct CallbackContext(Context);

impl CallbackContext {
    pub(crate) fn new() -> Self {
        Self(Context::new())
    }

    /// Hands the conversation over to another agent after this call.
    ///
    /// # Errors
    /// When there is no such agent.
    pub fn transfer_to(&self, agent: &str) -> Result<(), Error> {
        Ok(agents::transfer(agent)?)
    }

    /// Ends the loops and parallel agents around the agent after this call.
    ///
    /// # Errors
    /// When the code runs outside a session.
    pub fn escalate(&self) -> Result<(), Error> {
        Ok(agents::escalate()?)
    }

    /// Makes the result of the tool call the answer, without a summary by the model.
    ///
    /// # Errors
    /// When the code runs outside a session.
    pub fn skip_summarization(&self) -> Result<(), Error> {
        Ok(agents::skip_summarization()?)
    }
}

impl Deref for CallbackContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.0
    }
}
