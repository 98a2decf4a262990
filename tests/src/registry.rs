//! A real OCI registry: Debian's `docker-registry` on a free port, with its data in a temporary folder.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::debian;
use crate::host::TIMEOUT;

/// The user of a registry with a password.
pub const REGISTRY_USER: &str = "ada";
/// Its password.
pub const REGISTRY_PASSWORD: &str = "open sesame";
/// The bcrypt hash of [`REGISTRY_PASSWORD`].
const REGISTRY_HASH: &str = "$2b$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW";

/// A running registry. Dropping it kills it.
pub struct Registry {
    /// Host and port.
    pub address: String,
    root: TempDir,
    _child: Child,
}

impl Registry {
    /// Starts a registry without passwords. `None`, with a message on stderr, if `docker-registry` cannot be installed
    /// here.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        Self::start_with("").await
    }

    /// Starts a registry that requires [`REGISTRY_USER`] and [`REGISTRY_PASSWORD`].
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start_with_password() -> anyhow::Result<Option<Self>> {
        Self::start_with("auth: { htpasswd: { realm: tests, path: ROOT/htpasswd } }\n").await
    }

    async fn start_with(settings: &str) -> anyhow::Result<Option<Self>> {
        let program = match debian::program("docker-registry", "usr/bin/docker-registry").await {
            Ok(program) => program,
            Err(reason) => {
                crate::skip("docker-registry", &format!("{reason:#}"));
                return Ok(None);
            }
        };
        let root = tempfile::tempdir()?;
        fs::write(root.path().join("htpasswd"), format!("{REGISTRY_USER}:{REGISTRY_HASH}\n"))?;
        let config = format!(
            "version: 0.1\nlog: {{ level: info, accesslog: {{ disabled: true }} }}\nstorage: {{ filesystem: {{ rootdirectory: ROOT/data }} }}\n\
             http: {{ addr: '127.0.0.1:0', secret: tests }}\n{settings}"
        );
        let file = root.path().join("config.yml");
        fs::write(&file, config.replace("ROOT", &root.path().to_string_lossy()))?;
        let mut command = Command::new(program);
        command.arg("serve").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let mut log = BufReader::new(child.stderr.take().context("stderr is a pipe")?).lines();
        let address = tokio::time::timeout(TIMEOUT, async {
            while let Some(line) = log.next_line().await? {
                let listening = line.split_once("msg=\"listening on ").and_then(|(_, rest)| rest.split_once('"'));
                if let Some((address, _)) = listening {
                    return anyhow::Ok(address.to_owned());
                }
            }
            bail!("docker-registry ended before it listened")
        });
        let address = address.await??;
        // A full pipe would block it.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        Ok(Some(Self { address, root, _child: child }))
    }

    /// Returns the reference `registry/name` for a name such as `dice:1.0`.
    pub fn reference(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Returns the manifest of a tag.
    ///
    /// # Errors
    /// If there is none.
    pub async fn manifest(&self, repository: &str, tag: &str) -> anyhow::Result<Value> {
        let request = crate::host::client()?.get(self.manifest_url(repository, tag));
        let response = request.header("Accept", MANIFEST).send().await?.error_for_status()?;
        Ok(serde_json::from_slice(&response.bytes().await?)?)
    }

    /// Uploads a manifest under a tag.
    ///
    /// # Errors
    /// If the registry rejects it.
    pub async fn put_manifest(&self, repository: &str, tag: &str, manifest: &Value) -> anyhow::Result<()> {
        let request = crate::host::client()?.put(self.manifest_url(repository, tag));
        let response = request.header("Content-Type", MANIFEST).body(manifest.to_string()).send().await?;
        let status = response.status();
        ensure!(status.is_success(), "{status}: {}", response.text().await?);
        Ok(())
    }

    fn manifest_url(&self, repository: &str, tag: &str) -> String {
        format!("http://{}/v2/{repository}/manifests/{tag}", self.address)
    }

    /// Returns the file in which the registry stores the blob with this digest.
    ///
    /// # Errors
    /// If `digest` is not a SHA-256 digest.
    pub fn blob(&self, digest: &str) -> anyhow::Result<PathBuf> {
        let hash = digest.strip_prefix("sha256:").context("a SHA-256")?;
        let start = hash.get(..2).context("a SHA-256")?;
        Ok(self.root.path().join("data/docker/registry/v2/blobs/sha256").join(start).join(hash).join("data"))
    }
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
