//! Runs that go on: after a crash, or once a result has come or a person has decided.

use std::collections::HashSet;
use std::sync::Arc;

use hatchery_core::{AgentTree, Claim, Content, Event, RunError, USER_AUTHOR};
use imbl::Vector;

use super::RunRequest;
use crate::agents::past::{Past, is_failure};
use crate::app::App;
use crate::provenance::Verifier;

/// A stored run that goes on.
pub(super) struct Resumed {
    pub(super) invocation_id: String,
    /// The place of the user's message that began it.
    opening: usize,
}

impl Resumed {
    /// The run that the request goes on with, or `None` when it begins a new one.
    ///
    /// # Errors
    /// When there is no such run, this host did not record it, or the message cannot go on with it.
    pub(super) fn find(
        app: &App,
        request: &RunRequest,
        events: &Vector<Arc<Event>>,
        verifier: &Verifier<'_>,
    ) -> Result<Option<Self>, RunError> {
        let answers = request.message.as_ref().filter(|message| message.function_responses().next().is_some());
        let answers_of_runs = answers.filter(|_| app.settings.resumable);
        let answered = answers_of_runs.and_then(|answers| Answered::find(answers, events, verifier));
        if answered.as_ref().is_some_and(Answered::has_been_heard) {
            // The run has gone on and does not wait any more: what is said about its calls now begins a new one.
            return Ok(None);
        }
        let Some(invocation_id) = &request.invocation_id else {
            return Ok(answered.and_then(|answered| Self::new(&answered.call.invocation_id, events, verifier)));
        };
        if request.message.is_some() && answers.is_none() {
            return Err(RunError::BadInput(format!(
                "a message that goes on with `{invocation_id}` must hold function responses; leave the invocation's id out to say something \
                 new"
            )));
        }
        if answers.is_some() && !app.settings.resumable {
            // The run did not wait for the answers: they begin a new one.
            return Ok(None);
        }
        Self::new(invocation_id, events, verifier).map(Some).ok_or_else(|| RunError::NotFound {
            what: "Invocation",
            name: invocation_id.clone(),
            hint: if events.iter().any(|event| is_message_of(event, invocation_id)) {
                "; its message carries no proof that this host recorded it (it was imported, was stored by an older version, or the host's \
                 key has changed), so send the message again as a new one"
                    .into()
            } else {
                "; the session has no message of the user that began it".into()
            },
        })
    }

    fn new(invocation_id: &str, events: &Vector<Arc<Event>>, verifier: &Verifier<'_>) -> Option<Self> {
        let opens = |event: &Arc<Event>| is_message_of(event, invocation_id) && verifier.proves(event, Claim::Run);
        Some(Self { invocation_id: invocation_id.into(), opening: events.iter().position(opens)? })
    }

    /// The events up to what the user said to begin the run.
    pub(super) fn beginning(&self, events: &Vector<Arc<Event>>) -> Vector<Arc<Event>> {
        events.take(self.opening + 1)
    }

    /// What the user said to begin it.
    pub(super) fn user_content(&self, events: &Vector<Arc<Event>>) -> Arc<Content> {
        events.get(self.opening).and_then(|event| event.content.clone()).unwrap_or_default()
    }

    /// Ids of its events.
    pub(super) fn event_ids(&self, events: &Vector<Arc<Event>>) -> HashSet<String> {
        self.events(events).iter().map(|event| event.id.clone()).collect()
    }

    /// What its agents have done.
    pub(super) fn past(&self, tree: &AgentTree, events: &Vector<Arc<Event>>) -> Arc<Past> {
        Past::new(tree, self.events(events).iter())
    }

    fn events(&self, events: &Vector<Arc<Event>>) -> Vector<Arc<Event>> {
        let since = events.skip(self.opening + 1);
        since.into_iter().filter(|event| event.invocation_id == self.invocation_id).collect()
    }
}

fn is_message_of(event: &Event, invocation_id: &str) -> bool {
    event.author == USER_AUTHOR && event.invocation_id == invocation_id
}

/// Calls that a message answers.
struct Answered<'a> {
    ids: HashSet<&'a str>,
    /// The newest of their events.
    call: &'a Event,
    /// What came after it.
    later: Vector<Arc<Event>>,
}

impl<'a> Answered<'a> {
    fn find(answers: &'a Content, events: &'a Vector<Arc<Event>>, verifier: &Verifier<'_>) -> Option<Self> {
        let ids: HashSet<_> = answers.function_responses().filter_map(|answer| answer.id.as_deref()).collect();
        let calls =
            |event: &Event| event.function_calls().any(|call| call.id.as_deref().is_some_and(|id| ids.contains(id)));
        let is_call =
            |event: &Arc<Event>| event.author != USER_AUTHOR && calls(event) && verifier.proves_open_calls(event);
        let place = events.iter().rposition(is_call)?;
        let call = events.get(place)?;
        Some(Self { ids, call, later: events.skip(place + 1) })
    }

    /// True when all of them have been answered before, and their agent has gone on since.
    fn has_been_heard(&self) -> bool {
        let (mut said, mut heard) = (HashSet::new(), HashSet::new());
        for event in self.later.iter().filter(|event| event.invocation_id == self.call.invocation_id) {
            if event.author == USER_AUTHOR {
                said.extend(event.function_responses().filter_map(|answer| answer.id.as_deref()));
            } else if event.author == self.call.author && !is_failure(event) {
                heard.extend(said.drain());
            }
        }
        self.ids.is_subset(&heard)
    }
}
