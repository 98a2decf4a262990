//! Streams of a task: the task itself, then the events of its run, then its state.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt};
use hatchery_core::{Event, JsonMap, RunError, StreamingMode};
use hatchery_engine::App;

use super::A2aService;
use super::events::{self, Chunks};
use super::send::{self, StartedRun};
use super::task_id::TaskId;
use super::tasks::StoredTask;
use crate::codec::Version;
use crate::error::{A2aError, ErrorKind};
use crate::model::{ArtifactUpdate, SendRequest, StatusUpdate, TaskState, TaskStatus, Update};

/// The items of a stream. An error ends it.
pub(super) type Updates = BoxStream<'static, Result<Update, A2aError>>;

impl A2aService {
    /// Begins or continues a task, and streams it.
    pub(super) async fn stream(&self, app: &Arc<App>, request: SendRequest) -> Result<Updates, A2aError> {
        let history_length = request.history_length;
        let StartedRun { task, run, events } = self.start(app, request, StreamingMode::On).await?;
        let stored = StoredTask::load(&self.0.runner, &app.name, task).await?;
        // Its true state follows from the events.
        let mut snapshot = stored.task(history_length);
        snapshot.status.state = TaskState::Working;
        snapshot.status.message = None;
        snapshot.artifacts.clear();
        Ok(self.updates(app, stored.id, run, Update::Task(snapshot), events, StreamEnd::AtRest))
    }

    /// Streams a task that has not ended. In version 1.0 the stream ends with the task, in version 0.3 also when the
    /// task waits for its client.
    pub(super) async fn subscribe(&self, app: &Arc<App>, id: &str, version: Version) -> Result<Updates, A2aError> {
        let stored = self.load(app, id).await?;
        if stored.state().is_terminal() {
            let message = "the task has ended, so there is nothing to subscribe to; get it instead";
            return Err(A2aError::new(ErrorKind::UnsupportedOperation, message));
        }
        let end = match version {
            Version::V0_3 => StreamEnd::AtRest,
            Version::V1_0 => StreamEnd::Terminal,
        };
        let runs: Vec<_> = stored.active_runs().map(|run| run.id.clone()).collect();
        let events = self.follow_all(app, &stored.id, &runs, stored.revision).await?;
        let (run, snapshot) = (stored.last_run(), Update::Task(stored.task(None)));
        Ok(self.updates(app, stored.id, Some(run), snapshot, events, end))
    }

    /// Returns the events of runs after a revision, one run after the other.
    async fn follow_all(&self, app: &App, task: &TaskId, runs: &[String], after: u64) -> Result<Events, A2aError> {
        let mut followed = Vec::new();
        for run in runs {
            followed.push(self.follow(app, task, run, after).await?);
        }
        Ok(stream::iter(followed).flatten().boxed())
    }

    fn updates(
        &self,
        app: &Arc<App>,
        task: TaskId,
        run: Option<String>,
        first: Update,
        events: Events,
        end: StreamEnd,
    ) -> Updates {
        let (service, app) = (self.clone(), app.clone());
        let (converter, pending) = (Converter::new(task), VecDeque::from([first]));
        let source = Source { service, app, converter, run, events: Some(events), end, paused: None, pending };
        stream::unfold(source, |mut source| async move {
            let next = source.next().await.transpose()?;
            Some((next, source))
        })
        .boxed()
    }
}

type Events = BoxStream<'static, Result<Arc<Event>, RunError>>;

/// When a stream ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    /// When the task has ended or waits for its client.
    AtRest,
    /// When the task has ended.
    Terminal,
}

struct Source {
    service: A2aService,
    app: Arc<App>,
    converter: Converter,
    /// The run whose error ends the stream, unless it is stored.
    run: Option<String>,
    /// `None` after the last one.
    events: Option<Events>,
    end: StreamEnd,
    /// The task that waits for its client.
    paused: Option<StoredTask>,
    pending: VecDeque<Update>,
}

impl Source {
    async fn next(&mut self) -> Result<Option<Update>, A2aError> {
        loop {
            if let Some(update) = self.pending.pop_front() {
                return Ok(Some(update));
            }
            let Some(events) = &mut self.events else {
                let Some(paused) = self.paused.take() else { return Ok(None) };
                self.events = self.continuation(paused).await?;
                if self.events.is_none() {
                    return Ok(None);
                }
                continue;
            };
            let error = match events.next().await {
                Some(Ok(event)) => {
                    self.pending.extend(self.converter.updates(&event));
                    continue;
                }
                Some(Err(error)) => Some(error),
                None => None,
            };
            self.events = None;
            let (runner, task) = (&self.service.0.runner, self.converter.task.clone());
            let stored = send::wait_until_ended(runner, &self.app.name, task, self.run.as_deref(), error).await?;
            self.pending.push_back(stored.status_update());
            if self.end == StreamEnd::Terminal && !stored.state().is_terminal() {
                self.paused = Some(stored);
            }
        }
    }

    /// Waits until a task continues, and returns the events since then. `None` if the server is stopping.
    async fn continuation(&mut self, paused: StoredTask) -> Result<Option<Events>, A2aError> {
        let service = self.service.clone();
        let change = service.0.task_changes.notifier(&paused.id.to_string());
        loop {
            let mut changed = pin!(change.notified());
            // Before the task is read, so that no change is missed.
            changed.as_mut().enable();
            let stored = StoredTask::load(&service.0.runner, &self.app.name, paused.id.clone()).await?;
            let runs: Vec<_> = stored.runs_changed_since(paused.updated_at()).map(|run| run.id.clone()).collect();
            if !runs.is_empty() {
                self.run = Some(stored.last_run());
                return service.follow_all(&self.app, &stored.id, &runs, paused.revision).await.map(Some);
            }
            tokio::select! {
                () = changed => {}
                // Another host on the same sessions may have continued it.
                () = tokio::time::sleep(service.settings().keep_alive) => {}
                () = service.0.task_changes.wait_until_closed() => return Ok(None),
            }
        }
    }
}

/// Converts the events of a task to updates.
pub(super) struct Converter {
    task: TaskId,
    chunks: Chunks,
}

impl Converter {
    pub(super) fn new(task: TaskId) -> Self {
        Self { task, chunks: Chunks::default() }
    }

    /// Returns the updates for an event: an artifact with texts and files, and a remark about the work.
    pub(super) fn updates(&mut self, event: &Event) -> Vec<Update> {
        let (task_id, context_id) = (self.task.to_string(), self.task.context.clone());
        // Calls that wait for the client are in the status at the end.
        let status = events::status_message(event, &self.task).filter(|_| event.long_running_tool_ids.is_empty());
        let status = status.map(|message| {
            let status =
                TaskStatus { state: TaskState::Working, message: Some(message), timestamp: Some(event.timestamp) };
            let (task_id, context_id) = (task_id.clone(), context_id.clone());
            Update::Status(StatusUpdate { task_id, context_id, status, metadata: JsonMap::new() })
        });
        let artifact = self.chunks.artifact(event).map(|(artifact, append, last_chunk)| {
            let metadata = JsonMap::new();
            Update::Artifact(ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata })
        });
        artifact.into_iter().chain(status).collect()
    }
}
