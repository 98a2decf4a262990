//! The cache of sessions between their turns.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    AgentKind, Content, EventWindow, JsonMap, Services, Session, SessionKey, SessionService, StoreError,
    WrapperSessionService,
};
use hatchery_engine::{App, RunRequest, Runner};
use hatchery_models::scripted::Scripted;
use hatchery_stores::MemorySessions;

use crate::support::*;

/// Sessions that note whether they are read completely.
#[derive(Default)]
struct RecordingSessions {
    inner: MemorySessions,
    complete_reads: Mutex<Vec<bool>>,
}

#[async_trait]
impl WrapperSessionService for RecordingSessions {
    fn inner(&self) -> &dyn SessionService {
        &self.inner
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        self.complete_reads.lock().unwrap().push(matches!(window, EventWindow::All));
        self.inner.get(key, window).await
    }
}

impl RecordingSessions {
    /// Returns whether a session was read completely since the last call.
    fn take_complete_reads(&self) -> bool {
        std::mem::take(&mut *self.complete_reads.lock().unwrap()).contains(&true)
    }
}

#[tokio::test]
async fn what_the_prompts_of_many_agents_copy_counts_for_the_cache() {
    const SESSIONS: usize = 40;
    let sessions = Arc::new(RecordingSessions::default());
    let runner = Runner::new(Services { sessions: sessions.clone(), ..services() });
    let agents = (0..40).map(|number| llm(&format!("agent{number}"), Scripted::new().default_reply("ok")));
    let root = workflow("root", AgentKind::Sequential, agents.collect());
    let app = Arc::new(App::new("app", root).unwrap());
    let run = async |session: usize| {
        let request = RunRequest::new(USER, session.to_string(), Content::user("hi"));
        assert_eq!(runner.run(app.clone(), request).await.unwrap().collect().await.unwrap().len(), 40);
    };
    for session in 0..SESSIONS {
        let created = runner.services().sessions.create("app", USER, Some(&session.to_string()), JsonMap::new()).await;
        created.unwrap();
        run(session).await;
    }
    sessions.take_complete_reads();
    run(SESSIONS - 1).await;
    assert!(!sessions.take_complete_reads(), "the newest session is in the cache");
    run(0).await;
    assert!(sessions.take_complete_reads(), "the oldest one is not");
}
