//! A tool whose effects a server of the tests counts, and agents in code that call it.
//!
//! The setting `server` is the URL of the server, `plan` has the effects of each agent in code.

use std::collections::BTreeMap;

use hatchery_guest::http::Request;
use hatchery_guest::prelude::*;

/// An effect.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Effect {
    /// The name of the effect.
    name: String,
}

/// Has an effect, which the server counts. Returns the server's answer.
#[tool]
async fn effect(effect: Effect, cx: ToolContext) -> Result<String, Error> {
    let server: String = cx.config("server")?.unwrap_or_default();
    let response = Request::post(format!("{server}/{}", effect.name)).send().await?;
    response.error_for_status()?.text().await
}

/// Has its effects, in sequence.
#[agent(tools = [effect])]
async fn first_clerk(cx: AgentContext) -> Result<(), ToolError> {
    work(&cx).await
}

/// Has its effects, in sequence.
#[agent(tools = [effect])]
async fn second_clerk(cx: AgentContext) -> Result<(), ToolError> {
    work(&cx).await
}

async fn work(cx: &AgentContext) -> Result<(), ToolError> {
    let mut plan: BTreeMap<String, Vec<String>> = cx.config("plan")?.unwrap_or_default();
    let mut answers = Vec::new();
    for name in plan.remove(&cx.info()?.agent).unwrap_or_default() {
        let answer: String = cx.call_tool("effect", &Effect { name }).await?;
        answers.push(answer);
    }
    Ok(cx.say(answers.join(" ")).await?)
}

hatchery_guest::export! { agents: [first_clerk, second_clerk], tools: [effect] }
