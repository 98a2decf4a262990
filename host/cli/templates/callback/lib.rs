//! A callback. `hatchery build` makes a component of it, which any agent can use by the callback's name.

use hatchery_guest::prelude::*;

/// Refuses tool calls with an empty argument. `Some` takes the place of the tool's answer, `None` lets the call go on.
#[callback(before_tool)]
async fn @FUNCTION@(call: &ToolCall) -> Result<Option<Value>, Error> {
    let empty = call.args.iter().find(|(_, value)| value.as_str() == Some(""));
    Ok(empty.map(|(name, _)| json!({ "error": format!("`{name}` must not be empty") })))
}

hatchery_guest::export! { callbacks: [@FUNCTION@] }
