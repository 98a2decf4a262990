//! Provider for chat completions: OpenAI, and compatible servers (Ollama, vLLM, llama.cpp, OpenRouter, any other at
//! `OPENAI_BASE_URL`).
//!
//! A call serializes the conversation once. Only the first choice of a response is used. Thoughts are sent back to
//! DeepSeek and OpenRouter only, because the protocol has no field for them, and settings that are specific to Gemini
//! are omitted.

mod details;
mod dialect;
mod embeddings;
mod family;
mod messages;
mod settings;
mod streamed;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{
    Embedder, HttpOptions, LlmRequest, LlmResponse, Model, ModelCapabilities, ModelError, StreamingMode,
};
use reqwest::Url;

pub(crate) use self::dialect::Dialect;
use self::embeddings::OpenAiEmbedder;
pub(crate) use self::family::ModelFamily;
pub(crate) use self::settings::{is_strict, refuses_schema, tool_choice_of};
use crate::capabilities::{compatible_capabilities, openai_capabilities};
use crate::failure::Origin;
use crate::http::{Authentication, Endpoint, Http, to_json};
use crate::http_model::{HttpModel, WireFormat};
use crate::provider::ModelProvider;
use crate::realtime::{self, RealtimeModel};
use crate::service::Service;
use crate::settings::{Connection, Settings};
use crate::sse::Decoder;

/// A server with chat completions.
struct ChatServer {
    service: Service,
    patterns: &'static [&'static str],
    embedder_patterns: &'static [&'static str],
    /// The prefix that is not part of a model's name at the server.
    prefix: &'static str,
    dialect: Dialect,
}

const SERVERS: [ChatServer; 5] = [
    ChatServer {
        service: Service::OpenAi,
        patterns: &["openai/*", "gpt-*", "o1*", "o3*", "o4*"],
        embedder_patterns: &["openai/*", "text-embedding-*"],
        prefix: "openai/",
        dialect: Dialect::OpenAi,
    },
    ChatServer {
        service: Service::OpenRouter,
        patterns: &["openrouter/*"],
        embedder_patterns: &["openrouter/*"],
        prefix: "openrouter/",
        dialect: Dialect::OpenRouter,
    },
    ChatServer {
        service: Service::Ollama,
        patterns: &["ollama/*"],
        embedder_patterns: &["ollama/*"],
        prefix: "ollama/",
        dialect: Dialect::Ollama,
    },
    ChatServer {
        service: Service::Vllm,
        patterns: &["vllm/*"],
        embedder_patterns: &["vllm/*"],
        prefix: "vllm/",
        dialect: Dialect::Compatible,
    },
    ChatServer {
        service: Service::LlamaCpp,
        patterns: &["llamacpp/*"],
        embedder_patterns: &["llamacpp/*"],
        prefix: "llamacpp/",
        dialect: Dialect::Compatible,
    },
];

/// Serves the models of one server.
pub(crate) struct ChatProvider {
    server: &'static ChatServer,
    connection: Connection,
    http: Http,
}

impl ChatProvider {
    /// Returns the providers of all servers.
    pub(crate) fn all(settings: &Settings, http: &Http) -> impl Iterator<Item = Self> {
        SERVERS.iter().map(|server| Self {
            server,
            connection: settings.connection(server.service),
            http: http.clone(),
        })
    }

    fn endpoint(&self, name: &str, connection: &Connection) -> Result<Endpoint, ModelError> {
        Endpoint::new(name, self.server.service, connection, Authentication::Bearer, &self.http)
    }

    fn model<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(self.server.prefix).unwrap_or(name)
    }
}

impl ModelProvider for ChatProvider {
    fn label(&self) -> &'static str {
        self.server.service.info().name
    }

    fn patterns(&self) -> &[&'static str] {
        self.server.patterns
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        match self.server.dialect.of_model(self.model(name)) {
            Dialect::OpenAi if realtime::serves(name) => {
                ModelCapabilities { live: true, ..ModelCapabilities::default() }
            }
            Dialect::OpenAi => openai_capabilities(name),
            Dialect::DeepSeek => ModelCapabilities { lacks_response_schema: true, ..compatible_capabilities(name) },
            Dialect::OpenRouter | Dialect::Ollama | Dialect::Compatible | Dialect::Mistral => {
                compatible_capabilities(name)
            }
        }
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.create_with(name, &Connection::default())
    }

    fn create_with(&self, name: &str, connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        let endpoint = self.endpoint(name, &connection.or(&self.connection))?;
        let (model, capabilities) = (self.model(name), self.capabilities(name));
        if capabilities.live {
            return Ok(RealtimeModel::create(model, capabilities, endpoint));
        }
        chat_model(model, self.server.dialect, capabilities, endpoint)
    }

    fn embedder_patterns(&self) -> &[&'static str] {
        self.server.embedder_patterns
    }

    fn create_embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        let endpoint = self.endpoint(name, &self.connection)?;
        Ok(Arc::new(OpenAiEmbedder::new(self.model(name), endpoint)?))
    }

    fn missing_variables(&self) -> Option<String> {
        self.server.service.info().missing_variables(&self.connection)
    }

    fn base_url(&self) -> Option<String> {
        self.server.service.info().base_url(&self.connection)
    }
}

/// Creates a model with chat completions.
pub(crate) fn chat_model(
    model: &str,
    dialect: Dialect,
    capabilities: ModelCapabilities,
    endpoint: Endpoint,
) -> Result<Arc<dyn Model>, ModelError> {
    let url = endpoint.url(["chat", "completions"])?;
    let dialect = dialect.of_model(model);
    Ok(HttpModel::create(ChatFormat { model: model.to_owned(), dialect, capabilities, url }, endpoint))
}

/// The wire format of chat completions.
pub(crate) struct ChatFormat {
    model: String,
    dialect: Dialect,
    capabilities: ModelCapabilities,
    url: Url,
}

impl WireFormat for ChatFormat {
    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities
    }

    async fn url(&self, _: &Endpoint, _: StreamingMode) -> Result<Url, ModelError> {
        Ok(self.url.clone())
    }

    fn body(&self, request: &LlmRequest, _: &HttpOptions, streaming_mode: StreamingMode) -> Result<Bytes, String> {
        to_json(&wire::request(&self.model, self.dialect, request, streaming_mode)?)
    }

    fn parse_response(body: &[u8], origin: &Origin) -> Result<LlmResponse, ModelError> {
        wire::parse_response(body, origin)
    }

    fn decoder(origin: Arc<Origin>) -> impl Decoder {
        streamed::ChunkDecoder::new(origin)
    }
}
