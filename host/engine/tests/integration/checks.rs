//! Limits of schema checks, and their isolation from other runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    Agent, CallContext, Callback, Content, FunctionDeclaration, HookPoint, Invocation, JsonMap, RunError, Tool,
    ToolError,
};
use hatchery_engine::RunRequest;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};
use tokio::task::yield_now;

use crate::support::*;
use hatchery_test_support::AuditCapture;

/// Counts its calls.
struct CountingTool {
    declaration: Arc<FunctionDeclaration>,
    calls: Arc<AtomicUsize>,
}

#[async_trait]
impl Tool for CountingTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    async fn call(&self, _: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(json!("called"))
    }
}

/// Records the invocation in which it is called.
#[derive(Default)]
struct SpyingCallback {
    run: Mutex<Option<Arc<Invocation>>>,
    /// Number of steps that the run has already taken.
    spent: u64,
}

#[async_trait]
impl Callback for SpyingCallback {
    fn name(&self) -> &str {
        "spies"
    }

    async fn before_tool(&self, cx: &CallContext, _: &str, _: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        cx.invocation.usage.check_steps.fetch_add(self.spent, Ordering::Relaxed);
        *self.run.lock().unwrap() = Some(cx.invocation.clone());
        Ok(None)
    }
}

impl SpyingCallback {
    fn steps(&self) -> u64 {
        self.run.lock().unwrap().as_ref().map_or(0, |run| run.usage.check_steps.load(Ordering::Relaxed))
    }
}

/// Creates an agent whose model calls a tool with these parameters once.
fn calls(parameters: Value, args: Value, spies: &Arc<SpyingCallback>) -> (Agent, Arc<AtomicUsize>) {
    let declaration =
        FunctionDeclaration { name: "tool".into(), parameters: Some(parameters), ..FunctionDeclaration::default() };
    let calls = Arc::new(AtomicUsize::new(0));
    let tool = CountingTool { declaration: Arc::new(declaration), calls: calls.clone() };
    let model = Scripted::sequence([Reply::call("tool", args), Reply::text("ok")]);
    let agent = llm_with("root", model, |llm| {
        llm.tools = vec![Arc::new(tool)];
        llm.callbacks.push(HookPoint::BeforeTool, spies.clone());
    });
    (agent, calls)
}

/// Returns the error for the model, and the number of calls and steps.
async fn error_of(parameters: Value, args: Value, spies: SpyingCallback) -> (String, usize, u64) {
    let spies = Arc::new(spies);
    let (agent, calls) = calls(parameters, args, &spies);
    let events = Harness::new(agent).await.run("hi").await;
    let response = events[1].function_responses().next().unwrap().response.clone();
    let error = response.get("error").and_then(Value::as_str).unwrap_or_default().to_owned();
    (error, calls.load(Ordering::Relaxed), spies.steps())
}

fn list(items: Value) -> Value {
    json!({"type": "object", "properties": {"list": {"type": "array", "items": items}}})
}

/// Creates a schema of alternatives that are not indexed.
fn alternatives(count: usize) -> Value {
    json!({"anyOf": (0..count).map(|number| json!({"const": number as f64 + 0.5})).collect::<Vec<_>>()})
}

/// Returns a schema and a value whose check exceeds the maximum number of steps.
fn endless() -> (Value, Value) {
    (list(alternatives(1000)), json!({"list": vec![999.5; 100_000]}))
}

#[tokio::test]
async fn a_long_enum_takes_a_few_steps_for_each_of_many_items() {
    let floats: Vec<_> = (0..19_000).map(|number| f64::from(number) + 0.5).collect();
    let parameters = list(json!({"enum": floats}));
    let spies = SpyingCallback::default;
    let (error, calls, steps) = error_of(parameters.clone(), json!({"list": vec![18_999.5; 100_000]}), spies()).await;
    assert_eq!((error.as_str(), calls), ("", 1));
    assert!((100_000..1_000_000).contains(&steps), "{steps}");
    let (error, calls, steps) = error_of(parameters, json!({"list": vec![0.25; 100_000]}), spies()).await;
    assert!(error.contains("at `/list/0`: 0.25 is not one of [0.5,1.5,"), "{error}");
    assert_eq!(calls, 0);
    assert!(steps < 1_000_000, "{steps}");
}

#[tokio::test]
async fn a_check_that_takes_too_many_steps_is_interrupted_and_the_tool_does_not_run() {
    let (parameters, args) = endless();
    let (error, calls, steps) = error_of(parameters, args, SpyingCallback::default()).await;
    assert_eq!(
        error,
        "the arguments of `tool` cannot be checked, and it has not run: their check takes more than 4000000 steps against a schema of \
         weight 2007, with 100003 values; send fewer values at once, or have the schema made simpler"
    );
    assert_eq!(calls, 0);
    assert!(steps <= 4_000_000, "{steps}");
}

#[tokio::test]
async fn a_check_that_could_exceed_the_limit_is_not_started() {
    let audit = AuditCapture::capture();
    let (error, calls, steps) =
        error_of(list(alternatives(6000)), json!({"list": vec![0.5; 100_000]}), SpyingCallback::default()).await;
    assert_eq!(
        error,
        "the arguments of `tool` cannot be checked, and it has not run: their check could take 12007 × 100003 steps, of at most 1000000000: \
         12007 is the weight of the schema, 100003 the number of values; send fewer values at once"
    );
    assert_eq!((calls, steps), (0, 0));
    let lines = audit.lines();
    let start = r#"WARN message=limit app="app" user="ada" session="s1" action="tool" limit="schema check" detail="their check could"#;
    assert!(lines.len() == 1 && lines[0].starts_with(start), "{lines:?}");
}

#[tokio::test]
async fn the_checks_of_a_run_share_one_limit() {
    let parameters = list(json!({"type": "integer"}));
    for spent in [99_999_999, 100_000_000] {
        let args = json!({"list": vec![1; 20_000]});
        let (error, calls, _) =
            error_of(parameters.clone(), args, SpyingCallback { spent, ..SpyingCallback::default() }).await;
        assert_eq!(
            error,
            "the arguments of `tool` cannot be checked, and it has not run: the checks of this run have taken 100000000 steps, which is \
             the limit; go on in a new run"
        );
        assert_eq!(calls, 0);
    }
}

#[tokio::test]
async fn a_long_check_blocks_no_worker_and_ends_with_its_run() {
    let spies = Arc::new(SpyingCallback::default());
    let (parameters, args) = endless();
    let (agent, calls) = calls(parameters, args, &spies);
    let app = Harness::new(agent).await;
    let request = app.request(Content::user("hi"));
    let cancel = request.cancel.clone();
    let run = app.runner.run(app.app.clone(), request).await.unwrap();
    // The only worker thread of this test is free during the check.
    while spies.steps() == 0 {
        yield_now().await;
    }
    let other = Harness::new(llm("other", Scripted::sequence(["hello"]))).await;
    assert_eq!(other.transcript("hi").await, ["other: hello"]);
    cancel.cancel();
    assert_eq!(run.collect().await.unwrap_err().code(), "CANCELLED");
    app.runner.drain().await;
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    let before = spies.steps();
    assert!(before < 4_000_000, "{before}");
}

#[tokio::test]
async fn a_run_that_waits_for_a_permit_can_be_cancelled() {
    // More checks than permits, so the last one waits.
    let mut runs = Vec::new();
    for _ in 0..4 {
        let spies = Arc::new(SpyingCallback::default());
        let (parameters, args) = endless();
        let (agent, _) = calls(parameters, args, &spies);
        let app = Harness::new(agent).await;
        let request: RunRequest = app.request(Content::user("hi"));
        let cancel = request.cancel.clone();
        let run = app.runner.run(app.app.clone(), request).await.unwrap();
        while spies.run.lock().unwrap().is_none() {
            yield_now().await;
        }
        runs.push((cancel, run));
    }
    runs.iter().for_each(|(cancel, _)| cancel.cancel());
    let (_, last) = runs.pop().unwrap();
    assert_eq!(last.collect().await.unwrap_err().code(), "CANCELLED");
    // The checks with a permit may have finished before.
    for (_, run) in runs {
        let _ = run.collect().await;
    }
}

#[tokio::test]
async fn an_agent_with_an_invalid_output_schema_does_not_run() {
    let model = Arc::new(Scripted::sequence(["{}"]));
    let agent =
        llm_on("root", &model, |llm| llm.output_schema = Some(json!({"properties": {"a": {"type": "nonsense"}}})));
    let (_, error) = Harness::new(agent).await.expect_error("hi").await;
    assert_eq!(error.code(), "OUTPUT_SCHEMA_UNUSABLE");
    let start = "agent `root`: its output schema is invalid, so its answers cannot be checked; fix `output_schema`: at \
                 `/properties/a/type`: \"nonsense\" is not";
    assert!(error.to_string().starts_with(start), "{error}");
    assert!(model.requests().is_empty());
}
