//! Input items of the responses API: the conversation, borrowed where possible.

use std::borrow::Cow;

use hatchery_core::{Blob, Content, FileData, FunctionCall, FunctionResponse, LlmRequest, Part, PartData};
use serde::Serialize;

use crate::encoding::DataUrl;
use crate::files;
use crate::prompt::{CONTINUE_TEXT, JSON_INSTRUCTION, call_id, code_fence, is_json_unnamed};
use crate::signatures::SignatureKind;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Item<'a> {
    Message { role: Role, content: Vec<ContentPart<'a>> },
    Reasoning { summary: Vec<Summary<'a>>, encrypted_content: &'a str },
    FunctionCall { call_id: Cow<'a, str>, name: &'a str, arguments: String },
    FunctionCallOutput { call_id: Cow<'a, str>, output: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Assistant,
    System,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentPart<'a> {
    InputText { text: Cow<'a, str> },
    OutputText { text: Cow<'a, str> },
    InputImage { image_url: DataUrl<'a> },
    InputFile(File<'a>),
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum File<'a> {
    Inline { filename: &'a str, file_data: DataUrl<'a> },
    Address { file_url: &'a str },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Summary<'a> {
    SummaryText { text: &'a str },
}

/// Returns the input of a request, which is never empty, as the API requires. The error names a call or an answer that
/// cannot be written as JSON.
pub(super) fn input(request: &LlmRequest) -> Result<Vec<Item<'_>>, String> {
    let mut items = items(request)?;
    // The API looks for the word JSON in the input only.
    if is_json_unnamed(request, &[]) {
        items.insert(0, Item::Message { role: Role::System, content: vec![input_text(JSON_INSTRUCTION)] });
    }
    if items.is_empty() {
        items.push(Item::Message { role: Role::User, content: vec![input_text(CONTINUE_TEXT)] });
    }
    Ok(items)
}

/// Returns the conversation of a request. The error names a call or an answer that cannot be written as JSON.
pub(super) fn items(request: &LlmRequest) -> Result<Vec<Item<'_>>, String> {
    let mut items = Vec::with_capacity(request.contents.len());
    for content in &request.contents {
        match content.role.as_deref() {
            Some("model" | "assistant") => assistant(content, &mut items)?,
            _ => user(content, &mut items)?,
        }
    }
    Ok(items)
}

/// Adds the items of the model in their order: an encrypted thought belongs to the item after it.
fn assistant<'a>(content: &'a Content, items: &mut Vec<Item<'a>>) -> Result<(), String> {
    for part in &content.parts {
        match &part.data {
            _ if part.thought => items.extend(reasoning_item(part)),
            PartData::Text(text) => add_text(items, text),
            PartData::FunctionCall(call) => items.push(function_call(call)?),
            PartData::ExecutableCode(code) => add_text(items, code_fence(code.language.as_deref(), &code.code)),
            PartData::CodeExecutionResult(result) => {
                add_text(items, code_fence(None, result.output.as_deref().unwrap_or_default()));
            }
            // A message of the assistant is text only, so a file in it is represented by its type or URI.
            PartData::InlineData(blob) => add_text(items, format!("[{}]", blob.mime_type)),
            PartData::FileData(file) => add_text(items, format!("[{}]", file.file_uri)),
            PartData::FunctionResponse(_) | PartData::Other => {}
        }
    }
    Ok(())
}

/// Returns a thought that OpenAI has encrypted. Others are omitted.
fn reasoning_item(part: &Part) -> Option<Item<'_>> {
    let encrypted_content = SignatureKind::Reasoning.read(part)?;
    let text = part.as_text().filter(|text| !text.is_empty());
    Some(Item::Reasoning {
        summary: text.map(|text| Summary::SummaryText { text }).into_iter().collect(),
        encrypted_content,
    })
}

/// Adds a text of the model, to its last message if nothing came between.
fn add_text<'a>(items: &mut Vec<Item<'a>>, text: impl Into<Cow<'a, str>>) {
    let part = ContentPart::OutputText { text: text.into() };
    match items.last_mut() {
        Some(Item::Message { role: Role::Assistant, content }) => content.push(part),
        _ => items.push(Item::Message { role: Role::Assistant, content: vec![part] }),
    }
}

fn function_call(call: &FunctionCall) -> Result<Item<'_>, String> {
    let arguments = serde_json::to_string(&call.args)
        .map_err(|error| format!("the arguments of `{}` cannot be written as JSON: {error}", call.name))?;
    Ok(Item::FunctionCall { call_id: call_id(call.id.as_deref(), &call.name), name: &call.name, arguments })
}

/// Adds the items of a user content: first the tool results, then a message of the other parts.
fn user<'a>(content: &'a Content, items: &mut Vec<Item<'a>>) -> Result<(), String> {
    for response in content.function_responses() {
        items.push(function_output(response)?);
    }
    let parts: Vec<_> = content.parts.iter().filter(|part| !part.thought).filter_map(user_part).collect();
    if !parts.is_empty() {
        items.push(Item::Message { role: Role::User, content: parts });
    }
    Ok(())
}

fn function_output(response: &FunctionResponse) -> Result<Item<'_>, String> {
    let output = serde_json::to_string(&response.response)
        .map_err(|error| format!("the answer of `{}` cannot be written as JSON: {error}", response.name))?;
    Ok(Item::FunctionCallOutput { call_id: call_id(response.id.as_deref(), &response.name), output })
}

fn user_part(part: &Part) -> Option<ContentPart<'_>> {
    match &part.data {
        PartData::Text(text) => Some(input_text(text)),
        PartData::InlineData(blob) => Some(inline(blob)),
        PartData::FileData(file) => Some(file_reference(file)),
        PartData::ExecutableCode(code) => Some(input_text(code_fence(code.language.as_deref(), &code.code))),
        PartData::CodeExecutionResult(result) => {
            Some(input_text(code_fence(None, result.output.as_deref().unwrap_or_default())))
        }
        PartData::FunctionCall(_) | PartData::FunctionResponse(_) | PartData::Other => None,
    }
}

fn input_text<'a>(text: impl Into<Cow<'a, str>>) -> ContentPart<'a> {
    ContentPart::InputText { text: text.into() }
}

/// Returns a file in the form of its type, or its name as text if there is none.
fn inline(blob: &Blob) -> ContentPart<'_> {
    if let Some(image) = files::common_image(&blob.mime_type) {
        return ContentPart::InputImage { image_url: DataUrl::Data(image, &blob.data) };
    }
    match blob.mime_type.as_str() {
        "application/pdf" => ContentPart::InputFile(File::Inline {
            filename: blob.display_name.as_deref().unwrap_or("document.pdf"),
            file_data: DataUrl::Data("application/pdf", &blob.data),
        }),
        _ => input_text(files::text_of(blob).unwrap_or_else(|| files::name_of_blob(blob).into())),
    }
}

fn file_reference(file: &FileData) -> ContentPart<'_> {
    match file.mime_type.as_deref() {
        _ if !files::is_web_address(&file.file_uri) => input_text(files::name_of_file(file)),
        Some("application/pdf") => ContentPart::InputFile(File::Address { file_url: &file.file_uri }),
        Some(other) if files::common_image(other).is_none() => input_text(files::name_of_file(file)),
        _ => ContentPart::InputImage { image_url: DataUrl::Address(&file.file_uri) },
    }
}
