//! Resolves an agent's model, and creates the error messages for tools and agents that do not exist.

use std::sync::Arc;

use hatchery_core::{
    AgentId, AgentKind, AgentTree, CallContext, Model, ModelRef, ModelResolver, RunError, Tool, quoted_list,
};

use super::RunContext;

impl RunContext {
    /// Returns the name and the model of an agent: its own model, or the model of its nearest ancestor with one.
    /// Plugins may replace it.
    pub(crate) fn resolve_model(&self, id: AgentId, cx: &CallContext) -> Result<(String, Arc<dyn Model>), RunError> {
        let (name, model) = match model_ref(&self.app.tree, id) {
            Some(model) => (model.name(), model.resolve(self.invocation.services.models.as_ref())),
            None => {
                return Err(RunError::Agent {
                    agent: cx.agent.to_string(),
                    code: "MODEL_MISSING".into(),
                    message: "it has no model and inherits none; set `model` for it or for an agent above it".into(),
                });
            }
        };
        Ok((name.to_owned(), self.plugins.model(cx, name, model)?))
    }
}

/// Returns the model that is declared for an agent or for its nearest ancestor that declares one.
fn model_ref(tree: &AgentTree, id: AgentId) -> Option<&ModelRef> {
    std::iter::once(id).chain(tree.ancestors(id)).find_map(|id| match &tree.agent(id).kind {
        AgentKind::Llm(llm) => llm.model.as_ref(),
        AgentKind::Custom(custom) => custom.model.as_ref(),
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => None,
    })
}

/// Returns true if the agent is one that can hold a live conversation: it and the agents above it are LLM agents, so
/// that no workflow waits for its end.
fn can_converse(tree: &AgentTree, id: AgentId) -> bool {
    std::iter::once(id).chain(tree.ancestors(id)).all(|id| matches!(tree.agent(id).kind, AgentKind::Llm(_)))
}

/// Returns true if the agent answers a live run in a live conversation, as its declared model is live.
pub(crate) fn is_live(tree: &AgentTree, id: AgentId, models: &dyn ModelResolver) -> bool {
    let has_live_model = || model_ref(tree, id).is_some_and(|model| model.capabilities(models).live);
    can_converse(tree, id) && has_live_model()
}

/// Returns the error message for a call of a tool that the agent does not have.
pub(crate) fn unknown_tool(name: &str, tools: &[Arc<dyn Tool>]) -> String {
    let callable = tools.iter().filter(|tool| tool.is_callable());
    let names = callable.map(|tool| tool.declaration().name.as_str());
    format!("there is no tool `{name}`; the tools are {}", quoted_list(names))
}
