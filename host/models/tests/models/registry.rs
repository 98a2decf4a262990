use std::sync::Arc;

use hatchery_core::{Model, ModelCapabilities, ModelError, ModelErrorKind, ModelResolver, ResponseGrouping};
use hatchery_models::scripted::Scripted;
use hatchery_models::{BaseUrl, ModelProvider, ModelProviders, Secret, Settings};

use crate::support::{generate, texts, user_request};

fn error(providers: &ModelProviders, name: &str) -> ModelError {
    match providers.model(name) {
        Ok(_) => panic!("{name} is served"),
        Err(error) => error,
    }
}

fn keys() -> Settings {
    Settings { gemini_api_key: Some("key-g".into()), openai_api_key: Some("key-o".into()), ..Settings::default() }
}

#[test]
fn a_name_resolves_to_its_provider() {
    let providers = ModelProviders::with_defaults(keys());
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
    ];
    for name in names {
        assert!(providers.model(name).is_ok(), "{name}");
    }
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
        ("openai/gpt-5", true, false, false),
        ("openai/anything", true, false, false),
        ("openai/projects/p/locations/l/publishers/google/models/gemini-3-pro", true, true, true),
        ("openai/gemini-2.5-pro", false, true, false),
        ("o3-mini", true, false, false),
        ("scripted:answers.yaml", false, true, false),
        ("claude-sonnet-4-5", false, false, false),
        ("component/gpt-5", false, false, false),
        ("", false, false, false),
    ] {
        let response_grouping = if is_grouped { ResponseGrouping::Batched } else { ResponseGrouping::PerCall };
        let expected = ModelCapabilities { schema_with_tools, built_in_tools, response_grouping };
        assert_eq!(with_keys.capabilities(name), expected, "{name}");
        assert_eq!(without.capabilities(name), expected, "{name}");
        if let Ok(model) = with_keys.model(name) {
            assert_eq!(model.capabilities(), expected, "{name}");
        }
    }
}

#[test]
fn an_unknown_name_is_rejected_with_the_known_ones() {
    let error = error(&ModelProviders::with_defaults(Settings::default()), "claude-9");
    assert_eq!(error.kind, ModelErrorKind::UnknownModel);
    assert_eq!(
        error.to_string(),
        "model `claude-9`: no provider serves this name; known names: \
         scripted:*, gemini-*, gemma-*, models/*, openai/*, gpt-*, o1*, o3*, o4*"
    );
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
        "no key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that wants none, or use a model without one, `scripted:<file>`"
    );
}

#[test]
fn a_key_with_invalid_characters_is_rejected_without_showing_it() {
    let providers =
        ModelProviders::with_defaults(Settings { gemini_api_key: Some("a\nb".into()), ..Settings::default() });
    let error = error(&providers, "gemini-2.5-flash");
    assert_eq!(error.message, "the key in GOOGLE_API_KEY or GEMINI_API_KEY has invalid characters");
}

#[test]
fn an_invalid_base_url_is_rejected_with_its_variable() {
    for url in ["nonsense", "ftp://host"] {
        let providers =
            ModelProviders::with_defaults(Settings { openai_base_url: Some(url.into()), ..Settings::default() });
        let error = error(&providers, "gpt-5");
        assert_eq!(error.kind, ModelErrorKind::BadRequest);
        assert!(error.message.starts_with("OPENAI_BASE_URL is not a usable URL ("), "{error}");
        assert!(error.message.ends_with("; write it as https://host/path"), "{error}");
    }
}

#[test]
fn a_key_is_not_sent_to_a_base_url_that_a_folder_names() {
    let url = || Some(BaseUrl::from_folder_config("https://evil.example"));
    let providers =
        ModelProviders::with_defaults(Settings { openai_base_url: url(), gemini_base_url: url(), ..keys() });
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
    let without_key = Settings { openai_base_url: url(), ..Settings::default() };
    assert!(ModelProviders::with_defaults(without_key).model("gpt-5").is_ok(), "there is no key to lose");
}

#[test]
fn a_key_goes_in_plain_text_to_this_machine_only() {
    let served = |url: &str| {
        let settings = Settings { openai_base_url: Some(url.into()), gemini_base_url: Some(url.into()), ..keys() };
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
             OPENAI_API_KEY for a server that wants none"
        );
        assert!(gemini.message.contains("write GOOGLE_GEMINI_BASE_URL with https"), "{gemini}");
    }
    let without_key = Settings { openai_base_url: Some("http://10.0.0.7:8080".into()), ..Settings::default() };
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

struct Own;

impl ModelProvider for Own {
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
    providers.register(Box::new(Own));
    for name in ["gpt-own", "mine/x"] {
        let answer = generate(providers.model(name).unwrap().as_ref(), user_request("?")).await.unwrap();
        assert_eq!(texts(&[answer]), [format!("I am {name}")]);
    }
    assert!(error(&providers, "gpt_other").message.ends_with("gpt-own, mine/*"));
}

#[tokio::test]
async fn names_beyond_the_thousandth_are_served_but_not_cached() {
    let mut providers = ModelProviders::new();
    providers.register(Box::new(Own));
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
        _ => None,
    };
    let settings = Settings::from_variables(variables);
    let expected = Settings {
        gemini_base_url: Some("http://g".into()),
        gemini_api_key: Some("gk".into()),
        openai_base_url: Some("http://o".into()),
        openai_api_key: Some("ok".into()),
        ..Settings::default()
    };
    assert_eq!(settings, expected);
    let both = Settings::from_variables(|name| name.ends_with("API_KEY").then(|| name.to_owned()));
    assert_eq!(both.gemini_api_key, Some(Secret::from("GOOGLE_API_KEY")));
}

#[test]
fn debug_output_never_shows_a_key() {
    let settings = Settings { openai_api_key: Some("sk-very-secret".into()), ..Settings::default() };
    let shown = format!("{settings:?}");
    assert!(shown.contains("[hidden]") && !shown.contains("secret"), "{shown}");
}
