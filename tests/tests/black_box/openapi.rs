//! Operations of HTTP APIs as tools of agents.

use anyhow::{Context, Result, ensure};
use hatchery_tests::{Folder, Host, event, paths};
use serde_json::json;

/// Returns a folder with the agent of the guide.
fn guide() -> Result<Folder> {
    let folder = Folder::empty()?;
    let text = std::fs::read_to_string(paths::repository().join("docs/tools.md"))?;
    let mut files = 0;
    for block in text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        if let Some((name, content)) = block.strip_prefix("# lister/").and_then(|block| block.split_once('\n')) {
            folder.write(&format!("lister/{name}"), content)?;
            files += 1;
        }
    }
    ensure!(files == 3, "the guide has {files} files");
    Ok(folder)
}

fn config(folder: &Folder, other: &Host) -> String {
    let document = folder.file("lister/host.yaml");
    json!({"openapi": {"apis": {"host": {"document": document, "base_url": other.url}}}}).to_string()
}

#[tokio::test]
async fn an_agent_calls_an_operation_of_another_host_as_the_guide_shows() -> Result<()> {
    let other = Folder::empty()?;
    other.put("greeter.wasm", paths::component("greeter")?)?;
    let other = Host::serve(&other).await?;
    let folder = guide()?;
    folder.write_operator_config(&config(&folder, &other))?;
    let host = Host::serve(&folder).await?;
    let events = host.ask("lister", "s", "Which apps are there?").await?;
    assert_eq!(event::text(events.last().context("an answer")?), "The first app is greeter.");
    ensure!(host.stop().await? && other.stop().await?);
    Ok(())
}

#[tokio::test]
async fn an_api_of_a_folder_needs_the_trust_of_the_operator() -> Result<()> {
    let other = Host::serve(&Folder::empty()?).await?;
    let folder = guide()?;
    folder.write("hatchery.yaml", config(&folder, &other))?;
    let user = folder.data().join("config");
    let environment = [("XDG_CONFIG_HOME", user.to_str().context("UTF-8")?)];
    let host = Host::serve_with_args(&folder, &environment, &[] as &[&str]).await?;
    let text = host.components().await?.to_string();
    ensure!(
        text.contains("the API `host` is not used: hatchery.yaml requests access outside of its folder for it"),
        "{text}"
    );
    ensure!(host.stop().await? && other.stop().await?);
    Ok(())
}
