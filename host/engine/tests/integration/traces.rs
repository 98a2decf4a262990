//! Spans of runs.

use std::sync::{Arc, Mutex};

use hatchery_core::{
    Agent, Content, Event, JsonMap, RunConfig, SPAN_EVENT_ID, SPAN_EVENT_IDS, SpanData, SpanExporter, Tool,
};
use hatchery_engine::build::{custom, function_tool, llm, sequential};
use hatchery_engine::{AgentTool, App, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_test_support::{USER, services};
use serde_json::{Value, json};

#[derive(Default)]
struct Collector(Mutex<Vec<SpanData>>);

impl SpanExporter for Collector {
    fn export(&self, span: SpanData) {
        self.0.lock().unwrap().push(span);
    }
}

impl Collector {
    /// Returns the only span of this name.
    fn span(&self, name: &str) -> SpanData {
        let spans = self.0.lock().unwrap();
        let mut found = spans.iter().filter(|span| span.name == name);
        let span = found.next().unwrap_or_else(|| panic!("{name} is not in {spans:?}")).clone();
        assert!(found.next().is_none(), "{name} is twice in {spans:?}");
        span
    }

    /// Returns the names of the spans around one, innermost first.
    fn around(&self, span: &SpanData) -> Vec<String> {
        let spans = self.0.lock().unwrap();
        let parent = |span: &SpanData| spans.iter().find(|it| Some(it.span_id) == span.parent_span_id).cloned();
        std::iter::successors(parent(span), parent).map(|span| span.name).collect()
    }
}

async fn traced(root: Agent, text: &str) -> (Arc<Collector>, Vec<Arc<Event>>) {
    let collector = Arc::new(Collector::default());
    let runner = Runner::new(services()).with_span_exporter(collector.clone());
    let config = RunConfig { auto_create_session: true, ..RunConfig::default() };
    let request = RunRequest { config, ..RunRequest::new(USER, "s", Content::user(text)) };
    let app = Arc::new(App::new("app", root).unwrap());
    let events = runner.run(app, request).await.unwrap().collect().await.unwrap();
    runner.drain().await;
    (collector, events)
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
    assert_eq!(tool.attributes["gen_ai.operation.name"], "execute_tool");
    assert_eq!(tool.attributes["gen_ai.tool.name"], "roll_die");
    assert_eq!(tool.attributes["gcp.vertex.agent.tool_call_args"], "{\"sides\":6}");
    assert_eq!(tool.attributes["gcp.vertex.agent.tool_response"], "4");
    let call = events[1].function_calls().next().unwrap().id.clone().unwrap();
    assert_eq!(tool.attributes["gen_ai.tool.call.id"], json!(call));

    let spans = collector.0.lock().unwrap().clone();
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "call_llm").collect();
    let ids: Vec<_> = calls.iter().map(|span| span.attributes[SPAN_EVENT_ID].as_str().unwrap()).collect();
    assert_eq!(ids, [&*events[1].id, &*events[3].id], "each call has the id of its event");
    let json =
        |span: &SpanData, key: &str| -> Value { serde_json::from_str(span.attributes[key].as_str().unwrap()).unwrap() };
    let request = json(calls[1], "gcp.vertex.agent.llm_request");
    assert_eq!(
        request["contents"].as_array().unwrap().last().unwrap()["parts"][0]["functionResponse"]["name"],
        "roll_die"
    );
    assert_eq!(request["config"]["tools"][0]["function_declarations"][0]["name"], "roll_die");
    let response = json(calls[1], "gcp.vertex.agent.llm_response");
    assert_eq!(response["content"]["parts"][0]["text"], "You rolled 4.");
    assert_eq!(calls[1].attributes["gen_ai.response.finish_reasons"], json!(["stop"]));

    let agent = collector.span("invoke_agent dice");
    let own: Vec<_> = events[1..].iter().map(|event| event.id.as_str()).collect();
    assert_eq!(agent.attributes[SPAN_EVENT_IDS], json!(own));
    let run = collector.span("invocation");
    assert!(spans.iter().all(|span| span.trace_id == run.trace_id && &*span.session.id == "s"));
    assert!(spans.iter().all(|span| run.start <= span.start && span.end <= run.end));
}

#[tokio::test]
async fn an_agent_that_is_called_as_a_tool_is_inside_of_the_call() {
    let inner = llm("helper").model_instance("scripted", Arc::new(Scripted::new().default_reply("42")));
    let tool: Arc<dyn Tool> = Arc::new(AgentTool::new(inner.build().unwrap(), false).unwrap());
    let outer = Scripted::sequence([Reply::call("helper", json!({"request": "?"})), Reply::text("It is 42.")]);
    let root = llm("asker").model_instance("scripted", Arc::new(outer)).tool(tool).build().unwrap();
    let (collector, _) = traced(root, "What is it?").await;
    let helper = collector.span("invoke_agent helper");
    assert_eq!(collector.around(&helper), ["execute_tool helper", "invoke_agent asker", "invocation"]);
    assert_eq!(
        helper.attributes["gcp.vertex.agent.invocation_id"],
        collector.span("invocation").attributes["gcp.vertex.agent.invocation_id"]
    );
}
