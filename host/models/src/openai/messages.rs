//! Chat messages: the conversation in the form of chat completions, borrowed where possible.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use hatchery_core::{
    Blob, Content, FileData, FunctionCall, FunctionResponse, LlmRequest, Part, PartData, base64_bytes,
};
use serde::Serialize;
use serde_json::Value;

use super::details::details_of;
use super::wire::ExtraContent;
use super::{Dialect, refuses_schema};
use crate::encoding::{Base64, DataUrl};
use crate::files;
use crate::prompt::{CONTINUE_TEXT, JSON_INSTRUCTION, call_id, code_fence, is_json_unnamed, schema_instruction};
use crate::signatures;

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Message<'a> {
    System {
        role: &'static str,
        content: String,
    },
    User {
        role: &'static str,
        content: UserContent<'a>,
    },
    Assistant {
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        reasoning_details: Vec<Value>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall<'a>>,
    },
    Tool {
        role: &'static str,
        tool_call_id: Cow<'a, str>,
        content: String,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum UserContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<UserPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum UserPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
    InputAudio { input_audio: Audio<'a> },
    File { file: File<'a> },
}

#[derive(Serialize)]
pub(super) struct ImageUrl<'a> {
    url: DataUrl<'a>,
}

#[derive(Serialize)]
pub(super) struct Audio<'a> {
    data: Base64<'a>,
    format: &'static str,
}

#[derive(Serialize)]
pub(super) struct File<'a> {
    filename: &'a str,
    file_data: DataUrl<'a>,
}

#[derive(Serialize)]
pub(super) struct ToolCall<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<ExtraContent>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    arguments: String,
}

/// Returns the messages of a request, which end with a message of the user or a result. The error names a call or an
/// answer that cannot be written as JSON.
pub(super) fn messages<'a>(model: &str, dialect: Dialect, request: &'a LlmRequest) -> Result<Vec<Message<'a>>, String> {
    let mut messages = Vec::with_capacity(request.contents.len() + 1);
    let form = form_of_answer(dialect, request);
    let instructions: Vec<_> = request.system_instructions.iter().chain(&form).map(String::as_str).collect();
    if !instructions.is_empty() {
        let role = if is_reasoning(model) { "developer" } else { "system" };
        messages.push(Message::System { role, content: instructions.join("\n\n") });
    }
    let writer = MessageWriter {
        dialect,
        takes_audio: dialect.takes_audio(model),
        takes_extensions: dialect.takes_extensions(model),
    };
    for content in &request.contents {
        match content.role.as_deref() {
            Some("model" | "assistant") => messages.extend(writer.assistant(content)?),
            _ => writer.user(content, &mut messages)?,
        }
    }
    // Some servers refuse to answer a message of the model, others take it for the beginning of the answer.
    if !matches!(messages.last(), Some(Message::User { .. } | Message::Tool { .. })) {
        messages.push(Message::User { role: "user", content: UserContent::Text(CONTINUE_TEXT.into()) });
    }
    Ok(messages)
}

/// Returns the instruction about the form of the answer that is needed besides the settings: a schema that they cannot
/// have, or the word JSON, without which OpenAI refuses to answer with JSON.
fn form_of_answer(dialect: Dialect, request: &LlmRequest) -> Option<String> {
    match &request.config.response_schema {
        Some(schema) => refuses_schema(dialect, schema).then(|| schema_instruction(schema)),
        None if is_json_unnamed(request, &request.system_instructions) => Some(JSON_INSTRUCTION.to_owned()),
        None => None,
    }
}

/// Returns true for models such as `o1` and `o3-mini`. They expect system instructions in the `developer` role.
fn is_reasoning(model: &str) -> bool {
    let name = model.split('-').next().unwrap_or_default();
    name.strip_prefix('o').is_some_and(|rest| !rest.is_empty() && rest.chars().all(|char| char.is_ascii_digit()))
}

/// Writes contents in the form that a model accepts.
#[derive(Clone, Copy)]
struct MessageWriter {
    dialect: Dialect,
    takes_audio: bool,
    takes_extensions: bool,
}

impl MessageWriter {
    fn assistant(self, content: &Content) -> Result<Option<Message<'_>>, String> {
        let mut text = String::new();
        let mut tool_calls = Vec::new();
        for part in content.parts.iter().filter(|part| !part.thought) {
            match &part.data {
                PartData::Text(piece) => text.push_str(piece),
                PartData::FunctionCall(call) => tool_calls.push(self.tool_call(call, part)?),
                PartData::ExecutableCode(code) => text.push_str(&code_fence(code.language.as_deref(), &code.code)),
                PartData::CodeExecutionResult(result) => {
                    text.push_str(&code_fence(None, result.output.as_deref().unwrap_or_default()));
                }
                // An assistant message is text only, so a file in it is represented by its type or URI.
                PartData::InlineData(blob) => text.push_str(&format!("[{}]", blob.mime_type)),
                PartData::FileData(file) => text.push_str(&format!("[{}]", file.file_uri)),
                PartData::FunctionResponse(_) | PartData::Other => {}
            }
        }
        if text.is_empty() && tool_calls.is_empty() {
            return Ok(None);
        }
        // DeepSeek refuses a message without these keys, which may be empty.
        let needs_all = self.dialect == Dialect::DeepSeek;
        Ok(Some(Message::Assistant {
            role: "assistant",
            content: Some(text).filter(|text| needs_all || !text.is_empty()),
            reasoning_content: needs_all.then(|| thoughts(content)),
            reasoning_details: if self.takes_extensions { details_of(content) } else { Vec::new() },
            tool_calls,
        }))
    }

    fn tool_call<'a>(self, call: &'a FunctionCall, part: &Part) -> Result<ToolCall<'a>, String> {
        let arguments = serde_json::to_string(&call.args)
            .map_err(|error| format!("the arguments of `{}` cannot be written as JSON: {error}", call.name))?;
        Ok(ToolCall {
            id: self.id(call.id.as_deref(), &call.name),
            kind: "function",
            function: CalledFunction { name: &call.name, arguments },
            extra_content: signatures::unmarked_signature(part)
                .filter(|_| self.takes_extensions)
                .map(|signature| ExtraContent::with_signature(base64_bytes::encode(signature))),
        })
    }

    fn tool_result(self, response: &FunctionResponse) -> Result<Message<'_>, String> {
        let content = serde_json::to_string(&response.response)
            .map_err(|error| format!("the answer of `{}` cannot be written as JSON: {error}", response.name))?;
        Ok(Message::Tool { role: "tool", tool_call_id: self.id(response.id.as_deref(), &response.name), content })
    }

    /// Returns the id of a call and its result. Mistral refuses ids that are not nine letters or digits, such as those
    /// of other providers.
    fn id<'a>(self, id: Option<&'a str>, name: &str) -> Cow<'a, str> {
        let id = call_id(id, name);
        let is_short = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if self.dialect != Dialect::Mistral || is_short {
            return id;
        }
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        Cow::Owned(format!("{:09x}", hasher.finish() >> 28))
    }

    /// Adds the messages of a user content: first the tool results, each as its own message directly after the calls,
    /// then the other parts.
    fn user<'a>(self, content: &'a Content, messages: &mut Vec<Message<'a>>) -> Result<(), String> {
        for response in content.function_responses() {
            messages.push(self.tool_result(response)?);
        }
        let mut parts = Vec::new();
        for part in content.parts.iter().filter(|part| !part.thought) {
            match &part.data {
                PartData::Text(text) => parts.push(text_part(text)),
                PartData::InlineData(blob) => parts.push(self.inline(blob)),
                PartData::FileData(file) => parts.push(self.file_reference(file)),
                PartData::ExecutableCode(code) => {
                    parts.push(text_part(code_fence(code.language.as_deref(), &code.code)));
                }
                PartData::CodeExecutionResult(result) => {
                    parts.push(text_part(code_fence(None, result.output.as_deref().unwrap_or_default())));
                }
                PartData::FunctionCall(_) | PartData::FunctionResponse(_) | PartData::Other => {}
            }
        }
        let content = match parts.pop() {
            None => return Ok(()),
            Some(UserPart::Text { text }) if parts.is_empty() => UserContent::Text(text),
            Some(last) => {
                parts.push(last);
                UserContent::Parts(parts)
            }
        };
        messages.push(Message::User { role: "user", content });
        Ok(())
    }

    /// Returns a file in the form of its type, or its name as text if the model does not accept it.
    fn inline(self, blob: &Blob) -> UserPart<'_> {
        let data = Base64(&blob.data);
        if let Some(image) = self.dialect.image_type(&blob.mime_type) {
            return UserPart::ImageUrl { image_url: ImageUrl { url: DataUrl::Data(image, &blob.data) } };
        }
        match blob.mime_type.as_str() {
            "" if self.dialect.image_type("image/jpeg").is_some() => {
                UserPart::ImageUrl { image_url: ImageUrl { url: DataUrl::Data("image/jpeg", &blob.data) } }
            }
            "audio/wav" | "audio/x-wav" | "audio/wave" if self.takes_audio => {
                UserPart::InputAudio { input_audio: Audio { data, format: "wav" } }
            }
            "audio/mpeg" | "audio/mp3" if self.takes_audio => {
                UserPart::InputAudio { input_audio: Audio { data, format: "mp3" } }
            }
            "application/pdf" if self.dialect.takes_pdf() => {
                let filename = blob.display_name.as_deref().unwrap_or("document.pdf");
                UserPart::File { file: File { filename, file_data: DataUrl::Data("application/pdf", &blob.data) } }
            }
            _ => text_part(files::text_of(blob).unwrap_or_else(|| files::name_of_blob(blob).into())),
        }
    }

    fn file_reference(self, file: &FileData) -> UserPart<'_> {
        let is_image = file.mime_type.as_deref().is_none_or(|kind| self.dialect.image_type(kind).is_some());
        if is_image && self.dialect.fetches_images() && files::is_web_address(&file.file_uri) {
            UserPart::ImageUrl { image_url: ImageUrl { url: DataUrl::Address(&file.file_uri) } }
        } else {
            text_part(files::name_of_file(file))
        }
    }
}

fn thoughts(content: &Content) -> String {
    content.parts.iter().filter(|part| part.thought).filter_map(Part::as_text).collect()
}

fn text_part<'a>(text: impl Into<Cow<'a, str>>) -> UserPart<'a> {
    UserPart::Text { text: text.into() }
}
