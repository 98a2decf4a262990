//! One run of one agent: callbacks before, what its kind does, callbacks after.

mod host;
mod workflow;

use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::{
    Agent, AgentContext, AgentId, AgentKind, CallContext, Content, EventData, EventSink, Invocation, RunError,
};

use crate::app::App;
use crate::llm;
use crate::llm::contents::Views;
use crate::plugins::Plugins;
use host::Host;
pub(crate) use host::{or_none, resolve_model, unknown_tool};

/// What all agents of a run share.
pub(crate) struct Frame {
    pub(crate) app: Arc<App>,
    pub(crate) invocation: Arc<Invocation>,
    pub(crate) plugins: Plugins,
    /// The prompts' views of the session, kept from turn to turn.
    pub(crate) views: Mutex<Views>,
    /// The agent that has begun last: whom a failure is put down to.
    last_agent: Mutex<AgentId>,
}

impl Frame {
    pub(crate) fn new(app: Arc<App>, invocation: Arc<Invocation>, plugins: Plugins, views: Views) -> Arc<Self> {
        let last_agent = Mutex::new(app.root_id());
        Arc::new(Self { app, invocation, plugins, views: Mutex::new(views), last_agent })
    }

    pub(crate) fn agent(&self, id: AgentId) -> &Agent {
        self.app.tree.agent(id)
    }

    pub(crate) fn last_agent(&self) -> String {
        self.agent(*self.last_agent.lock().unwrap_or_else(PoisonError::into_inner)).name.clone()
    }

    pub(crate) fn take_views(&self) -> Views {
        std::mem::take(&mut *self.views.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How an agent's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has said what it had to say.
    Done,
    /// It escalated without an answer: the agent that handed over to it goes on.
    HandedBack,
}

/// The branch of parallel agents that an agent runs in.
pub(crate) type Branch = Option<Arc<str>>;

/// Runs an agent, its events going to `sink`.
pub(crate) fn run(
    frame: Arc<Frame>,
    id: AgentId,
    branch: Branch,
    sink: Arc<dyn EventSink>,
) -> BoxFuture<'static, Result<Outcome, RunError>> {
    async move {
        *frame.last_agent.lock().unwrap_or_else(PoisonError::into_inner) = id;
        let cx = context(&frame, id, branch, sink);
        let agent = frame.agent(id);
        for callback in frame.plugins.before(&agent.before_agent) {
            if let Some(content) = callback.before_agent(&cx.call).await? {
                say(&cx, content).await?;
                return Ok(Outcome::Done);
            }
        }
        emit_pending_actions(&cx).await?;
        let outcome = body(&frame, id, agent, &cx).await?;
        for callback in frame.plugins.before(&agent.after_agent) {
            if let Some(content) = callback.after_agent(&cx.call).await? {
                say(&cx, content).await?;
                return Ok(outcome);
            }
        }
        emit_pending_actions(&cx).await?;
        Ok(outcome)
    }
    .boxed()
}

async fn body(frame: &Arc<Frame>, id: AgentId, agent: &Agent, cx: &AgentContext) -> Result<Outcome, RunError> {
    match &agent.kind {
        AgentKind::Llm(llm) => llm::run(frame, id, llm, cx).await,
        AgentKind::Sequential => workflow::sequential(frame, id, cx).await,
        AgentKind::Parallel => workflow::parallel(frame, id, cx).await,
        AgentKind::Loop { max_iterations } => workflow::repeat(frame, id, *max_iterations, cx).await,
        AgentKind::Custom(custom) => custom.code.run(cx.clone()).await.map(|()| Outcome::Done),
    }
}

fn context(frame: &Arc<Frame>, id: AgentId, branch: Branch, sink: Arc<dyn EventSink>) -> AgentContext {
    let name = frame.agent(id).name.as_str();
    let host = Arc::new(Host { frame: frame.clone(), agent: id });
    AgentContext { call: CallContext::new(frame.invocation.clone(), name, branch).with_host(host), sink }
}

async fn say(cx: &AgentContext, mut content: Content) -> Result<(), RunError> {
    content.role.get_or_insert_with(|| "model".into());
    cx.emit(EventData { content: Some(Arc::new(content)), ..EventData::default() }).await?;
    Ok(())
}

/// Changes that callbacks made without saying anything become an event of their own.
async fn emit_pending_actions(cx: &AgentContext) -> Result<(), RunError> {
    if !cx.call.actions().is_empty() {
        cx.emit(EventData::default()).await?;
    }
    Ok(())
}
