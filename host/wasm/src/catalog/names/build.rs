//! Builds agent trees from the agent specs of components, within the grants of their components.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use hatchery_core::{
    Agent, AgentKind, Callbacks, CodeExecution, CodeRunner, CustomAgentSpec, Delimiters, Example, ExampleProvider,
    Examples, HookPoint, IncludeContents, Instruction, ItemKind, ItemResolver, LlmAgent, ModelRef, Planner,
    ResolveError, Tool, Toolset,
};
use hatchery_engine::build::check_tools;
use hatchery_engine::builtin;
use hatchery_engine::definitions::{ToolSource, ToolUse, resolve_tool};
use hatchery_engine::toolsets::IntoToolset;
use serde_json::Value;

use super::permissions::AgentCapabilities;
use super::tool_agents::{MAX_NESTING, ToolAgents};
use super::{GetItem, NameResolver};
use crate::contract::bindings::hatchery::agent::specs as guest_agents;
use crate::contract::component::{AgentSpec, Component, Hook, InstructionScope};
use crate::contract::convert::{BadValue, all_from_wit, llm, parse_json, parse_object};

impl NameResolver<'_> {
    /// Builds the agent `name` that `component` describes, with all its sub-agents.
    pub(crate) fn build(&self, component: &Arc<Component>, name: &str) -> Result<Agent, ResolveError> {
        self.build_below(&[], &RefCell::default(), component, name)
    }

    /// Builds an agent that the last agent of `path` calls as a tool.
    fn build_below(
        &self,
        path: &[String],
        tool_agents: &RefCell<ToolAgents>,
        component: &Arc<Component>,
        name: &str,
    ) -> Result<Agent, ResolveError> {
        let (used, ungranted) = (HashSet::new(), Vec::new());
        let mut builder = Builder { names: self, tool_agents, path: path.to_vec(), used, ungranted };
        let agent = builder.agent(component, name)?;
        if builder.ungranted.is_empty() {
            return Ok(agent);
        }
        Err(self.explain_ungranted(format!("{}/{name}", component.name()), &builder.ungranted))
    }
}

/// Builds one agent tree.
struct Builder<'a> {
    names: &'a NameResolver<'a>,
    /// The agents of the app that others call as tools, which have their own trees.
    tool_agents: &'a RefCell<ToolAgents>,
    /// Qualified names of the agents on the path from the root, root first.
    path: Vec<String>,
    /// Qualified names of all agents in the tree so far.
    used: HashSet<String>,
    /// Components whose agents in the tree need more than the component is granted.
    ungranted: Vec<Arc<Component>>,
}

impl Builder<'_> {
    fn agent(&mut self, component: &Arc<Component>, name: &str) -> Result<Agent, ResolveError> {
        let qualified = format!("{}/{name}", component.name());
        let unusable =
            |reason: String| ResolveError::Unusable { kind: ItemKind::Agent, name: qualified.clone(), reason };
        let Some(spec) = component.agents().iter().find(|agent| agent.name == name) else {
            return Err(self.names.unknown(ItemKind::Agent, &qualified));
        };
        if self.path.contains(&qualified) {
            return Err(unusable(format!("it is below itself: {} → {qualified}", self.path.join(" → "))));
        }
        if self.path.len() == MAX_NESTING {
            return Err(unusable(format!(
                "it is nested more than {MAX_NESTING} deep; make the tree of agents flatter"
            )));
        }
        if !self.used.insert(qualified.clone()) {
            return Err(unusable("it is used twice in one tree of agents; use a separate agent for each place".into()));
        }
        if !self.names.is_within_grants(component, spec)
            && !self.ungranted.iter().any(|it| it.name() == component.name())
        {
            self.ungranted.push(component.clone());
        }
        self.names.record_use(component);
        self.path.push(qualified.clone());
        self.tool_agents.borrow_mut().reach(self.path.len());
        let agent = self.build_agent(component, spec).map_err(|error| match error {
            error @ (ResolveError::Unusable { kind: ItemKind::Agent, .. } | ResolveError::MissingGrants { .. }) => {
                error
            }
            error => unusable(format!("{error}{}", advice(component, &error))),
        });
        self.path.pop();
        agent
    }

    fn build_agent(&mut self, component: &Arc<Component>, spec: &AgentSpec) -> Result<Agent, ResolveError> {
        let mut sub_agents = Vec::with_capacity(spec.sub_agents.len());
        for name in &spec.sub_agents {
            let (owner, item) = self.resolve(component, ItemKind::Agent, name)?;
            sub_agents.push(self.agent(&owner, &item)?);
        }
        Ok(Agent {
            name: spec.name.clone(),
            description: spec.description.clone(),
            kind: self.kind(component, spec)?,
            sub_agents,
            callbacks: self.callbacks(component, spec.callbacks())?,
        })
    }

    fn kind(&self, component: &Arc<Component>, spec: &AgentSpec) -> Result<AgentKind, ResolveError> {
        Ok(match &spec.kind {
            guest_agents::AgentKind::Sequential => AgentKind::Sequential,
            guest_agents::AgentKind::Parallel => AgentKind::Parallel,
            guest_agents::AgentKind::Loop(most) => AgentKind::Loop { max_iterations: *most },
            guest_agents::AgentKind::Llm(llm) => AgentKind::Llm(Box::new(self.llm(component, &spec.name, llm)?)),
            guest_agents::AgentKind::Custom(custom) => AgentKind::Custom(CustomAgentSpec {
                code: component.custom_agent(&spec.name).ok_or_else(|| self.unknown_agent(&spec.name))?,
                model: custom.model.clone().map(ModelRef::Named),
                tools: self.tools(component, &spec.name, &custom.tools)?,
            }),
        })
    }

    fn llm(
        &self,
        component: &Arc<Component>,
        agent: &str,
        llm: &guest_agents::LlmAgent,
    ) -> Result<LlmAgent, ResolveError> {
        let bad = |error: BadValue| ResolveError::Unusable {
            kind: ItemKind::Agent,
            name: format!("{}/{agent}", component.name()),
            reason: error.to_string(),
        };
        let schema = |json: &Option<String>, what| -> Result<Option<Value>, ResolveError> {
            json.as_deref().map(|json| parse_json(json, what)).transpose().map_err(bad)
        };
        Ok(LlmAgent {
            model: llm.model.clone().map(ModelRef::Named),
            instruction: self.instruction(component, agent, &llm.instruction, InstructionScope::Agent)?,
            static_instruction: Vec::new(),
            global_instruction: self.instruction(component, agent, &llm.global_instruction, InstructionScope::Tree)?,
            tools: self.tools(component, agent, &llm.tools)?,
            toolsets: llm.toolsets.iter().map(|set| self.toolset(component, set)).collect::<Result<_, _>>()?,
            examples: match &llm.examples {
                guest_agents::Examples::None => None,
                guest_agents::Examples::Fixed(examples) => {
                    Some(Examples::Fixed(convert_examples(examples).map_err(bad)?))
                }
                guest_agents::Examples::Chosen(provider) => {
                    Some(Examples::Chosen(self.item(component, ItemKind::Examples, provider, Component::examples)?))
                }
            },
            planner: planner(&llm.planner).map_err(bad)?,
            code_execution: self.code_execution(component, &llm.code_execution)?,
            include_contents: match llm.include_contents {
                guest_agents::IncludeContents::Default => IncludeContents::Default,
                guest_agents::IncludeContents::None => IncludeContents::None,
            },
            input_schema: schema(&llm.input_schema, "the input schema")?,
            output_schema: schema(&llm.output_schema, "the output schema")?,
            output_key: llm.output_key.clone(),
            max_steps: llm.max_steps,
            disallow_transfer_to_parent: llm.disallow_transfer_to_parent,
            disallow_transfer_to_peers: llm.disallow_transfer_to_peers,
            generate_content_config: llm::agent_config(llm.config.clone()).map_err(bad)?,
            callbacks: self.callbacks(component, llm.callbacks())?,
            capabilities: Some(AgentCapabilities::for_component(component)),
        })
    }

    fn instruction(
        &self,
        component: &Arc<Component>,
        agent: &str,
        instruction: &guest_agents::Instruction,
        scope: InstructionScope,
    ) -> Result<Instruction, ResolveError> {
        Ok(match instruction {
            guest_agents::Instruction::None => Instruction::None,
            guest_agents::Instruction::Text(text) => Instruction::Template(text.clone()),
            guest_agents::Instruction::Computed => {
                Instruction::Computed(component.instruction(agent, scope).ok_or_else(|| self.unknown_agent(agent))?)
            }
        })
    }

    fn tools(
        &self,
        home: &Arc<Component>,
        agent: &str,
        tools: &[guest_agents::ToolUse],
    ) -> Result<Vec<Arc<dyn Tool>>, ResolveError> {
        let unusable = |reason: String| ResolveError::Unusable {
            kind: ItemKind::Agent,
            name: format!("{}/{agent}", home.name()),
            reason,
        };
        let mut resolved = Vec::with_capacity(tools.len());
        for tool in tools {
            let args = tool.args.as_deref().map(|json| parse_object(json, "`args` of a tool")).transpose();
            let args = args.map_err(|error| unusable(format!("tool `{}`: {error}", tool.name)))?;
            let mut source = AgentTools { builder: self, home, agent };
            let requires_confirmation = tool.requires_confirmation == Some(true);
            resolved.push(resolve_tool(
                &mut source,
                ToolUse { name: &tool.name, args: args.as_ref(), requires_confirmation, is_idempotent: true },
            )?);
        }
        check_tools(agent, &resolved).map_err(|error| unusable(error.to_string()))?;
        Ok(resolved)
    }

    fn toolset(&self, home: &Arc<Component>, spec: &guest_agents::Toolset) -> Result<Arc<dyn Toolset>, ResolveError> {
        let mut toolset = match home.named_toolset(&spec.name) {
            Some(toolset) => toolset,
            None => self.names.toolset(&spec.name)?,
        };
        if !spec.only.is_empty() {
            toolset = toolset.only(spec.only.clone()).into_toolset();
        }
        if let Some(prefix) = spec.prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
            toolset = toolset.prefix(prefix).into_toolset();
        }
        Ok(toolset)
    }

    fn code_execution(
        &self,
        home: &Arc<Component>,
        spec: &guest_agents::CodeExecution,
    ) -> Result<Option<CodeExecution>, ResolveError> {
        let spec = match spec {
            guest_agents::CodeExecution::None => return Ok(None),
            guest_agents::CodeExecution::BuiltIn => return Ok(Some(CodeExecution::BuiltIn)),
            guest_agents::CodeExecution::Host(runner) => runner,
        };
        let executor = match home.code_executor(&spec.executor) {
            Some(own) => own,
            None => self.names.code_executor(&spec.executor)?,
        };
        let defaults = CodeRunner::new(executor);
        let delimiters = |(open, close): &(String, String)| Delimiters::new(open, close);
        Ok(Some(CodeExecution::Host(Box::new(CodeRunner {
            error_retries: spec.error_retries.unwrap_or(defaults.error_retries),
            stateful: spec.stateful,
            optimize_data_file: spec.optimize_data_file,
            code_delimiters: if spec.code_delimiters.is_empty() {
                defaults.code_delimiters
            } else {
                spec.code_delimiters.iter().map(delimiters).collect()
            },
            result_delimiters: spec.result_delimiters.as_ref().map_or(defaults.result_delimiters, delimiters),
            executor: defaults.executor,
        }))))
    }

    fn callbacks<'a>(
        &self,
        home: &Arc<Component>,
        names: impl Iterator<Item = (HookPoint, &'a str)>,
    ) -> Result<Callbacks, ResolveError> {
        let mut callbacks = Callbacks::default();
        for (point, name) in names {
            let (owner, item) = self.resolve(home, ItemKind::Callback, name)?;
            let (hook, hooks) = (Hook::At(point), owner.callback_points(&item));
            if !hooks.contains(&hook) {
                let reason = format!("it is used as `{}`, but made for {}", hook.name(), Hook::names(hooks));
                return Err(ResolveError::Unusable { kind: ItemKind::Callback, name: name.into(), reason });
            }
            let callback = owner.callback(&item).ok_or_else(|| self.names.unknown(ItemKind::Callback, name))?;
            callbacks.push(point, callback);
        }
        Ok(callbacks)
    }

    /// Resolves the name of an item that an agent of `home` uses.
    fn item<T: ?Sized>(
        &self,
        home: &Arc<Component>,
        kind: ItemKind,
        name: &str,
        get: GetItem<T>,
    ) -> Result<Arc<T>, ResolveError> {
        let (owner, item) = self.resolve(home, kind, name)?;
        get(&owner, &item).ok_or_else(|| self.names.unknown(kind, name))
    }

    /// Returns the component and the item that `name` means for an agent of `home`: its own item first.
    fn resolve(
        &self,
        home: &Arc<Component>,
        kind: ItemKind,
        name: &str,
    ) -> Result<(Arc<Component>, String), ResolveError> {
        if home.exports_item(kind, name) {
            return Ok((home.clone(), name.into()));
        }
        let (component, item) = self.names.find(kind, name)?;
        Ok((component.clone(), item.into()))
    }

    fn unknown_agent(&self, agent: &str) -> ResolveError {
        self.names.unknown(ItemKind::Agent, agent)
    }
}

/// The tools that an agent of `home` refers to.
struct AgentTools<'a, 'n> {
    builder: &'a Builder<'n>,
    home: &'a Arc<Component>,
    agent: &'a str,
}

impl ToolSource for AgentTools<'_, '_> {
    type Error = ResolveError;
    type AgentRef = String;

    fn tool(&mut self, name: &str) -> Result<Arc<dyn Tool>, ResolveError> {
        match builtin::tool(name) {
            Some(tool) => Ok(tool),
            None => self.builder.item(self.home, ItemKind::Tool, name, Component::tool),
        }
    }

    /// Builds a tree for the agent, or returns the one that was built for an earlier caller. The path shows whether the
    /// agent calls itself.
    fn agent(&mut self, name: String) -> Result<Agent, ResolveError> {
        let Builder { names, tool_agents, path, .. } = self.builder;
        let (owner, item) = self.builder.resolve(self.home, ItemKind::Agent, &name)?;
        let qualified = format!("{}/{item}", owner.name());
        let known = tool_agents.borrow_mut().find(&qualified, path.len());
        if let Some(agent) = known {
            return Ok(agent);
        }
        let before = tool_agents.borrow_mut().begin();
        let agent = names.build_below(path, tool_agents, &owner, &item)?;
        tool_agents.borrow_mut().add(qualified, agent.clone(), path.len(), before);
        Ok(agent)
    }

    fn examples(&mut self, name: &str) -> Result<Arc<dyn ExampleProvider>, ResolveError> {
        self.builder.item(self.home, ItemKind::Examples, name, Component::examples)
    }

    fn error(&self, reason: String) -> ResolveError {
        ResolveError::Unusable { kind: ItemKind::Agent, name: format!("{}/{}", self.home.name(), self.agent), reason }
    }
}

/// Returns the end of the message for an item that is unknown, but may be one that `component` does not export.
fn advice(component: &Component, error: &ResolveError) -> String {
    match error {
        ResolveError::Unknown { name, .. } if !name.contains('/') => {
            format!("; if it is an item of `{}`, add it to its exports", component.name())
        }
        ResolveError::Unknown { .. }
        | ResolveError::Ambiguous { .. }
        | ResolveError::Unusable { .. }
        | ResolveError::MissingGrants { .. } => String::new(),
    }
}

fn convert_examples(examples: &[guest_agents::Example]) -> Result<Arc<[Example]>, BadValue> {
    all_from_wit::<Example, _>(examples.to_vec()).map(Into::into)
}

fn planner(planner: &guest_agents::Planner) -> Result<Option<Planner>, BadValue> {
    Ok(match planner {
        guest_agents::Planner::None => None,
        guest_agents::Planner::Thinking(config) => {
            Some(Planner::Thinking(Value::Object(parse_object(config, "the planner's `thinkingConfig`")?)))
        }
        guest_agents::Planner::PlanReAct => Some(Planner::PlanReAct),
    })
}

#[cfg(test)]
pub(super) mod tests;
