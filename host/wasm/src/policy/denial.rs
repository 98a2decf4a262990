//! A refusal, in words that say how to allow what was refused.

use std::fmt;
use std::sync::Arc;

use crate::convert::wit;

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

    /// What the guest is told; the operator finds a line in the log.
    pub(crate) fn report(&self) -> wit::Error {
        tracing::warn!(
            target: "hatchery::audit",
            component = &*self.component,
            action = self.action,
            grant = self.grant,
            "denied"
        );
        wit::Error { code: "DENIED".into(), message: self.to_string() }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { component, action, grant } = self;
        write!(
            f,
            "component `{component}` may not {action}; to allow it, add to hatchery.yaml:\ncomponents:\n  {component}:\n    grants:\n      {grant}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_which_lines_would_allow_it() {
        let denial = Denial::new(&"web".into(), "ask the model `m`", "models: [\"m\"]");
        let error = denial.report();
        assert_eq!(error.code, "DENIED");
        assert_eq!(
            error.message,
            "component `web` may not ask the model `m`; to allow it, add to hatchery.yaml:\n\
             components:\n  web:\n    grants:\n      models: [\"m\"]"
        );
    }
}
