//! An instruction that a component computes.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::agent::InstructionProvider;
use hatchery_core::{CallContext, RunError};

use super::Component;
use super::exports::AgentExports;
use crate::convert::bounded;
use crate::error::CallError;
use crate::store::Caller;

pub(super) struct ComputedInstruction {
    pub(super) component: Arc<Component>,
    pub(super) exports: AgentExports,
    pub(super) agent: String,
    pub(super) is_global: bool,
}

#[async_trait]
impl InstructionProvider for ComputedInstruction {
    async fn instruction(&self, cx: &CallContext) -> Result<String, RunError> {
        let (agent, is_global) = (self.agent.clone(), self.is_global);
        let call = self.component.sandbox.run(Caller::Call(cx.clone()), |mut store, instance| async move {
            match &self.exports {
                AgentExports::Async(exports) => {
                    let guest = exports.load(&mut store, &instance)?;
                    let call = async move |accessor: &_| guest.call_instruct(accessor, agent, is_global).await;
                    store.run_concurrent(call).await?
                }
                AgentExports::Sync(exports) => {
                    let guest = exports.load(&mut store, &instance)?;
                    let call = async move |accessor: &_| guest.call_instruct(accessor, agent, is_global).await;
                    store.run_concurrent(call).await?
                }
            }
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
