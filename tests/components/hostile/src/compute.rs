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

/// Calls itself twice, and each of these again.
#[tool]
pub async fn twice(cx: ToolContext) -> Result<Value, ToolError> {
    let none = json!({});
    let (one, two) = futures::join!(cx.call_tool::<Value>("twice", &none), cx.call_tool::<Value>("twice", &none));
    Ok(json!([shown(one), shown(two)]))
}

fn shown(result: Result<Value, ToolError>) -> Value {
    result.unwrap_or_else(|error| json!({ "error": error.to_string().chars().take(200).collect::<String>() }))
}

/// Calls itself, and so on.
#[tool]
pub async fn chain(cx: ToolContext) -> Result<Value, ToolError> {
    cx.call_tool("chain", &json!({})).await
}

/// Calls a small tool this many times, one after the other.
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

/// Returns a list in a list in a list, two hundred thousand deep.
pub fn bottomless() -> Tool {
    raw("bottomless", "Returns JSON that no stack is deep enough for.", |_, _| {
        const DEPTH: usize = 200_000;
        Box::pin(async { Ok("[".repeat(DEPTH) + &"]".repeat(DEPTH)) })
    })
}

/// Returns what is no JSON.
pub fn open_wound() -> Tool {
    raw("open_wound", "Returns what looks like JSON and is none.", |_, _| {
        Box::pin(async { Ok("{\"a\": 1e999, \"a\": \"\\ud800\", \"b\": nul".into()) })
    })
}

type Run = fn(String, ToolContext) -> LocalFuture<Result<String, ToolError>>;

/// A tool whose answer goes to the host as it is.
fn raw(name: &'static str, description: &'static str, run: Run) -> Tool {
    Tool { name, description, long_running: false, requires_confirmation: false, parameters: || None, run }
}
