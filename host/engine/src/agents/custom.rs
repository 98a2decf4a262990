//! Custom agents: agents that are code.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    AgentContext, AgentId, AgentTree, CallContext, Claim, CustomAgentSpec, Event, EventActions, EventData, EventSink,
    RunError,
};

use super::host::EngineHost;
use crate::provenance::Verifier;
use crate::run::{AgentOutcome, AgentScope, Replay, RunContext};

/// Runs the code. When an interrupted run is resumed, the code runs again from its beginning, since its steps cannot be
/// skipped. Its events, and the results of tools and models, are replaced by the recorded ones.
pub(super) async fn run_custom_agent(
    run: &Arc<RunContext>,
    id: AgentId,
    custom: &CustomAgentSpec,
    scope: AgentScope,
) -> Result<AgentOutcome, RunError> {
    let host = Arc::new(EngineHost::new(run.clone(), id, scope.replay.clone()));
    let name = run.agent(id).name.as_str();
    let call = CallContext::new(run.invocation.clone(), name, scope.branch)
        .with_host(host.clone())
        .with_span(scope.span)
        .for_agent_code();
    let outer = AgentContext { call: call.clone(), sink: scope.sink };
    let cx = AgentContext { call, sink: Arc::new(ReplaySink { outer, replay: scope.replay, host: host.clone() }) };
    let result = custom.code.run(cx.clone()).await;
    if host.is_paused() {
        return Ok(AgentOutcome::Paused);
    }
    if run.invocation.is_ended() {
        return Err(RunError::Stopped);
    }
    result?;
    // Changes since the last event.
    cx.flush().await?;
    Ok(AgentOutcome::Done)
}

/// Checks an event that a custom agent has made itself. Returns the claim to sign it with: [`Claim::Call`] if it calls
/// long-running functions, so that they can be answered.
///
/// # Errors
/// [`RunError::Agent`] if the event does something that only the engine, or another agent, may do, or takes the answer
/// to another agent's call.
pub(super) fn admit(tree: &AgentTree, cx: &CallContext, event: &EventData) -> Result<Option<Claim>, RunError> {
    if event.actions.compaction.is_some() {
        return Err(rejection(
            cx,
            "may not emit `actions.compaction`: only the host summarizes a session; see `compaction` of the app",
        ));
    }
    let is_own = event.author == *cx.agent;
    if !is_own && tree.find_agent(&event.author).is_some() && has_effects(event) {
        let message = format!(
            "may not act as `{}`, which is another agent: events in its name hold no function calls, no function responses and no actions \
             but state and artifacts; relay its events unchanged, or leave the author empty",
            event.author
        );
        return Err(rejection(cx, message));
    }
    let has_calls = event.content.iter().any(|content| content.function_calls().next().is_some());
    if !is_own || !has_calls || event.long_running_tool_ids.is_empty() {
        return Ok(None);
    }
    if let Some(id) = find_id_of_another_agent(cx, event) {
        let message = format!(
            "may not call a function with the id `{id}`, which another agent's call has: its answer would come here; give its \
             calls ids of their own"
        );
        return Err(rejection(cx, message));
    }
    Ok(Some(Claim::Call))
}

/// Returns the id of a call that an open call of another agent has too.
fn find_id_of_another_agent<'a>(cx: &CallContext, event: &'a EventData) -> Option<&'a str> {
    let calls = || event.content.iter().flat_map(|content| content.function_calls());
    let ids: HashSet<&str> = calls().filter_map(|call| call.id.as_deref()).collect();
    let (events, verifier) = (cx.invocation.events(), Verifier::new(&cx.invocation));
    events.iter().filter(|earlier| earlier.author != event.author).find_map(|earlier| {
        let id = earlier.function_calls().find_map(|call| ids.get(call.id.as_deref()?).copied())?;
        verifier.proves_open_calls(earlier).then_some(id)
    })
}

/// Returns true if the event has more than text and changes of state and artifacts.
fn has_effects(event: &EventData) -> bool {
    let EventActions {
        state_delta: _,
        artifact_delta: _,
        deleted_artifact_ids: _,
        extra: _,
        skip_summarization,
        transfer_to_agent,
        escalate,
        end_of_agent,
        end_invocation,
        requested_auth_configs,
        requested_tool_confirmations,
        compaction,
    } = &event.actions;
    let has_flags = [skip_summarization, escalate, end_of_agent, end_invocation].iter().any(|flag| flag.is_some());
    let has_requests = !requested_auth_configs.is_empty() || !requested_tool_confirmations.is_empty();
    let has_calls = event
        .content
        .iter()
        .any(|content| content.function_calls().next().is_some() || content.function_responses().next().is_some());
    let is_pending = !event.long_running_tool_ids.is_empty();
    has_flags || has_requests || has_calls || is_pending || transfer_to_agent.is_some() || compaction.is_some()
}

fn rejection(cx: &CallContext, message: impl Into<String>) -> RunError {
    RunError::Agent { agent: cx.agent.to_string(), code: "AGENT_FAILED".into(), message: message.into() }
}

/// Replaces the events that a custom agent emits with its recorded events, until the replay is finished.
struct ReplaySink {
    /// The context of the agent, with the enclosing sink.
    outer: AgentContext,
    replay: Arc<Replay>,
    host: Arc<EngineHost>,
}

#[async_trait]
impl EventSink for ReplaySink {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        let Self { outer, replay, host } = self;
        if host.is_paused() {
            return Err(RunError::Stopped);
        }
        if replay.is_finished() || event.author != *outer.call.agent {
            return outer.sink.emit(event).await;
        }
        if event.partial {
            return Ok(event);
        }
        replay.replay_or_run(outer, |_| true, || outer.sink.emit(event)).await
    }
}
