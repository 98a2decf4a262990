//! A real OCI registry: Debian's `docker-registry` on a free port, with its data in a temporary folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

use crate::host::TIMEOUT;
use crate::paths;

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
        let program = match program().await {
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

/// Returns the program: the installed one, or else that of Debian's package, which is unpacked into the target folder.
/// Installing the package would start a service.
async fn program() -> anyhow::Result<PathBuf> {
    static PROGRAM: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
    let program = PROGRAM.get_or_init(async || find().await.map_err(|error| format!("{error:#}"))).await;
    program.clone().map_err(anyhow::Error::msg)
}

async fn find() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed =
        std::env::split_paths(&path).map(|folder| folder.join("docker-registry")).find(|path| path.is_file());
    if let Some(program) = installed {
        return Ok(program);
    }
    let folder = paths::cache_folder("docker-registry")?;
    let program = folder.join("unpacked/usr/bin/docker-registry");
    if !program.is_file() {
        unpack(&folder).await?;
    }
    Ok(program)
}

async fn unpack(folder: &Path) -> anyhow::Result<()> {
    let staging = tempfile::tempdir_in(folder)?;
    if run(staging.path(), &["apt-get", "download", "docker-registry"]).await.is_err() {
        // The package lists may be missing or outdated; only root can update them.
        run(staging.path(), &["apt-get", "update"]).await?;
        run(staging.path(), &["apt-get", "download", "docker-registry"]).await?;
    }
    let mut files = fs::read_dir(staging.path())?.filter_map(|entry| Some(entry.ok()?.path()));
    let package = files.find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let package = package.context("apt-get has not downloaded a package")?;
    let unpacked = staging.path().join("unpacked");
    run(staging.path(), &["dpkg-deb", "--extract", &package.to_string_lossy(), &unpacked.to_string_lossy()]).await?;
    // An interrupted run may have left it.
    let _ = fs::remove_dir_all(folder.join("unpacked"));
    fs::rename(&unpacked, folder.join("unpacked")).context("another run has unpacked it")
}

async fn run(folder: &Path, command: &[&str]) -> anyhow::Result<()> {
    let (program, args) = command.split_first().context("a command")?;
    let mut started = Command::new(program);
    started.args(args).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(TIMEOUT, started.output()).await;
    let output = output.with_context(|| format!("{command:?} takes longer than {TIMEOUT:?}"))?;
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
