//! Code that a model writes: found, run by the host, and shown to the model with its result.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::content::{CodeExecutionResult, ExecutableCode};
use hatchery_core::{
    Agent, AgentKind, Blob, CallContext, CodeExecution, CodeExecutor, CodeFile, CodeInput, CodeOutput, CodeRunner,
    Content, Event, ModelRef, Part, PartData, RunError, SessionKey, ToolError,
};
use hatchery_engine::builtin::{self, AgentTool};
use hatchery_engine::{App, RunRequest};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::*;

type Body = dyn Fn(&CodeInput, &CallContext) -> Result<CodeOutput, ToolError> + Send + Sync;

/// Runs code by calling a closure, and keeps what it was given.
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

    /// `fail` fails, anything else prints `ran: ` and itself.
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

/// A content in a line: its texts, `<code>` and `[outcome: output]`.
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

/// The whole events in a line each.
async fn talk(app: &Harness, text: &str) -> Vec<String> {
    let events = app.say(text).await;
    events.iter().filter(|event| !event.partial).map(|event| shown(event)).collect()
}

fn shown(event: &Event) -> String {
    event.content.as_deref().map(show).unwrap_or_default()
}

/// What a model was sent, a content in a line.
fn prompt(model: &Scripted, call: usize) -> Vec<String> {
    let line = |content: &Arc<Content>| format!("{}: {}", content.role.as_deref().unwrap_or("-"), show(content));
    model.requests()[call].contents.iter().map(line).collect()
}

const CODE: &str = "Let me see.\n```python\na\n```\nThat gives 7.";

#[tokio::test]
async fn the_first_block_runs_and_its_result_is_shown_to_the_model() {
    for block in ["```python\na\n```", "```tool_code\na\n```"] {
        let model = sequence([&format!("Let me see.\n{block}\nThat gives 7.\n{block}"), "done"]);
        let executor = Executor::simple();
        let app = Harness::new(coder(&model, &executor)).await;
        let events = app.say("hi").await;
        let said: Vec<_> = events.iter().map(|event| shown(event)).collect();
        assert_eq!(said, ["Let me see.\n|<a>", "[OUTCOME_OK: ran: a]", "done"]);
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
async fn delimiters_can_be_chosen() {
    let model = sequence(["<run>a</run>", "done"]);
    let pair = |open: &str, close: &str| (open.to_owned(), close.to_owned());
    let agent = coder_with(&model, &Executor::simple(), |runner| {
        runner.code_delimiters = vec![pair("<run>", "</run>")];
        runner.result_delimiters = pair("<out>", "</out>");
    });
    talk(&Harness::new(agent).await, "hi").await;
    assert_eq!(prompt(&model, 1), ["user: hi", "model: <run>a</run>", "user: <out>ran: a</out>"]);
}

#[tokio::test]
async fn what_is_not_closed_is_text() {
    let (model, executor) = (sequence(["```python\na"]), Executor::simple());
    let app = Harness::new(coder(&model, &executor)).await;
    assert_eq!(talk(&app, "hi").await, ["```python\na"]);
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn without_an_executor_code_is_text() {
    let app = Harness::new(llm_on("root", &sequence([CODE]), |_| {})).await;
    assert_eq!(talk(&app, "hi").await, [CODE]);
}

#[tokio::test]
async fn thoughts_are_not_run() {
    let model = Scripted::sequence([Reply::new().and_thought("```python\na\n```").and_text("so")]);
    let executor = Executor::simple();
    let app = Harness::new(coder(&Arc::new(model), &executor)).await;
    assert_eq!(talk(&app, "hi").await, ["```python\na\n```|so"]);
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn tools_win_over_code_in_one_answer() {
    let model = Arc::new(Scripted::sequence([Reply::text(CODE).and_call("t", json!({})), Reply::text("done")]));
    let executor = Executor::simple();
    let mut agent = coder(&model, &executor);
    if let AgentKind::Llm(llm) = &mut agent.kind {
        llm.tools = vec![tool("t", |_, _| Ok(json!(1)))];
    }
    let events = Harness::new(agent).await.talk("hi").await;
    assert_eq!(events, [format!("root: {CODE}; call t{{}}").as_str(), "root: answer t{\"result\":1}", "root: done"]);
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn an_answer_that_was_cut_off_is_not_run() {
    let model = Arc::new(Scripted::sequence([Reply::text(CODE).finish("MAX_TOKENS")]));
    let executor = Executor::simple();
    let app = Harness::new(coder(&model, &executor)).await;
    assert_eq!(talk(&app, "hi").await, [CODE]);
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn pieces_come_as_they_are_and_the_whole_ends_in_the_code() {
    let chunks = Reply::chunks(["See: ```pyt", "hon\na\n``", "` and so on"]);
    let model = Arc::new(Scripted::sequence([chunks, Reply::text("done")]));
    let app = Harness::new(coder(&model, &Executor::simple())).await.streaming();
    let events = app.say("hi").await;
    let said: Vec<_> = events.iter().map(|event| (event.partial, shown(event))).collect();
    let said: Vec<_> = said.iter().map(|(partial, text)| (*partial, text.as_str())).collect();
    assert_eq!(
        said,
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

/// Keeps what the model has answered.
#[derive(Default)]
struct Listens(Mutex<Vec<String>>);

#[async_trait]
impl hatchery_core::Callback for Listens {
    fn name(&self) -> &str {
        "listens"
    }

    async fn after_model(
        &self,
        _: &CallContext,
        response: &hatchery_core::LlmResponse,
    ) -> Result<Option<hatchery_core::LlmResponse>, RunError> {
        self.0.lock().unwrap().push(response.content.as_ref().map(show).unwrap_or_default());
        Ok(None)
    }
}

#[tokio::test]
async fn callbacks_see_the_answer_as_the_model_gave_it() {
    let heard = Arc::new(Listens::default());
    let mut agent = coder(&sequence([CODE, "done"]), &Executor::simple());
    if let AgentKind::Llm(llm) = &mut agent.kind {
        llm.after_model = vec![heard.clone()];
    }
    talk(&Harness::new(agent).await, "hi").await;
    assert_eq!(*heard.0.lock().unwrap(), [CODE, "done"]);
}

#[tokio::test]
async fn only_the_answer_goes_to_the_output_key() {
    let mut agent = coder(&sequence([CODE, "7"]), &Executor::simple());
    if let AgentKind::Llm(llm) = &mut agent.kind {
        llm.output_key = Some("answer".into());
    }
    let app = Harness::new(agent).await;
    let events = app.say("hi").await;
    assert_eq!(events[0].actions.state_delta, map(json!({})));
    assert_eq!(app.state().await["answer"], json!("7"));
}

const FAIL: &str = "```python\nfail\n```";

#[tokio::test]
async fn code_that_fails_may_be_mended_and_ends_the_run_when_it_keeps_failing() {
    let model = sequence([FAIL, FAIL, FAIL, "never"]);
    let app = Harness::new(coder(&model, &Executor::simple())).await;
    let events = app.say("hi").await;
    let said: Vec<_> = events.iter().map(|event| shown(event)).collect();
    let failed = "[OUTCOME_FAILED: it failed]";
    assert_eq!(said, ["<fail>", failed, "<fail>", failed, "<fail>", failed]);
    assert_eq!(prompt(&model, 1).last().unwrap(), "user: ```tool_output\nit failed\n```");
    assert_eq!(events[3].error_code, None);
    assert_eq!(events[5].error_code.as_deref(), Some("CODE_FAILED"));
    assert_eq!(
        events[5].error_message.as_deref(),
        Some(
            "the code of agent `root` has failed 3 times in a row; raise `error_retries` to let its model try more often"
        )
    );
}

#[tokio::test]
async fn without_retries_the_first_failure_ends_the_run() {
    let agent = coder_with(&sequence([FAIL, "never"]), &Executor::simple(), |runner| runner.error_retries = 0);
    let events = Harness::new(agent).await.say("hi").await;
    let message = events.last().unwrap().error_message.as_deref().unwrap_or_default();
    assert!(message.starts_with("the code of agent `root` has failed once; raise `error_retries`"), "{message}");
}

#[tokio::test]
async fn failures_are_counted_in_a_row_and_in_one_run() {
    let ok = "```python\nok\n```";
    let model = sequence([FAIL, ok, FAIL, "one", FAIL, "two"]);
    let agent = coder_with(&model, &Executor::simple(), |runner| runner.error_retries = 1);
    let app = Harness::new(agent).await;
    assert_eq!(talk(&app, "hi").await.last().unwrap(), "one");
    let first = app.session().await.events.last().unwrap().invocation_id.clone();
    assert_eq!(app.state().await["_code_executor_error_counts"], json!({ first: 1 }));
    assert_eq!(talk(&app, "again").await.last().unwrap(), "two");
    let second = app.session().await.events.last().unwrap().invocation_id.clone();
    assert_eq!(app.state().await["_code_executor_error_counts"], json!({ second: 1 }), "earlier runs are forgotten");
}

#[tokio::test]
async fn an_executor_that_cannot_run_code_counts_as_failed_code_or_ends_the_run() {
    let executor = Executor::new(|input, _| match input.code.as_str() {
        "a" => Err(ToolError::Model("no network".into())),
        _ => Err(ToolError::Fatal { tool: "executor".into(), code: "GONE".into(), message: "out of order".into() }),
    });
    let app = Harness::new(coder(&sequence([CODE, "```python\nb\n```"]), &executor)).await;
    let (events, error) = app.fail("hi").await;
    assert_eq!(error.code(), "GONE");
    assert_eq!(events.last().unwrap(), "root: error GONE: tool `executor`: out of order");
    let stored = app.session().await.events;
    assert_eq!(shown(&stored[2]), "[OUTCOME_FAILED: no network]");
}

#[tokio::test]
async fn an_agent_that_gave_up_on_its_code_fails_as_a_tool() {
    let inner = coder_with(&sequence([FAIL]), &Executor::simple(), |runner| runner.error_retries = 0);
    let inner = Agent { name: "inner".into(), ..inner };
    let model = Arc::new(Scripted::sequence([Reply::call("inner", json!({"request": "go"})), Reply::text("sorry")]));
    let outer = llm_on("root", &model, |llm| llm.tools = vec![Arc::new(AgentTool::new(inner, false).unwrap())]);
    let events = Harness::new(outer).await.talk("hi").await;
    let failure = "agent `inner` failed: the code of agent `inner` has failed once";
    assert!(events[1].contains(failure), "{events:?}");
}

fn file(name: &str, content: &'static str) -> CodeFile {
    CodeFile { name: name.into(), content: content.into(), mime_type: String::new() }
}

#[tokio::test]
async fn files_that_code_writes_become_artifacts() {
    let executor = Executor::new(|_, cx| {
        cx.set_state("runs", json!(1));
        let picture = CodeFile { mime_type: "image/png".into(), ..file("pic.png", "png") };
        Ok(CodeOutput { output_files: vec![picture, file("../x", ""), file("a.txt", "hi")], ..printed("ok\n") })
    });
    let app = Harness::new(coder(&sequence([CODE, "done"]), &executor)).await;
    let events = app.say("hi").await;
    assert_eq!(
        shown(&events[1]),
        "[OUTCOME_OK: ok\nSaved artifact: `pic.png`\nFile not saved: invalid name `../x`: the name of an artifact cannot have `..` \
         between its slashes\nSaved artifact: `a.txt`]"
    );
    assert_eq!(serde_json::to_value(&events[1].actions.artifact_delta).unwrap(), json!({"a.txt": 0, "pic.png": 0}));
    assert_eq!(events[1].actions.state_delta["runs"], json!(1));
    let artifacts = &app.runner.services().artifacts;
    let key = app.session().await.key;
    let text = artifacts.load(&key, "a.txt", None).await.unwrap().unwrap();
    let blob = Blob { mime_type: "text/plain".into(), data: "hi".into(), display_name: None };
    assert_eq!(text.data, PartData::InlineData(blob));
}

fn with_csv(text: &str, csv: &'static str) -> Content {
    let blob = Blob { mime_type: "text/csv".into(), data: csv.into(), display_name: None };
    Content::new("user", vec![Part::text(text), PartData::InlineData(blob).into()])
}

async fn send(app: &Harness, message: Content) -> Vec<Arc<Event>> {
    app.runner.run(app.app.clone(), app.request(message)).await.unwrap().collect().await.unwrap()
}

#[tokio::test]
async fn data_files_reach_the_code_and_stay_out_of_the_prompt() {
    let (model, executor) = (sequence([CODE, "one", CODE, "two"]), Executor::simple());
    let app = Harness::new(coder_with(&model, &executor, |runner| runner.optimize_data_file = true)).await;
    send(&app, with_csv("sum it", "a,b\n1,2\n3,4\n")).await;
    let first = "user: sum it|Available file: `data_1_2.csv`\nHeader line: a,b\nRows after it: 2";
    assert_eq!(prompt(&model, 0), [first]);
    send(&app, with_csv("and this", "c\n5\n")).await;
    let prompt = prompt(&model, 3);
    assert_eq!(prompt[0], first, "a file keeps its name");
    assert_eq!(prompt[4], "user: and this|Available file: `data_5_2.csv`\nHeader line: c\nRows after it: 1");
    let inputs = executor.inputs.lock().unwrap();
    let files = |run: usize| inputs[run].input_files.iter().map(|file| (file.name.clone(), file.content.clone()));
    let (one, two) = (("data_1_2.csv".into(), "a,b\n1,2\n3,4\n".into()), ("data_5_2.csv".into(), "c\n5\n".into()));
    assert_eq!(files(0).collect::<Vec<_>>(), [one.clone()]);
    assert_eq!(files(1).collect::<Vec<_>>(), [one, two], "every execution finds all files");
    assert_eq!(inputs[0].input_files[0].mime_type, "text/csv");
    drop(inputs);
    let state = app.state().await;
    assert_eq!(state["_code_execution_context"], json!({"processed_input_files": ["data_1_2.csv", "data_5_2.csv"]}));
    assert_eq!(
        state["_code_executor_input_files"],
        json!([
            {"name": "data_1_2.csv", "mime_type": "text/csv", "size": 12},
            {"name": "data_5_2.csv", "mime_type": "text/csv", "size": 4}
        ])
    );
}

#[tokio::test]
async fn a_known_file_is_recorded_once() {
    let (model, executor) = (sequence(["one", "two"]), Executor::simple());
    let app = Harness::new(coder_with(&model, &executor, |runner| runner.optimize_data_file = true)).await;
    let first = send(&app, with_csv("look", "a\n")).await;
    assert!(first[0].actions.state_delta.contains_key("_code_executor_input_files"));
    let second = send(&app, Content::user("again")).await;
    assert_eq!(second[0].actions.state_delta, map(json!({})));
}

#[tokio::test]
async fn of_many_files_the_newest_are_recorded_and_all_are_handed_over() {
    let (model, executor) = (sequence([CODE, "done"]), Executor::simple());
    let app = Harness::new(coder_with(&model, &executor, |runner| runner.optimize_data_file = true)).await;
    let csv = with_csv("", "a\n").parts.remove(1);
    send(&app, Content::new("user", vec![csv; 66])).await;
    let names = app.state().await["_code_execution_context"]["processed_input_files"].clone();
    assert_eq!(names.as_array().unwrap().len(), 64);
    assert_eq!((&names[0], &names[63]), (&json!("data_1_3.csv"), &json!("data_1_66.csv")));
    assert_eq!(executor.inputs.lock().unwrap()[0].input_files.len(), 66);
}

#[tokio::test]
async fn data_files_stay_in_the_prompt_unless_wanted_otherwise() {
    let (model, executor) = (sequence(["one"]), Executor::simple());
    let app = Harness::new(coder(&model, &executor)).await;
    send(&app, with_csv("look", "a\n")).await;
    assert!(matches!(model.requests()[0].contents[0].parts[1].data, PartData::InlineData(_)));
    assert_eq!(app.state().await, json!({}));
}

#[tokio::test]
async fn code_of_one_session_has_one_place_of_its_own() {
    let (model, executor) = (sequence([CODE, CODE, "one", CODE, "two", CODE, "three"]), Executor::simple());
    let app = Harness::new(coder_with(&model, &executor, |runner| runner.stateful = true)).await;
    talk(&app, "hi").await;
    talk(&app, "again").await;
    let mut request = RunRequest::new(USER, "other", Content::user("hi"));
    request.config.auto_create_session = true;
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    let ids = executor.ids();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2]);
    assert!(ids[0].is_some() && ids[3].is_some() && ids[0] != ids[3], "{ids:?}");
    let state = app.state().await;
    assert_eq!(state["_code_execution_context"]["execution_session_id"], json!(ids[0]));
    let asks = &app.session().await.events[1];
    assert!(asks.actions.state_delta.contains_key("_code_execution_context"), "known before the code runs");
}

#[tokio::test]
async fn code_without_a_place_has_no_id() {
    let executor = Executor::simple();
    let app = Harness::new(coder(&sequence([CODE, "done"]), &executor)).await;
    talk(&app, "hi").await;
    assert_eq!(executor.ids(), [None]);
    assert_eq!(app.state().await.get("_code_execution_context"), None);
}

#[tokio::test]
async fn state_remembers_the_newest_results_of_the_run_in_short() {
    let long = "x".repeat(5000);
    let executor = Executor::new(move |input, _| Ok(printed(&format!("{}{long}", input.code))));
    let codes = ["1", "2", "3", "4"].map(|code| format!("```python\n{code}\n```"));
    let model = Scripted::sequence(codes.into_iter().chain(["done".into(), CODE.into(), "done".into()]));
    let app = Harness::new(coder(&Arc::new(model), &executor)).await;
    talk(&app, "hi").await;
    let results = &app.state().await["_code_execution_results"];
    let results = results.as_object().unwrap().values().next().unwrap().as_array().unwrap().clone();
    assert_eq!(results.iter().map(|result| result["code"].clone()).collect::<Vec<_>>(), ["2", "3", "4"]);
    assert_eq!(results[0]["result_stdout"].as_str().unwrap().len(), 1024);
    assert_eq!(results[0]["result_stderr"], json!(""));
    assert!(results[0]["timestamp"].is_f64());
    talk(&app, "again").await;
    let results = &app.state().await["_code_execution_results"];
    assert_eq!(results.as_object().unwrap().len(), 1, "earlier runs are forgotten");
}

#[tokio::test]
async fn state_that_a_client_has_spoilt_does_no_harm() {
    let executor = Executor::simple();
    let spoilt = json!({
        "_code_execution_context": 1, "_code_executor_input_files": {}, "_code_executor_error_counts": [], "_code_execution_results": "x"
    });
    let agent = coder_with(&sequence([CODE, "done"]), &executor, |runner| runner.stateful = true);
    assert_eq!(talk(&Harness::with_state(agent, spoilt).await, "hi").await.last().unwrap(), "done");
    assert!(executor.ids()[0].is_some());
}

#[tokio::test]
async fn a_long_output_is_cut_and_says_so() {
    let executor = Executor::new(|_, _| Ok(printed(&"é".repeat(40_000))));
    let app = Harness::new(coder(&sequence([CODE, "done"]), &executor)).await;
    let result = talk(&app, "hi").await.remove(1);
    let kept = "é".repeat(32 * 1024);
    assert_eq!(result, format!("[OUTCOME_OK: {kept}\n(cut: these are the first 65536 bytes of 80000)]"));
}

/// A model that runs code itself: code and result side by side.
fn own_code() -> Reply {
    let code = ExecutableCode { code: "b".into(), ..ExecutableCode::default() };
    let result = CodeExecutionResult {
        outcome: Some("OUTCOME_OK".into()),
        output: Some("2".into()),
        ..CodeExecutionResult::default()
    };
    Reply::text("See")
        .and_part(PartData::ExecutableCode(code).into())
        .and_part(PartData::CodeExecutionResult(result).into())
        .and_text("so 2")
}

#[tokio::test]
async fn code_that_a_model_ran_itself_is_left_alone() {
    let (model, executor) = (Arc::new(Scripted::sequence([own_code(), Reply::text("bye")])), Executor::simple());
    let app = Harness::new(coder(&model, &executor)).await;
    assert_eq!(talk(&app, "hi").await, ["See|<b>|[OUTCOME_OK: 2]|so 2"]);
    talk(&app, "and?").await;
    assert_eq!(prompt(&model, 1)[1], "model: See|<b>|[OUTCOME_OK: 2]|so 2");
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn code_that_a_model_sends_and_does_not_run_is_text() {
    let code = ExecutableCode { code: "b".into(), ..ExecutableCode::default() };
    let reply = Reply::new().and_part(PartData::ExecutableCode(code).into());
    let executor = Executor::simple();
    let app = Harness::new(coder(&Arc::new(Scripted::sequence([reply])), &executor)).await;
    assert_eq!(talk(&app, "hi").await, ["```tool_code\nb\n```"]);
    assert!(executor.codes().is_empty());
}

#[tokio::test]
async fn other_agents_see_code_and_results_as_they_are() {
    let model = sequence(["fine"]);
    let other = llm_on("other", &model, |_| {});
    let root = coder(&sequence([CODE, "done"]), &Executor::simple());
    let root = workflow("both", AgentKind::Sequential, vec![root, other]);
    talk(&Harness::new(root).await, "hi").await;
    assert_eq!(
        prompt(&model, 0),
        [
            "user: hi",
            "user: For context:|[root] said: Let me see.\n|<a>",
            "user: For context:|[OUTCOME_OK: ran: a]",
            "user: For context:|[root] said: done"
        ]
    );
}

#[tokio::test]
async fn another_agent_whose_code_is_run_reads_them_as_text() {
    let (model, executor) = (sequence(["fine"]), Executor::simple());
    let other = Agent { name: "other".into(), ..coder(&model, &executor) };
    let root = workflow("both", AgentKind::Sequential, vec![coder(&sequence([CODE, "done"]), &executor), other]);
    talk(&Harness::new(root).await, "hi").await;
    let prompt = prompt(&model, 0);
    assert_eq!(prompt[1], "user: For context:|[root] said: Let me see.\n|```tool_code\na\n```");
    assert_eq!(prompt[2], "user: For context:|```tool_output\nran: a\n```");
}

#[tokio::test]
async fn a_changed_wording_holds_for_the_whole_history() {
    let (model, executor) = (sequence([CODE, "one", "two", "three"]), Executor::simple());
    let mut app = Harness::new(coder(&model, &executor)).await;
    talk(&app, "hi").await;
    let loud = coder_with(&model, &executor, |runner| runner.result_delimiters = ("<<".into(), ">>".into()));
    for (agent, result) in [(loud, "user: <<ran: a>>"), (llm_on("root", &model, |_| {}), "model: [OUTCOME_OK: ran: a]")]
    {
        app.app = Arc::new(App::new("app", agent).unwrap());
        talk(&app, "go on").await;
        assert_eq!(prompt(&model, model.requests().len() - 1)[2], result);
    }
}

#[tokio::test]
async fn contents_without_code_are_shared_from_call_to_call() {
    let model = sequence([CODE, "one", "two"]);
    let app = Harness::new(coder(&model, &Executor::simple())).await;
    talk(&app, "hi").await;
    talk(&app, "again").await;
    let requests = model.requests();
    for (earlier, later) in requests[1].contents.iter().zip(&requests[2].contents) {
        assert!(Arc::ptr_eq(earlier, later), "reworded once and then shared");
    }
}

/// Says that it runs, and never ends.
struct Endless(Arc<Semaphore>);

#[async_trait]
impl CodeExecutor for Endless {
    fn name(&self) -> &str {
        "endless"
    }

    async fn execute(&self, _: CodeInput, _: &CallContext) -> Result<CodeOutput, ToolError> {
        self.0.add_permits(1);
        std::future::pending().await
    }
}

#[tokio::test]
async fn cancelling_stops_code() {
    let entered = Arc::new(Semaphore::new(0));
    let runner = CodeRunner::new(Arc::new(Endless(entered.clone())));
    let agent =
        llm_on("root", &sequence([CODE]), |llm| llm.code_execution = Some(CodeExecution::Host(Box::new(runner))));
    let app = Harness::new(agent).await;
    let request = app.request(Content::user("hi"));
    let cancel = request.cancel.clone();
    let run = app.runner.run(app.app.clone(), request).await.unwrap();
    entered.acquire().await.unwrap().forget();
    cancel.cancel();
    assert!(matches!(run.collect().await, Err(RunError::Cancelled)));
    app.runner.drain().await;
    let key = SessionKey::new("app", USER, SESSION);
    let session = app.runner.services().sessions.get(&key, Default::default()).await.unwrap().unwrap();
    let said: Vec<_> = session.events.iter().map(|event| shown(event)).collect();
    assert_eq!(said, ["hi", "Let me see.\n|<a>", ""], "the code is stored, and no result");
}

#[tokio::test]
async fn a_model_is_asked_to_run_its_code_itself() {
    let model = sequence(["fine"]);
    let agent = llm_on("root", &model, |llm| {
        llm.code_execution = Some(CodeExecution::BuiltIn);
        llm.tools = vec![builtin::tool("code_execution").unwrap()];
    });
    talk(&Harness::new(agent).await, "hi").await;
    assert_eq!(model.requests()[0].model_tools, [json!({"codeExecution": {}})], "once, also when it is a tool as well");
}

#[tokio::test]
async fn a_model_that_cannot_run_code_itself_is_refused() {
    let agent = llm_with("root", Scripted::new(), |llm| {
        llm.model = Some(ModelRef::Object("gpt-5".into(), Arc::new(Scripted::new())));
        llm.code_execution = Some(CodeExecution::BuiltIn);
    });
    let (_, error) = Harness::new(agent).await.fail("hi").await;
    let text = "model `gpt-5`: has no built-in tool `code_execution`; it runs inside Gemini models from version 2 on";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.code(), "MODEL_BAD_REQUEST");
}

#[tokio::test]
async fn a_model_with_its_own_code_is_not_read_for_blocks() {
    let agent = llm_on("root", &sequence([CODE]), |llm| llm.code_execution = Some(CodeExecution::BuiltIn));
    let app = Harness::new(agent).await;
    assert_eq!(talk(&app, "hi").await, [CODE]);
    assert_eq!(app.state().await, Value::Object(Default::default()));
}
