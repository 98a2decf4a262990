//! Tools: the [`Tool`] that `#[tool]` makes of a function, and the JSON conversion of its arguments and results.

use std::future::Future;
use std::pin::Pin;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agent::SubAgentRef;
use crate::bindings::tools::exports::hatchery::agent::guest_tools as wit;
use crate::bindings::wit::types;
use crate::content::JsonMap;
use crate::context::ToolContext;
use crate::error::ToolError;
use crate::examples::ExamplesRef;
use crate::export::{ExportList, find};

/// A boxed future that is not `Send`: components are single-threaded.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// A tool, made from an async function by [`#[tool]`](macro@crate::tool). The function then returns this definition
/// instead of running.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Name of the tool.
    pub name: &'static str,
    /// Purpose and use of the tool, for the model.
    pub description: &'static str,
    /// True if its result arrives later.
    pub long_running: bool,
    /// True if a person must confirm each call before it runs.
    pub requires_confirmation: bool,
    /// Returns the JSON Schema of the arguments. `None` if the tool takes none.
    pub parameters: fn() -> Option<Value>,
    /// Runs the tool: JSON object in, any JSON out.
    #[doc(hidden)]
    pub run: fn(String, ToolContext) -> LocalFuture<Result<String, ToolError>>,
}

impl Tool {
    /// Calls the tool. Unit tests of a tool that uses its context go through [a mock host](crate::testing).
    ///
    /// # Errors
    /// The error of the tool, also for invalid arguments.
    pub async fn call(&self, args: Value) -> Result<Value, ToolError> {
        let result = (self.run)(args.to_string(), ToolContext::new()).await?;
        Ok(serde_json::from_str(&result)?)
    }
}

/// A reference to a tool: a function marked `#[tool]`, or a name (`roll_die`, `dice/roll_die`, a built-in one such as
/// `exit_loop`).
pub trait ToolRef {
    /// Returns the name with its options.
    fn tool_use(self) -> ToolUse;
}

impl<F: Fn() -> Tool> ToolRef for F {
    fn tool_use(self) -> ToolUse {
        ToolUse::new(self().name)
    }
}

impl ToolRef for &str {
    fn tool_use(self) -> ToolUse {
        ToolUse::new(self)
    }
}

impl ToolRef for ToolUse {
    fn tool_use(self) -> ToolUse {
        self
    }
}

/// A tool of an agent, with options: arguments, and consent that the tool itself does not require.
///
/// ```
/// # use hatchery_guest::prelude::*;
/// # use hatchery_guest::ToolUse;
/// /// Looks things up, and deletes them once a person has agreed.
/// #[agent]
/// fn librarian() -> LlmAgent {
///     LlmAgent::new("librarian")
///         .tool(ToolUse::new("archive/delete").confirm())
///         .tool(ToolUse::new("archive/find").arg("limit", 10))
///         .tool(ToolUse::agent("translators/german"))
/// }
/// # hatchery_guest::export! { agents: [librarian] }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ToolUse {
    pub(crate) name: String,
    pub(crate) args: JsonMap,
    pub(crate) requires_confirmation: Option<bool>,
}

impl ToolUse {
    /// Uses a tool by its name: a tool of this component, `component/tool`, or a built-in tool.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), args: JsonMap::new(), requires_confirmation: None }
    }

    /// Uses an agent as a tool: a function marked `#[agent]`, or a name. The agent is not a sub-agent: its answer is
    /// the result of the call.
    pub fn agent(agent: impl SubAgentRef) -> Self {
        Self::new("AgentTool").arg("agent", agent.sub_agent().name())
    }

    /// Adds the examples of a provider to each request: the examples of a function marked `#[examples]`, or of the
    /// provider with this name.
    pub fn examples_from(provider: impl ExamplesRef) -> Self {
        Self::new("ExampleTool").arg("examples", provider.provider_name())
    }

    /// Sets an argument. A component's tool reads them by [`Context::arguments`](crate::Context::arguments).
    #[must_use]
    pub fn arg(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.args.insert(key.into(), value.into());
        self
    }

    /// Requires a person to approve each call before it runs.
    #[must_use]
    pub fn confirm(mut self) -> Self {
        self.requires_confirmation = Some(true);
        self
    }
}

/// Parses the arguments of a call. Invalid arguments are an error for the model, with the name of the field.
#[doc(hidden)]
pub fn arguments<T: DeserializeOwned>(tool: &str, args: &str) -> Result<T, ToolError> {
    let mut args: Value = serde_json::from_str(args)
        .map_err(|error| ToolError::Recoverable(format!("the arguments of `{tool}` are not JSON: {error}")))?;
    normalize_integers(&mut args);
    serde_path_to_error::deserialize(args).map_err(|error| {
        let field = error.path().to_string();
        let reason = error.inner();
        ToolError::Recoverable(match field.as_str() {
            "." => format!("bad arguments for `{tool}`: {reason}"),
            _ => format!("bad arguments for `{tool}`: `{field}`: {reason}"),
        })
    })
}

/// Converts floats without a fraction to integers, because some models write `20.0` where the schema requires an
/// integer.
fn normalize_integers(value: &mut Value) {
    // All integers up to this one are exact as `f64`.
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= MAX_EXACT) {
                #[allow(clippy::cast_possible_truncation, reason = "integral and within the range")]
                let integer = float as i64;
                *value = integer.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_integers),
        Value::Object(fields) => fields.values_mut().for_each(normalize_integers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Serializes the result of a call.
#[doc(hidden)]
pub fn result(tool: &str, value: impl Serialize) -> Result<String, ToolError> {
    serde_json::to_string(&value)
        .map_err(|error| ToolError::Recoverable(format!("the result of `{tool}` cannot be written as JSON: {error}")))
}

/// Returns the JSON Schema of a type, without references.
#[doc(hidden)]
pub fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // The type's name is internal, and its comment repeats the description of the declaration.
    schema.remove("title");
    schema.remove("description");
    schema.into()
}

impl<S: ExportList<Tool>> wit::Guest for S {
    fn describe() -> Vec<wit::ToolSpec> {
        S::items()
            .into_iter()
            .map(|tool| wit::ToolSpec {
                declaration: types::FunctionDeclaration {
                    name: tool.name.into(),
                    description: tool.description.into(),
                    parameters: (tool.parameters)().map(|schema| schema.to_string()),
                    response: None,
                },
                long_running: tool.long_running,
                requires_confirmation: tool.requires_confirmation,
            })
            .collect()
    }

    async fn call(name: String, args: String) -> Result<String, types::ToolError> {
        let tool = find(S::items(), "tool", &name, |tool| tool.name).map_err(ToolError::fatal)?;
        Ok((tool.run)(args, ToolContext::new()).await?)
    }
}
