//! The refusal of a permission. The guest gets a short error, the operator's log the configuration lines to allow it.

use std::fmt;
use std::sync::Arc;

use hatchery_core::{CallContext, RunError, escape_control};

use crate::contract::convert::wit;
use crate::guest_log::GuestLog;

/// Error code of a refusal.
pub(crate) const CODE: &str = "DENIED";

/// A refused permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    component: Arc<str>,
    /// The refused action, a phrase that follows "may not".
    action: String,
    /// The line below `grants:` that would allow the action.
    grant: String,
    /// The private component that owns the item. No grant allows access to it.
    private: Option<String>,
}

impl Denial {
    /// Creates a denial. `action` follows "may not", as in "ask the model `gemini-2.5-flash`". `grant` is the line
    /// below `grants:` that would allow it, as in `models: ["gemini-2.5-flash"]`.
    pub(crate) fn new(component: &Arc<str>, action: impl Into<String>, grant: impl Into<String>) -> Self {
        Self { component: component.clone(), action: action.into(), grant: grant.into(), private: None }
    }

    /// Marks the item as owned by the private component `owner`.
    pub(super) fn for_private_owner(mut self, owner: &str) -> Self {
        self.private = Some(escape_control(owner).into());
        self
    }

    /// Returns the error for the guest and writes a line to the audit log, unless the call has used up its audit lines.
    pub(crate) fn report(&self, log: &GuestLog) -> wit::Error {
        log.audit(|session, invocation| self.log(session, invocation));
        wit::Error { code: CODE.into(), message: self.to_string() }
    }

    /// Returns the error that ends the run of an agent, and writes a line to the audit log.
    pub(crate) fn run_error(&self, cx: &CallContext) -> RunError {
        self.log(&cx.invocation.session_key.id, &cx.invocation.id);
        RunError::Agent { agent: cx.agent.to_string(), code: CODE.into(), message: self.to_string() }
    }

    fn log(&self, session: &str, invocation: &str) {
        let Self { component, action, grant, private: _ } = self;
        tracing::warn!(target: "hatchery::audit", component = &**component, session, invocation, action, grant, "denied");
        tracing::warn!("{}", self.for_operator());
    }

    /// Returns the error with the configuration that would allow the action.
    pub(crate) fn for_operator(&self) -> String {
        match &self.private {
            Some(owner) => format!(
                "{self} (`components.{owner}.private` in hatchery.yaml), so only YAML agents and its own agents may use its items"
            ),
            None => {
                let block = grants_block([(&*self.component, vec![self.grant.clone()])]);
                format!("{self}; to allow it, add to hatchery.yaml:\n{block}")
            }
        }
    }
}

impl std::error::Error for Denial {}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { component, action, grant: _, private } = self;
        write!(f, "component `{component}` may not {action}")?;
        match private {
            Some(owner) => write!(f, ": component `{owner}` is private"),
            None => Ok(()),
        }
    }
}

/// Returns the block of `hatchery.yaml` with these lines below each component's `grants:`.
pub(crate) fn grants_block<'a>(grants: impl IntoIterator<Item = (&'a str, Vec<String>)>) -> String {
    let mut block = String::from("components:");
    for (component, lines) in grants {
        block.push_str(&format!("\n  {component}:\n    grants:"));
        lines.iter().for_each(|line| block.push_str(&format!("\n      {line}")));
    }
    block
}
