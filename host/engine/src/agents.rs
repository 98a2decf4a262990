//! One run of one agent: callbacks before it, the agent itself, callbacks after it.

mod agent_tool;
mod custom;
mod host;
mod workflow;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Agent, AgentContext, AgentId, AgentKind, Claim, Content, Event, EventData, RunError, Span, SpanContext,
    SpanOperation,
};

use crate::llm::{self, transfer};
use crate::plugins::HookChain;
use crate::run::{AgentOutcome, AgentScope, CallbackEventKind, Replay, RunContext};
pub use agent_tool::AgentTool;
pub(crate) use host::engine_host;

/// Runs an agent, and the agents that it transfers to. Never returns [`AgentOutcome::Transfer`].
///
/// # Errors
/// [`RunError::Stopped`] if the run has ended, and the failure of an agent.
pub(crate) fn run_agent(
    run: Arc<RunContext>,
    id: AgentId,
    scope: AgentScope,
) -> BoxFuture<'static, Result<AgentOutcome, RunError>> {
    async move {
        if run.invocation.is_ended() {
            return Err(RunError::Stopped);
        }
        let current = AgentRun::new(&run, id, &scope, &scope.span);
        let mut stack = AgentStack { callers: Vec::new(), current };
        let result = stack.run(&run, &scope).await;
        stack.end_spans(result.as_ref().err());
        result
    }
    .boxed()
}

/// Agents that transfer to each other. They are kept here and not on the stack of the thread, because two that keep
/// transferring would overflow it.
struct AgentStack {
    /// The agents that have transferred, the first at the bottom.
    callers: Vec<AgentRun>,
    current: AgentRun,
}

impl AgentStack {
    async fn run(&mut self, run: &Arc<RunContext>, scope: &AgentScope) -> Result<AgentOutcome, RunError> {
        let mut outcome = self.current.attribute_failure(self.current.start().boxed()).await?;
        loop {
            outcome = match outcome {
                AgentOutcome::Transfer(target) => {
                    let next = AgentRun::new(run, target, scope, self.current.cx.call.span());
                    self.callers.push(std::mem::replace(&mut self.current, next));
                    self.current.attribute_failure(self.current.start().boxed()).await?
                }
                AgentOutcome::Escalated if self.return_to_caller() => {
                    self.current.attribute_failure(self.current.resume().boxed()).await?
                }
                AgentOutcome::Done if self.return_to_caller() => {
                    self.current.attribute_failure(self.current.finish(AgentOutcome::Done).boxed()).await?
                }
                AgentOutcome::Paused | AgentOutcome::Escalated | AgentOutcome::Done => return Ok(outcome),
            };
        }
    }

    /// Ends the current agent in favour of the one that has transferred to it. Returns false if there is none.
    fn return_to_caller(&mut self) -> bool {
        let Some(caller) = self.callers.pop() else { return false };
        std::mem::replace(&mut self.current, caller).end_span(None);
        true
    }

    /// Ends the spans of all agents, with the error that propagates through them, if there is one.
    fn end_spans(&self, error: Option<&RunError>) {
        self.callers.iter().chain([&self.current]).for_each(|agent| agent.end_span(error));
    }
}

/// The run of one agent, without the agents that it transfers to.
struct AgentRun {
    run: Arc<RunContext>,
    id: AgentId,
    replay: Arc<Replay>,
    cx: AgentContext,
    /// True once the callbacks after the agent have run. They may transfer to another agent, after which the agent is
    /// over.
    is_finished: AtomicBool,
    /// Ends with the run of the agent, and with the runs of those that it transfers to.
    span: Mutex<Span>,
}

/// The decision of the callbacks before an agent.
enum AgentStart {
    /// The agent runs.
    Run,
    /// The callbacks have answered instead.
    Answered,
    /// Another agent runs instead.
    Transfer(String),
}

impl AgentRun {
    fn new(run: &Arc<RunContext>, id: AgentId, scope: &AgentScope, around: &SpanContext) -> Self {
        let agent = run.agent(id);
        let mut span = around.start(SpanOperation::Agent, &agent.name);
        span.record(|data| {
            data.set("gen_ai.agent.name", agent.name.clone());
            data.set("gen_ai.agent.description", agent.description.clone());
        });
        let call = run.call_context(id, scope.branch.clone(), &scope.replay).with_span(span.context().clone());
        let cx = AgentContext { call, sink: scope.sink.clone() };
        let is_finished = AtomicBool::new(false);
        Self { run: run.clone(), id, replay: scope.replay.clone(), cx, is_finished, span: Mutex::new(span) }
    }

    /// Ends the span. `error` is the error that propagates through the agent.
    fn end_span(&self, error: Option<&RunError>) {
        let mut span = self.span.lock_unpoisoned();
        if let Some(error) = error {
            span.set_error(error);
        }
        span.end();
    }

    fn agent(&self) -> &Agent {
        self.run.agent(self.id)
    }

    fn hooks(&self) -> HookChain {
        self.run.plugins.chain(&self.agent().callbacks)
    }

    /// Awaits a part of the run, and attributes its failure to the agent. Boxed by the caller, because the future would
    /// be copied into the box here.
    async fn attribute_failure<T>(&self, part: BoxFuture<'_, Result<T, RunError>>) -> Result<T, RunError> {
        let result = part.await;
        self.run.attribute_failure(self.id, &result);
        if let Err(error) = &result {
            self.span.lock_unpoisoned().set_error(error);
        }
        result
    }

    /// Runs the agent from its beginning, unless a callback answers or transfers instead.
    async fn start(&self) -> Result<AgentOutcome, RunError> {
        let recorded = |event: &Event| {
            let is_answered = match CallbackEventKind::from_event(event)? {
                CallbackEventKind::Start => false,
                CallbackEventKind::Answer => true,
                CallbackEventKind::End | CallbackEventKind::Recovery => return None,
            };
            Some(AgentStart::new(is_answered, event.actions.transfer_to_agent.clone()))
        };
        match self.replay.replay_or_run_callbacks(&self.cx, recorded, || self.call_before_agent()).await? {
            Some(AgentStart::Answered) => Ok(AgentOutcome::Done),
            Some(AgentStart::Transfer(target)) => self.transfer_to(&target),
            Some(AgentStart::Run) | None => self.resume().await,
        }
    }

    /// Calls the callbacks before the agent.
    async fn call_before_agent(&self) -> Result<AgentStart, RunError> {
        let content = self.hooks().before_agent(&self.cx.call).await?;
        let start = AgentStart::new(content.is_some(), self.next_agent()?);
        match content {
            Some(content) => self.emit_content(content, true).await?,
            None => self.flush(false).await?,
        }
        Ok(start)
    }

    /// Runs the agent from the current point of the conversation, unless it has ended.
    async fn resume(&self) -> Result<AgentOutcome, RunError> {
        if self.is_finished.load(Ordering::Relaxed) {
            return Ok(AgentOutcome::Done);
        }
        let outcome = match self.run_body().await {
            Ok(outcome) => outcome,
            Err(error) => self.recover(error).await?,
        };
        match outcome {
            AgentOutcome::Done | AgentOutcome::Escalated => self.finish(outcome).await,
            AgentOutcome::Paused | AgentOutcome::Transfer(_) => Ok(outcome),
        }
    }

    /// Lets callbacks answer for a failure. Being cancelled or stopped is not a failure.
    async fn recover(&self, error: RunError) -> Result<AgentOutcome, RunError> {
        if matches!(error, RunError::Cancelled | RunError::Stopped) {
            return Err(error);
        }
        let is_recovery = |event: &Event| CallbackEventKind::from_event(event) == Some(CallbackEventKind::Recovery);
        if let Some(event) = self.replay.next(&self.cx, is_recovery).await? {
            return event
                .actions
                .transfer_to_agent
                .as_ref()
                .map_or(Ok(AgentOutcome::Done), |name| self.transfer_to(name));
        }
        if self.replay.has_more() {
            // An agent above recovered from it.
            return Err(error);
        }
        if let Some(content) = self.hooks().on_agent_error(&self.cx.call, &error).await? {
            let next_agent = self.next_agent()?;
            self.emit_content(content, false).await?;
            return next_agent.map_or(Ok(AgentOutcome::Done), |name| self.transfer_to(&name));
        }
        Err(error)
    }

    async fn run_body(&self) -> Result<AgentOutcome, RunError> {
        let Self { run, id, replay, cx, is_finished: _, span: _ } = self;
        let scope = || AgentScope {
            branch: cx.call.branch.clone(),
            replay: replay.clone(),
            sink: cx.sink.clone(),
            span: cx.call.span().clone(),
        };
        match &self.agent().kind {
            AgentKind::Llm(llm) => llm::run_llm_agent(run, *id, llm, cx, replay).await,
            AgentKind::Sequential => workflow::run_sequential(run, *id, scope()).await,
            AgentKind::Parallel => workflow::run_parallel(run, *id, scope()).await,
            AgentKind::Loop { max_iterations } => workflow::run_loop(run, *id, *max_iterations, scope()).await,
            AgentKind::Custom(custom) => custom::run_custom_agent(run, *id, custom, scope()).await,
        }
    }

    /// Calls the callbacks after the agent, unless they have run. Returns `outcome`, or the transfer of a callback.
    async fn finish(&self, outcome: AgentOutcome) -> Result<AgentOutcome, RunError> {
        if self.is_finished.swap(true, Ordering::Relaxed) {
            return Ok(outcome);
        }
        let recorded =
            |event: &Event| CallbackEventKind::is_agent_end(event).then(|| event.actions.transfer_to_agent.clone());
        match self.replay.replay_or_run_callbacks(&self.cx, recorded, || self.call_after_agent()).await?.flatten() {
            Some(target) => self.transfer_to(&target),
            None => Ok(outcome),
        }
    }

    /// Calls the callbacks after the agent. Returns the agent that they transfer to.
    async fn call_after_agent(&self) -> Result<Option<String>, RunError> {
        let content = self.hooks().after_agent(&self.cx.call).await?;
        let next_agent = self.next_agent()?;
        match content {
            Some(content) => self.emit_content(content, true).await?,
            None => self.flush(true).await?,
        }
        Ok(next_agent)
    }

    /// Returns the name of the agent that callbacks transfer to.
    ///
    /// # Errors
    /// If the agent may not transfer to it.
    fn next_agent(&self) -> Result<Option<String>, RunError> {
        let next_agent = self.cx.call.actions().transfer_to_agent.clone();
        next_agent.map(|name| self.transfer_to(&name).map(|_| name)).transpose()
    }

    fn transfer_to(&self, name: &str) -> Result<AgentOutcome, RunError> {
        transfer::find_target(&self.run, self.id, name).map(AgentOutcome::Transfer)
    }

    /// Stores the changes that callbacks made before or after the agent, if any.
    async fn flush(&self, is_end: bool) -> Result<(), RunError> {
        if self.cx.call.actions().is_empty() {
            return Ok(());
        }
        self.emit(EventData::default(), is_end).await
    }

    /// Emits the content that a callback returned. `is_end` is false if callbacks after the agent follow.
    async fn emit_content(&self, mut content: Content, is_end: bool) -> Result<(), RunError> {
        content.role.get_or_insert_with(|| "model".into());
        self.emit(EventData { content: Some(Arc::new(content)), ..EventData::default() }, is_end).await
    }

    async fn emit(&self, data: EventData, is_end: bool) -> Result<(), RunError> {
        self.cx.call.actions().end_of_agent = Some(is_end);
        let transfers = self.cx.call.actions().transfer_to_agent.is_some();
        if transfers {
            self.cx.emit_with_proof(data, Claim::Transfer).await?
        } else {
            self.cx.emit(data).await?
        };
        Ok(())
    }
}

impl AgentStart {
    fn new(is_answered: bool, next_agent: Option<String>) -> Self {
        match (next_agent, is_answered) {
            (Some(next_agent), _) => Self::Transfer(next_agent),
            (None, true) => Self::Answered,
            (None, false) => Self::Run,
        }
    }
}
