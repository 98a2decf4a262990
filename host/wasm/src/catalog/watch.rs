//! Hot reload: the current catalog, and the task that keeps it up to date. File system events wake the task; it also
//! polls in case an event is missed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use hatchery_core::sync::MutexExt;
use hatchery_core::{AgentKind, Model, ModelError};
use hatchery_engine::{CatalogSnapshot, CatalogSource, Factories};
use tokio::sync::{mpsc, watch};

use crate::catalog::Catalog;
use crate::catalog::draining::{DrainingRevision, DrainingRevisions};
use crate::catalog::folder_watch::FolderWatch;
use crate::catalog::inspect::{Inspection, inspect};
use crate::catalog::loader::{CatalogUpdate, DEBOUNCE, LoadOptions, LoadPolicy, Loader};
use crate::catalog::revisions::Revisions;
use crate::catalog::scan::is_ignored;
use crate::catalog::settings::Settings;
use crate::error::LoadError;
use crate::runtime::engine::Engine;

/// Interval of scans without an event. Files that are created right after their folder may cause no event, and new code
/// must still serve within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Interval of scans while files may still be changing.
const DEBOUNCE_INTERVAL: Duration = Duration::from_millis(50);

/// A handle to the current [`Catalog`]. Cheap to clone; watching ends when the last clone is dropped.
#[derive(Clone)]
pub struct CatalogHandle(Arc<CatalogInner>);

struct CatalogInner {
    directory: PathBuf,
    engine: Arc<Engine>,
    revisions: Option<Revisions>,
    load_policy: Mutex<Option<LoadPolicy>>,
    current: ArcSwap<Catalog>,
    generation: watch::Sender<u64>,
    /// Incremented when the state of a file, the catalog or the draining revisions have changed.
    changes: watch::Sender<u64>,
    /// Held while scanning and publishing, never while compiling.
    loader: tokio::sync::Mutex<Loader>,
    /// Incremented when a load starts to compile and when it ends.
    activity: Arc<watch::Sender<u64>>,
    /// Number of callers that hold back new catalogs until all loads have ended.
    publish_holds: AtomicUsize,
    draining: Mutex<DrainingRevisions>,
}

impl CatalogHandle {
    /// Loads everything in `directory` once. Files that cannot be used are in the catalog's `files` with their reasons.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub async fn open(directory: impl Into<PathBuf>, options: LoadOptions) -> Result<Self, LoadError> {
        let handle = Self::new(directory.into(), options).await?;
        handle.0.reload().await;
        handle.spawn_result_collector();
        Ok(handle)
    }

    /// Like [`CatalogHandle::open`], but returns as soon as the directory was scanned. Components and apps appear in
    /// the catalog as they are loaded; [`CatalogHandle::wait_until_loaded`] waits for them.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub async fn start(directory: impl Into<PathBuf>, options: LoadOptions) -> Result<Self, LoadError> {
        let handle = Self::new(directory.into(), options).await?;
        handle.0.run_pass(Some(Duration::ZERO)).await;
        handle.spawn_result_collector();
        Ok(handle)
    }

    async fn new(directory: PathBuf, options: LoadOptions) -> Result<Self, LoadError> {
        if let Err(source) = tokio::fs::read_dir(&directory).await {
            return Err(LoadError::Read { path: directory, source });
        }
        let activity = Arc::new(watch::Sender::new(0));
        let (engine, drain_timeout) = (options.engine.clone(), options.drain_timeout);
        let (revisions, load_policy) = (options.revisions.clone(), options.load_policy.clone());
        let loader = Loader::new(directory.clone(), options, activity.clone());
        Ok(Self(Arc::new(CatalogInner {
            engine,
            revisions,
            load_policy: Mutex::new(load_policy),
            draining: Mutex::new(DrainingRevisions::new(drain_timeout)),
            current: ArcSwap::from_pointee(loader.initial()),
            loader: tokio::sync::Mutex::new(loader),
            activity,
            publish_holds: AtomicUsize::new(0),
            directory,
            generation: watch::Sender::new(0),
            changes: watch::Sender::new(0),
        })))
    }

    /// Spawns the task that receives the results of loads.
    fn spawn_result_collector(&self) {
        let (shared, mut activity) = (Arc::downgrade(&self.0), self.0.activity.subscribe());
        // Activity before the subscription counts as well.
        activity.mark_changed();
        tokio::spawn(async move {
            while activity.changed().await.is_ok() {
                let Some(shared) = shared.upgrade() else { return };
                shared.run_pass(None).await;
            }
        });
    }

    /// Waits until no load is running.
    pub async fn wait_until_loaded(&self) {
        self.0.wait_for_loads().await;
    }

    /// Returns the current catalog.
    pub fn current(&self) -> Arc<Catalog> {
        self.0.current.load_full()
    }

    /// Returns the model `component:NAME/model` of the current catalog.
    ///
    /// # Errors
    /// If no component exports it.
    pub fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.current().model(name)
    }

    /// Returns revisions that were replaced but are still used by runs.
    pub fn draining(&self) -> Vec<DrainingRevision> {
        self.0.draining().report()
    }

    /// Returns a receiver of generation numbers.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }

    /// Returns a receiver that is notified when the state of a file, the catalog or the draining revisions have
    /// changed.
    pub fn subscribe_to_changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Inspects a stored revision of a component, without running it with any of its grants.
    ///
    /// # Errors
    /// If the bytes cannot be loaded.
    pub async fn inspect_revision(&self, name: &str, bytes: Vec<u8>) -> Result<Inspection, LoadError> {
        let options = self.0.loader.lock().await.options().clone();
        inspect(&options, name, bytes).await
    }

    /// Returns the agent classes of extensions, for YAML agents, and the folders that components may write.
    pub async fn agent_options(&self) -> (Factories<AgentKind>, Vec<PathBuf>) {
        let loader = self.0.loader.lock().await;
        (loader.options().agent_classes.clone(), loader.options().settings.writable_folders())
    }

    /// Returns the served folder.
    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// Returns true for a path in the served folder that scans reach: not hidden, and not of a build tool.
    pub fn is_scanned(&self, path: &Path) -> bool {
        !is_ignored(&self.0.directory, path)
    }

    /// Returns the stored revisions of components. `None` if none are stored.
    pub fn revisions(&self) -> Option<&Revisions> {
        self.0.revisions.as_ref()
    }

    /// Returns the policy that decides whether a file may be loaded. `None` if every file may.
    pub fn load_policy(&self) -> Option<LoadPolicy> {
        self.0.load_policy.lock_unpoisoned().clone()
    }

    /// Scans the directory now, without the debounce delay. Returns the catalog when everything is loaded.
    pub async fn reload_now(&self) -> Arc<Catalog> {
        self.0.reload().await;
        self.current()
    }

    /// Returns a warning if a limit was raised beyond the capacity of the engine's memory pool.
    pub fn pool_overflow(&self, settings: &Settings) -> Option<String> {
        settings.limits().find_map(|limits| self.0.engine.pool_overflow(limits))
    }

    /// Applies component settings. When this returns, new calls of every loaded component use them, even while others
    /// are being compiled. Running calls keep their settings. Components whose configuration or limits changed are
    /// described again in the background; [`CatalogHandle::wait_until_loaded`] waits for that.
    pub async fn configure(&self, settings: Settings) {
        let mut loader = self.0.loader.lock().await;
        loader.configure(settings);
        self.0.publish(&mut loader).await;
        drop(loader);
        self.0.run_pass(Some(DEBOUNCE)).await;
    }

    /// Replaces options. When this returns, new runs use YAML agents with the new items; runs in progress keep theirs.
    pub async fn update(&self, update: CatalogUpdate) {
        if let Some(timeout) = update.drain_timeout {
            self.0.draining().set_timeout(timeout);
        }
        if let Some(load_policy) = &update.load_policy {
            self.0.load_policy.lock_unpoisoned().clone_from(load_policy);
        }
        let mut loader = self.0.loader.lock().await;
        loader.update(update);
        self.0.publish(&mut loader).await;
        drop(loader);
        self.0.run_pass(Some(DEBOUNCE)).await;
    }

    /// Spawns the task that watches the directory. New code serves within a second after its file was written.
    pub fn watch(&self) {
        let (wake, wakeups) = mpsc::channel(1);
        let watch = FolderWatch::new(&self.0.directory, wake);
        tokio::spawn(keep_current(Arc::downgrade(&self.0), wakeups, watch));
    }
}

impl CatalogSource for CatalogHandle {
    fn snapshot(&self) -> CatalogSnapshot {
        let catalog = self.current();
        CatalogSnapshot { generation: catalog.generation, resolver: catalog }
    }
}

impl CatalogInner {
    /// Runs one pass: scans the directory if `scan` is the time for which files must have been unchanged, collects the
    /// results of loads, and publishes them unless a [`PublishHold`] exists.
    async fn run_pass(&self, scan: Option<Duration>) -> PassOutcome {
        let mut loader = self.loader.lock().await;
        if let Some(debounce) = scan {
            loader.scan(debounce).await;
        }
        loader.collect_results();
        let outcome = PassOutcome { is_loading: loader.is_loading(), is_changing: loader.is_changing() };
        if !outcome.is_loading || self.publish_holds.load(Ordering::Relaxed) == 0 {
            self.publish(&mut loader).await;
        }
        outcome
    }

    /// Publishes a new catalog if something has changed. Callers hold the lock, so that catalogs are published in
    /// order.
    async fn publish(&self, loader: &mut Loader) {
        let current = self.current.load_full();
        if let Some(catalog) = loader.publish(&current).await {
            let generation = catalog.generation;
            let catalog = Arc::new(catalog);
            let replaced = self.current.swap(catalog.clone());
            self.draining().replace(&replaced, &catalog);
            self.changes.send_modify(|count| *count += 1);
            if generation != replaced.generation {
                self.generation.send_replace(generation);
            }
        }
        let unused = self.draining().sweep();
        if !unused.is_empty() {
            self.changes.send_modify(|count| *count += 1);
            // Closing connections may take time.
            tokio::spawn(async move {
                for app in unused {
                    app.close().await;
                }
            });
        }
    }

    /// Loads everything and publishes it as one catalog.
    async fn reload(&self) {
        let _hold = PublishHold::new(&self.publish_holds);
        self.run_pass(Some(Duration::ZERO)).await;
        self.wait_for_loads().await;
    }

    /// Takes over results of loads until none is running.
    async fn wait_for_loads(&self) {
        let mut activity = self.activity.subscribe();
        while self.run_pass(None).await.is_loading {
            // `self` owns the sender, so this cannot fail.
            let _ = activity.changed().await;
        }
    }

    fn draining(&self) -> MutexGuard<'_, DrainingRevisions> {
        self.draining.lock_unpoisoned()
    }
}

/// The result of a pass.
struct PassOutcome {
    is_loading: bool,
    /// True if files may still be changing, so that the next scan should follow soon.
    is_changing: bool,
}

/// While it exists, no catalog is published before all loads have ended.
struct PublishHold<'a>(&'a AtomicUsize);

impl<'a> PublishHold<'a> {
    fn new(holds: &'a AtomicUsize) -> Self {
        holds.fetch_add(1, Ordering::Relaxed);
        Self(holds)
    }
}

impl Drop for PublishHold<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Scans the directory when woken, and at an interval.
async fn keep_current(shared: Weak<CatalogInner>, mut wakeups: mpsc::Receiver<()>, mut watch: FolderWatch) {
    loop {
        let Some(catalog) = shared.upgrade() else { return };
        let outcome = catalog.run_pass(Some(DEBOUNCE)).await;
        let folders = catalog.loader.lock().await.folders();
        drop(catalog);
        if watch.update(&folders) {
            continue;
        }
        if outcome.is_changing {
            tokio::time::sleep(DEBOUNCE_INTERVAL).await;
        } else {
            let _ = tokio::time::timeout(POLL_INTERVAL, wakeups.recv()).await;
        }
    }
}
