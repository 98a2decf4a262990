//! The agent loop: a state machine without I/O that decides the next action of an LLM agent.
//!
//! The driver performs the action that [`AgentLoop::next_action`] returns, and records the resulting event. Recording
//! the stored events of an interrupted run brings the loop to the state that the run had.

use std::sync::Arc;

use hatchery_core::Event;
use serde_json::Value;

use super::{code, output_schema};
use crate::tools::confirmation::AnsweredCall;

/// The state of one run of an LLM agent.
#[derive(Debug)]
pub struct AgentLoop {
    state: State,
    /// Model calls so far.
    model_calls: u32,
    /// Ids of the calls whose results are not there yet.
    pending: Vec<String>,
    /// The agent that continues after the tools that the model has called, by a callback of the model call.
    next_agent: Option<String>,
    settings: AgentLoopSettings,
}

/// Settings of an [`AgentLoop`].
#[derive(Debug, Clone, Copy, Default)]
pub struct AgentLoopSettings {
    /// Maximum number of model calls. `None` means no limit.
    pub max_steps: Option<u32>,
    /// Whether the run pauses at a call whose result comes later. Otherwise the model continues without the result.
    pub can_pause: bool,
    /// Whether the host runs the code that the model's responses end in.
    pub can_run_code: bool,
    /// Whether the model may give its final answer by a tool call.
    pub can_answer_by_tool: bool,
}

#[derive(Debug)]
enum State {
    CallModel,
    CallTools(Arc<Event>),
    CallAnswered(Vec<AnsweredCall>),
    RunCode(Arc<Event>),
    EmitAnswer(String),
    Transfer(String),
    Paused,
    Done,
}

/// The next action of the driver.
#[derive(Debug)]
pub enum LoopAction {
    CallModel,
    /// Call the tools that this event calls.
    CallTools(Arc<Event>),
    /// Call tools for whose calls a person has answered a request.
    CallAnswered(Vec<AnsweredCall>),
    /// Run the code that this event ends in.
    RunCode(Arc<Event>),
    /// Emit the answer that the model gave by a tool call.
    EmitAnswer(String),
    /// Transfer to the agent of this name.
    Transfer(String),
    /// Wait for the user's response to any of these calls. The model is called once all of them have a response.
    Pause(Vec<String>),
    /// Fail: the agent has made this many model calls, which is `max_steps`.
    LimitReached(u32),
    /// Stop: the run has ended.
    Done,
}

impl AgentLoop {
    /// Returns the loop of a run that begins with a model call.
    pub fn new(settings: AgentLoopSettings) -> Self {
        Self { state: State::CallModel, model_calls: 0, pending: Vec::new(), next_agent: None, settings }
    }

    /// Returns the next action. Returns the same action until an event is recorded.
    pub fn next_action(&self) -> LoopAction {
        match &self.state {
            State::CallModel => match self.settings.max_steps {
                Some(most) if self.model_calls >= most => LoopAction::LimitReached(most),
                _ => LoopAction::CallModel,
            },
            State::CallTools(event) => LoopAction::CallTools(event.clone()),
            State::CallAnswered(calls) => LoopAction::CallAnswered(calls.clone()),
            State::RunCode(event) => LoopAction::RunCode(event.clone()),
            State::EmitAnswer(answer) => LoopAction::EmitAnswer(answer.clone()),
            State::Transfer(target) => LoopAction::Transfer(target.clone()),
            State::Paused => LoopAction::Pause(self.pending.clone()),
            State::Done => LoopAction::Done,
        }
    }

    /// Records the event of [`LoopAction::CallModel`] or [`LoopAction::EmitAnswer`].
    pub fn record_model_event(&mut self, event: Arc<Event>) {
        self.model_calls += 1;
        let calls_tools = event.function_calls().next().is_some();
        let next_agent = event.actions.transfer_to_agent.clone();
        self.state = if let Some(next_agent) = next_agent.clone().filter(|_| !calls_tools) {
            State::Transfer(next_agent)
        } else if ends_run(&event) {
            State::Done
        } else if calls_tools {
            self.next_agent = next_agent;
            State::CallTools(event)
        } else if self.settings.can_run_code && ends_in_code(&event) {
            State::RunCode(event)
        } else if event.content.as_deref().is_some_and(code::ends_in_result) {
            State::CallModel
        } else {
            State::Done
        };
    }

    /// Records the event of [`LoopAction::CallTools`] or [`LoopAction::CallAnswered`]; `None` if all of the tools
    /// answer later. `pending` are the ids of the calls whose results come later, or that wait for a person.
    pub fn record_tool_event(&mut self, event: Option<Arc<Event>>, pending: Vec<String>) {
        let next_agent = self.next_agent.take();
        let transfer = event.as_ref().and_then(|event| event.actions.transfer_to_agent.clone()).or(next_agent);
        let answer = event.as_ref().and_then(|event| self.answer_in(event));
        if self.settings.can_pause {
            self.pending.extend(pending);
        }
        let is_over = |event: &Event| has_ended(event) || event.is_final_response();
        self.state = match (event, transfer, answer) {
            (Some(event), _, _) if event.actions.end_invocation == Some(true) => State::Done,
            (_, Some(target), _) => State::Transfer(target),
            (_, None, Some(answer)) => State::EmitAnswer(answer),
            (_, None, None) if !self.pending.is_empty() => State::Paused,
            (None, None, None) => State::Done,
            (Some(event), None, None) if is_over(&event) => State::Done,
            (Some(_), None, None) => State::CallModel,
        };
    }

    fn answer_in(&self, event: &Event) -> Option<String> {
        self.settings.can_answer_by_tool.then(|| output_schema::answer(event)).flatten().map(Value::to_string)
    }

    /// Records the user's response to [`LoopAction::Pause`]: the ids of the calls that have a result now, and those for
    /// which a person has answered a request.
    pub fn record_user_response<'a>(
        &mut self,
        responded: impl IntoIterator<Item = &'a str>,
        answered: Vec<AnsweredCall>,
    ) {
        for id in responded {
            self.pending.retain(|pending| pending != id);
        }
        self.state = if !answered.is_empty() {
            State::CallAnswered(answered)
        } else if !self.pending.is_empty() {
            State::Paused
        } else {
            State::CallModel
        };
    }

    /// Records the event of [`LoopAction::RunCode`].
    pub fn record_code_event(&mut self, event: &Event) {
        self.state = if ends_run(event) { State::Done } else { State::CallModel };
    }
}

/// Returns true if the event ends the agent or the whole run.
fn has_ended(event: &Event) -> bool {
    event.actions.end_of_agent == Some(true) || event.actions.end_invocation == Some(true)
}

fn ends_run(event: &Event) -> bool {
    has_ended(event) || event.error_code.is_some()
}

/// Returns true if the model has written code and stopped there. A model that runs code itself continues with the
/// result.
fn ends_in_code(event: &Event) -> bool {
    event.content.as_deref().is_some_and(|content| code::pending_code(content).is_some())
}
