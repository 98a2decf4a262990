//! What an LLM agent does next: a state machine without I/O, fed with the events that it leads to.

use std::sync::Arc;

use hatchery_core::{Event, PartData};

/// The state of one run of an LLM agent.
#[derive(Debug)]
pub struct Machine {
    state: State,
    /// Model calls so far.
    steps: u32,
    max_steps: Option<u32>,
}

#[derive(Debug)]
enum State {
    /// The model's turn.
    Ready,
    /// The model has called tools.
    ToolsDue(Arc<Event>),
    /// A tool has handed over.
    HandingOver(String),
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
    /// Let this agent go on.
    Transfer(String),
    /// The model would have to be asked more often than allowed.
    LimitReached(u32),
    /// Nothing.
    Done,
}

impl Machine {
    /// A run that begins.
    pub fn new(max_steps: Option<u32>) -> Self {
        Self { state: State::Ready, steps: 0, max_steps }
    }

    /// What comes next.
    pub fn next(&self) -> Next {
        match &self.state {
            State::Ready => match self.max_steps {
                Some(most) if self.steps >= most => Next::LimitReached(most),
                _ => Next::CallModel,
            },
            State::ToolsDue(event) => Next::CallTools(event.clone()),
            State::HandingOver(target) => Next::Transfer(target.clone()),
            State::Done => Next::Done,
        }
    }

    /// The model has answered with this event.
    pub fn model_answered(&mut self, event: Arc<Event>) {
        self.steps += 1;
        let calls_tools = event.function_calls().next().is_some();
        self.state = if event.actions.end_of_agent == Some(true) || event.error_code.is_some() {
            State::Done
        } else if calls_tools {
            State::ToolsDue(event)
        } else if ends_in_code_result(&event) {
            State::Ready
        } else {
            State::Done
        };
    }

    /// The tools have answered with this event, or with nothing yet because all of them answer later.
    pub fn tools_answered(&mut self, event: Option<Arc<Event>>) {
        self.state = match event {
            None => State::Done,
            Some(event) => match &event.actions.transfer_to_agent {
                Some(target) => State::HandingOver(target.clone()),
                None if event.actions.end_of_agent == Some(true) || event.is_final_response() => State::Done,
                None => State::Ready,
            },
        };
    }
}

/// The model's code has run and the model has not said anything about the result yet.
fn ends_in_code_result(event: &Event) -> bool {
    let last = event.content.as_ref().and_then(|content| content.parts.last());
    last.is_some_and(|part| matches!(part.data, PartData::CodeExecutionResult(_)))
}
