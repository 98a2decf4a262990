//! A component's code executor: a fresh instance per piece of code.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, CodeExecutor, CodeInput, CodeOutput, ItemKind, ToolError};

use super::Component;
use crate::bindings::exports::hatchery::agent::guest_code_executors::GuestIndices;
use crate::convert::{FromWit, ToWit, bounded_tool_error};
use crate::error::CallError;
use crate::store::Caller;

pub(super) struct ComponentCodeExecutor {
    pub(super) component: Arc<Component>,
    pub(super) exports: GuestIndices,
    pub(super) name: String,
}

#[async_trait]
impl CodeExecutor for ComponentCodeExecutor {
    fn name(&self) -> &str {
        &self.name
    }

    async fn execute(&self, input: CodeInput, cx: &CallContext) -> Result<CodeOutput, ToolError> {
        let failed = |error: CallError| error.into_tool_error(&self.component.name, ItemKind::CodeExecutor, &self.name);
        let (name, input) = (self.name.clone(), input.to_wit());
        let call = self.component.sandbox.run(Caller::Call(cx.clone()), |mut store, instance| async move {
            let guest = self.exports.load(&mut store, &instance)?;
            store.run_concurrent(async move |accessor| guest.call_execute(accessor, name, input).await).await?
        });
        match call.await.map_err(failed)? {
            Ok(output) => self.component.accept(output, CodeOutput::from_wit).map_err(failed),
            Err(error) => Err(bounded_tool_error(error, &self.name)),
        }
    }
}
