//! Log of the model and tool calls of one run.

use std::sync::{Arc, Mutex, MutexGuard};

use hatchery_core::sync::MutexExt;
use hatchery_core::{
    Aggregator, EventActions, FunctionCall, LiveRequest, LiveResponse, LlmRequest, LlmResponse, ModelError,
};

use crate::{LiveCall, LiveStep, ModelCall, RecordedCall, Recording, ToolCall, ToolOutcome};

/// Config keys that are not recorded, because the HTTP headers in them can contain API keys.
const HTTP_OPTIONS: [&str; 2] = ["httpOptions", "http_options"];

/// Records the calls of one run. Agents and tools that run concurrently share it.
#[derive(Default)]
pub(crate) struct CallRecorder(Mutex<Vec<Entry>>);

/// Identifies a call in a [`CallRecorder`].
#[derive(Clone, Copy)]
pub(crate) struct CallId(usize);

struct Entry {
    agent: Arc<str>,
    /// The sort key. A tool call follows the model call that requested it, in the order of the response.
    order: (usize, usize),
    call: Call,
}

enum Call {
    Model(Box<PendingModelCall>),
    Live(Box<PendingLiveCall>),
    Tool(Box<ToolCall>),
}

struct PendingModelCall {
    request: LlmRequest,
    response: Aggregator,
    /// The ids of the function calls in the response.
    function_calls: Vec<String>,
    error: Option<ModelError>,
}

struct PendingLiveCall {
    call: LiveCall,
    /// The ids of the tool calls in it.
    function_calls: Vec<String>,
}

impl Call {
    /// Returns the ids of the tool calls that a model has requested.
    fn function_calls(&self) -> &[String] {
        match self {
            Self::Model(call) => &call.function_calls,
            Self::Live(call) => &call.function_calls,
            Self::Tool(_) => &[],
        }
    }
}

/// Returns the recorded form of a request.
fn recorded_request(request: &LlmRequest) -> LlmRequest {
    let instructions = request.system_instructions.join("\n\n");
    let system_instructions = if instructions.is_empty() { vec![] } else { vec![instructions] };
    let mut request = LlmRequest { system_instructions, ..request.clone() };
    if HTTP_OPTIONS.iter().any(|key| request.config.extra.contains_key(*key)) {
        request.config.extra.retain(|key, _| !HTTP_OPTIONS.contains(&key.as_str()));
    }
    request
}

impl CallRecorder {
    /// Records the start of a model call.
    pub(crate) fn begin_model_call(&self, agent: &Arc<str>, request: &LlmRequest) -> CallId {
        let (request, response) = (recorded_request(request), Aggregator::default());
        let call = PendingModelCall { request, response, function_calls: Vec::new(), error: None };
        self.begin(agent, Call::Model(Box::new(call)))
    }

    /// Records the start of a live conversation.
    pub(crate) fn begin_live_call(&self, agent: &Arc<str>, request: &LlmRequest) -> CallId {
        let call = LiveCall { request: recorded_request(request), ..LiveCall::default() };
        self.begin(agent, Call::Live(Box::new(PendingLiveCall { call, function_calls: Vec::new() })))
    }

    fn begin(&self, agent: &Arc<str>, call: Call) -> CallId {
        let mut entries = self.entries();
        let index = entries.len();
        entries.push(Entry { agent: agent.clone(), order: (index, 0), call });
        CallId(index)
    }

    /// Records a step of a live conversation, unless it is a further chunk of the last sound in the same turn.
    pub(crate) fn add_step(&self, id: CallId, step: LiveStep) {
        let mut entries = self.entries();
        let Some(Entry { call: Call::Live(live), .. }) = entries.get_mut(id.0) else { return };
        let PendingLiveCall { call, function_calls } = &mut **live;
        let is_boundary = |step: &&LiveStep| {
            let ends = [LiveStep::Received(LiveResponse::TurnComplete), LiveStep::Received(LiveResponse::Interrupted)];
            matches!(step, LiveStep::Sent(_)) || ends.contains(*step)
        };
        if matches!(step, LiveStep::Sent(LiveRequest::Blob(_))) && call.steps.iter().rfind(is_boundary) == Some(&step) {
            return;
        }
        if let LiveStep::Received(LiveResponse::ToolCalls(calls)) = &step {
            function_calls.extend(calls.iter().filter_map(|call| call.id.clone()));
        }
        call.steps.push(step);
    }

    /// Records a response, which may be partial.
    pub(crate) fn add_response(&self, id: CallId, response: &LlmResponse) {
        if let Some(Entry { call: Call::Model(call), .. }) = self.entries().get_mut(id.0) {
            let function_calls = response.content.iter().flat_map(|content| content.function_calls());
            call.function_calls.extend(function_calls.filter_map(|call| call.id.clone()));
            call.response.push(response.clone());
        }
    }

    /// Records the error of a model call.
    pub(crate) fn set_error(&self, id: CallId, error: &ModelError) {
        match self.entries().get_mut(id.0).map(|entry| &mut entry.call) {
            Some(Call::Model(call)) => call.error = Some(error.clone()),
            Some(Call::Live(live)) => live.call.error = Some(error.clone()),
            Some(Call::Tool(_)) | None => {}
        }
    }

    /// Records the start of a tool call.
    pub(crate) fn begin_tool_call(&self, agent: &Arc<str>, call: FunctionCall) -> CallId {
        let mut entries = self.entries();
        let index = entries.len();
        let order = entries.iter().rev().filter(|entry| entry.agent == *agent).find_map(|entry| {
            let position = entry.call.function_calls().iter().position(|id| call.id.as_ref() == Some(id))?;
            Some((entry.order.0, position + 1))
        });
        let call = Call::Tool(Box::new(ToolCall { call, outcome: ToolOutcome::Interrupted, actions: None }));
        entries.push(Entry { agent: agent.clone(), order: order.unwrap_or((index, 0)), call });
        CallId(index)
    }

    /// Records the result of a tool call.
    pub(crate) fn finish_tool_call(&self, id: CallId, outcome: ToolOutcome, actions: EventActions) {
        if let Some(Entry { call: Call::Tool(call), .. }) = self.entries().get_mut(id.0) {
            call.outcome = outcome;
            call.actions = (!actions.is_empty()).then_some(actions);
        }
    }

    /// Removes and returns all calls, as recordings of this message of the user.
    pub(crate) fn take(&self, user_message_index: usize) -> Vec<Recording> {
        let mut entries = std::mem::take(&mut *self.entries());
        entries.sort_by_key(|entry| entry.order);
        let recordings = entries.into_iter().map(|entry| Recording {
            user_message_index,
            agent: entry.agent.to_string(),
            call: match entry.call {
                Call::Tool(call) => RecordedCall::Tool(*call),
                Call::Live(live) => RecordedCall::Live(live.call),
                Call::Model(call) => {
                    let PendingModelCall { request, response, error, .. } = *call;
                    let responses = response.finish().into_iter().collect();
                    RecordedCall::Model(ModelCall { request, responses, error })
                }
            },
        });
        recordings.collect()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock_unpoisoned()
    }
}

/// Returns the actions that a call has added. Fields that are not maps have their value after the call, since applying
/// them twice has no further effect.
pub(crate) fn added_actions(before: &EventActions, after: EventActions) -> EventActions {
    if *before == after {
        return EventActions::default();
    }
    let mut added = after;
    added.state_delta.retain(|key, value| before.state_delta.get(key) != Some(value));
    added.artifact_delta.retain(|name, version| before.artifact_delta.get(name) != Some(version));
    added
}
