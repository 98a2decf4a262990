//! Code of models in containers, with the whole host.

use anyhow::{Result, ensure};
use hatchery_test_services::{EngineKind, PYTHON_IMAGE};
use hatchery_tests::{Folder, Host, event};

use super::start;

/// The label of containers.
const LABEL: &str = "hatchery=code";

async fn check(kind: EngineKind) -> Result<()> {
    let Some(engine) = start(kind)? else { return Ok(()) };
    let folder = Folder::empty()?;
    let agent = "name: analyst\nmodel: scripted:analyst/answers.yaml\ninstruction: Compute.\ncode_executor: { name: python, stateful: true }\n";
    folder.write("analyst/root_agent.yaml", agent)?;
    folder.write(
        "analyst/answers.yaml",
        "turns:\n  - when: { user: tool_output }\n    reply: 'It is {number}.'\n  - when: { user: again }\n    \
         reply: \"```python\\nprint(x + 1)\\n```\"\n  - reply: \"```python\\nx = 41\\nopen('x.txt', 'w').write('41')\\nprint(x)\\n```\"\n",
    )?;
    let socket = engine.socket();
    let config = format!(
        "code_executors: {{ python: {{ container: {{ socket: {}, image: {PYTHON_IMAGE} }} }} }}\n",
        socket.display()
    );
    folder.write("hatchery.yaml", config)?;
    let host = Host::serve(&folder).await?;
    host.create_session("analyst", "s").await?;
    for (message, expected) in [("begin", "It is 41."), ("again", "It is 42.")] {
        let texts = event::texts(&host.run("analyst", "s", message).await?);
        ensure!(texts.last().is_some_and(|text| text == expected), "{texts:?}; {}", host.log());
    }
    let names = host.get("/apps/analyst/users/tester/sessions/s/artifacts").await?.json(200)?;
    ensure!(names == serde_json::json!(["x.txt"]), "{names}");
    ensure!(engine.containers(LABEL)?.len() == 1, "the session has a container");
    ensure!(host.stop().await?);
    let left = engine.containers(LABEL)?;
    ensure!(left.is_empty(), "{left:?}");

    let host = Host::serve(&folder).await?;
    host.ask("analyst", "s2", "begin").await?;
    ensure!(engine.containers(LABEL)?.len() == 1);
    folder.write("hatchery.yaml", "code_executors: {}\n")?;
    host.wait_for_log("a code executor was removed or is no longer trusted; it is not used any more").await?;
    while !engine.containers(LABEL)?.is_empty() {
        tokio::task::yield_now().await;
    }
    ensure!(host.stop().await?);
    Ok(())
}

#[tokio::test]
async fn code_runs_in_docker_and_its_container_ends_with_the_host() -> Result<()> {
    check(EngineKind::Docker).await
}

#[tokio::test]
async fn code_runs_in_podman_and_its_container_ends_with_the_host() -> Result<()> {
    check(EngineKind::Podman).await
}
