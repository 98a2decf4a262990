//! The client that the conformance suite runs: an agent that calls every tool of the server at the URL, through this
//! crate's toolset. Fails if a call fails.

use std::process::ExitCode;
use std::sync::Arc;

use hatchery_core::{CallContext, RunError, Tool, Toolset};
use hatchery_engine::build::custom;
use hatchery_mcp::{Handshake, HttpServer, McpToolset, ServerConfig, ToolsetOptions, Transport};
use hatchery_test_support::Harness;
use serde_json::{Map, Value, json};

/// Returns arguments that match the types of a schema.
fn arguments(schema: &Value) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let value = |schema: &Value| match schema.get("type").and_then(Value::as_str) {
        Some("number" | "integer") => json!(5),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("text"),
    };
    properties.into_iter().flatten().map(|(name, schema)| (name.clone(), value(schema))).collect()
}

async fn call_all(toolset: &dyn Toolset, cx: &CallContext) -> Result<(), RunError> {
    for tool in toolset.tools(cx).await? {
        let schema = tool.declaration().parameters.clone().unwrap_or_default();
        match Tool::call(tool.as_ref(), arguments(&schema), cx).await {
            Ok(result) => eprintln!("{}: {result}", tool.declaration().name),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let Some(url) = std::env::args().next_back() else { return ExitCode::FAILURE };
    let is_modern = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").is_ok_and(|version| version.as_str() >= "2026");
    let mut config = ServerConfig::new(Transport::Http(HttpServer { url, ..HttpServer::default() }));
    config.handshake = if is_modern { Handshake::Discover } else { Handshake::Initialize };
    let toolset = Arc::new(McpToolset::new("conformance", config, ToolsetOptions::default()));
    let agent = custom("caller", {
        let toolset = toolset.clone();
        move |cx| {
            let toolset = toolset.clone();
            async move { call_all(toolset.as_ref(), &cx.call).await }
        }
    });
    let Ok(agent) = agent.build() else { return ExitCode::FAILURE };
    let harness = Harness::new(agent).await;
    let outcome = harness.start("go").await.collect().await;
    toolset.close().await;
    match outcome {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
