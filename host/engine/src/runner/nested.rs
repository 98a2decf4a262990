//! Nested runs: apps that the code of a run runs. Their usage counts towards the limits of that run, and they never
//! wait for a session.
//!
//! A nested run is recorded in the journal: code that runs again because its own run is continued gets the events that
//! the nested run has stored.

mod record;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::{Stream, StreamExt};
use hatchery_core::{
    AppRun, AppRunRequest, AppRunner, CallContext, Content, Event, EventData, Invocation, JsonMap, LiveAppRun,
    LiveAppRunRequest, LiveRequestQueue, RunConfig, RunError, SessionKey, USER_AUTHOR, new_invocation_id, quoted_list,
};
use tokio_util::sync::DropGuard;

use super::live::LiveRunRequest;
use super::{AppDirectory, Run, RunKind, RunRequest, Runner, RunnerInner};
use crate::app::App;
use crate::run::MAX_DEPTH;

/// Counts a message as an event of the run whose code has sent it.
pub(super) fn count_message(run: &Invocation, message: &Content) -> Result<(), RunError> {
    let content = Some(Arc::new(message.clone()));
    run.count_event(&Event::new(EventData { author: USER_AUTHOR.into(), content, ..EventData::default() }))
}

/// The apps of a runner.
struct NestedRunner {
    runner: Runner,
    apps: Arc<dyn AppDirectory>,
}

impl RunnerInner {
    /// Returns the runner for the code of runs; `None` without apps.
    pub(super) fn app_runner(self: &Arc<Self>) -> Option<Arc<dyn AppRunner>> {
        let apps = self.apps.get()?.clone();
        Some(Arc::new(NestedRunner { runner: Runner(self.clone()), apps }))
    }
}

#[async_trait]
impl AppRunner for NestedRunner {
    fn app_names(&self) -> Vec<String> {
        self.apps.app_names()
    }

    fn keeps_artifacts(&self) -> bool {
        self.runner.keeps_artifacts()
    }

    async fn run(&self, cx: &CallContext, request: AppRunRequest) -> Result<AppRun, RunError> {
        cx.check_writable()?;
        record::run_once(cx, request, async |request| self.start(cx, request).await).await
    }

    async fn run_live(
        &self,
        cx: &CallContext,
        request: LiveAppRunRequest,
        queue: LiveRequestQueue,
    ) -> Result<LiveAppRun, RunError> {
        cx.check_writable()?;
        let LiveAppRunRequest { app, session, config } = request;
        let parent = &cx.invocation;
        let found = self.find(&app)?;
        check_nesting(cx, &app, session.as_deref())?;
        let (session, is_named) = self.session(cx, &app, session).await?;
        let cancel = parent.cancel.child_token();
        let request = LiveRunRequest {
            config: RunConfig { auto_create_session: is_named, live: Some(config), ..RunConfig::default() },
            origin: parent.caller.origin,
            trace_parent: cx.span().parent(),
            cancel: cancel.clone(),
            ..LiveRunRequest::new(&*parent.session_key.user, session.as_str())
        };
        let run = self.runner.converse(found, request, queue, Some(parent.clone())).await?;
        let events = NestedEvents { run, _cancel: cancel.drop_guard() };
        Ok(LiveAppRun { session, events: events.boxed() })
    }
}

impl NestedRunner {
    fn find(&self, name: &str) -> Result<Arc<App>, RunError> {
        self.apps.app(name).ok_or_else(|| RunError::NotFound {
            kind: "App",
            name: name.into(),
            hint: format!("; the apps are {}", quoted_list(self.apps.app_names())),
        })
    }

    /// Returns the id of the session, a new one if there is none, and whether the code has named it.
    async fn session(&self, cx: &CallContext, app: &str, id: Option<String>) -> Result<(String, bool), RunError> {
        if let Some(id) = id {
            return Ok((id, true));
        }
        let run = &cx.invocation;
        let created = run.services.sessions.create(app, &run.session_key.user, None, JsonMap::new()).await?;
        Ok((created.key.id.to_string(), false))
    }

    async fn start(&self, cx: &CallContext, request: AppRunRequest) -> Result<AppRun, RunError> {
        let AppRunRequest { app: name, session, message, state_delta, streaming_mode } = request;
        let parent = &cx.invocation;
        let app = self.find(&name)?;
        if message.function_responses().next().is_some() {
            let message =
                "the message of a run that code starts has no function responses: only the user answers calls";
            return Err(RunError::BadInput(message.into()));
        }
        check_nesting(cx, &name, session.as_deref())?;
        count_message(parent, &message)?;
        let (session, is_named) = self.session(cx, &name, session).await?;
        let cancel = parent.cancel.child_token();
        let id = new_invocation_id();
        let request = RunRequest {
            run_id: Some(id.clone()),
            state_delta,
            config: RunConfig { streaming_mode, auto_create_session: is_named, ..RunConfig::default() },
            origin: parent.caller.origin,
            input: parent.input.clone(),
            trace_parent: cx.span().parent(),
            cancel: cancel.clone(),
            ..RunRequest::new(&*parent.session_key.user, session.as_str(), message)
        };
        let run = self.runner.start(app, request, RunKind::Nested(parent.clone())).await?;
        let events = NestedEvents { run, _cancel: cancel.clone().drop_guard() };
        Ok(AppRun { invocation_id: id, session, events: events.boxed(), cancel })
    }
}

/// Checks that the run does not wait for itself, and is not nested too deeply.
fn check_nesting(cx: &CallContext, app: &str, session: Option<&str>) -> Result<(), RunError> {
    let run = &cx.invocation;
    if let Some(session) = session {
        let key = SessionKey::new(app, &*run.session_key.user, session);
        key.check()?;
        if run.and_parents().any(|run| run.session_key == key) {
            return Err(RunError::Cycle { app: app.into(), session: session.into() });
        }
    }
    if run.depth >= MAX_DEPTH {
        let message =
            format!("app `{app}` is not run: runs are nested {MAX_DEPTH} deep; let fewer apps run each other");
        return Err(RunError::Agent { agent: cx.agent.to_string(), code: "LIMIT_REACHED".into(), message });
    }
    Ok(())
}

/// The events of a nested run. Dropping them cancels it.
struct NestedEvents {
    run: Run,
    _cancel: DropGuard,
}

impl Stream for NestedEvents {
    type Item = Result<Arc<Event>, RunError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.run).poll_next(cx)
    }
}
