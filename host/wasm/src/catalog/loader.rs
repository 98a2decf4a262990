//! From files to catalogs: finds what has changed, waits until it has settled, loads it, and says what became of it.
//!
//! A file is read once: its hash, its check and its code come from the same bytes. A file that cannot be used changes nothing but its own
//! status; what it was before goes on serving.
//!
//! Loads are tasks of their own. The loader starts them and takes over their results; it never waits for one, so settings take effect and
//! other files are loaded while a component is compiled.

mod audit;
mod load;
mod options;
mod publish;
mod reconfigure;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hatchery_core::Timestamp;
use tokio::sync::watch;

use crate::catalog::names::StoredNames;
use crate::catalog::scan::{Kind, Scan, Stamp, scan};
use crate::catalog::{Catalog, FileState, LoadIssues, conflict, folder_name};
use crate::contract::component::Component;
use crate::error::LoadError;
use load::load;
use tasks::{LoadResult, LoadTask, LoadTasks};

pub use load::{Precompiled, precompile};
pub(crate) use load::{admit, check_name, load_bytes, read};
pub use options::{LoadOptions, LoadPolicy, Progress};

/// How long a file must stay as it is before it is read.
pub(crate) const SETTLE: Duration = Duration::from_millis(100);

/// What is known about a file.
struct TrackedFile {
    kind: Kind,
    /// The component's name, or the app's folder.
    name: String,
    stamp: Stamp,
    /// When it was first seen with this stamp, or to be missing.
    seen: Instant,
    is_missing: bool,
    is_loaded: bool,
    state: FileState,
    since: Timestamp,
    /// The folder that kept it from being loaded, as it was not there.
    needs_folder: Option<PathBuf>,
    /// What its last good version gave.
    component: Option<Arc<Component>>,
    /// False when `component` described itself with settings that are not in force any more.
    is_described: bool,
}

impl TrackedFile {
    /// True when it is as it was when it was last loaded.
    fn is_settled(&self) -> bool {
        self.is_loaded && !self.is_missing
    }

    fn set(&mut self, state: FileState) {
        if self.state != state {
            self.state = state;
            self.since = Timestamp::now();
        }
    }
}

/// The state of the directory as it was last looked at.
pub(crate) struct Loader {
    directory: PathBuf,
    options: LoadOptions,
    files: BTreeMap<PathBuf, TrackedFile>,
    /// The file that serves under each component name.
    owners: BTreeMap<String, PathBuf>,
    /// The owners of names, as the file of them holds them.
    names_file: StoredNames,
    tasks: LoadTasks,
    /// Files of the first look that are not loaded yet; `None` before it. Until there are none, no app keeps its name against another:
    /// which of two serves must not depend on which is compiled first.
    starting: Option<BTreeSet<PathBuf>>,
    /// True when the catalog is out of date.
    has_changed: bool,
    /// Why files whose components are loaded cannot serve, as of the last catalog.
    issues: LoadIssues,
}

impl Loader {
    /// `activity` counts up whenever there is something to take over with [`Loader::collect`].
    pub(crate) fn new(directory: PathBuf, options: LoadOptions, activity: Arc<watch::Sender<u64>>) -> Self {
        let names_file = options.names_file.as_deref().map(StoredNames::read).unwrap_or_default();
        let [owners, _] = names_file.files(&directory);
        Self {
            directory,
            options,
            files: BTreeMap::new(),
            owners,
            names_file,
            tasks: LoadTasks::new(activity),
            starting: None,
            has_changed: false,
            issues: LoadIssues::new(),
        }
    }

    /// Returns the catalog before the first one: nothing serves, and names have their owners.
    pub(crate) fn initial(&self) -> Catalog {
        let [_, app_files] = self.names_file.files(&self.directory);
        Catalog { app_files, owners: self.names_file.items.clone(), ..Catalog::default() }
    }

    /// Looks at the directory and starts to load what has been the same for `settle`.
    pub(crate) async fn look(&mut self, settle: Duration) {
        self.try_missing_folders_again();
        let (directory, written) = (self.directory.clone(), self.options.settings.written());
        let found = tokio::task::spawn_blocking(move || scan(&directory, &written)).await;
        let found = found.unwrap_or_else(|error| {
            tracing::error!("looking at the directory broke off: {error}");
            Scan::failed(&self.directory)
        });
        self.note(&found);
        self.has_changed |= self.forget_missing(&found, settle);
        let conflicts = self.conflicts();
        let ready = self.settled(settle);
        self.has_changed |= self.mark_conflicts(&conflicts);
        let (components, others): (Vec<_>, Vec<_>) = ready
            .into_iter()
            .filter(|path| !conflicts.contains_key(path))
            .partition(|path| self.files.get(path).is_some_and(|known| known.kind == Kind::Component));
        self.has_changed |= !others.is_empty();
        for path in others {
            if let Some(known) = self.files.get_mut(&path) {
                known.is_loaded = true;
            }
        }
        if !components.is_empty() {
            self.options.report(Progress::Found(components.len()));
        }
        for path in components {
            self.start(path);
        }
        if self.starting.is_none() {
            self.starting = Some(self.files.keys().filter(|path| self.tasks.contains(path)).cloned().collect());
        }
    }

    /// Takes over the results of loads.
    pub(crate) fn collect(&mut self) {
        while let Some((task, finished)) = self.tasks.next_finished() {
            self.has_changed |= self.settle_load(task, finished);
        }
        for path in self.tasks.compiling() {
            if let Some(known) = self.files.get_mut(path) {
                known.set(FileState::Compiling { previous_serves: known.component.is_some() });
            }
        }
    }

    /// True while loads are under way.
    pub(crate) fn is_loading(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// True when something has not settled yet: look again soon.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.files.iter().any(|(path, known)| {
            let waits = !known.is_loaded && !self.tasks.contains(path);
            known.is_missing || waits && !matches!(known.state, FileState::Conflict { .. })
        })
    }

    /// A component whose granted folder was not there is loaded once the folder is.
    fn try_missing_folders_again(&mut self) {
        for known in self.files.values_mut() {
            if known.needs_folder.take_if(|folder| folder.is_dir()).is_some() {
                known.is_loaded = false;
            }
        }
    }

    /// Takes over what a scan found.
    fn note(&mut self, found: &Scan) {
        for (path, (kind, stamp)) in &found.files {
            let name = match kind {
                Kind::Component => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                Kind::RootAgent | Kind::Yaml => folder_name(path),
            };
            let known = self.files.entry(path.clone()).or_insert_with(|| {
                tracing::debug!("{}: pending: it is new", path.display());
                TrackedFile {
                    kind: *kind,
                    name,
                    stamp: *stamp,
                    seen: Instant::now(),
                    is_missing: false,
                    is_loaded: false,
                    state: FileState::Pending,
                    since: Timestamp::now(),
                    needs_folder: None,
                    component: None,
                    is_described: false,
                }
            });
            known.is_missing = false;
            if known.stamp != *stamp {
                tracing::debug!("{}: pending: it has changed", path.display());
                known.stamp = *stamp;
                known.seen = Instant::now();
                known.is_loaded = false;
                if self.tasks.contains(path) {
                    self.tasks.abort(path);
                    known.set(if known.component.is_some() { FileState::Loaded } else { FileState::Pending });
                }
            }
        }
    }

    /// Drops files that have been missing for `settle`. A file that is being replaced is missing only for a moment, and nothing is known
    /// of files in folders that cannot be read.
    fn forget_missing(&mut self, found: &Scan, settle: Duration) -> bool {
        for (_, known) in self.files.iter_mut().filter(|(path, _)| found.misses(path)) {
            if !std::mem::replace(&mut known.is_missing, true) {
                known.seen = Instant::now();
            }
        }
        let before = self.files.len();
        let gone = self.files.extract_if(.., |path, known| found.misses(path) && known.seen.elapsed() >= settle);
        for (path, known) in gone {
            self.tasks.abort(&path);
            audit::swap(&known.name, known.component.as_ref().map(|component| component.sha256()), None);
        }
        let files = &self.files;
        self.owners.retain(|_, owner| files.contains_key(owner));
        self.files.len() != before
    }

    /// Component files that share a name with another; the one that serves is not among them.
    fn conflicts(&self) -> BTreeMap<PathBuf, String> {
        let mut by_name: BTreeMap<&str, BTreeSet<PathBuf>> = BTreeMap::new();
        for (path, known) in self.files.iter().filter(|(_, known)| known.kind == Kind::Component) {
            by_name.entry(&known.name).or_default().insert(path.clone());
        }
        let mut conflicts = BTreeMap::new();
        for (name, paths) in by_name.iter().filter(|(_, paths)| paths.len() > 1) {
            let reason = conflict("components", name, paths);
            let losers = paths.iter().filter(|path| self.owners.get(*name) != Some(*path));
            conflicts.extend(losers.map(|path| (path.clone(), reason.clone())));
        }
        conflicts
    }

    fn mark_conflicts(&mut self, conflicts: &BTreeMap<PathBuf, String>) -> bool {
        let mut changed = false;
        for (path, known) in &mut self.files {
            match (conflicts.get(path), &known.state) {
                (Some(reason), state) => {
                    let conflict = FileState::Conflict { reason: reason.clone() };
                    changed |= *state != conflict;
                    self.tasks.abort(path);
                    known.set(conflict);
                }
                // The other file is gone: this one gets its turn.
                (None, FileState::Conflict { .. }) if known.kind == Kind::Component && known.component.is_none() => {
                    known.is_loaded = false;
                    known.set(FileState::Pending);
                }
                (None, _) => {}
            }
        }
        changed
    }

    /// Files that are to be loaded and have been the same for `settle`.
    fn settled(&self, settle: Duration) -> Vec<PathBuf> {
        let ready = |(path, known): &(&PathBuf, &TrackedFile)| {
            !known.is_loaded && !known.is_missing && known.seen.elapsed() >= settle && !self.tasks.contains(path)
        };
        self.files.iter().filter(ready).map(|(path, _)| path.clone()).collect()
    }

    /// Starts to load a component.
    fn start(&mut self, path: PathBuf) {
        let Some(known) = self.files.get(&path) else { return };
        let (options, name, file) = (self.options.clone(), known.name.clone(), path.clone());
        let current = known.component.as_ref().filter(|_| known.is_described);
        let current = current.map(|component| component.sha256().to_owned());
        let settings = self.options.settings.of(&name);
        self.tasks.start(path, known.stamp, settings, |permit| async move {
            load(&options, &name, &file, current.as_deref(), permit).await
        });
    }

    /// Takes over the result of a load. True when the catalog has to change.
    fn settle_load(&mut self, task: LoadTask, finished: LoadResult) -> bool {
        let LoadResult { path, took, result, .. } = finished;
        let Some(known) = self.files.get_mut(&path) else { return false };
        if Stamp::of(&path) != Some(task.stamp) {
            // It changed while it was being read: the next look reads it again.
            known.seen = Instant::now();
            known.is_loaded = false;
            known.set(if known.component.is_some() { FileState::Loaded } else { FileState::Pending });
            return false;
        }
        let name = known.name.clone();
        let now = self.options.settings.of(&name);
        if result.is_err() && task.settings != now {
            // It failed with settings that are not in force any more.
            self.start(path);
            return false;
        }
        known.is_loaded = true;
        known.needs_folder = None;
        match result.and_then(|loaded| reconfigure::bring_up_to_date(loaded, &self.options.settings, &name)) {
            Ok(reconfigure::Current::Unchanged) => {
                let changed = known.state != FileState::Loaded;
                known.set(FileState::Loaded);
                changed
            }
            Ok(reconfigure::Current::Component { component, is_from_cache, is_described }) => {
                tracing::info!(component = name, sha256 = component.sha256(), ?took, is_from_cache, "loaded");
                if let Some(lines) = component.grant_report().missing_lines(&name) {
                    tracing::warn!(
                        "component `{name}` requests more than it is granted; to grant it, add to hatchery.yaml:\n{lines}"
                    );
                }
                let previous = known.component.replace(component.clone());
                let old = previous.as_ref().map(|previous| previous.sha256());
                if old != Some(component.sha256()) {
                    audit::swap(&name, old, Some(component.sha256()));
                }
                known.is_described = is_described;
                known.set(FileState::Loaded);
                self.owners.insert(name.clone(), path.clone());
                self.options.report(Progress::Loaded { name, took, is_from_cache });
                if !is_described {
                    self.describe_again(path);
                }
                true
            }
            Err(error) => {
                self.reject(&path, &error);
                true
            }
        }
    }

    /// Notes that a file cannot be loaded.
    fn reject(&mut self, path: &Path, error: &LoadError) {
        let Some(known) = self.files.get_mut(path) else { return };
        if let LoadError::Folder { folder, .. } = error {
            known.needs_folder = Some(folder.clone()).filter(|folder| !folder.is_dir());
        }
        let reason = error.to_string();
        tracing::warn!("{}: rejected: {reason}", path.display());
        // A grant may have been taken back: nothing serves on with what is not written any more.
        let now = self.options.settings.of(&known.name);
        known.component.take_if(|component| now.refusal.is_some() || component.settings().grants != now.grants);
        let previous_serves = known.component.is_some();
        known.set(FileState::Rejected { reason: reason.clone(), previous_serves });
        self.options.report(Progress::Rejected { name: known.name.clone(), reason });
    }
}

#[cfg(test)]
mod tests;
