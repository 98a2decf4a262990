//! What people, models and tools say to each other: [`Content`] made of [`Part`]s.
//!
//! The JSON form is that of Gemini's `Content`/`Part` (camelCase, bytes as base64). Keys that this version does not know are kept in
//! `extra` and written back, so nothing is lost on the way from a client to a store or to a component.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::base64_bytes;
use crate::extra::{Extra, KnownKeys};
use crate::json_len::json_len;

/// A JSON object.
pub type JsonMap = Map<String, Value>;

/// One message: who speaks, and what.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// `user` or `model`; a message without a role counts as the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The pieces, in order.
    #[serde(default)]
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

    /// A message of the given parts.
    pub fn new(role: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { role: Some(role.into()), parts }
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

/// One piece of a message: what it holds, and what a model said about it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "PartJson", into = "PartJson")]
pub struct Part {
    /// What the part holds.
    pub data: PartData,
    /// True for a model's thinking, which is not part of its answer.
    pub thought: bool,
    /// An opaque token that a model wants back with this part.
    pub thought_signature: Option<Bytes>,
    /// Everything else that came with the part (`videoMetadata`, kinds of data that this version does not know …).
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

/// What a [`Part`] holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum PartData {
    /// Nothing that this version knows: the part is a bare signature, or its data is in [`Part::extra`].
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

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        PartData::Text(text.into()).into()
    }

    /// The text, if that is what the part holds.
    pub fn as_text(&self) -> Option<&str> {
        match &self.data {
            PartData::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Bytes that quotas count for the part as an artifact: inline data as it is, and the JSON of everything else.
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

/// Bytes with their type.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Blob {
    /// IANA media type, such as `image/png`.
    #[serde(skip_serializing_if = "String::is_empty", alias = "mime_type")]
    pub mime_type: String,
    /// The bytes; base64 in JSON (standard or URL-safe alphabet when read).
    #[serde(with = "base64_bytes")]
    pub data: Bytes,
    /// A file name to show.
    #[serde(skip_serializing_if = "Option::is_none", alias = "display_name")]
    pub display_name: Option<String>,
}

/// A file that a model can fetch by itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileData {
    /// Where it is.
    #[serde(alias = "file_uri")]
    pub file_uri: String,
    /// IANA media type.
    #[serde(skip_serializing_if = "Option::is_none", alias = "mime_type")]
    pub mime_type: Option<String>,
    /// A file name to show.
    #[serde(skip_serializing_if = "Option::is_none", alias = "display_name")]
    pub display_name: Option<String>,
}

/// A model's request to run a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionCall {
    /// Pairs the call with its response. Calls that come without one get `adk-<uuid>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// Arguments by name.
    pub args: JsonMap,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for FunctionCall {
    const NOUN: &'static str = "a function call";
    const KEYS: &'static [&'static str] = &["id", "name", "args"];
}

/// A tool's answer to a [`FunctionCall`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionResponse {
    /// The id of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The answer; `{"error": …}` when the tool failed.
    pub response: JsonMap,
    /// Keys that this version does not know (`willContinue`, `scheduling`, `parts`).
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for FunctionResponse {
    const NOUN: &'static str = "a function response";
    const KEYS: &'static [&'static str] = &["id", "name", "response"];
}

/// Code that a model wrote to be run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecutableCode {
    /// Such as `PYTHON`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The source text.
    pub code: String,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for ExecutableCode {
    const NOUN: &'static str = "executable code";
    const KEYS: &'static [&'static str] = &["language", "code"];
}

/// What running code gave.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodeExecutionResult {
    /// Such as `OUTCOME_OK`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Standard output, or the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Keys that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl KnownKeys for CodeExecutionResult {
    const NOUN: &'static str = "a code execution result";
    const KEYS: &'static [&'static str] = &["outcome", "output"];
}

/// The JSON form of a part: a flat object of optional keys.
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
        // A well-formed part holds one kind of data. Should it hold several, the first in this order is the part's.
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
    /// The kinds of data that are there, by their keys.
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
