//! Folders that agents search.

use anyhow::{Context, Result, ensure};
use hatchery_tests::{Folder, Host, event, paths};

/// Returns a folder with the agent of the guide.
fn guide() -> Result<Folder> {
    let folder = Folder::empty()?;
    let text = std::fs::read_to_string(paths::repository().join("docs/tools.md"))?;
    let (_, section) = text.split_once("# Files of a folder\n").context("the section about folders")?;
    let mut files = 0;
    for block in section.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        let named = block.strip_prefix("# ").and_then(|block| block.split_once('\n'));
        if let Some((name, content)) = named.filter(|(name, _)| *name == "hatchery.yaml" || name.starts_with("helper/"))
        {
            folder.write(name, content)?;
            files += 1;
        }
    }
    ensure!(files == 3, "the guide has {files} files");
    folder.write("handbook/leave.md", "# Leave\n\nEverybody has 30 days a year.\n")?;
    folder.write("handbook/travel.md", "# Travel\n\nTrains come before planes.\n")?;
    Ok(folder)
}

#[tokio::test]
async fn an_agent_finds_a_passage_and_names_its_source_as_the_guide_shows() -> Result<()> {
    let folder = guide()?;
    let host = Host::serve(&folder).await?;
    let events = host.ask("helper", "s", "How many days of leave do I have?").await?;
    let answer = event::text(events.last().context("an answer")?);
    assert_eq!(answer, "# Leave\n\nEverybody has 30 days a year. (leave.md, lines 1-3)");
    ensure!(host.stop().await?);
    Ok(())
}

#[tokio::test]
async fn a_folder_outside_of_that_of_the_configuration_is_refused() -> Result<()> {
    let folder = guide()?;
    folder.write("hatchery.yaml", "retrieval: {handbook: {folder: ../handbook}}\n")?;
    let error = match Host::serve(&folder).await {
        Ok(_) => anyhow::bail!("the host has started"),
        Err(error) => format!("{error:#}"),
    };
    let expected = "retrieval.handbook: `folder` must be a folder below that of hatchery.yaml, such as `docs`";
    ensure!(error.contains(expected), "{error}");
    Ok(())
}
