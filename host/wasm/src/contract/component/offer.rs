//! What a component offers: as it says it, and checked.

use std::collections::HashSet;
use std::sync::Arc;

use hatchery_core::FunctionDeclaration;

use super::functions::{Function, Functions};
use super::hook::Hook;
use crate::contract::bindings::exports::hatchery::agent::guest_plugins;
use crate::contract::bindings::hatchery::agent::specs;
use crate::contract::convert::FromWit;

pub(crate) use specs::AgentSpec;

/// Most agents of one component.
const MAX_AGENTS: usize = 256;

/// Most items of one component of each other kind.
const MAX_ITEMS: usize = 1000;

/// What a component says that it offers.
#[derive(Default)]
pub(super) struct Described {
    pub(super) agents: Vec<AgentSpec>,
    pub(super) tools: Vec<specs::ToolSpec>,
    pub(super) callbacks: Vec<specs::CallbackSpec>,
    pub(super) plugins: Vec<guest_plugins::PluginSpec>,
    pub(super) code_executors: Vec<String>,
    pub(super) summarizers: Vec<String>,
    pub(super) examples: Vec<String>,
    pub(super) models: Vec<String>,
}

/// What a component offers: not too much, each item under a name of its own.
#[derive(Clone, Default)]
pub(super) struct Offer {
    pub(super) agents: Vec<AgentSpec>,
    pub(super) tools: Vec<DescribedTool>,
    pub(super) callbacks: Vec<Hooked>,
    pub(super) plugins: Vec<Hooked>,
    pub(super) code_executors: Vec<String>,
    pub(super) summarizers: Vec<String>,
    pub(super) examples: Vec<String>,
    pub(super) models: Vec<String>,
}

/// A tool, as it describes itself.
#[derive(Clone)]
pub(crate) struct DescribedTool {
    pub(crate) declaration: Arc<FunctionDeclaration>,
    pub(crate) is_long_running: bool,
    pub(crate) requires_confirmation: bool,
    /// The function behind it, when the component knows nothing of our contract.
    pub(super) function: Option<Arc<Function>>,
}

/// A callback or a plugin, with the moments at which it wants to be called.
#[derive(Clone)]
pub(crate) struct Hooked {
    pub(crate) name: String,
    pub(crate) hooks: Vec<Hook>,
}

impl TryFrom<Described> for Offer {
    type Error = String;

    fn try_from(described: Described) -> Result<Self, String> {
        super::described_size::check(&described)?;
        few("agents", described.agents.len(), MAX_AGENTS)?;
        few("tools", described.tools.len(), MAX_ITEMS)?;
        few("callbacks", described.callbacks.len(), MAX_ITEMS)?;
        few("plugins", described.plugins.len(), MAX_ITEMS)?;
        let callbacks = described.callbacks.into_iter();
        let plugins = described.plugins.into_iter();
        let offer = Self {
            agents: described.agents,
            tools: described.tools.into_iter().map(DescribedTool::try_from).collect::<Result<_, _>>()?,
            callbacks: callbacks
                .map(|spec| Hooked::new("callback", spec.name, &spec.points, &Hook::of_callbacks()))
                .collect::<Result<_, _>>()?,
            plugins: plugins
                .map(|spec| Hooked::new("plugin", spec.name, &spec.hooks, &Hook::of_plugins()))
                .collect::<Result<_, _>>()?,
            code_executors: named("code executor", described.code_executors)?,
            summarizers: named("summarizer", described.summarizers)?,
            examples: named("example provider", described.examples)?,
            models: named("model", described.models)?,
        };
        unique("agent", offer.agents.iter().map(|agent| agent.name.as_str()))?;
        unique("tool", offer.tools.iter().map(|tool| tool.declaration.name.as_str()))?;
        unique("callback", offer.callbacks.iter().map(|callback| callback.name.as_str()))?;
        unique("plugin", offer.plugins.iter().map(|plugin| plugin.name.as_str()))?;
        Ok(offer)
    }
}

impl TryFrom<Functions> for Offer {
    type Error = String;

    fn try_from(functions: Functions) -> Result<Self, String> {
        let Functions { usable, unusable } = functions;
        if usable.is_empty() {
            let reasons = if unusable.is_empty() { "it exports none".into() } else { unusable.join(", ") };
            return Err(format!(
                "none of its functions can be a tool, since tools take and give plain data: {reasons}"
            ));
        }
        few("tools", usable.len(), MAX_ITEMS)?;
        let tools: Vec<_> = usable
            .into_iter()
            .map(|(declaration, function)| DescribedTool {
                declaration,
                is_long_running: false,
                requires_confirmation: false,
                function: Some(function),
            })
            .collect();
        unique("tool", tools.iter().map(|tool| tool.declaration.name.as_str()))?;
        Ok(Self { tools, ..Self::default() })
    }
}

impl TryFrom<specs::ToolSpec> for DescribedTool {
    type Error = String;

    fn try_from(tool: specs::ToolSpec) -> Result<Self, String> {
        let declaration = FunctionDeclaration::from_wit(tool.declaration).map_err(|error| error.to_string())?;
        Ok(Self {
            declaration: Arc::new(declaration),
            is_long_running: tool.long_running,
            requires_confirmation: tool.requires_confirmation,
            function: None,
        })
    }
}

impl Hooked {
    fn new(kind: &str, name: String, hooks: &[String], valid: &[Hook]) -> Result<Self, String> {
        let read = |hook: &String| {
            let known = valid.iter().copied().find(|known| known.name() == *hook);
            known.ok_or_else(|| {
                let valid = Hook::names(valid);
                format!("its {kind} `{name}` wants to be called at `{hook}`, which is none of {valid}")
            })
        };
        let hooks = hooks.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { name, hooks })
    }
}

/// Items of which there is nothing to know but their names.
fn named(kind: &str, names: Vec<String>) -> Result<Vec<String>, String> {
    few(&format!("{kind}s"), names.len(), MAX_ITEMS)?;
    unique(kind, names.iter().map(String::as_str))?;
    Ok(names)
}

fn few(items: &str, count: usize, most: usize) -> Result<(), String> {
    if count > most {
        return Err(format!("it has {count} {items}, and a component may have {most}; make several components of it"));
    }
    Ok(())
}

fn unique<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for name in names {
        if name.is_empty() || name.contains('/') {
            return Err(format!("`{name}` cannot name a {kind}: names are not empty and have no `/`"));
        }
        if !seen.insert(name) {
            return Err(format!("it has two {kind}s named `{name}`"));
        }
    }
    Ok(())
}
