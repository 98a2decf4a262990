//! Resolves the `tools` of an agent.

use std::sync::Arc;

use hatchery_core::{Example, Tool, Toolset};
use serde::Deserialize;
use serde_json::Value;

use super::agent::TreeLoader;
use super::config::{self, SubAgentRef, ToolRef};
use super::error::ConfigError;
use super::file::Source;
use crate::agents::AgentTool;
use crate::llm::tool_resolution::RESERVED;
use crate::tools::builtin::{AtMostOnce, ExampleTool, LongRunning, ModelTool, RequireConfirmation};
use crate::tools::toolsets::IntoToolset;

/// The entry of `tools` that stands for all tools of a toolset.
pub(super) const TOOLSET: &str = "Toolset";

impl TreeLoader<'_> {
    pub(super) fn tools(&mut self, tools: &[&ToolRef], source: &Source<'_>) -> Result<Vec<Arc<dyn Tool>>, ConfigError> {
        let mut resolved: Vec<Arc<dyn Tool>> = Vec::with_capacity(tools.len());
        for reference in tools {
            let tool = self.tool(reference, source)?;
            let name = &tool.declaration().name;
            if RESERVED.contains(&name.as_str()) {
                let message = format!("the engine has a tool `{name}` of its own; give this one another name");
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
        let tool = self.plain_tool(reference, source)?;
        let tool: Arc<dyn Tool> = if reference.idempotent { tool } else { Arc::new(AtMostOnce::new(tool)) };
        Ok(if reference.require_confirmation { Arc::new(RequireConfirmation::new(tool)) } else { tool })
    }

    /// Resolves a tool without the confirmation that `reference` may ask for.
    fn plain_tool(&mut self, tool: &ToolRef, source: &Source<'_>) -> Result<Arc<dyn Tool>, ConfigError> {
        if tool.name.trim().is_empty() {
            return Err(source.error("tools", "", "Tool name cannot be empty".into()));
        }
        if let Some(tool) = self.tool_with_args(tool, source) {
            return tool;
        }
        if tool.args.is_some() {
            let message = format!("tool `{}` takes no `args`", tool.name);
            return Err(source.error("name", &tool.name, message));
        }
        self.options.resolver.tool(&tool.name).map_err(|error| source.resolve_error("tools", &tool.name, &error))
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
            toolset = toolset.only(names).into_toolset();
        }
        if let Some(prefix) = args.prefix {
            toolset = toolset.prefix(prefix).into_toolset();
        }
        if reference.require_confirmation {
            toolset = toolset.requiring_confirmation().into_toolset();
        }
        if !reference.idempotent {
            toolset = toolset.at_most_once().into_toolset();
        }
        Ok(toolset)
    }

    /// Creates a tool that takes arguments. `None` for other names.
    fn tool_with_args(&mut self, tool: &ToolRef, source: &Source<'_>) -> Option<Result<Arc<dyn Tool>, ConfigError>> {
        let error = |message: String| source.error("name", &tool.name, format!("{}: {message}", tool.name));
        let args = || Value::Object(tool.args.clone().unwrap_or_default());
        Some(match tool.name.as_str() {
            "AgentTool" => config::parse::<AgentToolArgs>(args()).map_err(error).and_then(|args| {
                let agent = self.sub_agent(&args.agent, source)?;
                let tool = AgentTool::new(agent, args.skip_summarization);
                Ok(Arc::new(tool.map_err(|reason| error(reason.to_string()))?) as Arc<dyn Tool>)
            }),
            "ExampleTool" => config::parse::<ExampleToolArgs>(args()).map_err(error).and_then(|args| {
                if args.examples.is_empty() {
                    return Err(error("`examples` is empty".into()));
                }
                Ok(Arc::new(ExampleTool::new(&args.examples)) as Arc<dyn Tool>)
            }),
            "LongRunningFunctionTool" => config::parse::<LongRunningArgs>(args()).map_err(error).and_then(|args| {
                let inner = self.options.resolver.tool(&args.func).map_err(|reason| error(reason.to_string()))?;
                Ok(Arc::new(LongRunning::new(inner)) as Arc<dyn Tool>)
            }),
            "vertex_ai_search" => config::parse::<VertexAiSearchArgs>(args()).map_err(error).and_then(|args| {
                let tool = ModelTool::vertex_ai_search(args.data_store_id.as_deref(), args.search_engine_id.as_deref());
                Ok(Arc::new(tool.map_err(error)?) as Arc<dyn Tool>)
            }),
            "vertex_ai_rag_retrieval" => {
                config::parse::<VertexAiRagRetrievalArgs>(args()).map_err(error).and_then(|args| {
                    let (top_k, max_distance) = (args.similarity_top_k, args.vector_distance_threshold);
                    let tool = ModelTool::vertex_ai_rag_retrieval(&args.rag_corpora, top_k, max_distance);
                    Ok(Arc::new(tool.map_err(error)?) as Arc<dyn Tool>)
                })
            }
            _ => return None,
        })
    }
}

/// Arguments of `AgentTool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentToolArgs {
    agent: SubAgentRef,
    #[serde(default, alias = "skipSummarization")]
    skip_summarization: bool,
}

/// Arguments of `ExampleTool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExampleToolArgs {
    examples: Vec<Example>,
}

/// Arguments of `LongRunningFunctionTool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LongRunningArgs {
    /// The wrapped tool.
    func: String,
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

/// Arguments of `vertex_ai_search`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VertexAiSearchArgs {
    #[serde(alias = "dataStoreId")]
    data_store_id: Option<String>,
    #[serde(alias = "searchEngineId")]
    search_engine_id: Option<String>,
}

/// Arguments of `vertex_ai_rag_retrieval`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VertexAiRagRetrievalArgs {
    #[serde(default, alias = "ragCorpora")]
    rag_corpora: Vec<String>,
    #[serde(alias = "similarityTopK")]
    similarity_top_k: Option<u32>,
    #[serde(alias = "vectorDistanceThreshold")]
    vector_distance_threshold: Option<f64>,
}
