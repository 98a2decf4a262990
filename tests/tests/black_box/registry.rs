//! Components over an OCI registry: pushing, pulling, size limits, and errors of the registry.

mod credentials;
mod lock_file;
mod signatures;

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

/// A registry, the folder of the author who pushes, and the folder of the operator who pulls.
struct Stage {
    registry: Registry,
    author: Folder,
    operator: Folder,
}

impl Stage {
    /// Starts a registry. The author's folder holds the component `swap`. `None` if no registry can be installed.
    async fn new() -> Result<Option<Self>> {
        Self::around(Registry::start().await?)
    }

    fn around(registry: Option<Registry>) -> Result<Option<Self>> {
        let Some(registry) = registry else { return Ok(None) };
        let stage = Self { registry, author: Folder::empty()?, operator: Folder::empty()? };
        stage.author.write("swap.wasm", swap(Older)?)?;
        Ok(Some(stage))
    }

    /// Pushes `swap.wasm`, and returns the JSON output.
    async fn push(&self, name: &str, more: &[&str]) -> Result<Value> {
        let reference = self.registry.reference(name);
        let args = [&["push", "swap.wasm", &reference, "--json"][..], more].concat();
        let output = hatchery(&self.author.served(), &args).await?;
        ensure!(output.success, "{}", output.stderr);
        output.json()
    }

    async fn pull(&self, args: &[&str]) -> Result<Output> {
        // The operator's own configuration is trusted.
        let named = ["--config", "hatchery.yaml"];
        let named: &[&str] = if self.operator.file("hatchery.yaml").exists() { &named } else { &[] };
        hatchery(&self.operator.served(), &[&["pull", "."][..], named, args].concat()).await
    }

    async fn pull_by_name(&self, name: &str, more: &[&str]) -> Result<Output> {
        let reference = self.registry.reference(name);
        self.pull(&[&[reference.as_str()][..], more].concat()).await
    }

    /// Returns the error output of a pull, which must fail.
    async fn refusal(&self, args: &[&str]) -> Result<String> {
        refusal(self.pull(args).await?)
    }

    /// Reads a file of the operator's folder.
    fn pulled(&self, name: &str) -> Result<Vec<u8>> {
        fs::read(self.operator.file(name)).with_context(|| name.to_owned())
    }

    fn change_lock(&self, from: &str, to: &str) -> Result<()> {
        let lock = String::from_utf8(self.pulled("hatchery.lock")?)?;
        ensure!(lock.contains(from), "{from} is not in {lock}");
        self.operator.write("hatchery.lock", lock.replace(from, to))
    }

    /// Generates the author's key pair. The secret key is in `minisign.key`; the public one is returned.
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
async fn a_pushed_component_is_pulled_unchanged_by_tag_and_by_digest() -> Result<()> {
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
async fn a_pushed_component_has_the_format_of_other_tools() -> Result<()> {
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
    host.wait_for_app("swap").await?;
    Ok(())
}

#[tokio::test]
async fn a_missing_artifact_of_a_registry_is_named() -> Result<()> {
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
async fn a_large_component_is_pushed_and_pulled_completely() -> Result<()> {
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
async fn a_component_above_the_size_limit_is_neither_pushed_nor_pulled() -> Result<()> {
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
async fn a_file_that_is_no_component_is_neither_pushed_nor_pulled() -> Result<()> {
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
async fn push_needs_an_existing_file_and_a_tag() -> Result<()> {
    let folder = Folder::empty()?;
    let push = async |reference: &str| refusal(hatchery(&folder.served(), &["push", "x.wasm", reference]).await?);
    contains(&push("localhost:1/x:1").await?, &["x.wasm not found; build it with `hatchery build`"]);
    folder.put("x.wasm", component("swap")?)?;
    contains(
        &push(&format!("localhost:1/x@{NO_DIGEST}")).await?,
        &["a push needs a tag, because the digest is computed from the file"],
    );
    Ok(())
}
