//! Manifests: the items of a component as `describe` returns them, and checked.

use std::collections::HashSet;
use std::sync::Arc;

use hatchery_core::{FunctionDeclaration, ItemKind, escape_control, truncate_bytes};

use super::functions::{Function, Functions};
use super::hook::Hook;
use super::manifest_size;
use crate::contract::bindings::exports::hatchery::agent::guest_plugins;
use crate::contract::bindings::hatchery::agent::specs;
use crate::contract::convert::FromWit;

pub(crate) use specs::AgentSpec;

/// Maximum number of agents of one component.
const MAX_AGENTS: usize = 256;

/// Maximum number of items of one component of each other kind.
pub(super) const MAX_ITEMS: usize = 1000;

/// Maximum number of bytes of the name of an item. Names are in log lines, spans and labels of metrics.
const MAX_NAME: usize = 256;

/// Maximum number of bytes of a refused name in a message. Tools can be described again for each run.
const MAX_SHOWN_NAME: usize = 128;

/// The items of a component, unchecked.
#[derive(Default)]
pub(super) struct RawManifest {
    pub(super) agents: Vec<AgentSpec>,
    pub(super) tools: Vec<specs::ToolSpec>,
    pub(super) toolsets: Vec<String>,
    pub(super) callbacks: Vec<specs::CallbackSpec>,
    pub(super) plugins: Vec<guest_plugins::PluginSpec>,
    pub(super) code_executors: Vec<String>,
    pub(super) summarizers: Vec<String>,
    pub(super) examples: Vec<String>,
    pub(super) models: Vec<String>,
    pub(super) live_models: Vec<String>,
}

/// The items of a component: a bounded number, with unique names per kind.
#[derive(Clone, Default)]
pub(super) struct ComponentManifest {
    pub(super) agents: Vec<AgentSpec>,
    pub(super) tools: Vec<DescribedTool>,
    pub(super) toolsets: Vec<String>,
    pub(super) callbacks: Vec<HookedItem>,
    pub(super) plugins: Vec<HookedItem>,
    pub(super) code_executors: Vec<String>,
    pub(super) summarizers: Vec<String>,
    pub(super) examples: Vec<String>,
    pub(super) models: Vec<String>,
    pub(super) live_models: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct DescribedTool {
    pub(crate) declaration: Arc<FunctionDeclaration>,
    pub(crate) is_long_running: bool,
    pub(crate) requires_confirmation: bool,
    /// The plain WIT function behind it, if the component does not use our contract.
    pub(super) function: Option<Arc<Function>>,
}

/// A callback or a plugin, with the hooks that it lists.
#[derive(Clone)]
pub(crate) struct HookedItem {
    pub(crate) name: String,
    pub(crate) hooks: Vec<Hook>,
}

impl ComponentManifest {
    /// Returns all items by kind, in the order of the fields.
    pub(super) fn items(&self) -> impl Iterator<Item = (ItemKind, &str)> {
        fn named(kind: ItemKind, names: &[String]) -> impl Iterator<Item = (ItemKind, &str)> {
            names.iter().map(move |name| (kind, name.as_str()))
        }
        let agents = self.agents.iter().map(|agent| (ItemKind::Agent, agent.name.as_str()));
        let tools = self.tools.iter().map(|tool| (ItemKind::Tool, tool.declaration.name.as_str()));
        let callbacks = self.callbacks.iter().map(|callback| (ItemKind::Callback, callback.name.as_str()));
        let plugins = self.plugins.iter().map(|plugin| (ItemKind::Plugin, plugin.name.as_str()));
        agents
            .chain(tools)
            .chain(named(ItemKind::Toolset, &self.toolsets))
            .chain(callbacks)
            .chain(plugins)
            .chain(named(ItemKind::CodeExecutor, &self.code_executors))
            .chain(named(ItemKind::Summarizer, &self.summarizers))
            .chain(named(ItemKind::Examples, &self.examples))
            .chain(named(ItemKind::Model, &self.models))
            .chain(self.live_only_models().map(|name| (ItemKind::Model, name.as_str())))
    }

    /// Returns the live models that do not answer single requests.
    fn live_only_models(&self) -> impl Iterator<Item = &String> {
        self.live_models.iter().filter(|name| !self.models.contains(name))
    }

    /// Checks that each name is valid, and unique among the items of its kind.
    fn check_names(&self) -> Result<(), String> {
        let mut seen = HashSet::new();
        for (kind, name) in self.items() {
            let label = kind.label();
            check_name(label, name)?;
            if name.is_empty() || name.contains('/') {
                return Err(format!("`{name}` cannot name a {label}: names are not empty and have no `/`"));
            }
            if !seen.insert((kind, name)) {
                return Err(format!("it has two {label}s named `{name}`"));
            }
        }
        Ok(())
    }
}

impl TryFrom<RawManifest> for ComponentManifest {
    type Error = String;

    fn try_from(described: RawManifest) -> Result<Self, String> {
        manifest_size::check(&described)?;
        check_count(ItemKind::Agent, described.agents.len(), MAX_AGENTS)?;
        check_count(ItemKind::Tool, described.tools.len(), MAX_ITEMS)?;
        check_count(ItemKind::Toolset, described.toolsets.len(), MAX_ITEMS)?;
        check_count(ItemKind::Callback, described.callbacks.len(), MAX_ITEMS)?;
        check_count(ItemKind::Plugin, described.plugins.len(), MAX_ITEMS)?;
        check_count(ItemKind::CodeExecutor, described.code_executors.len(), MAX_ITEMS)?;
        check_count(ItemKind::Summarizer, described.summarizers.len(), MAX_ITEMS)?;
        check_count(ItemKind::Examples, described.examples.len(), MAX_ITEMS)?;
        check_count(ItemKind::Model, described.models.len().max(described.live_models.len()), MAX_ITEMS)?;
        let callbacks = described.callbacks.into_iter();
        let plugins = described.plugins.into_iter();
        let manifest = Self {
            agents: described.agents,
            tools: described.tools.into_iter().map(DescribedTool::try_from).collect::<Result<_, _>>()?,
            toolsets: described.toolsets,
            callbacks: callbacks
                .map(|spec| HookedItem::new("callback", spec.name, &spec.points, &Hook::callback_hooks()))
                .collect::<Result<_, _>>()?,
            plugins: plugins
                .map(|spec| HookedItem::new("plugin", spec.name, &spec.hooks, &Hook::plugin_hooks()))
                .collect::<Result<_, _>>()?,
            code_executors: described.code_executors,
            summarizers: described.summarizers,
            examples: described.examples,
            models: described.models,
            live_models: described.live_models,
        };
        manifest.check_names()?;
        Ok(manifest)
    }
}

impl TryFrom<Functions> for ComponentManifest {
    type Error = String;

    fn try_from(functions: Functions) -> Result<Self, String> {
        let Functions { usable, unusable } = functions;
        if usable.is_empty() {
            let reasons = if unusable.is_empty() { "it exports none".into() } else { unusable.join(", ") };
            return Err(format!(
                "none of its functions can be a tool, since tools take and give plain data: {reasons}"
            ));
        }
        check_count(ItemKind::Tool, usable.len(), MAX_ITEMS)?;
        let tools: Vec<_> = usable
            .into_iter()
            .map(|(declaration, function)| DescribedTool {
                declaration,
                is_long_running: false,
                requires_confirmation: false,
                function: Some(function),
            })
            .collect();
        let manifest = Self { tools, ..Self::default() };
        manifest.check_names()?;
        Ok(manifest)
    }
}

impl TryFrom<specs::ToolSpec> for DescribedTool {
    type Error = String;

    fn try_from(tool: specs::ToolSpec) -> Result<Self, String> {
        let declaration = FunctionDeclaration::from_wit(tool.declaration).map_err(|error| error.to_string())?;
        check_name(ItemKind::Tool.label(), &declaration.name)?;
        Ok(Self {
            declaration: Arc::new(declaration),
            is_long_running: tool.long_running,
            requires_confirmation: tool.requires_confirmation,
            function: None,
        })
    }
}

impl HookedItem {
    fn new(kind: &str, name: String, hooks: &[String], valid: &[Hook]) -> Result<Self, String> {
        check_name(kind, &name)?;
        let read = |hook: &String| {
            let known = valid.iter().copied().find(|known| known.name() == *hook);
            known.ok_or_else(|| {
                let hook = truncate_bytes(hook, MAX_SHOWN_NAME);
                let (hook, valid) = (escape_control(&hook), Hook::names(valid));
                format!("`{hook}` of its {kind} `{name}` is not a valid hook; valid hooks are {valid}")
            })
        };
        let hooks = hooks.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { name, hooks })
    }
}

/// Checks that the name of an item has no control characters, since it is written to logs and terminals.
fn check_name(label: &str, name: &str) -> Result<(), String> {
    let is_line_end = |c: char| matches!(c, '\u{2028}' | '\u{2029}');
    if name.contains(|c: char| c.is_control() || is_line_end(c)) {
        let name = truncate_bytes(name, MAX_SHOWN_NAME);
        let name = escape_control(&name);
        return Err(format!("`{name}` cannot name a {label}: names have no control characters or line separators"));
    }
    if name.len() > MAX_NAME {
        let name = truncate_bytes(name, MAX_SHOWN_NAME);
        return Err(format!("`{name}` cannot name a {label}: names have at most {MAX_NAME} bytes"));
    }
    Ok(())
}

pub(super) fn check_count(kind: ItemKind, count: usize, max: usize) -> Result<(), String> {
    if count > max {
        let items = kind.plural();
        return Err(format!(
            "it has {count} {items}, and a component may have {max}; split it into several components"
        ));
    }
    Ok(())
}
