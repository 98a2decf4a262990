//! The run context: data that all agents of one run share.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};

use hatchery_core::sync::MutexExt;
use hatchery_core::{Agent, AgentHost, AgentId, CallContext, Event, Invocation, RunError};

use super::{Branch, LiveInput, Replay};
use crate::app::App;
use crate::history::compaction::Compactions;
use crate::history::contents::PromptViews;
use crate::plugins::Plugins;
use crate::provenance::Verifier;
use crate::tools::confirmation::{self, AnsweredCall};

/// Creates the [`AgentHost`] of an agent's run. Injected, because the host runs agents and those are built on this
/// module.
pub(crate) type MakeHost = fn(&Arc<RunContext>, AgentId, &Arc<Replay>) -> Arc<dyn AgentHost>;

/// Data that all agents of a run share.
pub(crate) struct RunContext {
    pub(crate) app: Arc<App>,
    pub(crate) invocation: Arc<Invocation>,
    pub(crate) plugins: Plugins,
    /// The agents' prompt views of the session, kept between turns.
    pub(crate) views: Mutex<PromptViews>,
    /// `None` unless the run is live.
    pub(crate) live: Option<LiveInput>,
    /// `None` if the session is not stored.
    pub(super) compactions: Option<Compactions>,
    pub(super) make_host: MakeHost,
    /// The user's first message, if it answers requests of calls.
    first_message: OnceLock<Arc<Event>>,
    /// The agents that have received the answers in it.
    informed_agents: Mutex<HashSet<String>>,
    /// The agent whose failure is not yet handled by an agent above it.
    failed_agent: Mutex<Option<AgentId>>,
    /// Ids of the events whose escalation has ended a loop.
    handled_escalations: Mutex<HashSet<String>>,
}

impl RunContext {
    /// Returns the context of a run whose session is not stored.
    pub(crate) fn new(app: Arc<App>, invocation: Arc<Invocation>, plugins: Plugins, make_host: MakeHost) -> Self {
        Self {
            app,
            invocation,
            plugins,
            views: Mutex::default(),
            live: None,
            compactions: None,
            make_host,
            first_message: OnceLock::new(),
            informed_agents: Mutex::default(),
            failed_agent: Mutex::default(),
            handled_escalations: Mutex::default(),
        }
    }

    /// Sets the data that a stored session keeps between turns.
    pub(crate) fn with_history(self, views: PromptViews, compactions: Compactions) -> Self {
        Self { views: Mutex::new(views), compactions: Some(compactions), ..self }
    }

    /// Sets the input of a live run.
    pub(crate) fn with_live_input(self, live: Option<LiveInput>) -> Self {
        Self { live, ..self }
    }

    pub(crate) fn agent(&self, id: AgentId) -> &Agent {
        self.app.tree.agent(id)
    }

    /// Returns a context for code that works for an agent, with its own host.
    pub(crate) fn call_context(self: &Arc<Self>, id: AgentId, branch: Branch, replay: &Arc<Replay>) -> CallContext {
        let name = self.agent(id).name.as_str();
        let host = (self.make_host)(self, id, replay);
        CallContext::new(self.invocation.clone(), name, branch).with_host(host)
    }

    /// Removes and returns the prompt views.
    pub(crate) fn take_views(&self) -> PromptViews {
        std::mem::take(&mut *self.views.lock_unpoisoned())
    }

    /// Sets the user's message that began the run, if it answers requests of calls.
    pub(crate) fn set_first_message(&self, message: Arc<Event>) {
        if confirmation::is_answer(&message) {
            let _ = self.first_message.set(message);
        }
    }

    /// Returns the calls of an agent whose requests the user's first message answers. Empty for later calls with the
    /// same agent.
    pub(crate) fn take_answers(&self, agent: &str) -> Vec<AnsweredCall> {
        match self.first_message.get() {
            Some(message) if self.informed_agents.lock_unpoisoned().insert(agent.into()) => {
                self.answers_in(message, agent)
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Returns the calls of an agent for which a user's message answers requests.
    pub(crate) fn answers_in(&self, message: &Event, agent: &str) -> Vec<AnsweredCall> {
        let events = self.invocation.events();
        let index = events.iter().rposition(|event| event.id == message.id);
        let before = events.take(index.unwrap_or_default());
        confirmation::answers_in(&before, message, agent, &Verifier::new(&self.invocation))
    }

    /// Marks an escalation as handled by a loop: it does not reach the agents that enclose the loop.
    pub(crate) fn handle_escalation(&self, event_id: &str) {
        self.handled_escalations.lock_unpoisoned().insert(event_id.into());
    }

    /// Returns true if the event's escalation has ended a loop already.
    pub(crate) fn is_escalation_handled(&self, event_id: &str) -> bool {
        self.handled_escalations.lock_unpoisoned().contains(event_id)
    }

    /// Returns the name of the agent that a failure of the run is attributed to: the root if no agent failed.
    pub(crate) fn failed_agent(&self) -> String {
        let failed = *self.failed_agent.lock_unpoisoned();
        self.agent(failed.unwrap_or(self.app.root_id())).name.clone()
    }

    /// Attributes a failure to an agent, unless it is attributed to another one already. An agent that succeeds clears
    /// its own failure and the failures of agents below it.
    pub(crate) fn attribute_failure<T>(&self, id: AgentId, result: &Result<T, RunError>) {
        let mut failed = self.failed_agent.lock_unpoisoned();
        match result {
            Err(_) => {
                failed.get_or_insert(id);
            }
            Ok(_)
                if failed.is_some_and(|failed| failed == id || self.app.tree.ancestors(failed).any(|it| it == id)) =>
            {
                *failed = None;
            }
            Ok(_) => {}
        }
    }
}
