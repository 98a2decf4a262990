//! [`Tool`]: what `#[tool]` makes of a function, and how its arguments and results become JSON.

use std::future::Future;
use std::pin::Pin;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bindings::tools::exports::hatchery::agent::guest_tools as wit;
use crate::bindings::wit::types;
use crate::context::ToolContext;
use crate::error::ToolError;
use crate::export::{Offer, find};

/// A future that stays in its component.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// A tool, as [`#[tool]`](macro@crate::tool) makes it of an async function. A function so marked gives this instead of running.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// What models call it by.
    pub name: &'static str,
    /// What it does and when to use it.
    pub description: &'static str,
    /// True when its result comes later.
    pub long_running: bool,
    /// True when a person has to agree to each call before it runs.
    pub requires_confirmation: bool,
    /// JSON Schema of its arguments; nothing when it takes none.
    pub parameters: fn() -> Option<Value>,
    /// Runs it: a JSON object in, any JSON out.
    #[doc(hidden)]
    pub run: fn(String, ToolContext) -> LocalFuture<Result<String, ToolError>>,
}

impl Tool {
    /// Calls it. Unit tests of a tool that uses its context go through [a host](crate::testing).
    ///
    /// # Errors
    /// As the tool.
    pub async fn call(&self, args: Value) -> Result<Value, ToolError> {
        let result = (self.run)(args.to_string(), ToolContext::new()).await?;
        Ok(serde_json::from_str(&result)?)
    }
}

/// Refers to a tool: a function marked `#[tool]`, or a name (`roll_die`, `dice/roll_die`, a built-in one such as `exit_loop`).
pub trait ToolRef {
    /// The name.
    fn tool_name(self) -> String;
}

impl<F: Fn() -> Tool> ToolRef for F {
    fn tool_name(self) -> String {
        self().name.into()
    }
}

impl ToolRef for &str {
    fn tool_name(self) -> String {
        self.into()
    }
}

/// Reads the arguments of a call. What does not fit is told to the model, with the name of the field.
#[doc(hidden)]
pub fn arguments<T: DeserializeOwned>(tool: &str, args: &str) -> Result<T, ToolError> {
    let mut args: Value = serde_json::from_str(args)
        .map_err(|error| ToolError::Model(format!("the arguments of `{tool}` are not JSON: {error}")))?;
    write_whole_numbers_whole(&mut args);
    serde_path_to_error::deserialize(args).map_err(|error| {
        let field = error.path().to_string();
        let reason = error.inner();
        ToolError::Model(match field.as_str() {
            "." => format!("bad arguments for `{tool}`: {reason}"),
            _ => format!("bad arguments for `{tool}`: `{field}`: {reason}"),
        })
    })
}

/// Some models write `20.0` where the schema wants an integer.
fn write_whole_numbers_whole(value: &mut Value) {
    // Up to here every whole `f64` is exact.
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= MOST) {
                #[allow(clippy::cast_possible_truncation, reason = "whole and within the range")]
                let whole = float as i64;
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers_whole),
        Value::Object(fields) => fields.values_mut().for_each(write_whole_numbers_whole),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The result of a call as JSON.
#[doc(hidden)]
pub fn result(tool: &str, value: impl Serialize) -> Result<String, ToolError> {
    serde_json::to_string(&value)
        .map_err(|error| ToolError::Model(format!("the result of `{tool}` cannot be written as JSON: {error}")))
}

/// JSON Schema of a type, in one piece.
#[doc(hidden)]
pub fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // The type's name is the author's business, and its comment says what the declaration's description says already.
    schema.remove("title");
    schema.remove("description");
    schema.into()
}

impl<S: Offer<Tool>> wit::Guest for S {
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
