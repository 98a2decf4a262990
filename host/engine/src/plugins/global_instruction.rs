//! A plugin that tells every agent the same.

use async_trait::async_trait;
use hatchery_core::{CallContext, Callback, Instruction, LlmRequest, LlmResponse, Plugin, RunError};

use crate::llm::instructions;

/// Puts an instruction before those of every LLM agent.
pub struct GlobalInstruction(Instruction);

impl GlobalInstruction {
    /// The instruction; a template is filled in as an agent's own is.
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
