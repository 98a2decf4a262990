//! Agent instructions that a component computes.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, InstructionProvider, RunError};

use super::Component;
use super::exports::{AgentExports, Indices, call_guest};
use crate::contract::convert::truncate_error;
use crate::error::CallError;

/// The agents that an instruction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstructionScope {
    /// The agent itself.
    Agent,
    /// All agents of the tree.
    Tree,
}

pub(super) struct ComponentInstruction {
    pub(super) component: Arc<Component>,
    pub(super) exports: AgentExports,
    pub(super) agent: String,
    pub(super) scope: InstructionScope,
}

#[async_trait]
impl InstructionProvider for ComponentInstruction {
    async fn instruction(&self, cx: &CallContext) -> Result<String, RunError> {
        let (agent, is_global) = (self.agent.clone(), self.scope == InstructionScope::Tree);
        let answer = call_guest!(self.component, cx, self.exports, call_compute_instruction(agent, is_global));
        let failed = |error: CallError| error.into_run_error(&self.component.name);
        match answer.map_err(failed)? {
            Ok(text) => {
                self.component.check_size(&text).map_err(failed)?;
                Ok(text)
            }
            Err(error) => {
                let error = truncate_error(error);
                Err(RunError::Agent {
                    agent: self.agent.clone(),
                    code: error.code.into(),
                    message: format!("its instruction cannot be computed: {}", error.message),
                })
            }
        }
    }
}
