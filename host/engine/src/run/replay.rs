//! Replay of an interrupted run. A run that is resumed starts again from its beginning, but each agent first consumes
//! its recorded events, in order, instead of repeating the actions that produced them. When they are used up, the agent
//! continues live.
//!
//! The recorded events are all that a replay needs: there are no checkpoints, and so no state that could contradict the
//! events.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use hatchery_core::sync::MutexExt;
use hatchery_core::{AgentContext, AgentId, AgentTree, Event, RunError, USER_AUTHOR, pluralize};

/// The recorded events of a run, or of one branch of a parallel agent. Empty for a run that is new.
pub(crate) struct Replay {
    events: Mutex<VecDeque<RecordedEvent>>,
    /// The user's responses to calls, shared by all branches.
    responses: Arc<Mutex<Vec<UserResponse>>>,
    /// True if the branch's parallel agent has ended, or is about to: the branch emits nothing new.
    is_closed: bool,
}

#[derive(Clone)]
struct RecordedEvent {
    /// The event's position in the run.
    index: usize,
    event: Arc<Event>,
}

impl RecordedEvent {
    fn has_kind(&self, kind: CallbackEventKind) -> bool {
        CallbackEventKind::from_event(&self.event) == Some(kind)
    }
}

/// A user's message with function responses.
struct UserResponse {
    event: Arc<Event>,
    /// Ids of the calls whose agent has not received the response yet.
    undelivered: HashSet<String>,
}

impl Replay {
    /// Returns the replay of a new run.
    pub(crate) fn empty() -> Arc<Self> {
        Self::with_events(VecDeque::new(), Arc::default(), false)
    }

    /// Returns the replay of a run. `events` begin after the user's first message. Failures are omitted, so that the
    /// action that failed is tried again.
    pub(crate) fn new<'a>(tree: &AgentTree, events: impl Iterator<Item = &'a Arc<Event>>) -> Arc<Self> {
        let (mut recorded, mut responses) = (VecDeque::new(), Vec::new());
        for (index, event) in events.enumerate() {
            if event.author == USER_AUTHOR {
                let ids = event.function_responses().filter_map(|response| response.id.clone());
                let undelivered: HashSet<_> = ids.collect();
                if !undelivered.is_empty() {
                    responses.push(UserResponse { event: event.clone(), undelivered });
                }
            } else if tree.find_agent(&event.author).is_some() && !event.is_run_failure() {
                recorded.push_back(RecordedEvent { index, event: event.clone() });
            }
        }
        Self::with_events(recorded, Arc::new(Mutex::new(responses)), false)
    }

    fn with_events(
        events: VecDeque<RecordedEvent>,
        responses: Arc<Mutex<Vec<UserResponse>>>,
        is_closed: bool,
    ) -> Arc<Self> {
        Arc::new(Self { events: Mutex::new(events), responses, is_closed })
    }

    /// Returns the event of the agent's next action: the recorded event if it `matches`, else the event that `live`
    /// returns.
    ///
    /// # Errors
    /// The errors of [`Replay::switch_to_live`], of the sink and of `live`.
    pub(crate) async fn replay_or_run<F>(
        &self,
        cx: &AgentContext,
        matches: impl FnOnce(&Event) -> bool,
        live: impl FnOnce() -> F,
    ) -> Result<Arc<Event>, RunError>
    where
        F: Future<Output = Result<Arc<Event>, RunError>>,
    {
        match self.next(cx, matches).await? {
            Some(event) => Ok(event),
            None => {
                self.switch_to_live(&cx.call.agent)?;
                live().await
            }
        }
    }

    /// Like [`Replay::replay_or_run`], for an action that need not emit an event. The action is also over if other
    /// events are recorded.
    ///
    /// # Errors
    /// The errors of [`Replay::replay_or_run`] and [`Replay::check_failure`].
    pub(crate) async fn replay_or_run_optional<F>(
        &self,
        cx: &AgentContext,
        matches: impl FnOnce(&Event) -> bool,
        live: impl FnOnce() -> F,
    ) -> Result<Option<Arc<Event>>, RunError>
    where
        F: Future<Output = Result<Option<Arc<Event>>, RunError>>,
    {
        match self.next(cx, matches).await? {
            Some(event) => Ok(Some(event)),
            None if self.has_more() => self.check_failure(&cx.call.agent).map(|()| None),
            None => {
                self.switch_to_live(&cx.call.agent)?;
                live().await
            }
        }
    }

    /// Returns the result of the callbacks before or after an agent: the result of `live` once the replay is finished,
    /// else the result that `recorded` reads from the agent's next event. `None` if they left no event.
    pub(crate) async fn replay_or_run_callbacks<T, F>(
        &self,
        cx: &AgentContext,
        recorded: impl FnOnce(&Event) -> Option<T>,
        live: impl FnOnce() -> F,
    ) -> Result<Option<T>, RunError>
    where
        F: Future<Output = Result<T, RunError>>,
    {
        if self.is_finished() {
            return live().await.map(Some);
        }
        let Some((event, result)) = self.take(&cx.call.agent, recorded) else { return Ok(None) };
        cx.sink.emit(event).await?;
        Ok(Some(result))
    }

    /// Removes and returns the agent's next recorded event, if it `matches`. The event goes to the enclosing agents, as
    /// it did when it was recorded.
    pub(crate) async fn next(
        &self,
        cx: &AgentContext,
        matches: impl FnOnce(&Event) -> bool,
    ) -> Result<Option<Arc<Event>>, RunError> {
        match self.take(&cx.call.agent, |event| matches(event).then_some(())) {
            Some((event, ())) => cx.sink.emit(event).await.map(Some),
            None => Ok(None),
        }
    }

    fn take<T>(&self, agent: &str, read: impl FnOnce(&Event) -> Option<T>) -> Option<(Arc<Event>, T)> {
        let mut events = self.events();
        let next = events.front().filter(|recorded| recorded.event.author == agent)?;
        let result = read(&next.event)?;
        events.pop_front().map(|recorded| (recorded.event, result))
    }

    /// Returns true if everything from here on happens for the first time.
    pub(crate) fn is_finished(&self) -> bool {
        !self.is_closed && self.events().is_empty()
    }

    /// Returns true if there are recorded events that no agent has consumed.
    pub(crate) fn has_more(&self) -> bool {
        !self.events().is_empty()
    }

    /// Returns true if the next recorded event is one of this agent.
    pub(crate) fn has_next_of(&self, agent: &str) -> bool {
        self.events().front().is_some_and(|recorded| recorded.event.author == agent)
    }

    /// Returns true for a branch whose parallel agent has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Ends the replay. Events that are left belong to agents that have changed since; they are dropped with a warning.
    ///
    /// # Errors
    /// [`RunError::Stopped`] in a branch whose parallel agent has ended, and the error of [`Replay::check_failure`].
    fn switch_to_live(&self, agent: &str) -> Result<(), RunError> {
        if self.is_closed {
            return Err(RunError::Stopped);
        }
        self.check_failure(agent)?;
        let remaining = std::mem::take(&mut *self.events());
        if !remaining.is_empty() {
            let events = pluralize(remaining.len(), "recorded event matches", "recorded events match");
            tracing::warn!(agent, "the agents have changed: {events} no agent any more");
        }
        Ok(())
    }

    /// Returns an error if the next recorded event is a recovery, because then the failed action must not be repeated.
    ///
    /// # Errors
    /// [`RunError::Agent`] if the next event is such a recovery. It is consumed by the agent whose callback recovered.
    pub(crate) fn check_failure(&self, agent: &str) -> Result<(), RunError> {
        if !self.events().front().is_some_and(|recorded| recorded.has_kind(CallbackEventKind::Recovery)) {
            return Ok(());
        }
        let message = "failed before the run was interrupted, and no agent recovers from that any more".into();
        Err(RunError::Agent { agent: agent.into(), code: "AGENT_FAILED".into(), message })
    }

    /// Returns the first user's response to one of these calls that their agent has not received yet, and marks it as
    /// received.
    pub(crate) fn response_to(&self, calls: &[String]) -> Option<Arc<Event>> {
        let mut responses = self.responses.lock_unpoisoned();
        let has_response = |response: &&mut UserResponse| calls.iter().any(|call| response.undelivered.contains(call));
        let response = responses.iter_mut().find(has_response)?;
        response.undelivered.retain(|id| !calls.contains(id));
        Some(response.event.clone())
    }

    /// Returns the replay for a sub-agent that code runs: this one, or an empty one if the next event is of another
    /// subtree. The code may have dropped the events of the sub-agent, which then runs again.
    pub(crate) fn for_sub_agent(self: &Arc<Self>, tree: &AgentTree, id: AgentId) -> Arc<Self> {
        let author = match self.events().front() {
            Some(next) => tree.find_agent(&next.event.author),
            None => return self.clone(),
        };
        let is_below = author.is_some_and(|author| author == id || tree.ancestors(author).any(|above| above == id));
        if is_below { self.clone() } else { Self::empty() }
    }

    /// Splits the recorded events into one replay per branch. Events that the branches do not consume are returned by
    /// [`Replay::join`]. The branches are closed if one of their events matches `ends_branches`, or if an event that
    /// `can_interleave` rejects follows their last event.
    pub(crate) fn fork(
        &self,
        branches: &[Arc<str>],
        ends_branches: impl Fn(&Event) -> bool,
        can_interleave: impl Fn(&Event) -> bool,
    ) -> Vec<Arc<Self>> {
        let mut forks: Vec<VecDeque<RecordedEvent>> = branches.iter().map(|_| VecDeque::new()).collect();
        let (mut has_ended, mut last) = (false, None);
        let mut events = self.events();
        events.retain(|recorded| {
            let branch = recorded.event.branch.as_deref().unwrap_or_default();
            let is_within = |outer: &Arc<str>| {
                branch.strip_prefix(&**outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let fork = branches.iter().position(is_within).and_then(|index| forks.get_mut(index));
            match fork {
                Some(fork) => {
                    has_ended |= ends_branches(&recorded.event);
                    last = Some(recorded.index);
                    fork.push_back(recorded.clone());
                    false
                }
                None => true,
            }
        });
        let is_after = |recorded: &RecordedEvent| last.is_some_and(|last| recorded.index > last);
        let went_on = events.iter().any(|recorded| is_after(recorded) && !can_interleave(&recorded.event));
        let is_closed = self.is_closed || has_ended || went_on;
        forks.into_iter().map(|events| Self::with_events(events, self.responses.clone(), is_closed)).collect()
    }

    /// Takes back the events that the branches have not consumed: the events of later rounds of a loop.
    pub(crate) fn join(&self, forks: &[Arc<Self>]) {
        let mut events = self.events();
        for fork in forks {
            events.append(&mut fork.events());
        }
        events.make_contiguous().sort_by_key(|recorded| recorded.index);
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<RecordedEvent>> {
        self.events.lock_unpoisoned()
    }
}

/// The kind of event that an agent's callbacks emit, derived from its content and `end_of_agent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallbackEventKind {
    /// Changes of the callbacks before the agent, which ran then.
    Start,
    /// The answer of the callbacks before the agent, which replaces its run, or of the callbacks after it.
    Answer,
    /// Changes of the callbacks after the agent.
    End,
    /// The answer of a callback that recovered from the agent's failure.
    Recovery,
}

impl CallbackEventKind {
    /// Returns the kind of an event. `None` if callbacks did not emit it.
    pub(crate) fn from_event(event: &Event) -> Option<Self> {
        Some(match (event.actions.end_of_agent?, event.content.is_some()) {
            (false, false) => Self::Start,
            (false, true) => Self::Recovery,
            (true, true) => Self::Answer,
            (true, false) => Self::End,
        })
    }

    /// Returns true for an event of the callbacks after an agent. Excludes blocked model responses, which also end
    /// their agent.
    pub(crate) fn is_agent_end(event: &Event) -> bool {
        matches!(Self::from_event(event), Some(Self::Answer | Self::End)) && event.error_code.is_none()
    }
}
