//! An app with one session on in-memory services.

use std::sync::Arc;

use hatchery_core::{
    Agent, Content, Event, EventWindow, ExpiryRule, RunConfig, RunError, Services, Session, SessionKey, SessionService,
    StreamingMode,
};
use hatchery_engine::{App, AppSettings, Run, RunRequest, Runner};
use hatchery_models::ModelProviders;
use hatchery_stores::{KeywordMemory, MemoryArtifacts, MemoryCredentials, MemorySessions};
use serde_json::{Value, json};

use crate::{brief, briefs, map};

/// The user of the session.
pub const USER: &str = "ada";
/// The id of the session.
pub const SESSION: &str = "s1";

/// An app with one session on in-memory services.
pub struct Harness {
    pub runner: Runner,
    pub app: Arc<App>,
    pub config: RunConfig,
}

/// Returns in-memory services without sessions.
pub fn services() -> Services {
    Services {
        sessions: Arc::new(MemorySessions::new()),
        artifacts: Arc::new(MemoryArtifacts::new()),
        memory: Arc::new(KeywordMemory::new()),
        credentials: Arc::new(MemoryCredentials::default()),
        models: Arc::new(ModelProviders::new()),
    }
}

/// Deletes sessions of the app `app` by a rule, as servers do. Returns the number of deleted sessions.
pub async fn delete_expired(sessions: Arc<dyn SessionService>, rule: &ExpiryRule) -> usize {
    Runner::new(Services { sessions, ..services() }).delete_expired("app", rule).await.unwrap()
}

impl Harness {
    /// Creates the app `app` with an empty session.
    pub async fn new(root: Agent) -> Self {
        Self::with_state(root, json!({})).await
    }

    /// Creates the app `app` with a session with this state.
    pub async fn with_state(root: Agent, state: Value) -> Self {
        let app = Arc::new(App::new("app", root).unwrap());
        let runner = Runner::new(services());
        runner.services().sessions.create("app", USER, Some(SESSION), map(state)).await.unwrap();
        Self { runner, app, config: RunConfig::default() }
    }

    /// Streams model responses in later runs.
    pub fn streaming(mut self) -> Self {
        self.config.streaming_mode = StreamingMode::On;
        self
    }

    /// Makes later runs resumable.
    pub fn resumable(&mut self) {
        let app = App::clone(&self.app);
        self.app = Arc::new(app.with_settings(AppSettings { resumable: true, ..AppSettings::default() }));
    }

    /// Returns the request for a run with this message.
    pub fn request(&self, message: Content) -> RunRequest {
        RunRequest { config: self.config.clone(), ..RunRequest::new(USER, SESSION, message) }
    }

    /// Starts a run with this text.
    pub async fn start(&self, text: &str) -> Run {
        self.runner.run(self.app.clone(), self.request(Content::user(text))).await.unwrap()
    }

    /// Runs the app with this message, and returns the events.
    pub async fn send(&self, message: Content) -> Vec<Arc<Event>> {
        self.runner.run(self.app.clone(), self.request(message)).await.unwrap().collect().await.unwrap()
    }

    /// Runs the app with this text, and returns the events.
    pub async fn run(&self, text: &str) -> Vec<Arc<Event>> {
        self.start(text).await.collect().await.unwrap()
    }

    /// Runs the app with this text, and returns the events in short form.
    pub async fn transcript(&self, text: &str) -> Vec<String> {
        briefs(&self.run(text).await)
    }

    /// Runs the app with this text, and returns the events in short form and the error of the run.
    pub async fn expect_error(&self, text: &str) -> (Vec<String>, RunError) {
        let mut run = self.start(text).await;
        let mut events = Vec::new();
        while let Some(item) = run.next().await {
            match item {
                Ok(event) => events.push(brief(&event)),
                Err(error) => return (events, error),
            }
        }
        panic!("the run did not fail: {events:?}");
    }

    /// Returns the stored session.
    pub async fn session(&self) -> Session {
        let key = SessionKey::new("app", USER, SESSION);
        self.runner.services().sessions.get(&key, EventWindow::All).await.unwrap().unwrap()
    }

    /// Returns the stored state.
    pub async fn state(&self) -> Value {
        serde_json::to_value(&self.session().await.state).unwrap()
    }

    /// Runs the app with this text, waits for the compaction that follows, and returns the events of the run.
    pub async fn run_and_drain(&self, text: &str) -> Vec<Arc<Event>> {
        let events = self.run(text).await;
        self.runner.drain().await;
        events
    }

    /// Returns the stored events in short form.
    pub async fn session_transcript(&self) -> Vec<String> {
        self.session().await.events.iter().map(|event| brief(event)).collect()
    }

    /// Returns the stored events that compact others.
    pub async fn compactions(&self) -> Vec<Arc<Event>> {
        let is_compaction = |event: &&Arc<Event>| event.actions.compaction.is_some();
        self.session().await.events.iter().filter(is_compaction).cloned().collect()
    }
}
