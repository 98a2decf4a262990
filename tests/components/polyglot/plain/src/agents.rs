//! The agents.

use std::cell::{Cell, RefCell};

use crate::bindings::exports::hatchery::agent::sync_guest_agents::{AgentRun, AgentSpec, Guest, GuestAgentRun};
use crate::bindings::hatchery::agent::specs::{
    AgentKind, CodeExecution, CodeRunner, CustomAgent, Examples, IncludeContents, Instruction, LlmAgent, Planner,
    ToolUse, Toolset,
};
use crate::bindings::hatchery::agent::types::{Error, Event, LlmRequest};
use crate::bindings::hatchery::agent::{session, sync_agents, sync_models};
use crate::events::event;
use crate::{Plain, content, text_of};

impl Guest for Plain {
    type AgentRun = Run;

    fn describe() -> Vec<AgentSpec> {
        let custom = AgentKind::Custom(CustomAgent { model: Some("any".into()), tools: Vec::new() });
        let storyteller = "Emits two lines and the response of a model; fails if the message asks for it.";
        let echo = AgentKind::Custom(CustomAgent { model: None, tools: Vec::new() });
        let foreman = AgentKind::Custom(CustomAgent { model: None, tools: Vec::new() });
        let relays = "Relays the events of its sub-agent, and has the last word.";
        vec![
            AgentSpec { sub_agents: vec!["helper".into()], ..spec("foreman", relays, foreman.clone()) },
            spec("helper", "Says one line.", foreman),
            spec("chief", "Has every kind of tool.", AgentKind::Llm(chief())),
            spec("storyteller", storyteller, custom),
            spec("echo", "Emits the events of the session once more.", echo),
            spec("clerk", "Calculates.", AgentKind::Llm(clerk())),
        ]
    }

    fn compute_instruction(agent: String, _: bool) -> Result<String, Error> {
        if agent == "chief" {
            return Ok(session::set_state("meddled", "true")
                .err()
                .map_or_else(|| "changed".into(), |error| error.code));
        }
        Ok(format!("Speak to {}.", session::current()?.user))
    }

    fn run(name: String) -> Result<AgentRun, Error> {
        Ok(AgentRun::new(Run { agent: name, step: Cell::new(0), helper: RefCell::new(None) }))
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

fn chief() -> LlmAgent {
    let runner = CodeRunner {
        executor: "reverse".into(),
        error_retries: None,
        stateful: false,
        optimize_data_file: false,
        code_delimiters: vec![("<<".into(), ">>".into())],
        result_delimiters: Some(("[[".into(), "]]".into())),
    };
    LlmAgent {
        tools: vec![
            ToolUse { requires_confirmation: Some(true), ..used("scale") },
            ToolUse { args: Some(r#"{"limit": 3}"#.into()), ..used("look") },
            ToolUse { args: Some(r#"{"agent": "clerk"}"#.into()), ..used("AgentTool") },
            used("delegate"),
            used("keep_diary"),
            used("learn"),
            used("compare"),
            used("bake"),
            used("stop"),
        ],
        toolsets: vec![Toolset { name: "keys".into(), only: Vec::new(), prefix: None }],
        examples: Examples::Chosen("echo".into()),
        planner: Planner::PlanReAct,
        code_execution: CodeExecution::Host(runner),
        include_contents: IncludeContents::None,
        before_tool: Vec::new(),
        after_tool: Vec::new(),
        ..clerk()
    }
}

/// A run of an agent, and the number of its events so far.
pub(crate) struct Run {
    agent: String,
    step: Cell<u32>,
    /// The events of the sub-agent.
    helper: RefCell<Option<sync_agents::EventStream>>,
}

impl Run {
    /// Relays the events of the sub-agent, and has the last word.
    fn supervise(&self, step: u32) -> Result<Option<Event>, Error> {
        let mut helper = self.helper.borrow_mut();
        if step == 0 {
            *helper = Some(sync_agents::run("helper")?);
        }
        let Some(events) = helper.as_ref() else { return Ok(None) };
        let relayed = events.next()?;
        if relayed.is_none() {
            *helper = None;
        }
        Ok(Some(relayed.unwrap_or_else(|| event("that was all"))))
    }
}

impl GuestAgentRun for Run {
    fn next(&self) -> Result<Option<Event>, Error> {
        let step = self.step.replace(self.step.get() + 1);
        match self.agent.as_str() {
            "echo" => return Ok(session::events(step.into(), 1)?.pop()),
            "helper" => return Ok((step == 0).then(|| event("I help"))),
            "foreman" => return self.supervise(step),
            _ => {}
        }
        match step {
            0 => Ok(Some(event("one"))),
            1 => {
                session::set_state("told", "2")?;
                Ok(Some(event("two")))
            }
            2 if text_of(Some(&session::user_content()?)) == "fail" => {
                Err(Error { code: "STORY_LOST".into(), message: "the story is lost".into() })
            }
            2 => {
                let responses = sync_models::generate(&request(), false)?;
                let mut complete = String::new();
                while let Some(response) = responses.next()? {
                    complete = text_of(response.content.as_ref());
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
        contents: vec![content("user", "Go on.")],
        system_instructions: vec!["Be brief.".into()],
        tools: Vec::new(),
        model_tools: Vec::new(),
        config: None,
    }
}
