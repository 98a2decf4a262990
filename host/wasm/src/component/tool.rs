//! A component's tools: a fresh instance per call.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, ItemKind, JsonMap, RunError, Tool, ToolError, Toolset};
use serde_json::Value;

use super::Component;
use super::exports::ToolExports;
use crate::convert::{bounded_tool_error, text, value, wit};
use crate::error::CallError;
use crate::store::Caller;

pub(super) struct ComponentTool {
    pub(super) component: Arc<Component>,
    pub(super) exports: ToolExports,
    pub(super) declaration: Arc<FunctionDeclaration>,
    pub(super) is_long_running: bool,
    pub(super) requires_confirmation: bool,
}

#[async_trait]
impl Tool for ComponentTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn is_long_running(&self) -> bool {
        self.is_long_running
    }

    fn requires_confirmation(&self) -> bool {
        self.requires_confirmation
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let tool = &self.declaration.name;
        let answer = self.answer(text(&args), cx).await;
        answer
            .map_err(|error| error.into_tool_error(&self.component.name, ItemKind::Tool, tool))?
            .map_err(|error| bounded_tool_error(error, tool))
    }
}

impl ComponentTool {
    async fn answer(&self, args: String, cx: &CallContext) -> Result<Result<Value, wit::ToolError>, CallError> {
        let name = self.declaration.name.clone();
        let call = self.component.sandbox.run(Caller::Call(cx.clone()), |mut store, instance| async move {
            match &self.exports {
                ToolExports::Async(exports) => {
                    let guest = exports.load(&mut store, &instance)?;
                    store.run_concurrent(async move |accessor| guest.call_call(accessor, name, args).await).await?
                }
                ToolExports::Sync(exports) => {
                    let guest = exports.load(&mut store, &instance)?;
                    store.run_concurrent(async move |accessor| guest.call_call(accessor, name, args).await).await?
                }
            }
        });
        match call.await? {
            Ok(result) => self.component.accept(result, |json| value(&json, "the result")).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }
}

/// All tools of a component.
pub(super) struct ComponentTools {
    pub(super) name: Arc<str>,
    pub(super) tools: Vec<Arc<dyn Tool>>,
}

#[async_trait]
impl Toolset for ComponentTools {
    fn name(&self) -> &str {
        &self.name
    }

    async fn tools(&self, _: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        Ok(self.tools.clone())
    }
}
