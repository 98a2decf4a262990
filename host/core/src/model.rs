//! Language models: requests, responses, the [`Model`] trait, and the lookup of a model by name.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use imbl::Vector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Content;
use crate::error::{ModelError, ModelErrorKind};
use crate::event::UsageMetadata;
use crate::http_options::HttpOptions;
use crate::json::JsonMap;
use crate::json_schema::to_json_schema;
use crate::live::{LiveConnectConfig, LiveConnection};
use crate::suggestion::similar_name;
use crate::trace::ModelCallProgress;
use crate::type_schema::snake_case;

/// A request to a model. Cloning is cheap: the history is shared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LlmRequest {
    /// The model's name as the agent's author wrote it.
    pub model: String,
    /// The conversation, oldest first.
    pub contents: Vector<Arc<Content>>,
    /// System instructions; sent joined by blank lines.
    pub system_instructions: Vec<String>,
    /// The tools that the model may call.
    pub tools: Vec<Arc<FunctionDeclaration>>,
    /// Tools that run inside the model, in the provider's format (`{"googleSearch": {}}`).
    pub model_tools: Vec<Value>,
    /// Settings of the call.
    pub config: GenerateContentConfig,
    /// Settings of a live connection; `None` for a call.
    pub live_connect_config: Option<LiveConnectConfig>,
    /// The capabilities of the model that gets the request, for the tools that prepare it. Not sent.
    pub capabilities: ModelCapabilities,
    /// Observations of the call in progress. Not sent.
    pub progress: ModelCallProgress,
}

impl LlmRequest {
    /// Converts the schemas of tools and of the response from Gemini's dialect to [JSON
    /// Schema](crate::to_json_schema). Providers get no other, and the schema of the response as `response_schema` only.
    pub(crate) fn normalize_schemas(&mut self) {
        if let Some(schema) = self.config.extra.shift_remove(RESPONSE_JSON_SCHEMA).filter(|schema| !schema.is_null()) {
            self.config.response_schema.get_or_insert(schema);
        }
        for tool in &mut self.tools {
            let parameters = tool.parameters.as_ref().and_then(to_normalized);
            let response = tool.response.as_ref().and_then(to_normalized);
            if parameters.is_some() || response.is_some() {
                *tool = Arc::new(FunctionDeclaration {
                    parameters: parameters.or_else(|| tool.parameters.clone()),
                    response: response.or_else(|| tool.response.clone()),
                    ..FunctionDeclaration::clone(tool)
                });
            }
        }
        if let Some(schema) = self.config.response_schema.as_ref().and_then(to_normalized) {
            self.config.response_schema = Some(schema);
        }
    }
}

/// Returns the schema as JSON Schema, or `None` if it is that already.
fn to_normalized(schema: &Value) -> Option<Value> {
    match to_json_schema(schema) {
        Cow::Owned(schema) => Some(schema),
        Cow::Borrowed(_) => None,
    }
}

/// Settings of a model call: common ones are typed, others are passed through unchanged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GenerateContentConfig {
    /// Randomness, usually 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling: the probability mass to sample from, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Samples only from the `k` most likely tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<f64>,
    /// Maximum number of tokens in the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Texts that end the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// Positive values encourage new topics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// Positive values discourage repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// Seed of the sampling, for repeatable responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Media type of the response, such as `application/json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_mime_type: Option<String>,
    /// JSON Schema of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// All other settings (`safetySettings`, `thinkingConfig`, `toolConfig` …).
    #[serde(flatten)]
    pub extra: JsonMap,
}

/// The names of the typed settings in JSON.
const TYPED_SETTINGS: [&str; 10] = [
    "temperature",
    "topP",
    "topK",
    "maxOutputTokens",
    "stopSequences",
    "presencePenalty",
    "frequencyPenalty",
    "seed",
    "responseMimeType",
    "responseSchema",
];

/// Another name of the setting `responseSchema`, which has precedence.
const RESPONSE_JSON_SCHEMA: &str = "responseJsonSchema";

/// Untyped settings, with Gemini's names.
const OTHER_SETTINGS: [&str; 19] = [
    "audioTimestamp",
    "automaticFunctionCalling",
    "cachedContent",
    "candidateCount",
    "enableEnhancedCivicAnswers",
    "httpOptions",
    "imageConfig",
    "labels",
    "logprobs",
    "mediaResolution",
    "modelSelectionConfig",
    RESPONSE_JSON_SCHEMA,
    "responseLogprobs",
    "responseModalities",
    "routingConfig",
    "safetySettings",
    "speechConfig",
    "thinkingConfig",
    "toolConfig",
];

/// Settings that belong to the agent.
const RESERVED_SETTINGS: [&str; 8] =
    ["model", "contents", "messages", "tools", "systemInstruction", "stream", "streamOptions", "generationConfig"];

impl GenerateContentConfig {
    /// Returns true for the name of a setting, in camel case or snake case.
    pub fn is_setting(name: &str) -> bool {
        let name = snake_case(name);
        TYPED_SETTINGS.iter().chain(&OTHER_SETTINGS).any(|setting| snake_case(setting) == name)
    }

    /// Checks that all settings are known. Call it when an agent is loaded.
    ///
    /// # Errors
    /// The name of an unknown or reserved setting, or the fault of `httpOptions`.
    pub fn check(&self) -> Result<(), String> {
        for key in self.extra.keys().map(String::as_str) {
            if RESERVED_SETTINGS.contains(&key) {
                return Err(format!("`{key}` is not a setting of a model call; the agent and the host set it"));
            }
            if !OTHER_SETTINGS.contains(&key) {
                let known = TYPED_SETTINGS.iter().chain(&OTHER_SETTINGS).copied();
                if let Some(meant) = similar_name(key, known) {
                    return Err(format!("unknown setting `{key}`; did you mean `{meant}`?"));
                }
                return Err(format!(
                    "unknown setting `{key}`; settings are those of Gemini's `GenerateContentConfig`, and keys of another \
                     provider's body go below `httpOptions.extraBody`"
                ));
            }
        }
        self.http_options().map(drop)
    }

    /// Returns the HTTP options of the call. They are checked, because code may have set them after the agent was
    /// loaded.
    ///
    /// # Errors
    /// If they cannot be read, set a header of the host, or have numbers that are out of range.
    pub fn http_options(&self) -> Result<Option<HttpOptions>, String> {
        let Some(options) = self.extra.get("httpOptions").filter(|options| !options.is_null()) else { return Ok(None) };
        let options = HttpOptions::deserialize(options).map_err(|error| format!("`httpOptions`: {error}"))?;
        options.check()?;
        Ok(Some(options))
    }
}

/// The declaration of a tool that is sent to a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionDeclaration {
    /// The name by which the model calls the tool.
    pub name: String,
    /// The purpose of the tool and when to use it, for the model.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments, which are an object. `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// JSON Schema of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
}

/// A response of a model: the complete response, or one chunk of it when streaming.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LlmResponse {
    /// The content; `None` in chunks that carry only metadata, and in errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// True for a chunk. The engine combines the chunks into a final response that is not partial.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Whether the model has finished its turn (live runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_complete: Option<bool>,
    /// Whether the model was interrupted (live runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<bool>,
    /// The reason why the model stopped, such as `STOP` or `MAX_TOKENS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// A stable code if the response is an error (a blocked prompt, a truncated response).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The error as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Tokens used by this call so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_metadata: Option<UsageMetadata>,
    /// The version of the model that responded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
    /// Sources of a grounded response, in the provider's format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grounding_metadata: Option<Value>,
    /// Mean log probability of the tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_logprobs: Option<f64>,
    /// Metadata that the provider adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_metadata: Option<Value>,
}

impl LlmResponse {
    /// Creates a complete response with one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Some(Content::model(text)), ..Self::default() }
    }
}

/// Delivery of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamingMode {
    /// As one response.
    #[default]
    Off,
    /// As chunks while they arrive, each marked partial and with new content only.
    On,
}

/// The features that a model supports, as [`Model::capabilities`] reports them. The default has the features of
/// every model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelCapabilities {
    /// True if the model keeps to a response schema even if the request has tools. Otherwise the final answer is
    /// requested as a tool call.
    pub schema_with_tools: bool,
    /// True if the model keeps to no response schema at all. Then the final answer is requested as a tool call even
    /// without other tools.
    pub lacks_response_schema: bool,
    /// True if the provider runs tools itself, such as a web search ([`LlmRequest::model_tools`]).
    pub built_in_tools: bool,
    /// The order of consecutive function calls and their responses that the model expects in a prompt.
    pub response_grouping: ResponseGrouping,
    /// True if the model is live: it exchanges audio over [connections](Model::connect).
    pub live: bool,
}

/// Placement of the responses to consecutive function calls in a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResponseGrouping {
    /// Each response follows its own call.
    #[default]
    PerCall,
    /// All responses follow the last of the calls.
    Batched,
}

/// The responses of one model call. Dropping the stream cancels the request.
pub type ResponseStream = BoxStream<'static, Result<LlmResponse, ModelError>>;

/// A language model.
///
/// One model serves many runs at the same time. [`Model::generate`] and the stream are polled in the task of the agent
/// that calls the model, so they may await, but not block. All model calls of agents go through
/// [`Invocation::generate`](crate::Invocation::generate), which enforces limits and cancellation: the model need not.
///
/// ```
/// use async_trait::async_trait;
/// use futures::StreamExt;
/// use futures::stream;
/// use hatchery_core::{LlmRequest, LlmResponse, Model, ModelError, ResponseStream, StreamingMode};
///
/// /// Repeats the last message, word by word when streaming.
/// struct Parrot;
///
/// #[async_trait]
/// impl Model for Parrot {
///     async fn generate(&self, request: LlmRequest, mode: StreamingMode) -> Result<ResponseStream, ModelError> {
///         let text = request.contents.last().map(|content| content.text()).unwrap_or_default();
///         let responses = match mode {
///             StreamingMode::Off => vec![Ok(LlmResponse::text(text))],
///             StreamingMode::On => text
///                 .split_inclusive(' ')
///                 .map(|word| Ok(LlmResponse { partial: true, ..LlmResponse::text(word) }))
///                 .collect(),
///         };
///         Ok(stream::iter(responses).boxed())
///     }
/// }
///
/// # futures::executor::block_on(async {
/// let mut request = LlmRequest::default();
/// request.contents.push_back(hatchery_core::Content::user("Hello there").into());
/// let chunks: Vec<_> = Parrot.generate(request, StreamingMode::On).await.unwrap().collect().await;
/// assert_eq!(chunks.len(), 2);
/// # });
/// ```
#[async_trait]
pub trait Model: Send + Sync {
    /// Sends a request. With [`StreamingMode::Off`] the stream yields one response. With [`StreamingMode::On`] it
    /// yields chunks that are marked partial, and no response that repeats them. A function call is never split across
    /// chunks.
    ///
    /// # Errors
    /// If the request cannot be sent or is refused. Later failures are items of the stream.
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError>;

    /// Opens a live connection. The request has the conversation so far; later messages are sent to the connection.
    /// Agents open connections by [`Invocation::connect`](crate::Invocation::connect). The default is an error.
    ///
    /// # Errors
    /// If the model is not live, or refuses the request.
    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        Err(ModelError::not_live(request.model))
    }

    /// Returns the features that the model supports. The engine asks before it builds a request.
    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities::default()
    }
}

/// Turns texts into vectors whose distances reflect how similar the texts are.
///
/// Called in the agent's task: it may await, but not block.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// Returns one vector per text, all of the same length.
    ///
    /// # Errors
    /// If the texts cannot be embedded.
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, ModelError>;
}

/// Finds models by name. Shared by all runs.
pub trait ModelResolver: Send + Sync {
    /// Returns the model of this name, such as `gemini-2.5-flash`, `openai/gpt-5` or `scripted:answers.yaml`. Called
    /// before each model call, in the agent's task: it must neither block nor connect.
    ///
    /// # Errors
    /// [`ModelError`] of kind `UnknownModel`, or of kind `Auth` if a key is missing.
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError>;

    /// Returns the embedder of this name, such as `local:hashed-ngrams`. The default has none.
    ///
    /// # Errors
    /// [`ModelError`] of kind `UnknownModel`.
    fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        Err(ModelError::new(ModelErrorKind::UnknownModel, name, "there is no embedder of this name"))
    }

    /// Returns the features of the model of this name, even if it cannot be called because its key is missing. A replay
    /// needs no key, but must build the recorded requests.
    fn capabilities(&self, name: &str) -> ModelCapabilities {
        self.model(name).map(|model| model.capabilities()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_names_of_all_typed_settings_are_known_in_both_spellings() {
        let config = GenerateContentConfig {
            temperature: Some(1.0),
            top_p: Some(1.0),
            top_k: Some(1.0),
            max_output_tokens: Some(1),
            stop_sequences: Some(Vec::new()),
            presence_penalty: Some(1.0),
            frequency_penalty: Some(1.0),
            seed: Some(1),
            response_mime_type: Some(String::new()),
            response_schema: Some(Value::Null),
            extra: JsonMap::new(),
        };
        let json = serde_json::to_value(config).unwrap();
        let names: BTreeSet<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, BTreeSet::from(TYPED_SETTINGS));
        assert!(GenerateContentConfig::is_setting("max_output_tokens") && GenerateContentConfig::is_setting("topP"));
        assert!(!GenerateContentConfig::is_setting("model") && !GenerateContentConfig::is_setting("top"));
    }
}
