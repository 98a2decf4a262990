//! Agent transfer: the possible targets, the instruction for the model, and the tool `transfer_to_agent`.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    AgentId, AgentKind, CallContext, FunctionDeclaration, JsonMap, LlmAgent, RunError, Tool, ToolError, quoted_list,
};
use serde_json::{Value, json};

use crate::run::RunContext;

/// The name of the tool.
pub(crate) const TRANSFER: &str = "transfer_to_agent";

/// Returns the agent's tools, and [`TRANSFER`] if there is a target.
pub(super) fn with_transfer_tool(run: &RunContext, id: AgentId, llm: &LlmAgent) -> Vec<Arc<dyn Tool>> {
    let mut tools = llm.tools.clone();
    let names: Vec<_> = targets(run, id, llm).into_iter().map(|target| run.agent(target).name.clone()).collect();
    if !names.is_empty() {
        tools.push(Arc::new(TransferTool::new(&names)));
    }
    tools
}

/// Returns the instruction that describes the targets. `None` if there are none.
pub(super) fn instruction(run: &RunContext, id: AgentId, llm: &LlmAgent) -> Option<String> {
    let targets = targets(run, id, llm);
    if targets.is_empty() {
        return None;
    }
    let mut text = String::from("You can hand the conversation over to one of these agents:\n");
    for target in &targets {
        let agent = run.agent(*target);
        let description = if agent.description.is_empty() { &agent.name } else { &agent.description };
        text.push_str(&format!("\nAgent name: {}\nAgent description: {description}\n", agent.name));
    }
    text.push_str(&format!(
        "\nIf you are the best to answer by your description, answer. If another agent is better, call `{TRANSFER}` with its name, \
         and say nothing beside the call."
    ));
    let parent = run.app.tree.parent(id).filter(|parent| targets.contains(parent));
    if let Some(parent) = parent {
        text.push_str(&format!(
            " If neither you nor the others can answer, hand over to your parent agent `{}`.",
            run.agent(parent).name
        ));
    }
    Some(text)
}

/// Returns the agent of this name if the agent `id` may transfer to it.
///
/// # Errors
/// [`RunError::Agent`], which lists the agents to which it may transfer.
pub(crate) fn find_target(run: &RunContext, id: AgentId, name: &str) -> Result<AgentId, RunError> {
    let targets = match &run.agent(id).kind {
        AgentKind::Llm(llm) => targets(run, id, llm),
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } | AgentKind::Custom(_) => Vec::new(),
    };
    if let Some(target) = targets.iter().find(|target| run.agent(**target).name == name) {
        return Ok(*target);
    }
    let names = targets.iter().map(|target| run.agent(*target).name.as_str());
    Err(RunError::Agent {
        agent: run.agent(id).name.clone(),
        code: "TRANSFER_NOT_ALLOWED".into(),
        message: format!(
            "cannot transfer to `{}`; the agents that it can transfer to are {}",
            name.escape_debug(),
            quoted_list(names)
        ),
    })
}

/// Returns the agents to which this agent may transfer: its sub-agents, then its parent, then its peers.
fn targets(run: &RunContext, id: AgentId, llm: &LlmAgent) -> Vec<AgentId> {
    let tree = &run.app.tree;
    let mut targets = tree.children(id).to_vec();
    let Some(parent) = tree.parent(id).filter(|parent| matches!(tree.agent(*parent).kind, AgentKind::Llm(_))) else {
        return targets;
    };
    if !llm.disallow_transfer_to_parent {
        targets.push(parent);
    }
    if !llm.disallow_transfer_to_peers {
        targets.extend(tree.children(parent).iter().filter(|peer| **peer != id));
    }
    targets
}

/// Transfers to one of the named agents.
struct TransferTool {
    declaration: Arc<FunctionDeclaration>,
}

impl TransferTool {
    fn new(names: &[String]) -> Self {
        let declaration = Arc::new(FunctionDeclaration {
            name: TRANSFER.into(),
            description: "Hands the conversation over to another agent.".into(),
            parameters: Some(json!({
                "type": "object",
                "properties": {
                    "agent_name": {"type": "string", "description": "The agent to hand over to.", "enum": names}
                },
                "required": ["agent_name"]
            })),
            response: None,
        });
        Self { declaration }
    }
}

#[async_trait]
impl Tool for TransferTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        // The name is valid, because the pipeline has checked the arguments against the schema.
        let name = args.get("agent_name").and_then(Value::as_str).unwrap_or_default();
        cx.actions().transfer_to_agent = Some(name.into());
        Ok(Value::Null)
    }
}
