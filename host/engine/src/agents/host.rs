//! What the engine does for running code: sub agents, tools and models.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use hatchery_core::{
    AgentHost, AgentId, AgentKind, CallContext, Claim, EventData, EventSink, JsonMap, Model, ModelError,
    ModelErrorKind, ModelRef, Plugin, RunError, Tool, ToolAuthorizer, ToolError,
};
use serde_json::Value;

use super::past::Past;
use super::{Frame, Lane, Outcome, custom, run};
use crate::llm::tool_resolution::add_toolsets;
use crate::tools::pipeline::{Caller, ToolPipeline};

/// The engine as seen by one agent.
pub(super) struct Host {
    frame: Arc<Frame>,
    agent: AgentId,
    past: Arc<Past>,
    /// True once a sub agent waits for a result that comes later.
    paused: AtomicBool,
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
        // What it said may have been dropped; then it says it anew.
        let is_past = self.past.has_more() && !self.past.is_below(tree, sub_agent);
        let past = if is_past { Past::none() } else { self.past.clone() };
        let lane = Lane { branch: cx.branch.clone(), past, sink };
        match run(self.frame.clone(), sub_agent, lane).await? {
            Outcome::Done | Outcome::HandedBack => Ok(()),
            Outcome::Paused => {
                self.paused.store(true, Ordering::Release);
                Err(RunError::Stopped)
            }
        }
    }

    async fn call_checked_tool(
        &self,
        cx: &CallContext,
        name: &str,
        args: JsonMap,
        check: ToolAuthorizer<'_>,
    ) -> Result<Value, ToolError> {
        let tool = self.tool(cx, name).await?;
        check(&tool.qualified_name())?;
        let call_cx = cx.for_call(cx.function_call_id.as_deref());
        let plugins = &self.frame.plugins;
        let hooks = plugins.chain_without_callbacks();
        ToolPipeline::new(&tool, plugins, hooks, Caller::Code, call_cx).call(args, cx).await
    }

    fn admit(&self, cx: &CallContext, event: &EventData) -> Result<Option<Claim>, RunError> {
        match &self.frame.agent(self.agent).kind {
            AgentKind::Custom(_) => custom::admit(&self.frame.app.tree, cx, event),
            _ => Ok(None),
        }
    }

    fn plugins(&self) -> Vec<Arc<dyn Plugin>> {
        self.frame.plugins.for_agent_tools()
    }

    fn model(&self, cx: &CallContext) -> Result<(String, Arc<dyn Model>), RunError> {
        resolve_model(&self.frame, self.agent, cx)
    }
}

impl Host {
    pub(super) fn new(frame: Arc<Frame>, agent: AgentId, past: Arc<Past>) -> Self {
        Self { frame, agent, past, paused: AtomicBool::new(false) }
    }

    /// True once a sub agent waits for a result that comes later: then its agent waits too.
    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// One of the agent's tools; its toolsets are asked only for what it does not have itself.
    async fn tool(&self, cx: &CallContext, name: &str) -> Result<Arc<dyn Tool>, ToolError> {
        let (own, toolsets) = match &self.frame.agent(self.agent).kind {
            AgentKind::Llm(llm) => (llm.tools.as_slice(), llm.toolsets.as_slice()),
            AgentKind::Custom(custom) => (custom.tools.as_slice(), [].as_slice()),
            AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => ([].as_slice(), [].as_slice()),
        };
        if let Some(tool) = find(own, name) {
            return Ok(tool.clone());
        }
        let mut tools = own.to_vec();
        add_toolsets(&mut tools, toolsets, cx).await.map_err(|error| ToolError::Recoverable(error.client_message()))?;
        find(&tools, name).cloned().ok_or_else(|| ToolError::Recoverable(unknown_tool(name, &tools)))
    }
}

fn find<'a>(tools: &'a [Arc<dyn Tool>], name: &str) -> Option<&'a Arc<dyn Tool>> {
    tools.iter().find(|tool| tool.is_callable() && tool.declaration().name == name)
}

/// The model of an agent: its own, or that of the nearest agent above that has one; or what plugins put in its place.
pub(crate) fn resolve_model(
    frame: &Frame,
    id: AgentId,
    cx: &CallContext,
) -> Result<(String, Arc<dyn Model>), RunError> {
    let (name, found) = match model_of(frame, id) {
        Some(ModelRef::Named(name)) => (name, frame.invocation.services.models.model(name)),
        Some(ModelRef::Object(name, model)) => (name, Ok(model.clone())),
        None => {
            let message =
                format!("no model found for agent `{}` or its ancestors; give one of them a `model`", cx.agent);
            return Err(ModelError::new(ModelErrorKind::UnknownModel, "none", message).into());
        }
    };
    Ok((name.clone(), frame.plugins.model(cx, name, found)?))
}

/// What an agent's author has written down as its model.
fn model_of(frame: &Frame, id: AgentId) -> Option<&ModelRef> {
    let tree = &frame.app.tree;
    std::iter::once(id).chain(tree.ancestors(id)).find_map(|id| match &tree.agent(id).kind {
        AgentKind::Llm(llm) => llm.model.as_ref(),
        AgentKind::Custom(custom) => custom.model.as_ref(),
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => None,
    })
}

/// What a model or a component is told that calls a tool which the agent does not have.
pub(crate) fn unknown_tool(name: &str, tools: &[Arc<dyn Tool>]) -> String {
    let callable = tools.iter().filter(|tool| tool.is_callable());
    let names: Vec<_> = callable.map(|tool| tool.declaration().name.as_str()).collect();
    format!("there is no tool `{name}`; the tools are {}", or_none(&names))
}

fn or_none(names: &[&str]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
