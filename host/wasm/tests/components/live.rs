//! Live conversations: models of components that are live, and agents of components that talk to other apps.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use hatchery_core::{
    Blob, Content, Event, EventWindow, LiveConnectConfig, LiveConnection, LiveRequest, LiveResponse, LlmRequest, Model,
    ModelError, ModelErrorKind, ModelResolver, RunConfig, SessionKey, Transcription,
};
use hatchery_engine::Plugins;
use hatchery_models::scripted::Scripted;
use hatchery_wasm::{Catalog, Engine, EngineOptions, Limits};
use serde_json::{Value, json};

use crate::support::{Chat, OneModel, TestCatalog, transcript};

const PARROT: &str = "component:gallery/parrot";

async fn gallery(limits: Limits) -> Arc<Catalog> {
    TestCatalog::new().with("gallery").with_limits(limits).catalog().await
}

async fn connect(catalog: &Catalog) -> Result<Box<dyn LiveConnection>, ModelError> {
    catalog.model(PARROT)?.connect(LlmRequest::default()).await
}

fn text(text: &str) -> LiveRequest {
    LiveRequest::content(Content::user(text))
}

fn audio(data: &[u8]) -> Blob {
    Blob { mime_type: "audio/pcm".into(), data: data.to_vec().into(), display_name: None }
}

/// Sends a request, and returns the model's responses until the end of its turn, or its error.
async fn say(connection: &dyn LiveConnection, request: LiveRequest) -> Result<Vec<LiveResponse>, ModelError> {
    connection.send(request).await?;
    let mut responses = Vec::new();
    while let Some(response) = connection.receive().await {
        match response? {
            LiveResponse::TurnComplete => return Ok(responses),
            LiveResponse::Usage(usage) => assert_eq!(usage.total_token_count, Some(7)),
            response => responses.push(response),
        }
    }
    panic!("the connection was closed after {responses:?}");
}

/// Returns the texts of stored events.
fn stored_texts(events: &[Arc<Event>]) -> Vec<String> {
    let stored: Vec<_> = events.iter().filter(|event| !event.partial).cloned().collect();
    transcript(&stored).into_iter().map(|(_, text)| text).filter(|text| !text.is_empty()).collect()
}

#[tokio::test]
async fn a_live_model_hears_and_speaks_until_the_connection_is_closed() {
    let catalog = gallery(Limits::default()).await;
    let connection = connect(&catalog).await.unwrap();
    let responses = say(&*connection, text("hello")).await.unwrap();
    assert_eq!(responses, [LiveResponse::Content(Content::model("hello"))]);
    let sound = audio(&[1, 2, 3]);
    let words = Transcription { text: "3 bytes".into(), finished: true };
    let echo = Content { role: None, parts: vec![hatchery_core::PartData::InlineData(sound.clone()).into()] };
    let expected = [
        LiveResponse::InputTranscription(words.clone()),
        LiveResponse::Content(echo),
        LiveResponse::OutputTranscription(words),
    ];
    assert_eq!(say(&*connection, LiveRequest::Blob(sound)).await.unwrap(), expected);
    assert_eq!(say(&*connection, LiveRequest::ActivityStart).await.unwrap(), [LiveResponse::Interrupted]);
    connection.close().await;
    assert!(connection.receive().await.is_none());
    assert!(catalog.model(PARROT).unwrap().capabilities().live);
    assert!(!catalog.model("component:gallery/echo").unwrap().capabilities().live);
}

#[tokio::test]
async fn an_agent_with_a_live_model_of_a_component_calls_its_tools() {
    let test_catalog =
        TestCatalog::new().with("gallery").with("services").with_grants("services", json!({"runs": ["cou*"]}));
    let catalog = test_catalog.catalog().await;
    let models = Arc::new(SingleModel(catalog.model(PARROT).unwrap()));
    let chat = Chat::new(&catalog, "office", models, Plugins::default()).with_apps(&catalog);
    let (events, error) = chat.talk([text("good morning"), text("call list_apps")], RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let call = events.iter().find_map(|event| event.function_calls().next().cloned()).unwrap();
    assert_eq!((call.id.as_deref(), call.name.as_str()), (Some("c1"), "list_apps"));
    assert_eq!(stored_texts(&events), ["good morning", "[{\"result\":[\"courier\"]}]"]);
    let usage = events.iter().filter_map(|event| event.usage_metadata.as_ref());
    assert_eq!(usage.map(|usage| usage.total_token_count).collect::<Vec<_>>(), [Some(7), Some(7)]);
}

#[tokio::test]
async fn a_live_model_that_fails_has_its_own_code_and_nothing_follows() {
    let catalog = gallery(Limits::default()).await;
    let connection = connect(&catalog).await.unwrap();
    let error = say(&*connection, text("fail")).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::RateLimited);
    assert_eq!(error.to_string(), "model `component:gallery/parrot`: too much noise");
    assert!(connection.receive().await.is_none());
    assert_eq!(connection.send(text("still there?")).await, Ok(()), "the reason was returned");
}

#[tokio::test]
async fn a_connection_that_a_live_model_refuses_is_not_opened() {
    let catalog = gallery(Limits::default()).await;
    let config = LiveConnectConfig { response_modalities: vec!["VIDEO".into()], ..LiveConnectConfig::default() };
    let request = LlmRequest { live_connect_config: Some(config), ..LlmRequest::default() };
    let connection = catalog.model(PARROT).unwrap().connect(request).await.unwrap();
    let error = connection.receive().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "model `component:gallery/parrot`: parrots have no pictures");
}

#[tokio::test]
async fn a_model_is_only_used_in_the_way_that_it_offers() {
    let catalog = gallery(Limits::default()).await;
    let streaming_mode = hatchery_core::StreamingMode::Off;
    let parrot = catalog.model(PARROT).unwrap();
    let error = parrot.generate(LlmRequest::default(), streaming_mode).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "model `component:gallery/parrot`: it is a live model and answers no single requests; use it in a live run"
    );
    let echo = catalog.model("component:gallery/echo").unwrap();
    let error = echo.connect(LlmRequest::default()).await.err().unwrap();
    assert_eq!(error, ModelError::not_live("component:gallery/echo"));
}

#[tokio::test]
async fn a_call_without_an_id_breaks_the_contract() {
    let catalog = gallery(Limits::default()).await;
    let connection = connect(&catalog).await.unwrap();
    let error = say(&*connection, text("mumble")).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::BadResponse);
    assert!(error.to_string().contains("it broke the contract: a tool call is not one with an id"), "{error}");
}

#[tokio::test]
async fn requests_and_responses_have_a_limited_size() {
    let catalog = gallery(Limits { result: 50_000, ..Limits::default() }).await;
    let connection = connect(&catalog).await.unwrap();
    let error = connection.send(LiveRequest::Blob(audio(&[0; 60_000]))).await.unwrap_err();
    assert!(error.to_string().ends_with("it exceeded its limit of 50000 B in one result"), "{error}");
    let error = say(&*connection, text("long")).await.unwrap_err();
    assert!(error.to_string().ends_with("it exceeded its limit of 50000 B in one result"), "{error}");
}

#[tokio::test]
async fn a_conversation_has_limited_cpu_and_wall_time() {
    let catalog = gallery(Limits { cpu: Duration::from_millis(50), ..Limits::default() }).await;
    let connection = connect(&catalog).await.unwrap();
    let error = say(&*connection, text("spin")).await.unwrap_err();
    assert_eq!(error.to_string(), "model `component:gallery/parrot`: it exceeded its limit of 50ms of CPU time");
    let catalog = gallery(Limits { agent_wall: Duration::from_millis(100), ..Limits::default() }).await;
    let connection = connect(&catalog).await.unwrap();
    // The client sends no audio.
    let error = connection.receive().await.unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert!(error.to_string().ends_with("it exceeded its limit of 100ms of wall time"), "{error}");
}

#[tokio::test]
async fn a_guest_ends_when_its_connection_is_dropped() {
    let mut test_catalog = TestCatalog::new().with("gallery");
    test_catalog.options.engine = Engine::new(&EngineOptions { instances: 1, ..EngineOptions::default() }).unwrap();
    let catalog = test_catalog.catalog().await;
    let connection = connect(&catalog).await.unwrap();
    assert!(connection.receive().now_or_never().is_none(), "it waits");
    drop(connection);
    // The engine has room for one instance: this connection waits until the other has ended.
    say(&*connect(&catalog).await.unwrap(), text("hello")).await.unwrap();
}

#[tokio::test]
async fn an_unread_connection_makes_its_guest_wait() {
    let catalog = gallery(Limits::default()).await;
    let connection = connect(&catalog).await.unwrap();
    let mut sent = 0;
    // One request is on its way, one is being answered, and the sender waits.
    while connection.send(text("hello")).now_or_never().is_some() {
        sent += 1;
        assert!(sent < 10, "requests are queued without end");
        tokio::task::yield_now().await;
    }
    assert_eq!(connection.receive().await.unwrap().unwrap(), LiveResponse::Content(Content::model("hello")));
}

/// Lets the switchboard talk to an app. Returns its last words, as JSON if they are.
async fn call(grants: Value, message: &str, model: Scripted) -> (Value, Chat) {
    call_with(TestCatalog::new().with("services").with_grants("services", grants), message, model).await
}

async fn call_with(test_catalog: TestCatalog, message: &str, model: Scripted) -> (Value, Chat) {
    let catalog = test_catalog.catalog().await;
    let models = Arc::new(OneModel(Arc::new(model)));
    let chat = Chat::new(&catalog, "switchboard", models, Plugins::default()).with_apps(&catalog);
    let (events, error) = chat.say(message, RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let text = transcript(&events).last().unwrap().1.clone();
    (serde_json::from_str(&text).unwrap_or(Value::String(text)), chat)
}

#[tokio::test]
async fn an_agent_talks_to_an_app_in_a_live_run() {
    let model = Scripted::new().default_reply("You said {user}.");
    let (heard, chat) = call(json!({"runs": ["office"]}), "office one two", model).await;
    let expected =
        json!({"session": "live", "texts": ["office: You said one.", "office: You said two."], "error": null});
    assert_eq!(heard, expected);
    let key = SessionKey::new("office", "user", "live");
    let stored = chat.services().sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(stored.events.len(), 4, "both messages and both answers are stored");
}

#[tokio::test]
async fn a_live_run_needs_the_grant_and_an_app() {
    let (denied, _) = call(json!({}), "office hi", Scripted::new()).await;
    assert_eq!(denied, "DENIED: component `services` may not run the app `office`");
    let (unknown, _) = call(json!({"runs": ["*"]}), "nobody hi", Scripted::new()).await;
    assert!(unknown.as_str().unwrap().starts_with("NOT_FOUND: App not found: nobody; the apps are "), "{unknown}");
}

#[tokio::test]
async fn a_request_that_is_refused_ends_the_live_run_with_the_reason() {
    let granted = || json!({"runs": ["*"]});
    for (word, reason) in [
        ("(answer)", "BAD_INPUT: code sends no function responses to a live run: only the user answers calls"),
        ("(sound)", "BAD_INPUT: agent `office` has no live model and takes no `audio/pcm`; send text"),
    ] {
        let (heard, _) = call(granted(), &format!("office {word}"), Scripted::new()).await;
        assert_eq!(heard["error"], reason);
    }
    let limits = Limits { result: 50_000, ..Limits::default() };
    let test_catalog = TestCatalog::new().with("services").with_limits(limits).with_grants("services", granted());
    let (heard, _) = call_with(test_catalog, "office (long)", Scripted::new()).await;
    assert_eq!(heard["error"], "LIMIT_REACHED: it exceeded its limit of 50000 B in one result");
}

#[tokio::test]
async fn a_live_run_counts_as_calls_and_events_of_the_run_that_opens_it() {
    let model = Scripted::new().default_reply("Yes.");
    let test_catalog = TestCatalog::new().with("services").with_grants("services", json!({"runs": ["*"]}));
    let catalog = test_catalog.catalog().await;
    let models = Arc::new(OneModel(Arc::new(model)));
    let chat = Chat::new(&catalog, "switchboard", models, Plugins::default()).with_apps(&catalog);
    let config = RunConfig { max_llm_calls: 2, ..RunConfig::default() };
    let (events, error) = chat.say("office one two three", config).await;
    assert!(error.is_none(), "{error:?}");
    let heard: Value = serde_json::from_str(&transcript(&events).last().unwrap().1).unwrap();
    assert_eq!(heard["texts"], json!(["office: Yes.", "office: Yes."]));
    assert!(heard["error"].as_str().unwrap().starts_with("LIMIT_REACHED: "), "{heard}");
    let config = RunConfig { max_events: 3, ..RunConfig::default() };
    let (_, error) = chat.say("office one two", config).await;
    assert_eq!(error.unwrap().code(), "LIMIT_REACHED");
}

#[tokio::test]
async fn a_live_run_does_not_wait_for_the_session_of_the_run_that_opens_it() {
    let catalog = TestCatalog::new().with("services").with_grants("services", json!({"runs": ["*"]})).catalog().await;
    let chat = Chat::new(&catalog, "switchboard", Arc::new(OneModel(Arc::new(Scripted::new()))), Plugins::default());
    let chat = chat.with_apps(&catalog).in_session("live");
    let (events, error) = chat.say("switchboard hi", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let text = transcript(&events).last().unwrap().1.clone();
    assert!(text.starts_with("CYCLE: "), "{text}");
}

/// Resolves every name to one model.
struct SingleModel(Arc<dyn Model>);

impl ModelResolver for SingleModel {
    fn model(&self, _: &str) -> Result<Arc<dyn Model>, ModelError> {
        Ok(self.0.clone())
    }
}
