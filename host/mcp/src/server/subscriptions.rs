//! Subscriptions of a client to changes of resources.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hatchery_core::sync::MutexExt;
use tokio::sync::{Notify, broadcast};

use super::files::{FileResource, Stamp};

/// Maximum number of resources that one client watches.
const MAX_WATCHED: usize = 256;

/// The interval at which watched files are checked.
const FILE_INTERVAL: Duration = Duration::from_secs(1);

/// A change of the artifacts of a user.
#[derive(Debug, Clone)]
pub(super) struct ArtifactChange {
    pub(super) user: Arc<str>,
    pub(super) uri: Arc<str>,
}

/// A resource that a client watches.
pub(super) enum SubscriptionTarget {
    /// An artifact of this user.
    Artifact(String),
    File(WatchedFile),
}

/// A file that need not exist yet.
#[derive(Clone)]
pub(super) struct WatchedFile {
    pub(super) resource: Arc<FileResource>,
    pub(super) path: PathBuf,
}

impl WatchedFile {
    fn stamp(&self) -> Option<Stamp> {
        self.resource.stamp(&self.path)
    }
}

/// The resources that one client watches. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Subscriptions(Arc<SubscriptionsInner>);

#[derive(Default)]
struct SubscriptionsInner {
    resources: Mutex<BTreeMap<String, SubscriptionState>>,
    /// Notified when a resource was added.
    added: Notify,
}

enum SubscriptionState {
    Artifact {
        user: String,
        /// True if a change may have been missed.
        is_missed: bool,
    },
    File {
        file: WatchedFile,
        seen: Option<Stamp>,
    },
}

impl Subscriptions {
    /// Watches a resource.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn add(&self, uri: String, target: SubscriptionTarget) -> Result<(), String> {
        let state = match target {
            SubscriptionTarget::Artifact(user) => SubscriptionState::Artifact { user, is_missed: false },
            SubscriptionTarget::File(file) => SubscriptionState::File { seen: file.stamp(), file },
        };
        let mut resources = self.0.resources.lock_unpoisoned();
        if resources.len() >= MAX_WATCHED && !resources.contains_key(&uri) {
            return Err(format!("a client can watch at most {MAX_WATCHED} resources"));
        }
        resources.insert(uri, state);
        self.0.added.notify_one();
        Ok(())
    }

    pub(super) fn remove(&self, uri: &str) {
        self.0.resources.lock_unpoisoned().remove(uri);
    }

    /// Waits until a watched resource has changed, and returns its URI. All watched artifacts count as changed if changes
    /// were missed. Never returns if the host stops.
    pub(super) async fn next_change(&self, changes: &mut broadcast::Receiver<ArtifactChange>) -> String {
        loop {
            if let Some(uri) = self.missed_artifact() {
                return uri;
            }
            let files = self.files();
            if let Some(uri) = self.changed_file(&files) {
                return uri;
            }
            tokio::select! {
                change = changes.recv() => match change {
                    Ok(change) if self.has_artifact(&change) => return change.uri.to_string(),
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => self.mark_artifacts(),
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
                () = tokio::time::sleep(FILE_INTERVAL), if !files.is_empty() => {}
                () = self.0.added.notified() => {}
            }
        }
    }

    fn has_artifact(&self, change: &ArtifactChange) -> bool {
        let resources = self.0.resources.lock_unpoisoned();
        matches!(resources.get(&*change.uri), Some(SubscriptionState::Artifact { user, .. }) if **user == *change.user)
    }

    /// Marks all artifacts, after changes of unknown ones.
    fn mark_artifacts(&self) {
        for state in self.0.resources.lock_unpoisoned().values_mut() {
            if let SubscriptionState::Artifact { is_missed, .. } = state {
                *is_missed = true;
            }
        }
    }

    /// Returns a marked artifact, and removes its mark.
    fn missed_artifact(&self) -> Option<String> {
        self.0.resources.lock_unpoisoned().iter_mut().find_map(|(uri, state)| match state {
            SubscriptionState::Artifact { is_missed, .. } => std::mem::take(is_missed).then(|| uri.clone()),
            SubscriptionState::File { .. } => None,
        })
    }

    fn files(&self) -> Vec<(String, WatchedFile)> {
        let resources = self.0.resources.lock_unpoisoned();
        let files = resources.iter().filter_map(|(uri, state)| match state {
            SubscriptionState::Artifact { .. } => None,
            SubscriptionState::File { file, .. } => Some((uri.clone(), file.clone())),
        });
        files.collect()
    }

    /// Returns one of `files` that has changed since the last look. The file system is read without the lock.
    fn changed_file(&self, files: &[(String, WatchedFile)]) -> Option<String> {
        let changed = files.iter().find(|(uri, file)| {
            let now = file.stamp();
            match self.0.resources.lock_unpoisoned().get_mut(uri) {
                Some(SubscriptionState::File { seen, .. }) => std::mem::replace(seen, now) != now,
                Some(SubscriptionState::Artifact { .. }) | None => false,
            }
        });
        changed.map(|(uri, _)| uri.clone())
    }
}
