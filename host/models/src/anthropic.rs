//! Provider for Claude through the Anthropic Messages API, or the one of Vertex AI.
//!
//! A call serializes the conversation once. Settings that have no counterpart are omitted. The setting
//! `httpOptions.extraBody.cache_control` marks the instructions with the tools, and the last message, for the prompt
//! cache.

mod messages;
mod settings;
mod streamed;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use hatchery_core::{LlmRequest, Model, ModelCapabilities, ModelError, ModelErrorKind, ResponseStream, StreamingMode};
use reqwest::Url;

use crate::capabilities;
use crate::failure::Origin;
use crate::http::{Authentication, Endpoint, Http};
use crate::registry::ModelProvider;
use crate::service::Service;
use crate::settings::{Connection, Settings};
use crate::sse::{self, Decoder};
use crate::vertex::VertexPath;

const API_VERSION: &str = "2023-06-01";
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// Serves `claude-*` and `anthropic/*`.
pub(crate) struct AnthropicProvider {
    connection: Connection,
    http: Http,
}

impl AnthropicProvider {
    pub(crate) fn new(settings: &Settings, http: Http) -> Self {
        Self { connection: settings.connection(Service::Anthropic), http }
    }
}

impl ModelProvider for AnthropicProvider {
    fn label(&self) -> &'static str {
        Service::Anthropic.info().name
    }

    fn patterns(&self) -> &[&'static str] {
        &["claude-*", "anthropic/*"]
    }

    fn capabilities(&self, _name: &str) -> ModelCapabilities {
        capabilities::of_anthropic()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.create_with(name, &Connection::default())
    }

    fn create_with(&self, name: &str, connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        let connection = connection.or(&self.connection);
        let authentication = Authentication::Header("x-api-key");
        let endpoint = Endpoint::new(name, Service::Anthropic, &connection, authentication, &self.http)?
            .with_header("anthropic-version", API_VERSION);
        let url = endpoint.url(["v1", "messages"])?;
        let model = name.strip_prefix("anthropic/").unwrap_or(name).to_owned();
        Ok(Arc::new(Anthropic { model, route: Route::Messages(url), endpoint }))
    }

    fn missing(&self) -> Option<String> {
        Service::Anthropic.info().missing(&self.connection)
    }

    fn base_url(&self) -> Option<String> {
        Service::Anthropic.info().base_url(&self.connection)
    }
}

/// Where a model is called.
enum Route {
    Messages(Url),
    Vertex(VertexPath),
}

struct Anthropic {
    model: String,
    route: Route,
    endpoint: Endpoint,
}

/// Creates a model of Vertex AI.
pub(crate) fn on_vertex(path: VertexPath, endpoint: Endpoint) -> Arc<dyn Model> {
    Arc::new(Anthropic { model: path.model.clone(), route: Route::Vertex(path), endpoint })
}

impl Anthropic {
    fn body(&self, request: &LlmRequest, streaming_mode: StreamingMode) -> Result<Bytes, ModelError> {
        let bad_request = |message: String| self.endpoint.origin.error(ModelErrorKind::BadRequest, message);
        let target = match self.route {
            Route::Messages(_) => wire::Target::Model(&self.model),
            Route::Vertex(_) => wire::Target::ApiVersion(VERTEX_VERSION),
        };
        let body = wire::request(target, request, streaming_mode).map_err(bad_request)?;
        serde_json::to_vec(&body)
            .map(Bytes::from)
            .map_err(|error| bad_request(format!("the request cannot be written as JSON: {error}")))
    }

    async fn url(&self, streaming_mode: StreamingMode) -> Result<Url, ModelError> {
        let method = match streaming_mode {
            StreamingMode::Off => "rawPredict",
            StreamingMode::On => "streamRawPredict",
        };
        match &self.route {
            Route::Messages(url) => Ok(url.clone()),
            Route::Vertex(path) => path.url(&self.endpoint, method).await,
        }
    }
}

#[async_trait]
impl Model for Anthropic {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let origin = &self.endpoint.origin;
        let options = self.endpoint.options(&request.config)?;
        let body = self.body(&request, streaming_mode)?;
        drop(request);
        let url = self.url(streaming_mode).await?;
        let response = self.endpoint.post(&url, body, &options).await?;
        match streaming_mode {
            StreamingMode::Off => {
                let body = self.endpoint.read_body(response).await?;
                let response = wire::parse_response(&body, origin)?;
                Ok(stream::iter([Ok(response)]).boxed())
            }
            StreamingMode::On => {
                let payloads = sse::payloads(self.endpoint.event_stream(response)?, origin.clone());
                Ok(sse::responses(payloads, decoder(origin.clone())))
            }
        }
    }

    fn capabilities(&self) -> ModelCapabilities {
        capabilities::of_anthropic()
    }
}

/// Creates a decoder of a streamed response.
pub(crate) fn decoder(origin: Arc<Origin>) -> impl Decoder {
    streamed::EventDecoder::new(origin)
}
