//! The engine's implementation of [`AgentHost`]: runs sub-agents, calls tools and resolves models for code.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use hatchery_core::{
    AgentHost, AgentId, AgentKind, CallContext, Claim, EventData, EventSink, JsonMap, Model, Plugin, RunError, Tool,
    ToolAuthorizer, ToolError, quoted_list,
};
use serde_json::Value;

use super::{custom, run_agent};
use crate::llm::tool_resolution::add_toolsets;
use crate::llm::transfer;
use crate::run::{AgentOutcome, AgentScope, Replay, RunContext, unknown_tool};
use crate::tools::pipeline::{ToolCaller, ToolPipeline};

/// Returns the host of an agent's run.
pub(crate) fn engine_host(run: &Arc<RunContext>, agent: AgentId, replay: &Arc<Replay>) -> Arc<dyn AgentHost> {
    Arc::new(EngineHost::new(run.clone(), agent, replay.clone()))
}

/// The engine as the code of one agent sees it.
pub(super) struct EngineHost {
    run: Arc<RunContext>,
    agent: AgentId,
    replay: Arc<Replay>,
    /// True once a sub-agent has paused.
    is_paused: AtomicBool,
}

#[async_trait]
impl AgentHost for EngineHost {
    async fn run_sub_agent(&self, cx: &CallContext, name: &str, sink: Arc<dyn EventSink>) -> Result<(), RunError> {
        let tree = &self.run.app.tree;
        let Some(sub_agent) = tree.find_sub_agent(self.agent, name) else {
            let below = tree.children(self.agent).iter().map(|id| tree.agent(*id).name.as_str());
            let hint = format!(" below `{}`, which has {}", cx.agent, quoted_list(below));
            return Err(RunError::NotFound { kind: "Agent", name: name.into(), hint });
        };
        let replay = self.replay.for_sub_agent(tree, sub_agent);
        let scope = AgentScope { branch: cx.branch.clone(), replay, sink, span: cx.span().clone() };
        match run_agent(self.run.clone(), sub_agent, scope).await? {
            AgentOutcome::Done | AgentOutcome::Escalated | AgentOutcome::Transfer(_) => Ok(()),
            AgentOutcome::Paused => {
                self.is_paused.store(true, Ordering::Release);
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
        let key = cx.next_call_key(name, &args);
        let call_cx = cx.for_call(cx.function_call_id.as_deref()).with_call_key(key);
        let plugins = &self.run.plugins;
        let hooks = plugins.chain_without_callbacks();
        ToolPipeline::new(&tool, plugins, hooks, ToolCaller::Code, call_cx).call(args, cx).await
    }

    fn admit(&self, cx: &CallContext, event: &EventData) -> Result<Option<Claim>, RunError> {
        match &self.run.agent(self.agent).kind {
            AgentKind::Custom(_) => custom::admit(&self.run.app.tree, cx, event),
            _ => Ok(None),
        }
    }

    fn is_replaying(&self, cx: &CallContext) -> bool {
        self.replay.has_next_of(&cx.agent)
    }

    fn check_transfer(&self, _: &CallContext, target: &str) -> Result<(), RunError> {
        transfer::find_target(&self.run, self.agent, target).map(|_| ())
    }

    fn plugins(&self) -> Vec<Arc<dyn Plugin>> {
        self.run.plugins.for_agent_tools()
    }

    fn model(&self, cx: &CallContext) -> Result<(String, Arc<dyn Model>), RunError> {
        self.run.resolve_model(self.agent, cx)
    }
}

impl EngineHost {
    pub(super) fn new(run: Arc<RunContext>, agent: AgentId, replay: Arc<Replay>) -> Self {
        Self { run, agent, replay, is_paused: AtomicBool::new(false) }
    }

    /// Returns true once a sub-agent has paused; its agent pauses too then.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Returns the agent's tool of this name. Resolves the toolsets only if the agent's own tools do not have the name.
    async fn tool(&self, cx: &CallContext, name: &str) -> Result<Arc<dyn Tool>, ToolError> {
        let (own, toolsets) = match &self.run.agent(self.agent).kind {
            AgentKind::Llm(llm) => (llm.tools.as_slice(), llm.toolsets.as_slice()),
            AgentKind::Custom(custom) => (custom.tools.as_slice(), [].as_slice()),
            AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => ([].as_slice(), [].as_slice()),
        };
        if let Some(tool) = find(own, name) {
            return Ok(tool.clone());
        }
        let mut tools = own.to_vec();
        add_toolsets(&mut tools, toolsets, cx).await.map_err(|error| ToolError::Recoverable(error.redact()))?;
        find(&tools, name).cloned().ok_or_else(|| ToolError::Recoverable(unknown_tool(name, &tools)))
    }
}

fn find<'a>(tools: &'a [Arc<dyn Tool>], name: &str) -> Option<&'a Arc<dyn Tool>> {
    tools.iter().find(|tool| tool.is_callable() && tool.declaration().name == name)
}
