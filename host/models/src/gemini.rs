//! Provider for Gemini and Gemma through the Gemini API (`generateContent`, `streamGenerateContent?alt=sse`), or the
//! one of Vertex AI, and for live connections (`BidiGenerateContent`).
//!
//! A call serializes the conversation once, directly from the shared contents.

mod embeddings;
mod live;
mod partial_args;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{
    Embedder, HttpOptions, LiveConnection, LlmRequest, LlmResponse, Model, ModelCapabilities, ModelError,
    ModelErrorKind, StreamingMode,
};
use reqwest::Url;

use self::embeddings::GeminiEmbedder;
use self::live::Dialer;
use self::partial_args::PartialCalls;
use crate::capabilities::gemini_capabilities;
use crate::failure::Origin;
use crate::finish;
use crate::http::{Authentication, Endpoint, Http};
use crate::http_model::{HttpModel, WireFormat};
use crate::provider::ModelProvider;
use crate::service::Service;
use crate::settings::{Connection, Settings};
use crate::sse::Decoder;
use crate::vertex::{VertexPath, VertexProvider};

/// The header of the key.
pub(crate) const KEY_HEADER: &str = "x-goog-api-key";
/// The version of the API.
pub(crate) const VERSION: &str = "v1beta";
/// Paths of live connections, on the Gemini API and on Vertex AI.
const LIVE_PATH: [&str; 2] = ["ws", "google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"];
const VERTEX_LIVE_PATH: [&str; 3] = ["ws", "google.cloud.aiplatform.v1beta1.LlmBidiService", "BidiGenerateContent"];

/// Serves `gemini-*`, `gemma-*` and `models/*`.
pub(crate) struct GeminiProvider {
    connection: Connection,
    vertex: VertexProvider,
    http: Http,
}

impl GeminiProvider {
    pub(crate) fn new(settings: &Settings, http: Http, vertex: VertexProvider) -> Self {
        Self { connection: settings.connection(Service::Gemini), vertex, http }
    }

    fn endpoint(&self, name: &str, connection: &Connection) -> Result<Endpoint, ModelError> {
        Endpoint::new(name, Service::Gemini, connection, Authentication::Header(KEY_HEADER), &self.http)
    }
}

impl ModelProvider for GeminiProvider {
    fn label(&self) -> &'static str {
        Service::Gemini.info().name
    }

    fn patterns(&self) -> &[&'static str] {
        &["gemini-*", "gemma-*", "models/*"]
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        gemini_capabilities(name).unwrap_or_default()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        if self.vertex.is_preferred() {
            self.vertex.create(name.strip_prefix("models/").unwrap_or(name))
        } else {
            self.create_with(name, &Connection::default())
        }
    }

    fn create_with(&self, name: &str, connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        let endpoint = self.endpoint(name, &connection.or(&self.connection))?;
        on_api(name.strip_prefix("models/").unwrap_or(name), VERSION, endpoint, self.capabilities(name))
    }

    fn embedder_patterns(&self) -> &[&'static str] {
        &["gemini-embedding-*", "models/*"]
    }

    fn create_embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        if self.vertex.is_preferred() {
            return self.vertex.create_embedder(name.strip_prefix("models/").unwrap_or(name));
        }
        let endpoint = self.endpoint(name, &self.connection)?;
        Ok(Arc::new(GeminiEmbedder::new(name.strip_prefix("models/").unwrap_or(name), endpoint)?))
    }

    fn missing_variables(&self) -> Option<String> {
        if self.vertex.is_preferred() {
            self.vertex.missing_variables()
        } else {
            Service::Gemini.info().missing_variables(&self.connection)
        }
    }

    fn base_url(&self) -> Option<String> {
        if self.vertex.is_preferred() {
            self.vertex.base_url()
        } else {
            Service::Gemini.info().base_url(&self.connection)
        }
    }
}

/// The API that a model is called on.
enum Route {
    Api { generate: Url, stream: Url },
    Vertex(VertexPath),
}

/// The wire format of `generateContent`.
pub(crate) struct GeminiFormat {
    model: String,
    capabilities: ModelCapabilities,
    route: Route,
}

/// Creates a model of the Gemini API.
pub(crate) fn on_api(
    model: &str,
    version: &str,
    endpoint: Endpoint,
    capabilities: ModelCapabilities,
) -> Result<Arc<dyn Model>, ModelError> {
    let url = |method: &str| endpoint.url([version, "models", &format!("{model}:{method}")]);
    let route = Route::Api { generate: url("generateContent")?, stream: with_sse(url("streamGenerateContent")?) };
    Ok(HttpModel::create(GeminiFormat { model: model.to_owned(), capabilities, route }, endpoint))
}

/// Creates a model of Vertex AI.
pub(crate) fn on_vertex(path: VertexPath, endpoint: Endpoint, capabilities: ModelCapabilities) -> Arc<dyn Model> {
    HttpModel::create(GeminiFormat { model: path.model.clone(), capabilities, route: Route::Vertex(path) }, endpoint)
}

/// Requests server-sent events. The default is a JSON array.
fn with_sse(mut url: Url) -> Url {
    url.query_pairs_mut().append_pair("alt", "sse");
    url
}

impl WireFormat for GeminiFormat {
    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities
    }

    async fn url(&self, endpoint: &Endpoint, streaming_mode: StreamingMode) -> Result<Url, ModelError> {
        match (&self.route, streaming_mode) {
            (Route::Api { generate, .. }, StreamingMode::Off) => Ok(generate.clone()),
            (Route::Api { stream, .. }, StreamingMode::On) => Ok(stream.clone()),
            (Route::Vertex(path), StreamingMode::Off) => path.url(endpoint, "generateContent").await,
            (Route::Vertex(path), StreamingMode::On) => {
                Ok(with_sse(path.url(endpoint, "streamGenerateContent").await?))
            }
        }
    }

    fn body(&self, request: &LlmRequest, options: &HttpOptions, _: StreamingMode) -> Result<Bytes, String> {
        let api = match self.route {
            Route::Api { .. } => wire::Backend::GeminiApi,
            Route::Vertex(_) => wire::Backend::VertexAi,
        };
        wire::request(api, &self.model, request, options)
    }

    async fn connect(&self, endpoint: &Endpoint, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        if !self.capabilities.live {
            return Err(ModelError::not_live(&endpoint.origin.model));
        }
        let options = endpoint.options(&request.config)?;
        let (backend, url, model) = match &self.route {
            Route::Api { .. } => (wire::Backend::GeminiApi, endpoint.url(LIVE_PATH)?, format!("models/{}", self.model)),
            Route::Vertex(path) => {
                (wire::Backend::VertexAi, endpoint.url(VERTEX_LIVE_PATH)?, path.resource(endpoint).await?)
            }
        };
        let setup = wire::live::setup(backend, &model, &request, &options)
            .map_err(|message| endpoint.origin.error(ModelErrorKind::BadRequest, message))?;
        Dialer { endpoint: endpoint.clone(), url, setup, options }.open(&request).await
    }

    fn parse_response(body: &[u8], origin: &Origin) -> Result<LlmResponse, ModelError> {
        wire::parse_response(body, origin)
    }

    fn decoder(origin: Arc<Origin>) -> impl Decoder {
        GeminiDecoder { origin, calls: PartialCalls::default(), end_reason: None }
    }
}

/// Decodes each payload into one response. Function calls with streamed arguments are buffered until they are complete.
struct GeminiDecoder {
    origin: Arc<Origin>,
    calls: PartialCalls,
    /// The finish reason, or the reason why the prompt was blocked.
    end_reason: Option<String>,
}

impl Decoder for GeminiDecoder {
    fn decode(&mut self, payload: &str) -> Result<Vec<LlmResponse>, ModelError> {
        let Some(mut response) = wire::parse_chunk(payload, &self.origin)? else { return Ok(Vec::new()) };
        if let Some(reason) = response.finish_reason.as_ref().or(response.error_code.as_ref()) {
            self.end_reason = Some(reason.clone());
        }
        if let Some(content) = &mut response.content {
            content.parts = self.calls.assemble(std::mem::take(&mut content.parts));
            if content.parts.is_empty() {
                response.content = None;
            }
        }
        let has_data = response.content.is_some()
            || response.finish_reason.is_some()
            || response.error_code.is_some()
            || response.usage_metadata.is_some();
        Ok(if has_data { vec![response] } else { Vec::new() })
    }

    /// Returns the call that is still open if the model has finished. A call that was cut off is omitted.
    fn finish(&mut self) -> Result<Vec<LlmResponse>, ModelError> {
        match self.end_reason.as_deref() {
            Some(finish::STOP) => Ok(self.calls.take_open().map(wire::delta).into_iter().collect()),
            Some(_) => Ok(Vec::new()),
            None => Err(self.origin.incomplete_answer()),
        }
    }

    fn is_done(&self) -> bool {
        false
    }
}
