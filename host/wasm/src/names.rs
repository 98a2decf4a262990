//! Finding things by name among components, and building the agents that components describe.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use hatchery_core::agent::{IncludeContents, LlmAgent};
use hatchery_core::{Agent, AgentKind, Callback, Custom, Instruction, ItemKind, Lookup, LookupError, ModelRef, Tool};
use hatchery_engine::builtin;
use serde_json::Value;

use crate::bindings::exports::hatchery::agent::guest_agents;
use crate::component::{AgentSpec, Component};
use crate::convert::{llm, value};

/// Most agents from the root of a tree to its deepest one.
const MAX_NESTING: usize = 32;

/// Components by name.
pub(crate) type Components = BTreeMap<String, Arc<Component>>;

/// Looks names up in a set of components.
pub(crate) struct Names<'a>(pub(crate) &'a Components);

impl Lookup for Names<'_> {
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, LookupError> {
        if let Some(tool) = builtin::tool(name) {
            return Ok(tool);
        }
        let (component, item) = self.find(ItemKind::Tool, name)?;
        component.tool(item).ok_or_else(|| self.unknown(ItemKind::Tool, name))
    }

    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, LookupError> {
        let (component, item) = self.find(ItemKind::Callback, name)?;
        component.callback(item).ok_or_else(|| self.unknown(ItemKind::Callback, name))
    }

    fn agent(&self, name: &str) -> Result<Agent, LookupError> {
        let (component, item) = self.find(ItemKind::Agent, name)?;
        self.build(component, item)
    }
}

impl Names<'_> {
    /// Builds the agent of this name that `component` describes, with everything below it.
    pub(crate) fn build(&self, component: &Arc<Component>, name: &str) -> Result<Agent, LookupError> {
        Builder { names: self, open: Vec::new(), used: HashSet::new() }.agent(component, name)
    }

    /// The component that offers `name`, and the item's name in it.
    fn find<'n>(&self, kind: ItemKind, name: &'n str) -> Result<(&Arc<Component>, &'n str), LookupError> {
        if let Some((component, item)) = name.split_once('/') {
            let found = self.0.get(component).filter(|component| offers(component, kind, item));
            return found.map(|component| (component, item)).ok_or_else(|| self.unknown(kind, name));
        }
        let mut found = self.0.values().filter(|component| offers(component, kind, name));
        match (found.next(), found.next()) {
            (Some(component), None) => Ok((component, name)),
            (None, _) => Err(self.unknown(kind, name)),
            (Some(first), Some(second)) => {
                let all = [first, second].into_iter().chain(found);
                let candidates = all.map(|component| format!("{}/{name}", component.name())).collect();
                Err(LookupError::Ambiguous { kind, name: name.into(), candidates })
            }
        }
    }

    fn unknown(&self, kind: ItemKind, name: &str) -> LookupError {
        let mut known: Vec<String> = Vec::new();
        for component in self.0.values() {
            known.extend(items(component, kind).map(|item| format!("{}/{item}", component.name())));
        }
        if kind == ItemKind::Tool {
            known.extend(builtin::NAMES.iter().map(|name| (*name).to_owned()));
        }
        LookupError::Unknown { kind, name: name.into(), known }
    }
}

fn items(component: &Component, kind: ItemKind) -> Box<dyn Iterator<Item = &str> + '_> {
    match kind {
        ItemKind::Tool => Box::new(component.tool_names()),
        ItemKind::Callback => Box::new(component.callback_names()),
        ItemKind::Agent => Box::new(component.agent_names()),
        ItemKind::Toolset | ItemKind::Plugin | ItemKind::CodeExecutor | ItemKind::Summarizer | ItemKind::Examples => {
            Box::new(std::iter::empty())
        }
    }
}

fn offers(component: &Component, kind: ItemKind, name: &str) -> bool {
    items(component, kind).any(|item| item == name)
}

/// Names of a component's agents that are below none of its others: these become apps.
pub(crate) fn roots(component: &Component) -> Vec<&str> {
    let sub_agents = component.agents().iter().flat_map(|agent| &agent.sub_agents);
    let below: HashSet<&str> = sub_agents
        .map(|sub_agent| match sub_agent.split_once('/') {
            Some((owner, name)) if owner == component.name() => name,
            Some(_) | None => sub_agent,
        })
        .collect();
    component.agent_names().filter(|name| !below.contains(name)).collect()
}

/// Builds one tree of agents.
struct Builder<'a> {
    names: &'a Names<'a>,
    /// Full names of the agents that are being built, outermost first.
    open: Vec<String>,
    /// Full names of all agents in the tree so far.
    used: HashSet<String>,
}

impl Builder<'_> {
    fn agent(&mut self, component: &Arc<Component>, name: &str) -> Result<Agent, LookupError> {
        let full = format!("{}/{name}", component.name());
        let broken = |reason: String| LookupError::Broken { kind: ItemKind::Agent, name: full.clone(), reason };
        let Some(spec) = component.agents().iter().find(|agent| agent.name == name) else {
            return Err(self.names.unknown(ItemKind::Agent, &full));
        };
        if self.open.contains(&full) {
            return Err(broken(format!("it is below itself: {} → {full}", self.open.join(" → "))));
        }
        if self.open.len() == MAX_NESTING {
            return Err(broken(format!("it is nested more than {MAX_NESTING} deep; make the tree of agents flatter")));
        }
        if !self.used.insert(full.clone()) {
            return Err(broken("it is used twice in one tree of agents; give each place an agent of its own".into()));
        }
        self.open.push(full.clone());
        let agent = self.parts(component, spec).map_err(|error| match error {
            error @ LookupError::Broken { kind: ItemKind::Agent, .. } => error,
            error => broken(error.to_string()),
        });
        self.open.pop();
        agent
    }

    fn parts(&mut self, component: &Arc<Component>, spec: &AgentSpec) -> Result<Agent, LookupError> {
        let mut sub_agents = Vec::with_capacity(spec.sub_agents.len());
        for name in &spec.sub_agents {
            let (owner, item) = self.owner(component, ItemKind::Agent, name)?;
            sub_agents.push(self.agent(&owner, &item)?);
        }
        Ok(Agent {
            name: spec.name.clone(),
            description: spec.description.clone(),
            kind: self.kind(component, spec)?,
            sub_agents,
            before_agent: self.callbacks(component, &spec.before_agent, "before-agent")?,
            after_agent: self.callbacks(component, &spec.after_agent, "after-agent")?,
            on_agent_error: Vec::new(),
        })
    }

    fn kind(&self, component: &Arc<Component>, spec: &AgentSpec) -> Result<AgentKind, LookupError> {
        Ok(match &spec.kind {
            guest_agents::AgentKind::Sequential => AgentKind::Sequential,
            guest_agents::AgentKind::Parallel => AgentKind::Parallel,
            guest_agents::AgentKind::Loop(most) => AgentKind::Loop { max_iterations: *most },
            guest_agents::AgentKind::Llm(llm) => AgentKind::Llm(Box::new(self.llm(component, &spec.name, llm)?)),
            guest_agents::AgentKind::Custom(custom) => AgentKind::Custom(Custom {
                code: component.custom_agent(&spec.name).ok_or_else(|| self.no_code(&spec.name))?,
                model: custom.model.clone().map(ModelRef::Named),
                tools: self.tools(component, &custom.tools)?,
            }),
        })
    }

    fn llm(
        &self,
        component: &Arc<Component>,
        agent: &str,
        llm: &guest_agents::LlmAgent,
    ) -> Result<LlmAgent, LookupError> {
        let bad = |error: crate::convert::BadValue| LookupError::Broken {
            kind: ItemKind::Agent,
            name: format!("{}/{agent}", component.name()),
            reason: error.to_string(),
        };
        let schema = |json: &Option<String>, what| -> Result<Option<Value>, LookupError> {
            json.as_deref().map(|json| value(json, what)).transpose().map_err(bad)
        };
        Ok(LlmAgent {
            model: llm.model.clone().map(ModelRef::Named),
            instruction: self.instruction(component, agent, &llm.instruction, false)?,
            global_instruction: self.instruction(component, agent, &llm.global_instruction, true)?,
            tools: self.tools(component, &llm.tools)?,
            include_contents: if llm.without_history { IncludeContents::None } else { IncludeContents::Default },
            input_schema: schema(&llm.input_schema, "the input schema")?,
            output_schema: schema(&llm.output_schema, "the output schema")?,
            output_key: llm.output_key.clone(),
            max_steps: llm.max_steps,
            disallow_transfer_to_parent: llm.disallow_transfer_to_parent,
            disallow_transfer_to_peers: llm.disallow_transfer_to_peers,
            generate_content_config: llm::config(llm.config.clone()).map_err(bad)?,
            before_model: self.callbacks(component, &llm.before_model, "before-model")?,
            after_model: self.callbacks(component, &llm.after_model, "after-model")?,
            before_tool: self.callbacks(component, &llm.before_tool, "before-tool")?,
            after_tool: self.callbacks(component, &llm.after_tool, "after-tool")?,
            // The contract has no callbacks for failures yet.
            on_model_error: Vec::new(),
            on_tool_error: Vec::new(),
            ..LlmAgent::default()
        })
    }

    fn instruction(
        &self,
        component: &Arc<Component>,
        agent: &str,
        instruction: &guest_agents::Instruction,
        is_global: bool,
    ) -> Result<Instruction, LookupError> {
        Ok(match instruction {
            guest_agents::Instruction::None => Instruction::None,
            guest_agents::Instruction::Text(text) => Instruction::Template(text.clone()),
            guest_agents::Instruction::Computed => {
                Instruction::Computed(component.instruction(agent, is_global).ok_or_else(|| self.no_code(agent))?)
            }
        })
    }

    fn tools(&self, home: &Arc<Component>, names: &[String]) -> Result<Vec<Arc<dyn Tool>>, LookupError> {
        let find = |name: &String| {
            if let Some(tool) = builtin::tool(name) {
                return Ok(tool);
            }
            let (owner, item) = self.owner(home, ItemKind::Tool, name)?;
            owner.tool(&item).ok_or_else(|| self.names.unknown(ItemKind::Tool, name))
        };
        names.iter().map(find).collect()
    }

    fn callbacks(
        &self,
        home: &Arc<Component>,
        names: &[String],
        point: &str,
    ) -> Result<Vec<Arc<dyn Callback>>, LookupError> {
        let find = |name: &String| {
            let (owner, item) = self.owner(home, ItemKind::Callback, name)?;
            let points = owner.callback_points(&item);
            if !points.iter().any(|made_for| made_for == point) {
                let reason = format!("it is used as `{point}`, but made for `{}`", points.join("`, `"));
                return Err(LookupError::Broken { kind: ItemKind::Callback, name: name.clone(), reason });
            }
            owner.callback(&item).ok_or_else(|| self.names.unknown(ItemKind::Callback, name))
        };
        names.iter().map(find).collect()
    }

    /// Who offers what an agent of `home` calls `name`: its own component first.
    fn owner(
        &self,
        home: &Arc<Component>,
        kind: ItemKind,
        name: &str,
    ) -> Result<(Arc<Component>, String), LookupError> {
        if offers(home, kind, name) {
            return Ok((home.clone(), name.into()));
        }
        let (component, item) = self.names.find(kind, name)?;
        Ok((component.clone(), item.into()))
    }

    fn no_code(&self, agent: &str) -> LookupError {
        self.names.unknown(ItemKind::Agent, agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::tests::{agent, with_agents};

    async fn built(agents: Vec<AgentSpec>) -> Result<Agent, String> {
        let components = Components::from([("made".to_owned(), with_agents(agents).await)]);
        Names(&components).agent("made/a0").map_err(|error| error.to_string())
    }

    /// Agents, each with the next one below it.
    fn chain(length: usize) -> Vec<AgentSpec> {
        let below = |number: usize| (number + 1 < length).then(|| format!("a{}", number + 1));
        (0..length).map(|number| agent(format!("a{number}"), below(number).into_iter().collect())).collect()
    }

    #[tokio::test]
    async fn a_chain_of_sub_agents_has_an_end() {
        assert!(built(chain(32)).await.is_ok());
        let error = built(chain(256)).await.map(|_| ()).unwrap_err();
        assert!(
            error.contains("`made/a32`") && error.contains("nested more than 32 deep; make the tree of agents flatter"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn an_agent_that_is_used_twice_is_refused_before_the_tree_grows() {
        // Built, this would have 2^30 agents.
        let twice = |number: usize| vec![format!("a{}", number + 1); if number < 29 { 2 } else { 0 }];
        let error = built((0..30).map(|number| agent(format!("a{number}"), twice(number))).collect()).await;
        let error = error.map(|_| ()).unwrap_err();
        assert!(
            error.contains("`made/a29`")
                && error.contains("used twice in one tree of agents; give each place an agent of its own"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn an_agent_below_itself_is_refused() {
        let error = built(vec![agent("a0", vec!["a1".into()]), agent("a1", vec!["made/a0".into()])]).await;
        let error = error.map(|_| ()).unwrap_err();
        assert!(error.contains("it is below itself: made/a0 → made/a1 → made/a0"), "{error}");
    }

    #[tokio::test]
    async fn only_agents_below_no_other_are_roots_however_they_are_named() {
        let specs = vec![agent("a0", vec!["a1".into(), "made/a2".into(), "other/a3".into()])];
        let specs = specs.into_iter().chain((1..4).map(|number| agent(format!("a{number}"), Vec::new())));
        let component = with_agents(specs.collect()).await;
        assert_eq!(roots(&component), ["a0", "a3"]);
    }
}
