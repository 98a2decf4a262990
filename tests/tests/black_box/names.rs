//! Names: the first owner keeps a name, over restarts too, and later claims are reported as conflicts.

use anyhow::{Context, Result};
use hatchery_tests::event::text_at;
use hatchery_tests::host::{entry, has_app, message, reason};
use hatchery_tests::paths::component;
use hatchery_tests::{Folder, Host};
use serde_json::{Value, json};

use crate::cli::hatchery;

const ROLLER: &str =
    "name: roller\nmodel: scripted:answers.yaml\ndescription: Rolls.\ninstruction: Roll.\ntools:\n  - name: roll_die\n";

fn conflicts<'a>(components: &'a Value, name: &str) -> &'a Value {
    let all = components.get("components").and_then(Value::as_array).into_iter().flatten();
    all.into_iter().find(|it| text_at(it, "/name") == name).map_or(&Value::Null, |it| &it["conflicts"])
}

#[tokio::test]
async fn active_components_keep_their_names_if_duplicates_are_added() -> Result<()> {
    let folder = Folder::empty()?;
    let dice = component("dice")?;
    folder.put("dice.wasm", &dice)?;
    folder.put("roller/root_agent.yaml", ROLLER)?;
    folder.put("answers.yaml", "responses: [{text: Hello}]\n")?;
    let host = Host::serve(&folder).await?;
    assert_eq!(host.apps().await?, ["dice", "roller"]);

    // Added to a host that runs: an app and tools of the same names, and a component.
    folder.put("aaa.wasm", &dice)?;
    folder.put("aaa/dice.wasm", &dice)?;
    let used =
        |components: &Value| reason(components, "aaa.wasm").is_some() && reason(components, "aaa/dice.wasm").is_some();
    host.wait_until("both are refused", used).await?;
    drop(host);
    for start in ["the first", "the second"] {
        let host = Host::serve(&folder).await?;
        let components = host.components().await?;
        assert!(has_app(&components, "dice") && has_app(&components, "roller"), "{start} start: {components}");
        let own = entry(&components, "dice.wasm").context("dice.wasm")?;
        assert_eq!(text_at(own, "/state"), "loaded", "{components}");
        for (file, what) in [("aaa.wasm", "apps"), ("aaa/dice.wasm", "components")] {
            assert_eq!(text_at(entry(&components, file).context(file)?, "/state"), "conflict", "{components}");
            let reason = reason(&components, file).context("a reason")?;
            assert!(reason.ends_with(&format!("are {what} named `dice`; rename or remove one")), "{reason}");
        }
        assert_eq!(conflicts(&components, "dice"), &Value::Null);
        let tool = "the tool `roll_die` belongs to `dice`, which had the name first; this one is `aaa/roll_die`";
        let reply = conflicts(&components, "aaa").as_array().context("conflicts")?;
        assert!(reply.contains(&json!(tool)), "{components}");
        host.wait_for_log(tool).await?;
        host.wait_for_log("are apps named `dice`; rename or remove one").await?;
        let failed = host.announcement["failed"].as_array().context("failed")?;
        assert_eq!(failed.len(), 2, "{}", host.announcement);
        let conflicts = host.announcement["conflicts"].as_array().context("conflicts")?;
        assert!(conflicts.contains(&json!(tool)), "{}", host.announcement);
    }
    Ok(())
}

#[tokio::test]
async fn a_copy_does_not_take_over_an_app_if_data_is_in_memory() -> Result<()> {
    let folder = Folder::empty()?;
    let dice = component("dice")?;
    folder.put("dice.wasm", &dice)?;
    folder.put("answers.yaml", "responses: [{text: Hello}]\n")?;
    let host = Host::serve_with_args(&folder, &[], &["--memory"]).await?;
    folder.put("dice-backup.wasm", &dice)?;
    folder.put("backup/dice.wasm", &dice)?;
    host.wait_for_log("are apps named `dice`; rename or remove one").await?;
    host.wait_for_log("are components named `dice`; rename or remove one").await?;
    drop(host);
    let host = Host::serve_with_args(&folder, &[], &["--memory"]).await?;
    assert_eq!(host.apps().await?, ["dice"]);
    assert_eq!(host.announcement["failed"].as_array().context("failed")?.len(), 2, "{}", host.announcement);
    assert!(!folder.file(".hatchery").exists(), "nothing is written into the folder");
    Ok(())
}

#[tokio::test]
async fn a_request_for_an_app_in_conflict_is_answered_with_the_conflict() -> Result<()> {
    let folder = Folder::empty()?;
    let dice = component("dice")?;
    folder.put("one.wasm", &dice)?;
    folder.put("two.wasm", &dice)?;
    let conflict = "are apps named `dice`; rename or remove one";
    let host = Host::serve(&folder).await?;
    let answer = host.post("/run", &message("dice", "s", "Roll")).await?.json(500)?;
    assert_eq!(text_at(&answer, "/code"), "APP_NOT_LOADED", "{answer}");
    assert!(text_at(&answer, "/detail").contains(conflict), "{answer}");
    let ran = hatchery(&folder.served(), &["run", ".", "dice", "-m", "Roll"]).await?;
    assert!(!ran.success && ran.stderr.contains(conflict), "{}", ran.stderr);
    Ok(())
}

/// Grants a copy of `dice` under another name the script of the sample.
const GRANTED: &str = "components: {other: {grants: {models: ['scripted:*']}}}\n";

#[tokio::test]
async fn a_name_is_free_once_its_owner_is_removed() -> Result<()> {
    let folder = Folder::empty()?;
    let dice = component("dice")?;
    folder.put("hatchery.yaml", GRANTED)?;
    folder.put("dice.wasm", &dice)?;
    drop(Host::serve(&folder).await?);
    folder.remove("dice.wasm")?;
    folder.put("other.wasm", &dice)?;
    let host = Host::serve(&folder).await?;
    let components = host.wait_for_app("dice").await?;
    assert_eq!(text_at(entry(&components, "other.wasm").context("other.wasm")?, "/state"), "loaded", "{components}");
    Ok(())
}

#[tokio::test]
async fn a_name_waits_for_an_owner_that_cannot_be_loaded() -> Result<()> {
    let folder = Folder::empty()?;
    let dice = component("dice")?;
    folder.put("hatchery.yaml", GRANTED)?;
    folder.put("dice.wasm", &dice)?;
    drop(Host::serve(&folder).await?);
    folder.put("dice.wasm", "no component")?;
    folder.put("other.wasm", &dice)?;
    let host = Host::serve(&folder).await?;
    let components = host.components().await?;
    assert!(!has_app(&components, "dice"), "{components}");
    let reason = reason(&components, "other.wasm").context("a reason")?;
    assert!(reason.ends_with("are apps named `dice`; rename or remove one"), "{reason}");
    folder.put("dice.wasm", &dice)?;
    host.wait_for_app("dice").await?;
    let components = host.components().await?;
    assert_eq!(text_at(entry(&components, "dice.wasm").context("dice.wasm")?, "/state"), "loaded", "{components}");
    assert_eq!(text_at(entry(&components, "other.wasm").context("other.wasm")?, "/state"), "conflict", "{components}");
    Ok(())
}
