//! Finds the run that a request resumes: after a crash, or once a result is there or a person has decided.

use std::collections::HashSet;
use std::sync::Arc;

use hatchery_core::{AgentTree, Claim, Content, Event, RunError, USER_AUTHOR};
use imbl::Vector;

use super::RunRequest;
use super::event_log::SentEvent;
use super::paused_run::PausedRun;
use crate::app::App;
use crate::provenance::Verifier;
use crate::run::Replay;

/// A stored run that is resumed.
pub(super) struct ResumedRun {
    pub(super) invocation_id: String,
    /// The position of the user's message that began it.
    first_message: usize,
}

impl ResumedRun {
    /// Returns the run that the request resumes, or `None` if it begins a new one.
    ///
    /// # Errors
    /// If there is no such run, this host did not record it, or the message cannot resume it.
    pub(super) fn find(
        app: &App,
        request: &RunRequest,
        events: &Vector<Arc<Event>>,
        verifier: &Verifier<'_>,
    ) -> Result<Option<Self>, RunError> {
        if let Some(run_id) = &request.run_id {
            return Self::find_attached(run_id, events, verifier);
        }
        let responses = request.message.as_ref().filter(|message| message.function_responses().next().is_some());
        let calls =
            responses.filter(|_| app.settings.resumable).and_then(|it| AnsweredCalls::find(it, events, verifier));
        let is_over =
            |calls: &AnsweredCalls<'_>| calls.are_processed() || is_ended(events, &calls.newest.invocation_id);
        if calls.as_ref().is_some_and(is_over) {
            // The run does not wait for these calls any more: the message begins a new run.
            return Ok(None);
        }
        let Some(invocation_id) = &request.invocation_id else {
            return Ok(calls.and_then(|calls| Self::new(&calls.newest.invocation_id, events, verifier)));
        };
        if request.message.is_some() && responses.is_none() {
            return Err(RunError::BadInput(format!(
                "a message that resumes invocation `{invocation_id}` must contain function responses; omit the invocation's id to \
                 begin a new run"
            )));
        }
        if responses.is_some() && !app.settings.resumable {
            // The run did not wait for the responses: they begin a new one.
            return Ok(None);
        }
        if is_ended(events, invocation_id) {
            return Err(RunError::BadInput(format!(
                "invocation `{invocation_id}` was ended by one of its agents; omit its id to begin a new run"
            )));
        }
        Self::new(invocation_id, events, verifier).map(Some).ok_or_else(|| RunError::NotFound {
            kind: "Invocation",
            name: invocation_id.clone(),
            hint: if events.iter().any(|event| is_message_of(event, invocation_id)) {
                "; its message carries no proof that this host recorded it (it was imported, was stored by an older version, or the host's \
                 key has changed), so send the message again as a new one"
                    .into()
            } else {
                "; the session has no user message that began it".into()
            },
        })
    }

    /// Returns the run that a request with a run id attaches to, or `None` if there is no such run yet.
    ///
    /// # Errors
    /// If this host did not record it.
    fn find_attached(
        run_id: &str,
        events: &Vector<Arc<Event>>,
        verifier: &Verifier<'_>,
    ) -> Result<Option<Self>, RunError> {
        match Self::new(run_id, events, verifier) {
            None if events.iter().any(|event| event.invocation_id == run_id) => Err(RunError::BadInput(format!(
                "the session has events of a run `{run_id}` that this host did not record; use another id for a new run"
            ))),
            attached => Ok(attached),
        }
    }

    /// Returns the events that the run has emitted so far, each with the session's revision after it. `revision` is the
    /// revision after all of `events`.
    pub(super) fn emitted_events(&self, events: &Vector<Arc<Event>>, revision: u64) -> Vec<SentEvent> {
        let before = revision.saturating_sub(events.len() as u64);
        let is_own = |event: &Arc<Event>| event.invocation_id == self.invocation_id && event.author != USER_AUTHOR;
        let numbered = (before + 1..).zip(events).skip(self.first_message + 1).filter(|(_, event)| is_own(event));
        numbered.map(|(revision, event)| (Some(revision), event.clone())).collect()
    }

    /// Returns the failure with which the run has ended. `None` if it was cancelled, such as by the end of a host.
    pub(super) fn failure(&self, events: &Vector<Arc<Event>>) -> Option<RunError> {
        let events = self.events(events);
        let reported = events.last().filter(|event| event.is_run_failure())?;
        let (code, message) = (reported.error_code.clone()?, reported.error_message.clone().unwrap_or_default());
        (code != RunError::Cancelled.code()).then_some(RunError::AlreadyReported { code, message })
    }

    fn new(invocation_id: &str, events: &Vector<Arc<Event>>, verifier: &Verifier<'_>) -> Option<Self> {
        let begins_run = |event: &Arc<Event>| is_message_of(event, invocation_id) && verifier.proves(event, Claim::Run);
        Some(Self { invocation_id: invocation_id.into(), first_message: events.iter().position(begins_run)? })
    }

    /// Returns the position of the message that began the run.
    pub(super) fn first_message(&self) -> usize {
        self.first_message
    }

    /// Returns the events up to the message that began the run.
    pub(super) fn events_before_agents(&self, events: &Vector<Arc<Event>>) -> Vector<Arc<Event>> {
        events.take(self.first_message + 1)
    }

    /// Returns the message that began the run.
    pub(super) fn user_content(&self, events: &Vector<Arc<Event>>) -> Arc<Content> {
        events.get(self.first_message).and_then(|event| event.content.clone()).unwrap_or_default()
    }

    /// Returns the state and the usage of the run when it paused or was interrupted.
    pub(super) fn paused_run(&self, events: &Vector<Arc<Event>>, verifier: &Verifier<'_>) -> PausedRun {
        PausedRun::from_events(&self.events(events), verifier)
    }

    /// Returns the ids of the run's events.
    pub(super) fn event_ids(&self, events: &Vector<Arc<Event>>) -> HashSet<String> {
        self.events(events).iter().map(|event| event.id.clone()).collect()
    }

    /// Returns the replay of the run's events.
    pub(super) fn replay(&self, tree: &AgentTree, events: &Vector<Arc<Event>>) -> Arc<Replay> {
        Replay::new(tree, self.events(events).iter())
    }

    fn events(&self, events: &Vector<Arc<Event>>) -> Vector<Arc<Event>> {
        let since = events.skip(self.first_message + 1);
        since.into_iter().filter(|event| event.invocation_id == self.invocation_id).collect()
    }
}

/// Returns true if an event has ended the run.
pub(super) fn is_ended(events: &Vector<Arc<Event>>, invocation_id: &str) -> bool {
    let ends = |event: &Arc<Event>| event.actions.end_invocation == Some(true) && event.invocation_id == invocation_id;
    events.iter().rev().any(ends)
}

fn is_message_of(event: &Event, invocation_id: &str) -> bool {
    event.author == USER_AUTHOR && event.invocation_id == invocation_id
}

/// Calls that a message responds to.
struct AnsweredCalls<'a> {
    ids: HashSet<&'a str>,
    /// The newest event with one of the calls.
    newest: &'a Event,
    /// The events after it.
    later_events: Vector<Arc<Event>>,
}

impl<'a> AnsweredCalls<'a> {
    fn find(responses: &'a Content, events: &'a Vector<Arc<Event>>, verifier: &Verifier<'_>) -> Option<Self> {
        let ids: HashSet<_> = responses.function_responses().filter_map(|response| response.id.as_deref()).collect();
        let calls =
            |event: &Event| event.function_calls().any(|call| call.id.as_deref().is_some_and(|id| ids.contains(id)));
        let is_call =
            |event: &Arc<Event>| event.author != USER_AUTHOR && calls(event) && verifier.proves_open_calls(event);
        let index = events.iter().rposition(is_call)?;
        let newest = events.get(index)?;
        Some(Self { ids, newest, later_events: events.skip(index + 1) })
    }

    /// Returns true if all of the calls were responded to before, and their agent has continued since.
    fn are_processed(&self) -> bool {
        let (mut received, mut processed) = (HashSet::new(), HashSet::new());
        for event in self.later_events.iter().filter(|event| event.invocation_id == self.newest.invocation_id) {
            if event.author == USER_AUTHOR {
                received.extend(event.function_responses().filter_map(|response| response.id.as_deref()));
            } else if event.author == self.newest.author && !event.is_run_failure() {
                processed.extend(received.drain());
            }
        }
        self.ids.is_subset(&processed)
    }
}
