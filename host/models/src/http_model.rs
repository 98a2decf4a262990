//! A model behind an HTTP API: one request and one response, or one event stream, in the wire format of the API.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use hatchery_core::{
    HttpOptions, LiveConnection, LlmRequest, LlmResponse, Model, ModelCapabilities, ModelError, ModelErrorKind,
    ResponseStream, StreamingMode,
};
use reqwest::Url;

use crate::failure::Origin;
use crate::http::Endpoint;
use crate::sse::{self, Decoder};

/// The wire format of one model: its URL, and the bodies of requests and responses.
pub(crate) trait WireFormat: Send + Sync + 'static {
    /// Returns the capabilities of the model.
    fn capabilities(&self) -> ModelCapabilities;

    /// Returns the URL of a request.
    fn url(
        &self,
        endpoint: &Endpoint,
        streaming_mode: StreamingMode,
    ) -> impl Future<Output = Result<Url, ModelError>> + Send;

    /// Serializes a request. The error names the content that the format cannot represent.
    fn body(&self, request: &LlmRequest, options: &HttpOptions, streaming_mode: StreamingMode)
    -> Result<Bytes, String>;

    /// Opens a live connection. The default has none.
    fn connect(
        &self,
        endpoint: &Endpoint,
        request: LlmRequest,
    ) -> impl Future<Output = Result<Box<dyn LiveConnection>, ModelError>> + Send {
        let _ = endpoint;
        async move { Err(ModelError::not_live(request.model)) }
    }

    /// Parses a response that is not streamed.
    fn parse_response(body: &[u8], origin: &Origin) -> Result<LlmResponse, ModelError>;

    /// Creates the decoder of an event stream.
    fn decoder(origin: Arc<Origin>) -> impl Decoder;
}

/// A [`Model`] that is called in the format `F`.
pub(crate) struct HttpModel<F> {
    format: F,
    endpoint: Endpoint,
}

impl<F: WireFormat> HttpModel<F> {
    /// Creates a model. Does not connect.
    pub(crate) fn create(format: F, endpoint: Endpoint) -> Arc<dyn Model> {
        Arc::new(Self { format, endpoint })
    }
}

#[async_trait]
impl<F: WireFormat> Model for HttpModel<F> {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let origin = &self.endpoint.origin;
        let options = self.endpoint.options(&request.config)?;
        let body = self
            .format
            .body(&request, &options, streaming_mode)
            .map_err(|message| origin.error(ModelErrorKind::BadRequest, message))?;
        // The conversation is not kept in memory while the model answers.
        let progress = request.progress.clone();
        drop(request);
        let url = self.format.url(&self.endpoint, streaming_mode).await?;
        let response = self.endpoint.post(&url, body, &options, &progress).await?;
        match streaming_mode {
            StreamingMode::Off => {
                let body = self.endpoint.read_body(response).await?;
                let response = F::parse_response(&body, origin)?;
                Ok(stream::iter([Ok(response)]).boxed())
            }
            StreamingMode::On => {
                let payloads = sse::payloads(self.endpoint.event_stream(response)?, origin.clone());
                Ok(sse::responses(payloads, F::decoder(origin.clone())))
            }
        }
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        request.progress.set_provider(self.endpoint.origin.service.provider);
        self.format.connect(&self.endpoint, request).await
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.format.capabilities()
    }
}
