//! Cancellation: a run ends wherever it waits.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::{
    Agent, AgentKind, ArtifactService, Blob, CallContext, Callback, Content, Event, EventData, Example,
    ExampleProvider, Examples, FunctionDeclaration, HookPoint, Instruction, JsonMap, LlmAgent, LlmRequest, LlmResponse,
    Model, ModelError, ModelRef, Part, PartData, Plugin, ResponseStream, RunError, RunLimit, SessionKey, StoreError,
    StreamingMode, Tool, ToolError,
};
use hatchery_engine::{Plugins, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::*;

/// Waits forever at one place.
struct BlockingExtension {
    at: &'static str,
    entered: Notify,
    declaration: Arc<FunctionDeclaration>,
}

impl BlockingExtension {
    fn at(at: &'static str) -> Arc<Self> {
        Arc::new(Self { at, entered: Notify::new(), declaration: declaration("stuck") })
    }

    async fn pass(&self, place: &str) {
        if self.at == place {
            self.entered.notify_one();
            pending().await
        }
    }
}

#[async_trait]
impl Callback for BlockingExtension {
    fn name(&self) -> &str {
        "stuck"
    }
    async fn before_agent(&self, _: &CallContext) -> Result<Option<Content>, RunError> {
        self.pass("before_agent").await;
        Ok(None)
    }
    async fn after_agent(&self, _: &CallContext) -> Result<Option<Content>, RunError> {
        self.pass("after_agent").await;
        Ok(None)
    }
    async fn before_model(&self, _: &CallContext, _: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        self.pass("before_model").await;
        Ok(None)
    }
    async fn after_model(&self, _: &CallContext, _: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        self.pass("after_model").await;
        Ok(None)
    }
    async fn on_model_error(
        &self,
        _: &CallContext,
        _: &LlmRequest,
        _: &ModelError,
    ) -> Result<Option<LlmResponse>, RunError> {
        self.pass("on_model_error").await;
        Ok(None)
    }
    async fn before_tool(&self, _: &CallContext, _: &str, _: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        self.pass("before_tool").await;
        Ok(None)
    }
    async fn after_tool(
        &self,
        _: &CallContext,
        _: &str,
        _: &JsonMap,
        _: &JsonMap,
    ) -> Result<Option<JsonMap>, RunError> {
        self.pass("after_tool").await;
        Ok(None)
    }
    async fn on_tool_error(
        &self,
        _: &CallContext,
        _: &str,
        _: &JsonMap,
        _: &ToolError,
    ) -> Result<Option<JsonMap>, RunError> {
        self.pass("on_tool_error").await;
        Ok(None)
    }
}

#[async_trait]
impl Plugin for BlockingExtension {
    async fn on_user_message(&self, _: &CallContext, _: &Content) -> Result<Option<Content>, RunError> {
        self.pass("on_user_message").await;
        Ok(None)
    }
    async fn before_run(&self, _: &CallContext) -> Result<Option<Content>, RunError> {
        self.pass("before_run").await;
        Ok(None)
    }
    async fn on_event(&self, _: &CallContext, _: &Event) -> Result<Option<EventData>, RunError> {
        self.pass("on_event").await;
        Ok(None)
    }
    async fn after_run(&self, _: &CallContext) -> Result<(), RunError> {
        self.pass("after_run").await;
        Ok(())
    }
    async fn on_run_error(&self, _: &CallContext, _: &RunError) {
        self.pass("on_run_error").await;
    }
}

#[async_trait]
impl Model for BlockingExtension {
    async fn generate(&self, _: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        self.pass("model").await;
        self.entered.notify_one();
        Ok(futures::stream::pending().boxed())
    }
}

#[async_trait]
impl Tool for BlockingExtension {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }
    async fn prepare(&self, request: &mut LlmRequest, _: &CallContext) -> Result<(), RunError> {
        request.tools.push(self.declaration.clone());
        self.pass("prepare").await;
        Ok(())
    }
    async fn call(&self, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        self.pass("tool").await;
        let _ = cx.save_artifact("a", &Part::text("b")).await;
        Ok(json!(1))
    }
}

#[async_trait]
impl ExampleProvider for BlockingExtension {
    async fn examples(&self, _: &str, _: &CallContext) -> Result<Vec<Example>, RunError> {
        self.pass("examples").await;
        Ok(vec![])
    }
}

#[async_trait]
impl ArtifactService for BlockingExtension {
    async fn save(&self, _: &SessionKey, _: &str, _: &Part) -> Result<u64, StoreError> {
        self.pass("save").await;
        Ok(0)
    }
    async fn load(&self, _: &SessionKey, _: &str, _: Option<u64>) -> Result<Option<Part>, StoreError> {
        self.pass("load").await;
        Ok(None)
    }
    async fn list(&self, _: &SessionKey) -> Result<Vec<String>, StoreError> {
        Ok(vec![])
    }
    async fn versions(&self, _: &SessionKey, _: &str) -> Result<Vec<u64>, StoreError> {
        Ok(vec![])
    }
    async fn delete(&self, _: &SessionKey, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Cancels the run once it is stuck, and returns its error.
async fn end(app: &Harness, stuck: &BlockingExtension, message: Content) -> RunError {
    let request = app.request(message);
    let cancel = request.cancel.clone();
    let run = app.runner.run(app.app.clone(), request).await.unwrap();
    let mut ending = tokio::spawn(run.collect());
    tokio::select! {
        () = stuck.entered.notified() => cancel.cancel(),
        ended = &mut ending => panic!("the run has not come to `{}`: {ended:?}", stuck.at),
    }
    ending.await.unwrap().unwrap_err()
}

async fn assert_cancellable(app: Harness, stuck: &BlockingExtension) {
    let error = end(&app, stuck, Content::user("hi")).await;
    assert!(matches!(error, RunError::Cancelled), "{}: {error:?}", stuck.at);
    assert_eq!(app.session().await.events.last().unwrap().error_code.as_deref(), Some("CANCELLED"), "{}", stuck.at);
    assert_eq!(app.runner.active_runs(), 0);
}

/// An agent that calls `stuck` and then answers.
fn agent(change: impl FnOnce(&mut LlmAgent)) -> Agent {
    llm_with("root", Scripted::sequence([Reply::call("stuck", json!({})), Reply::text("ok")]), change)
}

#[tokio::test]
async fn a_run_is_cancelled_in_a_model_request_and_in_its_answer() {
    for at in ["model", "answer"] {
        let stuck = BlockingExtension::at(at);
        let model = Some(ModelRef::Object("stuck".into(), stuck.clone()));
        assert_cancellable(Harness::new(agent(|llm| llm.model = model)).await, &stuck).await;
    }
}

#[tokio::test]
async fn a_run_is_cancelled_in_a_tool() {
    for at in ["tool", "prepare"] {
        let stuck = BlockingExtension::at(at);
        let tool = stuck.clone();
        assert_cancellable(Harness::new(agent(|llm| llm.tools = vec![tool])).await, &stuck).await;
    }
}

#[tokio::test]
async fn a_run_is_cancelled_in_tools_that_run_at_the_same_time_and_in_parallel_agents() {
    let stuck = BlockingExtension::at("tool");
    let twice = Reply::call("stuck", json!({})).and_call("stuck", json!({}));
    let child = llm_with("child", Scripted::sequence([twice]), |llm| llm.tools = vec![stuck.clone()]);
    assert_cancellable(Harness::new(workflow("root", AgentKind::Parallel, vec![child])).await, &stuck).await;
}

#[tokio::test]
async fn a_run_is_cancelled_in_a_callback() {
    for at in ["before_agent", "before_model", "after_model", "before_tool", "after_tool", "after_agent"] {
        let stuck = BlockingExtension::at(at);
        let mut agent = agent(|llm| {
            llm.tools = vec![tool("stuck", |_, _| Ok(json!(1)))];
            llm.callbacks.push(HookPoint::BeforeModel, stuck.clone());
            llm.callbacks.push(HookPoint::AfterModel, stuck.clone());
            llm.callbacks.push(HookPoint::BeforeTool, stuck.clone());
            llm.callbacks.push(HookPoint::AfterTool, stuck.clone());
        });
        agent.callbacks.push(HookPoint::BeforeAgent, stuck.clone());
        agent.callbacks.push(HookPoint::AfterAgent, stuck.clone());
        assert_cancellable(Harness::new(agent).await, &stuck).await;
    }
}

async fn with_plugin(agent: Agent, stuck: &Arc<BlockingExtension>) -> Harness {
    let app = Harness::new(agent).await;
    let plugins = Plugins::new(vec![stuck.clone()]).unwrap();
    Harness { runner: Runner::with_plugins(app.runner.services().clone(), plugins), ..app }
}

#[tokio::test]
async fn a_run_is_cancelled_in_a_plugins_hook() {
    for at in ["on_user_message", "before_run", "on_event", "before_model", "after_run"] {
        let stuck = BlockingExtension::at(at);
        assert_cancellable(with_plugin(llm("root", Scripted::sequence(["ok"])), &stuck).await, &stuck).await;
    }
}

#[tokio::test]
async fn a_run_is_cancelled_in_a_hook_for_failures() {
    for at in ["on_tool_error", "on_model_error", "on_run_error"] {
        let stuck = BlockingExtension::at(at);
        let model = Scripted::sequence([Reply::call("broken", json!({})), Reply::status(500, "down")]);
        let broken = tool("broken", |_, _| Err(ToolError::Recoverable("broken".into())));
        let app = with_plugin(llm_with("root", model, |llm| llm.tools = vec![broken]), &stuck).await;
        let error = end(&app, &stuck, Content::user("hi")).await;
        let failed_before = at == "on_run_error";
        assert_eq!(error.code(), if failed_before { "MODEL_SERVER_ERROR" } else { "CANCELLED" });
    }
}

/// Returns the error of a run with a limit of its wall time.
async fn end_by_limit(mut app: Harness, stuck: &BlockingExtension) -> RunError {
    app.config.max_run_time = Duration::from_secs(7);
    let ended = tokio::time::timeout(Duration::from_secs(60), app.expect_error("hi")).await;
    let Ok((_, error)) = ended else { panic!("the run has not ended in `{}`", stuck.at) };
    assert_eq!(app.session().await.events.last().unwrap().error_code.as_deref(), Some(error.code()), "{}", stuck.at);
    assert_eq!(app.runner.active_runs(), 0);
    error
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_at_the_limit_of_its_wall_time_in_a_plugins_hook() {
    for at in ["on_user_message", "before_run", "on_event", "before_model", "after_run"] {
        let stuck = BlockingExtension::at(at);
        let app = with_plugin(llm("root", Scripted::sequence(["ok"])), &stuck).await;
        let error = end_by_limit(app, &stuck).await;
        assert!(matches!(error, RunError::Limit { limit: RunLimit::RunTime, .. }), "{at}: {error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_failed_ends_although_a_plugin_does_not_return_from_its_hook() {
    for at in ["on_run_error", "on_event"] {
        let stuck = BlockingExtension::at(at);
        let app = with_plugin(llm("root", Scripted::sequence([Reply::status(500, "down")])), &stuck).await;
        assert_eq!(end_by_limit(app, &stuck).await.code(), "MODEL_SERVER_ERROR", "{at}");
    }
}

/// Takes a second for each report of a failure, and counts those that it has seen whole.
#[derive(Default)]
struct SlowReports(AtomicUsize);

impl Callback for SlowReports {
    fn name(&self) -> &str {
        "slow"
    }
}

#[async_trait]
impl Plugin for SlowReports {
    async fn on_run_error(&self, _: &CallContext, _: &RunError) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    async fn on_event(&self, _: &CallContext, event: &Event) -> Result<Option<EventData>, RunError> {
        if event.error_code.is_some() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Ok(None)
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_does_not_return_leaves_the_others_time_for_the_report_of_a_failure() {
    let (stuck, slow) = (BlockingExtension::at("on_run_error"), Arc::new(SlowReports::default()));
    let app = Harness::new(llm("root", Scripted::sequence([Reply::status(500, "down")]))).await;
    let plugins = Plugins::new(vec![stuck.clone(), slow.clone()]).unwrap();
    let app = Harness { runner: Runner::with_plugins(app.runner.services().clone(), plugins), ..app };
    assert_eq!(end_by_limit(app, &stuck).await.code(), "MODEL_SERVER_ERROR");
    assert_eq!(slow.0.load(Ordering::SeqCst), 2, "of the error and of its event");
}

#[tokio::test]
async fn a_run_is_cancelled_in_an_artifact_service() {
    for at in ["save", "load"] {
        let stuck = BlockingExtension::at(at);
        let tool = BlockingExtension::at("nowhere");
        let agent = agent(|llm| {
            llm.tools = vec![tool];
            if at == "load" {
                llm.instruction = Instruction::Template("{artifact.note?}".into());
            }
        });
        let app = Harness::new(agent).await;
        let services = hatchery_core::Services { artifacts: stuck.clone(), ..app.runner.services().clone() };
        assert_cancellable(Harness { runner: Runner::new(services), ..app }, &stuck).await;
    }
}

#[tokio::test]
async fn a_run_is_cancelled_while_it_saves_the_users_files() {
    let stuck = BlockingExtension::at("save");
    let mut app = Harness::new(llm("root", Scripted::sequence(["ok"]))).await;
    app.config.save_input_blobs_as_artifacts = true;
    let services = hatchery_core::Services { artifacts: stuck.clone(), ..app.runner.services().clone() };
    let app = Harness { runner: Runner::new(services), ..app };
    let file = Content::new(
        "user",
        vec![PartData::InlineData(Blob { mime_type: "image/png".into(), ..Blob::default() }).into()],
    );
    assert!(matches!(end(&app, &stuck, file).await, RunError::Cancelled));
}

#[tokio::test]
async fn a_run_is_cancelled_while_examples_are_chosen() {
    let stuck = BlockingExtension::at("examples");
    let provider = stuck.clone();
    assert_cancellable(Harness::new(agent(|llm| llm.examples = Some(Examples::Chosen(provider)))).await, &stuck).await;
}
