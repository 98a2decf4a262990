//! The door to a tool: the arguments are checked against what the tool declares, then it runs.

use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, Tool, ToolError};
use serde_json::Value;

use super::schema;

/// Calls a tool whose arguments fit its parameters.
///
/// # Errors
/// As the tool; arguments that do not fit are an error for the model, which says what is wrong with them.
pub(crate) async fn call(tool: &dyn Tool, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
    let args = checked(tool.declaration(), args)?;
    tool.call(args, cx).await.map_err(|error| error.named(&tool.declaration().name))
}

/// The arguments, if they fit.
///
/// # Errors
/// What is wrong with them, for the model.
pub(crate) fn checked(declaration: &FunctionDeclaration, args: JsonMap) -> Result<JsonMap, ToolError> {
    let Some(parameters) = &declaration.parameters else { return Ok(args) };
    let name = &declaration.name;
    let args = Value::Object(args);
    schema::check(parameters, &args, format_args!("tool `{name}`")).map_err(|faults| {
        ToolError::Model(format!("the arguments do not fit the parameters of `{name}`, which has not run: {faults}"))
    })?;
    match args {
        Value::Object(args) => Ok(args),
        _ => Ok(JsonMap::new()),
    }
}
