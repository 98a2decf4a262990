//! Model calls: [`LlmRequest`], [`LlmResponse`] and the stream of responses.

use serde_json::Value;

use crate::bindings::wit::types;
use crate::content::{Content, JsonMap, Part};
use crate::error::Error;
use crate::host::StreamReader;

/// A request to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LlmRequest {
    /// Name of the model; empty for the agent's own.
    pub model: String,
    /// The conversation, oldest first.
    pub contents: Vec<Content>,
    /// System instructions, joined by a blank line when sent.
    pub system_instructions: Vec<String>,
    /// Tools that the model may call.
    pub tools: Vec<FunctionDeclaration>,
    /// Tools that run inside of the model, in the provider's format, such as `{"googleSearch": {}}`.
    pub model_tools: Vec<Value>,
    /// Settings, such as `temperature`, as in Gemini's `GenerateContentConfig`.
    pub config: JsonMap,
}

impl LlmRequest {
    /// Creates a request with one user message. An empty name means the agent's own model.
    pub fn new(model: impl Into<String>, user: impl Into<String>) -> Self {
        Self { model: model.into(), contents: vec![Content::user(user)], ..Self::default() }
    }

    /// Adds a system instruction.
    #[must_use]
    pub fn with_instruction(mut self, text: impl Into<String>) -> Self {
        self.system_instructions.push(text.into());
        self
    }
}

/// The declaration of a tool for a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionDeclaration {
    pub name: String,
    /// Purpose and use of the function, for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Option<Value>,
    /// JSON Schema of the result.
    pub response: Option<Value>,
}

/// A model's response, or a part of a streamed one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LlmResponse {
    /// The message of the model, or a part of it.
    pub content: Option<Content>,
    /// True for a part of a streamed response, which contains only the new content.
    pub partial: bool,
    /// True if the model has finished its turn (live runs).
    pub turn_complete: Option<bool>,
    /// True if the user interrupted the model (live runs).
    pub interrupted: Option<bool>,
    /// Finish reason, such as `STOP`.
    pub finish_reason: Option<String>,
    /// Set if the response is an error.
    pub error_code: Option<String>,
    /// The error message.
    pub error_message: Option<String>,
    /// The other keys (`usageMetadata`, `modelVersion` …).
    pub extra: JsonMap,
}

impl LlmResponse {
    /// Creates a response with one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Some(Content::model(text)), ..Self::default() }
    }

    /// Returns the text of the message, without thoughts. Empty if there is none.
    pub fn text_content(&self) -> String {
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

/// A streamed model response. Dropping it ends the request.
pub struct ResponseStream(Option<StreamReader<types::LlmResponse>>);

impl ResponseStream {
    pub(crate) fn new(responses: StreamReader<types::LlmResponse>) -> Self {
        Self(Some(responses))
    }

    /// Returns the next response: partial ones first, then the complete one, then `None`.
    ///
    /// # Errors
    /// If the model fails, with its error code.
    pub async fn next(&mut self) -> Result<Option<LlmResponse>, Error> {
        let Some(response) = next(&mut self.0).await else { return Ok(None) };
        let response = LlmResponse::try_from(response)?;
        match response.error_code {
            Some(code) => Err(Error::new(code, response.error_message.unwrap_or_default())),
            None => Ok(Some(response)),
        }
    }
}

/// Returns the next item, and always `None` after the last one: reading a stream without a writer traps.
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
