//! Validation of a call's arguments against the JSON Schema that its tool declares.

use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, RunError, ToolError};
use serde_json::Value;

use super::schema::{self, Failure};

/// Returns the arguments if they match the schema, or an error for the model that describes the mismatch.
///
/// # Errors
/// If the run is cancelled.
pub(crate) async fn check(
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
        Failure::Mismatch(faults) => {
            format!("the arguments do not match the parameters of `{name}`, which has not run: {faults}")
        }
        Failure::InvalidSchema(reason) => {
            tracing::warn!(
                tool = name,
                "tool `{name}` cannot be called: the JSON Schema of its parameters is invalid: {reason}"
            );
            format!(
                "`{name}` cannot be called, since the JSON Schema of its parameters is invalid, which only its author can fix: {reason}"
            )
        }
        Failure::LimitExceeded(reason) => {
            let key = &cx.invocation.session_key;
            let (app, user, session, invocation) = (&*key.app, &*key.user, &*key.id, cx.invocation.id.as_str());
            tracing::warn!(
                target: "hatchery::audit", app, user, session, invocation, action = name, limit = "schema check", detail = reason, "limit"
            );
            format!("the arguments of `{name}` cannot be checked, and it has not run: {reason}")
        }
        Failure::Cancelled => return Err(RunError::Cancelled),
    })))
}
