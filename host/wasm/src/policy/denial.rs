//! A refusal, in words that say how to allow what was refused.

use std::fmt;
use std::sync::Arc;

use hatchery_core::{CallContext, RunError};

use crate::convert::wit;
use crate::store::output::Output;

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
}

impl Denial {
    /// `action` follows "may not", as in "ask the model `gemini-2.5-flash`"; `grant` is the line below `grants:` that would allow it, as in
    /// `models: ["gemini-2.5-flash"]`.
    pub(crate) fn new(component: &Arc<str>, action: impl Into<String>, grant: impl Into<String>) -> Self {
        Self { component: component.clone(), action: action.into(), grant: grant.into() }
    }

    /// What the guest is told; the operator finds a line in the log, unless the call has filled it with such lines already.
    pub(crate) fn report(&self, output: &Output) -> wit::Error {
        output.audit(|session, invocation| self.log(session, invocation));
        wit::Error { code: CODE.into(), message: self.to_string() }
    }

    /// How the run of an agent ends that does what it may not; the operator finds a line in the log.
    pub(crate) fn end(&self, cx: &CallContext) -> RunError {
        self.log(&cx.invocation.session_key.id, &cx.invocation.id);
        RunError::Agent { agent: cx.agent.to_string(), code: CODE.into(), message: self.to_string() }
    }

    fn log(&self, session: &str, invocation: &str) {
        let Self { component, action, grant } = self;
        tracing::warn!(target: "hatchery::audit", component = &**component, session, invocation, action, grant, "denied");
    }
}

impl std::error::Error for Denial {}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { component, action, grant } = self;
        let lines = lines(component, std::slice::from_ref(grant));
        write!(f, "component `{component}` may not {action}; to allow it, add to hatchery.yaml:\n{lines}")
    }
}

/// Lines below `grants:` with those above them.
pub(super) fn lines(component: &str, grants: &[String]) -> String {
    format!("components:\n  {component}:\n    grants:\n      {}", grants.join("\n      "))
}
