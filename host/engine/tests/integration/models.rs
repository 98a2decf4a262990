//! The models of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hatchery_core::{AgentKind, Model, ModelError, ModelRef, ModelResolver, Services};
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
async fn the_models_of_a_run_are_those_of_its_beginning() {
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

#[tokio::test]
async fn models_get_json_schema_for_schemas_in_geminis_words() {
    let model = Arc::new(Scripted::sequence(["{}"]));
    let root = llm_on("root", &model, |llm| llm.output_schema = Some(json!({"type": "OBJECT", "nullable": true})));
    Harness::new(root).await.run("hi").await;
    assert_eq!(model.requests()[0].config.response_schema, Some(json!({"type": ["object", "null"]})));
}
