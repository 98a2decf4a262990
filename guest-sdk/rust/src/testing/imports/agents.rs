//! Sub agents, and actions of the current event.

use super::super::relay;
use super::super::scope::Scope;
use super::StreamReader;
use crate::bindings::wit::types;
use crate::event::EventActions;

pub(crate) async fn run(name: String) -> Result<StreamReader<types::Event>, types::Error> {
    Ok(relay::start(&Scope::for_session()?, &name)?)
}

pub(crate) fn transfer(agent: &str) -> Result<(), types::Error> {
    change(|actions| actions.transfer_to_agent = Some(agent.to_owned()))
}

pub(crate) fn escalate() -> Result<(), types::Error> {
    change(|actions| actions.escalate = Some(true))
}

pub(crate) fn end_invocation() -> Result<(), types::Error> {
    change(|actions| actions.end_invocation = Some(true))
}

pub(crate) fn skip_summarization() -> Result<(), types::Error> {
    change(|actions| actions.skip_summarization = Some(true))
}

fn change(change: impl FnOnce(&mut EventActions)) -> Result<(), types::Error> {
    change(&mut Scope::for_change()?.call.actions.borrow_mut());
    Ok(())
}
