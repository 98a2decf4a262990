//! `cargo xtask fuzz`: runs the targets of `hatchery-fuzz` under libFuzzer, on the stable toolchain and without
//! sanitizers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::step;
use crate::workspace::Workspace;

/// Maximum size of an input, in bytes: large ones are slow, and parsers break on small ones.
const MAX_INPUT: u32 = 16 << 10;

/// Seconds after which an input counts as a hang.
const TIMEOUT: u32 = 10;

/// Memory at which an input counts as a failure, in MiB.
const MEMORY_LIMIT: u32 = 2048;

/// Options of `cargo fuzz` that turn off sanitizers, which need a nightly toolchain.
const NO_SANITIZER: [&str; 2] = ["--sanitizer", "none"];

fn corpus_root(workspace: &Workspace) -> PathBuf {
    workspace.root.join("tests/fuzz/corpus")
}

/// Returns the names of all targets, which are the folders of the corpus.
pub fn targets(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let folder = corpus_root(workspace);
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Returns the target called `name`, or all if it is `None`.
pub fn select(all: Vec<String>, name: Option<&str>) -> anyhow::Result<Vec<String>> {
    let Some(name) = name else { return Ok(all) };
    if !all.iter().any(|target| target == name) {
        bail!("there is no target `{name}`; the targets are {}", all.join(", "));
    }
    Ok(vec![name.to_owned()])
}

/// Installs `cargo-fuzz` if it is missing.
pub fn install() -> anyhow::Result<()> {
    let mut version = Command::new("cargo");
    if version.args(["fuzz", "--version"]).output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    step::run_command(Command::new("cargo").args(["install", "--locked", "cargo-fuzz"]))
}

/// Builds the fuzz targets.
pub fn build(workspace: &Workspace) -> anyhow::Result<()> {
    step::run_command(cargo_fuzz(workspace, "build").args(NO_SANITIZER).arg("any_target"))
}

/// Fuzzes a target for `seconds`. Inputs that fail are added to the corpus and returned as an error.
pub fn run(workspace: &Workspace, target: &str, seconds: u64) -> anyhow::Result<()> {
    let folder = workspace.target.join("fuzz").join(target);
    let (found, failed) = (folder.join("found"), folder.join("failed/"));
    for folder in [&found, &failed] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let corpus = corpus_root(workspace).join(target);
    let mut command = cargo_fuzz(workspace, "run");
    // Inputs that only widen coverage stay in the target folder; the corpus of the repository is small.
    command.args(NO_SANITIZER).arg("any_target").args([&found, &corpus]).arg("--");
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}", failed.display()));
    command.arg(format!("-max_len={MAX_INPUT}")).arg(format!("-timeout={TIMEOUT}"));
    command.arg(format!("-rss_limit_mb={MEMORY_LIMIT}")).env("HATCHERY_FUZZ_TARGET", target);
    let result = step::run_command(&mut command);
    let added = move_to_corpus(&failed, &corpus)?;
    ensure!(added.is_empty(), "{target}: added to the corpus: {}; fix what they show", added.join(", "));
    result
}

fn cargo_fuzz(workspace: &Workspace, subcommand: &str) -> Command {
    let mut command = workspace.cargo(["fuzz", subcommand]);
    command.current_dir(&workspace.root).arg("--fuzz-dir").arg("tests/fuzz/libfuzzer");
    command
}

/// Moves failed inputs to the corpus and returns their names.
fn move_to_corpus(failed: &Path, corpus: &Path) -> anyhow::Result<Vec<String>> {
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
    fn every_target_has_a_corpus_and_an_unknown_target_is_an_error() {
        let all = targets(&Workspace::load().unwrap()).unwrap();
        assert!(all.contains(&"event".to_owned()) && all.contains(&"http".to_owned()), "{all:?}");
        assert_eq!(select(all.clone(), Some("event")).unwrap(), ["event"]);
        assert_eq!(select(all.clone(), None).unwrap(), all);
        let error = select(all, Some("evnt")).unwrap_err().to_string();
        assert!(error.starts_with("there is no target `evnt`; the targets are agent_yaml, component, "), "{error}");
    }

    #[test]
    fn failed_inputs_move_to_the_corpus() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (failed, corpus) = (folder.join("failed"), folder.join("corpus"));
        fs::create_dir_all(&failed).unwrap();
        fs::create_dir_all(&corpus).unwrap();
        fs::write(failed.join("crash-1"), "x").unwrap();
        assert_eq!(move_to_corpus(&failed, &corpus).unwrap(), ["crash-1"]);
        assert_eq!(fs::read_to_string(corpus.join("crash-1")).unwrap(), "x");
        assert!(move_to_corpus(&failed, &corpus).unwrap().is_empty());
    }
}
