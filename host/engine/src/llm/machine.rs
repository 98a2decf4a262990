//! What an LLM agent does next: a state machine without I/O, fed with the events that it leads to. Feeding it the stored events of an
//! interrupted run brings it to where the run was.

use std::sync::Arc;

use hatchery_core::Event;
use serde_json::Value;

use super::{code, output_schema};
use crate::tools::confirmation::ConfirmedCall;

/// The state of one run of an LLM agent.
#[derive(Debug)]
pub struct Machine {
    state: State,
    /// Model calls so far.
    steps: u32,
    /// Ids of the calls whose results are still to come.
    pending: Vec<String>,
    settings: Settings,
}

/// How a run goes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// Most model calls.
    pub max_steps: Option<u32>,
    /// Whether the run pauses at a call whose result comes later. Otherwise the model goes on without it.
    pub pauses: bool,
    /// Whether the host runs the code that the model's answers end in.
    pub runs_code: bool,
    /// Whether the agent may give its answer by a tool call.
    pub answers_by_tool: bool,
}

#[derive(Debug)]
enum State {
    /// The model's turn.
    Ready,
    /// The model has called tools.
    ToolsDue(Arc<Event>),
    /// A person has decided about calls.
    DecidedDue(Vec<ConfirmedCall>),
    /// The model has written code.
    CodeDue(Arc<Event>),
    /// A tool has taken the agent's answer.
    AnswerDue(String),
    /// A tool has handed over.
    HandingOver(String),
    /// Results of calls come later.
    Paused,
    /// The agent has answered, or waits for a result that comes later.
    Done,
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// Ask the model.
    CallModel,
    /// Run the tools that this event calls.
    CallTools(Arc<Event>),
    /// Run these calls again, now that a person has decided about them.
    CallDecided(Vec<ConfirmedCall>),
    /// Run the code that this event ends in.
    RunCode(Arc<Event>),
    /// Say the answer that a tool has taken.
    Answer(String),
    /// Let this agent go on.
    Transfer(String),
    /// Wait for an answer of the user to any of these calls. The model is asked once all of them have one.
    Pause(Vec<String>),
    /// The model would have to be asked more often than allowed.
    LimitReached(u32),
    /// Nothing.
    Done,
}

impl Machine {
    /// A run that begins.
    pub fn new(settings: Settings) -> Self {
        Self { state: State::Ready, steps: 0, pending: Vec::new(), settings }
    }

    /// What comes next.
    pub fn next(&self) -> Next {
        match &self.state {
            State::Ready => match self.settings.max_steps {
                Some(most) if self.steps >= most => Next::LimitReached(most),
                _ => Next::CallModel,
            },
            State::ToolsDue(event) => Next::CallTools(event.clone()),
            State::DecidedDue(calls) => Next::CallDecided(calls.clone()),
            State::CodeDue(event) => Next::RunCode(event.clone()),
            State::AnswerDue(answer) => Next::Answer(answer.clone()),
            State::HandingOver(target) => Next::Transfer(target.clone()),
            State::Paused => Next::Pause(self.pending.clone()),
            State::Done => Next::Done,
        }
    }

    /// The model, or the agent with the answer that was due, has answered with this event.
    pub fn model_answered(&mut self, event: Arc<Event>) {
        self.steps += 1;
        let calls_tools = event.function_calls().next().is_some();
        self.state = if event.actions.end_of_agent == Some(true) || event.error_code.is_some() {
            State::Done
        } else if calls_tools {
            State::ToolsDue(event)
        } else if self.settings.runs_code && ends_in_code(&event) {
            State::CodeDue(event)
        } else if event.content.as_deref().is_some_and(code::ends_in_result) {
            State::Ready
        } else {
            State::Done
        };
    }

    /// The tools have answered with this event, or with nothing yet because all of them answer later. The results of `pending` calls come
    /// later, or a person has to decide about them first.
    pub fn tools_answered(&mut self, event: Option<Arc<Event>>, pending: Vec<String>) {
        let handing_over = event.as_ref().and_then(|event| event.actions.transfer_to_agent.clone());
        let answer = event.as_ref().and_then(|event| self.answer_in(event));
        if self.settings.pauses {
            self.pending.extend(pending);
        }
        let is_over = |event: &Event| event.actions.end_of_agent == Some(true) || event.is_final_response();
        self.state = match (event, handing_over, answer) {
            (_, Some(target), _) => State::HandingOver(target),
            (_, None, Some(answer)) => State::AnswerDue(answer),
            (_, None, None) if !self.pending.is_empty() => State::Paused,
            (None, None, None) => State::Done,
            (Some(event), None, None) if is_over(&event) => State::Done,
            (Some(_), None, None) => State::Ready,
        };
    }

    fn answer_in(&self, event: &Event) -> Option<String> {
        self.settings.answers_by_tool.then(|| output_schema::answer(event)).flatten().map(Value::to_string)
    }

    /// The user has answered these calls; a person has decided about those.
    pub fn user_answered<'a>(&mut self, answered: impl IntoIterator<Item = &'a str>, decided: Vec<ConfirmedCall>) {
        for id in answered {
            self.pending.retain(|pending| pending != id);
        }
        self.state = if !decided.is_empty() {
            State::DecidedDue(decided)
        } else if !self.pending.is_empty() {
            State::Paused
        } else {
            State::Ready
        };
    }

    /// The code has run and given this event.
    pub fn code_answered(&mut self, event: &Event) {
        let ends = event.actions.end_of_agent == Some(true) || event.error_code.is_some();
        self.state = if ends { State::Done } else { State::Ready };
    }
}

/// The model has written code and stopped there. A model that runs code itself goes on to the result.
fn ends_in_code(event: &Event) -> bool {
    event.content.as_deref().is_some_and(|content| code::pending_code(content).is_some())
}
