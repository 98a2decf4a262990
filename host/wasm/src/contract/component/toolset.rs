//! Toolsets of components: tools that their code computes before each model call.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, ItemKind, JsonMap, RunError, Tool, ToolError, Toolset};
use serde_json::Value;

use super::Component;
use super::exports::{Indices, ToolsetExports, call_guest};
use super::manifest::{DescribedTool, MAX_ITEMS, check_count};
use crate::contract::bindings::hatchery::agent::specs;
use crate::contract::convert::{EstimateSize, to_json, to_tool_error, wit};
use crate::contract::progress::with_progress;
use crate::error::CallError;
use crate::runtime::store::CallOrigin;

pub(super) struct ComponentToolset {
    pub(super) component: Arc<Component>,
    pub(super) exports: ToolsetExports,
    pub(super) name: String,
}

#[async_trait]
impl Toolset for ComponentToolset {
    fn name(&self) -> &str {
        &self.name
    }

    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        let name = self.name.clone();
        let answer = call_guest!(self.component, &cx.read_only(), self.exports, call_tools(name));
        let specs = self.component.convert_result(cx, ItemKind::Toolset, &self.name, answer, Ok)?;
        let failed = |message: String| RunError::Extension {
            kind: ItemKind::Toolset,
            name: format!("{}/{}", self.component.name, self.name),
            code: "INVALID_TOOLS".into(),
            message,
        };
        check_count(ItemKind::Tool, specs.len(), MAX_ITEMS).map_err(failed)?;
        let tool = |spec: specs::ToolSpec| -> Result<Arc<dyn Tool>, RunError> {
            let described = DescribedTool::try_from(spec).map_err(failed)?;
            Ok(Arc::new(ToolsetTool {
                component: self.component.clone(),
                exports: self.exports.clone(),
                toolset: self.name.clone(),
                described,
            }))
        };
        specs.into_iter().map(tool).collect()
    }
}

struct ToolsetTool {
    component: Arc<Component>,
    exports: ToolsetExports,
    toolset: String,
    described: DescribedTool,
}

#[async_trait]
impl Tool for ToolsetTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.described.declaration
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        format!("{}/{}/{}", self.component.name, self.toolset, self.described.declaration.name).into()
    }

    fn is_long_running(&self) -> bool {
        self.described.is_long_running
    }

    fn requires_confirmation(&self) -> bool {
        self.described.requires_confirmation
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let tool = &self.described.declaration.name;
        self.answer(to_json(&args), cx)
            .await
            .map_err(|error| error.into_tool_error(&self.component.name, ItemKind::Tool, tool))?
            .map_err(|error| to_tool_error(error, tool))
    }
}

impl ToolsetTool {
    async fn answer(&self, args: String, cx: &CallContext) -> Result<Result<Value, wit::ToolError>, CallError> {
        let name = &self.described.declaration.name;
        let (toolset, tool) = (self.toolset.clone(), name.clone());
        let call = |origin: CallOrigin| async move {
            call_guest!(self.component, origin, self.exports, call_call(toolset, tool, args))
        };
        match with_progress(cx, name, call).await? {
            Ok(result) => self.component.parse_result(result, cx).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }
}

impl EstimateSize for specs::ToolSpec {
    fn estimated_size(&self) -> u64 {
        self.declaration.estimated_size()
    }
}
