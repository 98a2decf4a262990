//! Tool resolution: the tools of an agent for one step of its loop, which are its own and its toolsets' tools.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    AgentId, CallContext, FunctionDeclaration, JsonMap, LlmAgent, LlmRequest, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL,
    RunError, Tool, ToolError, Toolset,
};
use serde_json::Value;

use super::{LoopDriver, output_schema, transfer};
use crate::run::RunContext;

/// Names that are reserved for built-in tools.
pub(crate) const RESERVED: [&str; 4] =
    [transfer::TRANSFER, output_schema::SET_MODEL_RESPONSE, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL];

impl LoopDriver<'_> {
    /// Resolves the tools of the toolsets for the next request and the calls in its response.
    pub(super) async fn resolve_tools(&mut self) -> Result<(), RunError> {
        if !self.llm.toolsets.is_empty() {
            self.tools = all_tools(self.run, self.id, self.llm, &self.cx.call).await?;
        }
        Ok(())
    }
}

/// Returns the tools that no toolset provides: the agent's own, and the tools for transfers and structured output.
pub(super) fn static_tools(run: &RunContext, id: AgentId, llm: &LlmAgent) -> Vec<Arc<dyn Tool>> {
    let mut tools = transfer::with_transfer_tool(run, id, llm);
    tools.extend(output_schema::tool(llm));
    tools
}

/// Returns the static tools and the tools of the toolsets. The tool for structured output is last, because it depends
/// on the others.
async fn all_tools(
    run: &RunContext,
    id: AgentId,
    llm: &LlmAgent,
    cx: &CallContext,
) -> Result<Vec<Arc<dyn Tool>>, RunError> {
    let mut tools = static_tools(run, id, llm);
    let static_count = tools.len();
    add_toolsets(&mut tools, &llm.toolsets, cx).await?;
    if llm.output_schema.is_some()
        && let Some(last_static) = static_count.checked_sub(1)
    {
        let answer_tool = tools.remove(last_static);
        tools.push(answer_tool);
    }
    Ok(tools)
}

/// Adds the tools of toolsets. Tools that are in the list already take precedence over tools of the same name.
///
/// # Errors
/// If a toolset fails, or two of their tools have the same name.
pub(crate) async fn add_toolsets(
    tools: &mut Vec<Arc<dyn Tool>>,
    toolsets: &[Arc<dyn Toolset>],
    cx: &CallContext,
) -> Result<(), RunError> {
    let own_count = tools.len();
    let mut owners: HashMap<String, &Arc<dyn Toolset>> = HashMap::new();
    for toolset in toolsets {
        tools.push(Arc::new(ToolsetPreparation::new(toolset)));
        for tool in toolset.tools(cx).await? {
            let name = &tool.declaration().name;
            if tools.iter().take(own_count).any(|own| own.declaration().name == *name) {
                continue;
            }
            if let Some(other) = owners.insert(name.clone(), toolset) {
                return Err(name_conflict(cx, name, other, toolset));
            }
            tools.push(tool);
        }
    }
    Ok(())
}

fn name_conflict(cx: &CallContext, tool: &str, first: &Arc<dyn Toolset>, second: &Arc<dyn Toolset>) -> RunError {
    let (one, other) = (first.name(), second.name());
    let message = if Arc::ptr_eq(first, second) {
        format!("its toolset `{one}` has two tools named `{tool}`; rename one of them there")
    } else {
        format!(
            "its toolsets `{one}` and `{other}` both have a tool `{tool}`; give one of them a prefix, or leave the tool out of one"
        )
    };
    RunError::Agent { agent: cx.agent.to_string(), code: "TOOL_NAME_CLASH".into(), message }
}

/// Calls [`Toolset::prepare`] as a tool that cannot be called, at the toolset's position among the tools.
struct ToolsetPreparation {
    toolset: Arc<dyn Toolset>,
    declaration: Arc<FunctionDeclaration>,
}

impl ToolsetPreparation {
    fn new(toolset: &Arc<dyn Toolset>) -> Self {
        let declaration = FunctionDeclaration { name: toolset.name().into(), ..FunctionDeclaration::default() };
        Self { toolset: toolset.clone(), declaration: Arc::new(declaration) }
    }
}

#[async_trait]
impl Tool for ToolsetPreparation {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn is_callable(&self) -> bool {
        false
    }

    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        self.toolset.prepare(request, cx).await
    }

    async fn call(&self, _: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        Err(ToolError::Recoverable(format!("`{}` is a set of tools and cannot be called", self.declaration.name)))
    }
}
