//! Where the things are that tests need.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use tokio::process::Command;

/// The root of the repository.
pub fn repository() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// The `hatchery` command: `HATCHERY_BIN`, or else the one that cargo built beside this test.
///
/// # Errors
/// When it has not been built.
pub fn hatchery() -> anyhow::Result<PathBuf> {
    let path = match std::env::var_os("HATCHERY_BIN") {
        Some(path) => PathBuf::from(path),
        None => profile_folder()?.join("hatchery"),
    };
    built(path)
}

/// The `hatchery` command, ready for its arguments. Compiled code is kept for all tests, since most of a host's start would be the
/// compilation of components that another test's host has compiled before. The user of this machine is left out of it: no folder is
/// trusted, no model has a key, and no registry knows who one is.
///
/// # Errors
/// When it has not been built.
pub fn command() -> anyhow::Result<Command> {
    let mut command = Command::new(hatchery()?);
    command.env("XDG_CACHE_HOME", scratch("cache")?).kill_on_drop(true);
    command.env("XDG_CONFIG_HOME", scratch("config")?);
    command.env("DOCKER_CONFIG", scratch("no-docker")?);
    for variable in ["GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "HATCHERY_LOG"] {
        command.env_remove(variable);
    }
    for variable in ["HATCHERY_REGISTRY", "HATCHERY_REGISTRY_USER", "HATCHERY_REGISTRY_PASSWORD"] {
        command.env_remove(variable);
    }
    command.env_remove("HATCHERY_SIGNING_PASSWORD");
    Ok(command)
}

/// The bytes of a built component: from the folder `HATCHERY_COMPONENTS`, or else from the target directory of this test.
///
/// # Errors
/// When it has not been built.
pub fn component(name: &str) -> anyhow::Result<Vec<u8>> {
    let folder = match std::env::var_os("HATCHERY_COMPONENTS") {
        Some(folder) => PathBuf::from(folder),
        None => profile_folder()?.with_file_name("wasm32-wasip2").join("guest"),
    };
    let path = built(folder.join(format!("{name}.wasm")))?;
    std::fs::read(&path).with_context(|| path.display().to_string())
}

/// The component `puppet` with a way to attack by what it describes; see its source for their names.
///
/// # Errors
/// When it has not been built.
pub fn puppet(attack: &str) -> anyhow::Result<Vec<u8>> {
    const BUILT: &[u8] = b"puppet:harmless-----------------";
    let attack = format!("puppet:{attack:-<width$}", width = BUILT.len() - "puppet:".len());
    ensure!(attack.len() == BUILT.len(), "{attack} is too long");
    replace(component("puppet")?, BUILT, attack.as_bytes()).context("puppet.wasm")
}

/// The component `swap` saying one of two texts, as if its author had changed it.
///
/// # Errors
/// When it has not been built.
pub fn swap(text: Swap) -> anyhow::Result<Vec<u8>> {
    replace(component("swap")?, b"unset", text.text().as_bytes()).context("swap.wasm")
}

/// Puts a text into the only place where another one of the same length is.
fn replace(mut bytes: Vec<u8>, old: &[u8], new: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut places = bytes.windows(old.len()).enumerate().filter(|(_, window)| *window == old);
    let place = places.next().map(|(place, _)| place).context("it does not hold the text to replace")?;
    ensure!(places.next().is_none(), "it holds the text to replace more than once");
    for (byte, new) in bytes.iter_mut().skip(place).zip(new) {
        *byte = *new;
    }
    Ok(bytes)
}

/// What [`swap`] says; both are as long as what it was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    /// `older`
    Older,
    /// `newer`
    Newer,
}

impl Swap {
    /// The text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Older => "older",
            Self::Newer => "newer",
        }
    }

    /// All that an agent of this text says in a turn.
    pub fn words(self) -> Vec<String> {
        (1..=3).map(|number| format!("{} {number}", self.text())).collect()
    }
}

/// A folder in cargo's target directory for what later runs of the tests can use again.
///
/// # Errors
/// When it cannot be made.
pub fn scratch(name: &str) -> anyhow::Result<PathBuf> {
    let folder = profile_folder()?.with_file_name("tmp").join(name);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// `target/debug`: this test runs from `target/debug/deps`.
fn profile_folder() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.ancestors().nth(2).with_context(|| own.display().to_string())?;
    Ok(folder.to_owned())
}

fn built(path: PathBuf) -> anyhow::Result<PathBuf> {
    if !path.is_file() {
        bail!("{} has not been built; `cargo xtask test` builds all that tests need", path.display());
    }
    Ok(path)
}
