//! Plugins that guard a run: nothing bypasses them.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, Callback, CustomAgent, CustomAgentSpec, JsonMap, LlmRequest,
    LlmResponse, Plugin, RunError,
};
use hatchery_engine::{AgentTool, Plugins, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

/// Blocks the tool `delete`, and adds an instruction to every model request.
struct Guard;

#[async_trait]
impl Callback for Guard {
    fn name(&self) -> &str {
        "guard"
    }

    async fn before_tool(&self, _: &CallContext, tool: &str, _: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        Ok((tool == "delete").then(|| map(json!({"refused": true}))))
    }

    async fn before_model(&self, _: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        request.system_instructions.push("Be polite.".into());
        Ok(None)
    }
}

impl Plugin for Guard {}

async fn with_guard(root: Agent) -> Harness {
    let mut app = Harness::new(root).await;
    app.runner = Runner::with_plugins(app.runner.services().clone(), Plugins::new(vec![Arc::new(Guard)]).unwrap());
    app
}

fn delete() -> Arc<dyn hatchery_core::Tool> {
    tool("delete", |_, _| panic!("must not run"))
}

#[tokio::test]
async fn an_agent_that_is_called_as_a_tool_is_guarded() {
    let model = Arc::new(Scripted::sequence([Reply::call("delete", json!({})), Reply::text("it was refused")]));
    let helper = llm_on("helper", &model, |llm| llm.tools = vec![delete()]);
    let helper: Arc<dyn hatchery_core::Tool> = Arc::new(AgentTool::new(helper).unwrap());
    let root = Scripted::sequence([Reply::call("helper", json!({"request": "delete it"})), Reply::text("ok")]);
    let app = with_guard(llm_with("root", root, |llm| llm.tools = vec![helper])).await;
    assert_eq!(app.transcript("hi").await[1], r#"root: answer helper{"result":"it was refused"}"#);
    assert_eq!(model.requests()[0].system_instructions.last().unwrap(), "Be polite.");
}

struct DeletingAgent;

#[async_trait]
impl CustomAgent for DeletingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let answer = cx.call.host()?.call_tool(&cx.call, "delete", JsonMap::new()).await?;
        cx.say(answer.to_string()).await.map(|_| ())
    }
}

#[tokio::test]
async fn tools_that_code_calls_are_guarded() {
    let kind = AgentKind::Custom(CustomAgentSpec { code: Arc::new(DeletingAgent), model: None, tools: vec![delete()] });
    let app = with_guard(Agent::new("code", "", kind)).await;
    assert_eq!(app.transcript("hi").await, [r#"code: {"refused":true}"#]);
}
