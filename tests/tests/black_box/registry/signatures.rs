//! Signatures: who is trusted, for which names, and when they are verified again.

use super::*;

#[tokio::test]
async fn a_required_signature_lets_only_trusted_keys_in() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let trusted = stage.key()?;
    let signed = stage.push("swap:signed", &["--sign-with", "minisign.key"]).await?;
    let signer = text_at(&signed, "/signer");
    stage.push("swap:unsigned", &[]).await?;
    stage.key()?;
    let stranger = stage.push("swap:stranger", &["--sign-with", "minisign.key"]).await?;
    let config = format!("registry:\n  signatures: require\n  trusted_keys: [{trusted}]\n");
    stage.operator.write("hatchery.yaml", &config)?;
    let required = "and signatures are required; sign it, or add its key to `registry.trusted_keys` of hatchery.yaml";
    for (tag, problem) in [
        ("swap:unsigned", "is not signed".to_owned()),
        ("swap:stranger", format!("is signed by the key {}, which is not trusted", text_at(&stranger, "/signer"))),
    ] {
        let reference = stage.registry.reference(tag);
        contains(&stage.refusal(&[&reference]).await?, &[&format!("{reference} {problem}, {required}")]);
        assert!(!stage.operator.file("swap.wasm").exists());
    }
    let answer = content(stage.pull_by_name("swap:signed", &[]).await?)?;
    contains(&answer, &["swap added", &format!("signed by {signer}")]);
    contains(&String::from_utf8(stage.pulled("hatchery.lock")?)?, &[signer]);
    Ok(())
}

#[tokio::test]
async fn a_host_that_requires_signatures_loads_nothing_else() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let config = format!("registry:\n  signatures: require\n  trusted_keys: [{}]\n", stage.key()?);
    stage.operator.write("hatchery.yaml", config)?;
    stage.operator.write("swap.wasm", swap(Older)?)?;
    let host = Host::serve(&stage.operator).await?;
    let reason = host.wait_for_refusal("swap.wasm").await?;
    contains(&reason, &["swap.wasm is not signed, and signatures are required"]);
    stage.author.write("swap.wasm", swap(Newer)?)?;
    stage.push("swap:1", &["--sign-with", "minisign.key"]).await?;
    content(stage.pull_by_name("swap:1", &["--update"]).await?)?;
    host.wait_for_app("swap").await?;
    Ok(())
}

#[tokio::test]
async fn a_signed_component_does_not_serve_under_the_name_of_another() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let config = format!("registry:\n  signatures: require\n  trusted_keys: [{}]\n", stage.key()?);
    stage.operator.write("hatchery.yaml", &config)?;
    let signed = stage.push("swap:1.0", &["--sign-with", "minisign.key"]).await?;
    let other_name =
        "is signed as `swap.wasm`, not as `vault.wasm`, and signatures are required; rename the file to `swap.wasm`";
    contains(
        &refusal(stage.pull_by_name("swap:1.0", &["--name", "vault"]).await?)?,
        &[other_name, "allow it with `components.vault.signed_as: swap` of hatchery.yaml"],
    );
    content(stage.pull_by_name("swap:1.0", &[]).await?)?;
    for end in ["wasm", "wasm.minisig"] {
        fs::copy(stage.operator.file(&format!("swap.{end}")), stage.operator.file(&format!("vault.{end}")))?;
    }
    let host = Host::serve(&stage.operator).await?;
    contains(&host.wait_for_refusal("vault.wasm").await?, &[other_name]);
    host.wait_for_app("swap").await?;
    host.wait_for_log("decision=\"refused\"").await?;
    drop(host);

    // The operator may say otherwise.
    stage.operator.remove("swap.wasm")?;
    stage.operator.write("hatchery.yaml", format!("{config}components: {{vault: {{signed_as: swap}}}}\n"))?;
    Host::serve(&stage.operator).await?.wait_for_app("swap").await?;

    // The other tag now refers to a component that is not signed.
    let manifest = stage.registry.manifest("swap", "1.0").await?;
    for (tag, is_fine) in [("2.0", false), ("stable", true)] {
        stage.registry.put_manifest("swap", tag, &manifest).await?;
        let output = stage.pull_by_name(&format!("swap:{tag}"), &["--update"]).await?;
        if is_fine {
            contains(&content(output)?, &["signed by", text_at(&signed, "/signer")]);
        } else {
            let request = stage.registry.reference("swap:2.0");
            contains(
                &refusal(output)?,
                &[&format!("{request} is signed as version 1.0, not as 2.0, and signatures are required")],
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn only_signed_revisions_can_be_restored() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let config = format!("registry:\n  signatures: require\n  trusted_keys: [{}]\n", stage.key()?);
    stage.operator.write("hatchery.yaml", config)?;
    let host = Host::serve(&stage.operator).await?;
    for (version, tag) in [(Older, "swap:1.0"), (Newer, "swap:2.0")] {
        stage.author.write("swap.wasm", swap(version)?)?;
        let pushed = stage.push(tag, &["--sign-with", "minisign.key"]).await?;
        content(stage.pull_by_name(tag, &["--update"]).await?)?;
        let digest = text_at(&pushed, "/digest").trim_start_matches("sha256:").to_owned();
        let serves = |components: &Value| text_at(components, "/components/0/sha256") == digest;
        host.wait_until(&format!("{tag} serves"), serves).await?;
    }
    let rollback =
        async || hatchery(&stage.operator.served(), &["rollback", "swap", "--config", "hatchery.yaml"]).await;
    let newer_signature = stage.pulled("swap.wasm.minisig")?;
    content(rollback().await?)?;
    assert_eq!(stage.pulled("swap.wasm")?, swap(Older)?);
    assert_ne!(stage.pulled("swap.wasm.minisig")?, newer_signature);
    let older = |components: &Value| text_at(components, "/files/0/state") == "loaded" && has_app(components, "swap");
    host.wait_until("the older one serves", older).await?;
    drop(host);

    // Write access to the kept revisions does not come with the key.
    stage.operator.write("swap.wasm", swap(Newer)?)?;
    let stored_revisions = stage.operator.file(".hatchery/revisions/swap");
    let signatures = fs::read_dir(&stored_revisions)?.filter_map(|entry| Some(entry.ok()?.path()));
    for signature in signatures.filter(|path| path.extension().is_some_and(|extension| extension == "minisig")) {
        fs::remove_file(signature)?;
    }
    let output = rollback().await?;
    contains(&output.stderr, &["revision ", "swap.wasm is not signed, and signatures are required", "signature"]);
    refusal(output)?;
    assert_eq!(stage.pulled("swap.wasm")?, swap(Newer)?, "nothing has changed");
    Ok(())
}

#[tokio::test]
async fn a_signature_is_verified_again_when_a_component_is_loaded_from_the_cache() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let config = format!("registry:\n  signatures: require\n  trusted_keys: [{}]\n", stage.key()?);
    stage.operator.write("hatchery.yaml", config)?;
    stage.push("swap:1", &["--sign-with", "minisign.key"]).await?;
    content(stage.pull_by_name("swap:1", &[]).await?)?;
    let signature = stage.pulled("swap.wasm.minisig")?;
    let host = Host::serve(&stage.operator).await?;
    host.wait_for_app("swap").await?;
    stage.operator.remove("swap.wasm.minisig")?;
    contains(&host.wait_for_refusal("swap.wasm").await?, &["swap.wasm is not signed, and signatures are required"]);
    drop(host);

    // Its code is in the cache now.
    let host = Host::serve(&stage.operator).await?;
    contains(&host.wait_for_refusal("swap.wasm").await?, &["swap.wasm is not signed, and signatures are required"]);
    assert!(host.apps().await?.is_empty());
    stage.operator.write("swap.wasm.minisig", signature)?;
    host.wait_for_app("swap").await?;
    Ok(())
}

#[tokio::test]
async fn flags_set_the_trusted_keys_and_the_signature_policy() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let key = stage.key()?;
    stage.push("swap:1", &["--sign-with", "minisign.key"]).await?;
    let warned = stage.pull_by_name("swap:1", &[]).await?;
    contains(&warned.stderr, &["warning:", "which is not trusted"]);
    content(warned)?;
    let off = stage.pull(&["--signatures", "off"]).await?;
    assert!(!off.stderr.contains("warning"), "{}", off.stderr);
    stage.operator.write("author.pub", format!("untrusted comment: the author's\n{key}\n"))?;
    for trust in [key.as_str(), "author.pub"] {
        let output = stage.pull(&["--signatures", "require", "--trust", trust]).await?;
        contains(&content(output)?, &["swap unchanged", "signed by"]);
    }
    let nobody = Folder::empty()?;
    let output = hatchery(&nobody.served(), &["pull", ".", "--signatures", "require"]).await?;
    contains(&refusal(output)?, &["signatures are required, but no key is trusted", "(see --trust)"]);
    Ok(())
}

#[tokio::test]
async fn a_signature_is_verified_again_on_each_pull() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let key = stage.key()?;
    let pushed = stage.push("swap:1", &["--sign-with", "minisign.key"]).await?;
    let trust = ["--trust", key.as_str()];
    content(stage.pull_by_name("swap:1", &trust).await?)?;
    let (signer, signature) = (text_at(&pushed, "/signer"), stage.pulled("swap.wasm.minisig")?);

    stage.operator.remove("swap.wasm.minisig")?;
    let expected = format!("swap.wasm: expected a signature by the trusted key {signer}, found that ");
    contains(&stage.refusal(&trust).await?, &[&expected, "swap.wasm is not signed"]);

    // Changing the file and the lock does not help without a key.
    stage.operator.write("swap.wasm.minisig", &signature)?;
    let newer = Folder::empty()?;
    newer.write("swap.wasm", swap(Newer)?)?;
    let elsewhere =
        hatchery(&newer.served(), &["push", "swap.wasm", &stage.registry.reference("newer:1"), "--json"]).await?;
    stage.operator.write("swap.wasm", swap(Newer)?)?;
    stage.change_lock(text_at(&pushed, "/digest"), text_at(&elsewhere.json()?, "/digest"))?;
    let expected =
        format!("swap.wasm: expected the content signed by the key {signer}, found other bytes or a forged signature");
    contains(&stage.refusal(&trust).await?, &[&expected]);
    Ok(())
}

#[tokio::test]
async fn an_update_without_the_previous_signature_is_a_warning() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let key = stage.key()?;
    let signed = stage.push("swap:1", &["--sign-with", "minisign.key"]).await?;
    content(stage.pull_by_name("swap:1", &["--trust", &key]).await?)?;
    stage.push("swap:1", &[]).await?;
    let updated = stage.pull(&["--update", "--trust", &key]).await?;
    let until_now =
        format!("the previous version was signed by the key {}, this version is not", text_at(&signed, "/signer"));
    contains(&updated.stderr, &["is not signed", &until_now]);
    contains(&content(updated)?, &["swap updated"]);
    assert!(!stage.operator.file("swap.wasm.minisig").exists());
    Ok(())
}
