//! Runs custom agents: takes their events one by one, and resumes the code when each is stored.

use std::future::poll_fn;
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::channel::mpsc;

use super::mock_state::merge;
use super::relay::Relay;
use super::scope::{Call, Caller, Scope, block_on};
use super::stream::StreamWriter;
use super::{Host, item_name, misuse};
use crate::agent::{Agent, AgentKind, SubAgent};
use crate::agent_context::AgentContext;
use crate::bindings::wit::types;
use crate::error::Error;
use crate::event::{Event, EventActions};
use crate::tool::LocalFuture;

impl Host {
    /// Runs a custom agent to the end. Returns the events that it emits, partial ones included, as the session stores
    /// them. If it fails, its last event has an error code, and nothing runs after that.
    ///
    /// # Panics
    /// If it is another kind of agent, which has no code: test its callbacks, tools and instructions, or play a
    /// conversation with `hatchery test`.
    #[track_caller]
    pub fn run<A: Into<Agent>>(&self, agent: impl FnOnce() -> A) -> Vec<Event> {
        let Agent { fields, kind } = agent().into();
        let AgentKind::Custom(custom) = kind else {
            misuse(&format!(
                "agent `{}` is not a custom agent, so it has no code to run here: test its callbacks, tools and \
                 instructions, or play a conversation with `hatchery test`",
                fields.name
            ));
        };
        let caller = Caller::Agent {
            model: custom.model.clone(),
            tools: custom.tools.iter().map(|tool| item_name(&tool.name).to_owned()).collect(),
            sub_agents: fields.sub_agents.iter().map(SubAgent::name).map(|name| item_name(name).to_owned()).collect(),
            relay: Relay::default(),
        };
        let scope = self.scope(Call::new(caller, fields.name));
        let (sender, yielded) = mpsc::channel(0);
        let code = Box::pin(AgentContext::new(StreamWriter::Test(sender)).serve(custom.run));
        let mut running = AgentRun { scope, code: Some(code), yielded, streaming: None, events: Vec::new() };
        block_on(running.run());
        running.events
    }
}

/// A running custom agent.
struct AgentRun {
    scope: Scope,
    /// `None` once it has ended.
    code: Option<LocalFuture<()>>,
    yielded: mpsc::Receiver<types::Event>,
    /// Id of partial events whose complete event is still to come.
    streaming: Option<String>,
    /// Events that the session got from the agent.
    events: Vec<Event>,
}

impl AgentRun {
    async fn run(&mut self) {
        while let Some(event) = poll_fn(|cx| self.poll_next(cx)).await {
            self.take_stored();
            let event = self.accept(event).unwrap_or_else(|error| self.error_event(error));
            let failed = event.error_code.is_some();
            self.events.push(self.scope.mock.borrow_mut().store(&event));
            if failed {
                return;
            }
        }
        self.take_stored();
        // State changes after the last event.
        self.events.extend(self.scope.mock.borrow_mut().flush(&self.scope.call));
    }

    /// Polls the code for its next event. The code runs on while no event is waiting.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<types::Event>> {
        if let Poll::Ready(Some(event)) = self.yielded.poll_next_unpin(cx) {
            return Poll::Ready(Some(event));
        }
        if let Some(code) = &mut self.code
            && self.scope.enter(|| code.as_mut().poll(cx)).is_ready()
        {
            self.code = None;
        }
        match self.yielded.poll_next_unpin(cx) {
            Poll::Pending if self.code.is_none() => Poll::Ready(None),
            event => event,
        }
    }

    /// Adds the events that were stored before a sub-agent started.
    fn take_stored(&mut self) {
        if let Caller::Agent { relay, .. } = &self.scope.call.caller {
            self.events.extend(relay.take_stored());
        }
    }

    /// Returns the event as stored: the unchanged event of a sub-agent, or a new event with earlier state changes.
    fn accept(&mut self, event: types::Event) -> Result<Event, Error> {
        if let Caller::Agent { relay, .. } = &self.scope.call.caller
            && let Some(original) = relay.take_pending(&event.id)
        {
            return Ok(original);
        }
        let mut event = Event::try_from(event)?;
        if event.author == "user" {
            let message = "may not emit events as `user`; leave the author of its events empty";
            return Err(Error::new("AGENT_FAILED", format!("agent `{}`: {message}", self.scope.call.agent)));
        }
        let mut mock = self.scope.mock.borrow_mut();
        event.id = if event.partial {
            self.streaming.get_or_insert_with(|| mock.new_id()).clone()
        } else {
            let mut actions = self.scope.call.actions.take();
            merge(&mut actions, std::mem::take(&mut event.actions));
            event.actions = actions;
            self.streaming.take().unwrap_or_default()
        };
        event.invocation_id.clear();
        Ok(mock.complete(event, &self.scope.call.agent))
    }

    fn error_event(&self, Error { code, message }: Error) -> Event {
        let event = Event {
            actions: EventActions::default(),
            error_code: Some(code),
            error_message: Some(message),
            ..Event::default()
        };
        self.scope.mock.borrow_mut().complete(event, &self.scope.call.agent)
    }
}
