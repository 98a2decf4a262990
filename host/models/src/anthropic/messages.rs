//! Messages of the Anthropic API: the conversation as blocks, borrowed where possible.

use std::borrow::Cow;

use hatchery_core::{Blob, Content, FileData, FunctionCall, FunctionResponse, JsonMap, LlmRequest, Part, PartData};
use serde::Serialize;
use serde_json::Value;

use crate::encoding::Base64;
use crate::files;
use crate::prompt::{self, CONTINUE_TEXT};
use crate::signatures::SignatureKind;

#[derive(Serialize)]
pub(super) struct Message<'a> {
    role: Role,
    content: Vec<CachedBlock<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

/// A block with an optional mark for the prompt cache.
#[derive(Serialize)]
pub(super) struct CachedBlock<'a> {
    #[serde(flatten)]
    block: ContentBlock<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<&'a Value>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentBlock<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: &'a JsonMap,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: Cow<'a, str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: Base64<'a> },
    Text { media_type: &'static str, data: Cow<'a, str> },
    Url { url: &'a str },
}

impl<'a> CachedBlock<'a> {
    /// Creates a text block.
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        ContentBlock::Text { text: text.into() }.into()
    }

    /// Returns the block with a mark for the prompt cache.
    pub(super) fn with_cache_control(self, cache_control: Option<&'a Value>) -> Self {
        Self { cache_control, ..self }
    }
}

impl<'a> From<ContentBlock<'a>> for CachedBlock<'a> {
    fn from(block: ContentBlock<'a>) -> Self {
        Self { block, cache_control: None }
    }
}

/// Returns the messages of a request. They alternate between user and assistant, and begin and end with the user.
/// [`CONTINUE_TEXT`] is inserted where a message of the user is missing. The error names an answer that cannot be
/// written as JSON. Files at an address are named in text unless `takes_addresses`.
pub(super) fn messages<'a>(
    request: &'a LlmRequest,
    takes_addresses: bool,
    cache_control: Option<&'a Value>,
) -> Result<Vec<Message<'a>>, String> {
    let mut messages: Vec<Message<'a>> = Vec::with_capacity(request.contents.len());
    for content in &request.contents {
        let (role, blocks) = match content.role.as_deref() {
            Some("model" | "assistant") => (Role::Assistant, assistant_blocks(content)),
            _ => (Role::User, user_blocks(content, takes_addresses)?),
        };
        if blocks.is_empty() {
            continue;
        }
        match messages.last_mut() {
            Some(last) if last.role == role => last.content.extend(blocks),
            None if role == Role::Assistant => {
                messages.push(continue_message());
                messages.push(Message { role, content: blocks });
            }
            _ => messages.push(Message { role, content: blocks }),
        }
    }
    if messages.last().is_none_or(|last| last.role == Role::Assistant) {
        messages.push(continue_message());
    }
    for message in &mut messages {
        // The results of a turn must come first in its message.
        message.content.sort_by_key(|block| !matches!(block.block, ContentBlock::ToolResult { .. }));
    }
    if let Some(last) = messages.last_mut().and_then(|message| message.content.last_mut()) {
        last.cache_control = cache_control;
    }
    Ok(messages)
}

/// Returns true if thoughts of the model are sent back.
pub(super) fn have_thoughts(messages: &[Message<'_>]) -> bool {
    let is_thought = |block: &CachedBlock<'_>| {
        matches!(block.block, ContentBlock::Thinking { .. } | ContentBlock::RedactedThinking { .. })
    };
    messages.iter().any(|message| message.content.iter().any(is_thought))
}

fn continue_message<'a>() -> Message<'a> {
    Message { role: Role::User, content: vec![CachedBlock::text(CONTINUE_TEXT)] }
}

fn assistant_blocks(content: &Content) -> Vec<CachedBlock<'_>> {
    content.parts.iter().filter_map(assistant_block).map(CachedBlock::from).collect()
}

/// Returns the block of a model's part. A thought without a signature of Anthropic is omitted, because it would be
/// rejected.
fn assistant_block(part: &Part) -> Option<ContentBlock<'_>> {
    if part.thought {
        if let Some(data) = SignatureKind::RedactedThinking.read(part) {
            return Some(ContentBlock::RedactedThinking { data });
        }
        let signature = SignatureKind::Thinking.read(part)?;
        return Some(ContentBlock::Thinking { thinking: part.as_text().unwrap_or_default(), signature });
    }
    match &part.data {
        PartData::Text(text) => text_block(text),
        PartData::FunctionCall(call) => Some(tool_use(call)),
        PartData::ExecutableCode(code) => text_block(prompt::code_fence(code.language.as_deref(), &code.code)),
        PartData::CodeExecutionResult(result) => {
            text_block(prompt::code_fence(None, result.output.as_deref().unwrap_or_default()))
        }
        // A message of the assistant has no files, so a file in it is represented by its type or URI.
        PartData::InlineData(blob) => text_block(format!("[{}]", blob.mime_type)),
        PartData::FileData(file) => text_block(format!("[{}]", file.file_uri)),
        PartData::FunctionResponse(_) | PartData::Other => None,
    }
}

fn user_blocks(content: &Content, takes_addresses: bool) -> Result<Vec<CachedBlock<'_>>, String> {
    let mut blocks = Vec::with_capacity(content.parts.len());
    for part in content.parts.iter().filter(|part| !part.thought) {
        let block = match &part.data {
            PartData::Text(text) => text_block(text),
            PartData::InlineData(blob) => inline(blob),
            PartData::FileData(file) => file_reference(file, takes_addresses),
            PartData::FunctionResponse(response) => Some(tool_result(response)?),
            PartData::ExecutableCode(code) => text_block(prompt::code_fence(code.language.as_deref(), &code.code)),
            PartData::CodeExecutionResult(result) => {
                text_block(prompt::code_fence(None, result.output.as_deref().unwrap_or_default()))
            }
            PartData::FunctionCall(_) | PartData::Other => None,
        };
        blocks.extend(block.map(CachedBlock::from));
    }
    Ok(blocks)
}

/// Returns a text block. `None` for white space, which is rejected.
fn text_block<'a>(text: impl Into<Cow<'a, str>>) -> Option<ContentBlock<'a>> {
    let text = text.into();
    (!text.trim().is_empty()).then_some(ContentBlock::Text { text })
}

fn tool_use(call: &FunctionCall) -> ContentBlock<'_> {
    ContentBlock::ToolUse { id: call_id(call.id.as_deref(), &call.name), name: &call.name, input: &call.args }
}

fn tool_result(response: &FunctionResponse) -> Result<ContentBlock<'_>, String> {
    let content = match (response.response.len(), response.response.get("result")) {
        (1, Some(Value::String(result))) => Cow::Borrowed(result.as_str()),
        _ => serde_json::to_string(&response.response)
            .map_err(|error| format!("the answer of `{}` cannot be written as JSON: {error}", response.name))?
            .into(),
    };
    let is_error = response.response.len() == 1 && response.response.contains_key("error");
    Ok(ContentBlock::ToolResult { tool_use_id: call_id(response.id.as_deref(), &response.name), content, is_error })
}

/// Returns the id of a call or a response, in the characters that are accepted. Ids may come from another provider.
fn call_id<'a>(id: Option<&'a str>, name: &str) -> Cow<'a, str> {
    let is_accepted = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    let id = prompt::call_id(id, name);
    if id.chars().all(is_accepted) {
        id
    } else {
        id.chars().map(|char| if is_accepted(char) { char } else { '_' }).collect::<String>().into()
    }
}

/// Returns a file in the form of its type, or its name as text if there is none.
fn inline(blob: &Blob) -> Option<ContentBlock<'_>> {
    let title = blob.display_name.as_deref();
    let source = |media_type| Source::Base64 { media_type, data: Base64(&blob.data) };
    if let Some(image) = files::common_image(&blob.mime_type) {
        return Some(ContentBlock::Image { source: source(image) });
    }
    match blob.mime_type.as_str() {
        pdf @ "application/pdf" => Some(ContentBlock::Document { source: source(pdf), title }),
        _ => match files::text_of(blob) {
            Some(text) if text.trim().is_empty() => None,
            Some(data) => {
                Some(ContentBlock::Document { source: Source::Text { media_type: "text/plain", data }, title })
            }
            None => text_block(files::name_of_blob(blob)),
        },
    }
}

fn file_reference(file: &FileData, takes_addresses: bool) -> Option<ContentBlock<'_>> {
    let source = Source::Url { url: &file.file_uri };
    // Other schemes are not fetched.
    let is_fetched = takes_addresses && file.file_uri.starts_with("https://");
    match file.mime_type.as_deref().filter(|_| is_fetched) {
        Some(image) if files::common_image(image).is_some() => Some(ContentBlock::Image { source }),
        Some("application/pdf") => Some(ContentBlock::Document { source, title: file.display_name.as_deref() }),
        _ => text_block(files::name_of_file(file)),
    }
}
