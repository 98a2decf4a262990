//! A refusal, in words that say how to allow what was refused.

use std::fmt;
use std::sync::Arc;

use hatchery_core::{CallContext, RunError};

use crate::contract::convert::wit;
use crate::guest_log::{GuestLog, escape_control};

/// The code of the error.
pub(crate) const CODE: &str = "DENIED";

/// A component asked for something that it was not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    component: Arc<str>,
    /// What it wanted to do, after "may not".
    action: String,
    /// The line below `grants:` that would allow it.
    grant: String,
    /// The component that keeps what was wanted to itself, so that no grant allows it.
    private: Option<String>,
}

impl Denial {
    /// `action` follows "may not", as in "ask the model `gemini-2.5-flash`"; `grant` is the line below `grants:` that would allow it, as in
    /// `models: ["gemini-2.5-flash"]`.
    pub(crate) fn new(component: &Arc<str>, action: impl Into<String>, grant: impl Into<String>) -> Self {
        Self { component: component.clone(), action: action.into(), grant: grant.into(), private: None }
    }

    /// The same for something that the component `owner` keeps to itself.
    pub(super) fn by_private(mut self, owner: &str) -> Self {
        self.private = Some(escape_control(owner).into());
        self
    }

    /// What the guest is told; the operator finds a line in the log, unless the call has filled it with such lines already.
    pub(crate) fn report(&self, log: &GuestLog) -> wit::Error {
        log.audit(|session, invocation| self.log(session, invocation));
        wit::Error { code: CODE.into(), message: self.to_string() }
    }

    /// How the run of an agent ends that does what it may not; the operator finds a line in the log.
    pub(crate) fn end(&self, cx: &CallContext) -> RunError {
        self.log(&cx.invocation.session_key.id, &cx.invocation.id);
        RunError::Agent { agent: cx.agent.to_string(), code: CODE.into(), message: self.to_string() }
    }

    fn log(&self, session: &str, invocation: &str) {
        let Self { component, action, grant, private: _ } = self;
        tracing::warn!(target: "hatchery::audit", component = &**component, session, invocation, action, grant, "denied");
    }
}

impl std::error::Error for Denial {}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { component, action, grant, private } = self;
        if let Some(owner) = private {
            return write!(
                f,
                "component `{component}` may not {action}: component `{owner}` is private (`components.{owner}.private` in \
                 hatchery.yaml), so only YAML agents and its own agents use what it offers"
            );
        }
        let lines = lines([(&**component, vec![grant.clone()])]);
        write!(f, "component `{component}` may not {action}; to allow it, add to hatchery.yaml:\n{lines}")
    }
}

/// The block of `hatchery.yaml` with these lines below `grants:` of each component.
pub(crate) fn lines<'a>(grants: impl IntoIterator<Item = (&'a str, Vec<String>)>) -> String {
    let mut block = String::from("components:");
    for (component, lines) in grants {
        block.push_str(&format!("\n  {component}:\n    grants:"));
        lines.iter().for_each(|line| block.push_str(&format!("\n      {line}")));
    }
    block
}
