//! `cargo xtask dist`: a release for machines without a toolchain. Writes below `target/dist-archive`:
//!
//! - `hatchery-VERSION-TARGET.tar.gz`: the stripped command, the component of the default code executor, the license, a
//!   systemd service and the guides;
//! - the same with `.sha256` appended: its checksum, in the format of `sha256sum --check`;
//! - `image/`: the build context of a container image, for `docker build` or `podman build`.
//!
//! The archive is unpacked and tried before the command succeeds: it must serve a YAML agent whose model writes code,
//! from an empty folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use sha2::{Digest, Sha256};

use crate::components::Components;
use crate::pgo::GuidedBuild;
use crate::step::{self, Steps};
use crate::workspace::Workspace;
use crate::{TOOLCHAIN, toolchain};

/// Maximum size of the command, in bytes.
const MAX_BINARY: u64 = 65_000_000;

/// Files of the repository that are in the archive, the systemd service among them, in addition to the guides in
/// `docs`.
const DOCUMENTS: [&str; 4] = ["LICENSE", "README.md", "SECURITY.md", "hatchery.service"];

/// Builds and tries a release.
pub fn build(workspace: &Workspace) -> anyhow::Result<()> {
    let name = format!("hatchery-{}-{}", env!("CARGO_PKG_VERSION"), toolchain::host()?);
    let output = workspace.target.join("dist-archive");
    let archive = output.join(&name).with_added_extension("tar.gz");
    let samples = Components::standalone_samples(workspace)?;
    let mut steps = Steps::new(5 + GuidedBuild::STEPS);
    steps.run(TOOLCHAIN, || toolchain::prepare(workspace))?;
    let tools = Components::samples(workspace)?;
    steps.run(&format!("components: {samples}, {tools}"), || {
        samples.build(workspace)?;
        tools.build(workspace)
    })?;
    steps
        .run("load test", || step::run_command(&mut workspace.cargo(["build", "--workspace", "--example", "load"])))?;
    let load = workspace.target.join("debug/examples/load");
    let binary = GuidedBuild::new(workspace)?.run(&mut steps, &load, tools.folder())?;
    steps.run("archive, checksum and image context", || {
        check_size(&binary)?;
        stage(workspace, &binary, &output.join(&name))?;
        samples.install_sandbox(&output.join(&name))?;
        pack(&output, &name, &archive)?;
        stage_image(workspace, &binary, &output.join("image"))?;
        samples.install_sandbox(&output.join("image"))
    })?;
    steps.run("try the archive", || try_archive(&archive, &name))?;
    steps.finish();
    let size = fs::metadata(&archive)?.len() as f64 / f64::from(1 << 20);
    println!("{} ({size:.1} MiB)", archive.display());
    println!("{}", checksum_file(&archive).display());
    println!("docker build --tag hatchery {}", output.join("image").display());
    Ok(())
}

fn check_size(binary: &Path) -> anyhow::Result<()> {
    let size = fs::metadata(binary).with_context(|| format!("cannot read {}", binary.display()))?.len();
    ensure!(size <= MAX_BINARY, "{} has {size} bytes; at most {MAX_BINARY} are allowed", binary.display());
    Ok(())
}

/// Fills the folder that is packed.
fn stage(workspace: &Workspace, binary: &Path, folder: &Path) -> anyhow::Result<()> {
    recreate(folder)?;
    copy(binary, &folder.join("hatchery"))?;
    for document in documents(&workspace.root)? {
        copy(&workspace.root.join(&document), &folder.join(&document))?;
    }
    stage_shell_files(&folder.join("hatchery"), folder)
}

/// Returns the paths of the documents of the archive.
fn documents(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths: Vec<_> = DOCUMENTS.iter().map(PathBuf::from).collect();
    for entry in fs::read_dir(root.join("docs"))? {
        let name = PathBuf::from(entry?.file_name());
        if name.extension().is_some_and(|extension| extension == "md") {
            paths.push(Path::new("docs").join(name));
        }
    }
    Ok(paths)
}

/// Writes the completion scripts and the man pages, which the command generates.
fn stage_shell_files(hatchery: &Path, folder: &Path) -> anyhow::Result<()> {
    let completions = folder.join("completions");
    fs::create_dir_all(&completions)?;
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(hatchery).args(["completions", shell]).output()?;
        ensure!(output.status.success(), "`hatchery completions {shell}` failed");
        fs::write(completions.join(format!("hatchery.{shell}")), output.stdout)?;
    }
    step::run_command(Command::new(hatchery).args(["completions", "--man"]).arg(folder.join("man")))
}

fn stage_image(workspace: &Workspace, binary: &Path, folder: &Path) -> anyhow::Result<()> {
    recreate(folder)?;
    copy(binary, &folder.join("hatchery"))?;
    copy(&workspace.root.join("Containerfile"), &folder.join("Dockerfile"))
}

fn pack(output: &Path, name: &str, archive: &Path) -> anyhow::Result<()> {
    let mut tar = Command::new("tar");
    step::run_command(tar.arg("-czf").arg(archive).arg("-C").arg(output).arg(name))?;
    let digest = Sha256::digest(fs::read(archive)?);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let file = archive.file_name().unwrap_or_default().to_string_lossy();
    fs::write(checksum_file(archive), format!("{digest}  {file}\n")).context("cannot write the checksum")
}

fn checksum_file(archive: &Path) -> PathBuf {
    archive.with_added_extension("sha256")
}

/// Unpacks the archive in an empty folder, and runs an agent in YAML with the command in it.
fn try_archive(archive: &Path, name: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    step::run_command(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()))?;
    let hatchery = folder.path().join(name).join("hatchery");
    let agents = folder.path().join("agents");
    fs::create_dir_all(agents.join("hello"))?;
    fs::write(agents.join("hello/root_agent.yaml"), HELLO_AGENT)?;
    fs::write(agents.join("hello/answers.yaml"), HELLO_ANSWERS)?;
    let mut run = Command::new(&hatchery);
    run.arg("run").arg(&agents).args(["hello", "--message", "hi"]);
    let output = run.output().with_context(|| format!("cannot start {}", hatchery.display()))?;
    let answer = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && answer.contains("Hello from the archive: 42"), "wrong answer: {answer}{errors}");
    Ok(())
}

const HELLO_AGENT: &str =
    "name: hello\nmodel: scripted:hello/answers.yaml\ninstruction: Greet people.\ncode_executor: sandbox\n";

const HELLO_ANSWERS: &str = "\
turns:
  - when: { user: tool_output }
    reply: \"Hello from the archive: {number}\"
  - reply: \"```python\\nprint(6 * 7)\\n```\"
";

fn recreate(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_in_the_format_of_sha256sum() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("release")).unwrap();
        fs::write(folder.path().join("release/hatchery"), "program").unwrap();
        let archive = folder.path().join("release.tar.gz");
        pack(folder.path(), "release", &archive).unwrap();
        let checksum = fs::read_to_string(folder.path().join("release.tar.gz.sha256")).unwrap();
        let (digest, file) = checksum.trim_end().split_once("  ").unwrap();
        assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
        assert_eq!(file, "release.tar.gz");
    }

    #[test]
    fn a_command_that_is_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("hatchery");
        fs::File::create(&binary).unwrap().set_len(MAX_BINARY + 1).unwrap();
        let error = check_size(&binary).unwrap_err().to_string();
        assert!(error.ends_with(&format!("at most {MAX_BINARY} are allowed")), "{error}");
    }

    #[test]
    fn the_archive_has_all_guides() {
        let root = Workspace::load().unwrap().root;
        let documents = documents(&root).unwrap();
        for guide in
            ["README.md", "hatchery.service", "docs/agents.md", "docs/http-api.md", "docs/operations.md", "docs/a2a.md"]
        {
            assert!(documents.iter().any(|document| document == Path::new(guide)), "{guide} is not in {documents:?}");
        }
        for document in documents.iter().map(PathBuf::as_path).chain([Path::new("Containerfile")]) {
            assert!(root.join(document).is_file(), "{}", document.display());
        }
    }
}
