//! From files to catalogs: finds what has changed, waits until it has settled, loads it, and says what became of it.
//!
//! A file is read once: its hash, its check and its code come from the same bytes. A file that cannot be used changes nothing but its own
//! status; what it was before goes on serving.

mod load;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hatchery_core::Timestamp;
use tokio::task::{JoinError, JoinSet};

use crate::cache::CodeCache;
use crate::catalog::{Catalog, FileState, FileStatus, Sources, Troubles, conflict, folder_name};
use crate::component::Component;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::revisions::Revisions;
use crate::scan::{Kind, Scan, Stamp, scan};
use crate::settings::{Settings, Swapping};

pub(crate) use load::load_bytes;
use load::{Loaded, load};
pub use load::{Precompiled, precompile};

/// How long a file must stay as it is before it is read.
pub(crate) const SETTLE: Duration = Duration::from_millis(100);

/// How long people wait without a word. Most components are compiled in less.
const PATIENCE: Duration = Duration::from_secs(3);

/// How a directory is loaded.
#[derive(Clone)]
pub struct LoadOptions {
    /// Runs the components.
    pub engine: Arc<Engine>,
    /// Keeps compiled code.
    pub cache: CodeCache,
    /// What the operator says of components.
    pub settings: Settings,
    /// How long runs may go on with a revision that was replaced before they are ended.
    pub drain_timeout: Duration,
    /// Keeps what was loaded, to go back to.
    pub revisions: Option<Revisions>,
    /// Asked before a file is loaded.
    pub admission: Option<Admission>,
    /// Told what is being loaded.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    /// How long a compilation may take before `progress` is told that it is under way.
    pub patience: Duration,
}

/// Says why a file may not be loaded. It is given the very bytes that are, and may block.
pub type Admission = Arc<dyn Fn(&Path, &[u8]) -> Result<(), String> + Send + Sync>;

impl LoadOptions {
    /// Default limits, no cache, no settings.
    pub fn new(engine: Arc<Engine>) -> Self {
        let cache = CodeCache::new(None);
        let (settings, drain_timeout) = (Settings::default(), Swapping::default().drain_timeout);
        Self {
            engine,
            cache,
            settings,
            drain_timeout,
            revisions: None,
            admission: None,
            progress: None,
            patience: PATIENCE,
        }
    }

    fn report(&self, progress: Progress) {
        if let Some(listener) = &self.progress {
            listener(progress);
        }
    }
}

/// What the loader is doing, for people who wait.
#[derive(Debug, Clone)]
pub enum Progress {
    /// So many components are about to be loaded.
    Found(usize),
    /// One is being compiled, and that takes long.
    Compiling {
        /// Its name.
        name: String,
        /// Bytes of its file.
        size: u64,
    },
    /// One is loaded.
    Loaded {
        /// Its name.
        name: String,
        /// How long it took.
        took: Duration,
        /// True when it did not have to be compiled.
        is_from_cache: bool,
    },
    /// One cannot be loaded.
    Rejected {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
}

/// What is known about a file.
struct Known {
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
}

impl Known {
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
    files: BTreeMap<PathBuf, Known>,
    /// The file that serves under each component name.
    owners: BTreeMap<String, PathBuf>,
}

/// What a pass over the directory came to.
pub(crate) struct Pass {
    /// The next catalog, if anything has changed.
    pub(crate) catalog: Option<Catalog>,
    /// True when something has not settled yet: look again soon.
    pub(crate) is_unsettled: bool,
}

impl Loader {
    pub(crate) fn new(directory: PathBuf, options: LoadOptions) -> Self {
        Self { directory, options, files: BTreeMap::new(), owners: BTreeMap::new() }
    }

    /// Takes over what the operator says of components now. Those of which something else is said than before are loaded anew with the next
    /// pass: their code is cached, so that costs their description.
    pub(crate) fn configure(&mut self, settings: Settings) {
        for known in self.files.values_mut().filter(|known| known.kind == Kind::Component) {
            if known.is_loaded && self.options.settings.of(&known.name) != settings.of(&known.name) {
                known.is_loaded = false;
                // The file is as it was: there is nothing to wait for.
                known.seen = known.seen.checked_sub(SETTLE).unwrap_or(known.seen);
            }
        }
        self.options.settings = settings;
    }

    /// Looks at the directory, loads what has been the same for `settle`, and makes the catalog that follows `current`.
    pub(crate) async fn pass(&mut self, current: &Arc<Catalog>, settle: Duration) -> Pass {
        self.try_missing_folders_again();
        let (directory, written) = (self.directory.clone(), self.options.settings.written());
        let found = tokio::task::spawn_blocking(move || scan(&directory, &written)).await;
        let found = found.unwrap_or_else(|error| {
            tracing::error!("looking at the directory broke off: {error}");
            Scan::failed(&self.directory)
        });
        self.note(&found);
        let mut changed = self.forget_missing(&found, settle);
        let conflicts = self.conflicts();
        let ready = self.settled(settle);
        changed |= self.mark_conflicts(&conflicts);
        let (components, others): (Vec<_>, Vec<_>) = ready
            .into_iter()
            .filter(|path| !conflicts.contains_key(path))
            .partition(|path| self.files.get(path).is_some_and(|known| known.kind == Kind::Component));
        changed |= !others.is_empty();
        for path in others {
            if let Some(known) = self.files.get_mut(&path) {
                known.is_loaded = true;
            }
        }
        changed |= self.load_all(components).await;
        let is_unsettled = self
            .files
            .iter()
            .any(|(path, known)| known.is_missing || !known.is_loaded && !conflicts.contains_key(path));
        let catalog = if changed || current.generation == 0 { self.publish(current).await } else { None };
        Pass { catalog, is_unsettled }
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
                Known {
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
                }
            });
            known.is_missing = false;
            if known.stamp != *stamp {
                tracing::debug!("{}: pending: it has changed", path.display());
                known.stamp = *stamp;
                known.seen = Instant::now();
                known.is_loaded = false;
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
        self.files.retain(|path, known| !found.misses(path) || known.seen.elapsed() < settle);
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
        let ready = |known: &Known| !known.is_loaded && !known.is_missing && known.seen.elapsed() >= settle;
        self.files.iter().filter(|(_, known)| ready(known)).map(|(path, _)| path.clone()).collect()
    }

    /// Loads components, a few at a time. True when a status has changed.
    async fn load_all(&mut self, paths: Vec<PathBuf>) -> bool {
        if paths.is_empty() {
            return false;
        }
        self.options.report(Progress::Found(paths.len()));
        let most = std::thread::available_parallelism().map_or(1, usize::from);
        let (mut queue, mut running, mut changed) = (paths.into_iter(), JoinSet::new(), false);
        let mut begun = HashMap::new();
        loop {
            while running.len() < most
                && let Some(path) = queue.next()
            {
                let Some(known) = self.files.get(&path) else { continue };
                let (options, name, stamp) = (self.options.clone(), known.name.clone(), known.stamp);
                let is_current = |it: &&Arc<Component>| *it.settings() == self.options.settings.of(&name);
                let current = known.component.as_ref().filter(is_current).map(|it| it.sha256().to_owned());
                let file = path.clone();
                let task = running.spawn(async move { load(&options, &name, &file, current.as_deref()).await });
                begun.insert(task.id(), (path, stamp, Instant::now()));
            }
            let (task, result) = match running.join_next_with_id().await {
                None => return changed,
                Some(Ok((task, result))) => (task, Ok(result)),
                Some(Err(error)) => (error.id(), Err(error)),
            };
            let Some((path, stamp, began)) = begun.remove(&task) else { continue };
            changed |= self.settle_load(path.clone(), stamp, began.elapsed(), whole(path, result));
        }
    }

    /// Takes over the result of a load. True when a status has changed.
    fn settle_load(&mut self, path: PathBuf, stamp: Stamp, took: Duration, result: Result<Loaded, LoadError>) -> bool {
        let Some(known) = self.files.get_mut(&path) else { return false };
        if Stamp::of(&path) != Some(stamp) {
            // It changed while it was being read: the next pass reads it again.
            known.seen = Instant::now();
            return false;
        }
        known.is_loaded = true;
        known.needs_folder = None;
        let name = known.name.clone();
        match result {
            Ok(Loaded::Unchanged) => {
                let changed = known.state != FileState::Loaded;
                known.set(FileState::Loaded);
                changed
            }
            Ok(Loaded::Component { component, is_from_cache }) => {
                tracing::info!(component = name, sha256 = component.sha256(), ?took, is_from_cache, "loaded");
                if let Some(lines) = component.comparison().missing_lines(&name) {
                    tracing::warn!(
                        "component `{name}` requests more than it is granted; to grant it, add to hatchery.yaml:\n{lines}"
                    );
                }
                known.component = Some(component);
                known.set(FileState::Loaded);
                self.owners.insert(name.clone(), path);
                self.options.report(Progress::Loaded { name, took, is_from_cache });
                true
            }
            Err(error) => {
                if let LoadError::Folder { folder, .. } = &error {
                    known.needs_folder = Some(folder.clone()).filter(|folder| !folder.is_dir());
                }
                let reason = error.to_string();
                tracing::warn!("{}: rejected: {reason}", path.display());
                // A grant may have been taken back: nothing serves on with what is not written any more.
                let now = self.options.settings.of(&name);
                known.component.take_if(|component| component.settings().grants != now.grants);
                let previous_serves = known.component.is_some();
                known.set(FileState::Rejected { reason: reason.clone(), previous_serves });
                self.options.report(Progress::Rejected { name, reason });
                true
            }
        }
    }

    /// The catalog of what serves now; none when making it breaks off, which is a defect.
    async fn publish(&mut self, current: &Arc<Catalog>) -> Option<Catalog> {
        let mut sources =
            Sources { components: BTreeMap::new(), component_files: BTreeMap::new(), root_agents: BTreeMap::new() };
        for (path, known) in &self.files {
            if let Some(component) = &known.component {
                sources.components.insert(known.name.clone(), component.clone());
                sources.component_files.insert(known.name.clone(), path.clone());
            }
            if known.kind == Kind::RootAgent {
                sources.root_agents.insert(path.clone(), known.is_settled());
            }
        }
        let previous = current.clone();
        let made = tokio::task::spawn_blocking(move || previous.next(sources)).await;
        let made = made.inspect_err(|error| tracing::error!("making the catalog broke off: {error}"));
        let (mut next, troubles) = made.ok()?;
        self.note_troubles(&troubles);
        next.files = self.statuses(&troubles);
        Some(next)
    }

    /// YAML apps are loaded with the catalog, so their states are known only now.
    fn note_troubles(&mut self, troubles: &Troubles) {
        let settled = |known: &Known| known.kind == Kind::RootAgent && known.is_settled();
        for (path, known) in self.files.iter_mut().filter(|(_, known)| settled(known)) {
            let state = troubles.get(path).cloned().unwrap_or(FileState::Loaded);
            if let (Some(reason), true) = (state.reason(), known.state != state) {
                tracing::warn!("{}: rejected: {reason}", path.display());
            }
            known.set(state);
        }
    }

    /// Status by file. A component that loaded but whose agents do not fit shows that.
    fn statuses(&self, troubles: &Troubles) -> Vec<FileStatus> {
        let shown = self.files.iter().filter(|(_, known)| known.kind != Kind::Yaml);
        shown
            .map(|(path, known)| {
                let trouble = troubles.get(path).filter(|_| known.state == FileState::Loaded);
                let state = trouble.unwrap_or(&known.state).clone();
                FileStatus { path: path.clone(), name: known.name.clone(), state, since: known.since }
            })
            .collect()
    }
}

/// The result of a load, which counts as failed when it broke off: the file is not tried again before it changes.
fn whole(path: PathBuf, result: Result<Result<Loaded, LoadError>, JoinError>) -> Result<Loaded, LoadError> {
    result.unwrap_or_else(|error| {
        let reason = error.to_string();
        tracing::error!("{}: loading broke off: {reason}", path.display());
        Err(LoadError::BrokeOff { path, reason })
    })
}

#[cfg(test)]
mod tests;
