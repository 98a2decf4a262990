//! Messages of clients: the task that a message begins or continues, and its run.

use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt};
use hatchery_core::{Content, Event, RunConfig, RunError, RunState, StreamingMode, pluralize};
use hatchery_engine::{App, RunPermit, RunRequest, RunUpdate, Runner};
use uuid::Uuid;

use super::task_id::{TaskId, is_context};
use super::tasks::StoredTask;
use super::{A2aService, input};
use crate::error::{A2aError, ErrorKind};
use crate::model::{PushConfig, SendRequest, Update};

/// A run that has begun, with the task that it is part of.
pub(super) struct StartedRun {
    pub(super) task: TaskId,
    /// The id of the run. `None` for an answer that waits for an earlier turn of its session: that turn may change the
    /// run to continue.
    pub(super) run: Option<String>,
    /// The events of the run; ends when the run does, or waits.
    pub(super) events: BoxStream<'static, Result<Arc<Event>, RunError>>,
}

/// Waits until the end of all runs of the task is stored, then reads the task.
///
/// # Errors
/// The error with which the run has ended, unless it is stored, and errors of the session service.
pub(super) async fn wait_until_ended(
    runner: &Runner,
    app: &str,
    task: TaskId,
    run: Option<&str>,
    error: Option<RunError>,
) -> Result<StoredTask, A2aError> {
    if let Some(error) = error {
        let stored = StoredTask::load(runner, app, task.clone()).await?;
        // A run that still waits has not taken the message.
        if matches!(run.and_then(|run| stored.run_state(run)), None | Some(RunState::Waiting)) {
            return Err(error.into());
        }
    }
    StoredTask::wait_until_ended(runner, app, task).await
}

impl A2aService {
    /// Begins or continues a task. Returns it when it has ended, waits for the client, or takes too long to wait for;
    /// or the message that its agent has answered with.
    pub(super) async fn send(&self, app: &Arc<App>, request: SendRequest) -> Result<Update, A2aError> {
        let (returns_immediately, history_length) = (request.returns_immediately, request.history_length);
        let StartedRun { task, run, mut events } = self.start(app, request, StreamingMode::Off).await?;
        let (runner, name, id) = (self.0.runner.clone(), app.name.clone(), task.clone());
        let end = async move {
            let mut error = None;
            while let Some(event) = events.next().await {
                error = event.err();
            }
            wait_until_ended(&runner, &name, id, run.as_deref(), error).await
        };
        let stored = if returns_immediately {
            None
        } else {
            tokio::time::timeout(self.settings().blocking_timeout, end).await.ok()
        };
        let stored = match stored {
            Some(stored) => stored?,
            None => StoredTask::load(&self.0.runner, &app.name, task).await?,
        };
        Ok(stored.message().map_or_else(|| Update::Task(stored.task(history_length)), Update::Message))
    }

    /// Starts the run of a message.
    pub(super) async fn start(
        &self,
        app: &Arc<App>,
        request: SendRequest,
        mode: StreamingMode,
    ) -> Result<StartedRun, A2aError> {
        input::check(&request, &self.settings().input_modes)?;
        let started = match request.message.task_id.clone() {
            Some(id) => self.continue_task(app, &id, request, mode).await?,
            None => self.begin_task(app, request, mode).await?,
        };
        if self.0.push.is_enabled() {
            self.0.push.watch(&app.name, &started.task);
        }
        self.0.task_changes.notify(&started.task.to_string());
        Ok(started)
    }

    /// Acquires a permit to start a run. It must be dropped once the runner counts the run.
    fn acquire_permit(&self) -> Result<RunPermit, A2aError> {
        let max = self.settings().max_runs;
        self.0.runner.try_acquire(max).ok_or_else(|| {
            let runs = pluralize(max, "run", "runs");
            tracing::info!("the maximum of {runs} is active; raise server.max_concurrent_runs to allow more");
            A2aError::new(ErrorKind::Busy, format!("the maximum of {runs} is active; try again later"))
        })
    }

    /// Starts a run with the push configuration of its message. A configuration that cannot be stored is an error
    /// before the run begins. If the run does not begin, the change of the configuration is undone.
    async fn start_with_push<T>(
        &self,
        app: &App,
        task: &TaskId,
        config: Option<PushConfig>,
        after: u64,
        start: impl Future<Output = Result<T, A2aError>>,
    ) -> Result<T, A2aError> {
        let Some(config) = config else { return start.await };
        let sender = self.push()?;
        let replaced = match &config.id {
            Some(id) => sender.list(&app.name, task).await?.into_iter().find(|known| known.id.as_ref() == Some(id)),
            None => None,
        };
        let PushConfig { id, .. } = sender.set(&app.name, task, config, after, None).await?;
        let started = start.await;
        if started.is_err()
            && let Some(id) = id
        {
            match replaced {
                Some(config) => sender.restore(&app.name, task, config).await?,
                None => sender.delete(&app.name, task, &id).await?,
            }
        }
        started
    }

    async fn begin_task(
        &self,
        app: &Arc<App>,
        request: SendRequest,
        mode: StreamingMode,
    ) -> Result<StartedRun, A2aError> {
        let context = request.message.context_id.clone();
        if context.as_deref().is_some_and(|context| !is_context(context)) {
            return Err(A2aError::invalid_params("`message.contextId` has 1 to 160 bytes and no control characters"));
        }
        let (state_delta, push) = (input::state(&request), request.push);
        let content = input::content(request.message, &[])?;
        let task = match context {
            // The same message in the same context is a repeated request.
            Some(context) => TaskId::for_message(context, &content, self.1.user.clone()),
            None => TaskId::new(Uuid::new_v4().to_string(), self.1.user.clone()),
        };
        let _guard = self.0.task_locks.lock(&task.to_string()).await;
        let run = task.run(1);
        let request = RunRequest { run_id: Some(run.clone()), state_delta, ..run_request(&task, content, mode) };
        let start = self.run_in_background(app, &task, &run, request);
        let events = self.start_with_push(app, &task, push, 0, start).await?;
        Ok(StartedRun { task, run: Some(run), events })
    }

    /// Starts a background run, which continues without its client, and returns its events from the first chunk on.
    async fn run_in_background(
        &self,
        app: &Arc<App>,
        task: &TaskId,
        run: &str,
        request: RunRequest,
    ) -> Result<BoxStream<'static, Result<Arc<Event>, RunError>>, A2aError> {
        let permit = self.acquire_permit()?;
        let begun = self.0.runner.begin_in_background(app.clone(), request).await?;
        drop(permit);
        match begun {
            (_, Some(run)) => Ok(run.boxed()),
            (_, None) => self.follow(app, task, run, 0).await,
        }
    }

    /// Adds a message to a task. An answer to a call of a resumable app continues the run of the call, anything else is
    /// a further run. When this returns, its changes are visible to the next message.
    async fn continue_task(
        &self,
        app: &Arc<App>,
        id: &str,
        request: SendRequest,
        mode: StreamingMode,
    ) -> Result<StartedRun, A2aError> {
        let _guard = self.0.task_locks.lock(id).await;
        let stored = self.load(app, id).await?;
        if request.message.context_id.as_ref().is_some_and(|context| *context != stored.id.context) {
            return Err(A2aError::invalid_params("`message.contextId` does not match the task"));
        }
        if stored.state().is_terminal() {
            let message = "the task has ended; send the message without `taskId` to begin a new one";
            return Err(A2aError::new(ErrorKind::UnsupportedOperation, message));
        }
        let (state_delta, push) = (input::state(&request), request.push);
        let content = input::content(request.message, &stored.open_calls())?;
        let has_answers = content.function_responses().next().is_some();
        let request = RunRequest { state_delta, ..run_request(&stored.id, content, mode) };
        let task = stored.id.clone();
        if has_answers && app.settings.resumable {
            let start = async {
                let permit = self.acquire_permit()?;
                let mut run = self.0.runner.run(app.clone(), request).await?;
                drop(permit);
                run.wait_until_begun().await;
                Ok::<_, A2aError>(run)
            };
            let run = self.start_with_push(app, &task, push, stored.revision, start).await?;
            return Ok(StartedRun { task, run: run.id().map(str::to_owned), events: run.boxed() });
        }
        let run = stored.next_run();
        let request = RunRequest { run_id: Some(run.clone()), ..request };
        let start = self.run_in_background(app, &task, &run, request);
        let events = self.start_with_push(app, &task, push, stored.revision, start).await?;
        Ok(StartedRun { task, run: Some(run), events })
    }

    /// Returns the events of a run after a revision, and those that follow.
    pub(super) async fn follow(
        &self,
        app: &App,
        task: &TaskId,
        run: &str,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Arc<Event>, RunError>>, A2aError> {
        let updates = self.0.runner.follow(&task.session(&app.name), run, after).await?;
        let updates = updates.ok_or_else(|| A2aError::task_not_found(&task.to_string()))?;
        let events = updates.filter_map(|update| {
            std::future::ready(match update {
                Ok(RunUpdate::Event { event, .. }) => Some(Ok(event)),
                Ok(RunUpdate::End(_)) => None,
                Err(error) => Some(Err(error)),
            })
        });
        Ok(events.boxed())
    }
}

fn run_request(task: &TaskId, content: Content, streaming_mode: StreamingMode) -> RunRequest {
    let session = task.session("");
    RunRequest {
        config: RunConfig { streaming_mode, auto_create_session: true, ..RunConfig::default() },
        origin: hatchery_core::CallerOrigin::Http,
        ..RunRequest::new(&*session.user, &*session.id, content)
    }
}
