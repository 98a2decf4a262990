//! Folders and artifacts that agents search.

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::events_of;
use hatchery_tests::{Folder, Host, event, paths};
use serde_json::json;

/// Returns a folder with the files of a section of the guide: `hatchery.yaml`, and the files of an agent.
fn agent_of_guide(heading: &str, agent: &str) -> Result<Folder> {
    let folder = Folder::empty()?;
    let text = std::fs::read_to_string(paths::repository().join("docs/tools.md"))?;
    let (_, section) = text.split_once(&format!("## {heading}\n")).context("the section")?;
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let mut files = 0;
    for block in section.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        let named = block.strip_prefix("# ").and_then(|block| block.split_once('\n'));
        let is_wanted = |name: &str| name == "hatchery.yaml" || name.starts_with(&format!("{agent}/"));
        if let Some((name, content)) = named.filter(|(name, _)| is_wanted(name)) {
            folder.write(name, content)?;
            files += 1;
        }
    }
    ensure!(files == 3, "the guide has {files} files");
    Ok(folder)
}

fn guide() -> Result<Folder> {
    let folder = agent_of_guide("Files of a folder", "helper")?;
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
async fn a_folder_outside_of_the_folder_of_the_configuration_is_refused() -> Result<()> {
    let folder = guide()?;
    folder.write("hatchery.yaml", "retrieval: {handbook: {folder: ../handbook}}\n")?;
    let error = match Host::serve(&folder).await {
        Ok(_) => anyhow::bail!("the host has started"),
        Err(error) => format!("{error:#}"),
    };
    let expected = "retrieval.handbook: `folder` must be a folder below the folder of hatchery.yaml, such as `docs`";
    ensure!(error.contains(expected), "{error}");
    Ok(())
}

fn artifacts(user: &str, session: &str) -> String {
    format!("/apps/reader/users/{user}/sessions/{session}/artifacts")
}

async fn create_session(host: &Host, user: &str, session: &str) -> Result<()> {
    host.post(&format!("/apps/reader/users/{user}/sessions/{session}"), &json!({})).await?.json(200).map(drop)
}

async fn upload(host: &Host, user: &str, session: &str, name: &str, text: &str) -> Result<()> {
    let body = json!({"filename": name, "artifact": {"text": text}});
    host.post(&artifacts(user, session), &body).await?.json(200).map(drop)
}

/// Returns the answer to a question about the budget.
async fn budget(host: &Host, user: &str, session: &str) -> Result<String> {
    let question = json!({
        "appName": "reader",
        "userId": user,
        "sessionId": session,
        "newMessage": { "role": "user", "parts": [{ "text": "What may the journey cost?" }] },
    });
    let events = events_of(&host.post("/run", &question).await?.json(200)?)?;
    Ok(event::text(events.last().context("an answer")?))
}

#[tokio::test]
async fn an_agent_finds_the_newest_artifacts_of_its_user_as_the_guide_shows() -> Result<()> {
    let folder = agent_of_guide("Artifacts as sources", "reader")?;
    let host = Host::serve(&folder).await?;
    for (user, session) in [("ann", "s1"), ("ann", "s2"), ("bob", "s1")] {
        create_session(&host, user, session).await?;
    }
    upload(&host, "ann", "s1", "user:journey.md", "The budget is 200 €.").await?;
    upload(&host, "ann", "s1", "user:journey.md", "The budget is 300 €.").await?;
    upload(&host, "bob", "s1", "trip.md", "The budget of Bob is 900 €.").await?;
    upload(&host, "bob", "s1", "unsearched.txt", "The budget budget budget.").await?;
    assert_eq!(budget(&host, "ann", "s2").await?, "The budget is 300 €. (user:journey.md, version 1, lines 1-1)");
    assert_eq!(budget(&host, "bob", "s1").await?, "The budget of Bob is 900 €. (trip.md, version 0, lines 1-1)");

    let path = format!("{}/user:journey.md", artifacts("ann", "s1"));
    ensure!(host.delete(&path).await?.status == 204);
    create_session(&host, "ann", "s3").await?;
    upload(&host, "ann", "s3", "new.md", "No budget yet.").await?;
    assert_eq!(budget(&host, "ann", "s3").await?, "No budget yet. (new.md, version 0, lines 1-1)");
    ensure!(host.stop().await?);

    // The index outlives the host.
    let host = Host::serve(&folder).await?;
    assert_eq!(budget(&host, "bob", "s1").await?, "The budget of Bob is 900 €. (trip.md, version 0, lines 1-1)");
    ensure!(host.stop().await?);
    Ok(())
}

#[tokio::test]
async fn an_index_needs_one_source_and_an_index_of_artifacts_excludes_encryption() -> Result<()> {
    let neither = "retrieval.a: set either `folder`, a folder below the folder of hatchery.yaml such as `docs`, or `artifacts: true`";
    for (config, expected) in [
        ("retrieval: {a: {folder: docs, artifacts: true}}\n", neither),
        ("retrieval: {a: {description: x}}\n", neither),
        (
            "retrieval: {a: {artifacts: true}}\nencryption: {keys: [{id: a, from: KEY}]}\n",
            "retrieval.a: the index of artifacts would hold in plain text what `encryption` encrypts; remove one of both",
        ),
    ] {
        let folder = Folder::empty()?;
        folder.write("hatchery.yaml", config)?;
        let error = match Host::serve(&folder).await {
            Ok(_) => anyhow::bail!("the host has started with {config}"),
            Err(error) => format!("{error:#}"),
        };
        ensure!(error.contains(expected), "{error}");
    }
    Ok(())
}
