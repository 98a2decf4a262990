//! Provider for Gemini and Gemma through the Gemini API (`generateContent`, `streamGenerateContent?alt=sse`).
//!
//! A call serializes the conversation once, directly from the shared contents. Vertex AI and live connections are not
//! supported.

mod partial_args;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use hatchery_core::{
    LlmRequest, LlmResponse, Model, ModelCapabilities, ModelError, ModelErrorKind, ResponseStream, StreamingMode,
};
use reqwest::Url;
use reqwest::header::HeaderMap;

use self::partial_args::PartialCalls;
use crate::capabilities;
use crate::failure::Origin;
use crate::http::{Endpoint, Http, check_key_destination, endpoint_url, key_header};
use crate::registry::ModelProvider;
use crate::settings::{BaseUrl, Secret, Settings};
use crate::sse::{self, Decoder};

const DEFAULT_URL: &str = "https://generativelanguage.googleapis.com";

/// Serves `gemini-*`, `gemma-*` and `models/*`.
pub(crate) struct GeminiProvider {
    base_url: Option<BaseUrl>,
    key: Option<Secret>,
    http: Http,
}

impl GeminiProvider {
    pub(crate) fn new(settings: &Settings, http: Http) -> Self {
        Self { base_url: settings.gemini_base_url.clone(), key: settings.gemini_api_key.clone(), http }
    }
}

impl ModelProvider for GeminiProvider {
    fn patterns(&self) -> &[&'static str] {
        &["gemini-*", "gemma-*", "models/*"]
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        capabilities::of_gemini(name).unwrap_or_default()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let origin = Origin {
            model: name.to_owned(),
            provider: "Gemini",
            key_variable: "GOOGLE_API_KEY or GEMINI_API_KEY",
            url_variable: "GOOGLE_GEMINI_BASE_URL",
            key: self.key.clone(),
        };
        let Some(key) = &self.key else {
            let message = "no key: set GOOGLE_API_KEY or GEMINI_API_KEY, or use a model without one, `scripted:<file>`";
            return Err(origin.error(ModelErrorKind::Auth, message));
        };
        let model = name.strip_prefix("models/").unwrap_or(name);
        let base_url = self.base_url.as_ref().map_or(DEFAULT_URL, BaseUrl::as_str);
        let url =
            |method: &str| endpoint_url(base_url, ["v1beta", "models", format!("{model}:{method}").as_str()], &origin);
        let generate_url = url("generateContent")?;
        check_key_destination(&generate_url, self.base_url.as_ref(), &origin)?;
        let mut stream_url = url("streamGenerateContent")?;
        stream_url.query_pairs_mut().append_pair("alt", "sse");
        let mut headers = HeaderMap::new();
        headers.insert("x-goog-api-key", key_header("", key, &origin)?);
        let client = self.http.client(&origin)?;
        let model = model.to_owned();
        Ok(Arc::new(Gemini {
            model,
            capabilities: self.capabilities(name),
            generate_url,
            stream_url,
            endpoint: Endpoint { client, headers, origin: Arc::new(origin) },
        }))
    }
}

struct Gemini {
    model: String,
    capabilities: ModelCapabilities,
    generate_url: Url,
    stream_url: Url,
    endpoint: Endpoint,
}

#[async_trait]
impl Model for Gemini {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let origin = &self.endpoint.origin;
        let options = self.endpoint.options(&request.config)?;
        let body = wire::request(&self.model, &request, &options, origin)?;
        drop(request);
        match streaming_mode {
            StreamingMode::Off => {
                let response = self.endpoint.post(&self.generate_url, body, &options).await?;
                let body = self.endpoint.read_body(response).await?;
                let response = wire::parse_response(&body, origin)?;
                Ok(stream::iter([Ok(response)]).boxed())
            }
            StreamingMode::On => {
                let response = self.endpoint.post(&self.stream_url, body, &options).await?;
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
    GeminiDecoder { origin, calls: PartialCalls::default() }
}

/// Decodes each payload into one response. Function calls with streamed arguments are buffered until they are complete.
struct GeminiDecoder {
    origin: Arc<Origin>,
    calls: PartialCalls,
}

impl Decoder for GeminiDecoder {
    fn decode(&mut self, payload: &str) -> Result<Vec<LlmResponse>, ModelError> {
        let Some(mut response) = wire::parse_chunk(payload, &self.origin)? else { return Ok(Vec::new()) };
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

    fn finish(&mut self) -> Result<Vec<LlmResponse>, ModelError> {
        Ok(self.calls.take_open().map(wire::delta).into_iter().collect())
    }

    fn is_done(&self) -> bool {
        false
    }
}
