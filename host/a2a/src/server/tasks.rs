//! Tasks as views of stored runs and events.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use hatchery_core::{
    Event, EventWindow, JsonMap, REQUEST_CREDENTIAL, RunService, RunState, SessionKey, StoreError, StoredRun,
    Timestamp, USER_AUTHOR,
};
use hatchery_engine::Runner;
use serde_json::json;

use super::events::{self, OpenCall};
use super::task_id::TaskId;
use crate::error::{A2aError, ErrorKind};
use crate::model::{Message, StatusUpdate, Task, TaskState, TaskStatus, Update};

/// The error code of runs that refuse their task.
const REJECTED: &str = "REJECTED";

/// Number of events that are read at a time.
const PAGE_EVENTS: usize = 256;

/// A task with the runs and events that it consists of.
pub(super) struct StoredTask {
    pub(super) id: TaskId,
    pub(super) session: SessionKey,
    /// At least one.
    runs: Vec<StoredRun>,
    events: Vec<Arc<Event>>,
    /// The session's revision with these events.
    pub(super) revision: u64,
}

/// Returns the service of runs.
///
/// # Errors
/// If the session service has none.
pub(super) fn run_service(runner: &Runner) -> Result<&dyn RunService, A2aError> {
    let message = "the session service of this host stores no runs, so it has no tasks";
    runner.services().sessions.runs().ok_or_else(|| A2aError::new(ErrorKind::UnsupportedOperation, message))
}

/// Reads the events of tasks of one session, in one pass.
///
/// # Errors
/// The errors of the session service.
pub(super) async fn read_events(runner: &Runner, tasks: &mut [StoredTask]) -> Result<(), A2aError> {
    let Some(session) = tasks.first().map(|task| task.session.clone()) else { return Ok(()) };
    let mut owners = HashMap::new();
    for (index, task) in tasks.iter_mut().enumerate() {
        task.events.clear();
        owners.extend(task.runs.iter().map(|run| (run.id.clone(), index)));
    }
    let first_runs = tasks.iter().filter_map(|task| task.runs.first());
    let mut revision = first_runs.map(|run| run.first_revision).min().unwrap_or_default();
    loop {
        let window = EventWindow::Page { after: revision, limit: PAGE_EVENTS };
        let found = runner.services().sessions.get(&session, window).await?;
        let found = found.ok_or_else(|| StoreError::SessionNotFound(session.clone()))?;
        let is_last = found.events.is_empty() || revision + found.events.len() as u64 >= found.revision;
        revision += found.events.len() as u64;
        for event in found.events.iter().filter(|event| event.paused_run().is_none()) {
            let owner = owners.get(&event.invocation_id).copied();
            if let Some(task) = owner.and_then(|index| tasks.get_mut(index)) {
                task.events.push(event.clone());
            }
        }
        if is_last {
            break;
        }
    }
    tasks.iter_mut().for_each(|task| task.revision = revision);
    Ok(())
}

impl StoredTask {
    /// Reads a task.
    ///
    /// # Errors
    /// [`ErrorKind::TaskNotFound`] if there is none.
    pub(super) async fn load(runner: &Runner, app: &str, id: TaskId) -> Result<Self, A2aError> {
        let session = id.session(app);
        let service = run_service(runner)?;
        let mut runs = Vec::new();
        while let Some(run) = service.get(&session, &id.run(runs.len() + 1)).await? {
            runs.push(run);
        }
        let name = id.to_string();
        let mut task = Self::new(id, session, runs).ok_or_else(|| A2aError::task_not_found(&name))?;
        // After the runs, so that all events of a run that has ended are there.
        read_events(runner, std::slice::from_mut(&mut task)).await?;
        Ok(task)
    }

    /// Returns a task without its events. `None` if the runs, oldest first, do not begin with the first one of the
    /// task.
    pub(super) fn new(id: TaskId, session: SessionKey, mut runs: Vec<StoredRun>) -> Option<Self> {
        let own = runs.iter().enumerate().take_while(|(index, run)| run.id == id.run(index + 1)).count();
        runs.truncate(own);
        let revision = runs.first()?.first_revision;
        // Changes by this host are later than those by hosts whose clocks are ahead.
        runs.iter().for_each(|run| run.updated.observe());
        Some(Self { id, session, runs, events: Vec::new(), revision })
    }

    /// Returns the time of the last change of any run of the task.
    pub(super) fn updated_at(&self) -> Option<Timestamp> {
        self.newest_change().map(|run| run.updated)
    }

    /// Waits until the end of all runs of the task is stored, then reads the task.
    ///
    /// # Errors
    /// As [`StoredTask::load`].
    pub(super) async fn wait_until_ended(runner: &Runner, app: &str, id: TaskId) -> Result<Self, A2aError> {
        let mut stored = Self::load(runner, app, id).await?;
        loop {
            let run = stored.active_runs().next().map(|run| run.id.clone());
            let Some(run) = run else { return Ok(stored) };
            let Some(mut rest) = runner.follow(&stored.session, &run, stored.revision).await? else {
                return Err(A2aError::task_not_found(&stored.id.to_string()));
            };
            while let Some(update) = rest.next().await {
                update?;
            }
            stored = Self::load(runner, app, stored.id).await?;
        }
    }

    /// Returns the runs that are in progress or will be, oldest first.
    pub(super) fn active_runs(&self) -> impl Iterator<Item = &StoredRun> {
        self.runs.iter().filter(|run| run.state.is_active())
    }

    /// Returns the runs whose state has changed since a time, oldest first. `None` means all runs.
    pub(super) fn runs_changed_since(&self, time: Option<Timestamp>) -> impl Iterator<Item = &StoredRun> {
        self.runs.iter().filter(move |run| time.is_none_or(|time| run.updated > time))
    }

    /// Returns the runs that have not ended, oldest first.
    pub(super) fn open_runs(&self) -> impl Iterator<Item = &StoredRun> {
        self.runs.iter().filter(|run| !run.state.has_ended())
    }

    /// Returns the state of a run. `None` if the task has no such run.
    pub(super) fn run_state(&self, run: &str) -> Option<RunState> {
        self.runs.iter().find(|stored| stored.id == run).map(|stored| stored.state)
    }

    /// Returns the id of the run that is in progress, or was the last.
    pub(super) fn last_run(&self) -> String {
        self.id.run(self.runs.len())
    }

    /// Returns the id of the run that would follow.
    pub(super) fn next_run(&self) -> String {
        self.id.run(self.runs.len() + 1)
    }

    /// Returns the calls that wait for the client, if the task does.
    pub(super) fn open_calls(&self) -> Vec<OpenCall> {
        let is_waiting = self.runs.iter().any(|run| run.state == RunState::Waiting);
        if is_waiting { events::open_calls(&self.events) } else { Vec::new() }
    }

    /// Returns the most recently changed run.
    fn newest_change(&self) -> Option<&StoredRun> {
        self.runs.iter().max_by_key(|run| run.updated)
    }

    /// Returns the state of the task: terminal once all runs have ended, and then the state of the run that ended last.
    pub(super) fn state(&self) -> TaskState {
        let has = |state: RunState| self.runs.iter().any(|run| run.state == state);
        if has(RunState::Running) {
            return TaskState::Working;
        }
        if has(RunState::Accepted) {
            return TaskState::Submitted;
        }
        if has(RunState::Waiting) {
            return if self.open_calls().iter().any(|open| open.call.name == REQUEST_CREDENTIAL) {
                TaskState::AuthRequired
            } else {
                TaskState::InputRequired
            };
        }
        let Some(last) = self.newest_change() else { return TaskState::Unknown };
        match last.state {
            RunState::Accepted | RunState::Running | RunState::Waiting => TaskState::Unknown,
            RunState::Done => TaskState::Completed,
            RunState::Failed if last.failure.as_ref().is_some_and(|failure| failure.code == REJECTED) => {
                TaskState::Rejected
            }
            RunState::Failed => TaskState::Failed,
            RunState::Cancelled => TaskState::Canceled,
        }
    }

    /// Returns the state with its explanation.
    pub(super) fn status(&self) -> TaskStatus {
        let state = self.state();
        let last = self.newest_change();
        let failure = last.and_then(|run| Some((run, run.failure.as_ref()?)));
        let message = match state {
            TaskState::InputRequired | TaskState::AuthRequired => events::question(&self.open_calls(), &self.id),
            TaskState::Failed | TaskState::Rejected => {
                failure.map(|(run, failure)| events::failure(&self.id, &run.id, &failure.code, &failure.message))
            }
            TaskState::Unknown
            | TaskState::Submitted
            | TaskState::Working
            | TaskState::Completed
            | TaskState::Canceled => None,
        };
        TaskStatus { state, message, timestamp: last.map(|run| run.updated) }
    }

    /// Returns the only event of a run that has ended, if its agent has marked it to be sent as a message instead of a
    /// task.
    pub(super) fn message(&self) -> Option<Message> {
        let [StoredRun { state: RunState::Done, .. }] = self.runs.as_slice() else { return None };
        let mut answers = self.events.iter().filter(|event| event.author != USER_AUTHOR && event.content.is_some());
        let answer = answers.next()?;
        answers.next().is_none().then(|| events::message(answer, &self.id)).flatten()
    }

    /// Returns the task with the last messages of its history.
    pub(super) fn task(&self, history_length: Option<u32>) -> Task {
        let status = self.status();
        let current = status.message.as_ref().map(|message| message.id.clone());
        let messages = self.events.iter().filter_map(|event| {
            events::client_message(event, &self.id).or_else(|| {
                events::status_message(event, &self.id).filter(|message| Some(&message.id) != current.as_ref())
            })
        });
        let mut history: Vec<_> = messages.collect();
        if let Some(length) = history_length {
            let surplus = history.len().saturating_sub(length as usize);
            history.drain(..surplus);
        }
        Task {
            id: self.id.to_string(),
            context_id: self.id.context.clone(),
            status,
            artifacts: self.events.iter().filter_map(|event| events::artifact(event)).collect(),
            history,
            metadata: self.metadata(),
        }
    }

    /// Returns the update that ends a stream.
    pub(super) fn status_update(&self) -> Update {
        Update::Status(StatusUpdate {
            task_id: self.id.to_string(),
            context_id: self.id.context.clone(),
            status: self.status(),
            metadata: self.metadata(),
        })
    }

    fn metadata(&self) -> JsonMap {
        let SessionKey { app, user, id } = &self.session;
        JsonMap::from_iter([
            ("adk_app_name".into(), json!(app)),
            ("adk_user_id".into(), json!(user)),
            ("adk_session_id".into(), json!(id)),
            ("adk_invocation_id".into(), json!(self.last_run())),
        ])
    }
}
