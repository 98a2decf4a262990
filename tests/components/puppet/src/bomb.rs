//! A schema that is slow to validate.

use hatchery_guest::prelude::*;
use hatchery_guest::{LocalFuture, Tool};

/// Takes a list of numbers, each of which must be one of very many when the attack is `schema`.
pub fn bomb() -> Tool {
    Tool {
        name: "bomb",
        description: "Takes numbers.",
        long_running: false,
        requires_confirmation: false,
        parameters: || Some(schema()),
        run: |_, _| -> LocalFuture<_> { Box::pin(async { Ok("\"it ran\"".into()) }) },
    }
}

fn schema() -> Value {
    let allowed: Vec<Value> = match crate::mode().as_str() {
        "schema" => (0..19_000).map(|number| json!(f64::from(number) + 0.5)).collect(),
        "schema_pattern" => {
            let pattern = format!("^{}$", "(a?){95}".repeat(7));
            return json!({ "type": "object", "properties": { "numbers": { "items": { "type": "string", "pattern": pattern } } } });
        }
        "schema_unusable" => return json!({ "type": "object", "properties": { "numbers": { "$ref": "#/nowhere" } } }),
        "schema_loop" => {
            return json!({
                "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/a" }, { "items": { "$ref": "#/$defs/a" } }] } },
                "properties": { "numbers": { "$ref": "#/$defs/a" } },
            });
        }
        _ => vec![json!(1)],
    };
    json!({ "type": "object", "properties": { "numbers": { "type": "array", "items": { "enum": allowed } } } })
}

/// How many numbers.
#[derive(Deserialize, JsonSchema)]
pub struct Fuse {
    /// The number of numbers.
    numbers: usize,
}

/// Calls `bomb` with this many numbers, none of which is allowed.
#[tool]
pub async fn explode(fuse: Fuse, cx: ToolContext) -> Result<Value, ToolError> {
    let numbers = vec![json!(0.25); fuse.numbers];
    cx.call_tool("bomb", &json!({ "numbers": numbers })).await
}
