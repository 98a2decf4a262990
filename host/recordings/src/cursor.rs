//! Position of a replay in a recording.

use std::collections::{BTreeMap, HashSet};

use hatchery_core::{FunctionCall, LlmRequest, LlmResponse, ModelError, PartData, pluralize};
use thiserror::Error;

use crate::{LiveCall, ModelCall, RecordedCall, Recordings, ToolCall, ToolOutcome, compare};

/// The recorded calls for one message of the user, per agent.
pub(crate) struct Cursor {
    agents: BTreeMap<String, Vec<Entry>>,
    user_message_index: usize,
    /// The code of the error that ended the recorded turn; `None` if it succeeded.
    error_code: Option<String>,
}

struct Entry {
    call: RecordedCall,
    is_used: bool,
}

/// A difference between a run and its recording.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("agent `{agent}`: {message}")]
pub(crate) struct Mismatch {
    pub(crate) agent: String,
    pub(crate) message: String,
}

/// The end of a recorded call.
#[derive(Debug)]
pub(crate) enum RecordedOutcome<T> {
    Completed(T),
    /// Another error ended the recorded run during this call. A replay that does not end too fails with this mismatch.
    Interrupted(Mismatch),
    /// The recorded run was cancelled during this call.
    Cancelled,
}

/// The result of a model call.
#[derive(Debug)]
pub(crate) struct ModelOutcome {
    pub(crate) response: Option<LlmResponse>,
    /// Comes after `response`.
    pub(crate) error: Option<ModelError>,
}

impl Cursor {
    pub(crate) fn new(recordings: Recordings, user_message_index: usize) -> Self {
        let mut agents: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        for recording in recordings.recordings {
            if recording.user_message_index == user_message_index {
                agents.entry(recording.agent).or_default().push(Entry { call: recording.call, is_used: false });
            }
        }
        let message = recordings.user_messages.into_iter().nth(user_message_index);
        Self { agents, user_message_index, error_code: message.and_then(|message| message.error_code) }
    }

    /// Returns the recorded outcome of the agent's next model call, which must be a call with this request.
    pub(crate) fn next_model_call(
        &mut self,
        agent: &str,
        request: &LlmRequest,
    ) -> Result<RecordedOutcome<ModelOutcome>, Mismatch> {
        let entries = self.agents.entry(agent.to_owned()).or_default();
        let next = entries.iter().position(|entry| !entry.is_used && !entry.call.is_interrupted_tool_call());
        let Some((index, call)) = next.and_then(|index| Some((index, &entries.get(index)?.call))) else {
            return self.unrecorded_call(agent, "the model was called");
        };
        let RecordedCall::Model(recorded) = call else {
            let message = format!("the model was called, but the recording has {} here", call.describe());
            return Err(self.mismatch(agent, index, &message));
        };
        if let Some(diff) = compare::diff_requests(&recorded.request, request) {
            return Err(self.mismatch(
                agent,
                index,
                &format!("the model request differs from the recorded one\n{diff}"),
            ));
        }
        let outcome = ModelOutcome { response: recorded.complete_response(), error: recorded.error.clone() };
        mark_used(entries, index);
        if outcome.response.is_none() && outcome.error.is_none() {
            return Ok(self.interrupted_call(agent, index));
        }
        let following = entries.get(index + 1..).unwrap_or_default();
        let response = outcome.response.map(|response| with_call_ids(response, following));
        Ok(RecordedOutcome::Completed(ModelOutcome { response, ..outcome }))
    }

    /// Returns the agent's next live conversation, which must be one with this request.
    pub(crate) fn next_live_call(
        &mut self,
        agent: &str,
        request: &LlmRequest,
    ) -> Result<RecordedOutcome<LiveCall>, Mismatch> {
        let entries = self.agents.entry(agent.to_owned()).or_default();
        let next = entries.iter().position(|entry| !entry.is_used && !entry.call.is_interrupted_tool_call());
        let Some((index, call)) = next.and_then(|index| Some((index, &entries.get(index)?.call))) else {
            return self.unrecorded_call(agent, "a live conversation was begun");
        };
        let RecordedCall::Live(recorded) = call else {
            let message = format!("a live conversation was begun, but the recording has {} here", call.describe());
            return Err(self.mismatch(agent, index, &message));
        };
        if let Some(diff) = compare::diff_requests(&recorded.request, request) {
            let message = format!("the request of the live conversation differs from the recorded one\n{diff}");
            return Err(self.mismatch(agent, index, &message));
        }
        let recorded = recorded.clone();
        mark_used(entries, index);
        Ok(RecordedOutcome::Completed(recorded))
    }

    /// Returns the recorded outcome of a tool call. Among the recorded calls that may run concurrently, prefers the one
    /// with the same id, then the one with the same arguments, then the one with the same name.
    pub(crate) fn next_tool_call(
        &mut self,
        agent: &str,
        call: &FunctionCall,
    ) -> Result<RecordedOutcome<ToolCall>, Mismatch> {
        let entries = self.agents.entry(agent.to_owned()).or_default();
        let unused = entries.iter().enumerate().filter(|(_, entry)| !entry.is_used);
        let candidates = unused.map_while(|(index, entry)| match &entry.call {
            RecordedCall::Tool(tool) => Some((index, tool)),
            RecordedCall::Model(_) | RecordedCall::Live(_) => None,
        });
        let candidates: Vec<_> = candidates.collect();
        let preferences: [&dyn Fn(&FunctionCall) -> bool; 4] = [
            &|recorded| recorded.id.is_some() && recorded.id == call.id,
            &|recorded| recorded.name == call.name && recorded.args == call.args,
            &|recorded| recorded.name == call.name,
            &|_| true,
        ];
        let best = preferences.iter().find_map(|matches| candidates.iter().find(|(_, tool)| matches(&tool.call)));
        let Some((index, tool)) = best.map(|(index, tool)| (*index, (*tool).clone())) else {
            let event = format!("tool `{}` was called", call.name);
            return match entries.iter().position(|entry| !entry.is_used) {
                Some(next) => {
                    Err(self.mismatch(agent, next, &format!("{event}, but the recording has a call of the model here")))
                }
                None => self.unrecorded_call(agent, &event),
            };
        };
        if let Some(diff) = compare::diff_tool_calls(&tool.call, call) {
            let message = format!("the call of tool `{}` differs from the recorded one\n{diff}", call.name);
            return Err(self.mismatch(agent, index, &message));
        }
        mark_used(entries, index);
        match tool.outcome {
            ToolOutcome::Interrupted => Ok(self.interrupted_call(agent, index)),
            ToolOutcome::Object(_) | ToolOutcome::Value(_) | ToolOutcome::Error(_) | ToolOutcome::Pending => {
                Ok(RecordedOutcome::Completed(tool))
            }
        }
    }

    /// Returns a mismatch if the recording has calls that the run has not made.
    pub(crate) fn missing_call(&self) -> Option<Mismatch> {
        let missing = self.agents.iter().flat_map(|(agent, entries)| {
            let missing =
                entries.iter().enumerate().filter(|(_, entry)| !entry.is_used && !entry.call.is_interrupted());
            missing.map(move |(index, entry)| (agent, index, entry))
        });
        let missing: Vec<_> = missing.collect();
        let (agent, index, entry) = missing.first()?;
        let others = match missing.len() - 1 {
            0 => String::new(),
            others => format!(" and {}", pluralize(others, "more recorded call", "more recorded calls")),
        };
        Some(self.mismatch(agent, *index, &format!("the run ended without {}{others}", entry.call.describe())))
    }

    /// Returns the outcome of a call after the agent's last recorded one. If an error ended the recorded run, agents
    /// that ran concurrently may have been interrupted before this call.
    fn unrecorded_call<T>(&self, agent: &str, event: &str) -> Result<RecordedOutcome<T>, Mismatch> {
        let recorded = self.agents.get(agent).map_or(0, Vec::len);
        let mismatch =
            self.mismatch(agent, recorded, &format!("{event}, but the recording has no more calls of this agent"));
        match &self.error_code {
            Some(_) => Ok(RecordedOutcome::Interrupted(mismatch)),
            None => Err(mismatch),
        }
    }

    fn interrupted_call<T>(&self, agent: &str, index: usize) -> RecordedOutcome<T> {
        match self.error_code.as_deref() {
            Some("CANCELLED") => RecordedOutcome::Cancelled,
            _ => RecordedOutcome::Interrupted(self.mismatch(
                agent,
                index,
                "the recorded call was interrupted, but this run did not end",
            )),
        }
    }

    fn mismatch(&self, agent: &str, index: usize, message: &str) -> Mismatch {
        let message = format!("message {}, call {index}: {message}", self.user_message_index);
        Mismatch { agent: agent.to_owned(), message }
    }
}

fn mark_used(entries: &mut [Entry], index: usize) {
    if let Some(entry) = entries.get_mut(index) {
        entry.is_used = true;
    }
}

/// Assigns ids to function calls that have none, from the tool calls that are recorded after the response.
fn with_call_ids(mut response: LlmResponse, following: &[Entry]) -> LlmResponse {
    let mut assigned = HashSet::new();
    let tool_calls = || {
        following.iter().map_while(|entry| match &entry.call {
            RecordedCall::Tool(tool) => Some(&tool.call),
            RecordedCall::Model(_) | RecordedCall::Live(_) => None,
        })
    };
    for part in response.content.iter_mut().flat_map(|content| &mut content.parts) {
        let PartData::FunctionCall(call) = &mut part.data else { continue };
        if call.id.as_ref().is_some_and(|id| !id.is_empty()) {
            continue;
        }
        let is_candidate = |recorded: &&FunctionCall| recorded.name == call.name && !assigned.contains(&recorded.id);
        let same_args = tool_calls().filter(is_candidate).find(|recorded| recorded.args == call.args);
        if let Some(recorded) = same_args.or_else(|| tool_calls().find(is_candidate)) {
            assigned.insert(recorded.id.clone());
            call.id.clone_from(&recorded.id);
        }
    }
    response
}

impl RecordedCall {
    fn is_interrupted(&self) -> bool {
        match self {
            Self::Model(ModelCall { responses, error, .. }) => responses.is_empty() && error.is_none(),
            Self::Live(_) => false,
            Self::Tool(tool) => tool.outcome == ToolOutcome::Interrupted,
        }
    }

    fn is_interrupted_tool_call(&self) -> bool {
        matches!(self, Self::Tool(_)) && self.is_interrupted()
    }

    fn describe(&self) -> String {
        match self {
            Self::Model(_) => "a call of the model".into(),
            Self::Live(_) => "a live conversation".into(),
            Self::Tool(tool) => format!("a call of tool `{}`", tool.call.name),
        }
    }
}
