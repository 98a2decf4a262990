//! The calls of one run as they happen.

use std::sync::{Arc, Mutex, MutexGuard};

use hatchery_core::sync::MutexExt;
use hatchery_core::{EventActions, FunctionCall, LlmRequest, LlmResponse, ModelError};

use super::{ModelCall, RecordedCall, Recording, ToolCall, ToolOutcome};
use crate::llm::Aggregator;

/// How a request travels. Its headers may hold keys, which are nobody's business who reads the recording.
const HTTP_OPTIONS: [&str; 2] = ["httpOptions", "http_options"];

/// What has been called so far. Agents and tools that run at the same time write to it at the same time.
#[derive(Default)]
pub(super) struct Tape(Mutex<Vec<Entry>>);

/// Names an entry of a [`Tape`].
#[derive(Clone, Copy)]
pub(super) struct Slot(usize);

struct Entry {
    agent: Arc<str>,
    /// Where it belongs: a tool call right behind the model call that asked for it, in the order of the answer.
    order: (usize, usize),
    call: Call,
}

enum Call {
    Model(Box<Asked>),
    Tool(Box<ToolCall>),
}

struct Asked {
    request: LlmRequest,
    answer: Aggregator,
    /// Ids of the function calls in the answer.
    calls: Vec<String>,
    error: Option<ModelError>,
}

impl Tape {
    /// A model is asked.
    pub(super) fn ask(&self, agent: &Arc<str>, request: &LlmRequest) -> Slot {
        let sent = request.system_instructions.join("\n\n");
        let system_instructions = if sent.is_empty() { vec![] } else { vec![sent] };
        let mut request = LlmRequest { system_instructions, ..request.clone() };
        if HTTP_OPTIONS.iter().any(|key| request.config.extra.contains_key(*key)) {
            request.config.extra.retain(|key, _| !HTTP_OPTIONS.contains(&key.as_str()));
        }
        let mut entries = self.entries();
        let slot = entries.len();
        let asked = Asked { request, answer: Aggregator::default(), calls: Vec::new(), error: None };
        entries.push(Entry { agent: agent.clone(), order: (slot, 0), call: Call::Model(Box::new(asked)) });
        Slot(slot)
    }

    /// The model answers, or gives a piece of its answer.
    pub(super) fn answered(&self, slot: Slot, response: &LlmResponse) {
        if let Some(Entry { call: Call::Model(asked), .. }) = self.entries().get_mut(slot.0) {
            let calls = response.content.iter().flat_map(|content| content.function_calls());
            asked.calls.extend(calls.filter_map(|call| call.id.clone()));
            asked.answer.push(response.clone());
        }
    }

    /// The model fails.
    pub(super) fn failed(&self, slot: Slot, failure: &ModelError) {
        if let Some(Entry { call: Call::Model(asked), .. }) = self.entries().get_mut(slot.0) {
            asked.error = Some(failure.clone());
        }
    }

    /// A tool is called.
    pub(super) fn call(&self, agent: &Arc<str>, call: FunctionCall) -> Slot {
        let mut entries = self.entries();
        let slot = entries.len();
        let order = entries.iter().rev().filter(|entry| entry.agent == *agent).find_map(|entry| match &entry.call {
            Call::Model(asked) => {
                let place = asked.calls.iter().position(|id| call.id.as_ref() == Some(id))?;
                Some((entry.order.0, place + 1))
            }
            Call::Tool(_) => None,
        });
        let call = Call::Tool(Box::new(ToolCall { call, outcome: ToolOutcome::Stopped, actions: None }));
        entries.push(Entry { agent: agent.clone(), order: order.unwrap_or((slot, 0)), call });
        Slot(slot)
    }

    /// The tool has answered.
    pub(super) fn returned(&self, slot: Slot, outcome: ToolOutcome, actions: EventActions) {
        if let Some(Entry { call: Call::Tool(call), .. }) = self.entries().get_mut(slot.0) {
            call.outcome = outcome;
            call.actions = (!actions.is_empty()).then_some(actions);
        }
    }

    /// The recordings of the run, which answers this message of the user.
    pub(super) fn take(&self, user_message_index: usize) -> Vec<Recording> {
        let mut entries = std::mem::take(&mut *self.entries());
        entries.sort_by_key(|entry| entry.order);
        let recorded = entries.into_iter().map(|entry| Recording {
            user_message_index,
            agent: entry.agent.to_string(),
            call: match entry.call {
                Call::Tool(call) => RecordedCall::Tool(*call),
                Call::Model(asked) => {
                    let Asked { request, answer, error, .. } = *asked;
                    RecordedCall::Model(ModelCall { request, responses: answer.finish().into_iter().collect(), error })
                }
            },
        });
        recorded.collect()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock_unpoisoned()
    }
}

/// What a call has done, from its actions before and after. Of what is no map, the value after counts: doing it twice does no harm.
pub(super) fn changes(before: &EventActions, after: EventActions) -> EventActions {
    if *before == after {
        return EventActions::default();
    }
    let mut changes = after;
    changes.state_delta.retain(|key, value| before.state_delta.get(key) != Some(value));
    changes.artifact_delta.retain(|name, version| before.artifact_delta.get(name) != Some(version));
    changes
}
