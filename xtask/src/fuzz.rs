//! `cargo xtask fuzz`: libFuzzer on the doors of `hatchery-fuzz`, on the stable toolchain and without sanitizers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::step;
use crate::workspace::Workspace;

/// Largest input, bytes: large ones are slow, and what breaks a parser is small.
const MAX_INPUT: u32 = 16 << 10;

/// Seconds after which one input counts as a hang.
const HANG: u32 = 10;

/// Memory at which one input counts as a find, MiB.
const MEMORY: u32 = 2048;

/// The folder of the corpora.
fn corpora(workspace: &Workspace) -> PathBuf {
    workspace.root.join("tests/fuzz/corpus")
}

/// The names of all targets, those that have a corpus.
pub fn targets(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let folder = corpora(workspace);
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The targets that are wanted: the one of this name, or all.
pub fn choose(all: Vec<String>, wanted: Option<&str>) -> anyhow::Result<Vec<String>> {
    let Some(wanted) = wanted else { return Ok(all) };
    if !all.iter().any(|name| name == wanted) {
        bail!("there is no target `{wanted}`; there is {}", all.join(", "));
    }
    Ok(vec![wanted.to_owned()])
}

/// Installs `cargo fuzz` if it is not there.
pub fn prepare() -> anyhow::Result<()> {
    let mut version = Command::new("cargo");
    if version.args(["fuzz", "--version"]).output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    step::succeed(Command::new("cargo").args(["install", "--locked", "cargo-fuzz"]))
}

/// Builds the doors for libFuzzer.
pub fn build(workspace: &Workspace) -> anyhow::Result<()> {
    step::succeed(cargo_fuzz(workspace, "build").args(OPTIONS).arg("door"))
}

/// Looks for finds for so long. What fails is kept in the corpus, and is an error.
pub fn run(workspace: &Workspace, target: &str, seconds: u64) -> anyhow::Result<()> {
    let folder = workspace.target.join("fuzz").join(target);
    let (found, failed) = (folder.join("found"), folder.join("failed/"));
    for folder in [&found, &failed] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let corpus = corpora(workspace).join(target);
    let mut command = cargo_fuzz(workspace, "run");
    // What only widens coverage stays in the target folder; the corpus of the repository is small.
    command.args(OPTIONS).arg("door").args([&found, &corpus]).arg("--");
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}", failed.display()));
    command.arg(format!("-max_len={MAX_INPUT}")).arg(format!("-timeout={HANG}"));
    command.arg(format!("-rss_limit_mb={MEMORY}")).env("HATCHERY_FUZZ_TARGET", target);
    let ended = step::succeed(&mut command);
    let kept = keep(&failed, &corpus)?;
    ensure!(kept.is_empty(), "{target}: kept in the corpus: {}; mend what they show", kept.join(", "));
    ended
}

/// Both without what only nightly has.
const OPTIONS: [&str; 2] = ["--sanitizer", "none"];

fn cargo_fuzz(workspace: &Workspace, verb: &str) -> Command {
    let mut command = workspace.cargo(["fuzz", verb]);
    command.current_dir(&workspace.root).arg("--fuzz-dir").arg("tests/fuzz/libfuzzer");
    command
}

/// Moves what failed to the corpus; gives the names.
fn keep(failed: &Path, corpus: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(failed)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        fs::copy(&path, corpus.join(&name)).with_context(|| path.display().to_string())?;
        fs::remove_file(&path)?;
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_corpus_and_an_unknown_one_is_named() {
        let all = targets(&Workspace::load().unwrap()).unwrap();
        assert!(all.contains(&"event".to_owned()) && all.contains(&"http".to_owned()), "{all:?}");
        assert_eq!(choose(all.clone(), Some("event")).unwrap(), ["event"]);
        assert_eq!(choose(all.clone(), None).unwrap(), all);
        let error = choose(all, Some("evnt")).unwrap_err().to_string();
        assert!(error.starts_with("there is no target `evnt`; there is agent_yaml, component, "), "{error}");
    }

    #[test]
    fn what_failed_goes_to_the_corpus() {
        let folder = std::env::temp_dir().join(format!("xtask-fuzz-{}", std::process::id()));
        let (failed, corpus) = (folder.join("failed"), folder.join("corpus"));
        fs::create_dir_all(&failed).unwrap();
        fs::create_dir_all(&corpus).unwrap();
        fs::write(failed.join("crash-1"), "x").unwrap();
        assert_eq!(keep(&failed, &corpus).unwrap(), ["crash-1"]);
        assert_eq!(fs::read_to_string(corpus.join("crash-1")).unwrap(), "x");
        assert!(keep(&failed, &corpus).unwrap().is_empty());
        fs::remove_dir_all(folder).unwrap();
    }
}
