//! Runs that are interrupted after any of their events, as by a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use hatchery_core::{
    Agent, CallJournal, CallRecord, Content, Event, EventWindow, JsonMap, RunService, Services, Session, SessionKey,
    SessionService, StoreError, WrapperSessionService,
};
use hatchery_engine::{App, RunRequest, Runner};
use hatchery_test_support::{SESSION, USER, brief, services};

/// A session service that fails after this many events, as if the process had been killed there.
pub struct CrashingSessions {
    inner: Arc<dyn SessionService>,
    left: AtomicUsize,
}

impl CrashingSessions {
    pub fn new(inner: Arc<dyn SessionService>, survive: usize) -> Self {
        Self { inner, left: AtomicUsize::new(survive) }
    }
}

#[async_trait]
impl WrapperSessionService for CrashingSessions {
    fn inner(&self) -> &dyn SessionService {
        &*self.inner
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        let decrement = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement).is_err() {
            return Err(StoreError::backend("append", "the plug was pulled"));
        }
        self.inner.append_with(key, event, fence).await
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        Some(self)
    }

    /// None, so that a run is continued from its events and its journal alone.
    fn runs(&self) -> Option<&dyn RunService> {
        None
    }
}

#[async_trait]
impl CallJournal for CrashingSessions {
    async fn record(&self, session: &SessionKey, run: &str, fence: u64, record: &CallRecord) -> Result<(), StoreError> {
        if self.left.load(Ordering::SeqCst) == 0 {
            return Err(StoreError::backend("record", "the plug was pulled"));
        }
        self.inner.journal().unwrap().record(session, run, fence, record).await
    }

    async fn read(&self, session: &SessionKey, run: &str) -> Result<Option<Vec<CallRecord>>, StoreError> {
        self.inner.journal().unwrap().read(session, run).await
    }

    async fn finish(&self, session: &SessionKey, run: &str) -> Result<(), StoreError> {
        self.inner.journal().unwrap().finish(session, run).await
    }
}

/// Sends `hi` to a new session of `app`, on services that fail after `survive` events, and resumes the run with a new
/// runner. Returns the session at the interruption and at the end.
pub async fn interrupted(app: &Arc<App>, survive: usize) -> (Session, Session) {
    let services = services();
    let key = services.sessions.create(&app.name, USER, Some(SESSION), JsonMap::new()).await.unwrap().key;
    let crashing = CrashingSessions::new(services.sessions.clone(), survive);
    let first = Runner::new(Services { sessions: Arc::new(crashing), ..services.clone() });
    let request = RunRequest::new(USER, SESSION, Content::user("hi"));
    // Fails, unless it ends before the crash.
    let _ = first.run(app.clone(), request).await.unwrap().collect().await;
    first.drain().await;
    let stored = services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    let invocation = stored.events.front().unwrap().invocation_id.clone();
    let second = Runner::new(services.clone());
    second.run(app.clone(), RunRequest::resume(USER, SESSION, invocation)).await.unwrap().collect().await.unwrap();
    let session = services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert!(session.events.iter().all(|event| event.invocation_id == stored.events[0].invocation_id));
    (stored, session)
}

/// Returns the events of a session in short form, grouped by branch, because branches have no order between them.
pub fn branch_transcripts(session: &Session) -> Vec<(String, Vec<String>)> {
    let mut branches: Vec<(String, Vec<String>)> = Vec::new();
    for event in &session.events {
        let branch = event.branch.clone().unwrap_or_default();
        let line = brief(event);
        match branches.iter_mut().find(|(name, _)| *name == branch) {
            Some((_, lines)) => lines.push(line),
            None => branches.push((branch, vec![line])),
        }
    }
    branches.sort();
    branches
}

/// Asserts that a run that is interrupted after any of its events ends with the same session as one that is not.
pub async fn assert_resumable(make: impl Fn() -> Agent) -> Session {
    let app = || Arc::new(App::new("app", make()).unwrap());
    let (_, uninterrupted) = interrupted(&app(), usize::MAX).await;
    for survive in 1..uninterrupted.events.len() {
        let (_, resumed) = interrupted(&app(), survive).await;
        assert_eq!(
            branch_transcripts(&resumed),
            branch_transcripts(&uninterrupted),
            "interrupted after {survive} events"
        );
        assert_eq!(resumed.state, uninterrupted.state, "interrupted after {survive} events");
    }
    uninterrupted
}
