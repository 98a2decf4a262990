//! The lock file: restoring, updating, and files that differ from it.

use super::*;

#[tokio::test]
async fn a_folder_is_restored_from_its_lock_file_until_an_update_is_requested() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    stage.push("swap:1", &[]).await?;
    content(stage.pull_by_name("swap:1", &[]).await?)?;
    contains(&content(stage.pull(&[]).await?)?, &["swap unchanged"]);
    stage.author.write("swap.wasm", swap(Newer)?)?;
    let newer = stage.push("swap:1", &[]).await?;
    stage.operator.remove("swap.wasm")?;
    contains(&content(stage.pull(&[]).await?)?, &["swap restored"]);
    assert_eq!(stage.pulled("swap.wasm")?, swap(Older)?, "what is locked, not what the tag means now");
    contains(&content(stage.pull(&["--update"]).await?)?, &["swap updated", text_at(&newer, "/manifest")]);
    assert_eq!(stage.pulled("swap.wasm")?, swap(Newer)?);
    contains(&content(stage.pull(&["--update"]).await?)?, &["swap unchanged"]);
    Ok(())
}

#[tokio::test]
async fn a_locked_pull_restores_and_changes_nothing_that_is_locked() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    contains(&stage.refusal(&["--locked"]).await?, &["hatchery.lock: nothing has been pulled into this folder"]);
    stage.push("swap:1", &[]).await?;
    stage.push("swap:2", &[]).await?;
    content(stage.pull_by_name("swap:1", &[]).await?)?;
    let lock = stage.pulled("hatchery.lock")?;
    stage.operator.remove("swap.wasm")?;
    contains(&content(stage.pull(&["--locked"]).await?)?, &["swap restored"]);
    contains(&content(stage.pull_by_name("swap:1", &["--locked"]).await?)?, &["swap unchanged"]);
    let (locked, request) = (stage.registry.reference("swap:1"), stage.registry.reference("swap:2"));
    contains(
        &stage.refusal(&[&request, "--locked"]).await?,
        &[&format!("component `swap` is locked to {locked}, not {request}")],
    );
    contains(
        &stage.refusal(&[&request, "--locked", "--name", "other"]).await?,
        &[
            "hatchery.lock: component `other` is not in the lockfile; pull it once without locked mode",
            "(see --locked)",
        ],
    );
    contains(&stage.refusal(&["--locked", "--update"]).await?, &["cannot be used with"]);
    assert_eq!(stage.pulled("hatchery.lock")?, lock);
    assert!(!stage.operator.file("other.wasm").exists());
    Ok(())
}

#[tokio::test]
async fn a_lock_that_differs_from_the_registry_names_both_digests_and_how_to_accept() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let pushed = stage.push("swap:1", &[]).await?;
    for key in ["/manifest", "/digest"] {
        content(stage.pull_by_name("swap:1", &["--update"]).await?)?;
        let digest = text_at(&pushed, key);
        stage.change_lock(digest, NO_DIGEST)?;
        stage.operator.remove("swap.wasm")?;
        let answer = stage.refusal(&[]).await?;
        contains(
            &answer,
            &[&format!(
                "expected {NO_DIGEST}, found {digest}; update to accept the registry's current version (see --update)"
            )],
        );
        assert!(!stage.operator.file("swap.wasm").exists());
    }
    Ok(())
}

#[tokio::test]
async fn a_tampered_file_is_an_error_that_names_it_and_both_digests() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let pushed = stage.push("swap:1", &[]).await?;
    for name in ["swap", "other"] {
        content(stage.pull_by_name("swap:1", &["--name", name]).await?)?;
    }
    stage.operator.write("swap.wasm", swap(Newer)?)?;
    let output = stage.pull(&[]).await?;
    contains(&output.stdout, &["other unchanged"]);
    let answer = refusal(output)?;
    contains(
        &answer,
        &["swap.wasm: expected ", text_at(&pushed, "/digest"), ", found sha256:", "delete the file and pull again"],
    );
    let json = stage.pull(&["--json"]).await?;
    ensure!(!json.success);
    contains(&json.stdout, &["{\"name\":\"swap\",\"error\":", "swap.wasm: expected sha256:"]);
    content(stage.pull(&["--update"]).await?)?;
    assert_eq!(stage.pulled("swap.wasm")?, swap(Older)?);
    Ok(())
}

#[tokio::test]
async fn bytes_that_differ_from_the_manifest_are_refused() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let pushed = stage.push("swap:1", &[]).await?;
    fs::write(stage.registry.blob(text_at(&pushed, "/digest"))?, swap(Newer)?)?;
    let answer = stage.refusal(&[&stage.registry.reference("swap:1")]).await?;
    contains(
        &answer,
        &[
            &format!("expected {}, found sha256:", text_at(&pushed, "/digest")),
            "the registry or a proxy has sent other bytes than requested",
        ],
    );
    assert!(!stage.operator.file("swap.wasm").exists());
    Ok(())
}

#[tokio::test]
async fn a_name_is_not_given_to_another_component_without_a_flag() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    stage.push("swap:1", &[]).await?;
    stage.push("stranger/swap:1", &[]).await?;
    stage.operator.write("swap.wasm", component("misbehaver")?)?;
    let answer = refusal(stage.pull_by_name("swap:1", &[]).await?)?;
    contains(&answer, &["swap.wasm: the file exists, and is not from a registry", "(see --name and --update)"]);
    content(stage.pull_by_name("swap:1", &["--update"]).await?)?;
    let answer = refusal(stage.pull_by_name("stranger/swap:1", &[]).await?)?;
    let (locked, request) = (stage.registry.reference("swap:1"), stage.registry.reference("stranger/swap:1"));
    contains(&answer, &[&format!("component `swap` is locked to {locked}, not {request}; update to replace it")]);
    contains(
        &refusal(stage.pull_by_name("swap:1", &["--name", "../x"]).await?)?,
        &["`../x` is not a valid component name"],
    );
    Ok(())
}

#[tokio::test]
async fn a_folder_without_a_lock_has_nothing_to_restore() -> Result<()> {
    let folder = Folder::empty()?;
    let answer = refusal(hatchery(&folder.served(), &["pull", "."]).await?)?;
    contains(&answer, &["hatchery.lock: nothing has been pulled into this folder; name a component"]);
    folder.write("hatchery.lock", "version: 1\ncomponents:\n  x: {reference: x}\n")?;
    contains(
        &refusal(hatchery(&folder.served(), &["pull", "."]).await?)?,
        &["hatchery.lock:3:", "`x` is not a reference"],
    );
    Ok(())
}

#[tokio::test]
async fn each_component_that_cannot_be_restored_is_named() -> Result<()> {
    let folder = Folder::empty()?;
    let component = |name: &str| {
        format!(
            "  {name}:\n    reference: localhost:1/team/{name}:1.0\n    manifest: {NO_DIGEST}\n    file: {NO_DIGEST}\n"
        )
    };
    folder.write("hatchery.lock", format!("version: 1\ncomponents:\n{}{}", component("one"), component("two")))?;
    let text = refusal(hatchery(&folder.served(), &["pull", "."]).await?)?;
    contains(&text, &["error: one: the registry localhost:1", "error: two: the registry localhost:1"]);
    let json = hatchery(&folder.served(), &["pull", ".", "--json"]).await?;
    assert!(!json.success, "{}", json.stdout);
    let names: Vec<_> = json.lines()?.iter().map(|line| line["name"].clone()).collect();
    assert_eq!(names, ["one", "two"], "{}", json.stdout);
    Ok(())
}
