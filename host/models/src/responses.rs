//! Provider for the responses API of OpenAI, or of a compatible server at `OPENAI_BASE_URL`.
//!
//! Nothing is stored at the provider: each request has the whole conversation, with the encrypted thoughts of the model.

mod input;
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
        capabilities::of_openai(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.create_with(name, &Connection::default())
    }

    fn create_with(&self, name: &str, connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        let connection = connection.or(&self.connection);
        let endpoint = Endpoint::new(name, Service::OpenAi, &connection, Authentication::Bearer, &self.http)?;
        let url = endpoint.url(["responses"])?;
        let model = name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
        Ok(Arc::new(Responses { model, capabilities: self.capabilities(name), url, endpoint }))
    }

    fn missing(&self) -> Option<String> {
        Service::OpenAi.info().missing(&self.connection)
    }

    fn base_url(&self) -> Option<String> {
        Service::OpenAi.info().base_url(&self.connection)
    }
}

struct Responses {
    model: String,
    capabilities: ModelCapabilities,
    url: Url,
    endpoint: Endpoint,
}

#[async_trait]
impl Model for Responses {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let origin = &self.endpoint.origin;
        let options = self.endpoint.options(&request.config)?;
        let bad_request = |message: String| origin.error(ModelErrorKind::BadRequest, message);
        let body = wire::request(&self.model, &request, streaming_mode).map_err(bad_request)?;
        let body = serde_json::to_vec(&body)
            .map_err(|error| bad_request(format!("the request cannot be written as JSON: {error}")))?;
        drop(request);
        let response = self.endpoint.post(&self.url, Bytes::from(body), &options).await?;
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
        self.capabilities
    }
}

/// Creates a decoder of a streamed response.
pub(crate) fn decoder(origin: Arc<Origin>) -> impl Decoder {
    streamed::EventDecoder::new(origin)
}
