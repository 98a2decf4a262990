//! The models of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream;
use hatchery_core::{
    AgentKind, LlmRequest, LlmResponse, Model, ModelError, ModelErrorKind, ModelRef, ModelResolver, ResponseStream,
    RunError, Services, StreamingMode,
};
use hatchery_engine::Runner;
use hatchery_engine::build::custom;
use hatchery_models::scripted::Scripted;
use serde_json::json;

use crate::support::*;

/// Resolves every name to a model that answers with the current generation.
struct Generations(Arc<AtomicUsize>);

impl ModelResolver for Generations {
    fn model(&self, _: &str) -> Result<Arc<dyn Model>, ModelError> {
        Ok(Arc::new(Scripted::new().default_reply(self.0.load(Ordering::Relaxed).to_string())))
    }
}

#[tokio::test]
async fn a_run_keeps_the_models_that_it_began_with() {
    let generation = Arc::new(AtomicUsize::new(1));
    let named =
        |name: &str| llm_with(name, Scripted::new(), |llm| llm.model = Some(ModelRef::Named("component:a/b".into())));
    let reloads = {
        let generation = generation.clone();
        custom("reloads", move |_| {
            generation.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        })
    };
    let root = workflow("flow", AgentKind::Sequential, vec![reloads.build().unwrap(), named("before"), named("after")]);
    let mut app = Harness::new(root).await;
    let models = Arc::new(Generations(generation));
    app.runner = Runner::new(Services { models, ..app.runner.services().clone() });
    assert_eq!(app.transcript("hi").await, ["before: 1", "after: 1"]);
    assert_eq!(app.transcript("again").await, ["before: 2", "after: 2"]);
}

/// Resolves every name, and counts how often it is asked.
#[derive(Default)]
struct CountingResolver(AtomicUsize);

impl ModelResolver for CountingResolver {
    fn model(&self, _: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Scripted::new()))
    }
}

#[tokio::test]
async fn a_run_keeps_no_models_with_long_names_and_at_most_a_thousand_others() {
    let root = custom("root", |cx| async move {
        let models = cx.call.invocation.services.models.clone();
        let long = "x".repeat(257);
        for name in ["short", "short", long.as_str(), long.as_str()] {
            models.model(name)?;
        }
        for number in 0..1000 {
            models.model(&format!("m{number}"))?;
        }
        models.model("m998")?;
        models.model("m999")?;
        Ok::<_, RunError>(())
    });
    let mut app = Harness::new(root.build().unwrap()).await;
    let models = Arc::new(CountingResolver::default());
    app.runner = Runner::new(Services { models: models.clone(), ..app.runner.services().clone() });
    app.run("hi").await;
    // `short` and `m0` to `m998` are kept.
    assert_eq!(models.0.load(Ordering::Relaxed), 1 + 2 + 1000 + 1);
}

#[tokio::test]
async fn models_get_json_schema_for_schemas_in_geminis_words() {
    let model = Arc::new(Scripted::sequence(["{}"]));
    let root = llm_on("root", &model, |llm| llm.output_schema = Some(json!({"type": "OBJECT", "nullable": true})));
    Harness::new(root).await.run("hi").await;
    assert_eq!(model.requests()[0].config.response_schema, Some(json!({"type": ["object", "null"]})));
}

#[tokio::test]
async fn a_response_schema_has_one_name_in_requests_to_models() {
    let model = Arc::new(Scripted::sequence(["{}", "{}"]));
    let (of_settings, of_agent) = (json!({"type": "object"}), json!({"type": "object", "properties": {}}));
    for output_schema in [None, Some(of_agent.clone())] {
        let root = llm_on("root", &model, |llm| {
            llm.generate_content_config.extra.insert("responseJsonSchema".into(), of_settings.clone());
            llm.output_schema = output_schema;
        });
        Harness::new(root).await.run("hi").await;
    }
    let configs: Vec<_> = model.requests().into_iter().map(|request| request.config).collect();
    let schemas: Vec<_> = configs.iter().map(|config| config.response_schema.clone()).collect();
    assert_eq!(schemas, [Some(of_settings), Some(of_agent)]);
    assert!(configs.iter().all(|config| config.extra.is_empty()));
}

/// A model that is down, one without a key, and one that answers.
struct ByName;

#[async_trait]
impl Model for ByName {
    async fn generate(&self, request: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        Err(ModelError::new(ModelErrorKind::Server, request.model, "down"))
    }
}

impl ModelResolver for ByName {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        match name {
            "down" => Ok(Arc::new(Self)),
            "works" => Ok(Arc::new(Scripted::new().default_reply("hello"))),
            _ => Err(ModelError::new(ModelErrorKind::Auth, name, "no key")),
        }
    }
}

#[tokio::test]
async fn the_models_of_a_fallback_take_over_in_order() {
    let root = |others: [&str; 2]| {
        let model = ModelRef::WithFallback("down".into(), others.map(String::from).into());
        llm_with("root", Scripted::new(), |llm| llm.model = Some(model))
    };
    let mut app = Harness::new(root(["keyless", "works"])).await;
    app.runner = Runner::new(Services { models: Arc::new(ByName), ..app.runner.services().clone() });
    assert_eq!(app.transcript("hi").await, ["root: hello"]);
    let mut app = Harness::new(root(["keyless", "down"])).await;
    app.runner = Runner::new(Services { models: Arc::new(ByName), ..app.runner.services().clone() });
    let (_, error) = app.expect_error("hi").await;
    assert_eq!(error.to_string(), "model `down`: down; `down`: down");
}

/// Answers with the number of retries that it could make, two at most.
struct Flaky;

#[async_trait]
impl Model for Flaky {
    async fn generate(&self, request: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        let mut retries = 0;
        while retries < 2 && request.progress.exhausted_retries().is_none() {
            request.progress.count_retry();
            retries += 1;
        }
        Ok(stream::iter([Ok(LlmResponse::text(retries.to_string()))]).boxed())
    }
}

#[tokio::test]
async fn all_model_calls_of_a_run_share_its_retries() {
    let flaky = |name: &str| {
        llm_with(name, Scripted::new(), |llm| llm.model = Some(ModelRef::Object("flaky".into(), Arc::new(Flaky))))
    };
    let root = workflow("flow", AgentKind::Sequential, vec![flaky("a"), flaky("b"), flaky("c")]);
    let mut app = Harness::new(root).await;
    assert_eq!(app.transcript("hi").await, ["a: 2", "b: 2", "c: 2"]);
    app.config.max_model_retries = 3;
    assert_eq!(app.transcript("hi").await, ["a: 2", "b: 1", "c: 0"]);
    app.config.max_model_retries = 0;
    assert_eq!(app.transcript("hi").await, ["a: 2", "b: 2", "c: 2"]);
}
