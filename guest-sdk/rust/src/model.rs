//! Asking models: [`LlmRequest`], [`LlmResponse`] and the stream of them.

use serde_json::Value;

use crate::bindings::wit::types;
use crate::content::{Content, JsonMap, Part};
use crate::error::Error;
use crate::host::StreamReader;

/// What a model is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LlmRequest {
    /// The model's name; empty for the agent's own.
    pub model: String,
    /// The conversation, oldest first.
    pub contents: Vec<Content>,
    /// System instructions; sent joined by a blank line.
    pub system_instructions: Vec<String>,
    /// Tools that the model may call.
    pub tools: Vec<FunctionDeclaration>,
    /// Tools that run inside the model, as its provider writes them, such as `{"googleSearch": {}}`.
    pub model_tools: Vec<Value>,
    /// Settings, such as `temperature`, as in Gemini's `GenerateContentConfig`.
    pub config: JsonMap,
}

impl LlmRequest {
    /// Asks a model, by name, what the user says; an empty name stands for the agent's own model.
    pub fn new(model: impl Into<String>, user: impl Into<String>) -> Self {
        Self { model: model.into(), contents: vec![Content::user(user)], ..Self::default() }
    }

    /// With one more system instruction.
    #[must_use]
    pub fn with_instruction(mut self, text: impl Into<String>) -> Self {
        self.system_instructions.push(text.into());
        self
    }
}

/// A tool as a model sees it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionDeclaration {
    /// What the model calls it by.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Option<Value>,
    /// JSON Schema of the result.
    pub response: Option<Value>,
}

/// What a model answers, or a piece of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LlmResponse {
    /// What it says.
    pub content: Option<Content>,
    /// True for a piece, which holds only what is new.
    pub partial: bool,
    /// Why it stopped, such as `STOP`.
    pub finish_reason: Option<String>,
    /// Set when the answer is an error.
    pub error_code: Option<String>,
    /// The error.
    pub error_message: Option<String>,
    /// The other keys (`usageMetadata`, `modelVersion` …).
    pub extra: JsonMap,
}

impl LlmResponse {
    /// An answer of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Some(Content::model(text)), ..Self::default() }
    }

    /// The text that it says, without thoughts; empty when it says nothing.
    pub fn said(&self) -> String {
        self.content.as_ref().map(Content::text).unwrap_or_default()
    }
}

impl From<Content> for LlmResponse {
    fn from(content: Content) -> Self {
        Self { content: Some(content), ..Self::default() }
    }
}

impl From<Part> for LlmResponse {
    fn from(part: Part) -> Self {
        Content { role: Some("model".into()), parts: vec![part] }.into()
    }
}

/// A model's answer as it comes. Dropping it ends the request.
pub struct ResponseStream(Option<StreamReader<types::LlmResponse>>);

impl ResponseStream {
    pub(crate) fn new(responses: StreamReader<types::LlmResponse>) -> Self {
        Self(Some(responses))
    }

    /// The next response: pieces first, at last the whole; nothing after that.
    ///
    /// # Errors
    /// When the model fails, with the code that it fails with.
    pub async fn next(&mut self) -> Result<Option<LlmResponse>, Error> {
        let Some(response) = next(&mut self.0).await else { return Ok(None) };
        let response = LlmResponse::try_from(response)?;
        match response.error_code {
            Some(code) => Err(Error::new(code, response.error_message.unwrap_or_default())),
            None => Ok(Some(response)),
        }
    }
}

/// The next item, nothing for ever after the last: reading a stream whose writer is gone traps.
pub(crate) async fn next<T>(stream: &mut Option<StreamReader<T>>) -> Option<T> {
    let item = match stream {
        Some(reader) => reader.next().await,
        None => None,
    };
    if item.is_none() {
        *stream = None;
    }
    item
}
