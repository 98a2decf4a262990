//! Components over a registry: pushed, pulled, restored as they are locked, verified, signed.

use std::fs;

use anyhow::{Context, Result, ensure};
use hatchery_tests::event::text_at;
use hatchery_tests::host::has_app;
use hatchery_tests::paths::Swap::{Newer, Older};
use hatchery_tests::paths::{component, swap};
use hatchery_tests::registry::{REGISTRY_PASSWORD, REGISTRY_USER};
use hatchery_tests::{Folder, Host, Registry};
use minisign::KeyPair;
use serde_json::{Value, json};

use crate::cli::{Output, hatchery, hatchery_with};

/// A registry, and two folders: of the author who pushes and of the operator who pulls.
struct Stage {
    registry: Registry,
    author: Folder,
    operator: Folder,
}

impl Stage {
    /// With the component `swap` at the author's.
    async fn new() -> Result<Option<Self>> {
        Self::around(Registry::start().await?)
    }

    fn around(registry: Option<Registry>) -> Result<Option<Self>> {
        let Some(registry) = registry else { return Ok(None) };
        let stage = Self { registry, author: Folder::empty()?, operator: Folder::empty()? };
        stage.author.write("swap.wasm", swap(Older)?)?;
        Ok(Some(stage))
    }

    /// Pushes `swap.wasm`, and gives what that says.
    async fn push(&self, name: &str, more: &[&str]) -> Result<Value> {
        let reference = self.registry.reference(name);
        let args = [&["push", "swap.wasm", &reference, "--json"][..], more].concat();
        let output = hatchery(&self.author.served(), &args).await?;
        ensure!(output.success, "{}", output.stderr);
        output.json()
    }

    async fn pull(&self, args: &[&str]) -> Result<Output> {
        // What the operator has written is the operator's to trust.
        let named = ["--config", "hatchery.yaml"];
        let named: &[&str] = if self.operator.file("hatchery.yaml").exists() { &named } else { &[] };
        hatchery(&self.operator.served(), &[&["pull", "."][..], named, args].concat()).await
    }

    async fn pull_by_name(&self, name: &str, more: &[&str]) -> Result<Output> {
        let reference = self.registry.reference(name);
        self.pull(&[&[reference.as_str()][..], more].concat()).await
    }

    /// What a pull that must fail says.
    async fn refusal(&self, args: &[&str]) -> Result<String> {
        refusal(self.pull(args).await?)
    }

    /// A file of the operator's.
    fn pulled(&self, name: &str) -> Result<Vec<u8>> {
        fs::read(self.operator.file(name)).with_context(|| name.to_owned())
    }

    fn change_lock(&self, from: &str, to: &str) -> Result<()> {
        let lock = String::from_utf8(self.pulled("hatchery.lock")?)?;
        ensure!(lock.contains(from), "{from} is not in {lock}");
        self.operator.write("hatchery.lock", lock.replace(from, to))
    }

    /// Makes a key of the author's, in `minisign.key`, and gives the public one.
    fn key(&self) -> Result<String> {
        let pair = KeyPair::generate_unencrypted_keypair()?;
        self.author.write("minisign.key", pair.sk.to_box(None)?.into_string())?;
        Ok(pair.pk.to_base64())
    }
}

fn content(output: Output) -> Result<String> {
    ensure!(output.success, "{}", output.stderr);
    Ok(output.stdout)
}

fn refusal(output: Output) -> Result<String> {
    ensure!(!output.success, "it must fail: {}", output.stdout);
    Ok(output.stderr)
}

fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

const NO_DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

#[tokio::test]
async fn a_pushed_component_comes_back_byte_for_byte_by_tag_and_by_digest() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let pushed = stage.push("team/swap:1.0", &[]).await?;
    contains(
        &content(stage.pull_by_name("team/swap:1.0", &[]).await?)?,
        &["swap added", text_at(&pushed, "/manifest")],
    );
    assert_eq!(stage.pulled("swap.wasm")?, swap(Older)?);
    let output = stage.pull(&[text_at(&pushed, "/pinned"), "--name", "again", "--json"]).await?;
    let line = output.json()?;
    assert_eq!(stage.pulled("again.wasm")?, swap(Older)?);
    for (key, expected) in [("/name", "again"), ("/change", "added"), ("/reference", text_at(&pushed, "/pinned"))] {
        assert_eq!(text_at(&line, key), expected, "{line}");
    }
    assert_eq!((&line["manifest"], &line["digest"]), (&pushed["manifest"], &pushed["digest"]));
    assert_eq!(stage.push("team/swap:1.0", &[]).await?["manifest"], pushed["manifest"], "one file, one digest");
    Ok(())
}

#[tokio::test]
async fn a_pushed_component_looks_as_other_tools_expect() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    stage.key()?;
    stage.push("swap:1", &["--sign-with", "minisign.key"]).await?;
    let manifest = stage.registry.manifest("swap", "1").await?;
    assert_eq!(text_at(&manifest, "/mediaType"), "application/vnd.oci.image.manifest.v1+json");
    assert_eq!(text_at(&manifest, "/config/mediaType"), "application/vnd.wasm.config.v0+json");
    assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(1), "{manifest}");
    assert_eq!(text_at(&manifest, "/layers/0/mediaType"), "application/wasm");
    let config: Value = serde_json::from_slice(&fs::read(stage.registry.blob(text_at(&manifest, "/config/digest"))?)?)?;
    assert_eq!((text_at(&config, "/architecture"), text_at(&config, "/os")), ("wasm", "wasip2"));
    contains(&config["component"]["exports"].to_string(), &["hatchery:agent/guest-agents@"]);
    Ok(())
}

#[tokio::test]
async fn a_pulled_component_is_served() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let host = Host::serve(&stage.operator).await?;
    stage.push("swap:1", &[]).await?;
    content(stage.pull_by_name("swap:1", &[]).await?)?;
    host.until_app("swap").await?;
    Ok(())
}

#[tokio::test]
async fn a_registry_with_passwords_wants_the_right_one() -> Result<()> {
    let Some(stage) = Stage::around(Registry::start_with_password().await?)? else { return Ok(()) };
    let reference = stage.registry.reference("swap:1");
    let push = async |variables: &[(&str, &str)]| {
        hatchery_with(&stage.author.served(), &["push", "swap.wasm", &reference], variables).await
    };
    let login = format!("log in with `docker login {}`", stage.registry.address);
    let address = stage.registry.address.as_str();
    let named = format!("or set HATCHERY_REGISTRY={address}, HATCHERY_REGISTRY_USER and HATCHERY_REGISTRY_PASSWORD");
    let stranger = refusal(push(&[]).await?)?;
    contains(&stranger, &["denies anonymous users access to", &reference, &login, &named]);
    let registry = ("HATCHERY_REGISTRY", address);
    let wrong = [registry, ("HATCHERY_REGISTRY_USER", REGISTRY_USER), ("HATCHERY_REGISTRY_PASSWORD", "guess")];
    contains(&refusal(push(&wrong).await?)?, &["denies `ada` access to"]);
    contains(&stage.refusal(&[&reference]).await?, &["denies anonymous users access to", &login]);
    let right =
        [registry, ("HATCHERY_REGISTRY_USER", REGISTRY_USER), ("HATCHERY_REGISTRY_PASSWORD", REGISTRY_PASSWORD)];
    let for_any = refusal(push(&right[1..]).await?)?;
    contains(
        &for_any,
        &["HATCHERY_REGISTRY is not set, but HATCHERY_REGISTRY_PASSWORD is", "set HATCHERY_REGISTRY to its"],
    );
    let elsewhere = [("HATCHERY_REGISTRY", "registry.example"), right[1], right[2]];
    contains(&refusal(push(&elsewhere).await?)?, &["denies anonymous users access to"]);
    content(push(&right).await?)?;

    // The base64 of the user, a colon and the password.
    let docker = json!({"auths": {&stage.registry.address: {"auth": "YWRhOm9wZW4gc2VzYW1l"}}});
    stage.author.write("docker/config.json", docker.to_string())?;
    let docker = stage.author.file("docker");
    let docker = [("DOCKER_CONFIG", docker.to_str().context("UTF-8")?)];
    content(hatchery_with(&stage.operator.served(), &["pull", ".", &reference], &docker).await?)?;
    assert_eq!(stage.pulled("swap.wasm")?, swap(Older)?);
    Ok(())
}

#[cfg(unix)]
#[tokio::test]
async fn a_credential_helper_of_docker_is_asked_for_the_password() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let Some(stage) = Stage::around(Registry::start_with_password().await?)? else { return Ok(()) };
    let address = &stage.registry.address;
    let helper = format!(
        "#!/bin/sh\nread asked\n[ \"$1 $asked\" = 'get {address}' ] || {{ echo 'credentials not found'; exit 1; }}\n\
         echo '{{\"ServerURL\": \"{address}\", \"Username\": \"{REGISTRY_USER}\", \"Secret\": \"{REGISTRY_PASSWORD}\"}}'\n"
    );
    stage.author.write("bin/docker-credential-vault", helper)?;
    fs::set_permissions(stage.author.file("bin/docker-credential-vault"), fs::Permissions::from_mode(0o755))?;
    let path = format!("{}:{}", stage.author.file("bin").display(), std::env::var("PATH")?);
    let docker = stage.author.file("docker");
    let push = async |config: Value| {
        stage.author.write("docker/config.json", config.to_string())?;
        let variables = [("DOCKER_CONFIG", docker.to_str().context("UTF-8")?), ("PATH", &path)];
        let reference = stage.registry.reference("swap:1");
        hatchery_with(&stage.author.served(), &["push", "swap.wasm", &reference], &variables).await
    };
    let elsewhere = refusal(push(json!({"credHelpers": {"elsewhere.example": "vault"}})).await?)?;
    contains(&elsewhere, &["denies anonymous users access to"]);
    let broken = refusal(push(json!({"credHelpers": {address: "broken"}})).await?)?;
    contains(&broken, &["docker-credential-broken failed to provide the login for", "No such file"]);
    for config in [json!({"credHelpers": {address: "vault"}}), json!({"credsStore": "vault"})] {
        content(push(config).await?)?;
    }
    Ok(())
}

#[tokio::test]
async fn what_a_registry_does_not_have_is_named() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let reference = stage.registry.reference("nothing:1");
    contains(
        &stage.refusal(&[&reference]).await?,
        &[&format!("the registry has no {reference}; check its name and tag")],
    );
    assert!(!stage.operator.file("hatchery.lock").exists());
    Ok(())
}

#[tokio::test]
async fn a_registry_that_does_not_answer_is_named() -> Result<()> {
    let folder = Folder::empty()?;
    // Nobody listens on a port that a listener has just left.
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let output = hatchery(&folder.served(), &["pull", ".", &format!("{address}/swap:1")]).await?;
    contains(&refusal(output)?, &[&format!("the registry {address} cannot be reached")]);
    Ok(())
}

#[tokio::test]
async fn a_folder_is_restored_as_it_is_locked_until_an_update_is_asked_for() -> Result<()> {
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
    let (locked, asked) = (stage.registry.reference("swap:1"), stage.registry.reference("swap:2"));
    contains(
        &stage.refusal(&[&asked, "--locked"]).await?,
        &[&format!("component `swap` is locked to {locked}, not {asked}")],
    );
    contains(
        &stage.refusal(&[&asked, "--locked", "--name", "other"]).await?,
        &["hatchery.lock: component `other` is not locked there; pull it without --locked"],
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
        let said = stage.refusal(&[]).await?;
        contains(
            &said,
            &[&format!("expected {NO_DIGEST}, found {digest}; accept the current one of the registry with --update")],
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
    let said = refusal(output)?;
    contains(
        &said,
        &["swap.wasm: expected ", text_at(&pushed, "/digest"), ", found sha256:", "delete the file and pull again"],
    );
    let json = stage.pull(&["--json"]).await?;
    ensure!(!json.success);
    contains(&json.stdout, &["{\"error\":", "swap.wasm: expected sha256:"]);
    content(stage.pull(&["--update"]).await?)?;
    assert_eq!(stage.pulled("swap.wasm")?, swap(Older)?);
    Ok(())
}

#[tokio::test]
async fn other_bytes_than_the_manifest_says_are_refused() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let pushed = stage.push("swap:1", &[]).await?;
    fs::write(stage.registry.blob(text_at(&pushed, "/digest"))?, swap(Newer)?)?;
    let said = stage.refusal(&[&stage.registry.reference("swap:1")]).await?;
    contains(
        &said,
        &[
            &format!("expected {}, found sha256:", text_at(&pushed, "/digest")),
            "the registry or a proxy has sent other bytes than requested",
        ],
    );
    assert!(!stage.operator.file("swap.wasm").exists());
    Ok(())
}

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
    let required = "and signatures are required; have it signed with `hatchery push --sign-with`";
    for (tag, problem) in [
        ("swap:unsigned", "is not signed".to_owned()),
        ("swap:stranger", format!("is signed by the key {}, which is not trusted", text_at(&stranger, "/signer"))),
    ] {
        let reference = stage.registry.reference(tag);
        contains(&stage.refusal(&[&reference]).await?, &[&format!("{reference} {problem}, {required}")]);
        assert!(!stage.operator.file("swap.wasm").exists());
    }
    let said = content(stage.pull_by_name("swap:signed", &[]).await?)?;
    contains(&said, &["swap added", &format!("signed by {signer}")]);
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
    let reason = host.until_refused("swap.wasm").await?;
    contains(&reason, &["swap.wasm is not signed, and signatures are required"]);
    stage.author.write("swap.wasm", swap(Newer)?)?;
    stage.push("swap:1", &["--sign-with", "minisign.key"]).await?;
    content(stage.pull_by_name("swap:1", &["--update"]).await?)?;
    host.until_app("swap").await?;
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
    contains(&host.until_refused("vault.wasm").await?, &[other_name]);
    host.until_app("swap").await?;
    host.until_logged("decision=\"refused\"").await?;
    drop(host);

    // The operator may say otherwise.
    stage.operator.remove("swap.wasm")?;
    stage.operator.write("hatchery.yaml", format!("{config}components: {{vault: {{signed_as: swap}}}}\n"))?;
    Host::serve(&stage.operator).await?.until_app("swap").await?;

    // What another tag means now is not what was signed.
    let manifest = stage.registry.manifest("swap", "1.0").await?;
    for (tag, is_fine) in [("2.0", false), ("stable", true)] {
        stage.registry.put_manifest("swap", tag, &manifest).await?;
        let output = stage.pull_by_name(&format!("swap:{tag}"), &["--update"]).await?;
        if is_fine {
            contains(&content(output)?, &["signed by", text_at(&signed, "/signer")]);
        } else {
            let asked = stage.registry.reference("swap:2.0");
            contains(
                &refusal(output)?,
                &[&format!("{asked} is signed as version 1.0, not as 2.0, and signatures are required")],
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn one_can_go_back_to_what_was_signed_and_to_nothing_else() -> Result<()> {
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
        host.until(&format!("{tag} serves"), serves).await?;
    }
    let rollback =
        async || hatchery(&stage.operator.served(), &["rollback", "swap", "--config", "hatchery.yaml"]).await;
    let newer_signature = stage.pulled("swap.wasm.minisig")?;
    content(rollback().await?)?;
    assert_eq!(stage.pulled("swap.wasm")?, swap(Older)?);
    assert_ne!(stage.pulled("swap.wasm.minisig")?, newer_signature);
    let older = |components: &Value| text_at(components, "/files/0/state") == "loaded" && has_app(components, "swap");
    host.until("the older one serves", older).await?;
    drop(host);

    // Write access to the kept revisions does not come with the key.
    stage.operator.write("swap.wasm", swap(Newer)?)?;
    let kept = stage.operator.file(".hatchery/revisions/swap");
    let signatures = fs::read_dir(&kept)?.filter_map(|entry| Some(entry.ok()?.path()));
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
    host.until_app("swap").await?;
    stage.operator.remove("swap.wasm.minisig")?;
    contains(&host.until_refused("swap.wasm").await?, &["swap.wasm is not signed, and signatures are required"]);
    drop(host);

    // Its code is in the cache now.
    let host = Host::serve(&stage.operator).await?;
    contains(&host.until_refused("swap.wasm").await?, &["swap.wasm is not signed, and signatures are required"]);
    assert!(host.apps().await?.is_empty());
    stage.operator.write("swap.wasm.minisig", signature)?;
    host.until_app("swap").await?;
    Ok(())
}

#[tokio::test]
async fn flags_say_whom_to_trust_and_what_happens_to_the_others() -> Result<()> {
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
    contains(&refusal(output)?, &["signatures are required, but no key is trusted"]);
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

    // Whoever changes the file and the lock still has no key.
    stage.operator.write("swap.wasm.minisig", &signature)?;
    let newer = Folder::empty()?;
    newer.write("swap.wasm", swap(Newer)?)?;
    let elsewhere =
        hatchery(&newer.served(), &["push", "swap.wasm", &stage.registry.reference("newer:1"), "--json"]).await?;
    stage.operator.write("swap.wasm", swap(Newer)?)?;
    stage.change_lock(text_at(&pushed, "/digest"), text_at(&elsewhere.json()?, "/digest"))?;
    let expected =
        format!("swap.wasm: expected what the key {signer} has signed, found other bytes or a forged signature");
    contains(&stage.refusal(&trust).await?, &[&expected]);
    Ok(())
}

#[tokio::test]
async fn an_update_warns_when_the_signer_is_gone() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let key = stage.key()?;
    let signed = stage.push("swap:1", &["--sign-with", "minisign.key"]).await?;
    content(stage.pull_by_name("swap:1", &["--trust", &key]).await?)?;
    stage.push("swap:1", &[]).await?;
    let updated = stage.pull(&["--update", "--trust", &key]).await?;
    let until_now = format!("was signed by the key {} until now", text_at(&signed, "/signer"));
    contains(&updated.stderr, &["is not signed", &until_now]);
    contains(&content(updated)?, &["swap updated"]);
    assert!(!stage.operator.file("swap.wasm.minisig").exists());
    Ok(())
}

#[tokio::test]
async fn a_large_component_travels_whole() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    // A custom section with a name of three letters and, together with it, 2^23 bytes: more than goes in one request.
    let mut large = swap(Older)?;
    large.extend([&[0, 0x80, 0x80, 0x80, 0x04, 3][..], b"big"].concat());
    large.resize(large.len() + (1 << 23) - 4, 0xa5);
    stage.author.write("swap.wasm", &large)?;
    stage.push("large:1", &[]).await?;
    let pulled = stage.pull_by_name("large:1", &[]).await?;
    contains(
        &pulled.stderr,
        &[&format!("pulling {} ({} KiB)", stage.registry.reference("large:1"), large.len().div_ceil(1024))],
    );
    content(pulled)?;
    assert!(stage.pulled("large.wasm")? == large, "other bytes came back");
    Ok(())
}

#[tokio::test]
async fn what_is_too_large_neither_goes_nor_comes() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    fs::File::create(stage.author.file("large.wasm"))?.set_len((256 << 20) + 1)?;
    let reference = stage.registry.reference("large:1");
    let output = hatchery(&stage.author.served(), &["push", "large.wasm", &reference]).await?;
    let limit = "has 268435457 bytes, but a component can have at most 268435456";
    contains(&refusal(output)?, &["large.wasm", limit]);
    stage.push("large:0", &[]).await?;
    let mut manifest = stage.registry.manifest("large", "0").await?;
    manifest["layers"][0]["size"] = json!((256 << 20) + 1);
    stage.registry.put_manifest("large", "1", &manifest).await?;
    contains(&stage.refusal(&[&reference]).await?, &[&format!("{reference} {limit}")]);
    manifest["layers"][0]["size"] = json!(9);
    stage.registry.put_manifest("large", "2", &manifest).await?;
    contains(&stage.refusal(&[&stage.registry.reference("large:2")]).await?, &["found more than 9 bytes"]);
    Ok(())
}

#[tokio::test]
async fn what_is_no_component_neither_goes_nor_comes() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    stage.author.write("core.wasm", b"\0asm\x01\0\0\0")?;
    let reference = stage.registry.reference("core:1");
    let output = hatchery(&stage.author.served(), &["push", "core.wasm", &reference]).await?;
    contains(
        &refusal(output)?,
        &["core.wasm is not a component: it is a core module; create a component with `hatchery build`"],
    );
    stage.push("core:0", &[]).await?;
    let mut manifest = stage.registry.manifest("core", "0").await?;
    manifest["layers"][0] = manifest["config"].clone();
    stage.registry.put_manifest("core", "2", &manifest).await?;
    contains(
        &stage.refusal(&[&stage.registry.reference("core:2")]).await?,
        &["does not have exactly one layer of type application/wasm"],
    );
    manifest["layers"][0]["mediaType"] = json!("application/wasm");
    stage.registry.put_manifest("core", "1", &manifest).await?;
    contains(
        &stage.refusal(&[&reference]).await?,
        &[&format!("{reference} is not a component: it is not WebAssembly")],
    );
    assert!(!stage.operator.file("core.wasm").exists());
    Ok(())
}

#[tokio::test]
async fn plain_http_goes_to_other_machines_only_when_asked_for() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    stage.push("swap:1", &[]).await?;
    // This address reaches the same registry, and is not one of those that are known to stay on this machine.
    let port = stage.registry.address.rsplit_once(':').context("a port")?.1;
    let reference = format!("0.0.0.0:{port}/swap:1");
    let pull = async |args: &[&str]| {
        let args = [&["pull", ".", &reference][..], args].concat();
        hatchery_with(&stage.operator.served(), &args, &[("NO_PROXY", "*")]).await
    };
    let said = refusal(pull(&[]).await?)?;
    contains(&said, &[&format!("the registry 0.0.0.0:{port} cannot be reached"), "add --plain-http"]);
    content(pull(&["--plain-http"]).await?)?;
    Ok(())
}

#[tokio::test]
async fn a_name_is_not_handed_to_another_component_unasked() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    stage.push("swap:1", &[]).await?;
    stage.push("stranger/swap:1", &[]).await?;
    stage.operator.write("swap.wasm", component("misbehaver")?)?;
    let said = refusal(stage.pull_by_name("swap:1", &[]).await?)?;
    contains(&said, &["swap.wasm: exists, and is not from a registry", "--name", "--update"]);
    content(stage.pull_by_name("swap:1", &["--update"]).await?)?;
    let said = refusal(stage.pull_by_name("stranger/swap:1", &[]).await?)?;
    let (locked, asked) = (stage.registry.reference("swap:1"), stage.registry.reference("stranger/swap:1"));
    contains(&said, &[&format!("component `swap` is locked to {locked}, not {asked}; replace it with --update")]);
    contains(
        &refusal(stage.pull_by_name("swap:1", &["--name", "../x"]).await?)?,
        &["`../x` is not a valid component name"],
    );
    Ok(())
}

#[tokio::test]
async fn a_folder_without_a_lock_has_nothing_to_restore() -> Result<()> {
    let folder = Folder::empty()?;
    let said = refusal(hatchery(&folder.served(), &["pull", "."]).await?)?;
    contains(&said, &["hatchery.lock: nothing has been pulled into this folder; name what to pull"]);
    folder.write("hatchery.lock", "version: 1\ncomponents:\n  x: {reference: x}\n")?;
    contains(
        &refusal(hatchery(&folder.served(), &["pull", "."]).await?)?,
        &["hatchery.lock:3:", "`x` is not a reference"],
    );
    Ok(())
}

#[tokio::test]
async fn one_pushes_a_file_that_is_there_to_a_tag() -> Result<()> {
    let folder = Folder::empty()?;
    let push = async |reference: &str| refusal(hatchery(&folder.served(), &["push", "x.wasm", reference]).await?);
    contains(&push("localhost:1/x:1").await?, &["x.wasm: cannot be read: "]);
    contains(
        &push(&format!("localhost:1/x@{NO_DIGEST}")).await?,
        &["a push needs a tag, because the digest is computed from the file"],
    );
    Ok(())
}
