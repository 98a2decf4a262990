//! `hatchery top`: what a running host does.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::USER;
use hatchery_tests::{Folder, Host, Socket, event, paths};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

const KEY: &str = "operator-key-0123456789";

async fn serve() -> Result<Host> {
    let folder = Folder::empty()?;
    folder.write("slow/root_agent.yaml", "name: slow\nmodel: scripted:slow/answers.yaml\ninstruction: Wait.\n")?;
    folder.write("slow/answers.yaml", "turns:\n  - delay_ms: 600000\n    reply: late\n")?;
    folder.write("broken/root_agent.yaml", "name: [")?;
    folder.write("hatchery.yaml", "server: {auth: {keys: [{name: operator, from: OPERATOR_KEY, role: operate}]}}\n")?;
    Host::serve_with_environment(&folder, &[("OPERATOR_KEY", KEY)]).await
}

/// Starts a run that lasts as long as its connection is open.
async fn start_run(host: &Host) -> Result<Socket> {
    let path = hatchery_tests::host::session_path("slow", "s");
    let create = host.request(reqwest::Method::POST, &path).bearer_auth(KEY).json(&json!({}));
    host.send(create).await?.json(200)?;
    let mut socket = Socket::open(host, "/ws", Some(KEY)).await?;
    let message = json!({"role": "user", "parts": [{"text": "go"}]});
    let run = json!({"appName": "slow", "userId": USER, "sessionId": "s", "newMessage": message, "runId": "r-1"});
    socket.send(&json!({"type": "start", "id": "a", "run": run})).await?;
    ensure!(event::text_at(&socket.json().await?, "/type") == "started");
    Ok(socket)
}

#[tokio::test]
async fn one_view_is_printed_as_text_and_as_json() -> Result<()> {
    let host = serve().await?;
    let _run = start_run(&host).await?;
    let top = async |args: &[&str]| -> Result<(bool, String, String)> {
        let mut command = paths::command()?;
        let output = command.args(["top", &host.url, "--once"]).args(args).env("HATCHERY_KEY", KEY).output().await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((output.status.success(), text(output.stdout), text(output.stderr)))
    };
    let (is_success, text, errors) = top(&[]).await?;
    ensure!(is_success, "{errors}");
    let has =
        |words: &str| text.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(words));
    ensure!(has("hatchery ") && text.contains("runs 1 of 512"), "{text}");
    ensure!(has(&format!("slow {USER} s r-1 ")) && has("broken/root_agent.yaml"), "{text}");
    ensure!(text.contains("fileLoaded") && !text.contains('\u{1b}'), "{text}");

    let (is_success, text, errors) = top(&["--json"]).await?;
    ensure!(is_success && text.lines().count() == 1, "{text}{errors}");
    let view: Value = serde_json::from_str(&text)?;
    ensure!(event::text_at(&view, "/stats/runs/inProgress/0/id") == "r-1", "{view}");
    ensure!(
        view.pointer("/stats/memory/residentBytes").and_then(Value::as_u64).is_some_and(|it| it > 1 << 20),
        "{view}"
    );
    ensure!(view["events"].as_array().is_some_and(|events| !events.is_empty()), "{view}");

    let (is_success, _, errors) = top(&["--key-from", "NO_SUCH_KEY"]).await?;
    ensure!(!is_success && errors.contains("the host wants an API key of the role `operate`"), "{errors}");
    Ok(())
}

#[tokio::test]
async fn views_follow_each_other_until_a_signal() -> Result<()> {
    let host = serve().await?;
    let mut command = paths::command()?;
    command
        .args(["top", &host.url, "--json", "--interval", "0.1", "--key-from", "OPERATOR_KEY"])
        .env("OPERATOR_KEY", KEY);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
    let mut next = async || -> Result<Value> {
        let line = tokio::time::timeout(hatchery_tests::host::TIMEOUT, lines.next_line()).await??;
        Ok(serde_json::from_str(&line.context("it has ended")?)?)
    };
    ensure!(next().await?["stats"]["runs"]["active"] == 0);
    let _run = start_run(&host).await?;
    while next().await?["stats"]["runs"]["active"] != 1 {}
    let id = child.id().context("it has ended")?.to_string();
    ensure!(tokio::process::Command::new("kill").args(["-INT", &id]).status().await?.success());
    ensure!(tokio::time::timeout(hatchery_tests::host::TIMEOUT, child.wait()).await??.success());
    Ok(())
}

#[tokio::test]
async fn a_view_fits_into_a_small_terminal() -> Result<()> {
    const START: &str = "\u{1b}[H\u{1b}[J";
    let host = serve().await?;
    let mut script = tokio::process::Command::new("script");
    let command = format!("stty rows 5 cols 40; '{}' top {}", paths::hatchery()?.display(), host.url);
    script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").env("HATCHERY_KEY", KEY).kill_on_drop(true);
    let mut top = match script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
        Ok(top) => top,
        Err(error) => {
            hatchery_tests::skip("a view in a terminal", &format!("script: {error}"));
            return Ok(());
        }
    };
    let (mut stdout, mut output) = (top.stdout.take().context("stdout")?, String::new());
    while output.matches(START).count() < 2 {
        let mut bytes = [0; 4096];
        let count = tokio::time::timeout(hatchery_tests::host::TIMEOUT, stdout.read(&mut bytes)).await??;
        ensure!(count > 0, "it has ended: {output:?}");
        output.push_str(&String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()));
    }
    let view = output.split(START).nth(1).context("a view")?;
    ensure!(view.contains("hatchery ") && view.lines().count() == 5, "{output:?}");
    ensure!(output.contains("\u{1b}[?7l"), "long lines are cut off: {output:?}");
    top.stdin.take().context("stdin")?.write_all(b"q").await?;
    ensure!(tokio::time::timeout(hatchery_tests::host::TIMEOUT, top.wait()).await??.success());
    Ok(())
}

#[tokio::test]
async fn a_host_that_is_not_there_is_named() -> Result<()> {
    let output = paths::command()?.args(["top", "http://127.0.0.1:1", "--once"]).output().await?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && error.contains("http://127.0.0.1:1/stats: no host answers there"), "{error}");
    let output = paths::command()?.args(["top", "--socket", "/no/such.sock", "--once"]).output().await?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(error.contains("/no/such.sock: no host answers on this socket; start one with"), "{error}");
    let output = paths::command()?.args(["top", "--interval", "0"]).output().await?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(error.contains("write a number of seconds from 0.1 to 3600"), "{error}");
    Ok(())
}
