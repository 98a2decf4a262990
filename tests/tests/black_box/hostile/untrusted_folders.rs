//! Attacks by folders of other authors: inspecting one grants it nothing, with any hatchery.yaml.

use std::fs;

use anyhow::Result;
use hatchery_tests::paths::{component, puppet};
use hatchery_tests::{Folder, Host};

use crate::cli::{Output, hatchery_with};

const SECRETS: [&str; 2] = ["my private key", "gh-token-of-the-victim"];

/// Creates a folder whose component reads everything that it can, and the folder of a victim outside of it.
fn folder() -> Result<(Folder, String)> {
    let folder = Folder::empty()?;
    let home = folder.data().join("home");
    fs::create_dir(&home)?;
    fs::write(home.join("id_rsa"), SECRETS[0])?;
    folder.put("puppet.wasm", puppet("loot")?)?;
    folder.write("conversation.yaml", "app: puppet\nturns:\n  - user: Hello\n")?;
    let home = home.display().to_string();
    folder.write(
        "hatchery.yaml",
        format!(
            "components:\n  puppet:\n    grants:\n      files: [{{host: \"{home}\", guest: /home, access: write}}]\n      \
             environment: {{ TOKEN: {{ from: GITHUB_TOKEN }} }}\n"
        ),
    )?;
    Ok((folder, home))
}

async fn run_command(folder: &Folder, args: &[&str]) -> Result<Output> {
    hatchery_with(&folder.served(), args, &[("GITHUB_TOKEN", SECRETS[1])]).await
}

/// Checks that no secret was read.
fn assert_unharmed(folder: &Folder, what: &str, output: &str) {
    assert!(!folder.data().join("home/looted.txt").exists(), "{what}: a file was written into the victim's folder");
    for secret in SECRETS {
        assert!(!output.contains(secret), "{what}: {output}");
    }
}

#[tokio::test]
async fn no_command_grants_an_untrusted_folder_the_access_that_it_requests() -> Result<()> {
    let (folder, _) = folder()?;
    for args in [
        &["inspect", "."][..],
        &["inspect", ".", "--json"],
        &["inspect", "puppet.wasm"],
        &["doctor", "."],
        &["test", "."],
        &["compile", "."],
        &["run", ".", "puppet", "-m", "Hello"],
    ] {
        let output = run_command(&folder, args).await?;
        assert_unharmed(&folder, &args.join(" "), &format!("{}{}", output.stdout, output.stderr));
    }
    Ok(())
}

#[tokio::test]
async fn serve_names_the_requested_access_and_the_command_that_trusts_it() -> Result<()> {
    let (folder, home) = folder()?;
    let answer = match Host::serve_with_args(&folder, &[("GITHUB_TOKEN", SECRETS[1])], &[] as &[&str]).await {
        Ok(host) => format!("{}{}", host.wait_for_refusal("puppet.wasm").await?, host.log()),
        Err(error) => format!("{error:#}"),
    };
    for part in ["hatchery trust", home.as_str(), "GITHUB_TOKEN"] {
        assert!(answer.contains(part), "{part} is not in {answer}");
    }
    assert_unharmed(&folder, "serve", &answer);
    Ok(())
}

#[tokio::test]
async fn describe_has_no_access_to_granted_files() -> Result<()> {
    let folder = Folder::empty()?;
    folder.put("puppet.wasm", puppet("loot")?)?;
    folder.write("files/secret.txt", SECRETS[0])?;
    folder.write(
        "hatchery.yaml",
        "components: {puppet: {grants: {files: [{host: files, guest: /data, access: write}], environment: {WORD: gh-token-of-the-victim}}}}\n",
    )?;
    let host = Host::serve(&folder).await?;
    host.wait_until("the component is looked at", |components| {
        components["files"].as_array().is_some_and(|files| !files.is_empty())
    })
    .await?;
    let message = format!("{}{}", host.components().await?, host.get("/list-apps?detailed=true").await?.text);
    let inspected = run_command(&folder, &["inspect", ".", "--json"]).await?;
    let message = format!("{message}{}{}", inspected.stdout, inspected.stderr);
    assert!(!message.contains(SECRETS[0]), "a file was read: {message}");
    assert!(!inspected.stdout.contains(&format!("WORD={}", SECRETS[1])), "a variable was read: {}", inspected.stdout);
    assert!(!folder.file("files/looted.txt").exists(), "a file was written");
    Ok(())
}

#[tokio::test]
async fn an_unsigned_component_is_not_inspected_if_signatures_are_required() -> Result<()> {
    let folder = Folder::empty()?;
    let key = minisign::KeyPair::generate_unencrypted_keypair()?.pk.to_base64();
    folder.write("hatchery.yaml", format!("registry:\n  signatures: require\n  trusted_keys: [{key}]\n"))?;
    folder.put("swap.wasm", component("swap")?)?;
    for args in [&["inspect", "."][..], &["inspect", "swap.wasm"]] {
        let output = run_command(&folder, args).await?;
        let printed = format!("{}{}", output.stdout, output.stderr);
        assert!(printed.contains("sign"), "{args:?}: {printed}");
        assert!(!output.stdout.contains("Returns the name of its build"), "{args:?} ran it: {printed}");
    }
    Ok(())
}
