//! Attacks on CPU time: by the component's code, by nested calls, and by JSON that is slow to parse.

use hatchery_guest::prelude::*;
use hatchery_guest::{LocalFuture, Tool};

use crate::Amount;

/// Never ends.
#[tool]
pub async fn spin() {
    loop {
        std::hint::black_box(());
    }
}

/// Calls itself twice, recursively.
#[tool]
pub async fn twice(cx: ToolContext) -> Result<Value, ToolError> {
    let none = json!({});
    let (one, two) = futures::join!(cx.call_tool::<Value>("twice", &none), cx.call_tool::<Value>("twice", &none));
    Ok(json!([to_json(one), to_json(two)]))
}

fn to_json(result: Result<Value, ToolError>) -> Value {
    result.unwrap_or_else(|error| json!({ "error": error.to_string().chars().take(200).collect::<String>() }))
}

/// Calls itself recursively.
#[tool]
pub async fn chain(cx: ToolContext) -> Result<Value, ToolError> {
    cx.call_tool("chain", &json!({})).await
}

/// Calls a small tool this many times, in sequence.
#[tool]
pub async fn many_calls(amount: Amount, cx: ToolContext) -> Result<usize, ToolError> {
    for _ in 0..amount.count {
        cx.call_tool::<Value>("surroundings", &json!({})).await?;
    }
    Ok(amount.count)
}

/// Reads the events of the session this many times.
#[tool]
pub async fn many_events(amount: Amount, cx: ToolContext) -> Result<usize, ToolError> {
    let mut read = 0;
    for _ in 0..amount.count {
        read += cx.events(0, u32::MAX)?.len();
    }
    Ok(read)
}

/// Returns lists nested 200,000 levels deep.
pub fn deep_json() -> Tool {
    raw("deep_json", "Returns deeply nested JSON.", |_, _| {
        const DEPTH: usize = 200_000;
        Box::pin(async { Ok("[".repeat(DEPTH) + &"]".repeat(DEPTH)) })
    })
}

/// Returns invalid JSON.
pub fn invalid_json() -> Tool {
    raw("invalid_json", "Returns invalid JSON.", |_, _| {
        Box::pin(async { Ok("{\"a\": 1e999, \"a\": \"\\ud800\", \"b\": nul".into()) })
    })
}

type Run = fn(String, ToolContext) -> LocalFuture<Result<String, ToolError>>;

/// A tool whose answer goes to the host as it is.
fn raw(name: &'static str, description: &'static str, run: Run) -> Tool {
    Tool { name, description, long_running: false, requires_confirmation: false, parameters: || None, run }
}
