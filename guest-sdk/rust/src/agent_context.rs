//! The context of a custom agent's run.
//!
//! Emitting an event waits until the host has stored it. Up to 16 small partial events are buffered.

use std::ops::Deref;
use std::rc::Rc;

use futures::lock::Mutex;

use crate::agent::AgentCode;
use crate::bindings::wit::types;
use crate::context::Context;
use crate::error::Error;
use crate::event::{Event, EventActions};
use crate::host::{StreamReader, StreamWriter, agents};
use crate::model::next;

/// The context of a custom agent's run: everything of a [`Context`], and methods to emit events and to run sub-agents.
#[derive(Clone)]
pub struct AgentContext {
    context: Context,
    /// `None` once the host has refused an event: writing to a stream without a reader traps.
    events: Rc<Mutex<Option<StreamWriter<types::Event>>>>,
}

impl AgentContext {
    pub(crate) fn new(events: impl Into<StreamWriter<types::Event>>) -> Self {
        Self { context: Context::new(), events: Rc::new(Mutex::new(Some(events.into()))) }
    }

    /// Emits an event with this text.
    ///
    /// # Errors
    /// See [`AgentContext::emit`].
    pub async fn say(&self, text: impl Into<String>) -> Result<(), Error> {
        self.emit(Event::text(text)).await
    }

    /// Emits an event and waits until the host has stored it, or, if it is a small partial one, has room for it. Unless
    /// it is partial, state that was set before is stored with it.
    ///
    /// # Errors
    /// `CANCELLED` if the host accepts no more events: return this error.
    pub async fn emit(&self, event: impl Into<Event>) -> Result<(), Error> {
        let mut events = self.events.lock().await;
        if let Some(writer) = events.as_mut()
            && writer.write_one(event.into().into()).await.is_none()
        {
            return Ok(());
        }
        *events = None;
        Err(Error::new("CANCELLED", "this agent's events are no longer read"))
    }

    /// Ends the nearest loop around this agent, and the parallel agents in between.
    ///
    /// # Errors
    /// See [`AgentContext::emit`].
    pub async fn escalate(&self) -> Result<(), Error> {
        let actions = EventActions { escalate: Some(true), ..EventActions::default() };
        self.emit(Event { actions, ..Event::default() }).await
    }

    /// Ends the run: no further agent runs, and the host stops this one. In an agent that is called as a tool, ends the
    /// run of that agent.
    ///
    /// # Errors
    /// See [`AgentContext::emit`].
    pub async fn end_invocation(&self) -> Result<(), Error> {
        let actions = EventActions { end_invocation: Some(true), ..EventActions::default() };
        self.emit(Event { actions, ..Event::default() }).await
    }

    /// Starts a sub-agent and returns its events. The sub-agent advances as its events are read. An event becomes part
    /// of the session when it is [relayed](AgentContext::relay), and is dropped if the next one is read first.
    ///
    /// # Errors
    /// If there is no such sub-agent.
    pub async fn sub_agent(&self, name: &str) -> Result<EventStream, Error> {
        Ok(EventStream(Some(agents::run(name.to_owned()).await?)))
    }

    /// Emits an event of a sub-agent unchanged: the host identifies it by its id and ignores changes.
    ///
    /// # Errors
    /// See [`AgentContext::emit`].
    pub async fn relay(&self, event: Event) -> Result<(), Error> {
        self.emit(event).await
    }

    /// Runs a sub-agent and relays all its events. If it fails, this agent's run fails as well.
    ///
    /// # Errors
    /// If there is no such sub-agent, and see [`AgentContext::emit`].
    pub async fn run_sub_agent(&self, name: &str) -> Result<(), Error> {
        let mut events = self.sub_agent(name).await?;
        while let Some(event) = events.next().await? {
            self.relay(event).await?;
        }
        Ok(())
    }

    /// Runs an agent's code to the end. A failure becomes the last event.
    pub(crate) async fn serve(self, code: AgentCode) {
        if let Err(error) = code(self.clone()).await {
            self.fail(error).await;
        }
    }

    /// Emits an event with the error that ended the run.
    async fn fail(&self, error: Error) {
        let event = Event { error_code: Some(error.code), error_message: Some(error.message), ..Event::default() };
        // If the events are not read, the error cannot be reported either.
        let _unread = self.emit(event).await;
    }
}

impl Deref for AgentContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

/// The events of a sub-agent. Dropping the stream stops the sub-agent.
pub struct EventStream(Option<StreamReader<types::Event>>);

impl EventStream {
    /// Returns the next event. `None` if the sub-agent has ended.
    ///
    /// # Errors
    /// If the host sends an invalid event. A sub-agent that fails reports this in its last event, which has an
    /// `error_code`: relay it to fail too, or continue without it.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        next(&mut self.0).await.map(Event::try_from).transpose()
    }
}
