//! `hatchery.service` under systemd, which is the first process of a container.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use hatchery_test_services::{ContainerEngine, EngineKind};
use hatchery_tests::host::TIMEOUT;
use hatchery_tests::paths::Swap::Older;
use hatchery_tests::{event, paths};
use serde_json::Value;

use super::{BASE, agents, build, conversation, start, write_context};

/// The guide's commands make the user and the folders.
fn containerfile() -> Result<String> {
    let guide = fs::read_to_string(paths::repository().join("docs/operations.md"))?;
    let (_, commands) = guide.split_once("```sh\nuseradd ").context("the commands of the guide")?;
    let (commands, _) = commands.split_once("\n```").context("the end of the commands")?;
    let commands = format!("useradd {commands}").replace("systemctl enable --now", "systemctl enable");
    let commands: Vec<_> = commands.lines().filter(|line| !line.trim().is_empty()).collect();
    ensure!(commands.len() >= 6, "{commands:?}");
    let run: String =
        commands.iter().map(|command| format!("RUN {}\n", command.split(" #").next().unwrap_or(""))).collect();
    Ok(format!(
        "FROM {BASE}\nRUN apt-get update && apt-get install --yes --no-install-recommends systemd curl\n\
         WORKDIR /root\nCOPY hatchery hatchery.service /root/\n{run}CMD [\"/lib/systemd/systemd\"]\n"
    ))
}

/// A container with systemd.
struct Machine<'a> {
    engine: &'a ContainerEngine,
    container: String,
}

impl Machine<'_> {
    fn call(&self, command: &[&str]) -> Result<String> {
        let mut args = vec!["exec", &self.container];
        args.extend(command);
        self.engine.call(&args)
    }

    fn property(&self, name: &str) -> Result<String> {
        self.call(&["systemctl", "show", "--value", "--property", name, "hatchery"])
    }

    /// Waits until a property of the service has a value.
    fn wait_for(&self, property: &str, value: &str) -> Result<()> {
        let start = std::time::Instant::now();
        loop {
            // systemd may not have started.
            let found = self.property(property).unwrap_or_default();
            if found == value {
                return Ok(());
            }
            if start.elapsed() > TIMEOUT {
                bail!("{property} is {found}, not {value}: {}", self.call(&["journalctl", "--no-pager"])?);
            }
            std::thread::yield_now();
        }
    }

    fn post(&self, request: &Value) -> Result<Value> {
        let path = request.pointer("/1").and_then(Value::as_str).context("a path")?;
        let body = request.pointer("/2").context("a body")?.to_string();
        let answer = self.call(&[
            "curl",
            "--silent",
            "--show-error",
            "--fail-with-body",
            "--unix-socket",
            "/run/hatchery/http.sock",
            "--header",
            "Content-Type: application/json",
            "--data",
            &body,
            &format!("http://localhost{path}"),
        ])?;
        Ok(serde_json::from_str(&answer)?)
    }
}

#[test]
fn the_service_runs_components_with_its_restrictions_reloads_and_restarts() -> Result<()> {
    let Some(engine) = start(EngineKind::Podman)? else { return Ok(()) };
    let context = tempfile::tempdir()?;
    write_context(context.path(), containerfile()?)?;
    fs::copy(paths::repository().join("hatchery.service"), context.path().join("hatchery.service"))?;
    build(&engine, context.path(), "localhost/machine")?;
    let folder = agents()?;
    folder.put("swap.wasm", paths::swap(Older)?)?;
    let served = format!("{}:/srv/hatchery:ro", folder.served().display());
    let options = ["run", "--detach", "--network", "none", "--privileged", "--systemd=always", "--volume", &served];
    let container = engine.call(&[&options[..], &["localhost/machine"]].concat())?;
    let machine = Machine { engine: &engine, container };
    machine.wait_for("ActiveState", "active")?;
    machine.call(&[
        "curl",
        "--silent",
        "--fail",
        "--retry",
        "60",
        "--retry-all-errors",
        "--retry-delay",
        "1",
        "--unix-socket",
        "/run/hatchery/http.sock",
        "http://localhost/ready",
    ])?;

    let [session, message] = conversation("swap", "Who are you?");
    machine.post(&session)?;
    let events = machine.post(&message)?;
    let texts = event::texts(events.as_array().context("events")?);
    ensure!(texts == Older.texts(), "components are compiled to machine code: {events}");

    let process = machine.property("MainPID")?;
    let status = machine.call(&["cat", &format!("/proc/{process}/status")])?;
    for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        ensure!(status.contains(line), "{line}: {status}");
    }
    let owner = machine.call(&["stat", "--format", "%U %a", "/var/lib/hatchery", "/run/hatchery"])?;
    ensure!(owner == "hatchery 700\nhatchery 750", "{owner}");

    machine.call(&["systemctl", "reload", "hatchery"])?;
    ensure!(machine.property("MainPID")? == process, "a reload restarts nothing");
    machine.call(&["sh", "-c", &format!("kill -KILL {process}")])?;
    machine.wait_for("NRestarts", "1")?;
    machine.wait_for("ActiveState", "active")?;
    ensure!(machine.property("MainPID")? != process);
    machine.call(&["systemctl", "stop", "hatchery"])?;
    ensure!(machine.property("Result")? == "success", "{}", machine.call(&["journalctl", "--no-pager"])?);
    Ok(())
}

#[test]
fn systemd_finds_nothing_wrong_with_the_service() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let unit = fs::read_to_string(paths::repository().join("hatchery.service"))?;
    let command = paths::hatchery()?.display().to_string();
    let path = folder.path().join("hatchery.service");
    fs::write(&path, unit.replace("/usr/local/bin/hatchery", &command))?;
    let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output() else {
        hatchery_tests::skip("hatchery.service", "there is no `systemd-analyze`");
        return Ok(());
    };
    let found = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && !found.contains("hatchery.service"), "{found}");
    // Of 100; services without restrictions have 96.
    let rating =
        Command::new("systemd-analyze").args(["security", "--offline=true", "--threshold=20"]).arg(&path).output()?;
    ensure!(rating.status.success(), "{}", String::from_utf8_lossy(&rating.stdout));
    fs::write(&path, unit.replace("ProtectSystem=strict", "ProtectSistem=strict"))?;
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output()?;
    let found = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(found.contains("hatchery.service:") && found.contains("ProtectSistem"), "it checks names: {found}");
    Ok(())
}
