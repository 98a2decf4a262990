//! File system events of the folders that a scan visits. A recursive watch would also report each write to a session
//! database in a hidden folder: a run makes dozens of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use notify::event::{EventKind, ModifyKind};
use notify::{ErrorKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use crate::catalog::scan::is_ignored;

/// Watches folders, without their subfolders.
pub(super) struct FolderWatch {
    /// The served folder as the scan names it, and as events do.
    directory: PathBuf,
    root: PathBuf,
    /// `None` if the system cannot watch files.
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    /// True once a folder could not be watched. The limit of a system is reported once, and not for each folder above
    /// it.
    has_failed: bool,
    /// Paths that were removed or renamed since the last update. Their watches follow the old folders.
    moved: Arc<Mutex<Vec<PathBuf>>>,
    /// Keeps the channel open if there is no watcher.
    _wake: mpsc::Sender<()>,
}

impl FolderWatch {
    /// Creates a watch of no folder yet. Events are sent to `wake`.
    pub(super) fn new(directory: &Path, wake: mpsc::Sender<()>) -> Self {
        let moved = Arc::<Mutex<Vec<PathBuf>>>::default();
        let root = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let watcher = watcher(root.clone(), moved.clone(), wake.clone());
        let watcher = watcher.inspect_err(|error| warn(directory, error)).ok();
        let (directory, watched) = (directory.to_owned(), BTreeSet::new());
        Self { directory, root, watcher, watched, has_failed: false, moved, _wake: wake }
    }

    /// Watches exactly these folders. Returns true if there are new ones: earlier writes to them caused no event.
    pub(super) fn update(&mut self, folders: &BTreeSet<PathBuf>) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        let moved = std::mem::take(&mut *self.moved.lock_unpoisoned());
        let absolute = |folder: &PathBuf| folder.strip_prefix(&self.directory).map(|inside| self.root.join(inside));
        let folders: BTreeSet<_> = folders.iter().filter_map(|folder| absolute(folder).ok()).collect();
        let is_kept = |folder: &PathBuf| folders.contains(folder) && !moved.iter().any(|path| folder.starts_with(path));
        for folder in self.watched.extract_if(.., |folder| !is_kept(folder)) {
            // The system has ended the watch already if the folder was removed.
            let _ = watcher.unwatch(&folder);
        }
        let new: Vec<_> = folders.difference(&self.watched).cloned().collect();
        for folder in &new {
            let result = watcher.watch(folder, RecursiveMode::NonRecursive);
            if let Err(error) = result.or_else(ignore_missing)
                && !std::mem::replace(&mut self.has_failed, true)
            {
                warn(folder, &error);
            }
        }
        let has_new = !new.is_empty();
        self.watched.extend(new);
        has_new
    }
}

/// Ignores that a folder does not exist: it was removed since the scan.
fn ignore_missing(error: notify::Error) -> notify::Result<()> {
    if matches!(error.kind, ErrorKind::PathNotFound) { Ok(()) } else { Err(error) }
}

fn warn(folder: &Path, error: &notify::Error) {
    tracing::warn!(
        "{}: cannot watch it, and perhaps other folders, for changes, so they are detected a little later: {error}",
        folder.display()
    );
}

fn watcher(
    directory: PathBuf,
    moved: Arc<Mutex<Vec<PathBuf>>>,
    wake: mpsc::Sender<()>,
) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if let Ok(event) = event {
            if is_irrelevant(&directory, &event) {
                return;
            }
            if matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))) {
                moved.lock_unpoisoned().extend(event.paths);
            }
        }
        // If the channel is full, a wake-up is already pending.
        let _ = wake.try_send(());
    })
}

/// Returns true for events that need no scan: read access, and changes of ignored files and folders.
fn is_irrelevant(directory: &Path, event: &notify::Event) -> bool {
    event.kind.is_access() || (!event.paths.is_empty() && event.paths.iter().all(|path| is_ignored(directory, path)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use notify::event::{AccessKind, CreateKind};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;
    use crate::catalog::scan::scan;

    fn event(kind: EventKind, paths: &[&str]) -> notify::Event {
        let event = notify::Event::new(kind);
        paths.iter().fold(event, |event, path| event.add_path(path.into()))
    }

    #[test]
    fn only_changes_of_what_is_served_wake_the_loader() {
        let served = Path::new("/home/.me/agents");
        let created = EventKind::Create(CreateKind::File);
        assert!(is_irrelevant(served, &event(created, &["/home/.me/agents/.hatchery"])));
        assert!(is_irrelevant(served, &event(created, &["/home/.me/agents/dice/target"])));
        assert!(is_irrelevant(served, &event(EventKind::Access(AccessKind::Any), &["/home/.me/agents/a.wasm"])));
        assert!(!is_irrelevant(served, &event(created, &["/home/.me/agents/a.wasm"])));
        assert!(!is_irrelevant(served, &event(created, &["/home/.me/agents/.x", "/home/.me/agents/a.wasm"])));
        assert!(!is_irrelevant(served, &event(EventKind::Other, &[])), "an overflow names no path");
    }

    /// A served folder with its watch.
    struct Served {
        root: PathBuf,
        watch: FolderWatch,
        wakeups: mpsc::Receiver<()>,
        _directory: tempfile::TempDir,
    }

    impl Served {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path().canonicalize().unwrap();
            let (wake, wakeups) = mpsc::channel(1);
            Self { watch: FolderWatch::new(&root, wake), root, wakeups, _directory: directory }
        }

        fn update(&mut self) -> bool {
            self.watch.update(&scan(&self.root, &[]).folders)
        }

        async fn wait_for_event(&mut self) {
            tokio::time::timeout(Duration::from_secs(20), self.wakeups.recv()).await.expect("no event").unwrap();
        }

        /// Waits until there are folders that were not watched.
        async fn wait_for_new_folders(&mut self) {
            while !self.update() {
                self.wait_for_event().await;
            }
        }

        /// Writes and removes a file, and waits for the event of its removal.
        async fn check_events_of(&mut self, folder: &str) {
            let file = self.root.join(folder).join("agent.yaml");
            fs::write(&file, "name: a").unwrap();
            fs::remove_file(&file).unwrap();
            while !self.watch.moved.lock_unpoisoned().contains(&file) {
                self.wait_for_event().await;
            }
        }
    }

    #[tokio::test]
    async fn a_folder_is_watched_from_when_it_was_found_and_again_when_another_took_its_place() {
        let mut served = Served::new();
        assert!(served.update());
        fs::create_dir_all(served.root.join("a/b")).unwrap();
        served.wait_for_event().await;
        served.wait_for_new_folders().await;
        served.check_events_of("a/b").await;
        let elsewhere = tempfile::tempdir().unwrap();
        for folder in ["a/b", "a"] {
            fs::rename(served.root.join("a"), elsewhere.path().join(folder.replace('/', "-"))).unwrap();
            fs::create_dir_all(served.root.join("a/b")).unwrap();
            served.wait_for_new_folders().await;
            served.check_events_of(folder).await;
        }
    }

    /// Counts warnings.
    #[derive(Clone, Default)]
    struct WarningCount(Arc<AtomicUsize>);

    impl Subscriber for WarningCount {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == Level::WARN
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[cfg(unix)]
    #[test]
    fn folders_that_cannot_be_watched_are_reported_once_and_missing_ones_are_not() {
        let mut served = Served::new();
        let warnings = WarningCount::default();
        let mut update = |names: &[&str]| {
            let folders: BTreeSet<_> = names.iter().map(|name| served.root.join(name)).collect();
            tracing::subscriber::with_default(warnings.clone(), || served.watch.update(&folders));
            warnings.0.load(Ordering::Relaxed)
        };
        assert_eq!(update(&["missing"]), 0);
        // A link to itself cannot be watched.
        for name in ["a", "b"] {
            std::os::unix::fs::symlink(name, served.root.join(name)).unwrap();
        }
        assert_eq!(update(&["a", "b"]), 1);
    }

    #[tokio::test]
    async fn hidden_folders_and_folders_of_build_tools_are_not_watched() {
        let mut served = Served::new();
        for folder in [".hatchery", "dice/target/debug", "dice/venv/lib", "dice/__pycache__", "dice/src"] {
            fs::create_dir_all(served.root.join(folder)).unwrap();
        }
        served.update();
        let watched: Vec<_> =
            served.watch.watched.iter().map(|path| path.strip_prefix(&served.root).unwrap()).collect();
        assert_eq!(watched, [Path::new(""), Path::new("dice"), Path::new("dice/src")]);
    }
}
