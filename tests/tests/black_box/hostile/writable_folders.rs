//! Attacks by files that a component may write: they are never code, configuration or data of the host.

use anyhow::Result;
use hatchery_tests::{Host, Stage};
use serde_json::{Value, json};

/// Checks that the host does not start, or rejects the component, with the folder in the reason.
async fn check_rejected(settings: &str, named: &str) -> Result<()> {
    let folder = Stage::folder(settings)?;
    folder.write(".hatchery/keep.txt", "")?;
    folder.write("data/keep.txt", "")?;
    let reason = match Host::serve(&folder).await {
        Err(error) => format!("{error:#}"),
        Ok(host) => host.wait_for_refusal("hostile.wasm").await?,
    };
    assert!(reason.contains(named), "{settings}: {reason}");
    Ok(())
}

#[tokio::test]
async fn folders_of_the_host_cannot_be_granted() -> Result<()> {
    for (host, access) in [(".", "write"), (".hatchery", "write"), (".hatchery", "read"), (".", "read")] {
        let settings = format!(
            "components: {{hostile: {{grants: {{files: [{{host: \"{host}\", guest: /data, access: {access}}}]}}}}}}\n"
        );
        check_rejected(&settings, "hatchery").await?;
    }
    Ok(())
}

#[tokio::test]
async fn agents_and_scripts_in_a_written_folder_are_not_loaded() -> Result<()> {
    let folder =
        Stage::folder("components: {hostile: {grants: {files: [{host: data, guest: /data, access: write}]}}}\n")?;
    folder.write("data/sub.yaml", "name: sub\nmodel: component:hostile/puppeteer\ninstruction: Do it.\n")?;
    folder.write("data/answers.yaml", "turns:\n  - reply: from the written folder\n")?;
    folder.write(
        "data/app/root_agent.yaml",
        "name: squatter\nmodel: component:hostile/puppeteer\ninstruction: Do it.\n",
    )?;
    let parent = "name: parent\nmodel: component:hostile/puppeteer\ninstruction: Do it.\nsub_agents:\n  - config_path: ../data/sub.yaml\n";
    folder.write("parent/root_agent.yaml", parent)?;
    folder.write("root_agent.yaml", "name: top\nmodel: component:hostile/puppeteer\ninstruction: Do it.\nsub_agents:\n  - config_path: data/sub.yaml\n")?;
    folder.write("talker/root_agent.yaml", "name: talker\nmodel: scripted:data/answers.yaml\ninstruction: Talk.\n")?;
    let stage = Stage::serve(folder).await?;
    let apps = stage.host.apps().await?;
    for app in ["parent", "squatter", "top"] {
        assert!(!apps.iter().any(|name| name == app), "`{app}` is served: {apps:?}");
    }
    let reply = stage.host.post("/apps/talker/users/tester/sessions/s", &json!({})).await?;
    if reply.status == 200 {
        let answer = stage.host.post("/run", &hatchery_tests::host::message("talker", "s", "Hello")).await?;
        assert!(answer.status >= 400 && !answer.text.contains("from the written folder"), "{}", answer.text);
    }
    Ok(())
}

#[tokio::test]
async fn a_script_cannot_read_other_files() -> Result<()> {
    let folder = Stage::folder("")?;
    folder.write(".env", "OPENAI_API_KEY=sk-of-the-operator\n")?;
    folder.write("talker/root_agent.yaml", "name: talker\nmodel: scripted:.env\ninstruction: Talk.\n")?;
    let stage = Stage::serve(folder).await?;
    let served = stage.folder.served().display().to_string();
    let mut shown: Vec<Value> = vec![stage.host.components().await?];
    if stage.host.post("/apps/talker/users/tester/sessions/s", &json!({})).await?.status == 200 {
        let answer = stage.host.post("/run", &hatchery_tests::host::message("talker", "s", "Hello")).await?;
        assert!(answer.status >= 400, "{}", answer.text);
        assert!(!answer.text.contains(&served), "a path of the host is revealed to a client: {}", answer.text);
        shown.push(answer.text.into());
    }
    let shown = json!(shown).to_string();
    assert!(!shown.contains("sk-of-the-operator"), "{shown}");
    Ok(())
}
