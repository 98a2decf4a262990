//! Provider for Claude through the Anthropic Messages API, or the one of Vertex AI.
//!
//! A call serializes the conversation once. Settings that have no counterpart are omitted. The setting
//! `httpOptions.extraBody.cache_control` marks the instructions with the tools, and the last message, for the prompt
//! cache.

mod messages;
mod schema;
mod settings;
mod streamed;
mod version;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{HttpOptions, LlmRequest, LlmResponse, Model, ModelCapabilities, ModelError, StreamingMode};
use reqwest::Url;

pub(crate) use self::version::ClaudeVersion;
use crate::capabilities::{anthropic_capabilities, vertex_claude_capabilities};
use crate::failure::Origin;
use crate::http::{Authentication, BETA_HEADER, Endpoint, Http, to_json};
use crate::http_model::{HttpModel, WireFormat};
use crate::provider::ModelProvider;
use crate::service::Service;
use crate::settings::{Connection, Settings};
use crate::sse::Decoder;
use crate::vertex::VertexPath;

const API_VERSION: &str = "2023-06-01";
/// The feature that drops thoughts which do not belong to their conversation any more.
const THOUGHT_BINDING: &str = "thinking-binding-controls-2026-08-01";
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

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        anthropic_capabilities(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.create_with(name, &Connection::default())
    }

    fn create_with(&self, name: &str, connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        let connection = connection.or(&self.connection);
        let authentication = Authentication::Header("x-api-key");
        let model = name.strip_prefix("anthropic/").unwrap_or(name).to_owned();
        let mut endpoint = Endpoint::new(name, Service::Anthropic, &connection, authentication, &self.http)?
            .with_header("anthropic-version", API_VERSION);
        if ClaudeVersion::of(&model).has_bound_thoughts() {
            endpoint = endpoint.with_header(BETA_HEADER, THOUGHT_BINDING);
        }
        let url = endpoint.url(["v1", "messages"])?;
        Ok(HttpModel::create(MessagesFormat { model, route: Route::Messages(url) }, endpoint))
    }

    fn missing_variables(&self) -> Option<String> {
        Service::Anthropic.info().missing_variables(&self.connection)
    }

    fn base_url(&self) -> Option<String> {
        Service::Anthropic.info().base_url(&self.connection)
    }
}

/// The API that a model is called on.
enum Route {
    Messages(Url),
    Vertex(VertexPath),
}

/// The wire format of messages.
pub(crate) struct MessagesFormat {
    model: String,
    route: Route,
}

/// Creates a model of Vertex AI.
pub(crate) fn on_vertex(path: VertexPath, endpoint: Endpoint) -> Arc<dyn Model> {
    HttpModel::create(MessagesFormat { model: path.model.clone(), route: Route::Vertex(path) }, endpoint)
}

impl WireFormat for MessagesFormat {
    fn capabilities(&self) -> ModelCapabilities {
        match self.route {
            Route::Messages(_) => anthropic_capabilities(&self.model),
            Route::Vertex(_) => vertex_claude_capabilities(),
        }
    }

    async fn url(&self, endpoint: &Endpoint, streaming_mode: StreamingMode) -> Result<Url, ModelError> {
        let method = match streaming_mode {
            StreamingMode::Off => "rawPredict",
            StreamingMode::On => "streamRawPredict",
        };
        match &self.route {
            Route::Messages(url) => Ok(url.clone()),
            Route::Vertex(path) => path.url(endpoint, method).await,
        }
    }

    fn body(&self, request: &LlmRequest, _: &HttpOptions, streaming_mode: StreamingMode) -> Result<Bytes, String> {
        let target = match self.route {
            Route::Messages(_) => wire::Target::Anthropic,
            Route::Vertex(_) => wire::Target::Vertex { api_version: VERTEX_VERSION },
        };
        to_json(&wire::request(&self.model, target, request, streaming_mode)?)
    }

    fn parse_response(body: &[u8], origin: &Origin) -> Result<LlmResponse, ModelError> {
        wire::parse_response(body, origin)
    }

    fn decoder(origin: Arc<Origin>) -> impl Decoder {
        streamed::EventDecoder::new(origin)
    }
}
