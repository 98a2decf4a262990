//! Resolves the `tools` of an agent.

use std::sync::Arc;

use hatchery_core::suggestion::suggestion;
use hatchery_core::{Agent, ExampleProvider, ItemResolver, JsonMap, ResolveError, Tool, Toolset};
use serde::Deserialize;
use serde_json::Value;

use super::agent::TreeLoader;
use super::config::{self, SubAgentRef, ToolRef};
use super::error::ConfigError;
use super::file::Source;
use crate::authoring::build::invalid_name;
use crate::authoring::tools::{ToolSource, ToolUse, WITH_ARGUMENTS, resolve_tool};
use crate::llm::tool_resolution::RESERVED;
use crate::tools::toolsets::IntoToolset;

/// The entry of `tools` that selects all tools of a toolset.
pub(super) const TOOLSET: &str = "Toolset";

impl TreeLoader<'_> {
    pub(super) fn tools(&mut self, tools: &[&ToolRef], source: &Source<'_>) -> Result<Vec<Arc<dyn Tool>>, ConfigError> {
        let mut resolved: Vec<Arc<dyn Tool>> = Vec::with_capacity(tools.len());
        for reference in tools {
            let tool = self.tool(reference, source)?;
            let name = &tool.declaration().name;
            if RESERVED.contains(&name.as_str()) {
                let message = format!("`{name}` is a built-in tool; give this tool another name");
                return Err(source.error("name", &reference.name, message));
            }
            if let Some(reason) = invalid_name(name) {
                let message = format!("models cannot call the tool `{name}`, because its name {reason}; rename it");
                return Err(source.error("name", &reference.name, message));
            }
            if resolved.iter().any(|other| other.declaration().name == *name) {
                let message = format!("two tools are named `{name}` to the model; leave one of them out");
                return Err(source.error("name", &reference.name, message));
            }
            resolved.push(tool);
        }
        Ok(resolved)
    }

    fn tool(&mut self, reference: &ToolRef, source: &Source<'_>) -> Result<Arc<dyn Tool>, ConfigError> {
        let ToolRef { name, args, require_confirmation, idempotent } = reference;
        if name.trim().is_empty() {
            return Err(source.error("tools", "", "Tool name cannot be empty".into()));
        }
        let mut tools = FileTools { loader: self, source, name };
        let name = config::tool_of_class(name);
        let (requires_confirmation, is_idempotent) = (*require_confirmation, *idempotent);
        resolve_tool(&mut tools, ToolUse { name, args: args.as_ref(), requires_confirmation, is_idempotent })
    }

    pub(super) fn toolset(&self, reference: &ToolRef, source: &Source<'_>) -> Result<Arc<dyn Toolset>, ConfigError> {
        let args = Value::Object(reference.args.clone().unwrap_or_default());
        let args: ToolsetArgs =
            config::parse(args).map_err(|message| source.error("name", TOOLSET, format!("{TOOLSET}: {message}")))?;
        let mut toolset = self
            .options
            .resolver
            .toolset(&args.name)
            .map_err(|error| source.resolve_error("tools", &args.name, &error))?;
        if let Some(names) = args.only {
            let known = toolset.tool_names().unwrap_or_else(|| names.clone());
            if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
                let known_names = known.iter().map(String::as_str);
                let message = format!(
                    "{TOOLSET}: `{}` has no tool `{unknown}`; available: {}{}",
                    args.name,
                    known.join(", "),
                    suggestion(unknown, known_names)
                );
                return Err(source.error("only", "", message));
            }
            toolset = toolset.only(names).into_toolset();
        }
        if let Some(prefix) = args.prefix.filter(|prefix| !prefix.is_empty()) {
            if let Some(reason) = invalid_name(&prefix) {
                let message =
                    format!("{TOOLSET}: models cannot call tools with the prefix `{prefix}`, because it {reason}");
                return Err(source.error("prefix", "", message));
            }
            toolset = toolset.prefix(prefix).into_toolset();
        }
        Ok(Self::with_call_settings(toolset, reference))
    }

    /// Creates the toolset that has the name of a `tools` entry itself. `None` if the entry is a tool.
    pub(super) fn named_toolset(
        &self,
        reference: &ToolRef,
        source: &Source<'_>,
    ) -> Option<Result<Arc<dyn Toolset>, ConfigError>> {
        let name = reference.name.as_str();
        match self.options.resolver.create_toolset(name, reference.args.clone().unwrap_or_default()) {
            Err(ResolveError::Unknown { .. }) => None,
            Ok(toolset) => Some(Ok(Self::with_call_settings(toolset, reference))),
            Err(error) => Some(Err(source.resolve_error("name", name, &error))),
        }
    }

    /// Applies the settings that an entry has for all of its tools.
    fn with_call_settings(mut toolset: Arc<dyn Toolset>, reference: &ToolRef) -> Arc<dyn Toolset> {
        if reference.require_confirmation {
            toolset = toolset.require_confirmation().into_toolset();
        }
        if !reference.idempotent {
            toolset = toolset.at_most_once().into_toolset();
        }
        toolset
    }
}

/// The tools that a file's definitions refer to.
struct FileTools<'a, 'l, 's> {
    loader: &'a mut TreeLoader<'l>,
    source: &'a Source<'s>,
    /// The name in the definition, for the location of errors.
    name: &'a str,
}

impl ToolSource for FileTools<'_, '_, '_> {
    type Error = ConfigError;
    type AgentRef = SubAgentRef;

    fn tool(&mut self, name: &str) -> Result<Arc<dyn Tool>, ConfigError> {
        let resolver = self.loader.options.resolver;
        resolver.tool(name).map_err(|error| {
            let error = if name == self.name { with_other_entries(error, resolver) } else { error };
            self.source.resolve_error("tools", name, &error)
        })
    }

    fn agent(&mut self, agent: SubAgentRef) -> Result<Agent, ConfigError> {
        self.loader.tool_agent(&agent, self.source)
    }

    fn examples(&mut self, name: &str) -> Result<Arc<dyn ExampleProvider>, ConfigError> {
        let found = self.loader.options.resolver.examples(name);
        found.map_err(|error| self.source.resolve_error("tools", name, &error))
    }

    fn error(&self, reason: String) -> ConfigError {
        self.source.error("name", self.name, reason)
    }
}

/// Adds the names of entries of `tools` that are not plain tools, such as toolsets, to the error for an unknown name.
fn with_other_entries(error: ResolveError, resolver: &dyn ItemResolver) -> ResolveError {
    let ResolveError::Unknown { kind, name, mut known } = error else { return error };
    known.extend(WITH_ARGUMENTS.into_iter().chain([TOOLSET]).map(str::to_owned));
    if let Err(ResolveError::Unknown { known: toolsets, .. }) = resolver.create_toolset(&name, JsonMap::new()) {
        known.extend(toolsets);
    }
    ResolveError::Unknown { kind, name, known }
}

/// Arguments of `Toolset`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolsetArgs {
    name: String,
    /// The tools to include. `None` includes all.
    only: Option<Vec<String>>,
    /// Prepended to the tools' names.
    prefix: Option<String>,
}
