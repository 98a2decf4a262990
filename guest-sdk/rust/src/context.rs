//! Contexts: [`Context`] provides access to the session and the services. [`ToolContext`] and [`CallbackContext`]
//! can also control the run. ([`AgentContext`](crate::AgentContext) is in its own module.)
//!
//! A context has no data of its own: every method calls the host, which is [a mock host](crate::testing) in unit tests.
//! Code that runs outside of a session, such as an agent's builder, must not use it.

use std::marker::PhantomData;
use std::ops::Deref;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::artifacts::Artifacts;
use crate::confirmation::ToolConfirmation;
use crate::content::{Content, JsonMap};
use crate::convert::{read, read_state};
use crate::credential::{AuthConfig, Credential};
use crate::error::{Error, ToolError};
use crate::event::Event;
use crate::host::{agents, config, credentials, memory, models, plugins, session, tools};
use crate::model::{LlmRequest, LlmResponse, ResponseStream};
use crate::run_info::{PluginInfo, RunInfo};
use crate::runner::Runner;
use crate::sessions::Sessions;

/// An entry of the user's memory, from earlier sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryEntry {
    /// The message that was remembered.
    pub content: Content,
    pub author: Option<String>,
    /// Microseconds since 1970.
    pub timestamp_micros: i64,
}

/// Access to the session and the services.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Context {}

/// Access to the user's memory.
#[derive(Debug)]
pub struct Memory<'a>(PhantomData<&'a Context>);

impl Memory<'_> {
    /// Returns the entries that match the query, best first.
    ///
    /// # Errors
    /// If the component is not allowed to search, or the service fails.
    pub async fn search(&self, query: impl Into<String>) -> Result<Vec<MemoryEntry>, Error> {
        memory::search(query.into()).await?.into_iter().map(MemoryEntry::try_from).collect()
    }

    /// Adds the current session as it is now. Replaces its earlier entries.
    ///
    /// # Errors
    /// If the component is not allowed to, or the service fails.
    pub async fn add_session(&self) -> Result<(), Error> {
        Ok(memory::add_session(None).await?)
    }

    /// Adds another session of the user in the current app. Replaces its earlier entries.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND` if there is no such session; also if the component is not allowed to, or the service fails.
    pub async fn add_session_by_id(&self, id: &str) -> Result<(), Error> {
        Ok(memory::add_session(Some(id.to_owned())).await?)
    }

    /// Adds events to the entries of the current session. Events whose id was added before are skipped.
    ///
    /// # Errors
    /// If the component is not allowed to, or the service fails.
    pub async fn add_events(&self, events: impl IntoIterator<Item = Event>) -> Result<(), Error> {
        Ok(memory::add_events(events.into_iter().map(Into::into).collect()).await?)
    }
}

impl Context {
    pub(crate) fn new() -> Self {
        Self {}
    }

    /// Returns the call in which the code runs.
    ///
    /// # Errors
    /// If it runs outside of a session.
    pub fn info(&self) -> Result<RunInfo, Error> {
        Ok(session::current()?.into())
    }

    /// Returns the user message that started this run.
    ///
    /// # Errors
    /// If the code runs outside of a session.
    pub fn user_content(&self) -> Result<Content, Error> {
        session::user_content()?.try_into()
    }

    /// Returns the custom metadata that the request for the run has, such as ids of traces or of tenants. Empty if it
    /// has none.
    ///
    /// # Errors
    /// If the code runs outside of a session.
    pub fn run_metadata(&self) -> Result<JsonMap, Error> {
        read(&session::run_metadata()?, "the metadata of the run")
    }

    /// Returns the value of a state key, including the code's own changes. `None` if it is not set.
    ///
    /// # Errors
    /// If the value is not a `T`.
    pub fn state<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Error> {
        session::get_state(key)?.map(|json| read(&json, &format!("the state key `{key}`"))).transpose()
    }

    /// Returns all state, including the code's own changes.
    ///
    /// # Errors
    /// If the code runs outside of a session.
    pub fn all_state(&self) -> Result<JsonMap, Error> {
        read_state(session::get_all_state()?)
    }

    /// Sets a state key. The change is stored with the event that reports this call; in an agent, with its next event.
    /// Keys `app:…` are shared by all users of the app, `user:…` by the user's sessions. `temp:…` keys only exist
    /// during this run.
    ///
    /// Tool calls of one model answer run concurrently. Each sees the state from before all of them plus its own
    /// changes. If several set the same key, the last one in the model's order wins.
    ///
    /// # Errors
    /// If the value is not JSON, or the component is not allowed to write this key.
    pub fn set_state(&self, key: &str, value: impl Serialize) -> Result<(), Error> {
        let json = serde_json::to_string(&value)?;
        Ok(session::set_state(key, &json)?)
    }

    /// Deletes a state key.
    ///
    /// # Errors
    /// If the component is not allowed to write this key.
    pub fn delete_state(&self, key: &str) -> Result<(), Error> {
        self.set_state(key, Value::Null)
    }

    /// Returns the number of events in the session.
    ///
    /// # Errors
    /// If the code runs outside of a session.
    pub fn event_count(&self) -> Result<u64, Error> {
        Ok(session::event_count()?)
    }

    /// Returns up to `limit` events starting at index `offset`, oldest first.
    ///
    /// # Errors
    /// If the code runs outside of a session.
    pub fn events(&self, offset: u64, limit: u32) -> Result<Vec<Event>, Error> {
        session::events(offset, limit)?.into_iter().map(Event::try_from).collect()
    }

    /// Returns access to the session's artifacts.
    pub fn artifacts(&self) -> Artifacts<'_> {
        Artifacts::new(self)
    }

    /// Returns access to the user's memory of earlier sessions.
    pub fn memory(&self) -> Memory<'_> {
        Memory(PhantomData)
    }

    /// Returns access to other apps, which the component may run for the user.
    pub fn runner(&self) -> Runner<'_> {
        Runner::new(self)
    }

    /// Returns access to the sessions of the user in an app.
    pub fn sessions(&self, app: impl Into<String>) -> Sessions<'_> {
        Sessions::new(self, app.into())
    }

    /// Calls a tool of the agent. Several calls may run concurrently.
    ///
    /// # Errors
    /// The error of the tool; also if it is unknown, or its result is not a `T`.
    pub async fn call_tool<T: DeserializeOwned>(&self, name: &str, args: &impl Serialize) -> Result<T, ToolError> {
        let args = serde_json::to_string(args)?;
        let result = tools::call(name.to_owned(), args).await?;
        Ok(read(&result, &format!("the result of tool `{name}`"))?)
    }

    /// Returns a setting of the component from `hatchery.yaml`. `None` if it is not set.
    ///
    /// # Errors
    /// If the value is not a `T`.
    pub fn config<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Error> {
        config::get(key)?.map(|json| read(&json, &format!("the setting `{key}`"))).transpose()
    }

    /// Returns the plugins of the run, in the order in which they run.
    ///
    /// # Errors
    /// If the code runs outside of a session.
    pub fn plugins(&self) -> Result<Vec<PluginInfo>, Error> {
        Ok(plugins::list()?.into_iter().map(Into::into).collect())
    }

    /// Returns a plugin of the run. `None` if no plugin has this name.
    ///
    /// # Errors
    /// If the code runs outside of a session.
    pub fn plugin(&self, name: &str) -> Result<Option<PluginInfo>, Error> {
        Ok(plugins::get(name)?.map(Into::into))
    }

    /// Returns the arguments with which the configuration uses the tool or plugin that is called: `args` of a tool in
    /// an agent definition, or of a plugin in `hatchery.yaml`. `None` if there are none.
    ///
    /// # Errors
    /// If they are not a `T`.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        config::arguments()?.map(|json| read(&json, "the configured arguments")).transpose()
    }

    /// Calls a model and waits for the complete answer.
    ///
    /// # Errors
    /// If the model is unknown, denied or fails.
    pub async fn generate(&self, request: LlmRequest) -> Result<LlmResponse, Error> {
        let mut responses = ResponseStream::new(models::generate(request.into(), false).await?);
        let mut last = None;
        while let Some(response) = responses.next().await? {
            last = Some(response);
        }
        last.ok_or_else(|| Error::new("MODEL_BAD_RESPONSE", "the model gave no answer"))
    }

    /// Returns the names and patterns of the models that the component is granted. Its own models need no grant.
    ///
    /// # Errors
    /// If the code runs outside of a session.
    pub fn models(&self) -> Result<Vec<String>, Error> {
        Ok(models::list()?)
    }

    /// Embeds texts: returns one vector per text, all of the same length. `local:hashed-ngrams` compares texts by their
    /// spelling, without a model.
    ///
    /// # Errors
    /// If the embedder is unknown, denied or fails.
    pub async fn embed<T: Into<String>>(
        &self,
        model: impl Into<String>,
        texts: impl IntoIterator<Item = T>,
    ) -> Result<Vec<Vec<f32>>, Error> {
        Ok(models::embed(model.into(), texts.into_iter().map(Into::into).collect()).await?)
    }

    /// Calls a model and streams its answer.
    ///
    /// # Errors
    /// If the model is unknown or denied. Later failures are returned by the stream.
    pub async fn stream(&self, request: LlmRequest) -> Result<ResponseStream, Error> {
        Ok(ResponseStream::new(models::generate(request.into(), true).await?))
    }
}

/// Defines the constructor of the context of a call, and the methods by which the call steers the run.
macro_rules! call_context {
    ($context:ident) => {
        impl $context {
            pub(crate) fn new() -> Self {
                Self(Context::new())
            }

            /// Transfers the conversation to another agent after this call.
            ///
            /// # Errors
            /// If there is no such agent.
            pub fn transfer_to(&self, agent: &str) -> Result<(), Error> {
                Ok(agents::transfer(agent)?)
            }

            /// Ends the nearest loop around the agent, and the parallel agents in between, after this call.
            ///
            /// # Errors
            /// If the code runs outside of a session.
            pub fn escalate(&self) -> Result<(), Error> {
                Ok(agents::escalate()?)
            }

            /// Ends the run after this call: the event that reports the call is its last one, and no further agent
            /// runs. In an agent that is called as a tool, ends the run of that agent.
            ///
            /// # Errors
            /// If the code runs outside of a session.
            pub fn end_invocation(&self) -> Result<(), Error> {
                Ok(agents::end_invocation()?)
            }

            /// Makes the result of the tool call the final answer, without a summary by the model.
            ///
            /// # Errors
            /// If the code runs outside of a session.
            pub fn skip_summarization(&self) -> Result<(), Error> {
                Ok(agents::skip_summarization()?)
            }
        }

        impl Deref for $context {
            type Target = Context;

            fn deref(&self) -> &Context {
                &self.0
            }
        }
    };
}

/// The context of a tool call.
#[derive(Debug, Clone)]
pub struct ToolContext(Context);

call_context!(ToolContext);

impl ToolContext {
    /// Returns the idempotency key of this call: the same when the call is made again because its host died, and
    /// different for any other call. For services that ignore repeated requests. `None` outside of a tool call.
    ///
    /// # Errors
    /// If the code runs outside of a session.
    pub fn idempotency_key(&self) -> Result<Option<String>, Error> {
        Ok(session::idempotency_key()?)
    }

    /// Returns a person's decision about this call. `None` if no one was asked.
    ///
    /// # Errors
    /// If the code runs outside of a session.
    pub fn confirmation(&self) -> Result<Option<ToolConfirmation>, Error> {
        session::confirmation()?.map(ToolConfirmation::try_from).transpose()
    }

    /// Requests confirmation of this call by a person, with a question and a payload to show or fill in (`()` for
    /// none). The tool's result should say that it is waiting. Once the person has decided, the tool is called again
    /// with the same arguments, and [`ToolContext::confirmation`] returns the decision.
    ///
    /// # Errors
    /// If the payload is not JSON, or the code runs outside of a tool call.
    pub fn request_confirmation(&self, hint: impl AsRef<str>, payload: impl Serialize) -> Result<(), Error> {
        let payload = serde_json::to_value(payload)?;
        let payload = (!payload.is_null()).then(|| payload.to_string());
        Ok(session::request_confirmation(hint.as_ref(), payload.as_deref())?)
    }

    /// Reports the progress of this call to the clients of a run with streaming, in a unit of the tool's choice: the
    /// amount done, the total amount if it is known, and a text for people, which may be empty. It never waits. Reports
    /// that follow each other quickly replace each other, and the last one always arrives.
    ///
    /// ```
    /// # use hatchery_guest::prelude::*;
    /// #[tool]
    /// async fn index_pages(cx: ToolContext) -> Result<&'static str, ToolError> {
    ///     for page in 1..=20_u32 {
    ///         cx.report_progress(f64::from(page), 20.0, format!("page {page}"))?;
    ///     }
    ///     Ok("indexed")
    /// }
    /// ```
    ///
    /// # Errors
    /// If a number is infinite or NaN, or the code runs outside of a tool call.
    pub fn report_progress(
        &self,
        progress: f64,
        total: impl Into<Option<f64>>,
        message: impl AsRef<str>,
    ) -> Result<(), Error> {
        let message = Some(message.as_ref()).filter(|message| !message.is_empty());
        Ok(session::report_progress(progress, total.into(), message)?)
    }

    /// Returns the user's credential for a service. `None` if the user has been asked for it: the tool's result should
    /// say that it is waiting, and the tool is called again with the same arguments after the answer. The host keeps
    /// the credential encrypted for this component, and refreshes tokens.
    ///
    /// # Errors
    /// If the component has no grant `network`, the service refuses the login, or the code runs outside of a tool call.
    pub async fn credential(&self, config: &AuthConfig) -> Result<Option<Credential>, Error> {
        let credential = credentials::get(config.to_json().to_string()).await?;
        credential.map(|json| read(&json, "the credential").map(Credential)).transpose()
    }

    /// Reports that the service has refused a credential. The next [`ToolContext::credential`] refreshes a token, and
    /// asks the user again for anything else.
    ///
    /// # Errors
    /// See [`ToolContext::credential`].
    pub async fn refuse_credential(&self, config: &AuthConfig, credential: &Credential) -> Result<(), Error> {
        Ok(credentials::refuse(config.to_json().to_string(), credential.0.to_string()).await?)
    }
}

/// The context of a callback or of a plugin's hook.
#[derive(Debug, Clone)]
pub struct CallbackContext(Context);

call_context!(CallbackContext);
