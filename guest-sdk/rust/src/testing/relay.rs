//! Sub agents of a custom agent: their events wait until the agent has decided what becomes of them.

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

/// What an agent holds back: events that it has read and may yield, and those that were stored without it.
#[derive(Default)]
pub(super) struct Relay {
    held: RefCell<BTreeMap<String, Event>>,
    stored: RefCell<Vec<Event>>,
}

impl Relay {
    /// Takes what the agent yields under this id, if it came from a sub agent.
    pub(super) fn claim(&self, id: &str) -> Option<Event> {
        self.held.borrow_mut().remove(id)
    }

    /// The events that were stored without the agent's doing since the last time.
    pub(super) fn take_stored(&self) -> Vec<Event> {
        self.stored.take()
    }
}

/// Runs a sub agent, which sees the changes that the agent has made.
pub(super) fn start(scope: &Scope, name: &str) -> Result<StreamReader<types::Event>, Error> {
    let Caller::Agent { relay, below, .. } = &scope.call.caller else {
        let message = "only a custom agent can run other agents; a tool or callback can transfer to one";
        return Err(Error::new("NOT_AN_AGENT", message));
    };
    let declared = below.iter().any(|known| known == name);
    let events = scope.world.borrow().sub_agent(name).filter(|_| declared);
    let events = events.ok_or_else(|| {
        let what = if declared {
            format!("add `.sub_agent(\"{name}\", [Event::text(\"…\")])` to the test's host")
        } else {
            format!("add it to the agent's, as in `#[agent(sub_agents = [{name}])]`")
        };
        let message =
            format!("Agent not found: {name} below `{}`, which has {}; {what}", scope.call.agent, list(below));
        Error::new("NOT_FOUND", message)
    })?;
    relay.stored.borrow_mut().extend(scope.world.borrow_mut().flush(&scope.call));
    if let Some(Event { error_code: Some(code), error_message, .. }) = events.first() {
        return Err(Error::new(code, error_message.clone().unwrap_or_default()));
    }
    let offers = Offers { scope: scope.clone(), name: name.to_owned(), rest: events.into_iter(), shown: None };
    Ok(StreamReader::new(stream::unfold(offers, |mut offers| async move { Some((offers.next()?, offers)) })))
}

/// The events of a sub agent that are still to come.
struct Offers {
    scope: Scope,
    name: String,
    rest: std::vec::IntoIter<Event>,
    /// The id of the event that the agent read last.
    shown: Option<String>,
}

impl Offers {
    fn next(&mut self) -> Option<types::Event> {
        let call = Rc::clone(&self.scope.call);
        let Caller::Agent { relay, .. } = &call.caller else { return None };
        // Whoever reads on has dropped what was not yielded.
        if let Some(id) = self.shown.take() {
            relay.claim(&id);
        }
        let event = self.scope.world.borrow_mut().complete(self.rest.next()?, &self.name);
        self.shown = Some(event.id.clone());
        relay.held.borrow_mut().insert(event.id.clone(), event.clone());
        Some(event.into())
    }
}
