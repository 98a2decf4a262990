//! Code executors of components: one instance per execution.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, CodeExecutor, CodeInput, CodeOutput, ItemKind, ToolError};

use super::Component;
use super::exports::{CodeExecutorExports, Indices, call_guest};
use crate::contract::convert::{FromWit, ToWit, to_tool_error};
use crate::error::CallError;

pub(super) struct ComponentCodeExecutor {
    pub(super) component: Arc<Component>,
    pub(super) exports: CodeExecutorExports,
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
        match call_guest!(self.component, cx, self.exports, call_execute(name, input)).map_err(failed)? {
            Ok(output) => self.component.convert(cx, output, CodeOutput::from_wit).map_err(failed),
            Err(error) => Err(to_tool_error(error, &self.name)),
        }
    }
}
