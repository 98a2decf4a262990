//! Toolsets of which an agent wants some tools, or under other names.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, LlmRequest, RunError, Tool, ToolError, Toolset};
use serde_json::Value;

/// Of `tools` only those named in `only`, all when it is empty, with `prefix` before their names.
pub(super) fn narrowed(tools: Arc<dyn Toolset>, only: &[String], prefix: Option<&str>) -> Arc<dyn Toolset> {
    if only.is_empty() && prefix.is_none() {
        return tools;
    }
    Arc::new(Narrowed { tools, only: only.to_vec(), prefix: prefix.unwrap_or_default().to_owned() })
}

struct Narrowed {
    tools: Arc<dyn Toolset>,
    only: Vec<String>,
    prefix: String,
}

#[async_trait]
impl Toolset for Narrowed {
    fn name(&self) -> &str {
        self.tools.name()
    }

    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        let mut tools = self.tools.tools(cx).await?;
        tools.retain(|tool| self.only.is_empty() || self.only.contains(&tool.declaration().name));
        if self.prefix.is_empty() {
            return Ok(tools);
        }
        Ok(tools.into_iter().map(|tool| Prefixed::new(tool, &self.prefix) as Arc<dyn Tool>).collect())
    }

    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        self.tools.prepare(request, cx).await
    }

    async fn close(&self) {
        self.tools.close().await;
    }
}

/// A tool under another name.
struct Prefixed {
    tool: Arc<dyn Tool>,
    declaration: Arc<FunctionDeclaration>,
}

impl Prefixed {
    fn new(tool: Arc<dyn Tool>, prefix: &str) -> Arc<Self> {
        let own = tool.declaration();
        let declaration = FunctionDeclaration { name: format!("{prefix}{}", own.name), ..own.as_ref().clone() };
        Arc::new(Self { declaration: Arc::new(declaration), tool })
    }
}

#[async_trait]
impl Tool for Prefixed {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn is_long_running(&self) -> bool {
        self.tool.is_long_running()
    }

    fn is_callable(&self) -> bool {
        self.tool.is_callable()
    }

    fn requires_confirmation(&self) -> bool {
        self.tool.requires_confirmation()
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        self.tool.call(args, cx).await
    }
}
