//! The exports of a component's agents.

use std::rc::Rc;

use super::options::{CodeExecution, Examples, IncludeContents, Planner, Toolset};
use super::{Agent, AgentFields, AgentKind, Custom, Instruction, Llm, SubAgent};
use crate::agent_context::AgentContext;
use crate::bindings::agents::exports::hatchery::agent::guest_agents as agents;
use crate::bindings::agents::wit_stream;
use crate::bindings::wit::types;
use crate::context::Context;
use crate::convert::{object, some_object};
use crate::error::Error;
use crate::export::ExportList;
use crate::hook::AgentCallbacks;
use crate::tool::ToolUse;

/// Flattens agents and their sub-agents, parents first. An agent that is used in several places is listed once.
/// Different agents of one name are all listed, which the host refuses; `visit` gets the first one.
fn flatten(agents: Vec<Agent>, into: &mut Vec<agents::AgentSpec>, visit: &mut dyn FnMut(&str, &AgentKind)) {
    for Agent { fields, kind } in agents {
        if !into.iter().any(|known| known.name == fields.name) {
            visit(&fields.name, &kind);
        }
        let AgentFields { name, description, sub_agents, callbacks } = fields;
        let AgentCallbacks { before_agent, after_agent, on_agent_error } = callbacks;
        let names = sub_agents.iter().map(|sub_agent| sub_agent.name().to_owned()).collect();
        let kind = kind.into();
        let spec =
            agents::AgentSpec { name, description, kind, sub_agents: names, before_agent, after_agent, on_agent_error };
        if !into.iter().any(|known| is_same(known, &spec)) {
            into.push(spec);
        }
        let definitions = sub_agents.into_iter().filter_map(|sub_agent| match sub_agent {
            SubAgent::Agent(agent) => Some(agent),
            SubAgent::Named(_) => None,
        });
        flatten(definitions.collect(), into, visit);
    }
}

/// Returns true for equal specifications. Functions are not compared.
fn is_same(one: &agents::AgentSpec, other: &agents::AgentSpec) -> bool {
    one.name == other.name && format!("{one:?}") == format!("{other:?}")
}

/// Returns the result of `pick` for the agent with this name.
fn find<S: ExportList<Agent>, T>(agent: &str, what: &str, pick: impl Fn(&AgentKind) -> Option<T>) -> Result<T, Error> {
    let mut picked = None;
    flatten(S::items(), &mut Vec::new(), &mut |name, kind| {
        if name == agent {
            picked = pick(kind);
        }
    });
    picked.ok_or_else(|| Error::new("NOT_FOUND", format!("this component has no {what} `{agent}`")))
}

impl<S: ExportList<Agent>> agents::Guest for S {
    fn describe() -> Vec<agents::AgentSpec> {
        let mut specs = Vec::new();
        flatten(S::items(), &mut specs, &mut |_, _| {});
        specs
    }

    async fn compute_instruction(agent: String, global: bool) -> Result<String, types::Error> {
        let compute = find::<S, _>(&agent, "computed instruction of agent", |kind| match kind {
            AgentKind::Llm(llm) => match if global { &llm.global_instruction } else { &llm.instruction } {
                Instruction::Computed(compute) => Some(compute.clone()),
                Instruction::None | Instruction::Text(_) => None,
            },
            AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop(_) | AgentKind::Custom(_) => None,
        })?;
        Ok(compute(Context::new()).await?)
    }

    async fn run(agent: String) -> Result<wit_bindgen::StreamReader<types::Event>, types::Error> {
        let code = find::<S, _>(&agent, "custom agent", |kind| match kind {
            AgentKind::Custom(custom) => Some(Rc::clone(&custom.run)),
            AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop(_) | AgentKind::Llm(_) => None,
        })?;
        let (writer, events) = wit_stream::new();
        wit_bindgen::spawn_local(AgentContext::new(writer).serve(code));
        Ok(events)
    }
}

impl From<AgentKind> for agents::AgentKind {
    fn from(kind: AgentKind) -> Self {
        match kind {
            AgentKind::Llm(llm) => Self::Llm((*llm).into()),
            AgentKind::Sequential => Self::Sequential,
            AgentKind::Parallel => Self::Parallel,
            AgentKind::Loop(max_iterations) => Self::Loop(max_iterations),
            AgentKind::Custom(Custom { model, tools, run: _ }) => {
                Self::Custom(agents::CustomAgent { model, tools: tools.into_iter().map(Into::into).collect() })
            }
        }
    }
}

impl From<Instruction> for agents::Instruction {
    fn from(instruction: Instruction) -> Self {
        match instruction {
            Instruction::None => Self::None,
            Instruction::Text(text) => Self::Text(text),
            Instruction::Computed(_) => Self::Computed,
        }
    }
}

impl From<Llm> for agents::LlmAgent {
    fn from(llm: Llm) -> Self {
        Self {
            model: llm.model,
            instruction: llm.instruction.into(),
            global_instruction: llm.global_instruction.into(),
            tools: llm.tools.into_iter().map(Into::into).collect(),
            toolsets: llm.toolsets.into_iter().map(Into::into).collect(),
            examples: llm.examples.into(),
            planner: llm.planner.into(),
            code_execution: llm.code_execution.into(),
            include_contents: llm.include_contents.into(),
            input_schema: llm.input_schema.map(|schema| schema.to_string()),
            output_schema: llm.output_schema.map(|schema| schema.to_string()),
            output_key: llm.output_key,
            max_steps: llm.max_steps,
            disallow_transfer_to_parent: llm.disallow_transfer_to_parent,
            disallow_transfer_to_peers: llm.disallow_transfer_to_peers,
            config: some_object(llm.config),
            before_model: llm.callbacks.before_model,
            after_model: llm.callbacks.after_model,
            before_tool: llm.callbacks.before_tool,
            after_tool: llm.callbacks.after_tool,
            on_model_error: llm.callbacks.on_model_error,
            on_tool_error: llm.callbacks.on_tool_error,
        }
    }
}

impl From<ToolUse> for agents::ToolUse {
    fn from(ToolUse { name, args, requires_confirmation }: ToolUse) -> Self {
        Self { name, args: some_object(args), requires_confirmation }
    }
}

impl From<Toolset> for agents::Toolset {
    fn from(Toolset { name, only, prefix }: Toolset) -> Self {
        Self { name, only, prefix }
    }
}

impl From<IncludeContents> for agents::IncludeContents {
    fn from(contents: IncludeContents) -> Self {
        match contents {
            IncludeContents::Default => Self::Default,
            IncludeContents::None => Self::None,
        }
    }
}

impl From<Examples> for agents::Examples {
    fn from(examples: Examples) -> Self {
        match examples {
            Examples::None => Self::None,
            Examples::Fixed(examples) => Self::Fixed(examples.into_iter().map(Into::into).collect()),
            Examples::Chosen(provider) => Self::Chosen(provider),
        }
    }
}

impl From<Option<Planner>> for agents::Planner {
    fn from(planner: Option<Planner>) -> Self {
        match planner {
            None => Self::None,
            Some(Planner::Thinking(thinking)) => Self::Thinking(object(thinking.0)),
            Some(Planner::PlanReAct) => Self::PlanReAct,
        }
    }
}

impl From<CodeExecution> for agents::CodeExecution {
    fn from(execution: CodeExecution) -> Self {
        match execution {
            CodeExecution::Disabled => Self::None,
            CodeExecution::BuiltIn => Self::BuiltIn,
            CodeExecution::Host(runner) => Self::Host(agents::CodeRunner {
                executor: runner.executor,
                error_retries: runner.error_retries,
                stateful: runner.stateful,
                optimize_data_file: runner.optimize_data_file,
                code_delimiters: runner.code_delimiters,
                result_delimiters: runner.result_delimiters,
            }),
        }
    }
}
