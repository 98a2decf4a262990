//! Followers of long runs: they read the store page by page.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::{
    AgentContext, AgentKind, CustomAgent, CustomAgentSpec, Event, EventWindow, JsonMap, RunError, RunService, Services,
    Session, SessionKey, SessionService, StoreError, TurnStart,
};
use hatchery_engine::{App, RunRequest, RunUpdate, Runner};
use hatchery_stores::MemorySessions;

use crate::support::*;

/// Sessions that count the most events of one answer to a follower.
#[derive(Default)]
struct CountedReads {
    sessions: MemorySessions,
    most: AtomicUsize,
}

#[async_trait]
impl SessionService for CountedReads {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        self.sessions.create(app, user, id, state).await
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        let found = SessionService::get(&self.sessions, key, window).await?;
        self.most.fetch_max(found.as_ref().map_or(0, |session| session.events.len()), Ordering::SeqCst);
        Ok(found)
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        SessionService::list(&self.sessions, app, user).await
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.sessions.delete(key).await
    }

    async fn begin_turn(&self, key: &SessionKey, last: Option<u64>, lease: Duration) -> Result<TurnStart, StoreError> {
        self.sessions.begin_turn(key, last, lease).await
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        self.sessions.renew_turn(key, fence, lease).await
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        self.sessions.append_with(key, event, fence).await
    }

    fn runs(&self) -> Option<&dyn RunService> {
        self.sessions.runs()
    }
}

/// Sends this many numbers, from 0 on.
struct Counts(usize);

#[async_trait]
impl CustomAgent for Counts {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        for number in 0..self.0 {
            cx.say(number.to_string()).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_follower_holds_few_events_of_a_long_run_and_misses_none() {
    const EVENTS: usize = 500;
    let sessions = Arc::new(CountedReads::default());
    sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    let runner = Runner::new(Services { sessions: sessions.clone(), ..services() });
    let spec = CustomAgentSpec { code: Arc::new(Counts(EVENTS)), model: None, tools: Vec::new() };
    let app = App::new("app", hatchery_core::Agent::new("root", "", AgentKind::Custom(spec))).unwrap();
    let message = hatchery_core::Content::user("hi");
    let request = RunRequest { run_id: Some("r1".into()), ..RunRequest::new(USER, SESSION, message) };
    runner.run(Arc::new(app), request).await.unwrap().collect().await.unwrap();
    sessions.most.store(0, Ordering::SeqCst);
    for after in [0, 1, 64, 65, 499, 501] {
        let key = SessionKey::new("app", USER, SESSION);
        let mut updates = runner.follow(&key, "r1", after).await.unwrap().unwrap();
        let mut revisions = Vec::new();
        while let Some(update) = updates.next().await {
            if let RunUpdate::Event { revision, .. } = update.unwrap() {
                revisions.extend(revision);
            }
        }
        assert!(revisions.into_iter().eq(after.max(1) + 1..=EVENTS as u64 + 1), "after {after}");
    }
    assert_eq!(sessions.most.load(Ordering::SeqCst), 64);
}
