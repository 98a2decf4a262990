//! Subscriptions of a client to changes of resources.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hatchery_core::sync::MutexExt;
use tokio::sync::{Notify, broadcast};

use super::files::{Stamp, stamp};

/// Maximum number of resources that one client watches.
const MAX_WATCHED: usize = 256;

/// The time between two looks at watched files.
const FILE_INTERVAL: Duration = Duration::from_secs(1);

/// A change of the artifacts of a user.
#[derive(Debug, Clone)]
pub(super) struct ArtifactChange {
    pub(super) user: Arc<str>,
    pub(super) uri: Arc<str>,
}

/// A resource that a client watches.
pub(super) enum Watched {
    /// An artifact of this user.
    Artifact(String),
    File(PathBuf),
}

/// The resources that one client watches. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Subscriptions(Arc<SubscriptionsInner>);

#[derive(Default)]
struct SubscriptionsInner {
    resources: Mutex<BTreeMap<String, WatchedState>>,
    /// Notified when a resource was added.
    added: Notify,
}

enum WatchedState {
    Artifact(String),
    File { path: PathBuf, seen: Option<Stamp> },
}

impl Subscriptions {
    /// Watches a resource.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn add(&self, uri: String, watched: Watched) -> Result<(), String> {
        let mut resources = self.0.resources.lock_unpoisoned();
        if resources.len() >= MAX_WATCHED && !resources.contains_key(&uri) {
            return Err(format!("a client can watch at most {MAX_WATCHED} resources"));
        }
        let state = match watched {
            Watched::Artifact(user) => WatchedState::Artifact(user),
            Watched::File(path) => WatchedState::File { seen: stamp(&path), path },
        };
        resources.insert(uri, state);
        self.0.added.notify_one();
        Ok(())
    }

    pub(super) fn remove(&self, uri: &str) {
        self.0.resources.lock_unpoisoned().remove(uri);
    }

    /// Waits until a watched resource has changed, and returns its URI. Never returns if the host stops.
    pub(super) async fn changed(&self, changes: &mut broadcast::Receiver<ArtifactChange>) -> String {
        loop {
            if let Some(uri) = self.changed_file() {
                return uri;
            }
            let has_files = self.has_files();
            tokio::select! {
                change = changes.recv() => match change {
                    Ok(change) if self.has_artifact(&change) => return change.uri.to_string(),
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
                () = tokio::time::sleep(FILE_INTERVAL), if has_files => {}
                () = self.0.added.notified() => {}
            }
        }
    }

    fn has_artifact(&self, change: &ArtifactChange) -> bool {
        let resources = self.0.resources.lock_unpoisoned();
        matches!(resources.get(&*change.uri), Some(WatchedState::Artifact(user)) if **user == *change.user)
    }

    fn has_files(&self) -> bool {
        let resources = self.0.resources.lock_unpoisoned();
        resources.values().any(|state| matches!(state, WatchedState::File { .. }))
    }

    /// Returns a file that has changed since the last look.
    fn changed_file(&self) -> Option<String> {
        let mut resources = self.0.resources.lock_unpoisoned();
        resources.iter_mut().find_map(|(uri, state)| {
            let WatchedState::File { path, seen } = state else { return None };
            let now = stamp(path);
            (std::mem::replace(seen, now) != now).then(|| uri.clone())
        })
    }
}
