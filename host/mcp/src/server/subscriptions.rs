//! Subscriptions of a client to changes of resources.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use hatchery_core::sync::MutexExt;
use hatchery_files::FileStamp;
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinSet;

use super::files::FileResource;

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

/// Returns the stamps of files, in their order. Not on a thread of the runtime: a file system may be slow.
async fn read_stamps(files: Vec<WatchedFile>) -> Vec<Option<FileStamp>> {
    let read = move || files.iter().map(|file| file.resource.stamp(&file.path)).collect::<Vec<_>>();
    // Fails only if the host stops.
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

/// The resources that one client watches. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Subscriptions(Arc<SubscriptionsInner>);

#[derive(Default)]
struct SubscriptionsInner {
    watched: Mutex<WatchedResources>,
    /// Notified when a file has changed.
    file_changed: Notify,
}

#[derive(Default)]
struct WatchedResources {
    /// The resources by URI.
    resources: BTreeMap<String, Subscription>,
    /// Checks the files. `None` if there are none; its drop ends the task.
    file_task: Option<JoinSet<()>>,
}

struct Subscription {
    content: WatchedContent,
    /// True if the client must be notified: a file has changed, or a change of an artifact may have been missed.
    is_changed: bool,
}

enum WatchedContent {
    Artifact { user: String },
    File { file: WatchedFile, seen: Option<FileStamp> },
}

impl Subscriptions {
    /// Watches a resource.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) async fn add(&self, uri: String, target: SubscriptionTarget) -> Result<(), String> {
        let content = match target {
            SubscriptionTarget::Artifact(user) => WatchedContent::Artifact { user },
            SubscriptionTarget::File(file) => {
                let seen = read_stamps(vec![file.clone()]).await.pop().flatten();
                WatchedContent::File { file, seen }
            }
        };
        let is_file = matches!(content, WatchedContent::File { .. });
        let mut watched = self.0.watched.lock_unpoisoned();
        if watched.resources.len() >= MAX_WATCHED && !watched.resources.contains_key(&uri) {
            return Err(format!("a client can watch at most {MAX_WATCHED} resources"));
        }
        watched.resources.insert(uri, Subscription { content, is_changed: false });
        if is_file {
            watched.file_task.get_or_insert_with(|| {
                let mut task = JoinSet::new();
                task.spawn(check_files(Arc::downgrade(&self.0)));
                task
            });
        }
        Ok(())
    }

    pub(super) fn remove(&self, uri: &str) {
        self.0.watched.lock_unpoisoned().resources.remove(uri);
    }

    /// Waits until a watched resource has changed, and returns its URI. All watched artifacts count as changed if
    /// changes were missed. Never returns if the host stops.
    pub(super) async fn next_change(&self, changes: &mut broadcast::Receiver<ArtifactChange>) -> String {
        loop {
            if let Some(uri) = self.0.take_changed() {
                return uri;
            }
            tokio::select! {
                change = changes.recv() => match change {
                    Ok(change) if self.0.has_artifact(&change) => return change.uri.to_string(),
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => self.0.mark_artifacts(),
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
                () = self.0.file_changed.notified() => {}
            }
        }
    }
}

impl SubscriptionsInner {
    fn has_artifact(&self, change: &ArtifactChange) -> bool {
        let watched = self.watched.lock_unpoisoned();
        let content = watched.resources.get(&*change.uri).map(|subscription| &subscription.content);
        matches!(content, Some(WatchedContent::Artifact { user }) if **user == *change.user)
    }

    /// Marks all artifacts, after changes of unknown ones.
    fn mark_artifacts(&self) {
        for subscription in self.watched.lock_unpoisoned().resources.values_mut() {
            if let WatchedContent::Artifact { .. } = subscription.content {
                subscription.is_changed = true;
            }
        }
    }

    /// Returns a marked resource, and removes its mark.
    fn take_changed(&self) -> Option<String> {
        let mut watched = self.watched.lock_unpoisoned();
        let mut marked = watched.resources.iter_mut().filter(|(_, subscription)| subscription.is_changed);
        marked.next().map(|(uri, subscription)| {
            subscription.is_changed = false;
            uri.clone()
        })
    }

    /// Returns the watched files with their URIs. `None` if there are none, and the task that checks them is to end.
    fn files(&self) -> Option<(Vec<String>, Vec<WatchedFile>)> {
        let mut watched = self.watched.lock_unpoisoned();
        let files = watched.resources.iter().filter_map(|(uri, subscription)| match &subscription.content {
            WatchedContent::Artifact { .. } => None,
            WatchedContent::File { file, .. } => Some((uri.clone(), file.clone())),
        });
        let (uris, files): (Vec<_>, Vec<_>) = files.unzip();
        if files.is_empty() {
            watched.file_task = None;
            return None;
        }
        Some((uris, files))
    }

    /// Marks the files whose stamps have changed.
    fn mark_files(&self, uris: &[String], stamps: &[Option<FileStamp>]) {
        let mut watched = self.watched.lock_unpoisoned();
        let mut has_changed = false;
        for (uri, now) in uris.iter().zip(stamps) {
            let Some(Subscription { content, is_changed }) = watched.resources.get_mut(uri) else { continue };
            if let WatchedContent::File { seen, .. } = content
                && std::mem::replace(seen, *now) != *now
            {
                (*is_changed, has_changed) = (true, true);
            }
        }
        drop(watched);
        if has_changed {
            self.file_changed.notify_one();
        }
    }
}

/// Checks the watched files at intervals. Returns once there are none.
async fn check_files(subscriptions: Weak<SubscriptionsInner>) {
    loop {
        tokio::time::sleep(FILE_INTERVAL).await;
        let Some((uris, files)) = subscriptions.upgrade().and_then(|inner| inner.files()) else { return };
        let stamps = read_stamps(files).await;
        let Some(inner) = subscriptions.upgrade() else { return };
        inner.mark_files(&uris, &stamps);
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;

    use super::*;

    #[tokio::test]
    async fn the_task_that_checks_files_ends_with_the_subscriptions_of_its_client() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tone.md");
        let (uri, root) = ("docs://tone".to_owned(), folder.path().to_owned());
        let resource =
            FileResource { uri: uri.clone(), root, file: path.clone(), description: String::new(), mime_type: None };
        let file = WatchedFile { resource: Arc::new(resource), path };
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        let subscriptions = Subscriptions::default();
        subscriptions.add(uri, SubscriptionTarget::File(file)).await.unwrap();
        assert_eq!(tasks(), before + 1);
        drop(subscriptions);
        // The runtime removes an aborted task when it polls it.
        tokio::task::yield_now().await;
        assert_eq!(tasks(), before);
    }
}
