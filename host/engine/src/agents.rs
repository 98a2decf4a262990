//! One run of one agent: callbacks before, what its kind does, callbacks after.

mod custom;
mod host;
pub(crate) mod past;
mod workflow;

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Agent, AgentContext, AgentId, AgentKind, CallContext, Content, Event, EventData, EventSink, Invocation, RunError,
};

use crate::app::App;
use crate::history::compaction::Compactions;
use crate::history::contents::PromptViews;
use crate::llm;
use crate::plugins::{HookChain, Plugins};
use crate::provenance::Verifier;
use crate::tools::confirmation::{self, ConfirmedCall};
use host::Host;
pub(crate) use host::{resolve_model, unknown_tool};
use past::{Past, is_first, is_last, is_mended};

/// What all agents of a run share.
pub(crate) struct Frame {
    pub(crate) app: Arc<App>,
    pub(crate) invocation: Arc<Invocation>,
    pub(crate) plugins: Plugins,
    /// The prompts' views of the session, kept from turn to turn.
    pub(crate) views: Mutex<PromptViews>,
    /// Where compactions of the session go on; nothing for sessions that are not stored.
    pub(crate) compactions: Option<Compactions>,
    /// What the user said to begin the run, until an agent has done what it decides.
    opening: Mutex<Option<Arc<Event>>>,
    /// The agent that has failed, until an agent around it has dealt with that.
    failed: Mutex<Option<AgentId>>,
}

impl Frame {
    pub(crate) fn new(
        app: Arc<App>,
        invocation: Arc<Invocation>,
        plugins: Plugins,
        views: PromptViews,
        compactions: Option<Compactions>,
    ) -> Arc<Self> {
        let (views, opening, failed) = (Mutex::new(views), Mutex::default(), Mutex::default());
        Arc::new(Self { app, invocation, plugins, views, compactions, opening, failed })
    }

    /// Notes what the user said to begin the run, if it decides anything.
    pub(crate) fn open(&self, message: Arc<Event>) {
        if !confirmation::is_decision(&message) {
            return;
        }
        *self.opening.lock_unpoisoned() = Some(message);
    }

    /// The calls of an agent that the user's first message decides about; once.
    pub(crate) fn take_decided(&self, agent: &str) -> Vec<ConfirmedCall> {
        let mut opening = self.opening.lock_unpoisoned();
        let decided = opening.as_ref().map(|message| self.decided(message, agent)).unwrap_or_default();
        if !decided.is_empty() {
            *opening = None;
        }
        decided
    }

    /// The calls of an agent that this message of the user decides about.
    pub(crate) fn decided(&self, message: &Event, agent: &str) -> Vec<ConfirmedCall> {
        let events = self.invocation.events();
        let place = events.iter().rposition(|event| event.id == message.id);
        let before = events.take(place.unwrap_or_default());
        confirmation::decisions_in(&before, message, agent, &Verifier::of(&self.invocation))
    }

    pub(crate) fn agent(&self, id: AgentId) -> &Agent {
        self.app.tree.agent(id)
    }

    /// Whom a failure is put down to.
    pub(crate) fn culprit(&self) -> String {
        let failed = *self.failed.lock_unpoisoned();
        self.agent(failed.unwrap_or(self.app.root_id())).name.clone()
    }

    /// Notes how an agent's run ended. The first to fail is the culprit; an agent that ends well has dealt with the failures below it.
    fn note<T>(&self, id: AgentId, result: &Result<T, RunError>) {
        let mut failed = self.failed.lock_unpoisoned();
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

    pub(crate) fn take_views(&self) -> PromptViews {
        std::mem::take(&mut *self.views.lock_unpoisoned())
    }
}

/// How an agent's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has said what it had to say.
    Done,
    /// It escalated without an answer: the agent that handed over to it goes on.
    HandedBack,
    /// It waits for a result that comes later, and so does everything after it.
    Paused,
}

/// What an agent's own part of a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It is over.
    With(Outcome),
    /// Another agent goes on in its place.
    HandingOver(AgentId),
}

/// The branch of parallel agents that an agent runs in.
pub(crate) type Branch = Option<Arc<str>>;

/// Where an agent runs.
#[derive(Clone)]
pub(crate) struct Lane {
    pub(crate) branch: Branch,
    /// What has happened there already.
    pub(crate) past: Arc<Past>,
    /// Where events go.
    pub(crate) sink: Arc<dyn EventSink>,
}

/// Runs an agent, and whoever it hands over to.
pub(crate) fn run(frame: Arc<Frame>, id: AgentId, lane: Lane) -> BoxFuture<'static, Result<Outcome, RunError>> {
    async move {
        // Agents that have handed over, the first at the bottom. They are kept here and not on the stack, since two agents that keep
        // handing over to each other would use it up.
        let mut waiting: Vec<Part> = Vec::new();
        let mut part = Part::new(&frame, id, &lane);
        let mut ended = part.noted(part.begin()).await?;
        loop {
            let outcome = match ended {
                Ended::HandingOver(target) => {
                    let next = Part::new(&frame, target, &lane);
                    waiting.push(std::mem::replace(&mut part, next));
                    ended = part.noted(part.begin()).await?;
                    continue;
                }
                Ended::With(Outcome::Paused) => return Ok(Outcome::Paused),
                Ended::With(outcome) => outcome,
            };
            let Some(before) = waiting.pop() else { return Ok(outcome) };
            part = before;
            ended = match outcome {
                Outcome::HandedBack => part.noted(part.go_on()).await?,
                Outcome::Done | Outcome::Paused => {
                    part.noted(part.end()).await?;
                    Ended::With(Outcome::Done)
                }
            };
        }
    }
    .boxed()
}

/// One agent's part of a run.
struct Part {
    frame: Arc<Frame>,
    id: AgentId,
    past: Arc<Past>,
    cx: AgentContext,
}

impl Part {
    fn new(frame: &Arc<Frame>, id: AgentId, lane: &Lane) -> Self {
        let call = call_context(frame, id, lane.branch.clone(), lane.past.clone());
        let cx = AgentContext { call, sink: lane.sink.clone() };
        Self { frame: frame.clone(), id, past: lane.past.clone(), cx }
    }

    fn agent(&self) -> &Agent {
        self.frame.agent(self.id)
    }

    fn hooks(&self) -> HookChain {
        self.frame.plugins.chain(&self.agent().callbacks)
    }

    /// Puts a failure down to the agent.
    async fn noted<T>(&self, part: impl Future<Output = Result<T, RunError>>) -> Result<T, RunError> {
        let result = part.await;
        self.frame.note(self.id, &result);
        result
    }

    /// All of it, unless a callback takes its place.
    async fn begin(&self) -> Result<Ended, RunError> {
        let name = self.agent().name.as_str();
        if self.past.is_over() {
            if let Some(content) = self.hooks().before_agent(&self.cx.call).await? {
                self.say(content, true).await?;
                return Ok(Ended::With(Outcome::Done));
            }
            self.flush(false).await?;
        } else if let Some(event) = self.past.take(name, |event| event.content.is_some() && is_last(event)) {
            self.cx.sink.emit(event).await?;
            return Ok(Ended::With(Outcome::Done));
        } else if let Some(event) = self.past.take(name, is_first) {
            self.cx.sink.emit(event).await?;
        }
        self.go_on().await
    }

    /// What is left of it from where the conversation is.
    async fn go_on(&self) -> Result<Ended, RunError> {
        let ended = match self.body().await {
            Ok(ended) => ended,
            Err(error) => self.mended(error).await?,
        };
        match ended {
            Ended::With(Outcome::Done | Outcome::HandedBack) => self.end().await?,
            Ended::With(Outcome::Paused) | Ended::HandingOver(_) => {}
        }
        Ok(ended)
    }

    /// What callbacks make of a failure. An agent that was stopped has not failed.
    async fn mended(&self, error: RunError) -> Result<Ended, RunError> {
        if matches!(error, RunError::Cancelled | RunError::Stopped) {
            return Err(error);
        }
        if let Some(event) = self.past.take(&self.agent().name, is_mended) {
            self.cx.sink.emit(event).await?;
            return Ok(Ended::With(Outcome::Done));
        }
        if self.past.has_more() {
            // Somebody above has answered for it.
            return Err(error);
        }
        if let Some(content) = self.hooks().on_agent_error(&self.cx.call, &error).await? {
            self.say(content, false).await?;
            return Ok(Ended::With(Outcome::Done));
        }
        Err(error)
    }

    async fn body(&self) -> Result<Ended, RunError> {
        let Self { frame, id, past, cx } = self;
        let lane = || Lane { branch: cx.call.branch.clone(), past: past.clone(), sink: cx.sink.clone() };
        let outcome = match &self.agent().kind {
            AgentKind::Llm(llm) => return llm::run(frame, *id, llm, cx, past).await,
            AgentKind::Sequential => workflow::sequential(frame, *id, lane()).await?,
            AgentKind::Parallel => workflow::parallel(frame, *id, lane()).await?,
            AgentKind::Loop { max_iterations } => workflow::repeat(frame, *id, *max_iterations, lane()).await?,
            AgentKind::Custom(custom) => custom::run(frame, *id, custom, lane()).await?,
        };
        Ok(Ended::With(outcome))
    }

    /// The callbacks after it.
    async fn end(&self) -> Result<(), RunError> {
        if !self.past.is_over() {
            if let Some(event) = self.past.take(&self.agent().name, is_last) {
                self.cx.sink.emit(event).await?;
            }
            return Ok(());
        }
        if let Some(content) = self.hooks().after_agent(&self.cx.call).await? {
            return self.say(content, true).await;
        }
        self.flush(true).await
    }

    /// Stores what callbacks have set, if anything, before or after the agent's own part.
    async fn flush(&self, is_last: bool) -> Result<(), RunError> {
        if self.cx.call.actions().is_empty() {
            return Ok(());
        }
        self.cx.call.actions().end_of_agent = Some(is_last);
        self.cx.flush().await
    }

    /// Says what a callback says; the last that the agent says, or followed by what other callbacks say.
    async fn say(&self, mut content: Content, is_last: bool) -> Result<(), RunError> {
        content.role.get_or_insert_with(|| "model".into());
        self.cx.call.actions().end_of_agent = Some(is_last);
        self.cx.emit(EventData { content: Some(Arc::new(content)), ..EventData::default() }).await?;
        Ok(())
    }
}

/// What code that works for an agent is given.
pub(crate) fn call_context(frame: &Arc<Frame>, id: AgentId, branch: Branch, past: Arc<Past>) -> CallContext {
    let name = frame.agent(id).name.as_str();
    let host = Arc::new(Host::new(frame.clone(), id, past));
    CallContext::new(frame.invocation.clone(), name, branch).with_host(host)
}
