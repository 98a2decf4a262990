//! Code execution: runs code that a model writes, between two model calls.
//!
//! The first code block in a response becomes an `executableCode` part. The text after it is dropped, because the model
//! wrote it without knowing the result. The executor runs the code, its result is an event of the agent with a
//! `codeExecutionResult` part, and the model is called again. In prompts, code and results are text between delimiters,
//! because models without built-in code execution do not support these parts.
//!
//! The text of a response that also calls tools is not changed: the tools run, and the code does not. The same applies
//! to a response that is an error, for example one that was cut off. A model with built-in code execution returns code
//! and result together, and the host does not change them.

mod block;
mod execution;
mod state;

use hatchery_core::{CodeExecution, CodeRunner, Content, LlmAgent, LlmRequest, LlmResponse, RunError, Tool};

pub(super) use block::{ends_in_result, pending_code};
use state::CodeState;

use super::{LoopDriver, request};
use crate::tools::builtin::ModelTool;

/// Returns the code runner of the agent. `None` if the host does not run its code.
pub(super) fn on_host(llm: &LlmAgent) -> Option<&CodeRunner> {
    match &llm.code_execution {
        Some(CodeExecution::Host(runner)) => Some(runner),
        Some(CodeExecution::BuiltIn) | None => None,
    }
}

/// Returns true if the content ends with code that the host is about to run, so that it is not the final answer.
pub(super) fn has_pending_code(llm: &LlmAgent, content: &Content) -> bool {
    on_host(llm).is_some() && pending_code(content).is_some()
}

impl LoopDriver<'_> {
    /// Adds built-in code execution to a request, or the data files of the prompt to the state.
    pub(super) async fn prepare_code(&self, request: &mut LlmRequest) -> Result<(), RunError> {
        match &self.llm.code_execution {
            Some(CodeExecution::BuiltIn) => ModelTool::code_execution().prepare(request, &self.cx.call).await,
            Some(CodeExecution::Host(_)) => {
                let state = CodeState::new(&self.cx.call);
                request::with_view(self, request.capabilities, |view| state.add_files(view.data_files()));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Moves the code in a complete response into a separate part.
    pub(super) fn extract_code(&self, response: &mut LlmResponse) {
        let Some(runner) = on_host(self.llm) else { return };
        let Some(content) = response.content.as_mut().filter(|_| response.error_code.is_none()) else { return };
        if content.function_calls().next().is_some() {
            return;
        }
        // The host runs the code at the end of an event, so no other event may end with code.
        if block::has_code(content) {
            block::quote_last(content, &runner.code_delimiters);
        } else if block::extract(content, &runner.code_delimiters) && runner.stateful {
            // Stored in the same event as the code, so that it exists before the code runs.
            CodeState::new(&self.cx.call).execution_id();
        }
    }
}
