//! Servers that hang, die, flood, lie or send too much. The agent or the operator reads why, and the next call works.

use std::collections::BTreeSet;
use std::time::Duration;

use hatchery_core::Toolset;
use hatchery_engine::toolsets::IntoToolset;
use hatchery_mcp::{Confirmation, ServerConfig, StdioServer, Transport};
use hatchery_models::scripted::Reply;
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_call_that_hangs_is_cancelled() {
    let mut config = erratic(&[]);
    config.limits.call_timeout = Duration::from_millis(200);
    let toolset = toolset(config);
    let app = CallingApp::new(toolset, &[("hang", json!({})), ("cancellations", json!({}))]).await;
    assert_eq!(
        error(&app.response().await),
        "the MCP server `erratic` did not answer the call of `hang` within 0.2 s, so the call was cancelled; it may have had \
         an effect"
    );
    assert_eq!(app.response().await["text_output"][0]["text"], "1");
}

#[tokio::test]
async fn a_call_with_endless_progress_ends_at_its_maximum_time() {
    let mut config = erratic(&[]);
    config.limits.max_call_time = Duration::from_millis(300);
    let response = call(toolset(config), "slow", json!({"steps": 50, "millis": 20})).await;
    assert!(error(&response).contains("did not answer the call of `slow` within 0.3 s"), "{response}");
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_started_again() {
    let toolset = toolset(erratic(&[]));
    let app = CallingApp::new(toolset, &[("die", json!({})), ("echo", json!({"text": "alive"}))]).await;
    assert_eq!(
        error(&app.response().await),
        "the connection to the MCP server `erratic` ended during the call of `die`, which may have had an effect: it closed \
         the connection"
    );
    assert_eq!(app.response().await["text_output"][0]["text"], "alive");
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_connection_and_not_the_host() {
    let (toolset, large) = (toolset(erratic(&[])), json!({"bytes": 50 << 20}));
    let app = CallingApp::new(toolset, &[("huge", large), ("echo", json!({"text": "alive"}))]).await;
    assert_eq!(
        error(&app.response().await),
        "the connection to the MCP server `erratic` ended during the call of `huge`, which may have had an effect: it sent a \
         message of more than 8388608 bytes"
    );
    assert_eq!(app.response().await["text_output"][0]["text"], "alive");
}

#[tokio::test]
async fn a_flood_of_notifications_ends_the_connection() {
    let mut config = erratic(&[]);
    config.limits.max_notifications = 10;
    let app = CallingApp::new(
        toolset(config),
        &[("flood", json!({"count": 100_000})), ("flood", json!({"count": 10})), ("echo", json!({"text": "alive"}))],
    )
    .await;
    let response = app.response().await;
    assert!(error(&response).ends_with("it sent more than 10 notifications per second"), "{response}");
    assert_eq!(app.response().await["text_output"][0]["text"], "flooded");
    assert_eq!(app.response().await["text_output"][0]["text"], "alive");
}

#[tokio::test]
async fn a_result_that_does_not_match_the_servers_own_schema_is_not_passed_on() {
    let response = call(toolset(erratic(&[])), "lie", json!({})).await;
    let expected =
        "the MCP server `erratic` answered with structured content that does not match its own output schema: ";
    assert!(error(&response).starts_with(expected), "{response}");
}

#[tokio::test]
async fn tools_with_invalid_names_or_schemas_are_left_out() {
    let names = CallingApp::tool_names(toolset(erratic(&["odd-tools"]))).await;
    assert_eq!(names.iter().filter(|name| *name == "echo").count(), 1);
    for name in ["adk_request_confirmation", "invalid_schema", "drop\ntable", "drop_table"] {
        assert!(!names.iter().any(|listed| listed == name), "{name}");
    }
}

#[tokio::test]
async fn models_see_valid_names_and_the_server_gets_its_own() {
    let offered = CallingApp::tool_names(toolset(erratic(&["odd-tools"]))).await;
    let is_valid = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    assert!(offered.iter().all(|name| name.len() <= 64 && name.chars().all(is_valid)), "{offered:?}");
    assert_eq!(offered.iter().collect::<BTreeSet<_>>().len(), offered.len(), "{offered:?}");
    let odd = &offered[offered.len() - 5..];
    assert_eq!((&*odd[0], &*odd[1], &*odd[3]), ("two_words", "notes_add", "files_read"));
    let calls: Vec<_> = odd.iter().map(|name| (name.as_str(), json!({}))).collect();
    let app = CallingApp::new(toolset(erratic(&["odd-tools"])), &calls).await;
    let mut artifacts = BTreeSet::new();
    for name in ["two words", "notes_add", "notes.add", "files/read", &"long".repeat(20)] {
        let response = app.response().await;
        assert_eq!(response["text_output"][0]["text"], name);
        let artifact = response["files"][0]["artifact"].as_str().unwrap();
        assert_eq!(artifact.split('/').count(), 3, "{artifact}");
        assert!(artifacts.insert(artifact.to_owned()), "two tools share {artifact}");
    }
}

#[tokio::test]
async fn settings_have_the_names_of_the_server() {
    let confirmed = ["files/read".to_owned()].into();
    let config = ServerConfig { confirmation: Confirmation::Tools(confirmed), ..erratic(&["odd-tools"]) };
    let args = json!({"server": "erratic", "tool_filter": ["files/read", "two words"], "tool_name_prefix": "my."});
    let (servers, selected) = configured(config, args);
    let selected = selected.unwrap();
    assert_eq!(CallingApp::tool_names(selected.clone()).await, ["my_two_words", "my_files_read"]);
    for name in ["files/read", "my_files_read"] {
        assert_eq!(CallingApp::tool_names(selected.clone().only([name]).into_toolset()).await, ["my_files_read"]);
    }
    let response = call(selected, "my_files_read", json!({})).await;
    assert_eq!(error(&response), "This tool call requires confirmation, please approve or reject.");
    servers.close().await;
}

#[tokio::test]
async fn an_endless_list_of_tools_is_refused() {
    let error = CallingApp::error(toolset(erratic(&["endless"]))).await;
    assert_eq!(error.code(), "MCP_UNAVAILABLE");
    let client_message = "toolset `mcp:erratic`: its MCP server is not available; the server's log holds the cause";
    assert_eq!(error.client_message(), client_message);
    assert_eq!(
        error.to_string(),
        "toolset `mcp:erratic`: the MCP server `erratic` is not available: its tools cannot be listed: there are more than 256 \
         tools; raise `max_tools` to allow more"
    );
}

#[tokio::test]
async fn a_tool_that_the_server_removes_in_a_run_is_unknown_at_the_next_step() {
    let replies = ["grow", "grown", "shrink", "grown"].map(|tool| Reply::call(tool, json!({"text": "there"})));
    let replies = replies.into_iter().chain([Reply::from("done")]);
    let app = CallingApp::with_replies(toolset(erratic(&[])), replies).await;
    let events = app.harness.run("go").await;
    let responses: Vec<_> = events.iter().flat_map(|event| event.function_responses()).collect();
    assert_eq!(responses.len(), 4);
    assert_eq!(responses[1].response["text_output"][0]["text"], "there");
    let error = responses[3].response["error"].to_string();
    assert!(error.contains("grown") && error.contains("shrink"), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_the_handshake_is_reported() {
    let mut config = erratic(&["silent"]);
    config.limits.connect_timeout = Duration::from_millis(200);
    let error = CallingApp::error(toolset(config)).await.to_string();
    assert!(error.contains("it did not complete the handshake within 0.2 s; raise `connect_timeout`"), "{error}");
}

#[tokio::test]
async fn a_server_that_cannot_start_is_reported_with_what_it_prints() {
    let error = CallingApp::error(toolset(erratic(&["broken"]))).await.to_string();
    assert!(error.contains("the handshake failed: "), "{error}");
    assert!(error.ends_with("; it printed last: the disk is on fire"), "{error}");
    let missing = StdioServer { command: "no-such-program".into(), ..StdioServer::default() };
    let error = CallingApp::error(toolset(ServerConfig::new(Transport::Stdio(missing)))).await.to_string();
    assert!(error.contains("cannot start `no-such-program`: "), "{error}");
    assert!(error.ends_with("check that it is installed and on the PATH of the host"), "{error}");
}

#[tokio::test]
async fn a_server_may_print_more_errors_than_are_logged() {
    // More than a pipe holds, after a line that is too long and one that is not UTF-8.
    let response = call(toolset(erratic(&[])), "complain", json!({})).await;
    assert_eq!(response["text_output"][0]["text"], "complained");
}

#[tokio::test]
async fn a_server_that_is_down_comes_back_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ready");
    let (servers, toolset) = configured(erratic(&["until-file", file.to_str().unwrap()]), json!({"server": "erratic"}));
    let toolset = toolset.unwrap();
    CallingApp::error(toolset.clone()).await;
    let status = || servers.statuses().remove(0);
    assert_eq!(status().state, "down");
    assert!(status().reason.unwrap().starts_with("the handshake failed: "));
    std::fs::write(&file, "").unwrap();
    while status().state != "ready" {
        tokio::task::yield_now().await;
    }
    assert_eq!(call(toolset, "echo", json!({"text": "back"})).await["text_output"][0]["text"], "back");
    assert!(status().tools.contains(&"echo".to_owned()));
    servers.close().await;
    assert_eq!(status().state, "stopped");
}

#[tokio::test]
async fn closing_ends_the_process() {
    let toolset = toolset(erratic(&[]));
    assert_eq!(call(toolset.clone(), "echo", json!({})).await["text_output"][0]["text"], "nothing");
    toolset.close().await;
    let error = CallingApp::error(toolset).await.to_string();
    assert!(error.ends_with("because it is stopping or the server is not trusted any more"), "{error}");
}
