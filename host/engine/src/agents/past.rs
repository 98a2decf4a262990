//! What an interrupted run has done already. A run that goes on is run again from its beginning, but each agent first takes the events that
//! it has stored, in their order, instead of doing again what led to them. Where they end, it goes on for real.
//!
//! Nothing beside the events is needed: no checkpoints, and no state that could contradict them.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hatchery_core::agent::AgentTree;
use hatchery_core::event::USER;
use hatchery_core::{AgentId, Event};

/// The stored events of one strand of a run: of all of it, or of one branch of a parallel agent.
pub(crate) struct Past {
    events: Mutex<VecDeque<Stored>>,
    /// What the user has answered meanwhile, the same for all strands.
    answers: Arc<Mutex<Vec<Answer>>>,
    /// Another branch has ended this one: nothing new happens in it.
    is_closed: bool,
}

/// An event with its place in the run.
#[derive(Clone)]
struct Stored {
    place: usize,
    event: Arc<Event>,
}

/// Function responses of the user, and those of their ids that an agent has still to hear of.
struct Answer {
    event: Arc<Event>,
    unheard: HashSet<String>,
}

impl Past {
    /// Of a run that begins.
    pub(crate) fn none() -> Arc<Self> {
        Self::of(VecDeque::new(), Arc::default(), false)
    }

    /// Of a run with these events, beginning after the user's first message. Failures are left out, so that what failed is tried again.
    pub(crate) fn new<'a>(tree: &AgentTree, events: impl Iterator<Item = &'a Arc<Event>>) -> Arc<Self> {
        let (mut stored, mut answers) = (VecDeque::new(), Vec::new());
        for (place, event) in events.enumerate() {
            if event.author == USER {
                let unheard: HashSet<_> = event.function_responses().filter_map(|answer| answer.id.clone()).collect();
                if !unheard.is_empty() {
                    answers.push(Answer { event: event.clone(), unheard });
                }
            } else if tree.find_agent(&event.author).is_some() && !is_failure(event) {
                stored.push_back(Stored { place, event: event.clone() });
            }
        }
        Self::of(stored, Arc::new(Mutex::new(answers)), false)
    }

    fn of(events: VecDeque<Stored>, answers: Arc<Mutex<Vec<Answer>>>, is_closed: bool) -> Arc<Self> {
        Arc::new(Self { events: Mutex::new(events), answers, is_closed })
    }

    /// True when what comes next happens for the first time.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_closed && self.events().is_empty()
    }

    /// True while there are events that nobody has taken.
    pub(crate) fn has_more(&self) -> bool {
        !self.events().is_empty()
    }

    /// The next event, if it is the agent's and `fits`.
    pub(crate) fn take(&self, agent: &str, fits: impl FnOnce(&Event) -> bool) -> Option<Arc<Event>> {
        let mut events = self.events();
        let next = events.front().filter(|stored| stored.event.author == agent && fits(&stored.event));
        next?;
        events.pop_front().map(|stored| stored.event)
    }

    /// Waits for what happens for the first time; for ever, when another branch has ended this one. Events that nobody has taken are from
    /// agents that have changed since.
    pub(crate) async fn go_live(&self, agent: &str) {
        if self.is_closed {
            std::future::pending::<()>().await;
        }
        let left = std::mem::take(&mut *self.events());
        if !left.is_empty() {
            tracing::warn!(agent, "the agents have changed: {} stored events fit no agent any more", left.len());
        }
    }

    /// What the user has answered to one of these calls, the first that the agents have not heard of.
    pub(crate) fn answer_to(&self, calls: &[String]) -> Option<Arc<Event>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answers.iter_mut().find(|answer| calls.iter().any(|call| answer.unheard.contains(call)))?;
        answer.unheard.retain(|id| !calls.contains(id));
        Some(answer.event.clone())
    }

    /// True when the next event is of an agent in the subtree of `id`.
    pub(crate) fn is_below(&self, tree: &AgentTree, id: AgentId) -> bool {
        let author = self.events().front().and_then(|stored| tree.find_agent(&stored.event.author));
        author.is_some_and(|author| author == id || tree.ancestors(author).any(|above| above == id))
    }

    /// The strands of parallel branches. What they leave comes back by [`Past::join`].
    pub(crate) fn split(&self, branches: &[Arc<str>]) -> Vec<Arc<Self>> {
        let mut strands: Vec<VecDeque<Stored>> = branches.iter().map(|_| VecDeque::new()).collect();
        let mut escalated = false;
        self.events().retain(|stored| {
            let branch = stored.event.branch.as_deref().unwrap_or_default();
            let within = |outer: &Arc<str>| {
                branch.strip_prefix(&**outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let strand = branches.iter().position(within).and_then(|index| strands.get_mut(index));
            escalated |= strand.is_some() && stored.event.actions.escalate == Some(true);
            match strand {
                Some(strand) => {
                    strand.push_back(stored.clone());
                    false
                }
                None => true,
            }
        });
        let is_closed = self.is_closed || escalated;
        strands.into_iter().map(|events| Self::of(events, self.answers.clone(), is_closed)).collect()
    }

    /// Takes back what strands have left: the events of later rounds of a loop.
    pub(crate) fn join(&self, strands: &[Arc<Self>]) {
        let mut events = self.events();
        for strand in strands {
            events.append(&mut strand.events());
        }
        events.make_contiguous().sort_by_key(|stored| stored.place);
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<Stored>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_failure(event: &Event) -> bool {
    event.error_code.is_some() && event.content.is_none()
}
