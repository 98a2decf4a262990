//! Code that a model writes and the host runs between two model calls.
//!
//! The first block of code in an answer becomes an `executableCode` part, and what the model has written after it is dropped, since it
//! was written without knowing the result. The executor runs the code; what it gave is an event of the agent with a
//! `codeExecutionResult` part, and the model is asked again. In prompts, code and results are text between delimiters, since a model that
//! does not run code by itself knows no such parts.
//!
//! An answer that also calls tools keeps its text as it is: the tools run and the code does not. The same goes for an answer that is an
//! error, such as one that was cut off. A model that runs code by itself sends code and result side by side; the host leaves both alone.

mod block;
mod data_files;
mod markers;
mod outcome;
mod record;

use hatchery_core::{CodeExecution, CodeRunner, Content, LlmAgent, LlmRequest, LlmResponse, RunError, Tool};

pub(super) use block::{due, ends_in_result};
pub(crate) use markers::{CodeMarkers, PromptRewriter};
use record::Record;

use super::{Step, request};
use crate::tools::builtin::ModelTool;

/// How the host runs the agent's code, if it does.
pub(super) fn on_host(llm: &LlmAgent) -> Option<&CodeRunner> {
    match &llm.code_execution {
        Some(CodeExecution::Host(runner)) => Some(runner),
        Some(CodeExecution::BuiltIn) | None => None,
    }
}

/// True when what the agent says is not its answer yet, but code that the host is about to run.
pub(super) fn is_due(llm: &LlmAgent, content: &Content) -> bool {
    on_host(llm).is_some() && due(content).is_some()
}

impl Step<'_> {
    /// Gets a request ready for an agent that runs code.
    pub(super) async fn prepare_code(&self, request: &mut LlmRequest) -> Result<(), RunError> {
        match &self.llm.code_execution {
            Some(CodeExecution::BuiltIn) => ModelTool::code_execution().prepare(request, &self.cx.call).await,
            Some(CodeExecution::Host(_)) => {
                let record = Record::new(&self.cx.call);
                request::with_view(self, request.capabilities, |view| record.note_files(view.data_files()));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Gives the code in a whole answer a part of its own.
    pub(super) fn separate_code(&self, response: &mut LlmResponse) {
        let Some(runner) = on_host(self.llm) else { return };
        let Some(content) = response.content.as_mut().filter(|_| response.error_code.is_none()) else { return };
        if content.function_calls().next().is_some() {
            return;
        }
        // An event that ends in code is an event whose code the host has to run. So there must be no other.
        if block::has_code(content) {
            block::quote_last(content, &runner.code_delimiters);
        } else if block::separate(content, &runner.code_delimiters) && runner.stateful {
            // Stored along with the code, so that it is known before the code runs.
            Record::new(&self.cx.call).execution_id();
        }
    }
}
