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
    /// The agent that has failed, until an agent around it has dealt with that.
    failed: Mutex<Option<AgentId>>,
}

impl Frame {
    pub(crate) fn new(app: Arc<App>, invocation: Arc<Invocation>, plugins: Plugins, views: Views) -> Arc<Self> {
        Arc::new(Self { app, invocation, plugins, views: Mutex::new(views), failed: Mutex::default() })
    }

    pub(crate) fn agent(&self, id: AgentId) -> &Agent {
        self.app.tree.agent(id)
    }

    /// Whom a failure is put down to.
    pub(crate) fn culprit(&self) -> String {
        let failed = *self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        self.agent(failed.unwrap_or(self.app.root_id())).name.clone()
    }

    /// Notes how an agent's run ended. The first to fail is the culprit; an agent that ends well has dealt with the failures below it.
    fn note<T>(&self, id: AgentId, result: &Result<T, RunError>) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Runs an agent, and whoever it hands over to, their events going to `sink`.
pub(crate) fn run(
    frame: Arc<Frame>,
    id: AgentId,
    branch: Branch,
    sink: Arc<dyn EventSink>,
) -> BoxFuture<'static, Result<Outcome, RunError>> {
    async move {
        // Agents that have handed over, the first at the bottom. They are kept here and not on the stack, since two agents that keep
        // handing over to each other would use it up.
        let mut waiting: Vec<(AgentId, AgentContext)> = Vec::new();
        let mut cx = context(&frame, id, branch.clone(), sink.clone());
        let mut current = id;
        let mut ended = noted(&frame, current, begin(&frame, current, &cx)).await?;
        loop {
            let outcome = match ended {
                Ended::HandingOver(target) => {
                    let next = context(&frame, target, branch.clone(), sink.clone());
                    waiting.push((current, std::mem::replace(&mut cx, next)));
                    current = target;
                    ended = noted(&frame, current, begin(&frame, current, &cx)).await?;
                    continue;
                }
                Ended::With(outcome) => outcome,
            };
            let Some(before) = waiting.pop() else { return Ok(outcome) };
            (current, cx) = before;
            ended = match outcome {
                Outcome::HandedBack => noted(&frame, current, go_on(&frame, current, &cx)).await?,
                Outcome::Done => {
                    noted(&frame, current, end(&frame, current, &cx)).await?;
                    Ended::With(Outcome::Done)
                }
            };
        }
    }
    .boxed()
}

/// Puts a failure down to the agent whose part it was.
async fn noted<T>(frame: &Frame, id: AgentId, part: impl Future<Output = Result<T, RunError>>) -> Result<T, RunError> {
    let result = part.await;
    frame.note(id, &result);
    result
}

/// An agent's part, unless a callback takes its place.
async fn begin(frame: &Arc<Frame>, id: AgentId, cx: &AgentContext) -> Result<Ended, RunError> {
    for callback in frame.plugins.before(&frame.agent(id).before_agent) {
        if let Some(content) = callback.before_agent(&cx.call).await? {
            say(cx, content).await?;
            return Ok(Ended::With(Outcome::Done));
        }
    }
    cx.flush().await?;
    go_on(frame, id, cx).await
}

/// An agent's part from where the conversation is.
async fn go_on(frame: &Arc<Frame>, id: AgentId, cx: &AgentContext) -> Result<Ended, RunError> {
    let ended = body(frame, id, frame.agent(id), cx).await?;
    if let Ended::With(_) = ended {
        end(frame, id, cx).await?;
    }
    Ok(ended)
}

async fn body(frame: &Arc<Frame>, id: AgentId, agent: &Agent, cx: &AgentContext) -> Result<Ended, RunError> {
    let outcome = match &agent.kind {
        AgentKind::Llm(llm) => return llm::run(frame, id, llm, cx).await,
        AgentKind::Sequential => workflow::sequential(frame, id, cx).await?,
        AgentKind::Parallel => workflow::parallel(frame, id, cx).await?,
        AgentKind::Loop { max_iterations } => workflow::repeat(frame, id, *max_iterations, cx).await?,
        AgentKind::Custom(custom) => {
            custom.code.run(cx.clone()).await?;
            Outcome::Done
        }
    };
    Ok(Ended::With(outcome))
}

/// The callbacks after an agent.
async fn end(frame: &Frame, id: AgentId, cx: &AgentContext) -> Result<(), RunError> {
    for callback in frame.plugins.before(&frame.agent(id).after_agent) {
        if let Some(content) = callback.after_agent(&cx.call).await? {
            return say(cx, content).await;
        }
    }
    cx.flush().await
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
