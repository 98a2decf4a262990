//! Tools of components: one instance per call.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, ItemKind, JsonMap, Tool, ToolError};
use serde_json::Value;

use super::Component;
use super::exports::{Indices, ToolExports, call_guest};
use crate::contract::convert::{to_json, to_tool_error, wit};
use crate::contract::progress::with_progress;
use crate::error::CallError;
use crate::runtime::store::CallOrigin;

#[derive(Clone)]
pub(super) struct ComponentTool {
    pub(super) component: Arc<Component>,
    pub(super) exports: ToolExports,
    pub(super) declaration: Arc<FunctionDeclaration>,
    pub(super) is_long_running: bool,
    pub(super) requires_confirmation: bool,
    /// The arguments with which an agent definition uses it.
    pub(super) arguments: Option<Arc<JsonMap>>,
}

#[async_trait]
impl Tool for ComponentTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        format!("{}/{}", self.component.name, self.declaration.name).into()
    }

    fn with_arguments(&self, args: JsonMap) -> Result<Arc<dyn Tool>, String> {
        Ok(Arc::new(Self { arguments: Some(args.into()), ..self.clone() }))
    }

    fn is_long_running(&self) -> bool {
        self.is_long_running
    }

    fn requires_confirmation(&self) -> bool {
        self.requires_confirmation
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let tool = &self.declaration.name;
        let answer = self.answer(to_json(&args), &cx.with_arguments(self.arguments.clone())).await;
        answer
            .map_err(|error| error.into_tool_error(&self.component.name, ItemKind::Tool, tool))?
            .map_err(|error| to_tool_error(error, tool))
    }
}

impl ComponentTool {
    async fn answer(&self, args: String, cx: &CallContext) -> Result<Result<Value, wit::ToolError>, CallError> {
        let tool = &self.declaration.name;
        let name = tool.clone();
        let call = |origin: CallOrigin| async move {
            call_guest!(self.component, origin, self.exports, call_call(name, args))
        };
        match with_progress(cx, tool, call).await? {
            Ok(result) => self.component.parse_result(result, cx).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }
}
