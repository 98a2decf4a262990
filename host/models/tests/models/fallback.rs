//! Models that are replaced by others if they fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use hatchery_core::{
    FallbackModel, Model, ModelCapabilities, ModelError, ModelErrorKind, ModelResolver, ResponseGrouping, StreamingMode,
};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_models::{ModelProvider, ModelProviders, Service, Settings};

use crate::support::{call_error, generate, stream, texts, user_request};

/// Serves `own/NAME` with a script that the name selects.
struct OwnProvider;

impl ModelProvider for OwnProvider {
    fn patterns(&self) -> &[&'static str] {
        &["own/*"]
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let reply = match name.strip_prefix("own/").unwrap() {
            "busy" => Reply::error(ModelErrorKind::RateLimited, "slow down"),
            "invalid" => Reply::error(ModelErrorKind::BadRequest, "no"),
            "breaks" => Reply::text("half").with_error(ModelErrorKind::Network, "gone").after(1),
            "breaks-at-once" => Reply::text("none").with_error(ModelErrorKind::Network, "gone").after(0),
            _ => Reply::text(format!("I am {name}")),
        };
        Ok(Arc::new(Scripted::new().default_reply(reply)))
    }
}

fn providers(fallbacks: &[(&str, &[&str])]) -> ModelProviders {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let fallbacks: BTreeMap<_, _> =
        fallbacks.iter().map(|(name, others)| ((*name).to_owned(), names(others))).collect();
    let mut providers = ModelProviders::with_defaults(Settings { fallbacks, ..Settings::default() });
    providers.register(Box::new(OwnProvider));
    providers
}

#[tokio::test]
async fn the_next_model_answers_if_one_fails_before_its_first_response() {
    let providers = providers(&[("own/busy", &["own/breaks-at-once", "gpt-5", "own/b"])]);
    let model = providers.model("own/busy").unwrap();
    let response = generate(model.as_ref(), user_request("?")).await.unwrap();
    assert_eq!(texts(&[response]), ["I am own/b"]);
    let items = stream(model.as_ref(), user_request("?")).await;
    assert_eq!(texts(&[items[0].clone().unwrap()]), ["I am own/b"]);
}

#[tokio::test]
async fn a_stream_that_breaks_after_its_first_response_is_not_continued_by_another_model() {
    let model = providers(&[("own/breaks", &["own/b"])]).model("own/breaks").unwrap();
    let items = stream(model.as_ref(), user_request("?")).await;
    assert_eq!(texts(&[items[0].clone().unwrap()]), ["half"]);
    assert_eq!(items[1].as_ref().unwrap_err().kind, ModelErrorKind::Network);
    assert_eq!(items.len(), 2);
}

#[tokio::test]
async fn an_invalid_request_is_not_sent_to_the_next_model() {
    let model = providers(&[("own/invalid", &["own/b"])]).model("own/invalid").unwrap();
    let error = call_error(model.as_ref(), user_request("?"), StreamingMode::Off).await;
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::BadRequest, "no"));
}

#[tokio::test]
async fn if_all_models_fail_the_error_names_each() {
    let model = providers(&[("own/busy", &["own/breaks-at-once"])]).model("own/busy").unwrap();
    let error = call_error(model.as_ref(), user_request("?"), StreamingMode::On).await;
    assert_eq!(error.kind, ModelErrorKind::RateLimited);
    assert_eq!(error.to_string(), "model `own/busy`: slow down; `own/breaks-at-once`: gone");
}

#[test]
fn a_model_whose_key_is_missing_is_skipped_unless_it_is_the_last() {
    let providers = providers(&[("gpt-5", &["own/b"]), ("gpt-4", &["claude-x", "unheard-of"])]);
    assert!(providers.model("gpt-5").is_ok());
    let error = providers.model("gpt-4").map(|_| ()).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Auth);
    assert!(error.message.starts_with("no key: set OPENAI_API_KEY"), "{error}");
    assert!(error.message.contains("; `claude-x`: no key: set ANTHROPIC_API_KEY"), "{error}");
    assert!(error.message.contains("; `unheard-of`: no provider serves this name"), "{error}");
}

#[test]
fn a_list_of_models_supports_what_all_of_them_support() {
    let settings =
        Settings { fallbacks: [("gpt-5".to_owned(), vec!["gemini-3-pro".to_owned()])].into(), ..Settings::default() };
    let providers =
        ModelProviders::with_defaults(settings.with_key(Service::OpenAi, "o").with_key(Service::Gemini, "g"));
    let expected = ModelCapabilities {
        schema_with_tools: true,
        lacks_response_schema: false,
        built_in_tools: false,
        response_grouping: ResponseGrouping::Batched,
        live: false,
    };
    assert_eq!(providers.capabilities("gpt-5"), expected);
    assert_eq!(providers.model("gpt-5").unwrap().capabilities(), expected);
}

#[tokio::test]
async fn a_list_can_be_made_of_instances() {
    let model = |reply: &str| Ok(Arc::new(Scripted::new().default_reply(reply)) as Arc<dyn Model>);
    let models = FallbackModel::new([("a".to_owned(), model("I am a")), ("b".to_owned(), model("I am b"))]).unwrap();
    assert_eq!(texts(&[generate(&models, user_request("?")).await.unwrap()]), ["I am a"]);
    let empty = FallbackModel::new([]).unwrap();
    let error = call_error(&empty, user_request("?"), StreamingMode::Off).await;
    assert_eq!(error.message, "the list of models is empty");
}
