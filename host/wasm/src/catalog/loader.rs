//! The loader: turns the files of the served folder into catalogs.
//!
//! Each component file passes through these states:
//!
//! 1. *seen*: a scan has found a new or changed file (`Loader::record_scan`),
//! 2. *ready*: the file has not changed for `DEBOUNCE` (`TrackedFile::is_ready`),
//! 3. *read*, *checked*, *compiled*, *described*: done by a load task (`load.rs`, `tasks.rs`),
//! 4. *loaded* or *rejected*: the loader has taken over the result (`Loader::finish_load`),
//! 5. *published*: the component is part of a catalog (`publish.rs`).
//!
//! A file is read once: its hash, its check and its code come from the same bytes. A file that cannot be used only
//! changes its own state; its last good version continues to serve.
//!
//! The loader never waits for a load task, so that settings take effect and other files are loaded while a component is
//! compiled.

mod audit;
mod load;
mod options;
mod publish;
mod reconfigure;
mod tasks;
mod tracked_file;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hatchery_core::Timestamp;
use tokio::sync::watch;

use crate::catalog::names::StoredNames;
use crate::catalog::scan::{FileKind, FileVersion, Scan, scan};
use crate::catalog::{Catalog, FileState, LoadIssues, conflict_message, folder_name};
use crate::contract::component::Component;
use crate::error::LoadError;
use load::load;
use reconfigure::LoadOutcome;
use tasks::{LoadResult, LoadTask, LoadTasks};
use tracked_file::TrackedFile;

pub use load::{Precompiled, load_component, precompile};
pub(crate) use load::{check_load_policy, check_name, load_bytes, read};
pub use options::{CatalogItems, CatalogUpdate, LoadOptions, LoadPolicy, Progress};

/// Time for which a file must be unchanged before it is read.
pub(crate) const DEBOUNCE: Duration = Duration::from_millis(100);

/// The files of the served folder and the loads that are running.
pub(crate) struct Loader {
    directory: PathBuf,
    options: LoadOptions,
    files: BTreeMap<PathBuf, TrackedFile>,
    /// The file that serves under each component name.
    owners: BTreeMap<String, PathBuf>,
    /// Names and their owners, as last stored.
    stored_names: StoredNames,
    tasks: LoadTasks,
    /// Files of the first scan that are not loaded yet; `None` before it. While there are any, no app keeps its name
    /// against another app: the order of compilation must not decide which one serves.
    starting: Option<BTreeSet<PathBuf>>,
    /// The folders that the last scan read.
    folders: Arc<BTreeSet<PathBuf>>,
    /// Folders that cannot be read.
    unreadable: BTreeMap<PathBuf, UnreadableFolder>,
    /// True if the catalog is out of date.
    has_changed: bool,
    /// The reasons why files cannot serve although their components are loaded, as of the last catalog.
    issues: LoadIssues,
}

/// A folder that cannot be read, with the reason.
struct UnreadableFolder {
    reason: String,
    since: Timestamp,
}

impl Loader {
    /// Creates a loader. `activity` is incremented whenever there are results for [`Loader::collect_results`].
    pub(crate) fn new(directory: PathBuf, options: LoadOptions, activity: Arc<watch::Sender<u64>>) -> Self {
        let stored_names = options.names_file.as_deref().map(StoredNames::read).unwrap_or_default();
        let [owners, _] = stored_names.files(&directory);
        Self {
            directory,
            options,
            files: BTreeMap::new(),
            owners,
            stored_names,
            tasks: LoadTasks::new(activity),
            starting: None,
            folders: Arc::default(),
            unreadable: BTreeMap::new(),
            has_changed: false,
            issues: LoadIssues::new(),
        }
    }

    /// Returns the catalog before the first one: nothing serves, and names have their stored owners.
    pub(crate) fn initial(&self) -> Catalog {
        let [_, app_files] = self.stored_names.files(&self.directory);
        Catalog { app_files, owners: self.stored_names.items.clone(), ..Catalog::default() }
    }

    pub(crate) fn options(&self) -> &LoadOptions {
        &self.options
    }

    /// Returns the folders that the last scan read.
    pub(crate) fn folders(&self) -> Arc<BTreeSet<PathBuf>> {
        self.folders.clone()
    }

    /// Returns true while loads are running.
    pub(crate) fn is_loading(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Returns true if a file may still be changing, so that the directory should be scanned again soon.
    pub(crate) fn is_changing(&self) -> bool {
        self.files.iter().any(|(path, file)| {
            let waits = !file.is_loaded && !self.tasks.contains(path);
            file.is_missing || waits && !matches!(file.state, FileState::Conflict { .. })
        })
    }

    /// Scans the directory and starts to load files that have not changed for `debounce`.
    pub(crate) async fn scan(&mut self, debounce: Duration) {
        self.retry_missing_folders();
        let scan = self.scan_directory().await;
        self.record_scan(&scan);
        self.record_unreadable(&scan);
        self.has_changed |= self.remove_missing(&scan, debounce);
        if *self.folders != scan.folders {
            self.folders = Arc::new(scan.folders);
        }
        let conflicts = self.name_conflicts();
        let ready = self.ready_files(debounce);
        self.has_changed |= self.mark_conflicts(&conflicts);
        let (components, others): (Vec<_>, Vec<_>) = ready
            .into_iter()
            .filter(|path| !conflicts.contains_key(path))
            .partition(|path| self.files.get(path).is_some_and(|file| file.kind == FileKind::Component));
        self.has_changed |= !others.is_empty();
        for path in others {
            if let Some(file) = self.files.get_mut(&path) {
                file.is_loaded = true;
            }
        }
        if !components.is_empty() {
            self.options.report(Progress::Found(components.len()));
        }
        for path in components {
            self.start_load(path);
        }
        if self.starting.is_none() {
            self.starting = Some(self.files.keys().filter(|path| self.tasks.contains(path)).cloned().collect());
        }
    }

    /// Schedules components whose granted folder did not exist and now does.
    fn retry_missing_folders(&mut self) {
        for file in self.files.values_mut() {
            if file.needs_folder.take_if(|folder| folder.is_dir()).is_some() {
                file.is_loaded = false;
            }
        }
    }

    async fn scan_directory(&self) -> Scan {
        let (directory, writable_folders) = (self.directory.clone(), self.options.settings.writable_folders());
        let result = tokio::task::spawn_blocking(move || scan(&directory, &writable_folders)).await;
        result.unwrap_or_else(|error| {
            // The end of the runtime cancels a scan that has not begun.
            if error.is_panic() {
                tracing::error!("scanning the directory panicked: {error}");
            }
            Scan::failed(&self.directory)
        })
    }

    /// Tracks new files, and marks changed files to be loaded again.
    fn record_scan(&mut self, scan: &Scan) {
        for (path, (kind, version)) in &scan.files {
            let name = match kind {
                FileKind::Component => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                FileKind::RootAgent | FileKind::Yaml => folder_name(path),
            };
            let file = self.files.entry(path.clone()).or_insert_with(|| {
                tracing::debug!("{}: pending: it is new", path.display());
                TrackedFile::new(*kind, name, *version)
            });
            file.is_missing = false;
            if file.version != *version {
                tracing::debug!("{}: pending: it has changed", path.display());
                file.version = *version;
                file.restart_debounce();
                if self.tasks.contains(path) {
                    self.tasks.abort(path);
                    file.reset_state();
                }
            }
        }
    }

    /// Remembers folders that cannot be read, and logs those that could be read before.
    fn record_unreadable(&mut self, scan: &Scan) {
        self.unreadable.retain(|folder, _| scan.unreadable.contains_key(folder));
        for (folder, reason) in &scan.unreadable {
            match self.unreadable.get_mut(folder) {
                Some(known) => known.reason.clone_from(reason),
                None => {
                    tracing::warn!("{}: the folder cannot be read: {reason}", folder.display());
                    let unreadable = UnreadableFolder { reason: reason.clone(), since: Timestamp::now() };
                    self.unreadable.insert(folder.clone(), unreadable);
                }
            }
        }
    }

    /// Stops tracking files that have been missing for `debounce`; a file that is being replaced is missing only for a
    /// moment. Returns true if there were any. The state of files in unreadable folders is unknown, so they stay.
    fn remove_missing(&mut self, scan: &Scan, debounce: Duration) -> bool {
        for (_, file) in self.files.iter_mut().filter(|(path, _)| scan.is_missing(path)) {
            if !std::mem::replace(&mut file.is_missing, true) {
                file.seen = Instant::now();
            }
        }
        let count = self.files.len();
        let removed = self.files.extract_if(.., |path, file| scan.is_missing(path) && file.seen.elapsed() >= debounce);
        for (path, file) in removed {
            self.tasks.abort(&path);
            if let Some(component) = &file.component {
                tracing::info!(component = file.name, sha256 = component.sha256(), "removed");
                audit::log_swap(&file.name, Some(component.sha256()), None);
            }
        }
        let files = &self.files;
        self.owners.retain(|_, owner| files.contains_key(owner));
        self.files.len() != count
    }

    /// Returns the component files that share a name with another file, except for the one that serves, with a message.
    fn name_conflicts(&self) -> BTreeMap<PathBuf, String> {
        let mut by_name: BTreeMap<&str, BTreeSet<PathBuf>> = BTreeMap::new();
        for (path, file) in self.files.iter().filter(|(_, file)| file.kind == FileKind::Component) {
            by_name.entry(&file.name).or_default().insert(path.clone());
        }
        let mut conflicts = BTreeMap::new();
        for (name, paths) in by_name.iter().filter(|(_, paths)| paths.len() > 1) {
            let reason = conflict_message("components", name, paths);
            let others = paths.iter().filter(|path| self.owners.get(*name) != Some(*path));
            conflicts.extend(others.map(|path| (path.clone(), reason.clone())));
        }
        conflicts
    }

    fn mark_conflicts(&mut self, conflicts: &BTreeMap<PathBuf, String>) -> bool {
        let mut changed = false;
        for (path, file) in &mut self.files {
            match (conflicts.get(path), &file.state) {
                (Some(reason), state) => {
                    let conflict = FileState::Conflict { reason: reason.clone() };
                    changed |= *state != conflict;
                    self.tasks.abort(path);
                    file.set_state(conflict);
                }
                // The other file is gone, so this one can be loaded.
                (None, FileState::Conflict { .. }) if file.kind == FileKind::Component && file.component.is_none() => {
                    file.is_loaded = false;
                    file.set_state(FileState::Pending);
                }
                (None, _) => {}
            }
        }
        changed
    }

    fn ready_files(&self, debounce: Duration) -> Vec<PathBuf> {
        let ready = self.files.iter().filter(|(path, file)| file.is_ready(debounce) && !self.tasks.contains(path));
        ready.map(|(path, _)| path.clone()).collect()
    }

    fn start_load(&mut self, path: PathBuf) {
        let Some(file) = self.files.get(&path) else { return };
        let (options, name, file_path) = (self.options.clone(), file.name.clone(), path.clone());
        let current = file.component.as_ref().filter(|_| file.is_described);
        let current = current.map(|component| component.sha256().to_owned());
        let settings = self.options.settings.for_component(&name);
        self.tasks.start(path, file.version, settings, |permit| async move {
            load(&options, &name, &file_path, current.as_deref(), permit).await
        });
    }

    /// Takes over the results of loads that have finished.
    pub(crate) fn collect_results(&mut self) {
        while let Some((task, result)) = self.tasks.next_finished() {
            self.has_changed |= self.finish_load(task, result);
        }
        for path in self.tasks.compiling_files() {
            if let Some(file) = self.files.get_mut(path) {
                file.set_state(FileState::Compiling { previous_serves: file.component.is_some() });
            }
        }
    }

    /// Handles the result of a load. Returns true if the catalog is out of date.
    fn finish_load(&mut self, task: LoadTask, load: LoadResult) -> bool {
        let LoadResult { path, took, result, .. } = load;
        let Some(file) = self.files.get_mut(&path) else { return false };
        if FileVersion::read(&path) != Some(task.version) {
            // The file changed while it was read: the next scan loads it again.
            file.restart_debounce();
            file.reset_state();
            return false;
        }
        let name = file.name.clone();
        if result.is_err() && task.settings != self.options.settings.for_component(&name) {
            // The load failed with settings that are no longer in force.
            self.start_load(path);
            return false;
        }
        file.is_loaded = true;
        file.needs_folder = None;
        match result.and_then(|loaded| reconfigure::apply_current_settings(loaded, &self.options.settings, &name)) {
            Ok(LoadOutcome::Unchanged) => {
                file.needs_admission = false;
                let changed = file.state != FileState::Loaded;
                file.set_state(FileState::Loaded);
                changed
            }
            Ok(LoadOutcome::Component { component, is_from_cache, is_described }) => {
                tracing::info!(component = name, sha256 = component.sha256(), ?took, is_from_cache, "loaded");
                self.accept(&path, component, is_described);
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

    /// Replaces the component of a file.
    fn accept(&mut self, path: &Path, component: Arc<Component>, is_described: bool) {
        let Some(file) = self.files.get_mut(path) else { return };
        let name = &file.name;
        warn_of_missing_grants(&component, file.component.as_deref());
        let previous = file.component.replace(component.clone());
        let previous = previous.as_ref().map(|previous| previous.sha256());
        if previous != Some(component.sha256()) {
            audit::log_swap(name, previous, Some(component.sha256()));
        }
        self.owners.insert(name.clone(), path.to_owned());
        file.is_described = is_described;
        file.needs_admission = false;
        file.set_state(FileState::Loaded);
    }

    /// Marks a file as rejected. Its last good version continues to serve, unless its grants were revoked or it may not
    /// be loaded any more.
    fn reject(&mut self, path: &Path, error: &LoadError) {
        let Some(file) = self.files.get_mut(path) else { return };
        if let LoadError::Folder { folder, .. } = error {
            file.needs_folder = Some(folder.clone()).filter(|folder| !folder.is_dir());
        }
        let reason = error.to_string();
        tracing::warn!("{}: rejected: {reason}", path.display());
        let settings = self.options.settings.for_component(&file.name);
        let needs_admission = file.needs_admission;
        let is_revoked = |component: &mut Arc<Component>| {
            needs_admission || settings.refusal.is_some() || component.settings().grants != settings.grants
        };
        file.component.take_if(is_revoked);
        let previous_serves = file.component.is_some();
        file.set_state(FileState::Rejected { reason: reason.clone(), previous_serves });
        self.options.report(Progress::Rejected { name: file.name.clone(), reason });
    }
}

/// Logs the lines that grant what a component requests and has not, without those that were logged for `previous`, the
/// same code with other settings.
fn warn_of_missing_grants(component: &Component, previous: Option<&Component>) {
    let (name, mut report) = (component.name(), component.grant_report());
    if let Some(previous) = previous.filter(|previous| previous.sha256() == component.sha256()) {
        report = report.newly_missing(&previous.grant_report());
    }
    if let Some(lines) = report.missing_lines(name) {
        tracing::warn!(
            "component `{name}` requests more than it is granted; to grant it, add to hatchery.yaml:\n{lines}"
        );
    }
}

#[cfg(test)]
mod tests;
