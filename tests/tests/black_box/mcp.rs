//! The Model Context Protocol in both roles.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::{TIMEOUT, message};
use hatchery_tests::{Folder, Host, event, paths};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::cli::hatchery;

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// `hatchery mcp`, and a client that writes the messages itself.
struct McpCommand {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// True if the tools have changed since [`McpCommand::tools`] was called.
    have_tools_changed: bool,
}

impl McpCommand {
    fn start(folder: &Folder) -> Result<Self> {
        let mut command = paths::command()?;
        command.arg("mcp").arg(folder.served()).args(["--tools", "*", "--data-dir"]).arg(folder.data());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("stdin is a pipe")?;
        let lines = BufReader::new(child.stdout.take().context("stdout is a pipe")?).lines();
        Ok(Self { child, stdin, lines, have_tools_changed: false })
    }

    async fn send(&mut self, message: Value) -> Result<()> {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await?;
        Ok(self.stdin.flush().await?)
    }

    /// Returns the next message for which `is_expected` returns true.
    async fn receive(&mut self, is_expected: impl Fn(&Value) -> bool) -> Result<Value> {
        let receive = async {
            loop {
                let line = self.lines.next_line().await?.context("the command has closed its output")?;
                let message: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
                self.have_tools_changed |= message.get("method") == Some(&json!(TOOLS_CHANGED));
                if is_expected(&message) {
                    return anyhow::Ok(message);
                }
            }
        };
        tokio::time::timeout(TIMEOUT, receive).await.context("no such message")?
    }

    async fn request(&mut self, id: u64, method: &str, params: Value) -> Result<Value> {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        let answer = self.receive(|message| message.get("id") == Some(&id.into())).await?;
        answer.get("result").cloned().with_context(|| answer.to_string())
    }

    async fn initialize(&mut self) -> Result<Value> {
        let result = self.request(0, "initialize", initialize()).await?;
        self.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        Ok(result)
    }

    async fn tools(&mut self, id: u64) -> Result<Vec<String>> {
        self.have_tools_changed = false;
        let tools = self.request(id, "tools/list", json!({})).await?;
        let tools = tools.get("tools").and_then(Value::as_array).context("tools")?;
        Ok(tools.iter().filter_map(|tool| tool.get("name")?.as_str()).map(Into::into).collect())
    }
}

fn initialize() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}})
}

#[tokio::test]
async fn a_client_uses_a_component_as_soon_as_it_is_dropped_into_the_folder() -> Result<()> {
    let folder = Folder::empty()?;
    let mut command = McpCommand::start(&folder)?;
    let hello = command.initialize().await?;
    assert_eq!(hello.pointer("/serverInfo/name"), Some(&json!("hatchery")));
    assert_eq!(command.tools(1).await?, Vec::<String>::new());
    folder.put("dice.wasm", paths::component("dice")?)?;
    let mut id = 2;
    while !command.tools(id).await?.contains(&"dice_roll_die".to_owned()) {
        if !command.have_tools_changed {
            command.receive(|message| message.get("method") == Some(&json!(TOOLS_CHANGED))).await?;
        }
        id += 1;
    }
    ensure!(command.tools(100).await?.contains(&"run_dice".to_owned()));
    let call = json!({"name": "dice_check_prime", "arguments": {"numbers": [4, 7]}});
    let result = command.request(101, "tools/call", call).await?;
    assert_eq!(result.get("structuredContent"), Some(&json!({"primes": [7]})), "{result}");
    drop(command.stdin);
    ensure!(tokio::time::timeout(TIMEOUT, command.child.wait()).await??.success());
    Ok(())
}

#[tokio::test]
async fn a_client_gets_the_progress_of_a_tool_in_a_component() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("seeker.wasm", paths::component("seeker")?)?;
    let mut command = McpCommand::start(&folder)?;
    command.initialize().await?;
    let call = json!({"name": "seeker_climb", "arguments": {"metres": 3}, "_meta": {"progressToken": "peak"}});
    command.send(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})).await?;
    let last = json!({"progressToken": "peak", "progress": 3.0, "total": 3.0, "message": "3 m"});
    let is_last = |message: &Value| message["method"] == "notifications/progress" && message["params"] == last;
    command.receive(is_last).await.context("the last report always arrives")?;
    let result = command.receive(|message| message["id"] == 1).await?;
    assert_eq!(result["result"]["structuredContent"], json!({}), "the metadata of the run: {result}");
    Ok(())
}

#[tokio::test]
async fn a_client_is_told_when_the_configuration_exposes_other_tools() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("dice.wasm", paths::component("dice")?)?;
    let mut command = McpCommand::start(&folder)?;
    command.initialize().await?;
    ensure!(command.tools(1).await?.contains(&"run_dice".to_owned()));
    folder.put("hatchery.yaml", "mcp: { expose: { apps: [] } }\n")?;
    let mut id = 2;
    while command.tools(id).await?.contains(&"run_dice".to_owned()) {
        if !command.have_tools_changed {
            command.receive(|message| message.get("method") == Some(&json!(TOOLS_CHANGED))).await?;
        }
        id += 1;
    }
    Ok(())
}

#[tokio::test]
async fn a_client_gets_the_prompts_and_files_of_the_folder() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("towns/oslo.md", "Oslo is a town.")?;
    let config = "mcp:\n  expose:\n    resources: { 'docs://{town}': { file: 'towns/{town}.md' } }\n    prompts:\n      report:\n        \
                  arguments: [{ name: town, required: true }]\n        messages: [{ text: 'Report on {town}.' }, { resource: 'docs://{town}' }]\n";
    folder.write("hatchery.yaml", config)?;
    let mut command = McpCommand::start(&folder)?;
    command.initialize().await?;
    let prompt = command.request(1, "prompts/get", json!({"name": "report", "arguments": {"town": "oslo"}})).await?;
    assert_eq!(prompt.pointer("/messages/0/content/text"), Some(&json!("Report on oslo.")), "{prompt}");
    assert_eq!(prompt.pointer("/messages/1/content/resource/text"), Some(&json!("Oslo is a town.")), "{prompt}");
    let argument = json!({"name": "town", "value": "o"});
    let request = json!({"ref": {"type": "ref/resource", "uri": "docs://{town}"}, "argument": argument});
    let completion = command.request(2, "completion/complete", request).await?;
    assert_eq!(completion.pointer("/completion/values"), Some(&json!(["oslo"])), "{completion}");
    drop(command.stdin);
    ensure!(tokio::time::timeout(TIMEOUT, command.child.wait()).await??.success());
    Ok(())
}

/// Writes the agent `prime`, which uses a tool of the MCP server `dice`.
fn write_prime_agent(folder: &Folder) -> Result<()> {
    let agent = "name: prime\nmodel: scripted:prime/answers.yaml\ninstruction: Check numbers.\ntools:\n  - name: McpToolset\n    \
                 args: { server: dice, tool_filter: [dice_check_prime] }\n";
    folder.write("prime/root_agent.yaml", agent)?;
    let script = "turns:\n  - when: { tool: dice_check_prime }\n    reply: \"{tool.structured_output.primes.0} is prime.\"\n  \
                  - reply: [{ call: { name: dice_check_prime, args: { numbers: [4, 7] } } }]\n";
    folder.write("prime/answers.yaml", script)
}

#[tokio::test]
async fn an_agent_uses_the_tools_of_a_process_that_the_operator_configures() -> Result<()> {
    let (server, folder) = (Folder::empty()?, Folder::empty()?);
    server.put("dice.wasm", paths::component("dice")?)?;
    let args = json!(["mcp", server.served(), "--tools", "dice/*", "--data-dir", server.data()]);
    let servers = json!({"dice": {"command": paths::hatchery()?, "args": args}});
    folder.write_operator_config(&json!({"mcp": {"servers": servers}}).to_string())?;
    write_prime_agent(&folder)?;
    let host = Host::serve(&folder).await?;
    host.wait_until("the server lists its tools", |components| {
        components.pointer("/mcpServers/0/state") == Some(&json!("ready"))
    })
    .await?;
    let events = host.ask("prime", "s", "Which of 4 and 7 is prime?").await?;
    let answer = event::text(events.last().context("an answer")?);
    assert_eq!(answer, "7 is prime.");
    ensure!(host.stop().await?);
    Ok(())
}

#[tokio::test]
async fn the_log_does_not_show_the_url_of_a_server_which_may_hold_a_key() -> Result<()> {
    for environment in [&[("HATCHERY_LOG", "info")][..], &[]] {
        let folder = Folder::empty()?;
        let servers = json!({"dice": {"url": "http://127.0.0.1:9/mcp?key=s3cret"}});
        folder.write_operator_config(&json!({"mcp": {"servers": servers}}).to_string())?;
        write_prime_agent(&folder)?;
        let host = Host::serve_with_environment(&folder, environment).await?;
        host.wait_for_log("no connection to an MCP server").await?;
        host.create_session("prime", "s").await?;
        host.post("/run", &message("prime", "s", "Which of 4 and 7 is prime?")).await?.error(500, "MCP_UNAVAILABLE")?;
        host.wait_for_log("run failed").await?;
        ensure!(!host.log().contains("s3cret"), "{}", host.log());
    }
    Ok(())
}

#[tokio::test]
async fn programs_are_found_from_the_folder_of_a_configuration_that_has_a_relative_path() -> Result<()> {
    let (server, folder) = (Folder::empty()?, Folder::empty()?);
    server.put("dice.wasm", paths::component("dice")?)?;
    write_prime_agent(&folder)?;
    std::os::unix::fs::symlink(paths::hatchery()?, folder.file("server"))?;
    let args = json!(["mcp", server.served(), "--tools", "dice/*", "--data-dir", server.data()]);
    let servers = json!({"dice": {"command": "./server", "args": args, "connect_timeout": "120s"}});
    folder.write("hatchery.yaml", json!({"mcp": {"servers": servers}}).to_string())?;
    for (current, dir, config) in [("..", "served", "served/hatchery.yaml"), (".", ".", "hatchery.yaml")] {
        let args = ["run", dir, "prime", "--config", config, "--message", "Which of 4 and 7 is prime?"];
        let output = hatchery(&folder.file(current), &args).await?;
        assert!(output.stdout.ends_with("7 is prime.\n"), "{config}: {}{}", output.stdout, output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_slow_to_start_is_logged_before_the_call_fails() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write(
        "slow/root_agent.yaml",
        "name: slow\nmodel: scripted:slow/answers.yaml\ninstruction: Answer.\ntools:\n  - name: McpToolset\n    \
         args: {server: sleeper}\n",
    )?;
    folder.write("slow/answers.yaml", "turns: [{reply: Hi}]\n")?;
    let servers = json!({"sleeper": {"command": "sleep", "args": ["1000"], "connect_timeout": "300ms"}});
    folder.write("hatchery.yaml", json!({"mcp": {"servers": servers}}).to_string())?;
    let args = ["run", ".", "slow", "--config", "hatchery.yaml", "--message", "Hello"];
    let output = hatchery(&folder.served(), &args).await?;
    let slow = "an MCP server has not answered for 50ms; waiting up to 300ms, its `connect_timeout`";
    let (before, after) = output.stderr.split_once(slow).with_context(|| output.stderr.clone())?;
    ensure!(!before.contains("MCP_UNAVAILABLE"), "{}", output.stderr);
    ensure!(after.contains("MCP_UNAVAILABLE: ") && after.contains("within 0.3 s"), "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn the_endpoint_has_the_same_guards_as_all_routes() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("greeter.wasm", paths::component("greeter")?)?;
    folder.write_operator_config("components: { greeter: { grants: { state: { write: [\"user:name\"] } } } }")?;
    let host = Host::serve(&folder).await?;
    let post = |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = host.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
        request.json(&body)
    };
    let hello = post("initialize", initialize()).send().await?;
    assert_eq!(hello.status().as_u16(), 200);
    let session = hello.headers().get("mcp-session-id").context("a session")?.clone();
    let call = json!({"name": "run_greeter", "arguments": {"message": "My name is Ada."}});
    let called = post("tools/call", call).header("mcp-session-id", session).send().await?;
    let text = called.text().await?;
    ensure!(text.contains("Nice to meet you, Ada."), "{text}");
    let foreign = post("initialize", initialize()).header("origin", "https://evil.example");
    host.send(foreign).await?.error(403, "ORIGIN_NOT_ALLOWED")?;
    Ok(())
}
