//! A toolset, a code executor, a summarizer and an example provider.

use crate::bindings::exports::hatchery::agent::sync_guest_code_executors::{CodeInput, CodeOutput, Guest as Executors};
use crate::bindings::exports::hatchery::agent::sync_guest_examples::Guest as Examples;
use crate::bindings::exports::hatchery::agent::sync_guest_summarizers::Guest as Summarizers;
use crate::bindings::exports::hatchery::agent::sync_guest_toolsets::{Guest as Toolsets, ToolSpec};
use crate::bindings::hatchery::agent::session;
use crate::bindings::hatchery::agent::types::{Content, Error, Event, Example, FunctionDeclaration, ToolError};
use crate::{Plain, content};

impl Toolsets for Plain {
    fn describe() -> Vec<String> {
        vec!["keys".into()]
    }

    /// One tool, which is named after the user.
    fn tools(_: String) -> Result<Vec<ToolSpec>, Error> {
        let declaration = FunctionDeclaration {
            name: format!("greet_{}", session::current()?.user),
            description: "Greets the user.".into(),
            parameters: None,
            response: None,
        };
        Ok(vec![ToolSpec { declaration, long_running: false, requires_confirmation: false }])
    }

    fn call(_: String, tool: String, args: String) -> Result<String, ToolError> {
        let user = tool.strip_prefix("greet_").unwrap_or_default();
        session::set_state("greeted", &format!("{user:?}")).map_err(|error| ToolError::Recoverable(error.message))?;
        Ok(format!(r#"{{"greeted": "{user}", "args": {args}}}"#))
    }
}

impl Executors for Plain {
    fn describe() -> Vec<String> {
        vec!["reverse".into()]
    }

    fn execute(_: String, input: CodeInput) -> Result<CodeOutput, ToolError> {
        if input.code.is_empty() {
            return Err(ToolError::Recoverable("there is no code".into()));
        }
        let stdout = input.code.chars().rev().collect();
        Ok(CodeOutput { stdout, stderr: String::new(), output_files: input.input_files })
    }
}

impl Summarizers for Plain {
    fn describe() -> Vec<String> {
        vec!["count".into()]
    }

    fn summarize(_: String, events: Vec<Event>) -> Result<Option<Content>, Error> {
        Ok((!events.is_empty()).then(|| content("model", &format!("{} events", events.len()))))
    }
}

impl Examples for Plain {
    fn describe() -> Vec<String> {
        vec!["echo".into()]
    }

    fn examples(_: String, query: String) -> Result<Vec<Example>, Error> {
        Ok(vec![Example { input: content("user", &query), output: vec![content("model", "Yes.")] }])
    }
}
