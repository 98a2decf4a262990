//! Tools, agents and a callback that trap, spin, allocate memory or take long, and some that show what the host allows.

use std::future::{Future, poll_fn};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use hatchery_guest::prelude::*;

/// Traps.
#[tool]
async fn trap() {
    trap_now();
}

fn trap_now() -> ! {
    std::process::abort()
}

/// Never ends.
#[tool]
async fn spin() {
    spin_now();
}

fn spin_now() -> ! {
    loop {
        std::hint::black_box(());
    }
}

/// Allocates memory until an allocation fails.
#[tool]
async fn allocate() {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        // Writing makes it resident.
        taken.push(std::hint::black_box(vec![1; 1 << 20]));
    }
}

/// The size of a result.
#[derive(Deserialize, JsonSchema)]
struct Size {
    /// Bytes of text.
    bytes: usize,
}

/// Returns a long text.
#[tool]
async fn huge_result(size: Size) -> String {
    "x".repeat(size.bytes)
}

/// A duration.
#[derive(Deserialize, JsonSchema)]
struct Wait {
    /// Milliseconds.
    millis: u64,
}

/// Sleeps, and returns the duration.
#[tool]
async fn slow(wait: Wait) -> u64 {
    std::thread::sleep(Duration::from_millis(wait.millis));
    wait.millis
}

/// One value.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Anything {
    /// Any value.
    value: Value,
}

/// Returns its arguments.
#[tool]
async fn echo(args: Anything) -> Anything {
    args
}

/// Returns the number of calls that its instance has served, this one included.
#[tool]
async fn count() -> u32 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed) + 1
}

/// Returns the name of the calling agent.
#[tool]
async fn calling_agent(cx: ToolContext) -> Result<String, ToolError> {
    Ok(cx.info()?.agent)
}

/// Computes for this long.
#[tool]
async fn burn(wait: Wait) -> u64 {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(wait.millis) {
        std::hint::black_box(());
    }
    wait.millis
}

/// Allocates memory and never frees it.
#[tool]
async fn hoard(size: Size) -> usize {
    std::mem::forget(std::hint::black_box(vec![1_u8; size.bytes]));
    size.bytes
}

/// Looks up a number in a table that each instance computes once, slowly.
#[tool]
async fn lookup() -> u64 {
    static TABLE: OnceLock<Vec<u64>> = OnceLock::new();
    let next = |last: &u64| Some(last.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407));
    let table = TABLE.get_or_init(|| std::iter::successors(Some(1), next).take(1 << 20).collect());
    table.last().copied().unwrap_or_default()
}

/// Leaves a task behind that never ends.
#[tool]
async fn linger(cx: ToolContext) -> Result<(), ToolError> {
    wit_bindgen::spawn_local(async move {
        loop {
            // Waits in an import of the host.
            let _ = cx.call_tool::<Value>("slow", &json!({ "millis": 1000 })).await;
        }
    });
    Ok(())
}

/// Starts a call of another tool and abandons it.
#[tool]
async fn abandon(cx: ToolContext) {
    let cx: &'static ToolContext = Box::leak(Box::new(cx));
    let wait: &'static Value = Box::leak(Box::new(json!({ "millis": 60_000 })));
    let mut call = Box::pin(cx.call_tool::<Value>("slow", wait));
    poll_fn(|task| Poll::Ready(call.as_mut().poll(task).is_ready())).await;
    std::mem::forget(call);
}

/// A call of another tool.
#[derive(Deserialize, JsonSchema)]
struct Relayed {
    /// The tool.
    tool: String,
    /// Its arguments, an object.
    args: Value,
}

/// Calls another tool and returns its result.
#[tool]
async fn relay_tool(call: Relayed, cx: ToolContext) -> Result<Value, ToolError> {
    cx.call_tool(&call.tool, &call.args).await
}

/// A state key to read or write.
#[derive(Deserialize, JsonSchema)]
struct StateAccess {
    /// The key.
    key: String,
    /// The value to write; absent to only read, `null` to delete.
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
}

/// Distinguishes `null` from an absent value.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

/// Reads a state key, writes it if there is a value, and reads it again.
#[tool]
async fn state_rw(access: StateAccess, cx: ToolContext) -> Result<Value, ToolError> {
    let before: Option<Value> = cx.state(&access.key)?;
    if let Some(value) = access.value {
        cx.set_state(&access.key, value)?;
    }
    let after: Option<Value> = cx.state(&access.key)?;
    Ok(json!({ "before": before, "after": after }))
}

/// Fails with an error that ends the run.
#[tool]
async fn fatal() -> Result<(), ToolError> {
    Err(ToolError::fatal(Error::new("BROKEN", "beyond repair")))
}

/// Emits one event and traps.
#[agent]
async fn trapping_agent(cx: AgentContext) -> Result<(), Error> {
    cx.say("about to trap").await?;
    trap_now()
}

/// Emits one event and never ends.
#[agent]
async fn spinning_agent(cx: AgentContext) -> Result<(), Error> {
    cx.say("about to spin").await?;
    spin_now()
}

/// Emits one event and fails with an error.
#[agent]
async fn failing_agent(cx: AgentContext) -> Result<(), Error> {
    cx.say("about to fail").await?;
    Err(Error::new("BROKEN", "beyond repair"))
}

/// Traps before an agent runs.
#[callback(before_agent)]
async fn trapping_callback() -> Result<Option<Content>, Error> {
    trap_now()
}

/// Fails with messages that contain a line of a log.
pub struct Liar;

#[plugin]
impl Liar {
    async fn on_run_error(error: Error) -> Result<(), Error> {
        Err(error)
    }

    async fn close() -> Result<(), Error> {
        Err(Error::new("BROKEN", "broken\nINFO all is well"))
    }
}

hatchery_guest::export! {
    agents: [trapping_agent, spinning_agent, failing_agent],
    tools: [trap, spin, allocate, huge_result, slow, echo, count, calling_agent, burn, hoard, lookup, linger, abandon, relay_tool, state_rw, fatal],
    callbacks: [trapping_callback],
    plugins: [Liar],
}
