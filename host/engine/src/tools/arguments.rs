//! The door to a tool: the arguments are checked against what the tool declares, then it runs.

use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, RunError, Tool, ToolError};
use serde_json::Value;

use super::schema::{self, Failure};

/// Calls a tool whose arguments fit its parameters.
///
/// # Errors
/// As the tool; arguments that do not fit are an error for the model, which says what is wrong with them.
pub(crate) async fn call(tool: &dyn Tool, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
    let name = &tool.declaration().name;
    let ended = |error: RunError| ToolError::Fatal {
        tool: name.clone(),
        code: error.code().to_owned().into(),
        message: error.to_string(),
    };
    let args = checked(tool.declaration(), args, cx).await.map_err(ended)??;
    tool.call(args, cx).await.map_err(|error| error.named(name))
}

/// The arguments, or what is wrong with them, for the model.
///
/// # Errors
/// When the run is cancelled.
pub(crate) async fn checked(
    declaration: &FunctionDeclaration,
    args: JsonMap,
    cx: &CallContext,
) -> Result<Result<JsonMap, ToolError>, RunError> {
    let Some(parameters) = &declaration.parameters else { return Ok(Ok(args)) };
    let name = &declaration.name;
    let failure = match schema::check(parameters, Value::Object(args), &cx.invocation).await {
        Ok(Value::Object(args)) => return Ok(Ok(args)),
        Ok(_) => return Ok(Ok(JsonMap::new())),
        Err(failure) => failure,
    };
    Ok(Err(ToolError::Recoverable(match failure {
        Failure::Unfit(faults) => {
            format!("the arguments do not fit the parameters of `{name}`, which has not run: {faults}")
        }
        Failure::Unusable(reason) => {
            tracing::warn!(
                tool = name,
                "tool `{name}` cannot be called: the JSON Schema of its parameters cannot be used: {reason}"
            );
            format!(
                "`{name}` cannot be called, since the JSON Schema of its parameters cannot be used, which only its author can mend: {reason}"
            )
        }
        Failure::TooMuch(why) => {
            let key = &cx.invocation.session_key;
            let (app, user, session, invocation) = (&*key.app, &*key.user, &*key.id, cx.invocation.id.as_str());
            tracing::warn!(
                target: "hatchery::audit", app, user, session, invocation, action = name, limit = "schema check", detail = why, "limit"
            );
            format!("the arguments of `{name}` cannot be checked, and it has not run: {why}")
        }
        Failure::Cancelled => return Err(RunError::Cancelled),
    })))
}
