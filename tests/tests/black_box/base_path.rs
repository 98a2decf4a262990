//! `--base-path`: the real command below a path of a host that it shares with others.

use anyhow::{Context, Result, ensure};
use hatchery_tests::{Folder, Host, Socket, paths};
use reqwest::Method;
use serde_json::{Value, json};

const BASE: &str = "/team/agents";

fn folder() -> Result<Folder> {
    let folder = Folder::empty()?;
    folder.write("echo/root_agent.yaml", "name: echo\nmodel: scripted:echo/answers.yaml\ninstruction: Echo.\n")?;
    folder.write("echo/answers.yaml", "turns:\n  - reply: 'You said {user}.'\n")?;
    Ok(folder)
}

/// Starts a host whose announced URL has the base path.
async fn serve() -> Result<Host> {
    // The flag takes precedence.
    let folder = folder()?;
    folder.write("hatchery.yaml", "server: { base_path: /elsewhere }\n")?;
    Host::serve_with_args(&folder, &[], &["--base-path", "/team/agents/"]).await
}

/// Returns the URL without the base path.
fn origin(host: &Host) -> Result<&str> {
    host.url.strip_suffix(BASE).with_context(|| format!("{} does not end with {BASE}", host.url))
}

#[tokio::test]
async fn every_protocol_is_below_the_base_path() -> Result<()> {
    let host = serve().await?;
    let origin = origin(&host)?;
    let events = host.ask("echo", "s", "Hi").await?;
    ensure!(events.iter().any(|event| event.to_string().contains("You said Hi.")), "{events:?}");
    let stream = host.stream("echo", "s", "Again", false).await?;
    drop(stream);
    let mut socket = Socket::open(&host, "/ws", None).await?;
    socket.send(&json!({"type": "ping"})).await?;
    ensure!(socket.json().await?["type"] == "pong");

    let client = reqwest::Client::builder().no_proxy().build()?;
    let url = format!("{}/a2a/echo", host.url);
    for card in [
        format!("{url}/.well-known/agent-card.json"),
        format!("{}/.well-known/agent-card.json", host.url),
        // A2A clients ask for it at the root of the host.
        format!("{origin}/.well-known/agent-card.json"),
    ] {
        let read: Value = client.get(&card).send().await?.error_for_status()?.json().await?;
        ensure!(read["url"] == url && read["supportedInterfaces"][0]["url"] == url, "{card}: {read}");
    }
    let message =
        json!({"role": "user", "parts": [{"kind": "text", "text": "Hi"}], "messageId": "m", "kind": "message"});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}});
    let sent = client.post(&url).json(&call).send().await?.text().await?;
    ensure!(sent.contains("You said Hi."), "{sent}");

    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    });
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let request = host.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    ensure!(request.json(&hello).send().await?.status() == 200);

    let settings = host.get("/config").await?.json(200)?;
    let is_flag = |setting: &Value| {
        setting["key"] == "server.base_path"
            && setting["value"] == BASE
            && setting["origin"] == json!({"kind": "flag", "flag": "--base-path"})
    };
    ensure!(settings["settings"].as_array().is_some_and(|all| all.iter().any(is_flag)), "{settings}");
    Ok(())
}

#[tokio::test]
async fn a_host_of_several_apps_names_the_cards_below_its_base_path() -> Result<()> {
    let folder = folder()?;
    folder.write("other/root_agent.yaml", "name: other\nmodel: scripted:echo/answers.yaml\ninstruction: Echo.\n")?;
    let host = Host::serve_with_args(&folder, &[], &["--base-path", BASE]).await?;
    let detail = host.get("/.well-known/agent-card.json").await?.error(404, "NO_DEFAULT_APP")?;
    ensure!(
        detail
            == "this server has several apps: read the card of one at `/team/agents/a2a/APP/.well-known/agent-card.json`, or \
                name one by `a2a.expose.default_app` in hatchery.yaml",
        "{detail}"
    );
    Ok(())
}

#[tokio::test]
async fn top_reads_a_host_below_its_base_path_and_says_where_it_is() -> Result<()> {
    let host = serve().await?;
    let top = async |url: &str| -> Result<(bool, String)> {
        let output = paths::command()?.args(["top", url, "--once"]).output().await?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    };
    let (is_success, text) = top(&host.url).await?;
    ensure!(is_success && text.contains("runs 0 of 512"), "{text}");
    let (is_success, text) = top(origin(&host)?).await?;
    let expected = "no route for GET /stats: this server is at `/team/agents`, as in /team/agents/list-apps";
    ensure!(!is_success && text.contains(expected), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_host_on_a_socket_has_a_base_path_too() -> Result<()> {
    use std::process::Stdio;

    use tokio::io::{AsyncBufReadExt, BufReader};

    let (folder, sockets) = (folder()?, tempfile::Builder::new().prefix("h").tempdir_in("/tmp")?);
    folder.write("hatchery.yaml", "server: { base_path: /team/agents }\n")?;
    let socket = sockets.path().join("http.sock");
    let mut command = paths::command()?;
    command.arg("serve").arg(folder.served()).args(["--memory", "--json", "--listen"]);
    command.arg(format!("unix:{}", socket.display())).kill_on_drop(true);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
    let line = tokio::time::timeout(hatchery_tests::host::TIMEOUT, lines.next_line()).await??.context("a line")?;
    let announcement: Value = serde_json::from_str(&line)?;
    ensure!(announcement["url"] == "http://localhost/team/agents", "{announcement}");
    let mut top = paths::command()?;
    let top = top.args(["top", "http://localhost/team/agents", "--once", "--json", "--socket"]).arg(&socket);
    let output = top.output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let view: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(view["stats"]["runs"]["active"] == 0, "{view}");
    Ok(())
}

#[tokio::test]
async fn a_base_path_that_is_none_is_refused() -> Result<()> {
    let folder = folder()?;
    let output = paths::command()?.arg("serve").arg(folder.served()).args(["--base-path", "agents"]).output().await?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        !output.status.success() && error.contains("`agents` is not a base path; write one such as /agents"),
        "{error}"
    );
    Ok(())
}
