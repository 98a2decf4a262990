//! Deletion of sessions by retention rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use hatchery_core::{ArtifactService, EventWindow, ExpiryRule, JsonMap, Part, Services, SessionKey, StoreError};
use hatchery_engine::Runner;
use hatchery_stores::MemoryArtifacts;

use crate::logs::Warnings;
use crate::support::*;

/// An artifact service whose first deletions fail.
struct FailingArtifacts {
    inner: MemoryArtifacts,
    failures: AtomicUsize,
}

#[async_trait]
impl ArtifactService for FailingArtifacts {
    async fn save(&self, session: &SessionKey, name: &str, part: &Part) -> Result<u64, StoreError> {
        self.inner.save(session, name, part).await
    }

    async fn load(&self, session: &SessionKey, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError> {
        self.inner.load(session, name, version).await
    }

    async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError> {
        self.inner.list(session).await
    }

    async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError> {
        self.inner.versions(session, name).await
    }

    async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError> {
        let decrement = |left: usize| left.checked_sub(1);
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement).is_ok() {
            return Err(StoreError::backend("delete", "the plug was pulled"));
        }
        self.inner.delete(session, name).await
    }
}

#[tokio::test]
async fn a_session_whose_artifacts_cannot_be_deleted_stays_until_they_can() {
    let artifacts = Arc::new(FailingArtifacts { inner: MemoryArtifacts::new(), failures: AtomicUsize::new(1) });
    let runner = Runner::new(Services { artifacts: artifacts.clone(), ..services() });
    let sessions = &runner.services().sessions;
    let key = sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap().key;
    artifacts.save(&key, "a.txt", &Part::text("a")).await.unwrap();
    let rule = ExpiryRule { user_sessions: Some(0), ..ExpiryRule::default() };
    let error = runner.delete_expired("app", &rule).await.unwrap_err();
    assert!(matches!(error, StoreError::Backend { .. }), "{error}");
    assert!(sessions.get(&key, EventWindow::All).await.unwrap().is_some());
    assert_eq!(runner.delete_expired("app", &rule).await.unwrap(), 1);
    assert!(sessions.get(&key, EventWindow::All).await.unwrap().is_none());
    assert!(artifacts.list(&key).await.unwrap().is_empty());
}

#[tokio::test]
async fn artifacts_of_an_expired_session_stay_while_the_runner_keeps_artifacts() {
    let runner = Runner::new(services()).with_kept_artifacts(true);
    let Services { sessions, artifacts, .. } = runner.services();
    let rule = ExpiryRule { user_sessions: Some(0), ..ExpiryRule::default() };
    for left in [vec!["a.txt".to_owned()], Vec::new()] {
        let key = sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap().key;
        artifacts.save(&key, "a.txt", &Part::text("a")).await.unwrap();
        assert_eq!(runner.delete_expired("app", &rule).await.unwrap(), 1);
        assert_eq!(artifacts.list(&key).await.unwrap(), left);
        runner.set_kept_artifacts(false);
    }
}

#[tokio::test]
async fn a_session_that_cannot_be_deleted_does_not_keep_the_others() {
    let artifacts = Arc::new(FailingArtifacts { inner: MemoryArtifacts::new(), failures: AtomicUsize::new(1) });
    let runner = Runner::new(Services { artifacts: artifacts.clone(), ..services() });
    let sessions = &runner.services().sessions;
    for id in ["first", "second", "third"] {
        let key = sessions.create("app", USER, Some(id), JsonMap::new()).await.unwrap().key;
        artifacts.save(&key, "a.txt", &Part::text("a")).await.unwrap();
    }
    let rule = ExpiryRule { user_sessions: Some(0), ..ExpiryRule::default() };
    let error = runner.delete_expired("app", &rule).await.unwrap_err();
    assert!(matches!(error, StoreError::Backend { .. }), "{error}");
    assert_eq!(sessions.list("app", USER).await.unwrap().len(), 1);
}

#[tokio::test]
async fn many_sessions_that_cannot_be_deleted_do_not_hide_later_ones() {
    let artifacts =
        Arc::new(FailingArtifacts { inner: MemoryArtifacts::new(), failures: AtomicUsize::new(usize::MAX) });
    let runner = Runner::new(Services { artifacts: artifacts.clone(), ..services() });
    let sessions = &runner.services().sessions;
    for number in 0..150 {
        let id = format!("s{number:03}");
        let key = sessions.create("app", USER, Some(&*id), JsonMap::new()).await.unwrap().key;
        artifacts.save(&key, "a.txt", &Part::text("a")).await.unwrap();
    }
    sessions.create("app", USER, Some("without artifacts"), JsonMap::new()).await.unwrap();
    let rule = ExpiryRule { user_sessions: Some(0), ..ExpiryRule::default() };
    for expected in [151, 150] {
        runner.delete_expired("app", &rule).await.unwrap_err();
        assert_eq!(sessions.list("app", USER).await.unwrap().len(), expected);
    }
    // The search has reached the end, and begins again.
    artifacts.failures.store(0, Ordering::SeqCst);
    for expected in [100, 50, 0] {
        assert_eq!(runner.delete_expired("app", &rule).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_search_begins_again_after_5000_sessions_that_cannot_be_deleted() {
    const MAX: usize = 5000;
    let artifacts =
        Arc::new(FailingArtifacts { inner: MemoryArtifacts::new(), failures: AtomicUsize::new(usize::MAX) });
    let runner = Runner::new(Services { artifacts: artifacts.clone(), ..services() });
    let sessions = &runner.services().sessions;
    for number in 0..=MAX {
        let id = format!("s{number}");
        let key = sessions.create("app", USER, Some(&*id), JsonMap::new()).await.unwrap().key;
        artifacts.save(&key, "a.txt", &Part::text("a")).await.unwrap();
    }
    let rule = ExpiryRule { user_sessions: Some(0), ..ExpiryRule::default() };
    let warnings = Warnings::capture();
    for _ in 0..MAX / 100 {
        assert!(warnings.lines().is_empty());
        runner.delete_expired("app", &rule).await.unwrap_err();
    }
    let warning = "5000 expired sessions are in use or cannot be deleted, and hide those that expired later; delete them with \
                   `hatchery sessions delete`, or see the warnings before for the reason";
    assert_eq!(warnings.lines(), [warning]);
    artifacts.failures.store(0, Ordering::SeqCst);
    // A search that still skipped the others would find one.
    assert_eq!(runner.delete_expired("app", &rule).await.unwrap(), 100);
}
