//! The host with real engines of containers: its image, its systemd service, and the code that it runs in containers.

mod code;
mod image;
mod systemd;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hatchery_test_services::{ContainerEngine, EngineKind};
use hatchery_tests::{Folder, paths};
use serde_json::{Value, json};

/// The name of the base image in `Containerfile`.
const BASE: &str = "docker.io/library/debian:bookworm-slim";

/// Sends requests in the network of a container, the first one until something answers. Prints the status and the body
/// of each.
const CLIENT: &str = r#"
import json, sys, time, urllib.error, urllib.request
deadline = time.monotonic() + 120
for method, path, body in json.load(sys.stdin):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request("http://127.0.0.1:8080" + path, data, {"Content-Type": "application/json"}, method=method)
    while True:
        try:
            with urllib.request.urlopen(request) as response:
                print(json.dumps([response.status, json.load(response)]))
            break
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > deadline:
                print(json.dumps([error.code, error.read().decode()]))
                break
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)
"#;

fn start(kind: EngineKind) -> Result<Option<ContainerEngine>> {
    Ok(ContainerEngine::start(kind, &cache()?))
}

fn cache() -> Result<PathBuf> {
    paths::cache_folder(".")
}

/// Writes the context of an image: the command without its debug information, and other files.
fn write_context(folder: &Path, containerfile: impl AsRef<[u8]>) -> Result<()> {
    let strip = Command::new("strip").arg("-o").arg(folder.join("hatchery")).arg(paths::hatchery()?).status()?;
    ensure!(strip.success(), "strip failed");
    std::fs::write(folder.join("Dockerfile"), containerfile)?;
    Ok(())
}

fn build(engine: &ContainerEngine, context: &Path, image: &str) -> Result<()> {
    engine.import_debian(BASE, &cache()?)?;
    let context = context.to_str().context("UTF-8")?;
    engine.call(&["build", "--network", "host", "--tag", image, context]).map(drop)
}

/// Returns a folder that others may read, with an agent that repeats messages.
fn agents() -> Result<Folder> {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::empty()?;
    folder.write("echo/root_agent.yaml", "name: echo\nmodel: scripted:echo/answers.yaml\ninstruction: Echo.\n")?;
    folder.write("echo/answers.yaml", "turns:\n  - reply: 'You said {user}.'\n")?;
    let served = folder.served();
    for parent in served.ancestors().take_while(|path| *path != Path::new("/tmp") && path.starts_with("/tmp")) {
        std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(folder)
}

/// The requests that create a session and send a message in it.
fn conversation(app: &str, text: &str) -> [Value; 2] {
    let message = json!({"appName": app, "userId": "ada", "sessionId": "s",
        "newMessage": {"role": "user", "parts": [{"text": text}]}});
    [json!(["POST", format!("/apps/{app}/users/ada/sessions/s"), {}]), json!(["POST", "/run", message])]
}

/// Sends requests to the host in a container. Returns the bodies of the answers.
fn ask(engine: &ContainerEngine, container: &str, requests: &[Value]) -> Result<Vec<Value>> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), json!(requests).to_string())?;
    let mut client = Command::new("nsenter");
    client.args(["--target", &engine.process(container)?, "--net", "python3", "-c", CLIENT]);
    let output = client.stdin(file.reopen()?).output()?;
    let (answers, error) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr).into_owned());
    let log = || engine.client(&["logs", container]).output().map(|log| format!("{log:?}")).unwrap_or_default();
    ensure!(output.status.success(), "{error}{}", log());
    let mut bodies = Vec::new();
    for line in answers.lines() {
        let (status, body): (u16, Value) = serde_json::from_str(line)?;
        ensure!(status == 200, "{status}: {body}; {}", log());
        bodies.push(body);
    }
    ensure!(bodies.len() == requests.len(), "{answers}");
    Ok(bodies)
}
