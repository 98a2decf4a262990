//! Builders of agents and tools.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentKind, CallContext, FunctionDeclaration, Instruction, JsonMap, LlmAgent, ModelRef, Tool, ToolError,
};
use hatchery_models::scripted::Scripted;
use serde_json::Value;

/// Creates an LLM agent with this model.
pub fn llm(name: &str, model: Scripted) -> Agent {
    llm_with(name, model, |_| {})
}

/// Creates an LLM agent with this model and other options.
pub fn llm_with(name: &str, model: Scripted, change: impl FnOnce(&mut LlmAgent)) -> Agent {
    llm_on(name, &Arc::new(model), change)
}

/// Like [`llm_with`], for a model whose requests the test reads.
pub fn llm_on(name: &str, model: &Arc<Scripted>, change: impl FnOnce(&mut LlmAgent)) -> Agent {
    let mut agent = LlmAgent {
        model: Some(ModelRef::Object("scripted".into(), model.clone())),
        instruction: Instruction::Template("Be brief.".into()),
        ..LlmAgent::default()
    };
    change(&mut agent);
    Agent::new(name, format!("Does {name}."), AgentKind::Llm(Box::new(agent)))
}

/// Creates a workflow agent.
pub fn workflow(name: &str, kind: AgentKind, sub_agents: Vec<Agent>) -> Agent {
    Agent::new(name, "", kind).with_sub_agents(sub_agents)
}

type ToolBody = dyn Fn(JsonMap, &CallContext) -> Result<Value, ToolError> + Send + Sync;

/// A tool from a closure.
struct FnTool {
    declaration: Arc<FunctionDeclaration>,
    kind: ToolKind,
    body: Box<ToolBody>,
}

#[derive(PartialEq)]
enum ToolKind {
    Plain,
    LongRunning,
    WithConfirmation,
}

/// Creates a tool from a closure.
pub fn tool(
    name: &str,
    body: impl Fn(JsonMap, &CallContext) -> Result<Value, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    Arc::new(FnTool { declaration: declaration(name), kind: ToolKind::Plain, body: Box::new(body) })
}

/// Creates a tool that requires confirmation.
pub fn tool_with_confirmation(
    name: &str,
    body: impl Fn(JsonMap, &CallContext) -> Result<Value, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    Arc::new(FnTool { declaration: declaration(name), kind: ToolKind::WithConfirmation, body: Box::new(body) })
}

/// Creates a tool whose result arrives later.
pub fn long_running(
    name: &str,
    body: impl Fn(JsonMap, &CallContext) -> Result<Value, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    Arc::new(FnTool { declaration: declaration(name), kind: ToolKind::LongRunning, body: Box::new(body) })
}

/// Returns a declaration with only a name.
pub fn declaration(name: &str) -> Arc<FunctionDeclaration> {
    Arc::new(FunctionDeclaration { name: name.into(), ..FunctionDeclaration::default() })
}

#[async_trait]
impl Tool for FnTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn is_long_running(&self) -> bool {
        self.kind == ToolKind::LongRunning
    }

    fn requires_confirmation(&self) -> bool {
        self.kind == ToolKind::WithConfirmation
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        (self.body)(args, cx)
    }
}
