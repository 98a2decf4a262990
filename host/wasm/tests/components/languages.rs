//! The same program in each guest language: `tests/components/polyglot`.
//!
//! A language without its build tools has no component; its tests then report that and pass.

mod errors;
mod http;
mod items;
mod services;

use std::io::Write;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{AgentContext, Event, EventData, EventSink, ItemResolver, JsonMap, RunConfig, RunError, ToolError};
use hatchery_engine::Plugins;
use hatchery_models::scripted::{Reply, Scripted, Turn};
use hatchery_wasm::{Catalog, ComponentSettings};
use serde_json::{Value, json};

use crate::imports::CapturedLog;
use crate::support::{
    Chat, OneModel, TestCatalog, built, call, call_in, context, context_in, invocation_with_writer, run_app,
    run_custom_in, settings_with_grants, transcript,
};

use self::http::*;
use self::items::*;
use self::services::*;

/// The name of a language's component.
type Language = &'static str;

/// Defines a test per behaviour and language.
macro_rules! in_each_language {
    ($($behaviour:ident),* $(,)?) => {
        in_each_language!(@ rust, "polyglot_rust": $($behaviour),*);
        in_each_language!(@ plain, "polyglot_plain": $($behaviour),*);
        in_each_language!(@ javascript, "polyglot_js": $($behaviour),*);
        in_each_language!(@ python, "polyglot_python": $($behaviour),*);
    };
    (@ $language:ident, $component:literal: $($behaviour:ident),*) => {
        mod $language {
            $(
                #[tokio::test]
                async fn $behaviour() {
                    if super::is_there($component) {
                        super::$behaviour($component).await;
                    }
                }
            )*
        }
    };
}

in_each_language! {
    a_tool_is_described_by_its_code,
    a_tool_gets_arguments_and_returns_a_result,
    invalid_arguments_are_reported_to_the_model,
    the_error_of_a_tool_reaches_the_model,
    a_tool_can_end_the_run,
    state_is_read_and_written,
    a_setting_is_read,
    a_log_line_has_its_fields,
    an_artifact_is_saved_and_loaded,
    tools_call_tools_at_the_same_time,
    instances_do_not_share_random_numbers,
    a_custom_agent_emits_its_events_in_order,
    a_custom_agent_that_fails_ends_the_run_with_its_code,
    the_shared_events_survive_the_way_through_a_guest,
    callbacks_answer_revise_and_recover,
    an_app_is_run_in_a_session_of_the_user,
    other_sessions_are_created_extended_read_and_deleted,
    the_memory_is_extended_and_searched,
    texts_are_compared_by_their_embeddings,
    the_run_its_plugins_and_the_arguments_of_a_tool_are_described,
    a_tool_reports_progress_and_reads_the_metadata_of_its_run,
    a_tool_ends_the_run,
    an_agent_relays_the_events_of_its_sub_agent,
    an_agent_as_data_has_tools_of_every_kind,
    a_tool_that_an_agent_wants_confirmed_waits_for_a_person,
    the_tools_of_a_toolset_are_computed_for_each_run,
    code_of_the_model_is_run_between_two_model_calls,
    a_plugin_changes_messages_requests_and_events,
    a_plugin_is_told_of_a_failed_run,
    a_model_streams_or_answers_at_once_and_fails_with_its_own_error,
    a_live_model_repeats_what_it_hears_until_it_is_closed_or_fails,
    code_talks_to_an_app_in_a_live_run,
    code_runs_events_are_summarized_and_examples_selected,
    a_request_to_a_granted_host_is_answered,
    a_request_to_another_host_is_denied_and_the_log_has_the_lines_to_paste,
    requests_and_responses_have_limits,
    the_host_adds_the_secret_that_code_never_sees,
    a_status_is_not_an_error_and_redirects_are_followed,
    a_request_that_cannot_be_sent_fails,
}

/// Returns false, with a message on stderr, if a component could not be built here.
fn is_there(component: Language) -> bool {
    if built(component).is_file() {
        return true;
    }
    let reason = std::fs::read_to_string(built(component).with_extension("skipped"));
    let reason = reason.unwrap_or_else(|_| "it has not been built; `cargo xtask components` builds it".into());
    // Bypasses the test harness, which captures the output of passing tests.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {component}.wasm is not there: {reason}");
    false
}

async fn catalog(component: Language) -> Arc<Catalog> {
    let config = JsonMap::from_iter([("greeting".to_owned(), json!({"de": ["Hallo", 1]}))]);
    let grants = json!({
        "models": ["*"], "artifacts": "write", "state": {"write": ["user:*", "app:*"]}, "memory": "write",
        "runs": ["foreman", "story*"], "sessions": {"write": ["storyteller"]},
    });
    let settings = ComponentSettings { config, ..settings_with_grants(grants) };
    TestCatalog::new().with(component).with_settings(component, settings).catalog().await
}

fn error_text(result: Result<Value, ToolError>) -> String {
    match result {
        Err(ToolError::Recoverable(message)) => message,
        other => panic!("not an error for a model: {other:?}"),
    }
}

async fn a_tool_is_described_by_its_code(component: Language) {
    let catalog = catalog(component).await;
    let scale = catalog.tool("scale").unwrap();
    let declaration = scale.declaration();
    assert_eq!(declaration.description, "Multiplies a number.");
    let schema = declaration.parameters.as_ref().unwrap();
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["required"], json!(["number"]));
    assert_eq!(schema["properties"]["number"]["type"], "number");
    assert_eq!(schema["properties"]["number"]["description"], "The number.");
    assert_eq!(schema["properties"]["by"]["type"], "integer");
    assert_eq!(schema["properties"]["by"]["default"], 2);
    assert_eq!(catalog.agent("storyteller").unwrap().description, expected_description());
}

fn expected_description() -> &'static str {
    "Emits two lines and the response of a model; fails if the message asks for it."
}

async fn a_tool_gets_arguments_and_returns_a_result(component: Language) {
    let catalog = catalog(component).await;
    // Some languages write 3.0, others 3.
    let result = call(&catalog, "scale", json!({"number": 1.5})).await.unwrap();
    assert_eq!(result["result"].as_f64(), Some(3.0), "{result}");
    let args = json!({"number": 2, "by": 4, "style": "text"});
    assert_eq!(call(&catalog, "scale", args).await.unwrap(), json!({"result": "8"}));
}

async fn invalid_arguments_are_reported_to_the_model(component: Language) {
    let catalog = catalog(component).await;
    for (args, word) in [(json!({}), "number"), (json!({"number": 1, "style": "bold"}), "plain")] {
        let message = error_text(call(&catalog, "scale", args).await);
        assert!(message.contains(word), "{message}");
    }
}

async fn the_error_of_a_tool_reaches_the_model(component: Language) {
    let catalog = catalog(component).await;
    assert_eq!(error_text(call(&catalog, "refuse", json!({"reason": "no “flour” left"})).await), "no “flour” left");
}

async fn a_tool_can_end_the_run(component: Language) {
    let catalog = catalog(component).await;
    match call(&catalog, "break_off", json!({"reason": "the oven burns"})).await {
        Err(ToolError::Fatal { code, message, .. }) => assert_eq!((&*code, &*message), ("BROKEN", "the oven burns")),
        other => panic!("not fatal: {other:?}"),
    }
}

async fn state_is_read_and_written(component: Language) {
    let catalog = catalog(component).await;
    let cx = context(&catalog);
    let value = json!({"list": [1, 2.5, "three", null, true], "text": "naïve 日本"});
    let args = json!({"key": "user:thing", "value": value});
    let first = call_in(&cx, &catalog, "remember", args.clone()).await.unwrap();
    assert_eq!(first, json!({"before": null, "now": value}));
    let second = call_in(&cx, &catalog, "remember", args).await.unwrap();
    assert_eq!(second, json!({"before": value, "now": value}));
    assert_eq!(cx.state("user:thing"), Some(value));
}

async fn a_setting_is_read(component: Language) {
    let catalog = catalog(component).await;
    assert_eq!(call(&catalog, "setting", json!({"key": "greeting"})).await.unwrap(), json!({"de": ["Hallo", 1]}));
    assert_eq!(call(&catalog, "setting", json!({"key": "none"})).await.unwrap(), json!(null));
}

async fn a_log_line_has_its_fields(component: Language) {
    let catalog = catalog(component).await;
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    assert_eq!(call(&catalog, "note", json!({"text": "the bread is done"})).await.unwrap(), json!(true));
    drop(guard);
    let lines = log.lines("hatchery::component");
    assert!(lines.len() == 1 && lines[0].starts_with("the bread is done language="), "{lines:?}");
}

async fn an_artifact_is_saved_and_loaded(component: Language) {
    let catalog = catalog(component).await;
    let cx = context(&catalog);
    for (version, text) in [(0, "rye"), (1, "wheat")] {
        let saved = call_in(&cx, &catalog, "keep", json!({"name": "bread.txt", "text": text})).await.unwrap();
        let custom = json!({"letters": text.len()});
        let about =
            json!({"version": version, "size": text.len(), "hasTime": true, "custom": custom, "photo": "image/png"});
        let names = ["bread.txt", "photo"];
        let expected = json!({"version": version, "text": text, "about": about, "missing": null, "names": names});
        assert_eq!(saved, expected);
        let run = &cx.invocation;
        let artifacts = &run.services.artifacts;
        let stored = artifacts.load_stream(&run.session_key, "bread.txt", Some(version)).await.unwrap().unwrap();
        assert_eq!(json!(stored.custom_metadata), custom);
    }
}

async fn tools_call_tools_at_the_same_time(component: Language) {
    let catalog = catalog(component).await;
    let both = call(&catalog, "both", json!({})).await.unwrap();
    assert_eq!(both.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect::<Vec<_>>(), [2.0, 4.0]);
}

async fn instances_do_not_share_random_numbers(component: Language) {
    let catalog = catalog(component).await;
    let one = call(&catalog, "chance", json!({})).await.unwrap();
    let two = call(&catalog, "chance", json!({})).await.unwrap();
    assert_ne!(one, two);
}

async fn tell(component: Language, message: &str) -> (Vec<Arc<Event>>, Option<RunError>) {
    let model = Scripted::from_turns([Turn::new("and they lived happily.").system("Be brief.").user("Go on.")]);
    run_app(&*catalog(component).await, "storyteller", message, model, RunConfig::default()).await
}

fn texts(events: &[Arc<Event>]) -> Vec<String> {
    transcript(events).into_iter().map(|(_, text)| text).collect()
}

async fn a_custom_agent_emits_its_events_in_order(component: Language) {
    let (events, error) = tell(component, "hello").await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(texts(&events), ["one", "two", "and they lived happily."]);
    let states: Vec<_> = events.iter().map(|event| event.actions.state_delta.get("told").cloned()).collect();
    assert_eq!(states, [None, Some(json!(2)), None], "a change of state goes with the next event");
}

async fn a_custom_agent_that_fails_ends_the_run_with_its_code(component: Language) {
    let (events, error) = tell(component, "fail").await;
    let error = error.expect("a failure");
    assert_eq!(error.code(), "STORY_LOST");
    assert!(error.to_string().contains("the story is lost"), "{error}");
    assert_eq!(texts(&events)[..2], ["one", "two"]);
}

/// An event of `tests/fixtures/events.json` in a form in which an agent may emit it: not in the name of the user, and
/// without a summary.
fn emittable(json: &Value) -> EventData {
    let mut data: EventData = serde_json::from_value(json.clone()).unwrap();
    data.author = "agent".into();
    data.actions.compaction = None;
    data
}

/// Keeps the events of an agent.
#[derive(Default)]
struct Collector(Mutex<Vec<Arc<Event>>>);

#[async_trait]
impl EventSink for Collector {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        self.0.lock().unwrap().push(event.clone());
        Ok(event)
    }
}

async fn the_shared_events_survive_the_way_through_a_guest(component: Language) {
    let catalog = catalog(component).await;
    let events: JsonMap = serde_json::from_str(include_str!("../../../../tests/fixtures/events.json")).unwrap();
    for (name, json) in &events {
        let (invocation, writer) = invocation_with_writer("hello");
        writer.append_unstored(&Event::new(emittable(json)));
        let (call, collector) = (context_in(&catalog, invocation.clone()), Arc::new(Collector::default()));
        let result = run_custom_in(&catalog, "echo", AgentContext { call, sink: collector.clone() }).await;
        assert_eq!(result.err().map(|error| error.code().to_owned()).as_deref(), json["errorCode"].as_str(), "{name}");
        let emitted = collector.0.lock().unwrap();
        assert_eq!(emitted.len(), 1, "{name}");
        // The host sets these fields of an event that an agent emits.
        let expected = EventData {
            id: emitted[0].id.clone(),
            invocation_id: invocation.id.clone(),
            timestamp: emitted[0].timestamp,
            ..emittable(json)
        };
        let (emitted, expected) = (to_value(&emitted[0]), to_value(&expected));
        assert!(is_same(&emitted, &expected), "{name}: {emitted} is not {expected}");
    }
}

fn to_value(data: &EventData) -> Value {
    serde_json::to_value(data).unwrap()
}

/// Compares JSON values. 3 and 3.0 are the same number, because JavaScript does not distinguish them.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) if one.is_f64() != other.is_f64() => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| is_same(value, other)))
        }
        _ => one == other,
    }
}

/// Returns the tool response that the model gets for these arguments.
async fn clerk(component: Language, tool: &str, args: Value) -> Value {
    let model =
        Scripted::new().on_tool(tool, "Done.").turn(Turn::new(Reply::call(tool, args)).system("Speak to user."));
    let (events, error) = run_app(&*catalog(component).await, "clerk", "go", model, RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let response = events.iter().find_map(|event| event.function_responses().next()).expect("a function response");
    response.response.clone().into()
}

async fn callbacks_answer_revise_and_recover(component: Language) {
    assert_eq!(clerk(component, "scale", json!({"number": 13})).await, json!({"vetoed": true}));
    assert_eq!(clerk(component, "scale", json!({"number": 99})).await["result"].as_f64(), Some(2.0));
    assert_eq!(clerk(component, "scale", json!({"number": 3})).await["result"].as_f64(), Some(6.0));
    assert_eq!(clerk(component, "note", json!({"text": "x"})).await, json!({"result": true, "stamped": true}));
}

/// Returns a chat with an app of the component, and the model that it uses.
async fn chat(component: Language, app: &str, model: Scripted, plugins: Plugins) -> (Chat, Arc<Scripted>) {
    let (catalog, model) = (catalog(component).await, Arc::new(model));
    (Chat::new(&catalog, app, Arc::new(OneModel(model.clone())), plugins).with_apps(&catalog), model)
}

/// Lets the chief's model call a tool. Returns the chat and the tool's response.
async fn ask(component: Language, tool: &str, args: Value) -> (Chat, Value) {
    let model = Scripted::sequence([Reply::call(tool, args), Reply::text("done")]);
    let (chat, _) = chat(component, "chief", model, Plugins::default()).await;
    let (events, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let response = events.iter().flat_map(|event| event.function_responses()).next().expect("a function response");
    let response = Value::Object(response.response.clone());
    (chat, response)
}
