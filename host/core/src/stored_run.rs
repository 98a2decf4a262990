//! Stored runs: the state machine of a run, and the service that stores runs with their sessions.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::{RunError, StoreError};
use crate::id::SessionKey;
use crate::text::truncate_bytes;
use crate::time::Timestamp;

/// The state of a run. [`StoredRun::apply`] is the only place that changes it.
///
/// | from | to |
/// |---|---|
/// | accepted | running, failed, cancelled |
/// | running | running (continued after an interruption), waiting, done, failed, cancelled |
/// | waiting | running (answered), done (answered in another run), cancelled |
/// | done | running (an answer to one of its calls came later) |
/// | failed | running (tried again) |
/// | cancelled | none |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// The run has not begun yet: it starts in the background, or after an earlier turn of its session.
    Accepted,
    /// A host runs it, or did so until the host ended: then the run can be continued.
    Running,
    /// The run waits for a person or for the result of a long-running tool. It takes no resources of a host.
    Waiting,
    /// The run has ended without a failure.
    Done,
    /// The run has ended with an error.
    Failed,
    /// The run was cancelled.
    Cancelled,
}

impl RunState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Accepted, Self::Running, Self::Waiting, Self::Done, Self::Failed, Self::Cancelled];

    /// Returns the name in JSON and in stores.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Returns true if the run has ended.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// Returns true if the run is in progress, or begins without another request.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Accepted | Self::Running)
    }
}

/// A change of a run's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunTransition {
    /// The run begins or continues. If its cancellation was requested, it is cancelled instead.
    Start,
    /// The run is paused until a person decides or a result arrives.
    Wait,
    /// The run ends without a failure.
    Finish,
    /// The run no longer waits: another run has begun with the answers.
    Answer,
    /// The run ends with an error.
    Fail(RunFailure),
    /// The run is cancelled.
    Cancel,
    /// Requests cancellation: the host of a run in progress cancels it; any other run is cancelled immediately. No
    /// effect on a run that has ended.
    RequestCancel,
}

/// Maximum size in bytes of the message of a failure, before it is cut. A message may quote data of a component.
const MAX_FAILURE_MESSAGE: usize = 16 << 10;

/// The error of a failed run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    /// The stable code.
    pub code: String,
    /// The message for clients.
    pub message: String,
}

impl RunFailure {
    /// Returns the stored form of an error. A message of more than 16 KiB is cut.
    pub fn new(error: &RunError) -> Self {
        Self { code: error.code().into(), message: truncate_bytes(&error.client_message(), MAX_FAILURE_MESSAGE) }
    }
}

impl From<RunFailure> for RunError {
    fn from(RunFailure { code, message }: RunFailure) -> Self {
        Self::AlreadyReported { code, message }
    }
}

/// A run as it is stored. Its events are the session's events with its id as `invocationId`.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRun {
    /// The id, unique in the session. Clients may choose it.
    pub id: String,
    pub session: SessionKey,
    pub state: RunState,
    /// The error of a failed run.
    pub failure: Option<RunFailure>,
    /// True if no client waits for the run: hosts continue it on their own.
    pub is_background: bool,
    /// True once the cancellation of the run was requested.
    pub is_cancel_requested: bool,
    /// Number of times that the run was begun or continued; since the newest answer, if it has waited for one.
    pub attempts: u32,
    /// The session's revision before the run.
    pub first_revision: u64,
    /// The request as JSON, from which any host can begin a background run. `None` unless the run is active.
    pub request: Option<String>,
    /// When the run was accepted.
    pub accepted: Timestamp,
    /// When the state was changed.
    pub updated: Timestamp,
}

impl StoredRun {
    /// Returns an accepted run of a session with this revision.
    pub fn new(session: SessionKey, id: impl Into<String>, revision: u64) -> Self {
        let now = Timestamp::now();
        Self {
            id: id.into(),
            session,
            state: RunState::Accepted,
            failure: None,
            is_background: false,
            is_cancel_requested: false,
            attempts: 0,
            first_revision: revision,
            request: None,
            accepted: now,
            updated: now,
        }
    }

    /// Changes the state. Returns false, and changes nothing, if the run cannot get there from its state.
    #[must_use]
    pub fn apply(&mut self, transition: &RunTransition) -> bool {
        use RunState::{Accepted, Cancelled, Done, Failed, Running, Waiting};
        let state = match (transition, self.state) {
            (RunTransition::Start, Cancelled) => return false,
            (RunTransition::Start, Accepted | Running | Waiting | Done | Failed) if self.is_cancel_requested => {
                Cancelled
            }
            (RunTransition::Start, Accepted | Running | Waiting | Done | Failed) => Running,
            (RunTransition::Wait, Running) => Waiting,
            (RunTransition::Finish, Running) | (RunTransition::Answer, Waiting) => Done,
            (RunTransition::Fail(_), Accepted | Running) => Failed,
            (RunTransition::Cancel | RunTransition::RequestCancel, Accepted | Waiting)
            | (RunTransition::Cancel, Running) => Cancelled,
            (RunTransition::RequestCancel, Running) => {
                self.is_cancel_requested = true;
                return true;
            }
            (RunTransition::RequestCancel, Done | Failed | Cancelled) => return true,
            (RunTransition::Wait | RunTransition::Finish, Accepted | Waiting | Done | Failed | Cancelled)
            | (RunTransition::Answer, Accepted | Running | Done | Failed | Cancelled)
            | (RunTransition::Fail(_), Waiting | Done | Failed | Cancelled)
            | (RunTransition::Cancel, Done | Failed | Cancelled) => return false,
        };
        self.failure = match transition {
            RunTransition::Fail(failure) => Some(failure.clone()),
            _ => None,
        };
        if state == Running {
            // A run that gets an answer has reached its wait, so its earlier interruptions no longer count.
            let earlier = if matches!(self.state, Waiting | Done) { 0 } else { self.attempts };
            self.attempts = earlier.saturating_add(1);
        }
        self.is_cancel_requested &= state != Done && state != Failed;
        if !state.is_active() {
            self.request = None;
        }
        self.state = state;
        self.updated = Timestamp::now();
        true
    }

    /// Returns the bytes of the run's strings, which count towards quotas.
    pub fn bytes(&self) -> u64 {
        let failure = self.failure.as_ref().map_or(0, |failure| failure.code.len() + failure.message.len());
        (self.id.len() + failure + self.request.as_ref().map_or(0, String::len)) as u64
    }
}

/// The runs of a session, newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunPage {
    pub runs: Vec<StoredRun>,
    /// Cursor of the next page; `None` on the last one.
    pub next: Option<u64>,
}

/// Stores runs, in the same database as their sessions. Deleting a session deletes its runs, and rewinding a session
/// those that have begun since. The [bytes](StoredRun::bytes) of runs count as bytes of the session's events.
#[async_trait]
pub trait RunService: Send + Sync {
    /// Adds a run. If the session already has a run with this id, nothing changes. Returns the stored run.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if the session does not exist.
    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError>;

    /// Adds a run unless the session has it, and [starts](RunTransition::Start) it in the turn `fence`, in one
    /// transaction. Returns the stored run, which is not running if it was cancelled.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if the session does not exist, [`StoreError::Fenced`] if another turn has begun.
    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError>;

    /// Changes the state of a run, if it can get there from its state. Returns the stored run; `None` if there is no
    /// such run. `fence` is the fence of the turn that the run is part of; it is compared in the same transaction.
    /// `None` is for changes outside of a turn. When this returns, the change survives a crash of the process.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if another turn has begun.
    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError>;

    /// Like [`RunService::start`] for a new run, but may return before it is stored. It is stored soon, and before any
    /// later write for the same user; until then a crash of the process loses it. Reads of this service wait for it.
    /// The default waits.
    ///
    /// # Errors
    /// As [`RunService::start`], as far as they are known immediately.
    async fn start_later(&self, run: &StoredRun, fence: u64) -> Result<(), StoreError> {
        self.start(run, fence).await.map(drop)
    }

    /// Like [`RunService::change`], but need not wait, as [`RunService::start_later`].
    ///
    /// # Errors
    /// As [`RunService::change`], as far as they are known immediately.
    async fn change_later(
        &self,
        session: &SessionKey,
        run: &str,
        fence: u64,
        transition: &RunTransition,
    ) -> Result<(), StoreError> {
        self.change(session, run, Some(fence), transition).await.map(drop)
    }

    /// Returns a run; `None` if there is no such run.
    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError>;

    /// Returns at most `limit` runs of a session, newest first, starting at [`RunPage::next`] of the previous page;
    /// none if the session does not exist.
    async fn list(&self, session: &SessionKey, from: Option<u64>, limit: usize) -> Result<RunPage, StoreError>;

    /// Returns the id of the [running](RunState::Running) run of a session that was started last. `None` if no turn
    /// holds the session. The others were interrupted by the end of their hosts.
    async fn find_running(&self, session: &SessionKey) -> Result<Option<String>, StoreError>;

    /// Returns true if a turn holds the session. If none does, no host has a run of the session in progress or behind
    /// one in its queue. False if the session does not exist.
    async fn has_turn(&self, session: &SessionKey) -> Result<bool, StoreError>;

    /// Returns at most `limit` background runs of these apps that are accepted or running, and whose session is held by
    /// no turn, longest waiting first. Their requests, which may be large, are omitted.
    async fn list_interrupted(&self, apps: &[String], limit: usize) -> Result<Vec<StoredRun>, StoreError>;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn transitions() -> impl Strategy<Value = RunTransition> {
        let failure = RunFailure { code: "LIMIT_REACHED".into(), message: "too many".into() };
        prop_oneof![
            3 => Just(RunTransition::Start),
            1 => Just(RunTransition::Wait),
            1 => Just(RunTransition::Finish),
            1 => Just(RunTransition::Answer),
            1 => Just(RunTransition::Fail(failure)),
            1 => Just(RunTransition::Cancel),
            1 => Just(RunTransition::RequestCancel),
        ]
    }

    fn new_run() -> StoredRun {
        StoredRun { request: Some("{}".into()), ..StoredRun::new(SessionKey::new("app", "ann", "s1"), "r1", 0) }
    }

    #[test]
    fn every_state_has_a_name_that_is_read_back() {
        for state in RunState::ALL {
            assert_eq!(RunState::from_name(state.name()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
        assert_eq!(RunState::from_name("asleep"), None);
    }

    proptest! {
        #[test]
        fn runs_keep_the_rules_of_their_states(steps in prop::collection::vec(transitions(), 0..40)) {
            let mut run = new_run();
            for transition in steps {
                let before = run.clone();
                let has_changed = run.apply(&transition);
                prop_assert!(has_changed || run == before, "a refused transition changes nothing");
                prop_assert!(before.state != RunState::Cancelled || run == before, "a cancelled run stays so");
                prop_assert_eq!(run.failure.is_some(), run.state == RunState::Failed);
                prop_assert!(run.request.is_none() || run.state.is_active());
                let begins = run.state == RunState::Running && transition == RunTransition::Start;
                let has_answer = matches!(before.state, RunState::Waiting | RunState::Done);
                let earlier = if begins && has_answer { 0 } else { before.attempts };
                prop_assert_eq!(run.attempts, earlier + u32::from(begins));
                if before.state != run.state {
                    prop_assert!(run.updated > before.updated);
                    prop_assert!(run.state != RunState::Accepted, "nothing leads back to the beginning");
                    let needs_start = before.state.has_ended() || before.state == RunState::Waiting;
                    let is_cancelled = run.state == RunState::Cancelled;
                    let is_answered = (before.state, run.state) == (RunState::Waiting, RunState::Done);
                    prop_assert!(!needs_start || is_cancelled || is_answered || run.state == RunState::Running);
                }
                if before.is_cancel_requested && transition == RunTransition::Start && has_changed {
                    prop_assert_eq!(run.state, RunState::Cancelled);
                }
            }
        }
    }
}
