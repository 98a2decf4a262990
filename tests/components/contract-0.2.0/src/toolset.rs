//! The toolset: one tool, which is named after the user.

use crate::Component;
use crate::bindings::exports::hatchery::agent::guest_toolsets::{Guest, ToolSpec};
use crate::bindings::hatchery::agent::session;
use crate::bindings::hatchery::agent::types::{Error, FunctionDeclaration, ToolError};

impl Guest for Component {
    fn describe() -> Vec<String> {
        vec!["keys".into()]
    }

    async fn tools(_: String) -> Result<Vec<ToolSpec>, Error> {
        let declaration = FunctionDeclaration {
            name: format!("greet_{}", session::current()?.user),
            description: "Greets the user.".into(),
            parameters: None,
            response: None,
        };
        Ok(vec![ToolSpec { declaration, long_running: false, requires_confirmation: false }])
    }

    async fn call(toolset: String, tool: String, args: String) -> Result<String, ToolError> {
        Ok(format!(r#"["{toolset}", "{tool}", {args}]"#))
    }
}
