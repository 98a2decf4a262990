//! The projects of `hatchery dev`: builds those whose files have changed.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::commands::build::{BuildOptions, BuildResult, build_project};
use crate::files;
use crate::progress;
use crate::projects::{find_projects, has_component};
use crate::terminal::{BOLD, DIM, ERROR, WARNING, escape_control, format_error};

/// Interval at which the files of the projects are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Extensions of files that are not sources of a component. A host reads YAML itself, and builds write lock files.
const NON_SOURCE_EXTENSIONS: [&str; 7] = ["wasm", "pyc", "yaml", "yml", "md", "minisig", "lock"];

/// The projects of a folder.
pub struct Projects {
    projects: Vec<Project>,
    /// Cargo profile of components in Rust.
    profile: String,
}

struct Project {
    folder: PathBuf,
    /// The files of the last build. `None` before the first one.
    built: Option<Sources>,
    /// The files at the last check.
    seen: Sources,
}

/// The sources of a project, each with its modification time and length.
type Sources = Vec<(PathBuf, Option<SystemTime>, u64)>;

impl Projects {
    /// Finds the project in a folder, or all projects below it.
    pub fn find(folder: &Path, profile: &str) -> anyhow::Result<Self> {
        files::require_folder(folder)?;
        let new = |folder| Project { folder, built: None, seen: Sources::new() };
        Ok(Self { projects: find_projects(folder)?.into_iter().map(new).collect(), profile: profile.to_owned() })
    }

    /// Builds every project whose sources differ from the sources of its last build, and prints how that went.
    pub async fn build_changed(&mut self) {
        for project in &mut self.projects {
            let sources = sources(&project.folder);
            project.seen.clone_from(&sources);
            if project.built.as_ref() != Some(&sources) {
                project.build(sources, &self.profile).await;
            }
        }
    }

    /// Builds projects whenever their sources change. Never returns.
    pub async fn watch(mut self) {
        let mut interval = tokio::time::interval(POLL_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            for project in &mut self.projects {
                if let Some(sources) = project.settled_change().await {
                    project.build(sources, &self.profile).await;
                }
            }
        }
    }
}

impl Project {
    /// Returns the sources if they differ from the sources of the last build and have not changed since the last check:
    /// an editor may still be writing.
    async fn settled_change(&mut self) -> Option<Sources> {
        let folder = self.folder.clone();
        let now = tokio::task::spawn_blocking(move || sources(&folder)).await.ok()?;
        let is_settled = std::mem::replace(&mut self.seen, now.clone()) == now;
        (is_settled && self.built.as_ref() != Some(&now)).then_some(now)
    }

    async fn build(&mut self, sources: Sources, profile: &str) {
        let folder = label(&self.folder);
        let changed = self.changed_file(&sources);
        self.built = Some(sources);
        match changed {
            Some(file) => print_line(&format!("{DIM}{} has changed, building {folder}{DIM:#}", file.display())),
            None => print_line(&format!("{DIM}building {folder}{DIM:#}")),
        }
        let options = BuildOptions { profile: profile.to_owned(), out: None, is_checked: true, is_development: true };
        match build_project(&self.folder, options).await {
            Ok(BuildResult::Built(built)) if built.is_unchanged => {
                print_line(&format!("{DIM}nothing has changed{DIM:#}"))
            }
            Ok(BuildResult::Built(built)) => {
                print_line(&format!("built {BOLD}{}{BOLD:#}{}", built.file.display(), escape_control(&built.items)));
                for warning in &built.warnings {
                    print_line(&format!("{WARNING}warning:{WARNING:#} {}", escape_control(warning)));
                }
            }
            Ok(BuildResult::Failed) => {
                let consequence = if has_component(&self.folder) {
                    "the previous version keeps serving"
                } else {
                    "it is built again when a source is saved"
                };
                print_line(&format!("{ERROR}error:{ERROR:#} {folder} was not built; {consequence}"));
            }
            Ok(BuildResult::Unloadable(reason) | BuildResult::Rejected(reason)) => {
                let reason = escape_control(&reason);
                print_line(&format!(
                    "{ERROR}error:{ERROR:#} {folder} compiles, but a host would not load it: {reason}"
                ));
            }
            Err(error) => {
                print_line(&format!("{ERROR}error:{ERROR:#} {folder}: {}", escape_control(&format_error(&error))))
            }
        }
    }

    /// Returns a file that is new or differs since the last build. `None` before the first build.
    fn changed_file(&self, sources: &Sources) -> Option<PathBuf> {
        let built = self.built.as_ref()?;
        let changed = sources.iter().find(|source| !built.contains(source));
        // If all files are as before, one was removed.
        let removed = || built.iter().find(|source| !sources.contains(source));
        let (file, ..) = changed.or_else(removed)?;
        Some(file.strip_prefix(&self.folder).unwrap_or(file).to_owned())
    }
}

/// Returns the folder of a project for messages, by its name if it is the current folder.
fn label(folder: &Path) -> String {
    let absolute = (folder == Path::new(".")).then(|| folder.canonicalize().ok()).flatten();
    let name = absolute.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| folder.display().to_string())
}

/// Prints a line on stderr, among the lines of the log.
fn print_line(line: &str) {
    progress::suspend(|| anstream::eprintln!("{line}"));
}

/// Returns the sources of a project. A file that disappears in between is skipped.
fn sources(folder: &Path) -> Sources {
    let is_source = |name: &str| {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        !name.starts_with('.') && !extension.is_some_and(|extension| NON_SOURCE_EXTENSIONS.contains(&extension))
    };
    let files = files::find(folder, is_source).unwrap_or_default();
    let with_metadata = files.into_iter().filter_map(|file| {
        let metadata = file.metadata().ok()?;
        Some((file, metadata.modified().ok(), metadata.len()))
    });
    with_metadata.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, file: &str, text: &str) {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_project_is_named_by_its_folder() {
        assert_eq!(label(Path::new("my-agents/dice")), "my-agents/dice");
        let here = std::env::current_dir().unwrap();
        assert_eq!(label(Path::new(".")), here.file_name().unwrap().to_string_lossy());
    }

    #[tokio::test]
    async fn a_change_counts_once_the_files_are_unchanged_between_two_checks() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "src/lib.rs", "1");
        let sources = sources(folder.path());
        let built = Some(sources.clone());
        let mut project = Project { folder: folder.path().to_owned(), built, seen: sources };
        assert_eq!(project.settled_change().await, None);
        for file in ["x.wasm", "answers.yaml", "target/x", ".cargo/config.toml"] {
            write(folder.path(), file, "no source");
        }
        assert_eq!(project.settled_change().await, None);
        write(folder.path(), "src/lib.rs", "1, 2");
        assert_eq!(project.settled_change().await, None, "it may still be being written");
        let changed = project.settled_change().await.unwrap();
        assert_eq!(project.changed_file(&changed), Some("src/lib.rs".into()));
        std::fs::remove_file(folder.path().join("src/lib.rs")).unwrap();
        assert_eq!(project.settled_change().await, None);
        let removed = project.settled_change().await.unwrap();
        assert_eq!(project.changed_file(&removed), Some("src/lib.rs".into()));
    }
}
