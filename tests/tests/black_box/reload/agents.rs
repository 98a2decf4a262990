//! Reloads of the dependencies of agents: tools, agents and files from elsewhere, and components.

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::{entry, message};
use hatchery_tests::{Folder, Host, event, paths};
use reqwest::Method;
use serde_json::{Value, json};

use super::apply;

/// A host that others use: it rolls dice for MCP clients, and greets A2A clients.
async fn other(config: &str) -> Result<(Folder, Host)> {
    let folder = super::folder(config)?;
    folder.put("dice.wasm", paths::component("dice")?)?;
    let host = Host::serve(&folder).await?;
    Ok((folder, host))
}

/// Returns the last text of an app's answer in a new session.
async fn answer(host: &Host, app: &str, session: &str) -> Result<String> {
    let events = host.ask(app, session, "Go").await?;
    Ok(event::text(events.last().context("an answer")?))
}

/// Waits until an app serves.
async fn wait_until_loaded(host: &Host, app: &str) -> Result<()> {
    let file = format!("{app}/root_agent.yaml");
    let is_loaded = |components: &Value| entry(components, &file).is_some_and(|it| it["state"] == "loaded");
    host.wait_until(&format!("{app} is loaded"), is_loaded).await.map(drop)
}

#[tokio::test]
async fn an_mcp_server_is_added_replaced_and_removed() -> Result<()> {
    let (_, first) = other("mcp: {expose: {tools: ['*']}}\n").await?;
    let (_, second) = other("mcp: {expose: {tools: ['*']}}\n").await?;
    let folder = Folder::empty()?;
    folder.write_operator_config("")?;
    let agent = "name: roller\nmodel: scripted:roller/answers.yaml\ninstruction: Roll.\ntools: [{name: McpToolset, args: {server: dice}}]\n";
    folder.write("roller/root_agent.yaml", agent)?;
    let answers = "turns:\n  - when: {tool: dice_roll_die}\n    reply: Rolled.\n  - reply: [{call: {name: dice_roll_die, args: {sides: 6}}}]\n";
    folder.write("roller/answers.yaml", answers)?;
    let host = Host::serve(&folder).await?;
    let refused = host.wait_for_refusal("roller/root_agent.yaml").await?;
    ensure!(refused.contains("hatchery.yaml has no MCP server `dice`"), "{refused}");
    let config = |of: &Host| format!("mcp: {{servers: {{dice: {{url: '{}/mcp'}}}}}}\n", of.url);
    apply(&host, &folder, &config(&first), &["mcp.servers"]).await?;
    wait_until_loaded(&host, "roller").await?;
    assert_eq!(answer(&host, "roller", "a").await?, "Rolled.");
    // The first one is no longer asked.
    apply(&host, &folder, &config(&second), &["mcp.servers"]).await?;
    ensure!(first.stop().await?);
    assert_eq!(answer(&host, "roller", "b").await?, "Rolled.");
    apply(&host, &folder, "", &["mcp.servers"]).await?;
    host.wait_for_log("an MCP server was removed or is no longer trusted: its connection is closed").await?;
    host.create_session("roller", "c").await?;
    host.post("/run", &message("roller", "c", "Go")).await?.error(500, "MCP_UNAVAILABLE")?;
    Ok(())
}

#[tokio::test]
async fn remote_agents_are_added_and_what_is_exposed_changes() -> Result<()> {
    let (inner_folder, inner) = other("").await?;
    let folder = Folder::empty()?;
    folder.write_operator_config("")?;
    folder.write("far/root_agent.yaml", "agent_class: A2aAgent\nname: far\nargs: {agent: hello}\n")?;
    let host = Host::serve(&folder).await?;
    let refused = host.wait_for_refusal("far/root_agent.yaml").await?;
    ensure!(refused.contains("hatchery.yaml has no remote agent `hello`"), "{refused}");
    let card = "/a2a/hello/.well-known/agent-card.json";
    let config = json!({"a2a": {"agents": {"hello": {"card": format!("{}{card}", inner.url)}}}});
    apply(&host, &folder, &config.to_string(), &["a2a.agents"]).await?;
    wait_until_loaded(&host, "far").await?;
    assert_eq!(answer(&host, "far", "a").await?, "Hello");
    let config =
        "a2a: {public_url: 'https://agents.example', push: {network: [hooks.example]}, blocking_timeout: 1s}\n";
    apply(&inner, &inner_folder, config, &["a2a.public_url", "a2a.blocking_timeout", "a2a.push"]).await?;
    let shown = inner.get(card).await?.json(200)?;
    assert_eq!(shown["supportedInterfaces"][0]["url"], "https://agents.example/a2a/hello");
    assert_eq!(shown["capabilities"]["pushNotifications"], true);
    apply(
        &inner,
        &inner_folder,
        "a2a: {expose: {apps: [dice]}}\n",
        &["a2a.expose", "a2a.public_url", "a2a.blocking_timeout", "a2a.push"],
    )
    .await?;
    ensure!(inner.get(card).await?.status == 404);
    Ok(())
}

/// Sends a request to the MCP endpoint of a host, in its own session. Returns the answer's text.
async fn mcp(host: &Host, method: &str) -> Result<String> {
    let post = |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = host.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
        request.json(&body)
    };
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let hello = post("initialize", params).send().await?;
    let session = hello.headers().get("mcp-session-id").context("a session")?.clone();
    Ok(post(method, json!({})).header("mcp-session-id", session).send().await?.text().await?)
}

#[tokio::test]
async fn mcp_clients_may_use_what_the_changed_configuration_exposes() -> Result<()> {
    let (folder, host) = other("").await?;
    let tools = mcp(&host, "tools/list").await?;
    ensure!(tools.contains("run_hello") && !tools.contains("dice_roll_die"), "{tools}");
    let config = "mcp: {expose: {apps: [], tools: ['dice/*'], prompts: {report: {messages: [{text: Report.}]}}}}\n";
    apply(&host, &folder, config, &["mcp.expose"]).await?;
    let tools = mcp(&host, "tools/list").await?;
    ensure!(!tools.contains("run_hello") && tools.contains("dice_roll_die"), "{tools}");
    let prompts = mcp(&host, "prompts/list").await?;
    ensure!(prompts.contains("\"report\""), "{prompts}");
    apply(&host, &folder, &format!("{config}components: {{dice: {{private: true}}}}\n"), &["components"]).await?;
    let tools = mcp(&host, "tools/list").await?;
    ensure!(!tools.contains("dice_roll_die"), "{tools}");
    Ok(())
}

#[tokio::test]
async fn apis_integrations_and_code_executors_are_added() -> Result<()> {
    let (_, inner) = other("").await?;
    let folder = Folder::empty()?;
    folder.write_operator_config("")?;
    let agent = |name: &str, rest: &str| {
        format!("name: {name}\nmodel: scripted:{name}/answers.yaml\ninstruction: Help.\n{rest}")
    };
    let tools = "tools: [{name: OpenAPIToolset, args: {api: host}}]\n";
    folder.write("lister/root_agent.yaml", agent("lister", tools))?;
    folder.write(
        "lister/answers.yaml",
        "turns:\n  - when: {tool: apps}\n    reply: 'The first app is {tool.result.0}.'\n  - reply: [{call: {name: apps, args: {}}}]\n",
    )?;
    let document = json!({"openapi": "3.1.0", "paths": {"/list-apps": {"get": {"operationId": "apps"}}}});
    folder.write("apps.json", document.to_string())?;
    folder.write("coder/root_agent.yaml", agent("coder", "code_executor: python\n"))?;
    folder.write("coder/answers.yaml", "turns:\n  - reply: No code.\n")?;
    let integrations = "tools: [{name: ApplicationIntegrationToolset, args: {integration: jira}}]\n";
    folder.write("clerk/root_agent.yaml", agent("clerk", integrations))?;
    folder.write("clerk/answers.yaml", "turns:\n  - reply: Hello\n")?;
    let host = Host::serve(&folder).await?;
    for app in ["lister", "coder", "clerk"] {
        host.wait_for_refusal(&format!("{app}/root_agent.yaml")).await?;
    }
    // Nothing listens on port 1.
    let config = json!({
        "openapi": {"apis": {"host": {"document": folder.file("apps.json"), "base_url": inner.url}}},
        "integrations": {"jira": {
            "project": "p", "location": "us-central1", "connection": "jira", "actions": ["Assign"], "endpoint": "http://127.0.0.1:1",
        }},
        "code_executors": {"python": {"container": {"socket": "/nonexistent/docker.sock", "image": "python"}}},
    });
    apply(&host, &folder, &config.to_string(), &["openapi", "integrations", "code_executors"]).await?;
    for app in ["lister", "coder", "clerk"] {
        wait_until_loaded(&host, app).await?;
    }
    let listed = answer(&host, "lister", "a").await?;
    assert_eq!(listed, "The first app is dice.");
    assert_eq!(answer(&host, "coder", "a").await?, "No code.");
    host.create_session("clerk", "a").await?;
    host.post("/run", &message("clerk", "a", "Go")).await?.error(500, "OPENAPI_UNAVAILABLE")?;
    Ok(())
}

#[tokio::test]
async fn a_folder_to_search_is_added_and_replaced() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write(
        "helper/root_agent.yaml",
        "name: helper\nmodel: scripted:helper/answers.yaml\ninstruction: Help.\ntools: [{name: FilesRetrieval}]\n",
    )?;
    let answers = "turns:\n  - when: {tool: search_handbook}\n    reply: '{tool.passages.0.text}'\n  - reply: [{call: {name: search_handbook, args: {query: leave}}}]\n";
    folder.write("helper/answers.yaml", answers)?;
    folder.write("old/leave.md", "Everybody has 30 days of leave.\n")?;
    folder.write("new/leave.md", "Everybody has 31 days of leave now.\n")?;
    let host = Host::serve(&folder).await?;
    host.wait_for_refusal("helper/root_agent.yaml").await?;
    for (name, days, session) in [("old", "30 days", "a"), ("new", "31 days", "b")] {
        folder.put("hatchery.yaml", format!("retrieval: {{handbook: {{folder: {name}}}}}\n"))?;
        let line = "applied without a restart: `retrieval`";
        let count = if name == "old" { 1 } else { 2 };
        host.wait_until_log(line, |log| log.matches(line).count() == count).await?;
        wait_until_loaded(&host, "helper").await?;
        let found = answer(&host, "helper", session).await?;
        ensure!(found.contains(days), "{found}");
    }
    Ok(())
}

#[tokio::test]
async fn a_component_with_another_digest_stops_serving() -> Result<()> {
    let (folder, host) = other("").await?;
    ensure!(host.apps().await?.contains(&"dice".to_owned()));
    let digest = "0".repeat(64);
    apply(&host, &folder, &format!("components: {{dice: {{sha256: 'sha256:{digest}'}}}}\n"), &["components"]).await?;
    let reason = host.wait_for_refusal("dice.wasm").await?;
    ensure!(reason.contains(&digest), "{reason}");
    ensure!(!host.apps().await?.contains(&"dice".to_owned()));
    apply(&host, &folder, "", &["components"]).await?;
    wait_until_served(&host, "dice").await
}

/// Waits until a component serves.
async fn wait_until_served(host: &Host, component: &str) -> Result<()> {
    let file = format!("{component}.wasm");
    let is_loaded = |components: &Value| entry(components, &file).is_some_and(|it| it["state"] == "loaded");
    host.wait_until(&format!("{component} is loaded"), is_loaded).await.map(drop)
}

#[tokio::test]
async fn limits_of_compiling_apply_to_the_next_file() -> Result<()> {
    let (folder, host) = other("").await?;
    apply(&host, &folder, "compile: {max_file_size: 1KiB}\nhot_reload: {keep: 0}\n", &["compile", "hot_reload"])
        .await?;
    folder.put("greeter.wasm", paths::component("greeter")?)?;
    let reason = host.wait_for_refusal("greeter.wasm").await?;
    ensure!(reason.contains("compile.max_file_size"), "{reason}");
    apply(&host, &folder, "", &["compile", "hot_reload"]).await?;
    folder.remove("greeter.wasm")?;
    folder.put("other.wasm", paths::component("greeter")?)?;
    wait_until_served(&host, "other").await
}
