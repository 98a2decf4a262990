//! What an agent can call in one step: its own tools, and those that its toolsets have at this moment.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    AgentId, CallContext, FunctionDeclaration, JsonMap, LlmAgent, LlmRequest, REQUEST_CONFIRMATION, RunError, Tool,
    ToolError, Toolset,
};
use serde_json::Value;

use super::{Step, output_schema, transfer};
use crate::agents::Frame;

/// Names of tools that are the engine's own.
pub(crate) const RESERVED: [&str; 3] = [transfer::TRANSFER, output_schema::SET_MODEL_RESPONSE, REQUEST_CONFIRMATION];

impl Step<'_> {
    /// Asks the toolsets anew: what they give now is shown to the model in the next request and called by its answer.
    pub(super) async fn look_up_tools(&mut self) -> Result<(), RunError> {
        if !self.llm.toolsets.is_empty() {
            self.tools = tools(self.frame, self.id, self.llm, &self.cx.call).await?;
        }
        Ok(())
    }
}

/// The agent's own tools, the one that hands over, and the one that takes an answer of a schema.
pub(super) fn own(frame: &Frame, id: AgentId, llm: &LlmAgent) -> Vec<Arc<dyn Tool>> {
    let mut tools = transfer::with_transfer_tool(frame, id, llm);
    tools.extend(output_schema::tool(llm));
    tools
}

/// The same with each toolset and its tools. The tool that takes the answer comes last, since it looks at the others.
async fn tools(frame: &Frame, id: AgentId, llm: &LlmAgent, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
    let mut tools = own(frame, id, llm);
    let last = tools.len();
    add_toolsets(&mut tools, &llm.toolsets, cx).await?;
    if llm.output_schema.is_some()
        && let Some(answering) = last.checked_sub(1)
    {
        let answering = tools.remove(answering);
        tools.push(answering);
    }
    Ok(tools)
}

/// Adds the tools of toolsets to those that are there. A tool that is there wins over one of a toolset.
///
/// # Errors
/// When a toolset fails, or two of their tools have one name.
pub(crate) async fn add_toolsets(
    tools: &mut Vec<Arc<dyn Tool>>,
    toolsets: &[Arc<dyn Toolset>],
    cx: &CallContext,
) -> Result<(), RunError> {
    let own = tools.len();
    let mut owners: HashMap<String, &Arc<dyn Toolset>> = HashMap::new();
    for toolset in toolsets {
        tools.push(Arc::new(Preparation::of(toolset)));
        for tool in toolset.tools(cx).await? {
            let name = &tool.declaration().name;
            if tools.iter().take(own).any(|own| own.declaration().name == *name) {
                continue;
            }
            if let Some(other) = owners.insert(name.clone(), toolset) {
                return Err(clash(cx, name, other, toolset));
            }
            tools.push(tool);
        }
    }
    Ok(())
}

fn clash(cx: &CallContext, tool: &str, first: &Arc<dyn Toolset>, second: &Arc<dyn Toolset>) -> RunError {
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

/// A toolset's own part of a request, in its place among the tools.
struct Preparation {
    toolset: Arc<dyn Toolset>,
    declaration: Arc<FunctionDeclaration>,
}

impl Preparation {
    fn of(toolset: &Arc<dyn Toolset>) -> Self {
        let declaration = FunctionDeclaration { name: toolset.name().into(), ..FunctionDeclaration::default() };
        Self { toolset: toolset.clone(), declaration: Arc::new(declaration) }
    }
}

#[async_trait]
impl Tool for Preparation {
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
