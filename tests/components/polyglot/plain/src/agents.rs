//! The agents.

use std::cell::Cell;

use crate::bindings::exports::hatchery::agent::sync_guest_agents::{AgentRun, AgentSpec, Guest, GuestAgentRun};
use crate::bindings::hatchery::agent::specs::{
    AgentKind, CodeExecution, CustomAgent, Examples, IncludeContents, Instruction, LlmAgent, Planner, ToolUse,
};
use crate::bindings::hatchery::agent::types::{Error, Event, EventActions, LlmRequest};
use crate::bindings::hatchery::agent::{session, sync_models};
use crate::{Plain, said, text};

impl Guest for Plain {
    type AgentRun = Run;

    fn describe() -> Vec<AgentSpec> {
        let custom = AgentKind::Custom(CustomAgent { model: Some("any".into()), tools: Vec::new() });
        let told = "Says two lines, and what a model adds; fails when the user wants it to.";
        let echo = AgentKind::Custom(CustomAgent { model: None, tools: Vec::new() });
        vec![
            spec("storyteller", told, custom),
            spec("echo", "Emits the events of the session once more.", echo),
            spec("clerk", "Calculates.", AgentKind::Llm(clerk())),
        ]
    }

    fn compute_instruction(_: String, _: bool) -> Result<String, Error> {
        Ok(format!("Speak to {}.", session::current()?.user))
    }

    fn run(name: String) -> Result<AgentRun, Error> {
        Ok(AgentRun::new(Run { is_echo: name == "echo", step: Cell::new(0) }))
    }
}

fn spec(name: &str, description: &str, kind: AgentKind) -> AgentSpec {
    AgentSpec {
        name: name.into(),
        description: description.into(),
        kind,
        sub_agents: Vec::new(),
        before_agent: Vec::new(),
        after_agent: Vec::new(),
        on_agent_error: Vec::new(),
    }
}

fn used(name: &str) -> ToolUse {
    ToolUse { name: name.into(), args: None, requires_confirmation: None }
}

fn clerk() -> LlmAgent {
    LlmAgent {
        model: Some("any".into()),
        instruction: Instruction::Computed,
        global_instruction: Instruction::None,
        tools: vec![used("scale"), used("note")],
        toolsets: Vec::new(),
        examples: Examples::None,
        planner: Planner::None,
        code_execution: CodeExecution::None,
        include_contents: IncludeContents::Default,
        input_schema: None,
        output_schema: None,
        output_key: None,
        max_steps: None,
        disallow_transfer_to_parent: false,
        disallow_transfer_to_peers: false,
        config: None,
        before_model: Vec::new(),
        after_model: Vec::new(),
        before_tool: vec!["veto".into()],
        after_tool: vec!["stamp".into()],
        on_model_error: Vec::new(),
        on_tool_error: Vec::new(),
    }
}

/// A run of an agent, and the number of its events so far.
pub(crate) struct Run {
    is_echo: bool,
    step: Cell<u32>,
}

impl GuestAgentRun for Run {
    fn next(&self) -> Result<Option<Event>, Error> {
        let step = self.step.replace(self.step.get() + 1);
        if self.is_echo {
            return Ok(session::events(step.into(), 1)?.pop());
        }
        match step {
            0 => Ok(Some(event("one"))),
            1 => {
                session::set_state("told", "2")?;
                Ok(Some(event("two")))
            }
            2 if said(Some(&session::user_content()?)) == "fail" => {
                Err(Error { code: "STORY_LOST".into(), message: "the story is lost".into() })
            }
            2 => {
                let responses = sync_models::generate(&request(), false)?;
                let mut complete = String::new();
                while let Some(response) = responses.next()? {
                    complete = said(response.content.as_ref());
                }
                Ok(Some(event(&complete)))
            }
            _ => Ok(None),
        }
    }
}

fn request() -> LlmRequest {
    LlmRequest {
        model: String::new(),
        contents: vec![text("Go on.")],
        system_instructions: vec!["Be brief.".into()],
        tools: Vec::new(),
        model_tools: Vec::new(),
        config: None,
    }
}

fn event(words: &str) -> Event {
    Event {
        id: String::new(),
        invocation_id: String::new(),
        author: String::new(),
        content: Some(text(words)),
        actions: EventActions {
            state_delta: Vec::new(),
            artifact_delta: Vec::new(),
            deleted_artifact_ids: Vec::new(),
            skip_summarization: None,
            transfer_to_agent: None,
            escalate: None,
            end_of_agent: None,
            end_invocation: None,
            extra: None,
        },
        partial: false,
        turn_complete: None,
        interrupted: None,
        branch: None,
        long_running_tool_ids: Vec::new(),
        error_code: None,
        error_message: None,
        timestamp: 0,
        extra: None,
    }
}
