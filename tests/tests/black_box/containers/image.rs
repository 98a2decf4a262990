//! The image of `Containerfile`, run as `docs/operations.md` says.

use std::fs;

use anyhow::{Context, Result, ensure};
use hatchery_test_services::{ContainerEngine, EngineKind};
use hatchery_tests::{event, paths};
use serde_json::json;

use super::{agents, ask, build, conversation, start, write_context};

const IMAGE: &str = "localhost/hatchery";

/// Returns the options of the command in the guide, for this folder. The network of the test has no ports to publish.
fn documented_options(folder: &str) -> Result<Vec<String>> {
    let guide = fs::read_to_string(paths::repository().join("docs/operations.md"))?;
    let guide = guide.replace("\\\n", " ");
    let line = guide.lines().find(|line| line.starts_with("docker run ")).context("a command")?;
    let options = line.strip_prefix("docker run --rm -p 127.0.0.1:8080:8080 ").context(line.to_owned())?;
    let options = options.strip_suffix(" hatchery").context(line.to_owned())?;
    let options = options.replace("\"$PWD/my-agents:", &format!("{folder}:")).replace('"', "");
    Ok(options.split_whitespace().map(str::to_owned).collect())
}

fn run(engine: &ContainerEngine, options: &[String]) -> Result<String> {
    let mut args = vec!["run", "--detach", "--network", "none"];
    args.extend(options.iter().map(String::as_str));
    args.push(IMAGE);
    engine.call(&args)
}

fn stop(engine: &ContainerEngine, container: &str) -> Result<()> {
    engine.call(&["stop", "--time", "60", container])?;
    let code = engine.call(&["inspect", "--format", "{{.State.ExitCode}}", container])?;
    let log = engine.call(&["logs", container])?;
    ensure!(code == "0", "it does not stop on SIGTERM: {code}; {log}");
    engine.remove(container)
}

fn check(kind: EngineKind) -> Result<()> {
    let Some(engine) = start(kind)? else { return Ok(()) };
    let context = tempfile::tempdir()?;
    write_context(context.path(), fs::read(paths::repository().join("Containerfile"))?)?;
    fs::create_dir(context.path().join("components"))?;
    fs::write(context.path().join("components/sandbox.wasm"), paths::component("data_analyst")?)?;
    build(&engine, context.path(), IMAGE)?;

    let folder = agents()?;
    folder.write(
        "calculator/root_agent.yaml",
        "name: calculator\nmodel: scripted:calculator/answers.yaml\ninstruction: Compute.\ncode_executor: sandbox\n",
    )?;
    folder.write(
        "calculator/answers.yaml",
        "turns:\n  - when: { user: tool_output }\n    reply: 'It is {number}.'\n  - reply: \"```python\\nprint(6 * 7)\\n```\"\n",
    )?;
    let options = documented_options(folder.served().to_str().context("UTF-8")?)?;
    let container = run(&engine, &options)?;
    let mut requests = vec![json!(["GET", "/health", null]), json!(["GET", "/ready", null])];
    requests.extend(conversation("echo", "hello"));
    requests.extend(conversation("calculator", "Six times seven?"));
    let answers = ask(&engine, &container, &requests)?;
    let status = fs::read_to_string(format!("/proc/{}/status", engine.process(&container)?))?;
    for line in ["Uid:\t10001\t10001\t10001\t10001", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"] {
        ensure!(status.contains(line), "{line}, with {options:?}: {status}");
    }
    let [health, _, _, echo, _, calculator] = &*answers else { anyhow::bail!("{answers:?}") };
    ensure!(*health == json!({"status": "ok"}), "{health}");
    let texts = |events: &serde_json::Value| events.as_array().map(|events| event::texts(events)).unwrap_or_default();
    ensure!(texts(echo) == ["You said hello."], "{echo}");
    ensure!(texts(calculator).last().is_some_and(|text| text == "It is 42."), "{calculator}");
    let read_only = engine.call(&["inspect", "--format", "{{.HostConfig.ReadonlyRootfs}}", &container])?;
    ensure!(read_only == "true", "{read_only}");
    stop(&engine, &container)?;

    // The data is in the volume.
    let container = run(&engine, &options)?;
    let session = json!(["GET", "/apps/echo/users/ada/sessions/s", null]);
    let answers = ask(&engine, &container, &[json!(["GET", "/ready", null]), session])?;
    let events = answers.last().and_then(|session| session.get("events")?.as_array());
    ensure!(events.is_some_and(|events| events.len() == 2), "{answers:?}");
    stop(&engine, &container)?;

    // Without a folder, there are no agents.
    let container = run(&engine, &[])?;
    let answers = ask(&engine, &container, &[json!(["GET", "/ready", null]), json!(["GET", "/list-apps", null])])?;
    ensure!(answers.last() == Some(&json!([])), "{answers:?}");
    stop(&engine, &container)
}

#[test]
fn docker_builds_the_image_which_serves_a_folder_without_rights() -> Result<()> {
    check(EngineKind::Docker)
}

#[test]
fn podman_builds_the_image_which_serves_a_folder_without_rights() -> Result<()> {
    check(EngineKind::Podman)
}
