//! An instruction that a component computes.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::agent::InstructionProvider;
use hatchery_core::{CallContext, RunError};

use super::Component;
use crate::bindings::exports::hatchery::agent::guest_agents::GuestIndices;
use crate::convert::bounded;
use crate::error::CallError;
use crate::store::Caller;

pub(super) struct ComputedInstruction {
    pub(super) component: Arc<Component>,
    pub(super) exports: GuestIndices,
    pub(super) agent: String,
    pub(super) is_global: bool,
}

#[async_trait]
impl InstructionProvider for ComputedInstruction {
    async fn instruction(&self, cx: &CallContext) -> Result<String, RunError> {
        let (agent, is_global) = (self.agent.clone(), self.is_global);
        let call = self.component.sandbox.run(Caller::Call(cx.clone()), |mut store, instance| async move {
            let guest = self.exports.load(&mut store, &instance)?;
            store.run_concurrent(async move |accessor| guest.call_instruct(accessor, agent, is_global).await).await?
        });
        let failed = |error: CallError| error.into_run_error(&self.component.name);
        match call.await.map_err(failed)? {
            Ok(text) => {
                self.component.check_size(&text).map_err(failed)?;
                Ok(text)
            }
            Err(error) => {
                let error = bounded(error);
                Err(RunError::Agent {
                    agent: self.agent.clone(),
                    code: error.code.into(),
                    message: format!("its instruction cannot be computed: {}", error.message),
                })
            }
        }
    }
}
