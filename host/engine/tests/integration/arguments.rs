//! Validation of arguments against the declared schema.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentContext, AgentKind, CallContext, Callback, CustomAgent, CustomAgentSpec, FunctionDeclaration,
    HookPoint, JsonMap, RunError, Tool, ToolError,
};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use crate::logs::Warnings;
use crate::support::*;

/// Returns its arguments.
struct EchoTool(Arc<FunctionDeclaration>);

fn echo(parameters: Value) -> Arc<dyn Tool> {
    let declaration =
        FunctionDeclaration { name: "echo".into(), parameters: Some(parameters), ..FunctionDeclaration::default() };
    Arc::new(EchoTool(Arc::new(declaration)))
}

fn sides() -> Value {
    json!({"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]})
}

#[async_trait]
impl Tool for EchoTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }
    async fn call(&self, args: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        Ok(Value::Object(args))
    }
}

/// Returns the response to a model that calls the tool with these arguments.
async fn answer(parameters: Value, args: Value, callbacks: impl FnOnce(&mut hatchery_core::LlmAgent)) -> String {
    let model = Scripted::sequence([Reply::call("echo", args), Reply::text("ok")]);
    let agent = llm_with("root", model, |llm| {
        llm.tools = vec![echo(parameters)];
        callbacks(llm);
    });
    Harness::new(agent).await.transcript("hi").await.swap_remove(1)
}

#[tokio::test]
async fn invalid_arguments_are_an_error_for_the_model_and_the_tool_does_not_run() {
    assert_eq!(
        answer(sides(), json!({"sides": "six"}), |_| {}).await,
        "root: answer echo{\"error\":\"the arguments do not match the parameters of `echo`, which has not run: at `/sides`: \
         \\\"six\\\" is not of type \\\"integer\\\"\"}"
    );
}

#[tokio::test]
async fn integers_may_be_written_as_floats() {
    assert_eq!(answer(sides(), json!({"sides": 6.0}), |_| {}).await, "root: answer echo{\"sides\":6.0}");
}

#[tokio::test]
async fn parameters_in_geminis_dialect_are_supported() {
    let parameters = json!({"type": "OBJECT", "properties": {"sides": {"type": "INTEGER"}}});
    assert_eq!(answer(parameters.clone(), json!({"sides": 6}), |_| {}).await, "root: answer echo{\"sides\":6}");
    assert!(answer(parameters, json!({"sides": "six"}), |_| {}).await.contains("is not of type"));
}

#[tokio::test]
async fn a_before_tool_callback_may_correct_arguments() {
    let parameters = json!({"type": "object", "required": ["mark"]});
    let mends = FixedCallback { name: "mends", mark: Some("m"), ..FixedCallback::default() };
    let answer = answer(parameters, json!({}), |llm| llm.callbacks.push(HookPoint::BeforeTool, mends.arc())).await;
    assert_eq!(answer, "root: answer echo{\"mark\":\"m\"}");
}

/// Records the errors of tools.
#[derive(Default)]
struct ErrorRecorder(Mutex<Vec<String>>);

#[async_trait]
impl Callback for ErrorRecorder {
    fn name(&self) -> &str {
        "errors"
    }
    async fn on_tool_error(
        &self,
        _: &CallContext,
        _: &str,
        _: &JsonMap,
        error: &ToolError,
    ) -> Result<Option<JsonMap>, RunError> {
        self.0.lock().unwrap().push(error.to_string());
        Ok(Some(map(json!({"mended": true}))))
    }
}

#[tokio::test]
async fn an_on_tool_error_callback_gets_the_validation_error() {
    let errors = Arc::new(ErrorRecorder::default());
    let recorded = errors.clone();
    let answer = answer(sides(), json!({}), |llm| llm.callbacks.push(HookPoint::OnToolError, recorded)).await;
    assert_eq!(answer, "root: answer echo{\"mended\":true}");
    assert!(errors.0.lock().unwrap()[0].ends_with("\"sides\" is a required property"));
}

#[tokio::test]
async fn a_tool_with_an_invalid_schema_is_not_called() {
    let warnings = Warnings::capture();
    let parameters = json!({"properties": {"x": {"type": "nonsense"}}});
    let transcript = answer(parameters, json!({"x": 1}), |_| {}).await;
    let start = "root: answer echo{\"error\":\"`echo` cannot be called, since the JSON Schema of its parameters is invalid, which only its author \
                 can fix: at `/properties/x/type`: ";
    assert!(transcript.starts_with(start), "{transcript}");
    let lines = warnings.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("tool `echo` cannot be called: the JSON Schema of its parameters is invalid: "));
}

/// Calls its tool with invalid arguments.
struct CallingAgent;

#[async_trait]
impl CustomAgent for CallingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let answer = cx.call.host()?.call_tool(&cx.call, "echo", map(json!({"sides": "six"}))).await;
        cx.say(answer.unwrap_err().to_string()).await.map(|_| ())
    }
}

#[tokio::test]
async fn arguments_from_code_are_validated_too() {
    let custom = CustomAgentSpec { code: Arc::new(CallingAgent), model: None, tools: vec![echo(sides())] };
    let transcript = Harness::new(Agent::new("root", "", AgentKind::Custom(custom))).await.transcript("hi").await;
    assert!(transcript[0].ends_with("at `/sides`: \"six\" is not of type \"integer\""), "{transcript:?}");
}
