//! Nested runs: apps that the code of a run runs. They pay with the limits of that run, and never wait for a session.
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
    AppRun, AppRunRequest, AppRunner, CallContext, Event, EventData, Invocation, JsonMap, RunConfig, RunError,
    SessionKey, TaskScope, USER_AUTHOR, new_invocation_id,
};
use tokio_util::sync::DropGuard;

use super::{AppDirectory, Run, RunKind, RunRequest, Runner, RunnerInner};
use crate::run::{MAX_DEPTH, list_names};

/// The runs that a run is nested in.
pub(super) struct NestedRun {
    parent: Arc<Invocation>,
    task_scope: TaskScope,
}

impl NestedRun {
    pub(super) fn split(self) -> (Arc<Invocation>, TaskScope) {
        (self.parent, self.task_scope)
    }
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

    async fn run(&self, cx: &CallContext, request: AppRunRequest) -> Result<AppRun, RunError> {
        cx.check_writable()?;
        record::run_once(cx, request, async |request| self.start(cx, request).await).await
    }
}

impl NestedRunner {
    async fn start(&self, cx: &CallContext, request: AppRunRequest) -> Result<AppRun, RunError> {
        let AppRunRequest { app: name, session, message, state_delta, streaming_mode, task_scope } = request;
        let parent = &cx.invocation;
        let Some(app) = self.apps.app(&name) else {
            let names = self.apps.app_names();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            return Err(RunError::NotFound {
                kind: "App",
                name,
                hint: format!("; the apps are {}", list_names(&names)),
            });
        };
        if message.function_responses().next().is_some() {
            let message =
                "the message of a run that code starts has no function responses: only the user answers calls";
            return Err(RunError::BadInput(message.into()));
        }
        check_nesting(cx, &name, session.as_deref())?;
        let user = &parent.session_key.user;
        let input =
            EventData { author: USER_AUTHOR.into(), content: Some(Arc::new(message.clone())), ..EventData::default() };
        parent.count_event(&Event::new(input))?;
        let sessions = &parent.services.sessions;
        let (session, is_named) = match session {
            Some(session) => (session, true),
            None => {
                let created = sessions.create(&name, user, None, JsonMap::new()).await?;
                (created.key.id.to_string(), false)
            }
        };
        let cancel = parent.cancel.child_token();
        let id = new_invocation_id();
        let request = RunRequest {
            run_id: Some(id.clone()),
            state_delta,
            config: RunConfig { streaming_mode, auto_create_session: is_named, ..RunConfig::default() },
            origin: parent.caller.origin,
            trace_parent: cx.span().parent(),
            cancel: cancel.clone(),
            ..RunRequest::new(&**user, session.as_str(), message)
        };
        let nested = NestedRun { parent: parent.clone(), task_scope };
        let run = self.runner.start(app, request, RunKind::Nested(nested)).await?;
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
