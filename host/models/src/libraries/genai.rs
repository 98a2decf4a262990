//! Models of the library [genai](https://docs.rs/genai): `genai:NAME`, where a name that does not tell its provider has
//! it in front, as in `genai:groq::llama-3.3-70b-versatile`.

mod request;
mod response;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use hatchery_core::{LlmRequest, Model, ModelCapabilities, ModelError, ModelErrorKind, ResponseStream, StreamingMode};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

pub use self::request::{chat_options, chat_request};
use self::response::{StreamDecoder, complete_response};
use super::ConversionError;
use super::service::LibraryService;
use crate::capabilities::compatible_capabilities;
use crate::failure::Origin;
use crate::http::{Authentication, Endpoint, Http, IDLE_TIMEOUT, body_error, first_byte, retry_after, unreachable};
use crate::provider::ModelProvider;
use crate::service::{Service, ServiceInfo};
use crate::settings::{Connection, Settings};
use ::genai::adapter::AdapterKind;
use ::genai::chat::{ChatOptions, ChatRequest, ChatStreamEvent};
use ::genai::resolver::{AuthData, ProviderConfig};
use ::genai::{Client, Error, ModelIden, webc};

const PREFIX: &str = "genai:";

static SERVICES: LazyLock<Vec<(AdapterKind, LibraryService)>> = LazyLock::new(|| {
    let describe = |kind: &AdapterKind| {
        let key_variable = kind.default_key_env_name();
        (*kind, LibraryService::new("genai", kind.as_str(), builtin_service(*kind), key_variable, default_url(*kind)))
    };
    AdapterKind::all().iter().map(describe).collect()
});

/// Returns the services that only this library has.
pub(super) fn services() -> impl Iterator<Item = &'static ServiceInfo> {
    SERVICES.iter().filter(|(_, service)| service.builtin.is_none()).map(|(_, service)| &service.info)
}

fn builtin_service(kind: AdapterKind) -> Option<Service> {
    match kind {
        AdapterKind::OpenAI | AdapterKind::OpenAIResp => Some(Service::OpenAi),
        AdapterKind::Gemini | AdapterKind::GeminiIx => Some(Service::Gemini),
        AdapterKind::Anthropic => Some(Service::Anthropic),
        AdapterKind::OpenRouter => Some(Service::OpenRouter),
        AdapterKind::Ollama => Some(Service::Ollama),
        _ => None,
    }
}

/// Returns the URL to which the library sends the requests of a provider.
fn default_url(kind: AdapterKind) -> String {
    let target = async { Client::new()?.resolve_service_target(ModelIden::new(kind, "any")).await };
    match target.now_or_never() {
        Some(Ok(target)) => target.endpoint.base_url().to_owned(),
        _ => String::new(),
    }
}

/// Returns a base URL in the form of the library: with the version, and a slash at the end.
fn library_url(kind: AdapterKind, url: &str) -> String {
    let url = url.trim_end_matches('/');
    match kind {
        AdapterKind::Gemini | AdapterKind::GeminiIx => format!("{url}/v1beta/"),
        AdapterKind::Anthropic => format!("{url}/v1/"),
        AdapterKind::Ollama => format!("{}/", url.trim_end_matches("/v1")),
        _ => format!("{url}/"),
    }
}

/// Serves `genai:*`.
pub(crate) struct GenaiProvider {
    settings: Settings,
    http: Http,
}

impl GenaiProvider {
    pub(crate) fn new(settings: &Settings, http: Http) -> Self {
        Self { settings: settings.clone(), http }
    }
}

impl ModelProvider for GenaiProvider {
    fn label(&self) -> &'static str {
        "genai"
    }

    fn patterns(&self) -> &[&'static str] {
        &["genai:*"]
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        compatible_capabilities(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.create_with(name, &Connection::default())
    }

    fn create_with(&self, name: &str, connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        let model = name.strip_prefix(PREFIX).unwrap_or(name);
        let unknown = |reason: &str| ModelError::new(ModelErrorKind::UnknownModel, name, reason);
        if model.is_empty() {
            return Err(unknown(
                "the name ends with `genai:`; add a model, such as `genai:groq::llama-3.3-70b-versatile`",
            ));
        }
        let kind = AdapterKind::from_model(model).map_err(|error| unknown(&error.to_string()))?;
        let service = SERVICES.iter().find(|(known, _)| *known == kind).map(|(_, service)| service);
        let service = service.ok_or_else(|| unknown("genai has no provider of this name"))?;
        let connection = connection.or(&service.connection(&self.settings));
        let endpoint = Endpoint::for_service(name, &service.info, &connection, Authentication::Library, &self.http)?;
        // Without a key, the library would look for one in the environment.
        let key = connection.api_key.as_ref().map_or("", |key| key.expose());
        let mut provider = ProviderConfig::from_auth(AuthData::from_single(key));
        if let Some(url) = &connection.base_url {
            provider.endpoint = Some(::genai::resolver::Endpoint::from_owned(library_url(kind, url.as_str())));
        }
        let client = Client::builder()
            .with_reqwest(endpoint.client().clone())
            .append_provider_config(kind, provider)
            .build()
            .map_err(|error| endpoint.origin.error(ModelErrorKind::BadRequest, error.to_string()))?;
        Ok(Arc::new(GenaiModel { client, iden: ModelIden::new(kind, model), endpoint }))
    }
}

/// A model that the library calls.
struct GenaiModel {
    client: Client,
    iden: ModelIden,
    endpoint: Endpoint,
}

#[async_trait]
impl Model for GenaiModel {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let http_options = self.endpoint.options(&request.config)?;
        let converted = chat_request(&request)
            .and_then(|chat| Ok((chat, chat_options(self.iden.adapter_kind, &request.config, &http_options)?)));
        let (chat, mut options) =
            converted.map_err(|error: ConversionError| error.in_request(&self.endpoint.origin))?;
        let progress = request.progress.clone();
        drop(request);
        let headers = self.endpoint.request_headers(&http_options, &progress)?;
        let headers =
            headers.iter().filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
        options = options.with_extra_headers(headers.collect::<Vec<_>>()).with_stream_read_timeout(IDLE_TIMEOUT);
        let timeout = self.endpoint.timeout(&http_options);
        let begin = || self.begin(&chat, &options, streaming_mode, timeout);
        self.endpoint.retry(&http_options, &progress, |_| None, begin).await
    }

    fn capabilities(&self) -> ModelCapabilities {
        compatible_capabilities(&self.iden.model_name)
    }
}

impl GenaiModel {
    /// Sends the request once, and waits until the answer begins.
    async fn begin(
        &self,
        chat: &ChatRequest,
        options: &ChatOptions,
        streaming_mode: StreamingMode,
        timeout: Duration,
    ) -> Result<ResponseStream, ModelError> {
        let origin = &self.endpoint.origin;
        let (chat, iden) = (chat.clone(), self.iden.clone());
        match streaming_mode {
            StreamingMode::Off => {
                let answer = without_log(self.client.exec_chat(iden, chat, Some(options)));
                let answer = first_byte(answer, timeout, origin).await?.map_err(|error| model_error(error, origin))?;
                let response = complete_response(answer).map_err(|error| error.in_response(origin))?;
                Ok(stream::iter([Ok(response)]).boxed())
            }
            StreamingMode::On => {
                let opening = async {
                    let mut events = self.client.exec_chat_stream(iden, chat, Some(options)).await?.stream;
                    // The request is sent when the stream is polled, after the event of the start.
                    let mut first = events.next().await.transpose()?;
                    while matches!(first, Some(ChatStreamEvent::Start | ChatStreamEvent::Heartbeat)) {
                        first = events.next().await.transpose()?;
                    }
                    Ok((first, events))
                };
                let opened = first_byte(without_log(opening), timeout, origin).await?;
                let (first, events) = opened.map_err(|error| model_error(error, origin))?;
                let decoder = StreamDecoder::new(first, events, origin.clone());
                Ok(stream::unfold(decoder, |mut decoder| async move { Some((decoder.next().await?, decoder)) }).boxed())
            }
        }
    }
}

/// Runs a call of the library without its log, which has the bodies of requests and answers.
fn without_log<F: Future>(call: F) -> impl Future<Output = F::Output> {
    call.with_subscriber(NoSubscriber::new())
}

/// Returns the error of a failed call.
fn model_error(error: Error, origin: &Arc<Origin>) -> ModelError {
    match error {
        Error::HttpError { status, body, headers, .. } => {
            origin.status_error(status.as_u16(), body.as_bytes(), retry_after(&headers))
        }
        Error::WebModelCall { webc_error, .. } | Error::WebAdapterCall { webc_error, .. } => match webc_error {
            webc::Error::ResponseFailedStatus { status, body, headers } => {
                origin.status_error(status.as_u16(), body.as_bytes(), retry_after(&headers))
            }
            webc::Error::Reqwest(error) => unreachable(error, origin),
            webc::Error::ResponseFailedNotJson { content_type, .. } => {
                origin.bad_response(format!("expected JSON, got {content_type}"))
            }
            webc::Error::ResponseFailedInvalidJson { cause, .. } => origin.bad_response(cause),
            webc::Error::JsonValueExt(error) => origin.bad_response(error),
        },
        Error::WebStream { error, cause, .. } => match error.downcast::<Error>() {
            Ok(error) => model_error(*error, origin),
            Err(error) => match error.downcast::<reqwest::Error>() {
                Ok(error) if error.is_body() || error.is_decode() => body_error(*error, origin),
                Ok(error) => unreachable(*error, origin),
                Err(_) => origin
                    .error(ModelErrorKind::Network, format!("the answer of {} broke: {cause}", origin.provider_name())),
            },
        },
        Error::ChatResponse { body, .. } => origin.body_error(body.get("error").unwrap_or(&body)),
        Error::StreamParse { serde_error, .. } => origin.bad_response(serde_error),
        Error::ChatResponseGeneration { cause, .. } => origin.bad_response(cause),
        Error::NoChatResponse { .. } | Error::InvalidJsonResponseElement { .. } | Error::JsonValueExt(_) => {
            origin.bad_response(error)
        }
        error => origin.error(ModelErrorKind::BadRequest, error.to_string()),
    }
}
