//! Code of models in the default executor, whose component is installed with the host.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hatchery_tests::{Folder, Host, StuckEngine, event, paths};

use crate::cli::hatchery;

/// Returns a folder with the agent of the guide and the component with its executor, whose code is in the cache:
/// compiling it would count to the time of a request.
async fn guide() -> Result<Folder> {
    let (folder, component) = (Folder::empty()?, Folder::empty()?);
    component.put("sandbox.wasm", paths::component("data_analyst")?)?;
    let compiled = hatchery(&component.served(), &["compile"]).await?;
    ensure!(compiled.success, "{}", compiled.stderr);
    let text = std::fs::read_to_string(paths::repository().join("docs/tools.md"))?;
    let mut files = 0;
    for block in text.split("\n````yaml\n").skip(1).filter_map(|rest| rest.split("\n````\n").next()) {
        let (name, content) = block.strip_prefix("# ").and_then(|block| block.split_once('\n')).context("a name")?;
        folder.write(name, content)?;
        files += 1;
    }
    ensure!(files == 2, "the guide has {files} files");
    let components = user_data(&folder).join("hatchery/components");
    std::fs::create_dir_all(&components)?;
    std::fs::write(components.join("sandbox.wasm"), paths::component("data_analyst")?)?;
    Ok(folder)
}

/// Returns the user's data folder of the tests.
fn user_data(folder: &Folder) -> PathBuf {
    folder.data().with_file_name("user-data")
}

/// Serves the folder with the component of [`guide`] in the user's data folder.
async fn serve(folder: &Folder) -> Result<Host> {
    let data = user_data(folder).display().to_string();
    Host::serve_with_environment(folder, &[("XDG_DATA_HOME", &data)]).await
}

async fn answer(host: &Host, message: &str) -> Result<String> {
    let events = host.run("calculator", "s", message).await?;
    Ok(event::text(events.last().context("an answer")?))
}

#[tokio::test]
async fn code_of_a_session_sees_what_its_earlier_code_has_left_also_after_a_restart() -> Result<()> {
    let folder = guide().await?;
    let host = serve(&folder).await?;
    host.create_session("calculator", "s").await?;
    assert_eq!(answer(&host, "Begin").await?, "It is 41.");
    assert_eq!(answer(&host, "Now add one").await?, "It is 42.");
    ensure!(host.stop().await?);
    let host = serve(&folder).await?;
    assert_eq!(answer(&host, "Now add one").await?, "It is 43.");
    let events = host.ask("calculator", "other", "Now add one").await?;
    ensure!(serde_json::to_string(&events)?.contains("variable `total` referenced before assignment"), "{events:?}");
    ensure!(host.stop().await?);
    Ok(())
}

#[tokio::test]
async fn a_chat_in_the_terminal_ends_with_its_container() -> Result<()> {
    let (engine, folder) = (StuckEngine::start("41")?, Folder::empty()?);
    let agent = "name: analyst\nmodel: scripted:analyst/answers.yaml\ninstruction: Compute.\n\
                 code_executor: { name: python, stateful: true }\n";
    folder.write("analyst/root_agent.yaml", agent)?;
    folder.write(
        "analyst/answers.yaml",
        "turns:\n  - when: { user: tool_output }\n    reply: 'It is {number}.'\n  - reply: \"```python\\nprint(41)\\n```\"\n",
    )?;
    let socket = engine.socket();
    folder.write_operator_config(&format!(
        "code_executors: {{ python: {{ container: {{ socket: {}, image: 'python:3' }} }} }}\n",
        socket.display()
    ))?;
    let config = folder.operator_config().display().to_string();
    let args = ["run", ".", "analyst", "--message", "begin", "--config", &config];
    let output = hatchery(&folder.served(), &args).await?;
    ensure!(output.stdout.contains("It is 41."), "{}{}", output.stdout, output.stderr);
    let removal = tokio::time::timeout(Duration::from_secs(10), engine.wait_for_removal()).await;
    ensure!(removal.is_ok(), "the container was not removed; {}", output.stderr);
    Ok(())
}
