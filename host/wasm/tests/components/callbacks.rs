//! Callbacks and computed instructions of components in runs of the engine.

use std::sync::Arc;

use hatchery_core::{Event, JsonMap, RunConfig, RunError, StreamingMode};
use hatchery_models::scripted::{Reply, Scripted, Turn};
use hatchery_wasm::ComponentSettings;
use serde_json::{Value, json};

use crate::support::{TestCatalog, run_app, transcript};

/// Runs an agent of the gallery with one setting.
async fn run(app: &str, message: &str, model: Scripted) -> (Vec<Arc<Event>>, Option<RunError>) {
    run_with(app, message, model, RunConfig::default()).await
}

async fn run_with(app: &str, message: &str, model: Scripted, config: RunConfig) -> (Vec<Arc<Event>>, Option<RunError>) {
    let settings = JsonMap::from_iter([("street".to_owned(), json!("Elm Street"))]);
    let settings = ComponentSettings { config: settings, ..ComponentSettings::default() };
    let catalog = TestCatalog::new().with("gallery").with_settings("gallery", settings).catalog().await;
    run_app(&catalog, app, message, model, config).await
}

fn texts(events: &[Arc<Event>]) -> Vec<String> {
    transcript(events).into_iter().map(|(_, text)| text).filter(|text| !text.is_empty()).collect()
}

/// Returns a model that looks up the setting `key` and then answers.
fn looks_up(key: &str) -> Scripted {
    Scripted::new().on_tool("configured", "Here it is.").default_reply(Reply::call("configured", json!({ "key": key })))
}

/// Returns the tool response that the model got.
fn answer(events: &[Arc<Event>]) -> Value {
    let response = events.iter().find_map(|event| event.function_responses().next()).expect("a function response");
    response.response.clone().into()
}

#[tokio::test]
async fn a_computed_instruction_reaches_the_model_and_knows_the_state() {
    // No turn matches without that instruction, and the run fails.
    let model = Scripted::from_turns([Turn::new("I bow.").system("This is visit 1 of the user. Bow.")]);
    let (events, error) = run("butler", "hello", model).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(texts(&events), ["I bow."]);
}

#[tokio::test]
async fn an_instruction_that_cannot_be_computed_ends_the_run_and_says_why() {
    let (events, error) = run("butler", "a rude word", Scripted::new().default_reply("never asked")).await;
    let error = error.expect("a failure");
    assert_eq!(error.code(), "RUDE");
    let error = error.to_string();
    assert!(error.contains("its instruction cannot be computed: there are no manners for the rude"), "{error}");
    assert!(texts(&events).is_empty(), "the model was asked");
}

#[tokio::test]
async fn a_callback_answers_instead_of_the_agent() {
    let (events, error) = run("butler", "is it closed?", Scripted::new()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(transcript(&events), [("butler".to_owned(), "The house is closed.".to_owned())]);
    assert!(events[0].actions.state_delta.is_empty(), "it has not counted the visit");
    assert_eq!(events[0].actions.end_of_agent, Some(true), "the agent says no more");
}

#[tokio::test]
async fn state_changes_before_and_after_an_agent_are_stored_around_its_answer() {
    let (events, error) = run("butler", "hello", Scripted::new().default_reply("I bow.")).await;
    assert!(error.is_none(), "{error:?}");
    let deltas: Vec<_> = events.iter().map(|event| Value::from(event.actions.state_delta.clone())).collect();
    assert_eq!(deltas, [json!({"visits": 1}), json!({}), json!({"served": true})]);
    assert_eq!(texts(&events[1..2]), ["I bow."]);
}

#[tokio::test]
async fn a_callback_after_an_agent_adds_an_answer_with_its_state_changes() {
    let (events, error) = run("butler", "good bye", Scripted::new().default_reply("I bow.")).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(texts(&events), ["I bow.", "Do come again."]);
    assert_eq!(events.last().unwrap().actions.state_delta["served"], true);
}

#[tokio::test]
async fn a_callback_adds_an_instruction_to_a_request() {
    let model = Scripted::from_turns([Turn::new("Briefly: yes.").system("Answer in one sentence.")]);
    let (events, error) = run("clerk", "is it true?", model).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(texts(&events), ["Briefly: yes."]);
}

#[tokio::test]
async fn a_callback_answers_instead_of_the_model() {
    let (events, error) = run("clerk", "what are your opening hours?", Scripted::new()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(texts(&events), ["From nine to five."]);
}

#[tokio::test]
async fn a_callback_replaces_an_answer_and_keeps_the_fields_that_it_does_not_set() {
    let (events, error) = run("clerk", "the safe?", Scripted::new().default_reply("It opens with 1234.")).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(texts(&events), ["It opens with ····."]);
    assert_eq!(events[0].finish_reason.as_deref(), Some("STOP"));
    assert!(events[0].usage_metadata.as_ref().is_some_and(|usage| usage.total_token_count > Some(0)));
}

#[tokio::test]
async fn a_callback_replaces_partial_and_complete_responses() {
    let model = Scripted::new().default_reply(Reply::chunks(["It opens ", "with 1234."]));
    let config = RunConfig { streaming_mode: StreamingMode::On, ..RunConfig::default() };
    let (events, error) = run_with("clerk", "the safe?", model, config).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(texts(&events), ["It opens ", "with ····.", "It opens with ····."]);
    assert_eq!(events.iter().map(|event| event.partial).collect::<Vec<_>>(), [true, true, false]);
}

#[tokio::test]
async fn callbacks_change_the_arguments_of_a_tool_and_its_answer() {
    let (events, error) = run("clerk", "where?", looks_up("STREET")).await;
    assert!(error.is_none(), "{error:?}");
    let stamp = json!({"tool": "configured", "args": {"key": "street"}});
    assert_eq!(answer(&events), json!({"result": "Elm Street", "stamp": stamp}));
    assert_eq!(texts(&events), ["Here it is."]);
}

#[tokio::test]
async fn a_callback_answers_instead_of_a_model_that_has_failed() {
    let model = Scripted::new().default_reply(Reply::status(429, "slow down"));
    let (events, error) = run("equipped", "hello", model).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(texts(&events), ["The model failed with MODEL_RATE_LIMITED."]);
}

#[tokio::test]
async fn a_callback_answers_instead_of_a_tool_that_has_failed() {
    let alarm = Reply::call("panics", json!({"text": "the vase is broken"}));
    let (events, error) =
        run("equipped", "hello", Scripted::new().on_tool("panics", "I see.").default_reply(alarm)).await;
    assert!(error.is_none(), "{error:?}");
    let answer = answer(&events);
    assert_eq!(answer["tool"], "panics");
    let words = answer["mended"].as_str().unwrap();
    assert_eq!(words, "tool `panics` of component `gallery` failed: it panicked: the vase is broken");
}

#[tokio::test]
async fn a_callback_that_has_nothing_to_add_leaves_the_answer_as_it_is() {
    let (events, error) = run("clerk", "where?", looks_up("safe")).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(answer(&events), json!({"error": "the safe is none of your business"}));
}
