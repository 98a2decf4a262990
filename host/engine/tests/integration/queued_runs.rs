//! Runs that wait for an earlier turn of their session: they are stored before they begin.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Content, JsonMap, RunService, RunState, Services, SessionKey, SessionService, StoreError, StoredRun,
    WrapperRunService, WrapperSessionService,
};
use hatchery_engine::{RunRequest, Runner};
use hatchery_models::scripted::Scripted;
use hatchery_stores::MemorySessions;
use tokio::sync::{Notify, Semaphore};

use crate::support::*;

/// Blocks until `opened` has a permit: in `add` after the run is stored, and in `start` and `start_later` before it is.
struct HeldRuns {
    sessions: MemorySessions,
    added: Notify,
    opened: Semaphore,
}

impl HeldRuns {
    fn new() -> Arc<Self> {
        Arc::new(Self { sessions: MemorySessions::new(), added: Notify::new(), opened: Semaphore::new(0) })
    }
}

impl WrapperSessionService for HeldRuns {
    fn inner(&self) -> &dyn SessionService {
        &self.sessions
    }

    fn runs(&self) -> Option<&dyn RunService> {
        Some(self)
    }
}

#[async_trait]
impl WrapperRunService for HeldRuns {
    fn inner(&self) -> &dyn RunService {
        self.sessions.runs().unwrap()
    }

    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        let added = WrapperRunService::inner(self).add(run).await;
        self.added.notify_one();
        let _permit = self.opened.acquire().await.unwrap();
        added
    }

    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError> {
        let _permit = self.opened.acquire().await.unwrap();
        WrapperRunService::inner(self).start(run, fence).await
    }

    async fn start_later(&self, run: &StoredRun, fence: u64) -> Result<(), StoreError> {
        WrapperRunService::start(self, run, fence).await.map(drop)
    }
}

/// Drops a request while its run is stored, with or without cancelling it. Returns the state of the run at its end, and
/// the transcript of the session.
async fn drop_request(is_cancelled: bool) -> (RunState, Vec<String>) {
    let sessions = HeldRuns::new();
    let mut app = Harness::new(llm("root", Scripted::new().default_reply("ok"))).await;
    app.runner = Runner::new(Services { sessions: sessions.clone(), ..services() });
    app.runner.services().sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    let first = app.start("ONE").await;
    let request = RunRequest { run_id: Some("r2".into()), ..RunRequest::new(USER, SESSION, Content::user("TWO")) };
    let cancel = request.cancel.clone();
    tokio::select! {
        biased;
        _ = app.runner.run(app.app.clone(), request) => panic!("it is held"),
        () = sessions.added.notified() => {}
    }
    if is_cancelled {
        cancel.cancel();
    }
    sessions.opened.add_permits(1);
    first.collect().await.unwrap();
    app.runner.drain().await;
    let stored = RunService::get(&*sessions, &SessionKey::new("app", USER, SESSION), "r2").await.unwrap().unwrap();
    (stored.state, app.session_transcript().await)
}

#[tokio::test]
async fn a_run_whose_request_is_dropped_while_it_is_stored_takes_its_turn() {
    let (state, transcript) = drop_request(false).await;
    assert_eq!(state, RunState::Done);
    assert_eq!(transcript, ["user: ONE", "root: ok", "user: TWO", "root: ok"]);
}

#[tokio::test]
async fn a_run_whose_request_is_cancelled_and_dropped_while_it_is_stored_is_cancelled() {
    let (state, transcript) = drop_request(true).await;
    assert_eq!(state, RunState::Cancelled);
    assert_eq!(transcript, ["user: ONE", "root: ok"]);
}
