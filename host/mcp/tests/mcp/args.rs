//! References of agents to configured servers.

use hatchery_engine::Extensions;
use hatchery_mcp::McpServers;
use hatchery_test_support::map;
use serde_json::{Value, json};

use crate::support::*;

fn error(args: Value) -> String {
    configured(erratic(&[]), args).1.err().unwrap()
}

#[test]
fn an_agent_names_a_configured_server() {
    assert_eq!(
        error(json!({})),
        "`args.server` is missing: the name of a server in hatchery.yaml; available: `erratic`"
    );
    assert_eq!(
        error(json!({"server": "files"})),
        "hatchery.yaml has no MCP server `files`; available: `erratic`; add it there below `mcp.servers`"
    );
    assert!(error(json!({"server": "erratic", "tools": []})).contains("unknown field `tools`"));
}

#[test]
fn an_agent_cannot_start_a_process_and_is_told_what_to_write() {
    let params = json!({"command": "npx", "args": ["-y", "@example/server"]});
    let expected = "an agent cannot start a process or open a connection of its own. Add the server to hatchery.yaml:\n\n\
         mcp:\n  servers:\n    NAME:\n      command: \"npx\"\n      args: [\"-y\",\"@example/server\"]\n\nand refer to it in the \
         agent by `args: {server: NAME}`";
    assert_eq!(error(json!({"stdio_server_params": params})), format!("`stdio_server_params`: {expected}"));
    let nested = error(json!({"stdioConnectionParams": {"serverParams": params, "timeout": 5}}));
    assert_eq!(nested, format!("`stdioConnectionParams`: {expected}"));
}

#[test]
fn an_agent_cannot_open_a_connection() {
    let error = error(json!({"streamable_http_connection_params": {"url": "http://10.0.0.1/mcp"}}));
    assert!(error.contains("      url: \"http://10.0.0.1/mcp\"\n"), "{error}");
}

#[test]
fn the_lines_for_a_server_of_adk_have_its_transport_and_no_secrets() {
    let has = |args: Value, lines: &str| {
        let error = error(args);
        assert!(error.contains(&format!("    NAME:\n{lines}\nand refer")), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    };
    has(
        json!({"sse_connection_params": {"url": "http://h/events", "headers": {"x-api-key": "s3cret"}}}),
        "      url: \"http://h/events\"\n      transport: sse\n      headers:\n        \"x-api-key\": {from: X_API_KEY}\n",
    );
    has(
        json!({"stdio_server_params": {"command": "notes", "env": {"NOTES_KEY": "s3cret"}}}),
        "      command: \"notes\"\n      env:\n        \"NOTES_KEY\": {from: NOTES_KEY}\n",
    );
    for (params, url) in [
        (json!({"url": "http://h:1/"}), "http://h:1/sse"),
        (json!({"url": "http://h:1/sse"}), "http://h:1/sse"),
        (json!({"url": "http://h:1", "sse_endpoint": "/mcp/events"}), "http://h:1/mcp/events"),
    ] {
        let lines = format!("      url: \"{url}\"\n      transport: sse\n");
        has(json!({"sse_server_params": params}), &lines);
    }
}

#[test]
fn a_server_that_must_not_be_used_is_explained() {
    let servers = McpServers::default().with_refused([("files".to_owned(), "it is not trusted".to_owned())]);
    let mut extensions = Extensions::default();
    servers.register(&mut extensions);
    let create = |name: &str, args: Value| extensions.toolsets.create(name, map(args)).unwrap().err().unwrap();
    assert_eq!(create("McpToolset", json!({"server": "files"})), "it is not trusted");
    assert_eq!(create("mcp:files", json!({})), "it is not trusted");
}
