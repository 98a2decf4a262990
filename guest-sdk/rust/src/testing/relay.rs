//! Mock sub-agents of a custom agent: their events are held until the agent relays or drops them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures::stream;

use super::list;
use super::scope::{Caller, Scope};
use super::stream::StreamReader;
use crate::bindings::wit::types;
use crate::error::Error;
use crate::event::Event;

/// Events of sub-agents that the agent has read and may relay, and events that were stored without it.
#[derive(Default)]
pub(super) struct Relay {
    held: RefCell<BTreeMap<String, Event>>,
    stored: RefCell<Vec<Event>>,
}

impl Relay {
    /// Removes and returns the sub-agent event with this id.
    pub(super) fn take_pending(&self, id: &str) -> Option<Event> {
        self.held.borrow_mut().remove(id)
    }

    /// Takes the events that were stored without the agent since the last time.
    pub(super) fn take_stored(&self) -> Vec<Event> {
        self.stored.take()
    }
}

/// Starts a sub-agent. It sees the changes that the agent has made.
pub(super) fn start(scope: &Scope, name: &str) -> Result<StreamReader<types::Event>, Error> {
    let Caller::Agent { relay, sub_agents, .. } = &scope.call.caller else {
        let message = "only a custom agent can run other agents; a tool or callback can transfer to one";
        return Err(Error::new("NOT_AN_AGENT", message));
    };
    let declared = sub_agents.iter().any(|known| known == name);
    let events = scope.mock.borrow().sub_agent(name).filter(|_| declared);
    let events = events.ok_or_else(|| {
        let what = if declared {
            format!("add `.sub_agent(\"{name}\", [Event::text(\"…\")])` to the test's host")
        } else {
            format!("add it to the agent's, as in `#[agent(sub_agents = [{name}])]`")
        };
        let message =
            format!("Agent not found: {name} below `{}`, which has {}; {what}", scope.call.agent, list(sub_agents));
        Error::new("NOT_FOUND", message)
    })?;
    relay.stored.borrow_mut().extend(scope.mock.borrow_mut().flush(&scope.call));
    if let Some(Event { error_code: Some(code), error_message, .. }) = events.first() {
        return Err(Error::new(code, error_message.clone().unwrap_or_default()));
    }
    let offers = RemainingEvents { scope: scope.clone(), name: name.to_owned(), rest: events.into_iter(), shown: None };
    Ok(StreamReader::new(stream::unfold(offers, |mut offers| async move { Some((offers.next()?, offers)) })))
}

/// Remaining events of a sub-agent.
struct RemainingEvents {
    scope: Scope,
    name: String,
    rest: std::vec::IntoIter<Event>,
    /// Id of the event that the agent read last.
    shown: Option<String>,
}

impl RemainingEvents {
    fn next(&mut self) -> Option<types::Event> {
        let call = Rc::clone(&self.scope.call);
        let Caller::Agent { relay, .. } = &call.caller else { return None };
        // Reading the next event drops an event that was not relayed.
        if let Some(id) = self.shown.take() {
            relay.take_pending(&id);
        }
        let event = self.scope.mock.borrow_mut().complete(self.rest.next()?, &self.name);
        self.shown = Some(event.id.clone());
        relay.held.borrow_mut().insert(event.id.clone(), event.clone());
        Some(event.into())
    }
}
