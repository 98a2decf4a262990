//! Models of components.

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use hatchery_core::{
    Content, LlmRequest, LlmResponse, Model, ModelError, ModelErrorKind, ModelResolver, RunConfig, StreamingMode,
};
use hatchery_engine::Plugins;
use hatchery_models::scripted::Scripted;
use hatchery_wasm::{Catalog, CatalogModels, Engine, EngineOptions, Limits};

use crate::support::{Chat, OneModel, TestCatalog, transcript};

const ECHO: &str = "component:gallery/echo";

async fn gallery(limits: Limits) -> Arc<Catalog> {
    TestCatalog::new().with("gallery").with_limits(limits).catalog().await
}

/// Returns the gallery on an engine with room for one instance.
async fn alone() -> Arc<Catalog> {
    let options = EngineOptions { instances: 1, ..EngineOptions::default() };
    let endless = Limits { cpu: Duration::from_secs(600), ..Limits::default() };
    let mut test_catalog = TestCatalog::new().with("gallery").with_limits(endless);
    test_catalog.options.engine = Engine::new(&options).unwrap();
    test_catalog.catalog().await
}

fn request(text: &str) -> LlmRequest {
    LlmRequest { contents: [Arc::new(Content::user(text))].into_iter().collect(), ..LlmRequest::default() }
}

/// Returns all responses of the echo model.
async fn answer(catalog: &Catalog, text: &str, delivery: StreamingMode) -> Result<Vec<LlmResponse>, ModelError> {
    let stream = catalog.model(ECHO)?.generate(request(text), delivery).await?;
    stream.collect::<Vec<_>>().await.into_iter().collect()
}

fn text(response: &LlmResponse) -> String {
    response.content.as_ref().map(Content::text).unwrap_or_default()
}

#[tokio::test]
async fn a_model_streams_or_answers_at_once() {
    let catalog = gallery(Limits::default()).await;
    let pieces = answer(&catalog, "one two three", StreamingMode::On).await.unwrap();
    assert_eq!(pieces.iter().map(text).collect::<Vec<_>>(), ["one ", "two ", "three"]);
    assert!(pieces.iter().all(|piece| piece.partial));
    let complete = answer(&catalog, "one two three", StreamingMode::Off).await.unwrap();
    assert_eq!(complete.iter().map(text).collect::<Vec<_>>(), ["one two three"]);
    assert!(!complete[0].partial);
}

#[tokio::test]
async fn an_agent_uses_a_components_model() {
    let catalog = gallery(Limits::default()).await;
    let chat = Chat::new(&catalog, "butler", Arc::new(SingleModel(catalog.model(ECHO).unwrap())), Plugins::default());
    let streamed = RunConfig { streaming_mode: StreamingMode::On, ..RunConfig::default() };
    let (events, error) = chat.say("good morning", streamed).await;
    assert!(error.is_none(), "{error:?}");
    let texts: Vec<_> = transcript(&events).into_iter().map(|(_, text)| text).filter(|text| !text.is_empty()).collect();
    assert_eq!(texts, ["good ", "morning", "good morning"]);
}

#[tokio::test]
async fn a_custom_agent_calls_a_model_of_another_component() {
    let catalog =
        TestCatalog::new().with("gallery").with("relay").with_grants("relay", json!({"models": ["*"]})).catalog().await;
    let chat = Chat::new(&catalog, "asker", Arc::new(SingleModel(catalog.model(ECHO).unwrap())), Plugins::default());
    let (events, error) = chat.say("one two", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(
        transcript(&events)[..3].iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(),
        ["one ", "two", "one two"]
    );
}

#[tokio::test]
async fn a_model_that_code_calls_shares_the_memory_of_the_run() {
    let ask = async |run_memory: u64| {
        let mut test_catalog =
            TestCatalog::new().with("gallery").with("relay").with_grants("relay", json!({"models": ["*"]}));
        let options = EngineOptions { instances: 10, run_memory, ..EngineOptions::default() };
        test_catalog.options.engine = Engine::new(&options).unwrap();
        let catalog = test_catalog.catalog().await;
        let models = Arc::new(SingleModel(catalog.model(ECHO).unwrap()));
        let (_, error) =
            Chat::new(&catalog, "asker", models, Plugins::default()).say("one two", RunConfig::default()).await;
        (catalog, error.map(|error| error.to_string()))
    };
    let (catalog, error) = ask(1 << 30).await;
    assert_eq!(error, None);
    let peak = |component: &str| catalog.components[component].usage().memory.unwrap().max as u64;
    let (caller, model) = (peak("relay"), peak("gallery"));
    // Enough for each of the two, but not for both.
    let (_, error) = ask(caller.max(model) + caller.min(model) / 2).await;
    let error = error.unwrap();
    assert!(error.contains("model `component:gallery/echo`: all calls of this run together need more than"), "{error}");
}

#[tokio::test]
async fn a_model_that_fails_has_its_own_code() {
    let catalog = gallery(Limits::default()).await;
    for delivery in [StreamingMode::Off, StreamingMode::On] {
        let error = answer(&catalog, "fail", delivery).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Server);
        assert_eq!(error.to_string(), "model `component:gallery/echo`: there is no echo here (ECHO_FAILED)");
    }
}

#[tokio::test]
async fn a_model_that_spins_is_interrupted_by_its_cpu_time() {
    let catalog = gallery(Limits { cpu: Duration::from_millis(50), ..Limits::default() }).await;
    let error = answer(&catalog, "spin", StreamingMode::On).await.unwrap_err();
    assert_eq!(error.to_string(), "model `component:gallery/echo`: it exceeded its limit of 50ms of CPU time");
    assert_eq!(answer(&catalog, "hello", StreamingMode::Off).await.unwrap().len(), 1, "the next call works");
}

#[tokio::test]
async fn a_model_that_takes_too_long_is_interrupted() {
    let catalog = gallery(Limits { agent_wall: Duration::from_millis(100), ..Limits::default() }).await;
    let error = answer(&catalog, "spin", StreamingMode::On).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert!(error.to_string().ends_with("it exceeded its limit of 100ms of wall time"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_too_large_fails() {
    let catalog = gallery(Limits { result: 100_000, ..Limits::default() }).await;
    let words = "word ".repeat(20_000);
    let model = catalog.model(ECHO).unwrap();
    let mut pieces = model.generate(request(&words), StreamingMode::On).await.unwrap();
    let mut bytes = 0;
    let error = loop {
        match pieces.next().await.expect("an error before the end") {
            Ok(piece) => bytes += text(&piece).len(),
            Err(error) => break error,
        }
    };
    assert!(bytes > 5_000 && bytes < 100_000, "{bytes}");
    assert!(error.to_string().ends_with("it exceeded its limit of 100000 B in one result"), "{error}");
    assert!(pieces.next().await.is_none(), "nothing follows the error");
    let error = answer(&catalog, &words, StreamingMode::Off).await.unwrap_err();
    assert!(error.to_string().ends_with("it exceeded its limit of 100000 B in one result"), "{error}");
}

#[tokio::test]
async fn a_guest_ends_when_its_answer_is_dropped() {
    let catalog = alone().await;
    let model = catalog.model(ECHO).unwrap();
    let mut pieces = model.generate(request("one two three four five"), StreamingMode::On).await.unwrap();
    assert_eq!(text(&pieces.next().await.unwrap().unwrap()), "one ");
    drop(pieces);
    // The engine has room for one instance: this call waits until the other has ended.
    assert_eq!(answer(&catalog, "hello", StreamingMode::Off).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_spins_ends_with_its_caller() {
    let catalog = alone().await;
    let model = catalog.model(ECHO).unwrap();
    let mut spinning = Box::pin(model.generate(request("spin"), StreamingMode::Off));
    assert!(spinning.as_mut().now_or_never().is_none(), "it has not ended");
    drop(spinning);
    assert_eq!(answer(&catalog, "hello", StreamingMode::Off).await.unwrap().len(), 1);
}

#[tokio::test]
async fn names_of_components_models_are_resolved_in_the_catalog_and_all_others_elsewhere() {
    let handle = TestCatalog::new().with("gallery").open().await;
    let models = CatalogModels {
        catalog: handle,
        fallback: Arc::new(OneModel(Arc::new(Scripted::new().default_reply("rest")))),
    };
    for (name, expected) in [(ECHO, "hello"), ("gemini-2.5-flash", "rest"), ("scripted:a.yaml", "rest")] {
        let model = models.model(name).unwrap();
        let mut answer = model.generate(request("hello"), StreamingMode::Off).await.unwrap();
        assert_eq!(text(&answer.next().await.unwrap().unwrap()), expected);
    }
}

#[tokio::test]
async fn a_model_that_no_component_offers_is_unknown_and_the_others_are_named() {
    let handle = TestCatalog::new().with("gallery").open().await;
    for name in ["component:gallery/oracle", "component:echo", "component:"] {
        let error = handle.model(name).map(|_| ()).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::UnknownModel);
        assert_eq!(
            error.to_string(),
            format!(
                "model `{name}`: no component offers it; available: `component:gallery/echo`, `component:gallery/parrot`"
            )
        );
    }
    let none = TestCatalog::new().open().await.model(ECHO).map(|_| ()).unwrap_err().to_string();
    assert_eq!(none, "model `component:gallery/echo`: no component offers it; available: none");
}

/// Resolves every name to one model.
struct SingleModel(Arc<dyn Model>);

impl ModelResolver for SingleModel {
    fn model(&self, _: &str) -> Result<Arc<dyn Model>, ModelError> {
        Ok(self.0.clone())
    }
}
