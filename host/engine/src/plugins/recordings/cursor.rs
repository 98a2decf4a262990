//! How far a replay has come in a recording.

use std::collections::{BTreeMap, HashSet};

use hatchery_core::{FunctionCall, LlmRequest, LlmResponse, ModelError, PartData};
use thiserror::Error;

use super::{ModelCall, RecordedCall, Recordings, ToolCall, ToolOutcome, compare};

/// The calls that a message of the user led to, by agent.
pub(super) struct Cursor {
    agents: BTreeMap<String, Vec<Entry>>,
    user_message_index: usize,
    /// The code of the error in which the recorded turn ended, if it did.
    error_code: Option<String>,
}

struct Entry {
    call: RecordedCall,
    taken: bool,
}

/// The run is not the recorded one.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("agent `{agent}`: {message}")]
pub(super) struct Mismatch {
    /// The agent at which it shows.
    pub(super) agent: String,
    /// What differs.
    pub(super) message: String,
}

/// What stands in the recording for a call.
#[derive(Debug)]
pub(super) enum Found<T> {
    /// This came back.
    Answer(T),
    /// Nothing came back: something else ended the recorded run.
    Stopped(Mismatch),
    /// Nothing came back: the recorded run was cancelled.
    Cancelled,
}

/// How a model answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Option<LlmResponse>,
    /// How it failed, after `response` if there is one.
    pub(super) error: Option<ModelError>,
}

impl Cursor {
    pub(super) fn new(recordings: Recordings, user_message_index: usize) -> Self {
        let mut agents: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        let of_message = |index| index == user_message_index;
        for recording in recordings.recordings.into_iter().filter(|it| of_message(it.user_message_index)) {
            agents.entry(recording.agent).or_default().push(Entry { call: recording.call, taken: false });
        }
        let message = recordings.user_messages.into_iter().nth(user_message_index);
        Self { agents, user_message_index, error_code: message.and_then(|message| message.error_code) }
    }

    /// What the model of `agent` answers to this request.
    pub(super) fn ask(&mut self, agent: &str, request: &LlmRequest) -> Result<Found<Answer>, Mismatch> {
        let entries = self.agents.entry(agent.to_owned()).or_default();
        let next = entries.iter().position(|entry| !entry.taken && !entry.call.is_stopped_tool());
        let Some((index, call)) = next.and_then(|index| Some((index, &entries.get(index)?.call))) else {
            return self.after_the_end(agent, "the model is asked");
        };
        let RecordedCall::Model(recorded) = call else {
            let message = format!("the model is asked, where {} is recorded", call.shown());
            return Err(self.mismatch(agent, index, &message));
        };
        if let Some(diff) = compare::requests(&recorded.request, request) {
            return Err(self.mismatch(agent, index, &format!("the model is asked something else\n{diff}")));
        }
        let answer = Answer { response: recorded.answer(), error: recorded.error.clone() };
        take(entries, index);
        if answer.response.is_none() && answer.error.is_none() {
            return Ok(self.stopped(agent, index));
        }
        let response = answer.response.map(|response| with_ids(response, entries.get(index + 1..).unwrap_or_default()));
        Ok(Found::Answer(Answer { response, ..answer }))
    }

    /// What a tool answers that `agent` calls. Of the calls that may run at the same time, the one of this id is meant, else the one of
    /// these arguments, else the next.
    pub(super) fn call(&mut self, agent: &str, call: &FunctionCall) -> Result<Found<ToolCall>, Mismatch> {
        let entries = self.agents.entry(agent.to_owned()).or_default();
        let open = entries.iter().enumerate().filter(|(_, entry)| !entry.taken);
        let due = open.map_while(|(index, entry)| match &entry.call {
            RecordedCall::Tool(tool) => Some((index, tool)),
            RecordedCall::Model(_) => None,
        });
        let due: Vec<_> = due.collect();
        let fits: [&dyn Fn(&FunctionCall) -> bool; 4] = [
            &|recorded| recorded.id.is_some() && recorded.id == call.id,
            &|recorded| recorded.name == call.name && recorded.args == call.args,
            &|recorded| recorded.name == call.name,
            &|_| true,
        ];
        let found = fits.iter().find_map(|fits| due.iter().find(|(_, tool)| fits(&tool.call)));
        let Some((index, tool)) = found.map(|(index, tool)| (*index, (*tool).clone())) else {
            let what = format!("tool `{}` is called", call.name);
            return match entries.iter().position(|entry| !entry.taken) {
                Some(next) => {
                    Err(self.mismatch(agent, next, &format!("{what}, where a call of the model is recorded")))
                }
                None => self.after_the_end(agent, &what),
            };
        };
        let (recorded, now) = ((tool.call.name.as_str(), &tool.call.args), (call.name.as_str(), &call.args));
        if let Some(diff) = compare::tool_calls(recorded, now) {
            let message = format!("tool `{}` is called otherwise\n{diff}", call.name);
            return Err(self.mismatch(agent, index, &message));
        }
        take(entries, index);
        match tool.outcome {
            ToolOutcome::Stopped => Ok(self.stopped(agent, index)),
            ToolOutcome::Answered(_)
            | ToolOutcome::AnsweredBare(_)
            | ToolOutcome::Failed(_)
            | ToolOutcome::NothingYet => Ok(Found::Answer(tool)),
        }
    }

    /// What the run should have done too.
    pub(super) fn leftovers(&self) -> Option<Mismatch> {
        let open = self.agents.iter().flat_map(|(agent, entries)| {
            let open = entries.iter().enumerate().filter(|(_, entry)| !entry.taken && !entry.call.is_stopped());
            open.map(move |(index, entry)| (agent, index, entry))
        });
        let open: Vec<_> = open.collect();
        let (agent, index, entry) = open.first()?;
        let others = match open.len() - 1 {
            0 => String::new(),
            others => format!(", and {others} more that are recorded"),
        };
        Some(self.mismatch(agent, *index, &format!("the run ended without {}{others}", entry.call.shown())))
    }

    /// More is asked than is recorded. Where an error ended the recorded run, what ran beside it may not have come this far.
    fn after_the_end<T>(&self, agent: &str, what: &str) -> Result<Found<T>, Mismatch> {
        let recorded = self.agents.get(agent).map_or(0, Vec::len);
        let mismatch =
            self.mismatch(agent, recorded, &format!("{what}, where no more calls of this agent are recorded"));
        match &self.error_code {
            Some(_) => Ok(Found::Stopped(mismatch)),
            None => Err(mismatch),
        }
    }

    fn stopped<T>(&self, agent: &str, index: usize) -> Found<T> {
        match self.error_code.as_deref() {
            Some("CANCELLED") => Found::Cancelled,
            _ => Found::Stopped(self.mismatch(agent, index, "the recorded call was stopped before it was answered")),
        }
    }

    fn mismatch(&self, agent: &str, index: usize, what: &str) -> Mismatch {
        let message = format!("message {}, call {index}: {what}", self.user_message_index);
        Mismatch { agent: agent.to_owned(), message }
    }
}

fn take(entries: &mut [Entry], index: usize) {
    if let Some(entry) = entries.get_mut(index) {
        entry.taken = true;
    }
}

/// Calls without an id get that of the recorded call that they led to.
fn with_ids(mut response: LlmResponse, after: &[Entry]) -> LlmResponse {
    let mut named = HashSet::new();
    let led_to = || {
        after.iter().map_while(|entry| match &entry.call {
            RecordedCall::Tool(tool) => Some(&tool.call),
            RecordedCall::Model(_) => None,
        })
    };
    for part in response.content.iter_mut().flat_map(|content| &mut content.parts) {
        let PartData::FunctionCall(call) = &mut part.data else { continue };
        if call.id.as_ref().is_some_and(|id| !id.is_empty()) {
            continue;
        }
        let same = |recorded: &&FunctionCall| recorded.name == call.name && !named.contains(&recorded.id);
        let recorded = led_to().filter(same).find(|it| it.args == call.args).or_else(|| led_to().find(same));
        if let Some(recorded) = recorded {
            named.insert(recorded.id.clone());
            call.id.clone_from(&recorded.id);
        }
    }
    response
}

impl RecordedCall {
    fn is_stopped(&self) -> bool {
        match self {
            Self::Model(ModelCall { responses, error, .. }) => responses.is_empty() && error.is_none(),
            Self::Tool(tool) => tool.outcome == ToolOutcome::Stopped,
        }
    }

    fn is_stopped_tool(&self) -> bool {
        matches!(self, Self::Tool(_)) && self.is_stopped()
    }

    fn shown(&self) -> String {
        match self {
            Self::Model(_) => "a call of the model".into(),
            Self::Tool(tool) => format!("a call of tool `{}`", tool.call.name),
        }
    }
}
