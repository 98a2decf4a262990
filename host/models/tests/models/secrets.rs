//! No secret appears in logs of any level, errors, debug output or traces.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use futures::StreamExt;
use hatchery_core::{
    ModelResolver, RunError, SessionKey, SpanContext, SpanData, SpanExporter, SpanOperation, StreamingMode, TraceParent,
};
use hatchery_models::{Connection, GoogleCloud, ModelProviders, Service, Settings};
use serde_json::json;
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

use crate::support::{BodyEnd, MockProvider, MockResponse, call_error, event, user_request};

/// All keys, headers and tokens contain this.
const SECRET: &str = "s3cret";

const MODELS: &[&str] = &[
    "gemini-2.5-flash",
    "vertex/gemini-2.5-flash",
    "vertex/claude-x",
    "claude-x",
    "gpt-5",
    "openai-responses/gpt-5",
    "openrouter/x",
    "ollama/x",
    "vllm/x",
    "llamacpp/x",
    "apigee/gemini/x",
    "apigee/vertex_ai/x",
    #[cfg(feature = "genai")]
    "genai:anthropic::x",
    #[cfg(feature = "genai")]
    "genai:gemini::x",
    #[cfg(feature = "genai")]
    "genai:groq::x",
    #[cfg(feature = "genai")]
    "genai:openai::x",
    #[cfg(feature = "rig")]
    "rig:anthropic:x",
    #[cfg(feature = "rig")]
    "rig:gcp.gemini:x",
    #[cfg(feature = "rig")]
    "rig:groq:x",
    #[cfg(feature = "rig")]
    "rig:openai:x",
];

/// With a single subscriber, an event that a thread without one records first would be disabled for all threads.
static SECOND_SUBSCRIBER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// Keeps all that exporters get of spans.
#[derive(Default)]
struct Spans(Mutex<Vec<String>>);

impl SpanExporter for Spans {
    fn export(&self, span: &Arc<SpanData>) {
        let content = span.content.as_ref().map(|content| content.attributes());
        let text = format!("{} {:?} {content:?} {:?}", span.name, span.attributes(), span.error);
        self.0.lock().unwrap().push(text);
    }

    fn captures_content(&self) -> bool {
        true
    }

    fn is_sampled(&self, _: u128, _: Option<&TraceParent>) -> bool {
        true
    }
}

fn settings(provider: &MockProvider, folder: &tempfile::TempDir) -> Settings {
    let credentials = folder.path().join("credentials.json");
    let token_uri = format!("{}/token", provider.url);
    let json = json!({
        "type": "authorized_user", "client_id": "c", "client_secret": "client-s3cret",
        "refresh_token": "refresh-s3cret", "token_uri": token_uri,
    });
    std::fs::write(&credentials, json.to_string()).unwrap();
    let google_cloud =
        GoogleCloud { project: Some("p".into()), credentials_file: Some(credentials), ..GoogleCloud::default() };
    let settings = Settings { google_cloud, ..Settings::default() };
    let mut settings = Service::ALL.into_iter().fold(settings, |settings, service| {
        settings.with_base_url(service, provider.url.as_str()).with_key(service, format!("{service:?}-{SECRET}"))
    });
    let groq = Connection {
        base_url: Some(provider.url.as_str().into()),
        api_key: Some(format!("groq-{SECRET}").as_str().into()),
        ..Connection::default()
    };
    settings.libraries.insert("GROQ".into(), groq);
    for connection in settings.connections.values_mut().chain(settings.libraries.values_mut()) {
        connection.headers.insert("x-gateway".into(), format!("header-{SECRET}").as_str().into());
    }
    settings
}

#[tokio::test]
async fn no_secret_is_emitted_whatever_a_provider_answers() {
    LazyLock::force(&SECOND_SUBSCRIBER);
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let folder = tempfile::tempdir().unwrap();
    // The provider repeats all that it has received.
    let provider = MockProvider::echo([
        |echo: &str| MockResponse::json(json!({ "error": { "message": echo } })).status(401),
        |echo: &str| MockResponse::json(echo).status(500),
        |echo: &str| MockResponse::json(json!([{ "error": echo }])).status(400),
        |echo: &str| MockResponse::json(json!({ "error": { "message": echo } })),
        |echo: &str| MockResponse::events([event(json!({ "type": "error", "error": { "message": echo } }))]),
        |echo: &str| MockResponse::events([format!("data: {echo}\n\n")]).ending(BodyEnd::Error),
    ])
    .await;
    let settings = settings(&provider, &folder);
    let mut emitted = vec![format!("{settings:?}")];
    let providers = ModelProviders::with_defaults(settings);
    emitted.push(format!("{providers:?} {:?}", providers.providers().collect::<Vec<_>>()));
    let spans = Arc::new(Spans::default());
    let trace = SpanContext::new(spans.clone(), SessionKey::new("app", "ada", "s"), "e-1", None);
    for name in MODELS {
        let model = providers.model(name).unwrap();
        for mode in [StreamingMode::Off, StreamingMode::On] {
            for _ in 0..6 {
                let mut request = user_request("hi");
                let options = json!({ "retryOptions": { "attempts": 2, "initialDelay": 0.001 } });
                request.config.extra.insert("httpOptions".into(), options);
                let mut span = trace.start(SpanOperation::Model, "");
                request.progress = span.begin_model_call();
                span.set_request(&Arc::new(request.clone()));
                match model.generate(request, mode).await {
                    Ok(responses) => emitted.push(format!("{:?}", responses.collect::<Vec<_>>().await)),
                    Err(error) => {
                        emitted.push(format!("{error} {error:?}"));
                        span.set_error(&RunError::Model(error));
                    }
                }
                span.finish();
            }
        }
    }
    assert!(log.text().contains("retrying the model call"), "the log is empty");
    emitted.push(log.text());
    let spans = std::mem::take(&mut *spans.0.lock().unwrap());
    assert!(spans.iter().any(|span| span.starts_with("model_attempt 2")), "no attempt is traced");
    emitted.extend(spans);
    let is_echoed = provider.requests().iter().any(|request| format!("{:?}", request.headers).contains(SECRET));
    assert!(is_echoed, "no secret was sent");
    for text in emitted {
        let position = text.find(SECRET);
        let context = position.and_then(|at| text.get(at.saturating_sub(200)..(at + 20).min(text.len())));
        assert_eq!(position, None, "{context:?}");
    }
}

#[tokio::test]
async fn no_beginning_of_a_secret_is_left_where_an_error_is_shortened() {
    let text = format!("{}openai-key is wrong", "x".repeat(495));
    let error = || json!({ "error": { "message": text } });
    let answers = [MockResponse::json(error()).status(400), MockResponse::json(error())];
    let provider = MockProvider::start(answers).await;
    for start in ["OpenAI answered HTTP 400: ", "OpenAI reports: "] {
        let error = call_error(provider.openai().as_ref(), user_request("hi"), StreamingMode::Off).await;
        assert_eq!(error.message, format!("{start}{}[key]…", "x".repeat(495)));
    }
}
