//! Tools of agent definitions: a name with arguments, independent of the format of the definition.

use std::sync::Arc;

use hatchery_core::suggestion::explain_syntax_error;
use hatchery_core::{Agent, Example, ExampleProvider, JsonMap, Tool};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agents::AgentTool;
use crate::tools::builtin::{AtMostOnce, ExampleTool, LongRunning, ModelTool, RequireConfirmation, VertexAiSearch};

/// The built-in tools that take arguments.
pub(super) const WITH_ARGUMENTS: [&str; 5] =
    ["AgentTool", "ExampleTool", "LongRunningFunctionTool", "vertex_ai_search", "vertex_ai_rag_retrieval"];

/// A tool in an agent definition.
#[derive(Debug, Clone, Copy)]
pub struct ToolUse<'a> {
    /// The name of a built-in tool, or of a tool that the definition's source finds.
    pub name: &'a str,
    /// The arguments; `None` if there are none.
    pub args: Option<&'a JsonMap>,
    /// True if a person must confirm each call, even if the tool does not require it.
    pub requires_confirmation: bool,
    /// False if an interrupted call must not be repeated, even if the tool allows it.
    pub is_idempotent: bool,
}

/// Resolves the items that the tools of an agent definition refer to.
pub trait ToolSource {
    /// The error of the format.
    type Error;
    /// The reference of `AgentTool` to an agent.
    type AgentRef: DeserializeOwned;

    /// Returns a tool that is not a built-in tool with arguments.
    ///
    /// # Errors
    /// If no tool has this name.
    fn tool(&mut self, name: &str) -> Result<Arc<dyn Tool>, Self::Error>;

    /// Returns an agent.
    ///
    /// # Errors
    /// If there is no such agent.
    fn agent(&mut self, agent: Self::AgentRef) -> Result<Agent, Self::Error>;

    /// Returns an example provider.
    ///
    /// # Errors
    /// If no example provider has this name.
    fn examples(&mut self, name: &str) -> Result<Arc<dyn ExampleProvider>, Self::Error>;

    /// Creates an error.
    fn error(&self, reason: String) -> Self::Error;
}

/// Returns the tool of a definition.
///
/// # Errors
/// If there is no such tool, or its arguments are invalid.
pub fn resolve_tool<S: ToolSource>(source: &mut S, tool: ToolUse<'_>) -> Result<Arc<dyn Tool>, S::Error> {
    let resolved = match with_arguments(source, tool) {
        Some(resolved) => resolved?,
        None => {
            let found = source.tool(tool.name)?;
            match tool.args {
                None => found,
                Some(args) => found
                    .with_arguments(args.clone())
                    .map_err(|reason| source.error(format!("tool `{}` {reason}", tool.name)))?,
            }
        }
    };
    if tool.requires_confirmation && !resolved.is_callable() {
        let reason = "runs without a call that a person could confirm; remove `require_confirmation`";
        return Err(source.error(format!("tool `{}` {reason}", tool.name)));
    }
    let resolved = if tool.is_idempotent { resolved } else { into_tool(AtMostOnce::new(resolved)) };
    Ok(if tool.requires_confirmation { Arc::new(RequireConfirmation::new(resolved)) } else { resolved })
}

/// Creates a built-in tool that takes arguments. `None` for other names.
fn with_arguments<S: ToolSource>(source: &mut S, tool: ToolUse<'_>) -> Option<Result<Arc<dyn Tool>, S::Error>> {
    Some(match tool.name {
        "AgentTool" => read(source, tool).and_then(|args: AgentToolArgs<S::AgentRef>| {
            if args.include_plugins == Some(false) {
                let reason = "`include_plugins` cannot be false: the host's plugins apply to every agent";
                return Err(invalid(source, tool, reason));
            }
            let agent = source.agent(args.agent)?;
            let created = AgentTool::new(agent).map_err(|reason| invalid(source, tool, &reason.to_string()))?;
            Ok(into_tool(if args.skip_summarization { created.skip_summarization() } else { created }))
        }),
        "ExampleTool" => read(source, tool).and_then(|args: ExampleToolArgs| match args.examples {
            ExamplesArg::Chosen(name) => Ok(into_tool(ExampleTool::from_provider(source.examples(&name)?))),
            ExamplesArg::Fixed(examples) if examples.is_empty() => Err(invalid(source, tool, "`examples` is empty")),
            ExamplesArg::Fixed(examples) => Ok(into_tool(ExampleTool::new(&examples))),
        }),
        "LongRunningFunctionTool" => read(source, tool).and_then(|args: LongRunningArgs| {
            let inner = source.tool(&args.func)?;
            Ok(into_tool(LongRunning::new(inner)))
        }),
        "vertex_ai_search" => read(source, tool).and_then(|args: VertexAiSearch| {
            let created = ModelTool::vertex_ai_search(&args);
            created.map(into_tool).map_err(|reason| invalid(source, tool, &reason))
        }),
        "vertex_ai_rag_retrieval" => read(source, tool).and_then(|args: VertexAiRagRetrievalArgs| {
            let (top_k, max_distance) = (args.similarity_top_k, args.vector_distance_threshold);
            let created = ModelTool::vertex_ai_rag_retrieval(&args.rag_corpora, top_k, max_distance);
            created.map(into_tool).map_err(|reason| invalid(source, tool, &reason))
        }),
        _ => return None,
    })
}

fn into_tool(tool: impl Tool + 'static) -> Arc<dyn Tool> {
    Arc::new(tool)
}

fn read<S: ToolSource, T: DeserializeOwned>(source: &S, tool: ToolUse<'_>) -> Result<T, S::Error> {
    let args = Value::Object(tool.args.cloned().unwrap_or_default());
    parse(args).map_err(|reason| invalid(source, tool, &reason))
}

fn invalid<S: ToolSource>(source: &S, tool: ToolUse<'_>, reason: &str) -> S::Error {
    source.error(format!("{}: {reason}", tool.name))
}

/// Deserializes a value. An error names the key.
pub(super) fn parse<T: DeserializeOwned>(args: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(args).map_err(|error| describe_error(&error))
}

pub(super) fn describe_error(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let (key, reason) = (error.path().to_string(), explain_syntax_error(&error.inner().to_string()));
    if key == "." || reason.contains(&format!("`{key}`")) { reason } else { format!("`{key}`: {reason}") }
}

/// Arguments of `AgentTool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentToolArgs<A> {
    agent: A,
    #[serde(default, alias = "skipSummarization")]
    skip_summarization: bool,
    /// For files of ADK. Plugins always follow into the agent.
    #[serde(alias = "includePlugins")]
    include_plugins: Option<bool>,
}

/// Arguments of `ExampleTool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExampleToolArgs {
    examples: ExamplesArg,
}

/// A list of examples, or the name of a provider.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ExamplesArg {
    Chosen(String),
    Fixed(Vec<Example>),
}

/// Arguments of `LongRunningFunctionTool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LongRunningArgs {
    /// The wrapped tool.
    func: String,
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
