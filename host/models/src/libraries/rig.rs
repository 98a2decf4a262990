//! Models of the library [rig](https://docs.rs/rig-core): `rig:PROVIDER:NAME`, such as `rig:deepseek:deepseek-chat`. A
//! provider with several wire formats has that in its name, as in `rig:moonshot/anthropic:kimi-k2`.

mod request;
mod response;
mod transport;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use hatchery_core::{LlmRequest, Model, ModelCapabilities, ModelError, ModelErrorKind, ResponseStream, StreamingMode};
use rig_core::completion::CompletionRequest;
use rig_core::error::ProviderError;
use rig_core::http_client;
use rig_core::providers::registry::{Format, ProviderId, ProviderRef};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

pub use self::request::completion_request;
use self::response::{StreamDecoder, response};
use self::transport::Transport;
use super::service::LibraryService;
use crate::Secret;
use crate::capabilities::compatible_capabilities;
use crate::failure::Origin;
use crate::http::{Authentication, Endpoint, Http, first_byte};
use crate::provider::ModelProvider;
use crate::service::{Service, ServiceInfo};
use crate::settings::{Connection, Settings};

const PREFIX: &str = "rig:";

static SERVICES: LazyLock<Vec<(ProviderId, LibraryService)>> = LazyLock::new(|| {
    let describe = |id: ProviderId| {
        let url = id.config("").map(|config| config.base_url().to_owned()).unwrap_or_default();
        let key_variable = id.api_key_env().filter(|_| id.requires_credential());
        (id, LibraryService::new("rig", id.vendor(), builtin_service(id), key_variable, url))
    };
    ProviderId::all().map(describe).collect()
});

/// Returns the services that only this library has.
pub(super) fn services() -> impl Iterator<Item = &'static ServiceInfo> {
    SERVICES.iter().filter(|(_, service)| service.builtin.is_none()).map(|(_, service)| &service.info)
}

fn builtin_service(id: ProviderId) -> Option<Service> {
    match id.vendor() {
        "openai" => Some(Service::OpenAi),
        "anthropic" => Some(Service::Anthropic),
        "gcp.gemini" => Some(Service::Gemini),
        "openrouter" => Some(Service::OpenRouter),
        "ollama" => Some(Service::Ollama),
        "llamacpp" => Some(Service::LlamaCpp),
        _ => None,
    }
}

/// Serves `rig:*`.
pub(crate) struct RigProvider {
    settings: Settings,
    http: Http,
}

impl RigProvider {
    pub(crate) fn new(settings: &Settings, http: Http) -> Self {
        Self { settings: settings.clone(), http }
    }
}

impl ModelProvider for RigProvider {
    fn label(&self) -> &'static str {
        "rig"
    }

    fn patterns(&self) -> &[&'static str] {
        &["rig:*"]
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        compatible_capabilities(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.create_with(name, &Connection::default())
    }

    fn create_with(&self, name: &str, connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        let unknown = |reason: String| ModelError::new(ModelErrorKind::UnknownModel, name, reason);
        let reference = ProviderRef::parse(name.strip_prefix(PREFIX).unwrap_or(name))
            .map_err(|error| unknown(format!("{error}; write it as `rig:PROVIDER:MODEL`")))?;
        let id = reference.id().ok_or_else(|| unknown("rig has no provider of this name".into()))?;
        let service = SERVICES.iter().find(|(known, _)| *known == id).map(|(_, service)| service);
        let service = service.ok_or_else(|| unknown("rig has no provider of this name".into()))?;
        let connection = connection.or(&service.connection(&self.settings));
        let endpoint = Endpoint::for_service(name, &service.info, &connection, Authentication::Library, &self.http)?;
        let reference = match &connection.base_url {
            None => reference,
            Some(url) => {
                let config = reference.config("").with_base_url(url.as_str());
                ProviderRef::configured(config, reference.model()).map_err(|error| unknown(error.to_string()))?
            }
        };
        let key = connection.api_key.unwrap_or_else(|| Secret::from(""));
        Ok(Arc::new(RigModel { reference, format: id.format(), key, endpoint }))
    }
}

/// A model that the library calls.
struct RigModel {
    reference: ProviderRef,
    format: Option<Format>,
    /// Empty if the server requires none.
    key: Secret,
    endpoint: Endpoint,
}

#[async_trait]
impl Model for RigModel {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let options = self.endpoint.options(&request.config)?;
        let converted = completion_request(self.format, &request, &options)
            .map_err(|error| error.in_request(&self.endpoint.origin))?;
        let progress = request.progress.clone();
        drop(request);
        let headers = self.endpoint.request_headers(&options, &progress)?;
        let timeout = self.endpoint.timeout(&options);
        let transport = Transport::new(self.endpoint.clone(), headers, timeout);
        let begin = || self.begin(&converted, &transport, streaming_mode, timeout);
        self.endpoint.retry(&options, &progress, |_| None, begin).await
    }

    fn capabilities(&self) -> ModelCapabilities {
        compatible_capabilities(self.reference.model())
    }
}

impl RigModel {
    /// Sends the request once, and waits until the answer begins.
    async fn begin(
        &self,
        request: &CompletionRequest,
        transport: &Transport,
        streaming_mode: StreamingMode,
        timeout: Duration,
    ) -> Result<ResponseStream, ModelError> {
        let origin = &self.endpoint.origin;
        let model = self.reference.completion_model_with(self.key.expose(), transport.clone());
        let failed = |error| model_error(&error, origin);
        match streaming_mode {
            StreamingMode::Off => {
                let answer = without_log(model.call(request.clone())).await.map_err(failed)?;
                let response = response(&answer, false).map_err(|error| error.in_response(origin))?;
                Ok(stream::iter([Ok(response)]).boxed())
            }
            StreamingMode::On => {
                let mut events = without_log(async { model.stream(request.clone()) }).await.map_err(failed)?;
                // The request is sent when the stream is polled.
                let first =
                    first_byte(without_log(events.next()), timeout, origin).await?.transpose().map_err(failed)?;
                let decoder = StreamDecoder::new(first, events, origin.clone());
                Ok(stream::unfold(decoder, |mut decoder| async move { Some((decoder.next().await?, decoder)) }).boxed())
            }
        }
    }
}

/// Runs a call of the library without its log and its spans.
fn without_log<F: Future>(call: F) -> impl Future<Output = F::Output> {
    call.with_subscriber(NoSubscriber::new())
}

/// Returns the error of a failed call. Failures of requests are the transport's.
fn model_error(error: &ProviderError, origin: &Arc<Origin>) -> ModelError {
    match error {
        ProviderError::Http(error) => match &**error {
            http_client::Error::Instance(error) => match error.downcast_ref::<ModelError>() {
                Some(error) => error.clone(),
                None => origin.error(ModelErrorKind::Network, error.to_string()),
            },
            http_client::Error::InvalidContentType(content_type) => origin
                .bad_response(format!("expected an event stream, got {}", content_type.to_str().unwrap_or_default())),
            error => origin.error(ModelErrorKind::Network, error.to_string()),
        },
        ProviderError::ProviderResponse(_) | ProviderError::InvalidAuthentication(_) => {
            let body = error.provider_response_json().ok().flatten();
            match body.as_ref().map(|body| body.get("error").unwrap_or(body)) {
                Some(error) => origin.body_error(error),
                None => origin.bad_response(error),
            }
        }
        ProviderError::Truncated => origin.incomplete_answer(),
        ProviderError::Json(_) | ProviderError::Response(_) | ProviderError::Provider(_) => origin.bad_response(error),
        error => origin.error(ModelErrorKind::BadRequest, error.to_string()),
    }
}
