//! A component's code executor: an instance per piece of code.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, CodeExecutor, CodeInput, CodeOutput, ItemKind, ToolError};
use wasmtime::Store;
use wasmtime::component::Instance;

use super::Component;
use crate::contract::bindings::exports::hatchery::agent::guest_code_executors::GuestIndices;
use crate::contract::convert::{FromWit, ToWit, bounded_tool_error};
use crate::error::CallError;
use crate::runtime::store::HostState;

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
        let load = |store: &mut Store<HostState>, instance: &Instance| self.exports.load(store, instance);
        let call = self
            .component
            .sandbox
            .call(cx, load, async move |accessor, guest| guest.call_execute(accessor, name, input).await);
        match call.await.map_err(failed)? {
            Ok(output) => self.component.accept(output, CodeOutput::from_wit).map_err(failed),
            Err(error) => Err(bounded_tool_error(error, &self.name)),
        }
    }
}
