//! Streams of a task: the task itself, then what its run emits, then its state.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt};
use hatchery_core::{Event, JsonMap, RunError, StreamingMode};
use hatchery_engine::{App, Runner};

use super::A2aService;
use super::events::{self, Chunks};
use super::send::{self, StartedRun};
use super::task_id::TaskId;
use super::tasks::StoredTask;
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
        // What has happened in between comes with the events.
        let mut snapshot = stored.task(history_length);
        snapshot.status.state = TaskState::Working;
        snapshot.status.message = None;
        snapshot.artifacts.clear();
        Ok(self.updates(app, (stored.id, run), Update::Task(snapshot), events))
    }

    /// Streams a task that is in progress.
    pub(super) async fn subscribe(&self, app: &Arc<App>, id: &str) -> Result<Updates, A2aError> {
        let stored = self.load(app, id).await?;
        if stored.state().is_terminal() {
            let message = "the task has ended, so there is nothing to subscribe to; get it instead";
            return Err(A2aError::new(ErrorKind::UnsupportedOperation, message));
        }
        let mut followed = Vec::new();
        for run in stored.active_runs() {
            followed.push(self.follow(app, &stored.id, &run.id, stored.revision).await?);
        }
        let (run, snapshot) = (stored.last_run(), Update::Task(stored.task(None)));
        Ok(self.updates(app, (stored.id, Some(run)), snapshot, stream::iter(followed).flatten().boxed()))
    }

    fn updates(
        &self,
        app: &Arc<App>,
        (task, run): (TaskId, Option<String>),
        first: Update,
        events: BoxStream<'static, Result<Arc<Event>, RunError>>,
    ) -> Updates {
        let source = Source {
            runner: self.0.runner.clone(),
            app: app.name.clone(),
            converter: Converter::new(task),
            run,
            events: Some(events),
            pending: VecDeque::from([first]),
        };
        stream::unfold(source, |mut source| async move {
            let next = source.next().await.transpose()?;
            Some((next, source))
        })
        .boxed()
    }
}

struct Source {
    runner: Runner,
    app: String,
    converter: Converter,
    /// The run whose error ends the stream, unless it is stored.
    run: Option<String>,
    /// `None` after the last one.
    events: Option<BoxStream<'static, Result<Arc<Event>, RunError>>>,
    pending: VecDeque<Update>,
}

impl Source {
    async fn next(&mut self) -> Result<Option<Update>, A2aError> {
        loop {
            if let Some(update) = self.pending.pop_front() {
                return Ok(Some(update));
            }
            let Some(events) = &mut self.events else { return Ok(None) };
            let error = match events.next().await {
                Some(Ok(event)) => {
                    self.pending.extend(self.converter.updates(&event));
                    continue;
                }
                Some(Err(error)) => Some(error),
                None => None,
            };
            self.events = None;
            let task = self.converter.task.clone();
            let stored = send::settle(&self.runner, &self.app, task, self.run.as_deref(), error).await?;
            self.pending.push_back(stored.status_update());
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
        let remark = events::remark(event, &self.task).filter(|_| event.long_running_tool_ids.is_empty());
        let remark = remark.map(|message| {
            let status =
                TaskStatus { state: TaskState::Working, message: Some(message), timestamp: Some(event.timestamp) };
            let (task_id, context_id) = (task_id.clone(), context_id.clone());
            Update::Status(StatusUpdate { task_id, context_id, status, metadata: JsonMap::new() })
        });
        let artifact = self.chunks.artifact(event).map(|(artifact, append, last_chunk)| {
            let metadata = JsonMap::new();
            Update::Artifact(ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata })
        });
        artifact.into_iter().chain(remark).collect()
    }
}
