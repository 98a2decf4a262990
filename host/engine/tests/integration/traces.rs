//! Spans of runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hatchery_core::{
    Agent, Content, Event, JsonMap, ModelErrorKind, RunConfig, RunError, SpanData, SpanExporter, SpanOperation,
    StoreError, StreamingMode, Tool, ToolError, TraceParent,
};
use hatchery_engine::build::{custom, function_tool, llm, parallel, sequential};
use hatchery_engine::{AgentTool, App, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_test_support::{USER, services};
use serde_json::{Value, json};

/// Keeps the spans of runs, with content.
#[derive(Default)]
struct Collector(Mutex<Vec<Arc<SpanData>>>);

impl SpanExporter for Collector {
    fn export(&self, span: &Arc<SpanData>) {
        self.0.lock().unwrap().push(span.clone());
    }

    fn captures_content(&self) -> bool {
        true
    }

    fn is_sampled(&self, _: u128, _: Option<&TraceParent>) -> bool {
        true
    }
}

impl Collector {
    /// Returns the only span of this name.
    fn span(&self, name: &str) -> Arc<SpanData> {
        let spans = self.0.lock().unwrap();
        let mut found = spans.iter().filter(|span| span.name == name);
        let span = found.next().unwrap_or_else(|| panic!("{name} is not in {spans:?}")).clone();
        assert!(found.next().is_none(), "{name} is twice in {spans:?}");
        span
    }

    /// Returns the names of the spans around one, innermost first.
    fn around(&self, span: &Arc<SpanData>) -> Vec<String> {
        let spans = self.0.lock().unwrap();
        let parent = |span: &Arc<SpanData>| spans.iter().find(|it| Some(it.span_id) == span.parent_span_id).cloned();
        std::iter::successors(parent(span), parent).map(|span| span.name.to_string()).collect()
    }
}

/// Returns an attribute, also of the content; `null` if there is none.
fn attribute(span: &SpanData, key: &str) -> Value {
    let content = span.content.iter().flat_map(|content| content.attributes());
    let found = span.attributes().into_iter().chain(content).find(|(name, _)| *name == key);
    found.map_or(Value::Null, |(_, value)| serde_json::to_value(value).unwrap())
}

/// Returns an attribute whose text is JSON.
fn json_attribute(span: &SpanData, key: &str) -> Value {
    serde_json::from_str(attribute(span, key).as_str().unwrap_or_else(|| panic!("{key} in {span:?}"))).unwrap()
}

async fn run(root: Agent, request: RunRequest) -> (Arc<Collector>, Result<Vec<Arc<Event>>, RunError>) {
    let config = request.config.clone();
    run_with(root, request, config).await
}

async fn run_with(
    root: Agent,
    request: RunRequest,
    config: RunConfig,
) -> (Arc<Collector>, Result<Vec<Arc<Event>>, RunError>) {
    let collector = Arc::new(Collector::default());
    let runner = Runner::new(services()).with_span_exporter(collector.clone());
    let config = RunConfig { auto_create_session: true, ..config };
    let app = Arc::new(App::new("app", root).unwrap());
    let events = runner.run(app, RunRequest { config, ..request }).await.unwrap().collect().await;
    runner.drain().await;
    (collector, events)
}

async fn traced(root: Agent, text: &str) -> (Arc<Collector>, Vec<Arc<Event>>) {
    let (collector, events) = run(root, RunRequest::new(USER, "s", Content::user(text))).await;
    (collector, events.unwrap())
}

#[tokio::test]
async fn the_span_of_a_streamed_call_has_the_time_to_its_first_chunk() {
    let model = Scripted::new().default_reply("one two three");
    let root = llm("root").model_instance("scripted", Arc::new(model)).build().unwrap();
    let config = RunConfig { streaming_mode: StreamingMode::On, ..RunConfig::default() };
    let (collector, events) = run_with(root, RunRequest::new(USER, "s", Content::user("hi")), config).await;
    assert!(events.unwrap().iter().any(|event| event.partial));
    let call = collector.span("call_llm");
    let first = attribute(&call, "gen_ai.response.time_to_first_chunk").as_f64().unwrap();
    assert!(first <= call.duration.as_secs_f64(), "{first} s in {:?}", call.duration);
}

#[tokio::test]
async fn spans_are_nested_as_the_calls_are() {
    let model = Scripted::new()
        .on_user("roll", Reply::call("roll_die", json!({"sides": 6})))
        .on_tool("roll_die", "You rolled {tool.result}.");
    let roll = function_tool("roll_die", "Rolls a die.", |_: JsonMap, _| async { Ok(4) });
    let dice = llm("dice").model_instance("scripted", Arc::new(model)).tool(roll);
    let first = custom("first", |cx| async move { cx.say("Here we go").await.map(|_| ()) });
    let root = sequential("root").sub_agent(first).sub_agent(dice).build().unwrap();
    let (collector, events) = traced(root, "Roll!").await;

    let tool = collector.span("execute_tool roll_die");
    assert_eq!(collector.around(&tool), ["invoke_agent dice", "invoke_agent root", "invocation"]);
    assert_eq!(attribute(&tool, "gen_ai.operation.name"), "execute_tool");
    assert_eq!(attribute(&tool, "gen_ai.tool.name"), "roll_die");
    assert_eq!(json_attribute(&tool, "gen_ai.tool.call.arguments"), json!({"sides": 6}));
    assert_eq!(json_attribute(&tool, "gen_ai.tool.call.result"), 4);
    let call = events[1].function_calls().next().unwrap().id.clone().unwrap();
    assert_eq!(attribute(&tool, "gen_ai.tool.call.id"), json!(call));

    let spans = collector.0.lock().unwrap().clone();
    let calls: Vec<_> = spans.iter().filter(|span| span.operation == SpanOperation::Model).collect();
    let ids: Vec<_> = calls.iter().map(|span| attribute(span, "gcp.vertex.agent.event_id")).collect();
    assert_eq!(ids, [&*events[1].id, &*events[3].id], "each call has the id of its event");
    assert!(calls.iter().all(|call| call.name == "call_llm"));
    assert!(calls.iter().all(|call| attribute(call, "gen_ai.provider.name") == "scripted"));
    assert!(calls.iter().all(|call| attribute(call, "gen_ai.response.time_to_first_chunk").is_null()));
    let request = json_attribute(calls[1], "gcp.vertex.agent.llm_request");
    assert_eq!(
        request["contents"].as_array().unwrap().last().unwrap()["parts"][0]["functionResponse"]["name"],
        "roll_die"
    );
    assert_eq!(request["config"]["tools"][0]["function_declarations"][0]["name"], "roll_die");
    let response = json_attribute(calls[1], "gcp.vertex.agent.llm_response");
    assert_eq!(response["content"]["parts"][0]["text"], "You rolled 4.");
    assert_eq!(attribute(calls[1], "gen_ai.response.finish_reasons"), json!(["stop"]));

    let agent = collector.span("invoke_agent dice");
    let own: Vec<_> = events[1..].iter().map(|event| event.id.clone()).collect();
    assert_eq!(agent.event_ids, own);
    let run = collector.span("invocation");
    assert!(spans.iter().all(|span| Arc::ptr_eq(&span.trace, &run.trace) && span.error.is_none()));
    assert!(spans.iter().all(|span| run.start <= span.start && span.end() <= run.end()));
    let time = |kind: &str| attribute(&run, &format!("hatchery.time.{kind}_ns")).as_u64().unwrap();
    let models: u128 = calls.iter().map(|call| call.duration.as_nanos()).sum();
    assert_eq!((u128::from(time("model")), u128::from(time("tool"))), (models, tool.duration.as_nanos()));
    assert!(time("store") > 0 && time("queue") > 0 && time("guest") == 0);
}

#[tokio::test]
async fn parallel_agents_have_their_own_spans() {
    let model = |tool: &str| {
        let script = Scripted::sequence([Reply::call(tool, json!({})), Reply::text("Done.")]);
        Arc::new(script)
    };
    let tool = |name: &'static str| function_tool(name, "Looks.", |_: JsonMap, _| async { Ok(1) });
    let [left, right] = ["left", "right"].map(|side| {
        let (agent, tool_name) = if side == "left" { ("left", "look_left") } else { ("right", "look_right") };
        llm(agent).model_instance("scripted", model(tool_name)).tool(tool(tool_name))
    });
    let root = parallel("both").sub_agent(left).sub_agent(right).build().unwrap();
    let (collector, _) = traced(root, "Look!").await;
    for side in ["left", "right"] {
        let tool = collector.span(&format!("execute_tool look_{side}"));
        assert_eq!(collector.around(&tool), [&*format!("invoke_agent {side}"), "invoke_agent both", "invocation"]);
    }
}

#[tokio::test]
async fn an_agent_that_is_transferred_to_is_inside_of_the_one_that_hands_over() {
    let helper =
        llm("helper").description("Helps.").model_instance("scripted", Arc::new(Scripted::new().default_reply("42")));
    let model = Scripted::new().default_reply(Reply::call("transfer_to_agent", json!({"agent_name": "helper"})));
    let root = llm("asker").model_instance("scripted", Arc::new(model)).sub_agent(helper).build().unwrap();
    let (collector, _) = traced(root, "What is it?").await;
    assert_eq!(collector.around(&collector.span("invoke_agent helper")), ["invoke_agent asker", "invocation"]);
}

#[tokio::test]
async fn a_failure_is_recorded_in_each_span_that_it_passes() {
    let tool = function_tool("ask", "Asks.", |_: JsonMap, _| async {
        Err::<Value, _>(ToolError::Recoverable("nobody is there".into()))
    });
    let model =
        Scripted::sequence([Reply::call("ask", json!({})), Reply::error(ModelErrorKind::Server, "the model is away")]);
    let root = llm("asker").model_instance("scripted", Arc::new(model)).tool(tool).build().unwrap();
    let (collector, result) = run(root, RunRequest::new(USER, "s", Content::user("Ask!"))).await;
    let error = result.unwrap_err();
    let tool = collector.span("execute_tool ask").error.clone().unwrap();
    assert_eq!((&*tool.code, &*tool.message), ("TOOL_FAILED", "nobody is there"));
    let calls = collector.0.lock().unwrap().clone();
    let failed: Vec<_> = calls.iter().filter(|span| span.error.is_some()).map(|span| span.name.to_string()).collect();
    assert_eq!(failed, ["execute_tool ask", "call_llm", "invoke_agent asker", "invocation"]);
    assert_eq!(collector.span("invocation").error.clone().unwrap().code, error.code());
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_at_a_time_limit_is_cancelled_and_no_success() {
    let tool = function_tool("wait", "Waits.", |_: JsonMap, _| std::future::pending::<Result<Value, ToolError>>());
    let model = Scripted::sequence([Reply::call("wait", json!({}))]);
    let inner = llm("inner").model_instance("scripted", Arc::new(model)).tool(tool);
    let root = sequential("root").sub_agent(inner).build().unwrap();
    let config = RunConfig { max_run_time: Duration::from_secs(7), ..RunConfig::default() };
    let (collector, result) = run(root, RunRequest { config, ..RunRequest::new(USER, "s", Content::user("?")) }).await;
    assert_eq!(result.unwrap_err().code(), "LIMIT_REACHED");
    let code = |name: &str| collector.span(name).error.as_ref().map(|error| error.code.clone()).unwrap_or_default();
    for name in ["execute_tool wait", "invoke_agent inner", "invoke_agent root"] {
        assert_eq!(code(name), "CANCELLED", "{name}");
    }
    assert_eq!((code("call_llm"), code("invocation")), (String::new(), "LIMIT_REACHED".to_owned()));
}

#[tokio::test]
async fn a_failure_of_an_agent_is_also_a_failure_of_the_agent_that_has_transferred_to_it() {
    let model = Scripted::sequence([Reply::error(ModelErrorKind::Server, "the model is away")]);
    let helper = llm("helper").description("Helps.").model_instance("scripted", Arc::new(model));
    let model = Scripted::new().default_reply(Reply::call("transfer_to_agent", json!({"agent_name": "helper"})));
    let root = llm("asker").model_instance("scripted", Arc::new(model)).sub_agent(helper).build().unwrap();
    let (collector, result) = run(root, RunRequest::new(USER, "s", Content::user("?"))).await;
    let error = result.unwrap_err();
    for name in ["invoke_agent helper", "invoke_agent asker", "invocation"] {
        assert_eq!(collector.span(name).error.as_ref().unwrap().code, error.code(), "{name}");
    }
}

#[tokio::test]
async fn details_of_the_storage_are_in_no_span() {
    let tool = function_tool("save", "Saves.", |_: JsonMap, _| async {
        Err::<Value, _>(ToolError::from(StoreError::backend("table `secret`", "disk /srv/secret")))
    });
    let model = Scripted::sequence([Reply::call("save", json!({}))]);
    let root = llm("saver").model_instance("scripted", Arc::new(model)).tool(tool).build().unwrap();
    let (collector, result) = run(root, RunRequest::new(USER, "s", Content::user("Save!"))).await;
    assert!(result.is_err());
    let spans = collector.0.lock().unwrap().clone();
    for error in spans.iter().filter_map(|span| span.error.as_ref()) {
        assert_eq!(
            (&*error.code, &*error.message),
            ("STORE_FAILED", "the storage failed; the server's log holds the cause")
        );
    }
}

#[tokio::test]
async fn a_run_is_part_of_the_trace_of_its_caller() {
    let root = llm("asker").model_instance("scripted", Arc::new(Scripted::new().default_reply("42"))).build().unwrap();
    let parent = TraceParent { trace_id: 7, span_id: 9, is_sampled: true };
    let request = RunRequest { trace_parent: Some(parent), ..RunRequest::new(USER, "s", Content::user("?")) };
    let (collector, _) = run(root, request).await;
    let run = collector.span("invocation");
    assert_eq!((run.trace.id, run.trace.parent, run.parent_span_id), (7, Some(parent), None));
}

#[tokio::test]
async fn an_agent_that_is_called_as_a_tool_is_inside_of_the_call() {
    let inner = llm("helper").model_instance("scripted", Arc::new(Scripted::new().default_reply("42")));
    let tool: Arc<dyn Tool> = Arc::new(AgentTool::new(inner.build().unwrap()).unwrap());
    let outer = Scripted::sequence([Reply::call("helper", json!({"request": "?"})), Reply::text("It is 42.")]);
    let root = llm("asker").model_instance("scripted", Arc::new(outer)).tool(tool).build().unwrap();
    let (collector, _) = traced(root, "What is it?").await;
    let helper = collector.span("invoke_agent helper");
    assert_eq!(collector.around(&helper), ["execute_tool helper", "invoke_agent asker", "invocation"]);
    assert!(Arc::ptr_eq(&helper.trace, &collector.span("invocation").trace), "it has the id of the run");
}
