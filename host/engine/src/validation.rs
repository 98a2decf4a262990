//! JSON Schema validation for extensions: schemas and values of others, such as a server.

use hatchery_core::CallContext;
use serde_json::Value;

pub use crate::authoring::build::schema::validation_error as schema_error;
use crate::tools::schema::{self, Failure};

/// Checks that a value matches a schema. Both are untrusted: the steps and the time of the check are limited, and so
/// are the sums of all checks of a run.
///
/// # Errors
/// The difference of the value from the schema, or the reason why it cannot be checked.
pub async fn check_value(schema: &Value, value: Value, cx: &CallContext) -> Result<(), String> {
    match schema::check(schema, value, &cx.invocation).await {
        Ok(_) => Ok(()),
        Err(Failure::Mismatch(faults)) => Err(faults),
        Err(Failure::InvalidSchema(reason)) => Err(format!("the schema is invalid: {reason}")),
        Err(Failure::LimitExceeded(reason)) => Err(reason),
        Err(Failure::Cancelled) => Err("the run is cancelled".into()),
    }
}
