//! Resources, prompts, sampling and cancellation with a real peer of `rmcp`, over standard input and output and over
//! HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hatchery_core::{
    Content, Embedder, Event, Model, ModelError, ModelResolver, PartData, Services, TOOL_PROGRESS_KEY, Toolset,
};
use hatchery_engine::Runner;
use hatchery_mcp::{HttpServer, McpToolset, Sampling, ServerConfig, StdioServer, ToolsetOptions, Transport};
use hatchery_models::ModelProviders;
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_test_support::{SESSION, USER, map, services};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};

use crate::http::serve;
use crate::support::*;

#[path = "../../examples/library_server.rs"]
mod server;
use server::Library;

/// Returns the settings of the server as a process, and of a server over HTTP.
async fn configs() -> [ServerConfig; 2] {
    let command = erratic_server().with_file_name("library_server");
    let process = Transport::Stdio(StdioServer { command, ..StdioServer::default() });
    let library = Library::default();
    let service = StreamableHttpService::new(
        move || Ok(library.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let (address, _): (SocketAddr, _) = serve("127.0.0.1:0", Router::new().nest_service("/mcp", service)).await;
    let http = Transport::Http(HttpServer { url: format!("http://{address}"), ..HttpServer::default() });
    [process, http].map(ServerConfig::new)
}

fn with_resources(config: ServerConfig) -> Arc<McpToolset> {
    let options = ToolsetOptions { resources: true, ..ToolsetOptions::default() };
    Arc::new(McpToolset::new("library", config, options))
}

fn load(names: &[&str]) -> (&'static str, Value) {
    ("load_mcp_resource", json!({ "resource_names": names }))
}

#[tokio::test]
async fn a_model_is_told_of_resources_and_loads_them() {
    for config in configs().await {
        let app = CallingApp::new(with_resources(config), &[load(&["rules", "logo", "memo:///shelf/7"])]).await;
        let response = app.response().await;
        let texts = json!([
            {"uri": "memo:///rules", "text": "Be quiet."}, {"uri": "memo:///shelf/7", "text": "Books of shelf/7."}
        ]);
        assert_eq!(response["text_output"], texts);
        assert_eq!(response["files"][0]["artifact"], "mcp/library/load_mcp_resource-0.png");
        assert_eq!(response["files"][0]["uri"], "memo:///logo");
        let requests = app.model.requests();
        let instructions = requests[0].system_instructions.join("\n");
        let rules = json!({
            "name": "rules", "uri": "memo:///rules", "description": "The rules of the library.", "mimeType": "text/plain",
        });
        assert!(
            instructions.contains(&format!("The MCP server library has these resources: [{rules},")),
            "{instructions}"
        );
        let parts = requests[1].contents.iter().flat_map(|content| &content.parts);
        let is_logo = |data: &PartData| matches!(data, PartData::InlineData(blob) if blob.mime_type == "image/png");
        assert_eq!(parts.filter(|part| is_logo(&part.data)).count(), 1);
    }
}

#[tokio::test]
async fn a_resource_that_does_not_exist_is_named() {
    for config in configs().await {
        let calls = [load(&["prices"]), load(&["memo:///prices"]), load(&[])];
        let app = CallingApp::new(with_resources(config), &calls).await;
        assert_eq!(error(&app.response().await), "there is no resource `prices`; there are [\"rules\",\"logo\"]");
        assert_eq!(
            error(&app.response().await),
            "the MCP server `library` refused the request for `memo:///prices`: there is no memo:///prices"
        );
        assert_eq!(error(&app.response().await), "`resource_names` must have one to 16 names or URIs");
    }
}

#[tokio::test]
async fn a_resource_that_the_server_adds_is_shown_at_the_next_step() {
    for config in configs().await {
        let app = CallingApp::new(with_resources(config), &[("publish", json!({})), load(&["news"])]).await;
        app.response().await;
        assert_eq!(app.response().await["text_output"][0]["text"], "We are open.");
    }
}

#[tokio::test]
async fn resources_need_the_consent_of_the_agent_and_of_the_operator() {
    let [config, _] = configs().await;
    let names = CallingApp::tool_names(toolset(config.clone())).await;
    assert!(!names.contains(&"load_mcp_resource".to_owned()), "{names:?}");
    let tools = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    let closed = ServerConfig { tools: tools(&["count"]), ..config.clone() };
    assert_eq!(CallingApp::tool_names(with_resources(closed)).await, ["count"]);
    let open = ServerConfig { tools: tools(&["count", "load_mcp_resource"]), ..config.clone() };
    let (servers, toolset) = configured(open, json!({"server": "erratic", "useMcpResources": true, "prefix": "my_"}));
    assert_eq!(CallingApp::tool_names(toolset.unwrap()).await, ["my_count", "my_load_mcp_resource"]);
    servers.close().await;
}

#[tokio::test]
async fn a_prompt_with_arguments_from_the_state_is_an_instruction() {
    for config in configs().await {
        let (servers, toolset) = configured(config, json!({"server": "erratic", "prompts": ["librarian"]}));
        let app = CallingApp::new(toolset.unwrap(), &[("count", json!({}))]).await;
        let key = app.harness.session().await.key;
        let missing = app.harness.expect_error("go").await.1;
        assert_eq!(missing.code(), "MCP_UNAVAILABLE");
        let expected =
            "its prompt `librarian` cannot be used: its argument `language` is not in the state of the session";
        assert!(missing.to_string().ends_with(expected), "{missing}");
        let sessions = &app.harness.runner.services().sessions;
        sessions.delete(&key).await.unwrap();
        sessions.create("app", USER, Some(SESSION), map(json!({"language": "Latin"}))).await.unwrap();
        app.response().await;
        let instructions = &app.model.requests()[0].system_instructions;
        assert!(instructions.contains(&"Speak Latin in a low voice.".to_owned()), "{instructions:?}");
        servers.close().await;
    }
}

#[tokio::test]
async fn a_prompt_that_does_not_exist_is_named() {
    let [config, _] = configs().await;
    let options = ToolsetOptions { prompts: vec!["cook".into()], ..ToolsetOptions::default() };
    let error = CallingApp::error(Arc::new(McpToolset::new("library", config, options))).await.to_string();
    let expected = "its prompt `cook` cannot be used: there is no such prompt; there are: `librarian`";
    assert!(error.ends_with(expected), "{error}");
}

/// Resolves the name `small` to a model.
struct OneModel(Arc<Scripted>);

impl ModelResolver for OneModel {
    fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        ModelProviders::new().embedder(name)
    }

    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        match name {
            "small" => Ok(self.0.clone()),
            other => ModelProviders::new().model(other),
        }
    }
}

/// Calls the tool that requests a message of a model, and returns the events.
async fn summarize(config: ServerConfig, model: &Arc<Scripted>) -> Vec<Arc<Event>> {
    let mut app = CallingApp::new(toolset(config), &[("summarize", json!({"text": "A long story."}))]).await;
    let services = Services { models: Arc::new(OneModel(model.clone())), ..services() };
    app.harness.runner = Runner::new(services);
    app.harness.runner.services().sessions.create("app", USER, Some(SESSION), map(json!({}))).await.unwrap();
    app.harness.send(Content::user("go")).await
}

#[tokio::test]
async fn a_server_gets_messages_of_the_model_of_its_settings() {
    for config in configs().await {
        let model = Arc::new(Scripted::sequence([Reply::from("A story.")]).record_requests());
        let sampling = Some(Sampling { model: "small".into(), max_tokens: 50 });
        let events = summarize(ServerConfig { sampling, ..config }, &model).await;
        assert_eq!(response(&events)["text_output"][0]["text"], "small: A story.");
        let request = &model.requests()[0];
        assert_eq!(request.system_instructions, ["Summarize in one sentence."]);
        assert_eq!(request.contents[0].text(), "A long story.");
        assert_eq!((request.config.temperature, request.config.max_output_tokens), (Some(0.5), Some(50)));
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_a_message_with_that_stop_reason() {
    let [config, _] = configs().await;
    let sampling = Some(Sampling { model: "small".into(), max_tokens: 50 });
    let config = ServerConfig { sampling, ..config };
    let cut_off = |text: &str| Arc::new(Scripted::sequence([Reply::text(text).finish("MAX_TOKENS")]));
    let events = summarize(config.clone(), &cut_off("A story of")).await;
    assert_eq!(response(&events)["text_output"][0]["text"], "small: A story of …");
    let events = summarize(config, &Arc::new(Scripted::sequence([Reply::text("no").finish("SAFETY")]))).await;
    let text = response(&events)["text_output"][0]["text"].to_string();
    assert!(text.contains("the model did not answer: the provider blocked the answer"), "{text}");
}

#[tokio::test]
async fn a_server_without_the_setting_gets_no_messages_of_a_model() {
    for config in configs().await {
        let model = Arc::new(Scripted::sequence([Reply::from("A story.")]).record_requests());
        let events = summarize(config, &model).await;
        let text = response(&events)["text_output"][0]["text"].to_string();
        assert!(text.contains("sampling/createMessage"), "{text}");
        assert_eq!(model.requests().len(), 0);
    }
}

#[tokio::test]
async fn a_model_that_fails_is_an_error_for_the_server() {
    let [config, _] = configs().await;
    let sampling = Some(Sampling { model: "no-such-model".into(), max_tokens: 50 });
    let model = Arc::new(Scripted::new());
    let events = summarize(ServerConfig { sampling, ..config }, &model).await;
    let text = response(&events)["text_output"][0]["text"].to_string();
    assert!(text.contains("no-such-model"), "{text}");
}

#[tokio::test]
async fn a_call_that_hangs_is_cancelled_over_every_transport() {
    for mut config in configs().await {
        config.limits.call_timeout = Duration::from_millis(300);
        let toolset: Arc<dyn Toolset> = toolset(config);
        let response = call(toolset.clone(), "wait", json!({})).await;
        let expected = "the MCP server `erratic` did not answer the call of `wait` within 0.3 s, so the call was cancelled; it \
                        may have had an effect";
        assert_eq!(error(&response), expected);
        wait_for_one(&toolset, "cancelled").await;
    }
}

#[tokio::test]
async fn progress_is_an_event_of_a_run_with_streaming() {
    const RUNS: usize = 100;
    let reports = |events: &[Arc<Event>]| -> Vec<Value> {
        let metadata = events.iter().filter(|event| event.partial).filter_map(|event| event.custom_metadata.as_deref());
        metadata.filter_map(|metadata| metadata.get(TOOL_PROGRESS_KEY).cloned()).collect()
    };
    for config in configs().await {
        let calls = vec![("count", json!({})); RUNS];
        let mut app = CallingApp::new(toolset(config), &calls).await;
        assert_eq!(reports(&app.harness.run("go").await), [Value::Null; 0]);
        app.harness = app.harness.streaming();
        // Notifications are handled concurrently: one that is overtaken by another, or by the result, is omitted.
        let mut runs = 1;
        let (events, reports) = loop {
            assert!(runs < RUNS, "no run has reported progress");
            let events = app.harness.run("go").await;
            let reports = reports(&events);
            if !reports.is_empty() {
                break (events, reports);
            }
            runs += 1;
        };
        let id = events.iter().find_map(|event| event.function_calls().next()?.id.clone()).unwrap();
        let expected = [1.0, 2.0, 3.0].map(|step| {
            json!({"progress": step, "total": 3.0, "message": format!("step {step}"), "name": "count", "id": id})
        });
        let mut remaining = expected.iter();
        assert!(reports.iter().all(|report| remaining.any(|step| step == report)), "{reports:?}");
        let stored = app.harness.session().await.events;
        assert!(stored.iter().all(|event| !event.partial));
    }
}

/// Calls a tool without arguments until it returns `1`.
async fn wait_for_one(toolset: &Arc<dyn Toolset>, tool: &str) {
    while call(toolset.clone(), tool, json!({})).await["text_output"][0]["text"] != "1" {}
}

#[tokio::test]
async fn a_cancelled_run_cancels_its_call_over_every_transport() {
    for config in configs().await {
        let toolset: Arc<dyn Toolset> = toolset(config);
        let app = CallingApp::new(toolset.clone(), &[("wait", json!({}))]).await;
        let request = app.harness.request(Content::user("go"));
        let cancel = request.cancel.clone();
        let mut run = app.harness.runner.run(app.harness.app.clone(), request).await.unwrap();
        run.next().await.unwrap().unwrap();
        let end = tokio::spawn(async move { while run.next().await.is_some() {} });
        wait_for_one(&toolset, "waiting").await;
        cancel.cancel();
        end.await.unwrap();
        wait_for_one(&toolset, "cancelled").await;
    }
}
