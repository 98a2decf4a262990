//! The catalog that serves now, and the task that keeps it up to date: it is woken by the file system, and looks twice a second in
//! case nothing woke it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use hatchery_core::{Model, ModelError};
use hatchery_engine::{CatalogSnapshot, CatalogSource};
use notify::{RecursiveMode, Watcher};
use tokio::sync::{mpsc, watch};

use crate::catalog::Catalog;
use crate::catalog::draining::{Draining, DrainingRevision};
use crate::catalog::loader::{LoadOptions, Loader, SETTLE};
use crate::catalog::scan::is_ignored;
use crate::catalog::settings::Settings;
use crate::error::LoadError;
use crate::runtime::engine::Engine;

/// How often the directory is looked at when nothing says that it has changed: what is put into a folder right after the folder was made
/// may go unnoticed, and new code is to serve within a second all the same.
const POLL: Duration = Duration::from_millis(500);

/// How soon it is looked at again while something has not settled.
const AGAIN: Duration = Duration::from_millis(50);

/// The way to the current [`Catalog`]. Cheap to clone; watching ends when the last clone is dropped.
#[derive(Clone)]
pub struct CatalogHandle(Arc<Shared>);

struct Shared {
    directory: PathBuf,
    engine: Arc<Engine>,
    current: ArcSwap<Catalog>,
    generation: watch::Sender<u64>,
    /// Held to look at the directory and to publish, never while something is compiled.
    loader: tokio::sync::Mutex<Loader>,
    /// Counts up when a load begins to compile and when it ends.
    activity: Arc<watch::Sender<u64>>,
    /// How many callers want no catalog before all loads have ended.
    holds: AtomicUsize,
    draining: Mutex<Draining>,
}

impl CatalogHandle {
    /// Loads everything in `directory` once. Files that cannot be used are in the catalog's `files` with their reasons.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub async fn open(directory: impl Into<PathBuf>, options: LoadOptions) -> Result<Self, LoadError> {
        let handle = Self::new(directory.into(), options).await?;
        handle.0.reload().await;
        handle.drive();
        Ok(handle)
    }

    /// As [`CatalogHandle::open`], but returns as soon as the directory was looked at. Components and apps are in the catalog as they are
    /// loaded; [`CatalogHandle::loaded`] waits for them.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub async fn start(directory: impl Into<PathBuf>, options: LoadOptions) -> Result<Self, LoadError> {
        let handle = Self::new(directory.into(), options).await?;
        handle.0.pass(Some(Duration::ZERO)).await;
        handle.drive();
        Ok(handle)
    }

    async fn new(directory: PathBuf, options: LoadOptions) -> Result<Self, LoadError> {
        if let Err(source) = tokio::fs::read_dir(&directory).await {
            return Err(LoadError::Read { path: directory, source });
        }
        let activity = Arc::new(watch::Sender::new(0));
        let (engine, drain_timeout) = (options.engine.clone(), options.drain_timeout);
        let loader = Loader::new(directory.clone(), options, activity.clone());
        Ok(Self(Arc::new(Shared {
            engine,
            draining: Mutex::new(Draining::new(drain_timeout)),
            current: ArcSwap::from_pointee(loader.initial()),
            loader: tokio::sync::Mutex::new(loader),
            activity,
            holds: AtomicUsize::new(0),
            directory,
            generation: watch::Sender::new(0),
        })))
    }

    /// Takes over the results of loads as they come, in a task of its own.
    fn drive(&self) {
        let (shared, mut activity) = (Arc::downgrade(&self.0), self.0.activity.subscribe());
        // What happened before this counts as well.
        activity.mark_changed();
        tokio::spawn(async move {
            while activity.changed().await.is_ok() {
                let Some(shared) = shared.upgrade() else { return };
                shared.pass(None).await;
            }
        });
    }

    /// Waits until no load is under way.
    pub async fn loaded(&self) {
        self.0.settle().await;
    }

    /// The catalog that serves now.
    pub fn current(&self) -> Arc<Catalog> {
        self.0.current.load_full()
    }

    /// The model that a component offers now as `component:NAME/model`.
    ///
    /// # Errors
    /// When none does.
    pub fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.current().model(name)
    }

    /// Revisions that were replaced, and that runs still use.
    pub fn draining(&self) -> Vec<DrainingRevision> {
        self.0.draining().report()
    }

    /// Generation numbers as they come.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// Looks at the directory now, without waiting for files to settle, and returns the catalog of what is there when all is loaded.
    pub async fn reload_now(&self) -> Arc<Catalog> {
        self.0.reload().await;
        self.current()
    }

    /// What is wrong with limits that were raised beyond what the engine was made for, in a sentence.
    pub fn pool_overflow(&self, settings: &Settings) -> Option<String> {
        settings.limits().find_map(|limits| self.0.engine.pool_overflow(limits))
    }

    /// Applies settings of components. When this returns, new calls of every component that serves have them, whatever is being compiled.
    /// Components whose configuration or limits differ are then described again, which [`CatalogHandle::loaded`] waits for. Calls that are
    /// under way go on as they began.
    pub async fn configure(&self, settings: Settings) {
        let mut loader = self.0.loader.lock().await;
        loader.configure(settings);
        self.0.publish(&mut loader).await;
        drop(loader);
        self.0.pass(Some(SETTLE)).await;
    }

    /// Starts watching, in a task of its own. New code serves within a second of its file.
    pub fn watch(&self) {
        let (nudge, nudged) = mpsc::channel(1);
        let watcher = watch_files(&self.0.directory, nudge.clone());
        if let Err(error) = &watcher {
            let path = self.0.directory.display();
            tracing::warn!("{path}: changes are seen a little later, as it cannot be watched: {error}");
        }
        tokio::spawn(keep_current(Arc::downgrade(&self.0), nudged, (watcher, nudge)));
    }
}

impl CatalogSource for CatalogHandle {
    fn snapshot(&self) -> CatalogSnapshot {
        let catalog = self.current();
        CatalogSnapshot { generation: catalog.generation, resolver: catalog }
    }
}

impl Shared {
    /// Looks at the directory if `look` says for how long files must have been the same, takes over what has been loaded, and publishes it
    /// unless somebody wants all at once.
    async fn pass(&self, look: Option<Duration>) -> Pass {
        let mut loader = self.loader.lock().await;
        if let Some(settle) = look {
            loader.look(settle).await;
        }
        loader.collect();
        let pass = Pass { is_loading: loader.is_loading(), is_unsettled: loader.is_unsettled() };
        if !pass.is_loading || self.holds.load(Ordering::Relaxed) == 0 {
            self.publish(&mut loader).await;
        }
        pass
    }

    /// Publishes what has changed. Callers hold the lock, so that catalogs follow each other.
    async fn publish(&self, loader: &mut Loader) {
        let current = self.current.load_full();
        if let Some(catalog) = loader.publish(&current).await {
            let generation = catalog.generation;
            let catalog = Arc::new(catalog);
            let replaced = self.current.swap(catalog.clone());
            self.draining().replace(&replaced, &catalog);
            if generation != replaced.generation {
                self.generation.send_replace(generation);
            }
        }
        let unused = self.draining().sweep();
        if !unused.is_empty() {
            // What holds a connection may take its time to let go of it.
            tokio::spawn(async move {
                for app in unused {
                    app.close().await;
                }
            });
        }
    }

    /// Loads what is there and publishes it all at once.
    async fn reload(&self) {
        let _hold = Hold::new(&self.holds);
        self.pass(Some(Duration::ZERO)).await;
        self.settle().await;
    }

    /// Takes over the results of loads until none is under way.
    async fn settle(&self) {
        let mut activity = self.activity.subscribe();
        while self.pass(None).await.is_loading {
            // The sender is ours: it is there.
            let _ = activity.changed().await;
        }
    }

    fn draining(&self) -> MutexGuard<'_, Draining> {
        self.draining.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a pass came to.
struct Pass {
    is_loading: bool,
    /// True when something has not settled yet: look again soon.
    is_unsettled: bool,
}

/// Delays catalogs until all loads have ended, while it is there.
struct Hold<'a>(&'a AtomicUsize);

impl<'a> Hold<'a> {
    fn new(holds: &'a AtomicUsize) -> Self {
        holds.fetch_add(1, Ordering::Relaxed);
        Self(holds)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn watch_files(directory: &Path, nudge: mpsc::Sender<()>) -> notify::Result<notify::RecommendedWatcher> {
    let served = directory.canonicalize()?;
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| says_nothing(&served, &event)) {
            return;
        }
        // A nudge that is waiting already says the same.
        let _ = nudge.try_send(());
    })?;
    watcher.watch(&directory.canonicalize()?, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Reading changes nothing, and what is in hidden folders is not looked at: sessions are kept in one, and written all the time.
fn says_nothing(directory: &Path, event: &notify::Event) -> bool {
    event.kind.is_access() || (!event.paths.is_empty() && event.paths.iter().all(|path| is_ignored(directory, path)))
}

/// Looks at the directory when nudged, and from time to time. `alive` is what nudges; it is kept until the end.
async fn keep_current<A: Send>(shared: Weak<Shared>, mut nudged: mpsc::Receiver<()>, alive: A) {
    loop {
        // Both say the same: look.
        let _ = tokio::time::timeout(POLL, nudged.recv()).await;
        loop {
            let Some(shared) = shared.upgrade() else {
                drop(alive);
                return;
            };
            if !shared.pass(Some(SETTLE)).await.is_unsettled {
                break;
            }
            drop(shared);
            tokio::time::sleep(AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{AccessKind, CreateKind, EventKind};

    use super::*;

    fn event(kind: EventKind, paths: &[&str]) -> notify::Event {
        let event = notify::Event::new(kind);
        paths.iter().fold(event, |event, path| event.add_path(path.into()))
    }

    #[test]
    fn only_changes_of_what_is_served_wake_the_loader() {
        let served = Path::new("/home/.me/agents");
        let created = EventKind::Create(CreateKind::File);
        assert!(says_nothing(served, &event(created, &["/home/.me/agents/.hatchery/sessions.db-wal"])));
        assert!(says_nothing(served, &event(created, &["/home/.me/agents/dice/target/x.wasm"])));
        assert!(says_nothing(served, &event(EventKind::Access(AccessKind::Any), &["/home/.me/agents/a.wasm"])));
        assert!(!says_nothing(served, &event(created, &["/home/.me/agents/a.wasm"])));
        assert!(!says_nothing(served, &event(created, &["/home/.me/agents/.x", "/home/.me/agents/a.wasm"])));
        assert!(!says_nothing(served, &event(EventKind::Other, &[])), "an overflow names no path");
    }
}
