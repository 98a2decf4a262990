//! The registry: names, precedence and missing settings of providers.

use std::sync::Arc;

use hatchery_core::{Model, ModelCapabilities, ModelError, ModelErrorKind, ModelResolver, ResponseGrouping};
use hatchery_models::scripted::Scripted;
use hatchery_models::{BaseUrl, Connection, GoogleCloud, ModelProvider, ModelProviders, Secret, Service, Settings};

use serde_json::json;

use crate::support::{MockProvider, MockResponse, generate, texts, user_request};

fn error(providers: &ModelProviders, name: &str) -> ModelError {
    match providers.model(name) {
        Ok(_) => panic!("{name} is served"),
        Err(error) => error,
    }
}

fn keys() -> Settings {
    Settings::default().with_key(Service::Gemini, "key-g").with_key(Service::OpenAi, "key-o")
}

#[test]
fn vertex_ai_is_reached_at_the_endpoint_of_the_location() {
    for (location, expected) in [
        (None, "https://aiplatform.googleapis.com"),
        (Some("global"), "https://aiplatform.googleapis.com"),
        (Some("europe-west4"), "https://europe-west4-aiplatform.googleapis.com"),
        (Some("eu"), "https://aiplatform.eu.rep.googleapis.com"),
        (Some("us"), "https://aiplatform.us.rep.googleapis.com"),
    ] {
        let google_cloud = GoogleCloud { location: location.map(Into::into), ..GoogleCloud::default() };
        let providers = ModelProviders::with_defaults(Settings { google_cloud, ..Settings::default() });
        let vertex = providers.providers().find(|provider| provider.label == "Vertex AI").unwrap();
        assert_eq!(vertex.base_url.as_deref(), Some(expected));
    }
}

#[test]
fn a_name_resolves_to_its_provider() {
    let settings = keys().with_key(Service::Anthropic, "a").with_key(Service::OpenRouter, "r");
    let settings = [Service::Ollama, Service::Vllm, Service::LlamaCpp, Service::Apigee]
        .into_iter()
        .fold(settings, |settings, service| settings.with_base_url(service, "http://localhost:1"));
    let google_cloud = GoogleCloud { project: Some("p".into()), ..GoogleCloud::default() };
    let providers = ModelProviders::with_defaults(Settings { google_cloud, ..settings });
    let names = [
        "gemini-2.5-flash",
        "gemma-3-27b-it",
        "models/gemini-2.5-pro",
        "openai/whatever/model",
        "gpt-5",
        "o1",
        "o3-mini",
        "o4-mini",
        "scripted:answers.yaml",
        "vertex/gemini-2.5-flash",
        "vertex/claude-sonnet-4-5",
        "projects/p/locations/l/publishers/google/models/gemini-2.5-flash",
        "claude-sonnet-4-5",
        "anthropic/claude-sonnet-4-5",
        "openai-responses/gpt-5",
        "openrouter/meta/llama",
        "ollama/llama3.2",
        "vllm/org/model",
        "llamacpp/any",
        "apigee/gemini-2.5-flash",
        "apigee/v1/gemini-2.5-flash",
        "apigee/gemini/v1beta/gemini-2.5-flash",
        "apigee/vertex_ai/gemini-2.5-flash",
        "apigee/vertex_ai/v1/gemini-2.5-flash",
        "apigee/openai/gpt-5",
    ];
    for name in names {
        assert!(providers.model(name).is_ok(), "{name}");
    }
    assert!(providers.providers().all(|provider| provider.missing.is_none()));
}

#[test]
fn providers_know_the_capabilities_of_their_models_with_and_without_a_key() {
    let (with_keys, without) =
        (ModelProviders::with_defaults(keys()), ModelProviders::with_defaults(Settings::default()));
    // Name, schema beside tools, built-in tools, grouped responses.
    for (name, schema_with_tools, built_in_tools, is_grouped) in [
        ("gemini-3-pro-preview", true, true, true),
        ("gemini-3.1-flash", true, true, true),
        ("gemini-10-pro", true, true, false),
        ("models/gemini-3-flash", true, true, true),
        ("gemini-2.5-flash", false, true, false),
        ("gemini-2.5-pro", false, true, false),
        ("models/gemini-2.0-flash", false, true, false),
        ("gemini-1.5-pro", false, false, false),
        ("gemini-pro", false, false, false),
        ("gemini-flash-latest", false, true, false),
        ("gemma-2", false, false, false),
        ("gemma-3-27b", false, false, false),
        ("gpt-5", true, false, false),
        ("gpt-4o-mini", true, false, false),
        ("gemini-2.5-flash-native-audio-preview-12-2025", false, true, false),
        ("gpt-realtime", false, false, false),
        ("openai/gpt-5", true, false, false),
        ("openai/anything", true, false, false),
        ("openai/projects/p/locations/l/publishers/google/models/gemini-3-pro", true, true, true),
        ("openai/gemini-2.5-pro", false, true, false),
        ("o3-mini", true, false, false),
        ("scripted:answers.yaml", false, true, false),
        ("claude-sonnet-4-5", false, false, false),
        ("claude-3-7-sonnet-latest", false, false, false),
        ("claude-sonnet-4-20250514", false, false, false),
        ("claude-opus-4-1", false, false, false),
        ("claude-opus-5", false, false, false),
        ("anthropic/any-model", false, false, false),
        ("vertex/gemini-3-pro", true, true, true),
        ("vertex/claude-sonnet-4-5", false, false, false),
        ("openai-responses/gpt-5", true, false, false),
        ("ollama/llama3.2", false, false, false),
        ("openrouter/google/gemini-3-pro", false, false, true),
        ("openrouter/anthropic/claude-3.5-sonnet", false, false, false),
        ("openai/deepseek-chat", false, false, false),
        ("openai/mistral-large-latest", false, false, false),
        ("apigee/gemini/gemini-3-pro", true, true, true),
        ("apigee/openai/gpt-5", true, false, false),
        ("apigee/nonsense/x/y/z", false, false, false),
        ("component/gpt-5", false, false, false),
        ("", false, false, false),
    ] {
        let response_grouping = if is_grouped { ResponseGrouping::Batched } else { ResponseGrouping::PerCall };
        let live = name.contains("native-audio") || name.contains("realtime");
        let without_schemas = [
            "claude-3",
            "claude-sonnet-4-2",
            "claude-opus-4-1",
            "vertex/claude",
            "openrouter/anthropic/claude-3",
            "openai/deepseek",
        ];
        let lacks_response_schema = without_schemas.iter().any(|start| name.starts_with(start));
        let expected =
            ModelCapabilities { schema_with_tools, lacks_response_schema, built_in_tools, response_grouping, live };
        assert_eq!(with_keys.capabilities(name), expected, "{name}");
        assert_eq!(without.capabilities(name), expected, "{name}");
        if let Ok(model) = with_keys.model(name) {
            assert_eq!(model.capabilities(), expected, "{name}");
        }
    }
}

#[test]
fn an_unknown_name_is_rejected_with_the_known_ones_and_what_is_missing() {
    let error = error(&ModelProviders::with_defaults(keys()), "unheard-of");
    assert_eq!(error.kind, ModelErrorKind::UnknownModel);
    assert_eq!(
        error.to_string(),
        "model `unheard-of`: no provider serves this name; known names: scripted:*, scripted-live:*, gemini-*, gemma-*, models/*, \
         openai-responses/*, openai/*, gpt-*, o1*, o3*, o4*; usable with a setting: \
         vertex/*, projects/* (set GOOGLE_CLOUD_PROJECT, or GOOGLE_APPLICATION_CREDENTIALS to the file of a service account); \
         claude-*, anthropic/* (set ANTHROPIC_API_KEY); openrouter/* (set OPENROUTER_API_KEY); \
         ollama/* (set OLLAMA_BASE_URL, such as http://localhost:11434/v1); \
         vllm/* (set VLLM_BASE_URL, such as http://localhost:8000/v1); \
         llamacpp/* (set LLAMACPP_BASE_URL, such as http://localhost:8080/v1); \
         apigee/* (set APIGEE_PROXY_URL, such as https://gateway.example/path)"
    );
}

#[test]
fn a_misspelt_prefix_is_answered_with_the_right_one() {
    let providers = ModelProviders::with_defaults(Settings::default());
    for (name, pattern) in [
        ("gemni-2.5-flash", "gemini-*"),
        ("gtp-5", "gpt-*"),
        ("cluade-sonnet-4", "claude-*"),
        ("olama/llama3.2", "ollama/*"),
        ("scriptd:hello/answers.yaml", "scripted:*"),
    ] {
        let error = error(&providers, name);
        assert_eq!(error.kind, ModelErrorKind::UnknownModel);
        assert_eq!(error.message, format!("no provider serves this name; did you mean `{pattern}`?"), "{name}");
    }
}

#[test]
fn an_empty_registry_reports_that_it_is_empty() {
    assert_eq!(error(&ModelProviders::new(), "m").message, "no provider serves this name, and none is registered");
}

#[test]
fn a_missing_key_is_an_error_with_the_variable_to_set() {
    let providers = ModelProviders::with_defaults(Settings::default());
    let gemini = error(&providers, "gemini-2.5-flash");
    assert_eq!(gemini.kind, ModelErrorKind::Auth);
    assert_eq!(
        gemini.message,
        "no key: set GOOGLE_API_KEY or GEMINI_API_KEY, or use a model without one, `scripted:<file>`"
    );
    let openai = error(&providers, "gpt-5");
    assert_eq!(openai.kind, ModelErrorKind::Auth);
    assert_eq!(
        openai.message,
        "no key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that needs none, or use a model without one, `scripted:<file>`"
    );
}

#[test]
fn a_key_with_invalid_characters_is_rejected_without_showing_it() {
    let providers = ModelProviders::with_defaults(Settings::default().with_key(Service::Gemini, "a\nb"));
    let error = error(&providers, "gemini-2.5-flash");
    assert_eq!(error.message, "the key in GOOGLE_API_KEY or GEMINI_API_KEY has invalid characters");
}

#[test]
fn an_invalid_base_url_is_rejected_with_its_variable() {
    for url in ["nonsense", "ftp://host"] {
        let providers = ModelProviders::with_defaults(Settings::default().with_base_url(Service::OpenAi, url));
        let error = error(&providers, "gpt-5");
        assert_eq!(error.kind, ModelErrorKind::BadRequest);
        assert!(error.message.starts_with("OPENAI_BASE_URL is not a usable URL ("), "{error}");
        assert!(error.message.ends_with("; write it as https://host/path"), "{error}");
    }
}

#[test]
fn a_key_is_not_sent_to_a_base_url_that_a_folder_names() {
    let url = || BaseUrl::from_folder_config("https://evil.example");
    let settings = keys().with_base_url(Service::OpenAi, url()).with_base_url(Service::Gemini, url());
    let providers = ModelProviders::with_defaults(settings);
    for (model, key, variable) in [
        ("gpt-5", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ("gemini-2.5-flash", "GOOGLE_API_KEY or GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    ] {
        let error = error(&providers, model);
        assert_eq!(error.kind, ModelErrorKind::Auth);
        assert_eq!(
            error.message,
            format!(
                "the key in {key} is not sent to the base URL that the folder's hatchery.yaml names; set {variable}, or let the \
                 operator look at the file and run `hatchery trust DIR`"
            )
        );
    }
    let without_key = Settings::default().with_base_url(Service::OpenAi, url());
    assert!(ModelProviders::with_defaults(without_key).model("gpt-5").is_ok(), "there is no key to lose");
}

#[test]
fn a_key_goes_in_plain_text_to_this_machine_only() {
    let served = |url: &str| {
        let settings = keys().with_base_url(Service::OpenAi, url).with_base_url(Service::Gemini, url);
        let providers = ModelProviders::with_defaults(settings);
        ["gpt-5", "gemini-2.5-flash"].map(|model| providers.model(model).map(|_| ()))
    };
    for url in ["http://127.0.0.1:11434/v1", "http://localhost:1", "http://[::1]:1", "https://proxy.example"] {
        assert!(served(url).iter().all(Result::is_ok), "{url}");
    }
    for url in ["http://proxy.example", "http://10.0.0.7:8080", "http://localhost.evil.example", "HTTP://proxy.example"]
    {
        let [openai, gemini] = served(url).map(Result::unwrap_err);
        assert_eq!(
            openai.message,
            "the key in OPENAI_API_KEY is not sent in plain text to another machine; write OPENAI_BASE_URL with https, or unset \
             OPENAI_API_KEY for a server that needs none"
        );
        assert!(gemini.message.contains("write GOOGLE_GEMINI_BASE_URL with https"), "{gemini}");
    }
    let without_key = Settings::default().with_base_url(Service::OpenAi, "http://10.0.0.7:8080");
    assert!(ModelProviders::with_defaults(without_key).model("gpt-5").is_ok());
}

#[test]
fn a_scripted_name_without_a_file_is_rejected() {
    let error = error(&ModelProviders::with_defaults(Settings::default()), "scripted:");
    assert_eq!(error.message, "the file is missing; write `scripted:<file>`, such as `scripted:answers.yaml`");
}

#[test]
fn one_name_is_one_instance() {
    let providers = ModelProviders::with_defaults(keys());
    let first = providers.model("gpt-5").unwrap();
    assert!(Arc::ptr_eq(&first, &providers.model("gpt-5").unwrap()));
    assert!(!Arc::ptr_eq(&first, &providers.model("gpt-5-mini").unwrap()));
}

struct OwnProvider;

impl ModelProvider for OwnProvider {
    fn patterns(&self) -> &[&'static str] {
        &["gpt-own", "mine/*"]
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        Ok(Arc::new(Scripted::new().default_reply(format!("I am {name}"))))
    }
}

#[tokio::test]
async fn a_later_provider_takes_precedence_even_for_a_cached_name() {
    let mut providers = ModelProviders::with_defaults(keys());
    providers.model("gpt-own").unwrap();
    providers.register(Box::new(OwnProvider));
    for name in ["gpt-own", "mine/x"] {
        let answer = generate(providers.model(name).unwrap().as_ref(), user_request("?")).await.unwrap();
        assert_eq!(texts(&[answer]), [format!("I am {name}")]);
    }
    assert!(error(&providers, "gpt_other").message.contains("o4*, gpt-own, mine/*; usable"));
}

struct WildcardProvider;

impl ModelProvider for WildcardProvider {
    fn patterns(&self) -> &[&'static str] {
        &["openai*"]
    }

    fn create(&self, _name: &str) -> Result<Arc<dyn Model>, ModelError> {
        Ok(Arc::new(Scripted::new().default_reply("mine")))
    }
}

#[tokio::test]
async fn a_registered_provider_takes_precedence_over_a_more_specific_built_in_one() {
    let mut providers = ModelProviders::with_defaults(keys());
    providers.register(Box::new(WildcardProvider));
    for name in ["openai/gpt-5", "openai-responses/gpt-5"] {
        let answer = generate(providers.model(name).unwrap().as_ref(), user_request("?")).await.unwrap();
        assert_eq!(texts(&[answer]), ["mine"]);
    }
}

#[tokio::test]
async fn a_connection_in_code_overrides_the_settings_and_has_its_own_instance() {
    let provider = MockProvider::start((0..2).map(|_| {
        MockResponse::json(json!({ "choices": [{ "message": { "content": "ok" }, "finish_reason": "stop" }] }))
    }))
    .await;
    let providers =
        ModelProviders::with_defaults(keys().with_base_url(Service::OpenAi, format!("{}/shared", provider.url)));
    let connection = |key: &str| Connection { api_key: Some(key.into()), ..Connection::default() };
    let own = providers.model_with("gpt-5", &connection("mine")).unwrap();
    assert!(Arc::ptr_eq(&own, &providers.model_with("gpt-5", &connection("mine")).unwrap()));
    assert!(!Arc::ptr_eq(&own, &providers.model_with("gpt-5", &connection("yours")).unwrap()));
    assert!(!Arc::ptr_eq(&own, &providers.model("gpt-5").unwrap()));
    generate(own.as_ref(), user_request("?")).await.unwrap();
    let elsewhere = Connection {
        base_url: Some(format!("{}/own", provider.url).as_str().into()),
        headers: [("x-team".to_owned(), "red".into())].into(),
        ..Connection::default()
    };
    generate(providers.model_with("gpt-5", &elsewhere).unwrap().as_ref(), user_request("?")).await.unwrap();
    let received = provider.requests();
    assert_eq!(received[0].target, "/shared/chat/completions");
    assert_eq!(received[0].headers["authorization"], "Bearer mine");
    assert_eq!(received[1].target, "/own/chat/completions");
    assert_eq!(received[1].headers["authorization"], "Bearer key-o");
    assert_eq!(received[1].headers["x-team"], "red");
    let error = providers.model_with("scripted:a.yaml", &connection("mine")).map(|_| ()).unwrap_err();
    assert_eq!(error.message, "models of the provider `scripted` take no key or URL of their own");
}

#[tokio::test]
async fn a_client_in_code_sends_the_requests() {
    let provider = MockProvider::start([MockResponse::json(
        json!({ "choices": [{ "message": { "content": "ok" }, "finish_reason": "stop" }] }),
    )])
    .await;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = reqwest::Client::builder().user_agent("mine/1").build().unwrap();
    let settings = Settings::default().with_base_url(Service::OpenAi, provider.url.as_str());
    let model = ModelProviders::with_client(settings, client).model("gpt-5").unwrap();
    generate(model.as_ref(), user_request("?")).await.unwrap();
    assert_eq!(provider.requests()[0].headers["user-agent"], "mine/1");
}

#[test]
fn an_invalid_apigee_name_is_rejected_with_its_form() {
    let settings = Settings::default().with_base_url(Service::Apigee, "https://gateway.example");
    let providers = ModelProviders::with_defaults(settings);
    for name in
        ["apigee/", "apigee/a//b", "apigee/meta/llama", "apigee/openai/v1/gpt-5", "apigee/gemini/x/y", "apigee/a/b/c/d"]
    {
        assert_eq!(
            error(&providers, name).message,
            "the name is not of the form apigee/[PROVIDER/][VERSION/]MODEL; the providers are gemini, vertex_ai and openai, \
             which has no version, and a version begins with `v`",
            "{name}"
        );
    }
    let without_url = ModelProviders::with_defaults(Settings::default());
    assert_eq!(
        error(&without_url, "apigee/gemini/x").message,
        "no URL: set APIGEE_PROXY_URL, such as https://gateway.example/path, or use a model without one, `scripted:<file>`"
    );
}

#[tokio::test]
async fn an_apigee_gateway_gets_the_keys_of_the_providers_and_its_own_headers() {
    let answers = [
        json!({ "candidates": [{ "finishReason": "STOP" }] }),
        json!({ "choices": [{ "message": { "content": "ok" }, "finish_reason": "stop" }] }),
    ];
    let provider = MockProvider::start(answers.map(MockResponse::json)).await;
    let mut settings = keys().with_base_url(Service::Apigee, format!("{}/gateway", provider.url));
    let gateway = settings.connections.get_mut(&Service::Apigee).unwrap();
    gateway.headers.insert("x-apikey".into(), "gateway-key".into());
    let providers = ModelProviders::with_defaults(settings);
    for name in ["apigee/gemini-2.5-flash", "apigee/openai/gpt-5"] {
        generate(providers.model(name).unwrap().as_ref(), user_request("?")).await.unwrap();
    }
    let received = provider.requests();
    assert_eq!(received[0].target, "/gateway/v1beta/models/gemini-2.5-flash:generateContent");
    assert_eq!(received[0].headers["x-goog-api-key"], "key-g");
    assert_eq!(received[1].target, "/gateway/chat/completions");
    assert_eq!(received[1].headers["authorization"], "Bearer key-o");
    assert!(received.iter().all(|request| request.headers["x-apikey"] == "gateway-key"));
}

#[test]
fn a_header_that_cannot_be_sent_is_named() {
    let mut settings = Settings::default().with_base_url(Service::Apigee, "https://gateway.example");
    let gateway = settings.connections.get_mut(&Service::Apigee).unwrap();
    gateway.headers.insert("not a name".into(), "x".into());
    let error = error(&ModelProviders::with_defaults(settings), "apigee/gemini/x");
    assert_eq!(error.message, "the header `not a name` of Apigee cannot be sent");
}

#[tokio::test]
async fn names_beyond_the_thousandth_are_served_but_not_cached() {
    let mut providers = ModelProviders::new();
    providers.register(Box::new(OwnProvider));
    for index in 0..1_000 {
        providers.model(&format!("mine/{index}")).unwrap();
    }
    assert!(Arc::ptr_eq(&providers.model("mine/999").unwrap(), &providers.model("mine/999").unwrap()));
    assert!(!Arc::ptr_eq(&providers.model("mine/1000").unwrap(), &providers.model("mine/1000").unwrap()));
}

#[test]
fn settings_come_from_the_usual_variables() {
    let variables = |name: &str| match name {
        "GOOGLE_GEMINI_BASE_URL" => Some("http://g".to_owned()),
        "GOOGLE_API_KEY" => Some("  ".to_owned()),
        "GEMINI_API_KEY" => Some("gk\n".to_owned()),
        "OPENAI_BASE_URL" => Some("http://o".to_owned()),
        "OPENAI_API_KEY" => Some("ok".to_owned()),
        "ANTHROPIC_API_KEY" => Some("ak".to_owned()),
        "APIGEE_HEADERS" => Some("X-Team: red\n x-apikey : k:1 \nnonsense".to_owned()),
        "GOOGLE_CLOUD_PROJECT" => Some("p".to_owned()),
        "GOOGLE_APPLICATION_CREDENTIALS" => Some("/etc/key.json".to_owned()),
        "GOOGLE_GENAI_USE_VERTEXAI" => Some("True".to_owned()),
        "HOME" => Some("/home/ada".to_owned()),
        _ => None,
    };
    let settings = Settings::from_variables(variables);
    let mut expected = Settings::default()
        .with_base_url(Service::Gemini, "http://g")
        .with_key(Service::Gemini, "gk")
        .with_base_url(Service::OpenAi, "http://o")
        .with_key(Service::OpenAi, "ok")
        .with_key(Service::Anthropic, "ak");
    let headers = [("x-team".to_owned(), "red".into()), ("x-apikey".to_owned(), "k:1".into())];
    expected.connections.entry(Service::Apigee).or_default().headers = headers.into();
    expected.google_cloud = GoogleCloud {
        project: Some("p".into()),
        credentials_file: Some("/etc/key.json".into()),
        config_folder: Some("/home/ada/.config/gcloud".into()),
        use_vertex: true,
        ..GoogleCloud::default()
    };
    assert_eq!(settings, expected);
    let both = Settings::from_variables(|name| name.ends_with("API_KEY").then(|| name.to_owned()));
    assert_eq!(both.connections[&Service::Gemini].api_key, Some(Secret::from("GOOGLE_API_KEY")));
}

#[test]
fn the_key_of_a_service_and_the_location_can_be_read() {
    let settings = Settings::from_variables(|name| match name {
        "GEMINI_API_KEY" => Some("the-key".into()),
        "GOOGLE_CLOUD_LOCATION" => Some("europe-west4".into()),
        _ => None,
    });
    assert_eq!(settings.api_key(Service::Gemini).map(|key| key.expose()), Some("the-key"));
    assert_eq!(settings.api_key(Service::OpenAi), None);
    assert_eq!((settings.location(), Settings::default().location()), ("europe-west4", "global"));
}

#[test]
fn debug_output_never_shows_a_key() {
    let settings = Settings::default().with_key(Service::OpenAi, "sk-very-secret");
    let debug = format!("{settings:?}");
    assert!(debug.contains("[hidden]") && !debug.contains("secret"), "{debug}");
}
