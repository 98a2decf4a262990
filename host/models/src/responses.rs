//! Provider for the responses API of OpenAI, or of a compatible server at `OPENAI_BASE_URL`.
//!
//! Nothing is stored at the provider: each request has the whole conversation, with the encrypted thoughts of the
//! model.

mod input;
mod streamed;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{HttpOptions, LlmRequest, LlmResponse, Model, ModelCapabilities, ModelError, StreamingMode};
use reqwest::Url;
use serde_json::Value;

use crate::capabilities::openai_capabilities;
use crate::failure::Origin;
use crate::http::{Authentication, Endpoint, Http, to_json};
use crate::http_model::{HttpModel, WireFormat};
use crate::provider::ModelProvider;
use crate::service::Service;
use crate::settings::{Connection, Settings};
use crate::sse::Decoder;

const PREFIX: &str = "openai-responses/";

/// Serves `openai-responses/*`.
pub(crate) struct ResponsesProvider {
    connection: Connection,
    http: Http,
}

impl ResponsesProvider {
    pub(crate) fn new(settings: &Settings, http: Http) -> Self {
        Self { connection: settings.connection(Service::OpenAi), http }
    }
}

impl ModelProvider for ResponsesProvider {
    fn label(&self) -> &'static str {
        "OpenAI responses"
    }

    fn patterns(&self) -> &[&'static str] {
        &["openai-responses/*"]
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        openai_capabilities(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.create_with(name, &Connection::default())
    }

    fn create_with(&self, name: &str, connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        let connection = connection.or(&self.connection);
        let endpoint = Endpoint::new(name, Service::OpenAi, &connection, Authentication::Bearer, &self.http)?;
        let url = endpoint.url(["responses"])?;
        let model = name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
        Ok(HttpModel::create(ResponsesFormat { model, capabilities: self.capabilities(name), url }, endpoint))
    }

    fn missing_variables(&self) -> Option<String> {
        Service::OpenAi.info().missing_variables(&self.connection)
    }

    fn base_url(&self) -> Option<String> {
        Service::OpenAi.info().base_url(&self.connection)
    }
}

/// The wire format of responses.
pub(crate) struct ResponsesFormat {
    model: String,
    capabilities: ModelCapabilities,
    url: Url,
}

impl WireFormat for ResponsesFormat {
    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities
    }

    async fn url(&self, _: &Endpoint, _: StreamingMode) -> Result<Url, ModelError> {
        Ok(self.url.clone())
    }

    fn body(&self, request: &LlmRequest, _: &HttpOptions, streaming_mode: StreamingMode) -> Result<Bytes, String> {
        to_json(&wire::request(&self.model, request, streaming_mode)?)
    }

    fn parse_response(body: &[u8], origin: &Origin) -> Result<LlmResponse, ModelError> {
        wire::parse_response(body, origin)
    }

    fn decoder(origin: Arc<Origin>) -> impl Decoder {
        streamed::EventDecoder::new(origin)
    }
}

/// Returns the conversation of a request as items, without encrypted thoughts.
pub(crate) fn conversation_items(request: &LlmRequest) -> Result<Vec<Value>, String> {
    let items = input::items(request)?;
    let items = items.into_iter().filter(|item| !matches!(item, input::Item::Reasoning { .. }));
    let written = items.map(serde_json::to_value).collect::<Result<_, _>>();
    written.map_err(|error| format!("the conversation cannot be written as JSON: {error}"))
}
