//! What people, models and tools say to each other: [`Content`] made of [`Part`]s. It mirrors Gemini's JSON; keys that this version does
//! not know travel in `extra`.

use serde_json::{Map, Value};

/// A JSON object.
pub type JsonMap = Map<String, Value>;

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Content {
    /// `user` or `model`.
    pub role: Option<String>,
    /// Its pieces, in order.
    pub parts: Vec<Part>,
}

impl Content {
    /// A user message of one text.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Some("user".into()), parts: vec![Part::text(text)] }
    }

    /// A model message of one text.
    pub fn model(text: impl Into<String>) -> Self {
        Self { role: Some("model".into()), parts: vec![Part::text(text)] }
    }

    /// The text parts that are not thoughts, joined.
    pub fn text(&self) -> String {
        self.parts.iter().filter(|part| !part.thought).filter_map(Part::as_text).collect()
    }

    /// The function calls, in order.
    pub fn function_calls(&self) -> impl Iterator<Item = &FunctionCall> {
        self.parts.iter().filter_map(|part| match &part.data {
            PartData::FunctionCall(call) => Some(call),
            _ => None,
        })
    }

    /// The function responses, in order.
    pub fn function_responses(&self) -> impl Iterator<Item = &FunctionResponse> {
        self.parts.iter().filter_map(|part| match &part.data {
            PartData::FunctionResponse(response) => Some(response),
            _ => None,
        })
    }
}

/// One piece of a message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Part {
    /// What it holds.
    pub data: PartData,
    /// True for a model's thinking, which is not part of its answer.
    pub thought: bool,
    /// An opaque token that a model wants back with this part.
    pub thought_signature: Option<Vec<u8>>,
    /// Everything else that belongs to the part.
    pub extra: JsonMap,
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        PartData::Text(text.into()).into()
    }

    /// A part of bytes, such as an image.
    pub fn bytes(mime_type: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        PartData::InlineData(Blob { mime_type: mime_type.into(), data: data.into(), display_name: None }).into()
    }

    /// The text, if that is what the part holds.
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

/// What a [`Part`] holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum PartData {
    /// Nothing that this version knows; see [`Part::extra`].
    #[default]
    Other,
    /// Text.
    Text(String),
    /// Bytes in the message.
    InlineData(Blob),
    /// A file somewhere else.
    FileData(FileData),
    /// The model asks for a tool.
    FunctionCall(FunctionCall),
    /// What a tool answered.
    FunctionResponse(FunctionResponse),
    /// Code that the model wants to run.
    ExecutableCode(ExecutableCode),
    /// What running code gave.
    CodeExecutionResult(CodeExecutionResult),
}

/// Bytes with their type.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Blob {
    /// Media type, such as `image/png`.
    pub mime_type: String,
    /// The bytes.
    pub data: Vec<u8>,
    /// A file name to show.
    pub display_name: Option<String>,
}

/// A file that a model can fetch by itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FileData {
    /// Where it is.
    pub file_uri: String,
    /// Media type.
    pub mime_type: Option<String>,
    /// A file name to show.
    pub display_name: Option<String>,
}

/// A model's request to run a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionCall {
    /// Pairs the call with its response.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// Arguments by name.
    pub args: JsonMap,
    /// Further keys.
    pub extra: JsonMap,
}

/// A tool's answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionResponse {
    /// The id of the call.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// The answer.
    pub response: JsonMap,
    /// Further keys.
    pub extra: JsonMap,
}

/// Code that a model wrote to be run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExecutableCode {
    /// Such as `PYTHON`.
    pub language: Option<String>,
    /// The source text.
    pub code: String,
    /// Further keys.
    pub extra: JsonMap,
}

/// What running code gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CodeExecutionResult {
    /// Such as `OUTCOME_OK`.
    pub outcome: Option<String>,
    /// Standard output, or the error.
    pub output: Option<String>,
    /// Further keys.
    pub extra: JsonMap,
}
