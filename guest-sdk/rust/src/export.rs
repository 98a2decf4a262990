//! [`export!`](crate::export), and what the host's calls of its exports do.

use std::rc::Rc;

use crate::agent::{Agent, Common, Custom, Instruction, Kind, Llm, SubAgent};
use crate::agent_context::AgentContext;
use crate::bindings::agents::exports::hatchery::agent::guest_agents as agents;
use crate::bindings::agents::wit_stream;
use crate::bindings::tools::exports::hatchery::agent::guest_tools as tools;
use crate::bindings::wit::types;
use crate::context::{Context, ToolContext};
use crate::convert::some_object;
use crate::error::{Error, ToolError};
use crate::tool::Tool;

/// Says what the component offers: functions marked `#[agent]` (or giving an agent builder), `#[tool]` and `#[callback(…)]`. Agents below
/// a listed one need not be listed.
///
/// ```
/// # use hatchery_guest::prelude::*;
/// # /// Says the time.
/// # #[tool]
/// # async fn time() -> String { String::from("noon") }
/// # /// Greets.
/// # #[agent]
/// # async fn greeter(cx: AgentContext) -> Result<(), Error> { cx.say("Hello").await }
/// hatchery_guest::export! { agents: [greeter], tools: [time] }
/// ```
#[macro_export]
macro_rules! export {
    ($($kind:ident: [$($item:path),* $(,)?]),+ $(,)?) => { $( $crate::__export!($kind [$($item),*]); )+ };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    (agents [$($item:path),*]) => {
        const _: () = {
            struct Agents;
            impl $crate::__private::AgentSet for Agents {
                fn agents() -> ::std::vec::Vec<$crate::Agent> {
                    ::std::vec![$($crate::Agent::from($item())),*]
                }
            }
            // Off wasm nothing is exported; the items are in use all the same.
            const _: fn() -> ::std::vec::Vec<$crate::Agent> = <Agents as $crate::__private::AgentSet>::agents;
            #[cfg(target_family = "wasm")]
            $crate::__private::export_agents!(Agents with_types_in $crate::__private::agents);
        };
    };
    (tools [$($item:path),*]) => {
        const _: () = {
            struct Tools;
            impl $crate::__private::ToolSet for Tools {
                fn tools() -> ::std::vec::Vec<$crate::Tool> {
                    ::std::vec![$($item()),*]
                }
            }
            // Off wasm nothing is exported; the items are in use all the same.
            const _: fn() -> ::std::vec::Vec<$crate::Tool> = <Tools as $crate::__private::ToolSet>::tools;
            #[cfg(target_family = "wasm")]
            $crate::__private::export_tools!(Tools with_types_in $crate::__private::tools);
        };
    };
    (callbacks [$($item:path),*]) => {
        const _: () = {
            struct Callbacks;
            impl $crate::__private::CallbackSet for Callbacks {
                fn callbacks() -> ::std::vec::Vec<$crate::AnyCallback> {
                    ::std::vec![$($crate::AnyCallback::from($item())),*]
                }
            }
            // Off wasm nothing is exported; the items are in use all the same.
            const _: fn() -> ::std::vec::Vec<$crate::AnyCallback> = <Callbacks as $crate::__private::CallbackSet>::callbacks;
            #[cfg(target_family = "wasm")]
            $crate::__private::export_callbacks!(Callbacks with_types_in $crate::__private::callbacks);
        };
    };
    ($other:ident $items:tt) => {
        ::std::compile_error!(::std::concat!(
            "a component exports `agents`, `tools` and `callbacks`, not `",
            ::std::stringify!($other),
            "`"
        ));
    };
}

/// What `export!` makes of its list of agents.
pub trait AgentSet {
    /// The agents, in the order written.
    fn agents() -> Vec<Agent>;
}

/// What `export!` makes of its list of tools.
pub trait ToolSet {
    /// The tools, in the order written.
    fn tools() -> Vec<Tool>;
}

/// All agents, each before those below it; one that is met again is left out.
fn flatten(agents: Vec<Agent>, into: &mut Vec<agents::AgentSpec>, found: &mut dyn FnMut(&str, &Kind)) {
    for Agent { common, kind } in agents {
        if into.iter().any(|spec| spec.name == common.name) {
            continue;
        }
        found(&common.name, &kind);
        let Common { name, description, sub_agents, before_agent, after_agent } = common;
        let names = sub_agents.iter().map(|sub_agent| sub_agent.name().to_owned()).collect();
        let kind = kind.into();
        into.push(agents::AgentSpec { name, description, kind, sub_agents: names, before_agent, after_agent });
        let below = sub_agents.into_iter().filter_map(|sub_agent| match sub_agent {
            SubAgent::Agent(agent) => Some(agent),
            SubAgent::Named(_) => None,
        });
        flatten(below.collect(), into, found);
    }
}

/// What `pick` makes of the agent of this name.
fn find<S: AgentSet, T>(agent: &str, what: &str, pick: impl Fn(&Kind) -> Option<T>) -> Result<T, Error> {
    let mut picked = None;
    flatten(S::agents(), &mut Vec::new(), &mut |name, kind| {
        if name == agent {
            picked = pick(kind);
        }
    });
    picked.ok_or_else(|| Error::new("NOT_FOUND", format!("this component has no {what} `{agent}`")))
}

impl<S: AgentSet> agents::Guest for S {
    fn describe() -> Vec<agents::AgentSpec> {
        let mut specs = Vec::new();
        flatten(S::agents(), &mut specs, &mut |_, _| {});
        specs
    }

    async fn instruct(agent: String, global: bool) -> Result<String, types::Error> {
        let compute = find::<S, _>(&agent, "computed instruction of agent", |kind| match kind {
            Kind::Llm(llm) => match if global { &llm.global_instruction } else { &llm.instruction } {
                Instruction::Computed(compute) => Some(compute.clone()),
                Instruction::None | Instruction::Text(_) => None,
            },
            Kind::Sequential | Kind::Parallel | Kind::Loop(_) | Kind::Custom(_) => None,
        })?;
        Ok(compute(Context::new()).await?)
    }

    async fn run(agent: String) -> Result<wit_bindgen::StreamReader<types::Event>, types::Error> {
        let run = find::<S, _>(&agent, "custom agent", |kind| match kind {
            Kind::Custom(custom) => Some(Rc::clone(&custom.run)),
            Kind::Sequential | Kind::Parallel | Kind::Loop(_) | Kind::Llm(_) => None,
        })?;
        let (writer, events) = wit_stream::new();
        let cx = AgentContext::new(writer);
        wit_bindgen::spawn_local(async move {
            if let Err(error) = run(cx.clone()).await {
                cx.fail(error).await;
            }
        });
        Ok(events)
    }
}

impl<S: ToolSet> tools::Guest for S {
    fn describe() -> Vec<tools::ToolSpec> {
        S::tools()
            .into_iter()
            .map(|tool| tools::ToolSpec {
                declaration: types::FunctionDeclaration {
                    name: tool.name.into(),
                    description: tool.description.into(),
                    parameters: (tool.parameters)().map(|schema| schema.to_string()),
                    response: None,
                },
                long_running: tool.long_running,
            })
            .collect()
    }

    async fn call(name: String, args: String) -> Result<String, types::ToolError> {
        let tool = S::tools()
            .into_iter()
            .find(|tool| tool.name == name)
            .ok_or_else(|| ToolError::fatal(Error::new("NOT_FOUND", format!("this component has no tool `{name}`"))))?;
        Ok((tool.run)(args, ToolContext::new()).await?)
    }
}

impl From<Kind> for agents::AgentKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Llm(llm) => Self::Llm((*llm).into()),
            Kind::Sequential => Self::Sequential,
            Kind::Parallel => Self::Parallel,
            Kind::Loop(max_iterations) => Self::Loop(max_iterations),
            Kind::Custom(Custom { model, tools, run: _ }) => Self::Custom(agents::CustomAgent { model, tools }),
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
            tools: llm.tools,
            without_history: llm.without_history,
            input_schema: llm.input_schema.map(|schema| schema.to_string()),
            output_schema: llm.output_schema.map(|schema| schema.to_string()),
            output_key: llm.output_key,
            max_steps: llm.max_steps,
            disallow_transfer_to_parent: llm.disallow_transfer_to_parent,
            disallow_transfer_to_peers: llm.disallow_transfer_to_peers,
            config: some_object(llm.config),
            before_model: llm.before_model,
            after_model: llm.after_model,
            before_tool: llm.before_tool,
            after_tool: llm.after_tool,
        }
    }
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
