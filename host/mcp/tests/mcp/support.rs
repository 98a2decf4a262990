//! An agent that calls one tool of a server, and servers as processes.

use std::path::PathBuf;
use std::sync::Arc;

use hatchery_core::{Event, RunError, Toolset};
use hatchery_engine::Extensions;
use hatchery_mcp::{McpServers, McpToolset, ServerConfig, StdioServer, ToolsetOptions, Transport};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_test_support::{Harness, llm_on, map};
use serde_json::{Value, json};

/// Returns the path of the server that breaks the rules.
pub fn erratic_server() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().nth(2).unwrap().join("examples").join("erratic_server")
}

/// Returns the settings of the server that breaks the rules.
pub fn erratic(args: &[&str]) -> ServerConfig {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let server = StdioServer { command: erratic_server(), args, ..StdioServer::default() };
    ServerConfig::new(Transport::Stdio(server))
}

/// Returns a toolset of this server with default options.
pub fn toolset(config: ServerConfig) -> Arc<McpToolset> {
    Arc::new(McpToolset::new("erratic", config, ToolsetOptions::default()))
}

/// Returns the configured server `erratic` and its toolset `McpToolset` with these arguments.
pub fn configured(config: ServerConfig, args: Value) -> (McpServers, Result<Arc<dyn Toolset>, String>) {
    let servers = McpServers::new([("erratic".to_owned(), config)]);
    let mut extensions = Extensions::default();
    servers.register(&mut extensions);
    let toolset = extensions.toolsets.create("McpToolset", map(args)).unwrap();
    (servers, toolset)
}

/// An app whose agent calls tools of a toolset.
pub struct CallingApp {
    pub harness: Harness,
    pub model: Arc<Scripted>,
}

impl CallingApp {
    /// Creates an app that makes these calls in sequence, each after a message.
    pub async fn new(toolset: Arc<dyn Toolset>, calls: &[(&str, Value)]) -> Self {
        Self::with_replies(
            toolset,
            calls.iter().flat_map(|(name, args)| [Reply::call(*name, args.clone()), Reply::from("done")]),
        )
        .await
    }

    /// Creates an app whose model gives these replies.
    pub async fn with_replies(toolset: Arc<dyn Toolset>, replies: impl IntoIterator<Item = Reply>) -> Self {
        let model = Arc::new(Scripted::sequence(replies).record_requests());
        let agent = llm_on("caller", &model, |llm| llm.toolsets.push(toolset));
        Self { harness: Harness::new(agent).await, model }
    }

    /// Sends a message and returns the response of the tool that the agent calls.
    pub async fn response(&self) -> Value {
        response(&self.harness.run("go").await)
    }

    /// Sends a message to an agent that only answers, and returns the names of the tools that its model was sent.
    pub async fn tool_names(toolset: Arc<dyn Toolset>) -> Vec<String> {
        let model = Arc::new(Scripted::new().default_reply("hello").record_requests());
        let agent = llm_on("caller", &model, |llm| llm.toolsets.push(toolset));
        Harness::new(agent).await.run("go").await;
        model.requests()[0].tools.iter().map(|tool| tool.name.clone()).collect()
    }

    /// Sends a message to an agent with a toolset that cannot be used, and returns the error of the run.
    pub async fn error(toolset: Arc<dyn Toolset>) -> RunError {
        let app = Self::new(toolset, &[("echo", json!({}))]).await;
        app.harness.expect_error("go").await.1
    }
}

/// Calls a tool once and returns its response.
pub async fn call(toolset: Arc<dyn Toolset>, name: &str, args: Value) -> Value {
    CallingApp::new(toolset, &[(name, args)]).await.response().await
}

/// Returns the first function response in these events.
pub fn response(events: &[Arc<Event>]) -> Value {
    let mut responses = events.iter().flat_map(|event| event.function_responses());
    Value::Object(responses.next().unwrap().response.clone())
}

/// Returns the error message of a response.
pub fn error(response: &Value) -> &str {
    response["error"].as_str().unwrap_or_else(|| panic!("no error: {response}"))
}
