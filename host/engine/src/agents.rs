//! One run of one agent: callbacks before it, what its kind does, callbacks after it.

mod agent_tool;
mod custom;
mod host;
mod workflow;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::{Agent, AgentContext, AgentId, AgentKind, Content, EventData, RunError};

use crate::llm;
use crate::plugins::HookChain;
use crate::run::{AgentOutcome, AgentScope, Replay, RunContext, agent_start, is_agent_end, is_recovery};
pub use agent_tool::AgentTool;
pub(crate) use host::engine_host;

/// Runs an agent, and the agents that it transfers to. Never returns [`AgentOutcome::Transfer`].
pub(crate) fn run_agent(
    run: Arc<RunContext>,
    id: AgentId,
    scope: AgentScope,
) -> BoxFuture<'static, Result<AgentOutcome, RunError>> {
    async move {
        // Agents that have transferred, the first at the bottom. They are kept here and not on the stack, because two
        // agents that keep transferring to each other would overflow it.
        let mut callers: Vec<AgentRun> = Vec::new();
        let mut current = AgentRun::new(&run, id, &scope);
        let mut outcome = current.attribute_failure(current.start()).await?;
        loop {
            match outcome {
                AgentOutcome::Transfer(target) => {
                    let next = AgentRun::new(&run, target, &scope);
                    callers.push(std::mem::replace(&mut current, next));
                    outcome = current.attribute_failure(current.start()).await?;
                }
                AgentOutcome::Paused => return Ok(AgentOutcome::Paused),
                AgentOutcome::Escalated => {
                    let Some(caller) = callers.pop() else { return Ok(outcome) };
                    current = caller;
                    outcome = current.attribute_failure(current.resume()).await?;
                }
                AgentOutcome::Done => {
                    let Some(caller) = callers.pop() else { return Ok(outcome) };
                    current = caller;
                    current.attribute_failure(current.finish()).await?;
                }
            }
        }
    }
    .boxed()
}

/// The run of one agent, without the agents that it transfers to.
struct AgentRun {
    run: Arc<RunContext>,
    id: AgentId,
    replay: Arc<Replay>,
    cx: AgentContext,
}

impl AgentRun {
    fn new(run: &Arc<RunContext>, id: AgentId, scope: &AgentScope) -> Self {
        let call = run.call_context(id, scope.branch.clone(), &scope.replay);
        let cx = AgentContext { call, sink: scope.sink.clone() };
        Self { run: run.clone(), id, replay: scope.replay.clone(), cx }
    }

    fn agent(&self) -> &Agent {
        self.run.agent(self.id)
    }

    fn hooks(&self) -> HookChain {
        self.run.plugins.chain(&self.agent().callbacks)
    }

    /// Awaits a part of the run, and attributes its failure to the agent.
    async fn attribute_failure<T>(&self, part: impl Future<Output = Result<T, RunError>>) -> Result<T, RunError> {
        let result = part.await;
        self.run.attribute_failure(self.id, &result);
        result
    }

    /// Runs the agent from its beginning, unless a callback answers in its place.
    async fn start(&self) -> Result<AgentOutcome, RunError> {
        let is_answered = self.replay.callback_step(&self.cx, agent_start, || self.call_before_agent()).await?;
        if is_answered == Some(true) {
            return Ok(AgentOutcome::Done);
        }
        self.resume().await
    }

    /// Calls the callbacks before the agent. Returns true if one of them answered in its place.
    async fn call_before_agent(&self) -> Result<bool, RunError> {
        if let Some(content) = self.hooks().before_agent(&self.cx.call).await? {
            self.emit_content(content, true).await?;
            return Ok(true);
        }
        self.flush(false).await?;
        Ok(false)
    }

    /// Runs the agent from where the conversation is now.
    async fn resume(&self) -> Result<AgentOutcome, RunError> {
        let outcome = match self.run_body().await {
            Ok(outcome) => outcome,
            Err(error) => self.recover(error).await?,
        };
        match outcome {
            AgentOutcome::Done | AgentOutcome::Escalated => self.finish().await?,
            AgentOutcome::Paused | AgentOutcome::Transfer(_) => {}
        }
        Ok(outcome)
    }

    /// Lets callbacks answer for a failure. Being cancelled or stopped is no failure.
    async fn recover(&self, error: RunError) -> Result<AgentOutcome, RunError> {
        if matches!(error, RunError::Cancelled | RunError::Stopped) {
            return Err(error);
        }
        if self.replay.next(&self.cx, is_recovery).await?.is_some() {
            return Ok(AgentOutcome::Done);
        }
        if self.replay.has_more() {
            // An agent above recovered from it.
            return Err(error);
        }
        if let Some(content) = self.hooks().on_agent_error(&self.cx.call, &error).await? {
            self.emit_content(content, false).await?;
            return Ok(AgentOutcome::Done);
        }
        Err(error)
    }

    async fn run_body(&self) -> Result<AgentOutcome, RunError> {
        let Self { run, id, replay, cx } = self;
        let scope = || AgentScope { branch: cx.call.branch.clone(), replay: replay.clone(), sink: cx.sink.clone() };
        match &self.agent().kind {
            AgentKind::Llm(llm) => llm::run_llm_agent(run, *id, llm, cx, replay).await,
            AgentKind::Sequential => workflow::run_sequential(run, *id, scope()).await,
            AgentKind::Parallel => workflow::run_parallel(run, *id, scope()).await,
            AgentKind::Loop { max_iterations } => workflow::run_loop(run, *id, *max_iterations, scope()).await,
            AgentKind::Custom(custom) => custom::run_custom_agent(run, *id, custom, scope()).await,
        }
    }

    /// Calls the callbacks after the agent.
    async fn finish(&self) -> Result<(), RunError> {
        let recorded = |event: &_| is_agent_end(event).then_some(());
        self.replay.callback_step(&self.cx, recorded, || self.call_after_agent()).await.map(|_| ())
    }

    async fn call_after_agent(&self) -> Result<(), RunError> {
        if let Some(content) = self.hooks().after_agent(&self.cx.call).await? {
            return self.emit_content(content, true).await;
        }
        self.flush(true).await
    }

    /// Stores the changes that callbacks made before or after the agent, if any.
    async fn flush(&self, is_end: bool) -> Result<(), RunError> {
        if self.cx.call.actions().is_empty() {
            return Ok(());
        }
        self.cx.call.actions().end_of_agent = Some(is_end);
        self.cx.flush().await
    }

    /// Emits the content that a callback returned. `is_end` is false if callbacks after the agent follow.
    async fn emit_content(&self, mut content: Content, is_end: bool) -> Result<(), RunError> {
        content.role.get_or_insert_with(|| "model".into());
        self.cx.call.actions().end_of_agent = Some(is_end);
        self.cx.emit(EventData { content: Some(Arc::new(content)), ..EventData::default() }).await?;
        Ok(())
    }
}
