//! Load tasks: each load runs in its own task, so that nothing waits for a slow one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use super::load::LoadedFile;
use crate::catalog::scan::FileVersion;
use crate::contract::component::ComponentSettings;
use crate::error::LoadError;

/// A running load. Dropping it ends the load and the process that compiles for it.
pub(super) struct LoadTask {
    id: u64,
    /// The file's version when the load began.
    pub(super) version: FileVersion,
    /// The component's settings when the load began.
    pub(super) settings: ComponentSettings,
    is_compiling: Arc<AtomicBool>,
    _task: JoinSet<()>,
}

/// The result of a finished load.
pub(super) struct LoadResult {
    id: u64,
    pub(super) path: PathBuf,
    pub(super) took: Duration,
    pub(super) result: Result<LoadedFile, LoadError>,
}

/// All running loads, by file.
pub(super) struct LoadTasks {
    running: HashMap<PathBuf, LoadTask>,
    started: u64,
    sender: mpsc::UnboundedSender<LoadResult>,
    receiver: mpsc::UnboundedReceiver<LoadResult>,
    slots: Arc<Semaphore>,
    activity: Arc<watch::Sender<u64>>,
}

impl LoadTasks {
    /// Reads, checks and describes at most one component per core at a time. `activity` is incremented when a load
    /// starts to compile and when it ends.
    pub(super) fn new(activity: Arc<watch::Sender<u64>>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let slots = Arc::new(Semaphore::new(cores));
        Self { running: HashMap::new(), started: 0, sender, receiver, slots, activity }
    }

    /// Starts a load. Replaces a running one of the same file.
    pub(super) fn start<F>(
        &mut self,
        path: PathBuf,
        version: FileVersion,
        settings: ComponentSettings,
        load: impl FnOnce(LoadPermit) -> F,
    ) where
        F: Future<Output = Result<LoadedFile, LoadError>> + Send + 'static,
    {
        self.started += 1;
        let (id, started_at) = (self.started, Instant::now());
        let is_compiling = Arc::new(AtomicBool::new(false));
        let (slots, activity) = (Some(self.slots.clone()), Some(self.activity.clone()));
        let work = load(LoadPermit { slots, slot: None, is_compiling: is_compiling.clone(), activity });
        let (sender, activity, file) = (self.sender.clone(), self.activity.clone(), path.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            // The inner task turns a panic into a result.
            let mut inner = JoinSet::new();
            inner.spawn(work);
            let Some(output) = inner.join_next().await else { return };
            let result = or_panicked(&file, output);
            // Fails only if the loader was dropped.
            let _ = sender.send(LoadResult { id, path: file, took: started_at.elapsed(), result });
            activity.send_modify(|count| *count = count.wrapping_add(1));
        });
        self.running.insert(path, LoadTask { id, version, settings, is_compiling, _task: task });
    }

    /// Waits until a load starts to compile or ends.
    #[cfg(test)]
    pub(super) async fn wait(&self) {
        let mut activity = self.activity.subscribe();
        while *activity.borrow_and_update() == 0 {
            activity.changed().await.unwrap();
        }
    }

    /// Aborts the load of a file, if there is one.
    pub(super) fn abort(&mut self, path: &Path) {
        self.running.remove(path);
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.running.contains_key(path)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns the files that are being compiled.
    pub(super) fn compiling_files(&self) -> impl Iterator<Item = &Path> {
        let compiling = self.running.iter().filter(|(_, task)| task.is_compiling.load(Ordering::Relaxed));
        compiling.map(|(path, _)| path.as_path())
    }

    /// Returns the next load that has ended, with its result.
    pub(super) fn next_finished(&mut self) -> Option<(LoadTask, LoadResult)> {
        while let Ok(finished) = self.receiver.try_recv() {
            // A load that was aborted may have finished just before.
            if self.running.get(&finished.path).is_some_and(|task| task.id == finished.id)
                && let Some(task) = self.running.remove(&finished.path)
            {
                return Some((task, finished));
            }
        }
        None
    }
}

/// Returns the result of a load, or an error if the load panicked. The file is then not loaded again before it changes.
pub(super) fn or_panicked(
    path: &Path,
    result: Result<Result<LoadedFile, LoadError>, JoinError>,
) -> Result<LoadedFile, LoadError> {
    result.unwrap_or_else(|error| {
        let reason = error.to_string();
        tracing::error!("{}: loading panicked: {reason}", path.display());
        Err(LoadError::Panicked { path: path.into(), reason })
    })
}

/// A semaphore permit that limits how many loads use a core.
#[derive(Default)]
pub(super) struct LoadPermit {
    slots: Option<Arc<Semaphore>>,
    slot: Option<OwnedSemaphorePermit>,
    is_compiling: Arc<AtomicBool>,
    activity: Option<Arc<watch::Sender<u64>>>,
}

impl LoadPermit {
    /// Waits for a free core.
    pub(super) async fn acquire(&mut self) {
        if let Some(slots) = &self.slots {
            self.slot = slots.clone().acquire_owned().await.ok();
        }
    }

    /// Releases the core while compiling, which has its own limit.
    pub(super) fn release(&mut self) {
        self.slot = None;
    }

    /// Reports that compiling begins.
    pub(super) fn begin_compiling(&self) {
        self.is_compiling.store(true, Ordering::Relaxed);
        if let Some(activity) = &self.activity {
            activity.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}
