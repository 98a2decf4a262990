//! Language models: requests, responses, the [`Model`] trait and the registry that finds a model by name.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use imbl::Vector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::{Content, JsonMap};
use crate::error::ModelError;
use crate::event::UsageMetadata;

/// What a model is asked. Cloning is cheap: the history is shared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LlmRequest {
    /// The model's name, as written by the agent's author.
    pub model: String,
    /// The conversation, oldest first.
    pub contents: Vector<Arc<Content>>,
    /// System instructions; sent joined by a blank line.
    pub system_instructions: Vec<String>,
    /// Tools that the model may call.
    pub tools: Vec<Arc<FunctionDeclaration>>,
    /// Tools that run inside the model, as the provider writes them (`{"googleSearch": {}}`).
    pub model_tools: Vec<Value>,
    /// Settings.
    pub config: GenerateContentConfig,
}

/// Settings of a model call: the common ones typed, the others passed on as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GenerateContentConfig {
    /// Randomness, 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Sampling among the k likeliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<f64>,
    /// Most tokens of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Texts that end the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// Pushes towards new topics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// Pushes against repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// For repeatable sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Such as `application/json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_mime_type: Option<String>,
    /// JSON Schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// The rest (`safetySettings`, `thinkingConfig`, `toolConfig` …).
    #[serde(flatten)]
    pub extra: JsonMap,
}

/// A tool as a model sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionDeclaration {
    /// What the model calls it by.
    pub name: String,
    /// What it does and when to use it.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments, an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// JSON Schema of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
}

/// What a model answers: the whole answer, or when streaming a piece of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LlmResponse {
    /// What it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// True for a piece; the engine adds the pieces up into one last response that is not partial.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Why it stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// A stable code when the answer is an error (a blocked prompt, a cut-off answer).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The error for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Tokens used so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_metadata: Option<UsageMetadata>,
    /// The model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
    /// Sources of a grounded answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grounding_metadata: Option<Value>,
    /// Mean log probability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_logprobs: Option<f64>,
    /// What the provider adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_metadata: Option<Value>,
}

impl LlmResponse {
    /// An answer of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Some(Content::model(text)), ..Self::default() }
    }
}

/// How an answer is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamingMode {
    /// One response.
    #[default]
    Off,
    /// Pieces as they come, each marked partial and holding only what is new.
    On,
}

/// Responses as they come. Dropping it ends the request.
pub type ResponseStream = BoxStream<'static, Result<LlmResponse, ModelError>>;

/// A language model.
#[async_trait]
pub trait Model: Send + Sync {
    /// Sends the request. With [`StreamingMode::Off`] the stream gives one response; with [`StreamingMode::On`] it gives deltas marked
    /// partial (a function call always whole, in one of them), and nothing that repeats them.
    ///
    /// # Errors
    /// When the request cannot be sent or is refused; what goes wrong later comes as an item of the stream.
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError>;
}

/// Finds models by name.
pub trait ModelResolver: Send + Sync {
    /// The model of this name, such as `gemini-2.5-flash`, `openai/gpt-5` or `scripted:answers.yaml`.
    ///
    /// # Errors
    /// [`ModelError`] of kind `UnknownModel`, or of kind `Auth` when a key is missing.
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError>;
}
