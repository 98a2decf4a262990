//! Messages: [`Content`] made of [`Part`]s. They mirror Gemini's JSON; unknown keys are preserved in
//! `extra`.

use serde_json::{Map, Value};

/// A JSON object.
pub type JsonMap = Map<String, Value>;

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Content {
    /// `user` or `model`.
    pub role: Option<String>,
    /// Parts of the message, in order.
    pub parts: Vec<Part>,
}

impl Content {
    /// Creates a user message with one text.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Some("user".into()), parts: vec![Part::text(text)] }
    }

    /// Creates a model message with one text.
    pub fn model(text: impl Into<String>) -> Self {
        Self { role: Some("model".into()), parts: vec![Part::text(text)] }
    }

    /// Returns the text parts that are not thoughts, joined.
    pub fn text(&self) -> String {
        self.parts.iter().filter(|part| !part.thought).filter_map(Part::as_text).collect()
    }

    /// Returns the function calls, in order.
    pub fn function_calls(&self) -> impl Iterator<Item = &FunctionCall> {
        self.parts.iter().filter_map(|part| match &part.data {
            PartData::FunctionCall(call) => Some(call),
            _ => None,
        })
    }

    /// Returns the function responses, in order.
    pub fn function_responses(&self) -> impl Iterator<Item = &FunctionResponse> {
        self.parts.iter().filter_map(|part| match &part.data {
            PartData::FunctionResponse(response) => Some(response),
            _ => None,
        })
    }
}

/// One part of a message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Part {
    pub data: PartData,
    /// True for a model's thought, which is not part of its answer.
    pub thought: bool,
    /// An opaque token that must be sent back to the model with this part.
    pub thought_signature: Option<Vec<u8>>,
    /// Further keys of the part.
    pub extra: JsonMap,
}

impl Part {
    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        PartData::Text(text.into()).into()
    }

    /// Creates a part with bytes, such as an image.
    pub fn bytes(mime_type: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        PartData::InlineData(Blob { mime_type: mime_type.into(), data: data.into(), display_name: None }).into()
    }

    /// Returns the text, if this is a text part.
    pub fn as_text(&self) -> Option<&str> {
        match &self.data {
            PartData::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<PartData> for Part {
    fn from(data: PartData) -> Self {
        Self { data, ..Self::default() }
    }
}

/// The data of a [`Part`].
#[derive(Debug, Clone, Default, PartialEq)]
pub enum PartData {
    /// A kind that this version does not know; see [`Part::extra`].
    #[default]
    Other,
    /// Text.
    Text(String),
    /// Bytes in the message.
    InlineData(Blob),
    /// A file at a URI.
    FileData(FileData),
    /// A request of the model to call a tool.
    FunctionCall(FunctionCall),
    /// The result of a tool call.
    FunctionResponse(FunctionResponse),
    /// Code of the model to be executed.
    ExecutableCode(ExecutableCode),
    /// The result of running code.
    CodeExecutionResult(CodeExecutionResult),
}

/// Bytes with a media type.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Blob {
    /// Media type, such as `image/png`.
    pub mime_type: String,
    /// The content of the file.
    pub data: Vec<u8>,
    /// File name for display.
    pub display_name: Option<String>,
}

/// A file that a model can fetch itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FileData {
    pub file_uri: String,
    /// Media type.
    pub mime_type: Option<String>,
    /// File name for display.
    pub display_name: Option<String>,
}

/// A model's request to call a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionCall {
    /// Matches the call with its response.
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// Arguments by name.
    pub args: JsonMap,
    /// Further keys.
    pub extra: JsonMap,
}

/// The result of a tool call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionResponse {
    /// Id of the call.
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// The result of the call.
    pub response: JsonMap,
    /// Further keys.
    pub extra: JsonMap,
}

/// Code that a model wrote to be run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExecutableCode {
    /// Language, such as `PYTHON`.
    pub language: Option<String>,
    /// The source text.
    pub code: String,
    /// Further keys.
    pub extra: JsonMap,
}

/// The result of running code.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CodeExecutionResult {
    /// Outcome, such as `OUTCOME_OK`.
    pub outcome: Option<String>,
    /// Standard output, or the error.
    pub output: Option<String>,
    /// Further keys.
    pub extra: JsonMap,
}
