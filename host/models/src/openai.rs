//! Provider for chat completions: OpenAI, or a compatible server at `OPENAI_BASE_URL` (vLLM, Ollama, llama.cpp, LiteLLM
//! …).
//!
//! A call serializes the conversation once. Only the first choice of a response is used. Thoughts are not sent back,
//! because the protocol has no field for them, and settings that are specific to Gemini are omitted.

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
use reqwest::header::{AUTHORIZATION, HeaderMap};

use crate::capabilities;
use crate::failure::Origin;
use crate::http::{Endpoint, Http, check_key_destination, endpoint_url, key_header};
use crate::registry::ModelProvider;
use crate::settings::{BaseUrl, Secret, Settings};
use crate::sse::{self, Decoder};

const DEFAULT_URL: &str = "https://api.openai.com/v1";

/// Serves `openai/*`, `gpt-*`, `o1*`, `o3*` and `o4*`.
pub(crate) struct OpenAiProvider {
    base_url: Option<BaseUrl>,
    key: Option<Secret>,
    http: Http,
}

impl OpenAiProvider {
    pub(crate) fn new(settings: &Settings, http: Http) -> Self {
        Self { base_url: settings.openai_base_url.clone(), key: settings.openai_api_key.clone(), http }
    }
}

impl ModelProvider for OpenAiProvider {
    fn patterns(&self) -> &[&'static str] {
        &["openai/*", "gpt-*", "o1*", "o3*", "o4*"]
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        capabilities::of_openai(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let origin = Origin {
            model: name.to_owned(),
            provider: "OpenAI",
            key_variable: "OPENAI_API_KEY",
            url_variable: "OPENAI_BASE_URL",
            key: self.key.clone(),
        };
        let mut headers = HeaderMap::new();
        match (&self.key, &self.base_url) {
            (Some(key), _) => {
                headers.insert(AUTHORIZATION, key_header("Bearer ", key, &origin)?);
            }
            (None, Some(_)) => {}
            (None, None) => {
                let message = "no key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that wants none, \
                               or use a model without one, `scripted:<file>`";
                return Err(origin.error(ModelErrorKind::Auth, message));
            }
        }
        let base_url = self.base_url.as_ref().map_or(DEFAULT_URL, BaseUrl::as_str);
        let url = endpoint_url(base_url, ["chat", "completions"], &origin)?;
        if self.key.is_some() {
            check_key_destination(&url, self.base_url.as_ref(), &origin)?;
        }
        let client = self.http.client(&origin)?;
        let model = name.strip_prefix("openai/").unwrap_or(name).to_owned();
        Ok(Arc::new(OpenAi {
            model,
            capabilities: self.capabilities(name),
            url,
            endpoint: Endpoint { client, headers, origin: Arc::new(origin) },
        }))
    }
}

struct OpenAi {
    model: String,
    capabilities: ModelCapabilities,
    url: Url,
    endpoint: Endpoint,
}

impl OpenAi {
    fn body(&self, request: &LlmRequest, streaming_mode: StreamingMode) -> Result<Bytes, ModelError> {
        let bad_request = |message: String| self.endpoint.origin.error(ModelErrorKind::BadRequest, message);
        let body = wire::request(&self.model, request, streaming_mode).map_err(bad_request)?;
        serde_json::to_vec(&body)
            .map(Bytes::from)
            .map_err(|error| bad_request(format!("the request cannot be written as JSON: {error}")))
    }
}

#[async_trait]
impl Model for OpenAi {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let origin = &self.endpoint.origin;
        let options = self.endpoint.options(&request.config)?;
        let body = self.body(&request, streaming_mode)?;
        drop(request);
        let response = self.endpoint.post(&self.url, body, &options).await?;
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
    streamed::ChunkDecoder::new(origin)
}
