//! Conversion of results and files to content of MCP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hatchery_core::{Blob, Part, PartData};
use rmcp::model::{
    AudioContent, CallToolResult, ContentBlock, EmbeddedResource, ImageContent, Resource, ResourceContents,
};
use serde_json::{Value, json};

/// Converts the result of a tool. Structured content is an object, and repeated as text.
pub(super) fn result(value: Value) -> CallToolResult {
    match value {
        Value::Null => CallToolResult::success(Vec::new()),
        Value::String(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
        object @ Value::Object(_) => CallToolResult::structured(object),
        other => CallToolResult::structured(json!({ "result": other })),
    }
}

/// Returns the bytes of a file as a resource: text if they are text.
pub(super) fn contents(blob: &Blob, uri: &str) -> ResourceContents {
    let contents = match str::from_utf8(&blob.data) {
        Ok(text) if is_text(&blob.mime_type) => ResourceContents::text(text, uri),
        _ => ResourceContents::blob(STANDARD.encode(&blob.data), uri),
    };
    contents.with_mime_type(&blob.mime_type)
}

fn is_text(mime_type: &str) -> bool {
    mime_type.starts_with("text/") || mime_type == "application/json"
}

/// Converts a file: images and audio as such, text and other types as embedded resources. `None` for text and other
/// parts that are not files.
pub(super) fn block(part: &Part, name: &str, uri: &str) -> Option<ContentBlock> {
    match &part.data {
        PartData::InlineData(blob) => {
            let (mime_type, data) = (blob.mime_type.as_str(), || STANDARD.encode(&blob.data));
            Some(match mime_type.split('/').next() {
                Some("image") => ContentBlock::Image(ImageContent::new(data(), mime_type)),
                Some("audio") => ContentBlock::Audio(AudioContent::new(data(), mime_type)),
                _ => ContentBlock::Resource(EmbeddedResource::new(contents(blob, uri))),
            })
        }
        PartData::FileData(file) => Some(ContentBlock::ResourceLink(Resource::new(&file.file_uri, name))),
        PartData::Other
        | PartData::Text(_)
        | PartData::FunctionCall(_)
        | PartData::FunctionResponse(_)
        | PartData::ExecutableCode(_)
        | PartData::CodeExecutionResult(_) => None,
    }
}
