//! Agents that are code.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    AgentContext, AgentId, AgentTree, CallContext, Claim, CustomAgentSpec, Event, EventActions, EventData, EventSink,
    RunError,
};

use super::host::Host;
use super::past::Past;
use super::{Frame, Lane, Outcome};

/// Runs the code. Code has no steps that could be skipped: when an interrupted run goes on, it runs again from its beginning, and what it
/// says is taken to be what it said the first time.
pub(super) async fn run(
    frame: &Arc<Frame>,
    id: AgentId,
    custom: &CustomAgentSpec,
    lane: Lane,
) -> Result<Outcome, RunError> {
    let host = Arc::new(Host::new(frame.clone(), id, lane.past.clone()));
    let name: Arc<str> = frame.agent(id).name.as_str().into();
    let call = CallContext::new(frame.invocation.clone(), name.clone(), lane.branch).with_host(host.clone());
    let sink = Arc::new(Retelling { agent: name, past: lane.past, host: host.clone(), inner: lane.sink });
    let cx = AgentContext { call, sink };
    let result = custom.code.run(cx.clone()).await;
    if host.is_paused() {
        return Ok(Outcome::Paused);
    }
    result?;
    // What it has set since it last said something.
    cx.flush().await?;
    Ok(Outcome::Done)
}

/// Judges an event that a custom agent has made itself. Calls of its own whose result comes later are vouched for, so that they can be
/// answered.
///
/// # Errors
/// When the event does what only the engine, or another agent, may do.
pub(super) fn admit(tree: &AgentTree, cx: &CallContext, event: &EventData) -> Result<Option<Claim>, RunError> {
    if event.actions.compaction.is_some() {
        return Err(refused(
            cx,
            "may not emit `actions.compaction`: only the host summarizes a session; see `compaction` of the app",
        ));
    }
    let is_own = event.author == *cx.agent;
    if !is_own && tree.find_agent(&event.author).is_some() && acts(event) {
        let message = format!(
            "may not act as `{}`, which is another agent: events in its name hold no function calls, no function responses and no actions \
             but state and artifacts; yield what it says as it is, or leave the author empty",
            event.author
        );
        return Err(refused(cx, message));
    }
    let has_calls = event.content.iter().any(|content| content.function_calls().next().is_some());
    Ok((is_own && has_calls && !event.long_running_tool_ids.is_empty()).then_some(Claim::Call))
}

/// True when the event does more than saying something and setting state.
fn acts(event: &EventData) -> bool {
    let EventActions {
        state_delta: _,
        artifact_delta: _,
        extra: _,
        skip_summarization,
        transfer_to_agent,
        escalate,
        end_of_agent,
        requested_auth_configs,
        requested_tool_confirmations,
        compaction,
    } = &event.actions;
    let has_flags = [skip_summarization, escalate, end_of_agent].iter().any(|flag| flag.is_some());
    let has_requests = !requested_auth_configs.is_empty() || !requested_tool_confirmations.is_empty();
    let has_calls = event
        .content
        .iter()
        .any(|content| content.function_calls().next().is_some() || content.function_responses().next().is_some());
    let is_pending = !event.long_running_tool_ids.is_empty();
    has_flags || has_requests || has_calls || is_pending || transfer_to_agent.is_some() || compaction.is_some()
}

fn refused(cx: &CallContext, message: impl Into<String>) -> RunError {
    RunError::Agent { agent: cx.agent.to_string(), code: "AGENT_FAILED".into(), message: message.into() }
}

/// Where the code's events go.
struct Retelling {
    agent: Arc<str>,
    past: Arc<Past>,
    host: Arc<Host>,
    inner: Arc<dyn EventSink>,
}

#[async_trait]
impl EventSink for Retelling {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        if self.host.is_paused() {
            return Err(RunError::Stopped);
        }
        if self.past.is_over() || event.author != *self.agent {
            return self.inner.emit(event).await;
        }
        if event.partial {
            return Ok(event);
        }
        match self.past.take(&self.agent, |_| true) {
            Some(stored) => self.inner.emit(stored).await,
            None => {
                self.past.go_live(&self.agent)?;
                self.inner.emit(event).await
            }
        }
    }
}
