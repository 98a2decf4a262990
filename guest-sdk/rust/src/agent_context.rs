//! [`AgentContext`]: what a custom agent is given for one run.
//!
//! Events go through a stream that the host reads one by one: whoever emits an event waits until the host has taken it, so an agent
//! never runs ahead of its readers by more than one event.

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

/// What a custom agent is given for one run: everything of a [`Context`], and the means to speak and to run the agents below it.
#[derive(Clone)]
pub struct AgentContext {
    context: Context,
    /// Nothing once the host has refused an event: writing to a stream whose reader is gone traps.
    events: Rc<Mutex<Option<StreamWriter<types::Event>>>>,
}

impl AgentContext {
    pub(crate) fn new(events: impl Into<StreamWriter<types::Event>>) -> Self {
        Self { context: Context::new(), events: Rc::new(Mutex::new(Some(events.into()))) }
    }

    /// Says a text.
    ///
    /// # Errors
    /// As [`AgentContext::emit`].
    pub async fn say(&self, text: impl Into<String>) -> Result<(), Error> {
        self.emit(Event::text(text)).await
    }

    /// Yields an event, and waits until the host has taken it. State set before goes with it, unless it is partial.
    ///
    /// # Errors
    /// `CANCELLED` when nobody wants more events: end with it.
    pub async fn emit(&self, event: impl Into<Event>) -> Result<(), Error> {
        let mut events = self.events.lock().await;
        if let Some(writer) = events.as_mut()
            && writer.write_one(event.into().into()).await.is_none()
        {
            return Ok(());
        }
        *events = None;
        Err(Error::new("CANCELLED", "nobody reads this agent's events any more"))
    }

    /// Ends the loops and parallel agents around this agent.
    ///
    /// # Errors
    /// As [`AgentContext::emit`].
    pub async fn escalate(&self) -> Result<(), Error> {
        let actions = EventActions { escalate: Some(true), ..EventActions::default() };
        self.emit(Event { actions, ..Event::default() }).await
    }

    /// Runs an agent below this one, giving its events to look at. It goes on step by step as they are read. An event becomes part of
    /// the session when it is [relayed](AgentContext::relay), and is dropped when the next one is read without that.
    ///
    /// # Errors
    /// When there is no such agent below this one.
    pub async fn sub_agent(&self, name: &str) -> Result<EventStream, Error> {
        Ok(EventStream(Some(agents::run(name.to_owned()).await?)))
    }

    /// Yields an event of a sub agent as it is: the host goes by its id and takes no changes.
    ///
    /// # Errors
    /// As [`AgentContext::emit`].
    pub async fn relay(&self, event: Event) -> Result<(), Error> {
        self.emit(event).await
    }

    /// Runs an agent below this one and relays all its events. A failure of it ends this agent's run too.
    ///
    /// # Errors
    /// When there is no such agent, and as [`AgentContext::emit`].
    pub async fn run_sub_agent(&self, name: &str) -> Result<(), Error> {
        let mut events = self.sub_agent(name).await?;
        while let Some(event) = events.next().await? {
            self.relay(event).await?;
        }
        Ok(())
    }

    /// Runs an agent's code to its end. A failure becomes the last event.
    pub(crate) async fn serve(self, code: AgentCode) {
        if let Err(error) = code(self.clone()).await {
            self.fail(error).await;
        }
    }

    /// Yields an event that says what ended the run.
    async fn fail(&self, error: Error) {
        let event = Event { error_code: Some(error.code), error_message: Some(error.message), ..Event::default() };
        // When nobody reads the events, nobody is to be told either.
        let _unread = self.emit(event).await;
    }
}

impl Deref for AgentContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

/// The events of a sub agent. Dropping it stops the sub agent.
pub struct EventStream(Option<StreamReader<types::Event>>);

impl EventStream {
    /// The next event; nothing when the sub agent has ended.
    ///
    /// # Errors
    /// When the host sends what is not an event. A sub agent that fails says so in its last event, which has an `error_code`: relay it
    /// to fail too, or go on without it.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        next(&mut self.0).await.map(Event::try_from).transpose()
    }
}
