//! A component's tool: a fresh instance per call.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, Tool, ToolError};
use serde_json::Value;

use super::Component;
use crate::bindings::exports::hatchery::agent::guest_tools::GuestIndices;
use crate::convert::{bounded, bounded_message, text, value, wit};
use crate::error::CallError;
use crate::store::Caller;

pub(super) struct ComponentTool {
    pub(super) component: Arc<Component>,
    pub(super) exports: GuestIndices,
    pub(super) declaration: Arc<FunctionDeclaration>,
    pub(super) is_long_running: bool,
}

#[async_trait]
impl Tool for ComponentTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn is_long_running(&self) -> bool {
        self.is_long_running
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let tool = &self.declaration.name;
        let answer = self.answer(text(&args), cx).await;
        match answer.map_err(|error| error.into_tool_error(&self.component.name, tool))? {
            Ok(result) => Ok(result),
            Err(wit::ToolError::Model(message)) => Err(ToolError::Model(bounded_message(message))),
            Err(wit::ToolError::Fatal(error)) => {
                let wit::Error { code, message } = bounded(error);
                Err(ToolError::Fatal { tool: tool.clone(), code: code.into(), message })
            }
        }
    }
}

impl ComponentTool {
    async fn answer(&self, args: String, cx: &CallContext) -> Result<Result<Value, wit::ToolError>, CallError> {
        let name = self.declaration.name.clone();
        let call = self.component.sandbox.run(Caller::Call(cx.clone()), |mut store, instance| async move {
            let guest = self.exports.load(&mut store, &instance)?;
            store.run_concurrent(async move |accessor| guest.call_call(accessor, name, args).await).await?
        });
        match call.await? {
            Ok(result) => {
                self.component.check_size(&result)?;
                let result = value(&result, "the result").map_err(|error| CallError::Contract(error.to_string()))?;
                Ok(Ok(result))
            }
            Err(error) => Ok(Err(error)),
        }
    }
}
