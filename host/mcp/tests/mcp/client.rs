//! Tools of a well-behaved server process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{CallContext, ConfigValue, PartData, Toolset};
use hatchery_mcp::{Confirmation, McpToolset, ServerConfig, StdioServer, ToolsetOptions, Transport};
use hatchery_test_support::briefs;
use serde_json::json;

use crate::support::*;

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn an_agent_calls_a_tool_of_a_process() {
    let toolset = toolset(erratic(&[]));
    let response = call(toolset.clone(), "echo", json!({"text": "hello"})).await;
    assert_eq!(response, json!({"text_output": [{"text": "hello"}]}));
    toolset.close().await;
}

#[tokio::test]
async fn a_process_gets_the_path_and_its_own_variables_only() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let home = ConfigValue::Variable { name: "CARGO_PKG_NAME".into(), prefix: "name of ".into() };
    let server = StdioServer {
        command: erratic_server(),
        env: [("GREETING".to_owned(), ConfigValue::Text("hi".into())), ("PACKAGE".to_owned(), home)].into(),
        cwd: Some(folder.clone()),
        ..StdioServer::default()
    };
    let response = call(toolset(ServerConfig::new(Transport::Stdio(server))), "environment", json!({})).await;
    let variables = ["GREETING=hi", "PACKAGE=name of hatchery-mcp"];
    assert_eq!(response, json!({"structured_output": {"variables": variables, "folder": folder}}));
}

#[tokio::test]
async fn a_filter_and_a_prefix_apply_to_the_names_of_tools() {
    let config = ServerConfig { tools: Some(names(&["echo", "look", "fail"])), ..erratic(&[]) };
    let args = json!({"server": "erratic", "toolFilter": ["echo", "look", "die"], "toolNamePrefix": "my_"});
    let (servers, filtered) = configured(config, args);
    let filtered = filtered.unwrap();
    assert_eq!(CallingApp::tool_names(filtered.clone()).await, ["my_echo", "my_look"]);
    let response = call(filtered, "my_echo", json!({"text": "hello"})).await;
    assert_eq!(response["text_output"][0]["text"], "hello");
    servers.close().await;
}

#[tokio::test]
async fn a_person_confirms_the_calls_of_tools_that_the_operator_or_the_agent_lists() {
    let config = ServerConfig { confirmation: Confirmation::Tools(names(&["echo"])), ..erratic(&[]) };
    let (servers, toolset) = configured(config, json!({"server": "erratic", "require_confirmation": ["look"]}));
    let toolset = toolset.unwrap();
    let calls = [("echo", json!({})), ("look", json!({})), ("fail", json!({}))];
    let app = CallingApp::new(toolset, &calls).await;
    let waiting = json!({"error": "This tool call requires confirmation, please approve or reject."});
    assert_eq!(app.response().await, waiting);
    assert_eq!(app.response().await, waiting);
    assert_eq!(error(&app.response().await), "Tool execution failed. Details: no such city");
    servers.close().await;
}

#[tokio::test]
async fn files_become_artifacts_that_the_model_sees_once() {
    let app = CallingApp::new(toolset(erratic(&[])), &[("picture", json!({})), ("echo", json!({}))]).await;
    let response = app.response().await;
    assert_eq!(response["text_output"], json!([{"text": "a picture"}]));
    let image = json!({"artifact": "mcp/erratic/picture-0.png", "version": 0, "mimeType": "image/png", "bytes": 5});
    assert_eq!(response["files"][0], image);
    assert_eq!(response["files"][1]["artifact"], "mcp/erratic/picture-1.wav");
    app.response().await;
    let requests = app.model.requests();
    let files = |request: usize| {
        let parts = requests[request].contents.iter().flat_map(|content| &content.parts);
        let blobs = parts.filter_map(|part| match &part.data {
            PartData::InlineData(blob) => Some((blob.mime_type.clone(), blob.data.clone())),
            _ => None,
        });
        blobs.collect::<Vec<_>>()
    };
    assert_eq!(files(0), []);
    assert_eq!(files(1), [("image/png".into(), "hello".into()), ("audio/wav".into(), "hello".into())]);
    assert_eq!(files(3), []);
}

#[tokio::test]
async fn a_tool_that_the_server_adds_is_offered_at_the_next_step() {
    let toolset = toolset(erratic(&[]));
    let app = CallingApp::new(toolset, &[("grow", json!({})), ("grown", json!({"text": "new"}))]).await;
    assert_eq!(app.response().await["text_output"][0]["text"], "grown");
    assert_eq!(app.response().await["text_output"][0]["text"], "new");
}

#[tokio::test]
async fn listing_is_tried_three_times() {
    assert!(CallingApp::tool_names(toolset(erratic(&["flaky"]))).await.contains(&"echo".to_owned()));
}

#[tokio::test]
async fn all_agents_share_one_process() {
    let (servers, first) = configured(erratic(&[]), json!({"server": "erratic"}));
    let mut extensions = hatchery_engine::Extensions::default();
    servers.register(&mut extensions);
    let second = extensions.toolsets.create("mcp:erratic", Default::default()).unwrap().unwrap();
    assert_eq!(second.name(), "mcp:erratic");
    call(first.unwrap(), "grow", json!({})).await;
    assert!(CallingApp::tool_names(second).await.contains(&"grown".to_owned()));
    servers.close().await;
}

#[tokio::test]
async fn progress_extends_the_time_of_a_call() {
    let mut config = erratic(&[]);
    config.limits.call_timeout = Duration::from_secs(2);
    let response = call(toolset(config), "slow", json!({"steps": 5, "millis": 500})).await;
    assert_eq!(response["text_output"][0]["text"], "done");
}

#[tokio::test]
async fn a_cancelled_run_cancels_its_call_at_the_server() {
    let (servers, toolset) = configured(erratic(&[]), json!({"server": "erratic"}));
    let toolset = toolset.unwrap();
    let app = CallingApp::new(toolset.clone(), &[("hang", json!({}))]).await;
    let mut request = app.harness.request(hatchery_core::Content::user("go"));
    let cancel = request.cancel.clone();
    request.config.auto_create_session = true;
    let mut run = app.harness.runner.run(app.harness.app.clone(), request).await.unwrap();
    // The event with the call precedes the call, which needs the connection that the listing has opened.
    let first = run.next().await.unwrap().unwrap();
    assert_eq!(briefs(&[first]), ["caller: call hang{}"]);
    let server_is_called = async {
        // A second call is answered after the first has arrived, since there is one pipe.
        call(toolset.clone(), "echo", json!({})).await;
    };
    server_is_called.await;
    cancel.cancel();
    while run.next().await.is_some() {}
    let mut cancellations = call(toolset.clone(), "cancellations", json!({})).await;
    while cancellations["text_output"][0]["text"] == "0" {
        cancellations = call(toolset.clone(), "cancellations", json!({})).await;
    }
    assert_eq!(cancellations["text_output"][0]["text"], "1");
    servers.close().await;
}

#[tokio::test]
async fn a_server_gets_no_roots_and_no_sampling() {
    for method in ["roots/list", "sampling/createMessage"] {
        let params = json!({"messages": [], "maxTokens": 1});
        let response = call(toolset(erratic(&[])), "ask", json!({"method": method, "params": params})).await;
        let answer = &response["text_output"][0];
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }
}

#[tokio::test]
async fn a_call_that_may_have_had_an_effect_is_not_repeated_after_an_interruption() {
    let toolset = Arc::new(McpToolset::new("erratic", erratic(&[]), ToolsetOptions::default()));
    let harness = hatchery_test_support::Harness::new(
        hatchery_engine::build::custom("lister", {
            let toolset = toolset.clone();
            move |cx| {
                let toolset = toolset.clone();
                async move {
                    let tools = toolset.tools(&CallContext::clone(&cx.call)).await?;
                    let idempotent = tools.iter().filter(|tool| tool.is_idempotent());
                    let names: Vec<_> = idempotent.map(|tool| tool.qualified_name().into_owned()).collect();
                    cx.say(names.join(", ")).await?;
                    Ok(())
                }
            }
        })
        .build()
        .unwrap(),
    )
    .await;
    assert_eq!(harness.transcript("go").await, ["lister: mcp:erratic/look"]);
}
