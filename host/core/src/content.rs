//! Messages between people, models and tools: [`Content`] consists of [`Part`]s.
//!
//! The JSON format is Gemini's `Content` and `Part` (camelCase, bytes as base64). Unknown keys are preserved in
//! `extra` and written back, so that nothing is lost between a client, a store and a component.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::base64_bytes;
use crate::extra::{Extra, KnownKeys};
use crate::json::{JsonMap, json_len};

/// One message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// `user` or `model`; `None` means `user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The parts, in order.
    #[serde(default)]
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

    /// Creates a message.
    pub fn new(role: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { role: Some(role.into()), parts }
    }

    /// Returns the concatenated text parts, without thoughts.
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

/// One part of a message: data, and metadata that a model has attached to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "PartJson", into = "PartJson")]
pub struct Part {
    pub data: PartData,
    /// Whether the part is a model's thinking, which is not part of its response.
    pub thought: bool,
    /// An opaque token that must be sent back to the model with this part.
    pub thought_signature: Option<Bytes>,
    /// All other keys (`videoMetadata`, unknown kinds of data …).
    pub extra: Extra,
}

impl KnownKeys for Part {
    const NOUN: &'static str = "a part";
    const KEYS: &'static [&'static str] = &[
        "text",
        "inlineData",
        "fileData",
        "functionCall",
        "functionResponse",
        "executableCode",
        "codeExecutionResult",
        "thought",
        "thoughtSignature",
    ];
}

/// The data of a [`Part`].
#[derive(Debug, Clone, Default, PartialEq)]
pub enum PartData {
    /// No known data: the part consists of a signature only, or its data is in [`Part::extra`].
    #[default]
    Other,
    Text(String),
    /// Bytes within the message.
    InlineData(Blob),
    /// A reference to a file elsewhere.
    FileData(FileData),
    /// A model's request to call a tool.
    FunctionCall(FunctionCall),
    /// The result of a tool call.
    FunctionResponse(FunctionResponse),
    /// Code that a model has written to be run.
    ExecutableCode(ExecutableCode),
    /// The result of running code.
    CodeExecutionResult(CodeExecutionResult),
}

impl Part {
    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        PartData::Text(text.into()).into()
    }

    /// Returns the text; `None` if the part has other data.
    pub fn as_text(&self) -> Option<&str> {
        match &self.data {
            PartData::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the size in bytes that quotas count for the part as an artifact: the size of inline data, or of the JSON
    /// of anything else.
    pub fn stored_bytes(&self) -> u64 {
        match &self.data {
            PartData::InlineData(blob) => {
                let data = PartData::InlineData(Blob { data: Bytes::new(), ..blob.clone() });
                (json_len(&Self { data, ..self.clone() }) + blob.data.len()) as u64
            }
            _ => json_len(self) as u64,
        }
    }
}

impl From<PartData> for Part {
    fn from(data: PartData) -> Self {
        Self { data, ..Self::default() }
    }
}

/// Bytes with their media type.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Blob {
    /// IANA media type, such as `image/png`.
    #[serde(skip_serializing_if = "String::is_empty", alias = "mime_type")]
    pub mime_type: String,
    /// The bytes; base64 in JSON (standard or URL-safe alphabet when read).
    #[serde(with = "base64_bytes")]
    pub data: Bytes,
    /// A file name for display.
    #[serde(skip_serializing_if = "Option::is_none", alias = "display_name")]
    pub display_name: Option<String>,
}

impl Blob {
    /// Returns the usual extension of files of this media type, or `bin`.
    pub fn extension(&self) -> &str {
        let subtype = self.mime_type.split(['/', ';', '+']).nth(1).unwrap_or_default();
        match subtype {
            "plain" => "txt",
            "mpeg" if self.mime_type.starts_with("audio/") => "mp3",
            known if !known.is_empty() && known.len() <= 8 && known.chars().all(|c| c.is_ascii_alphanumeric()) => known,
            _ => "bin",
        }
    }
}

/// A file that the model provider can fetch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileData {
    #[serde(alias = "file_uri")]
    pub file_uri: String,
    /// IANA media type.
    #[serde(skip_serializing_if = "Option::is_none", alias = "mime_type")]
    pub mime_type: Option<String>,
    /// A file name for display.
    #[serde(skip_serializing_if = "Option::is_none", alias = "display_name")]
    pub display_name: Option<String>,
}

/// A model's request to call a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionCall {
    /// Identifies the call in its response. The engine adds `adk-<uuid>` if the model sends none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The arguments by name.
    pub args: JsonMap,
    /// Unknown keys.
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for FunctionCall {
    const NOUN: &'static str = "a function call";
    const KEYS: &'static [&'static str] = &["id", "name", "args"];
}

/// The result of a [`FunctionCall`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionResponse {
    /// The id of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The result; `{"error": …}` if the tool failed.
    pub response: JsonMap,
    /// Unknown keys (`willContinue`, `scheduling`, `parts`).
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for FunctionResponse {
    const NOUN: &'static str = "a function response";
    const KEYS: &'static [&'static str] = &["id", "name", "response"];
}

/// Code that a model has written to be run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecutableCode {
    /// Such as `PYTHON`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The source text.
    pub code: String,
    /// Unknown keys.
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for ExecutableCode {
    const NOUN: &'static str = "executable code";
    const KEYS: &'static [&'static str] = &["language", "code"];
}

/// The result of running code.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodeExecutionResult {
    /// Such as `OUTCOME_OK`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The standard output, or the error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Unknown keys.
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for CodeExecutionResult {
    const NOUN: &'static str = "a code execution result";
    const KEYS: &'static [&'static str] = &["outcome", "output"];
}

/// The JSON format of a part: a flat object of optional keys.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PartJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", alias = "inline_data")]
    inline_data: Option<Blob>,
    #[serde(skip_serializing_if = "Option::is_none", alias = "file_data")]
    file_data: Option<FileData>,
    #[serde(skip_serializing_if = "Option::is_none", alias = "function_call")]
    function_call: Option<FunctionCall>,
    #[serde(skip_serializing_if = "Option::is_none", alias = "function_response")]
    function_response: Option<FunctionResponse>,
    #[serde(skip_serializing_if = "Option::is_none", alias = "executable_code")]
    executable_code: Option<ExecutableCode>,
    #[serde(skip_serializing_if = "Option::is_none", alias = "code_execution_result")]
    code_execution_result: Option<CodeExecutionResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none", alias = "thought_signature", with = "base64_bytes::optional")]
    thought_signature: Option<Bytes>,
    #[serde(flatten)]
    extra: Extra,
}

impl From<PartJson> for Part {
    fn from(json: PartJson) -> Self {
        // A well-formed part has one kind of data. If it has several, the first in this order is used.
        let data = json
            .function_call
            .map(PartData::FunctionCall)
            .or(json.function_response.map(PartData::FunctionResponse))
            .or(json.inline_data.map(PartData::InlineData))
            .or(json.file_data.map(PartData::FileData))
            .or(json.executable_code.map(PartData::ExecutableCode))
            .or(json.code_execution_result.map(PartData::CodeExecutionResult))
            .or(json.text.map(PartData::Text))
            .unwrap_or_default();
        Self {
            data,
            thought: json.thought.unwrap_or(false),
            thought_signature: json.thought_signature,
            extra: json.extra.without_nulls(),
        }
    }
}

impl PartJson {
    /// Returns the keys of the kinds of data that are present.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let kinds = [
            ("text", self.text.is_some()),
            ("inlineData", self.inline_data.is_some()),
            ("fileData", self.file_data.is_some()),
            ("functionCall", self.function_call.is_some()),
            ("functionResponse", self.function_response.is_some()),
            ("executableCode", self.executable_code.is_some()),
            ("codeExecutionResult", self.code_execution_result.is_some()),
        ];
        kinds.into_iter().filter_map(|(key, is_there)| is_there.then_some(key))
    }
}

impl From<Part> for PartJson {
    fn from(part: Part) -> Self {
        let mut json = Self {
            thought: part.thought.then_some(true),
            thought_signature: part.thought_signature,
            extra: part.extra,
            ..Self::default()
        };
        match part.data {
            PartData::Other => {}
            PartData::Text(text) => json.text = Some(text),
            PartData::InlineData(blob) => json.inline_data = Some(blob),
            PartData::FileData(file) => json.file_data = Some(file),
            PartData::FunctionCall(call) => json.function_call = Some(call),
            PartData::FunctionResponse(response) => json.function_response = Some(response),
            PartData::ExecutableCode(code) => json.executable_code = Some(code),
            PartData::CodeExecutionResult(result) => json.code_execution_result = Some(result),
        }
        json
    }
}
