//! Paths of the repository, the `hatchery` command and built components.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use tokio::process::Command;

/// Returns the root of the repository.
pub fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// Returns the path of the `hatchery` command: `HATCHERY_BIN`, or else the one that cargo built beside this test.
///
/// # Errors
/// If it has not been built.
pub fn hatchery() -> anyhow::Result<PathBuf> {
    let path = match std::env::var_os("HATCHERY_BIN") {
        Some(path) => PathBuf::from(path),
        None => profile_folder()?.join("hatchery"),
    };
    check_built(path)
}

/// The variables without which no provider of models can be used.
const MODEL_VARIABLES: [&str; 13] = [
    "ANTHROPIC_API_KEY",
    "APIGEE_PROXY_URL",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "LLAMACPP_BASE_URL",
    "OLLAMA_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENROUTER_API_KEY",
    "VLLM_BASE_URL",
];

/// Creates a `hatchery` command without arguments. All tests share a code cache, so that each component is compiled
/// once. The user's own environment is hidden: no folder is trusted, and there are no keys and no credentials.
///
/// # Errors
/// If it has not been built.
pub fn command() -> anyhow::Result<Command> {
    let mut command = Command::new(hatchery()?);
    command.env("XDG_CACHE_HOME", cache_folder("cache")?).kill_on_drop(true);
    command.env("XDG_CONFIG_HOME", cache_folder("config")?);
    command.env("DOCKER_CONFIG", cache_folder("no-docker")?);
    for variable in MODEL_VARIABLES.into_iter().chain(["HATCHERY_LOG"]) {
        command.env_remove(variable);
    }
    for variable in ["HATCHERY_REGISTRY", "HATCHERY_REGISTRY_USER", "HATCHERY_REGISTRY_PASSWORD"] {
        command.env_remove(variable);
    }
    command.env_remove("HATCHERY_SIGNING_PASSWORD");
    Ok(command)
}

/// Returns a built component: from the folder `HATCHERY_COMPONENTS`, or else from the target directory of this test.
///
/// # Errors
/// If it has not been built.
pub fn component(name: &str) -> anyhow::Result<Vec<u8>> {
    let folder = match std::env::var_os("HATCHERY_COMPONENTS") {
        Some(folder) => PathBuf::from(folder),
        None => profile_folder()?.with_file_name("wasm32-wasip2").join("guest"),
    };
    let path = check_built(folder.join(format!("{name}.wasm")))?;
    std::fs::read(&path).with_context(|| path.display().to_string())
}

/// Returns the component `puppet` with one of the attacks that are listed in its source.
///
/// # Errors
/// If it has not been built.
pub fn puppet(attack: &str) -> anyhow::Result<Vec<u8>> {
    const BUILT: &[u8] = b"puppet:harmless-----------------";
    let attack = format!("puppet:{attack:-<width$}", width = BUILT.len() - "puppet:".len());
    ensure!(attack.len() == BUILT.len(), "{attack} is too long");
    replace(component("puppet")?, BUILT, attack.as_bytes()).context("puppet.wasm")
}

/// Returns the component `swap` with one of its two texts, as if its author had changed it.
///
/// # Errors
/// If it has not been built.
pub fn swap(text: Swap) -> anyhow::Result<Vec<u8>> {
    replace(component("swap")?, b"unset", text.text().as_bytes()).context("swap.wasm")
}

/// Replaces the only occurrence of a string by another one of the same length.
fn replace(mut bytes: Vec<u8>, old: &[u8], new: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut positions = bytes.windows(old.len()).enumerate().filter(|(_, window)| *window == old);
    let position = positions.next().map(|(position, _)| position).context("it does not contain the text to replace")?;
    ensure!(positions.next().is_none(), "it contains the text to replace more than once");
    for (byte, new) in bytes.iter_mut().skip(position).zip(new) {
        *byte = *new;
    }
    Ok(bytes)
}

/// The text of [`swap`]. Both are as long as the one that it was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    /// `older`
    Older,
    /// `newer`
    Newer,
}

impl Swap {
    /// Returns the text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Older => "older",
            Self::Newer => "newer",
        }
    }

    /// Returns all texts of a run of this version.
    pub fn texts(self) -> Vec<String> {
        (1..=3).map(|number| format!("{} {number}", self.text())).collect()
    }
}

/// Creates a folder in cargo's target directory that later runs of the tests reuse.
///
/// # Errors
/// If it cannot be created.
pub fn cache_folder(name: &str) -> anyhow::Result<PathBuf> {
    let folder = profile_folder()?.with_file_name("tmp").join(name);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Returns `target/debug`; this test runs from `target/debug/deps`.
fn profile_folder() -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let folder = test.ancestors().nth(2).with_context(|| test.display().to_string())?;
    Ok(folder.to_owned())
}

fn check_built(path: PathBuf) -> anyhow::Result<PathBuf> {
    if !path.is_file() {
        bail!("{} has not been built; `cargo xtask test` builds everything that tests need", path.display());
    }
    Ok(path)
}
