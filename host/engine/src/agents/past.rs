//! What an interrupted run has done already. A run that goes on is run again from its beginning, but each agent first takes the events that
//! it has stored, in their order, instead of doing again what led to them. Where they end, it goes on for real.
//!
//! Nothing beside the events is needed: no checkpoints, and no state that could contradict them.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use hatchery_core::sync::MutexExt;
use hatchery_core::{AgentId, AgentTree, Event, RunError, USER_AUTHOR};

/// The stored events of one strand of a run: of all of it, or of one branch of a parallel agent.
pub(crate) struct Past {
    events: Mutex<VecDeque<Stored>>,
    /// What the user has answered meanwhile, the same for all strands.
    answers: Arc<Mutex<Vec<Answer>>>,
    /// Its parallel agent has ended, or is about to: nothing new happens in it.
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
            if event.author == USER_AUTHOR {
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

    /// Lets what comes next happen for the first time. Events that nobody has taken are from agents that have changed since.
    ///
    /// # Errors
    /// [`RunError::Stopped`] in a branch whose parallel agent has ended, and as [`Past::check_failure`].
    pub(crate) fn go_live(&self, agent: &str) -> Result<(), RunError> {
        if self.is_closed {
            return Err(RunError::Stopped);
        }
        self.check_failure(agent)?;
        let left = std::mem::take(&mut *self.events());
        if !left.is_empty() {
            tracing::warn!(agent, "the agents have changed: {} stored events fit no agent any more", left.len());
        }
        Ok(())
    }

    /// Fails where the run has failed before and a callback has answered for that: what failed is not tried again then.
    ///
    /// # Errors
    /// When the next event is such an answer. The agent whose callback it was takes it.
    pub(crate) fn check_failure(&self, agent: &str) -> Result<(), RunError> {
        if !self.events().front().is_some_and(|stored| is_mended(&stored.event)) {
            return Ok(());
        }
        let message = "failed before the run was interrupted, and no agent answers for that any more".into();
        Err(RunError::Agent { agent: agent.into(), code: "AGENT_FAILED".into(), message })
    }

    /// True in a branch whose parallel agent has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// What the user has answered to one of these calls, the first that the agents have not heard of.
    pub(crate) fn answer_to(&self, calls: &[String]) -> Option<Arc<Event>> {
        let mut answers = self.answers.lock_unpoisoned();
        let answer = answers.iter_mut().find(|answer| calls.iter().any(|call| answer.unheard.contains(call)))?;
        answer.unheard.retain(|id| !calls.contains(id));
        Some(answer.event.clone())
    }

    /// True when the next event is of an agent in the subtree of `id`.
    pub(crate) fn is_below(&self, tree: &AgentTree, id: AgentId) -> bool {
        let author = self.events().front().and_then(|stored| tree.find_agent(&stored.event.author));
        author.is_some_and(|author| author == id || tree.ancestors(author).any(|above| above == id))
    }

    /// The strands of parallel branches. What they leave comes back by [`Past::join`]. The parallel agent has ended when one of its branches
    /// has escalated, or when something comes after all that is in them that `may_interleave` does not know.
    pub(crate) fn split(&self, branches: &[Arc<str>], may_interleave: impl Fn(&Event) -> bool) -> Vec<Arc<Self>> {
        let mut strands: Vec<VecDeque<Stored>> = branches.iter().map(|_| VecDeque::new()).collect();
        let (mut escalated, mut last) = (false, None);
        let mut events = self.events();
        events.retain(|stored| {
            let branch = stored.event.branch.as_deref().unwrap_or_default();
            let within = |outer: &Arc<str>| {
                branch.strip_prefix(&**outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let strand = branches.iter().position(within).and_then(|index| strands.get_mut(index));
            match strand {
                Some(strand) => {
                    escalated |= stored.event.actions.escalate == Some(true);
                    last = Some(stored.place);
                    strand.push_back(stored.clone());
                    false
                }
                None => true,
            }
        });
        let is_after = |stored: &Stored| last.is_some_and(|last| stored.place > last);
        let went_on = events.iter().any(|stored| is_after(stored) && !may_interleave(&stored.event));
        let is_closed = self.is_closed || escalated || went_on;
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
        self.events.lock_unpoisoned()
    }
}

/// True for what a callback has set before its agent began.
pub(crate) fn is_first(event: &Event) -> bool {
    event.content.is_none() && event.actions.end_of_agent == Some(false)
}

/// True for what a callback has answered for an agent that failed.
pub(crate) fn is_mended(event: &Event) -> bool {
    event.content.is_some() && event.actions.end_of_agent == Some(false)
}

/// True for the last event of an agent's part, where a callback made it.
pub(crate) fn is_last(event: &Event) -> bool {
    event.actions.end_of_agent == Some(true)
}

/// True for what the runner says of a run that has failed.
pub(crate) fn is_failure(event: &Event) -> bool {
    event.error_code.is_some() && event.content.is_none()
}
