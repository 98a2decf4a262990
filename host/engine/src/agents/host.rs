//! What the engine does for running code: sub agents, tools and models.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::context::AgentHost;
use hatchery_core::{
    AgentId, AgentKind, CallContext, EventSink, JsonMap, Model, ModelError, ModelErrorKind, ModelRef, RunError, Tool,
    ToolError,
};
use serde_json::Value;

use super::{Frame, run};

/// The engine as seen by one agent.
pub(super) struct Host {
    pub(super) frame: Arc<Frame>,
    pub(super) agent: AgentId,
}

#[async_trait]
impl AgentHost for Host {
    async fn run_sub_agent(&self, cx: &CallContext, name: &str, sink: Arc<dyn EventSink>) -> Result<(), RunError> {
        let tree = &self.frame.app.tree;
        let Some(sub_agent) = tree.find_sub_agent(self.agent, name) else {
            let below: Vec<_> = tree.children(self.agent).iter().map(|id| tree.agent(*id).name.as_str()).collect();
            let hint = format!(" below `{}`, which has {}", cx.agent, or_none(&below));
            return Err(RunError::NotFound { what: "Agent", name: name.into(), hint });
        };
        run(self.frame.clone(), sub_agent, cx.branch.clone(), sink).await.map(|_| ())
    }

    async fn call_tool(&self, cx: &CallContext, name: &str, args: JsonMap) -> Result<Value, ToolError> {
        let tools = self.tools();
        let Some(tool) = tools.iter().find(|tool| tool.is_callable() && tool.declaration().name == name) else {
            return Err(ToolError::Model(unknown_tool(name, tools)));
        };
        let call = cx.for_call(cx.function_call_id.as_deref());
        // The tool sees what its caller has changed.
        call.actions().state_delta = cx.actions().state_delta.clone();
        let result = tool.call(args, &call).await;
        cx.actions().merge(call.take_actions());
        result
    }

    fn model(&self, cx: &CallContext) -> Result<(String, Arc<dyn Model>), RunError> {
        resolve_model(&self.frame, self.agent, &cx.agent)
    }
}

impl Host {
    fn tools(&self) -> &[Arc<dyn Tool>] {
        match &self.frame.agent(self.agent).kind {
            AgentKind::Llm(llm) => &llm.tools,
            AgentKind::Custom(custom) => &custom.tools,
            AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => &[],
        }
    }
}

/// The model of an agent: its own, or that of the nearest agent above that has one.
pub(crate) fn resolve_model(frame: &Frame, id: AgentId, agent: &str) -> Result<(String, Arc<dyn Model>), RunError> {
    let tree = &frame.app.tree;
    let model = std::iter::once(id).chain(tree.ancestors(id)).find_map(|id| match &tree.agent(id).kind {
        AgentKind::Llm(llm) => llm.model.as_ref(),
        AgentKind::Custom(custom) => custom.model.as_ref(),
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => None,
    });
    match model {
        Some(ModelRef::Named(name)) => Ok((name.clone(), frame.invocation.services.models.model(name)?)),
        Some(ModelRef::Object(name, model)) => Ok((name.clone(), model.clone())),
        None => {
            let message = format!("no model found for agent `{agent}` or its ancestors; give one of them a `model`");
            Err(ModelError::new(ModelErrorKind::UnknownModel, "none", message).into())
        }
    }
}

/// What a model or a component is told that calls a tool which the agent does not have.
pub(crate) fn unknown_tool(name: &str, tools: &[Arc<dyn Tool>]) -> String {
    let callable = tools.iter().filter(|tool| tool.is_callable());
    let names: Vec<_> = callable.map(|tool| tool.declaration().name.as_str()).collect();
    format!("there is no tool `{name}`; the tools are {}", or_none(&names))
}

pub(crate) fn or_none(names: &[&str]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
