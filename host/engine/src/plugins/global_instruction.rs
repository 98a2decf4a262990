//! A plugin that adds an instruction to every LLM agent.

use async_trait::async_trait;
use hatchery_core::{CallContext, Callback, Instruction, LlmRequest, LlmResponse, Plugin, RunError};

use crate::instructions;

/// Adds an instruction before the instructions of every LLM agent.
pub struct GlobalInstruction(Instruction);

impl GlobalInstruction {
    /// Creates a plugin for this instruction. A template is rendered as an agent's own.
    pub fn new(instruction: Instruction) -> Self {
        Self(instruction)
    }
}

#[async_trait]
impl Callback for GlobalInstruction {
    fn name(&self) -> &str {
        "global_instruction"
    }

    async fn before_model(&self, cx: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        if let Some(text) = instructions::text(&self.0, None, cx).await? {
            request.system_instructions.insert(0, text);
        }
        Ok(None)
    }
}

impl Plugin for GlobalInstruction {}
