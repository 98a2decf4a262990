//! Serves two agents of adk-rust with a model of its own: `native` answers at once, `dice` calls a native tool first.

use std::sync::Arc;

use adk_agent::LlmAgentBuilder;
use adk_core::{Content, Llm, LlmRequest, LlmResponse, LlmResponseStream, MultiAgentLoader, Part, Result, ToolContext};
use adk_server::{ServerConfig, create_app};
use adk_session::InMemorySessionService;
use adk_tool::FunctionTool;
use async_trait::async_trait;
use serde_json::{Value, json};

/// A model that answers from the last part of the conversation, without latency.
struct Scripted;

#[async_trait]
impl Llm for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn generate_content(&self, request: LlmRequest, _stream: bool) -> Result<LlmResponseStream> {
        let last = request.contents.last().and_then(|content| content.parts.last());
        let content = match last {
            Some(Part::FunctionResponse { function_response, .. }) => {
                Content::new("model").with_text(format!("You rolled {}.", function_response.response))
            }
            Some(Part::Text { text }) if request.tools.is_empty() => {
                Content::new("model").with_text(format!("You said {text}."))
            }
            _ => {
                let call = Part::FunctionCall {
                    name: "roll_die".into(),
                    args: json!({"sides": 20}),
                    id: Some("call-1".into()),
                    thought_signature: None,
                };
                Content { role: "model".into(), parts: vec![call] }
            }
        };
        let response = LlmResponse { content: Some(content), turn_complete: true, ..LlmResponse::default() };
        Ok(Box::pin(futures::stream::iter([Ok(response)])))
    }
}

async fn roll(_: Arc<dyn ToolContext>, arguments: Value) -> Result<Value> {
    let sides = arguments.get("sides").and_then(Value::as_u64).unwrap_or(6);
    Ok(json!({"result": sides / 2 + 1}))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tool = FunctionTool::new("roll_die", "Rolls a die", roll);
    let native = LlmAgentBuilder::new("native").model(Arc::new(Scripted)).instruction("Answer.").build()?;
    let dice = LlmAgentBuilder::new("dice").model(Arc::new(Scripted)).instruction("Roll dice.").tool(Arc::new(tool)).build()?;
    let agents = MultiAgentLoader::new(vec![Arc::new(native), Arc::new(dice)])?;
    let config = ServerConfig::new(Arc::new(agents), Arc::new(InMemorySessionService::new()));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}/api", listener.local_addr()?);
    axum::serve(listener, create_app(config)).await?;
    Ok(())
}
