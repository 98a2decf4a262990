//! Code execution: finding code in a response, running it, and sending its result to the model.

mod closing;
mod prompts;
mod running;
mod session;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    Agent, AgentKind, CallContext, Callback, CodeExecution, CodeExecutor, CodeInput, CodeOutput, CodeRunner, Content,
    Delimiters, Event, HookPoint, LlmResponse, Part, PartData, RunError, ToolError,
};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

type Body = dyn Fn(&CodeInput, &CallContext) -> Result<CodeOutput, ToolError> + Send + Sync;

/// Runs code by calling a closure, and records its inputs.
struct Executor {
    inputs: Mutex<Vec<CodeInput>>,
    body: Box<Body>,
}

#[async_trait]
impl CodeExecutor for Executor {
    fn name(&self) -> &str {
        "executor"
    }

    async fn execute(&self, input: CodeInput, cx: &CallContext) -> Result<CodeOutput, ToolError> {
        let output = (self.body)(&input, cx);
        self.inputs.lock().unwrap().push(input);
        output
    }
}

impl Executor {
    fn new(
        body: impl Fn(&CodeInput, &CallContext) -> Result<CodeOutput, ToolError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { inputs: Mutex::default(), body: Box::new(body) })
    }

    /// Creates an executor that fails for `fail`, and otherwise prints `ran: ` and the code.
    fn simple() -> Arc<Self> {
        Self::new(|input, _| {
            Ok(match input.code.as_str() {
                "fail" => CodeOutput { stderr: "it failed".into(), ..CodeOutput::default() },
                code => printed(&format!("ran: {code}\n")),
            })
        })
    }

    fn codes(&self) -> Vec<String> {
        self.inputs.lock().unwrap().iter().map(|input| input.code.clone()).collect()
    }

    fn ids(&self) -> Vec<Option<String>> {
        self.inputs.lock().unwrap().iter().map(|input| input.execution_id.clone()).collect()
    }
}

fn printed(text: &str) -> CodeOutput {
    CodeOutput { stdout: text.into(), ..CodeOutput::default() }
}

fn coder(model: &Arc<Scripted>, executor: &Arc<Executor>) -> Agent {
    coder_with(model, executor, |_| {})
}

fn coder_with(model: &Arc<Scripted>, executor: &Arc<Executor>, change: impl FnOnce(&mut CodeRunner)) -> Agent {
    let mut runner = CodeRunner::new(executor.clone());
    change(&mut runner);
    llm_on("root", model, |llm| llm.code_execution = Some(CodeExecution::Host(Box::new(runner))))
}

fn sequence<const N: usize>(replies: [&str; N]) -> Arc<Scripted> {
    Arc::new(Scripted::sequence(replies))
}

/// Formats a content in one line: its texts, `<code>` and `[outcome: output]`.
fn show(content: &Content) -> String {
    let show = |part: &Part| match &part.data {
        PartData::Text(text) => text.clone(),
        PartData::ExecutableCode(code) => format!("<{}>", code.code),
        PartData::CodeExecutionResult(result) => {
            let (outcome, output) = (result.outcome.as_deref(), result.output.as_deref());
            format!("[{}: {}]", outcome.unwrap_or_default(), output.unwrap_or_default())
        }
        other => format!("{other:?}"),
    };
    content.parts.iter().map(show).collect::<Vec<_>>().join("|")
}

/// Runs a turn. Returns its complete events, one line each.
async fn run_lines(app: &Harness, text: &str) -> Vec<String> {
    let events = app.run(text).await;
    events.iter().filter(|event| !event.partial).map(|event| format_event(event)).collect()
}

fn format_event(event: &Event) -> String {
    event.content.as_deref().map(show).unwrap_or_default()
}

/// Returns the contents of a request, one line each.
fn prompt(model: &Scripted, call: usize) -> Vec<String> {
    let line = |content: &Arc<Content>| format!("{}: {}", content.role.as_deref().unwrap_or("-"), show(content));
    model.requests()[call].contents.iter().map(line).collect()
}

const CODE: &str = "Let me see.\n```python\na\n```\nThat gives 7.";

#[tokio::test]
async fn the_first_block_runs_and_its_result_is_sent_to_the_model() {
    for block in ["```python\na\n```", "```tool_code\na\n```"] {
        let model = sequence([&format!("Let me see.\n{block}\nThat gives 7.\n{block}"), "done"]);
        let executor = Executor::simple();
        let app = Harness::new(coder(&model, &executor)).await;
        let events = app.run("hi").await;
        let lines: Vec<_> = events.iter().map(|event| format_event(event)).collect();
        assert_eq!(lines, ["Let me see.\n|<a>", "[OUTCOME_OK: ran: a]", "done"]);
        let parts = serde_json::to_value(&events[0].content.as_ref().unwrap().parts).unwrap();
        assert_eq!(parts[1], json!({"executableCode": {"language": "PYTHON", "code": "a"}}));
        assert_eq!(events[1].author, "root");
        assert_eq!(executor.codes(), ["a"]);
        assert_eq!(
            prompt(&model, 1),
            ["user: hi", "model: Let me see.\n|```tool_code\na\n```", "user: ```tool_output\nran: a\n```"]
        );
    }
}

#[tokio::test]
async fn delimiters_can_be_configured() {
    let model = sequence(["<run>a</run>", "done"]);
    let agent = coder_with(&model, &Executor::simple(), |runner| {
        runner.code_delimiters = vec![Delimiters::new("<run>", "</run>")];
        runner.result_delimiters = Delimiters::new("<out>", "</out>");
    });
    run_lines(&Harness::new(agent).await, "hi").await;
    assert_eq!(prompt(&model, 1), ["user: hi", "model: <run>a</run>", "user: <out>ran: a</out>"]);
}

#[tokio::test]
async fn an_unclosed_block_is_text() {
    let (model, executor) = (sequence(["```python\na"]), Executor::simple());
    let app = Harness::new(coder(&model, &executor)).await;
    assert_eq!(run_lines(&app, "hi").await, ["```python\na"]);
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn without_an_executor_code_is_text() {
    let app = Harness::new(llm_on("root", &sequence([CODE]), |_| {})).await;
    assert_eq!(run_lines(&app, "hi").await, [CODE]);
}

#[tokio::test]
async fn thoughts_are_not_run() {
    let model = Scripted::sequence([Reply::new().and_thought("```python\na\n```").and_text("so")]);
    let executor = Executor::simple();
    let app = Harness::new(coder(&Arc::new(model), &executor)).await;
    assert_eq!(run_lines(&app, "hi").await, ["```python\na\n```|so"]);
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn tools_take_precedence_over_code_in_one_response() {
    let model = Arc::new(Scripted::sequence([Reply::text(CODE).and_call("t", json!({})), Reply::text("done")]));
    let executor = Executor::simple();
    let mut agent = coder(&model, &executor);
    if let AgentKind::Llm(llm) = &mut agent.kind {
        llm.tools = vec![tool("t", |_, _| Ok(json!(1)))];
    }
    let events = Harness::new(agent).await.transcript("hi").await;
    assert_eq!(events, [format!("root: {CODE}; call t{{}}").as_str(), "root: answer t{\"result\":1}", "root: done"]);
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn code_in_a_truncated_response_does_not_run() {
    let model = Arc::new(Scripted::sequence([Reply::text(CODE).finish("MAX_TOKENS")]));
    let executor = Executor::simple();
    let app = Harness::new(coder(&model, &executor)).await;
    assert_eq!(run_lines(&app, "hi").await, [CODE]);
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn partial_responses_are_unchanged_and_the_complete_one_ends_with_the_code() {
    let chunks = Reply::chunks(["See: ```pyt", "hon\na\n``", "` and so on"]);
    let model = Arc::new(Scripted::sequence([chunks, Reply::text("done")]));
    let app = Harness::new(coder(&model, &Executor::simple())).await.streaming();
    let events = app.run("hi").await;
    let lines: Vec<_> = events.iter().map(|event| (event.partial, format_event(event))).collect();
    let lines: Vec<_> = lines.iter().map(|(partial, text)| (*partial, text.as_str())).collect();
    assert_eq!(
        lines,
        [
            (true, "See: ```pyt"),
            (true, "hon\na\n``"),
            (true, "` and so on"),
            (false, "See: |<a>"),
            (false, "[OUTCOME_OK: ran: a]"),
            (true, "done"),
            (false, "done")
        ]
    );
    assert_eq!(events[0].id, events[3].id);
}

/// Records the responses of the model.
#[derive(Default)]
struct ListeningCallback(Mutex<Vec<String>>);

#[async_trait]
impl Callback for ListeningCallback {
    fn name(&self) -> &str {
        "listens"
    }

    async fn after_model(&self, _: &CallContext, response: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        self.0.lock().unwrap().push(response.content.as_ref().map(show).unwrap_or_default());
        Ok(None)
    }
}

#[tokio::test]
async fn callbacks_get_the_unchanged_response_of_the_model() {
    let received = Arc::new(ListeningCallback::default());
    let mut agent = coder(&sequence([CODE, "done"]), &Executor::simple());
    if let AgentKind::Llm(llm) = &mut agent.kind {
        llm.callbacks.push(HookPoint::AfterModel, received.clone());
    }
    run_lines(&Harness::new(agent).await, "hi").await;
    assert_eq!(*received.0.lock().unwrap(), [CODE, "done"]);
}

#[tokio::test]
async fn only_the_final_answer_is_saved_under_the_output_key() {
    let mut agent = coder(&sequence([CODE, "7"]), &Executor::simple());
    if let AgentKind::Llm(llm) = &mut agent.kind {
        llm.output_key = Some("answer".into());
    }
    let app = Harness::new(agent).await;
    let events = app.run("hi").await;
    assert_eq!(events[0].actions.state_delta, map(json!({})));
    assert_eq!(app.state().await["answer"], json!("7"));
}
