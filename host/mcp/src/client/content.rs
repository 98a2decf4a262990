//! Conversion of the result of a call: text and structured content for the model, files as artifacts.

use hatchery_core::{Blob, CallContext, JsonMap, Part, PartData, ToolError};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

use crate::messages::decode;

/// The key of text content, as in ADK.
pub(super) const TEXT: &str = "text_output";
pub(super) const STRUCTURED: &str = "structured_output";
const LINKS: &str = "resource_links";
/// The key of files that are stored as artifacts.
pub(super) const FILES: &str = "files";

/// A parsed result.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ConvertedResult {
    /// The result for the model, without the files.
    pub(super) response: JsonMap,
    /// Images, audio and other files.
    pub(super) files: Vec<File>,
}

/// A file of a result.
#[derive(Debug, PartialEq)]
pub(super) struct File {
    /// The URI of an embedded resource.
    pub(super) uri: Option<String>,
    pub(super) blob: Blob,
}

impl File {
    /// Returns the file as a part.
    fn into_part(self) -> Part {
        PartData::InlineData(self.blob).into()
    }
}

/// Converts a result.
///
/// # Errors
/// The message for the model, if the server reports an error or sends invalid data.
pub(super) fn convert(result: CallToolResult) -> Result<ConvertedResult, String> {
    if result.is_error == Some(true) {
        let text = result.content.iter().find_map(|block| block.as_text()).map(|text| text.text.as_str());
        return Err(format!("Tool execution failed. Details: {}", text.unwrap_or("none")));
    }
    let (mut texts, mut links, mut files) = (Vec::new(), Vec::new(), Vec::new());
    for block in result.content {
        match block {
            ContentBlock::Text(text) => texts.push(as_output(text.text)),
            ContentBlock::Image(image) => files.push(file(None, image.mime_type, &image.data)?),
            ContentBlock::Audio(audio) => files.push(file(None, audio.mime_type, &audio.data)?),
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => {
                    texts.push(json!({"uri": uri, "text": text}))
                }
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                    let mime_type = mime_type.unwrap_or_else(|| "application/octet-stream".into());
                    files.push(file(Some(uri), mime_type, &blob)?);
                }
                _ => return Err("the server sent an embedded resource of an unknown kind".into()),
            },
            ContentBlock::ResourceLink(link) => links.push(json!({
                "uri": link.uri, "name": link.name, "description": link.description, "mimeType": link.mime_type,
            })),
            _ => return Err("the server sent content of an unknown kind".into()),
        }
    }
    // Servers repeat structured content as text for clients that do not know it.
    if let Some(structured) = &result.structured_content {
        texts.retain(|text| text != structured);
    }
    let list = |key: &str, values: Vec<Value>| (!values.is_empty()).then(|| (key.to_owned(), values.into()));
    let structured = result.structured_content.map(|structured| (STRUCTURED.to_owned(), structured));
    let entries = [list(TEXT, texts), structured, list(LINKS, links)];
    Ok(ConvertedResult { response: entries.into_iter().flatten().collect(), files })
}

/// Returns the response for the model, and stores the files as artifacts.
pub(super) async fn respond(
    converted: ConvertedResult,
    server: &str,
    tool: &str,
    cx: &CallContext,
) -> Result<Value, ToolError> {
    let ConvertedResult { mut response, files } = converted;
    if !files.is_empty() {
        response.insert(FILES.into(), store(files, server, tool, cx).await?);
    }
    Ok(Value::Object(response))
}

/// Stores files as artifacts. Returns their names, versions and types.
async fn store(files: Vec<File>, server: &str, tool: &str, cx: &CallContext) -> Result<Value, ToolError> {
    let mut stored = Vec::with_capacity(files.len());
    for (index, file) in files.into_iter().enumerate() {
        let mime_type = file.blob.mime_type.clone();
        let (bytes, uri) = (file.blob.data.len(), file.uri.clone());
        let extension = file.blob.extension();
        let name = format!("{}{tool}-{index}.{extension}", artifact_prefix(server));
        let version = cx.save_artifact(&name, &file.into_part()).await?;
        let mut entry = json!({"artifact": name, "version": version, "mimeType": mime_type, "bytes": bytes});
        if let (Some(uri), Some(entry)) = (uri, entry.as_object_mut()) {
            entry.insert("uri".into(), uri.into());
        }
        stored.push(entry);
    }
    Ok(stored.into())
}

/// Returns the prefix of the names of artifacts from a server.
pub(super) fn artifact_prefix(server: &str) -> String {
    format!("mcp/{server}/")
}

/// Returns a text as the JSON object that it is, or as `{"text": …}`.
fn as_output(text: String) -> Value {
    match serde_json::from_str(&text) {
        Ok(object @ Value::Object(_)) => object,
        Ok(_) | Err(_) => json!({ "text": text }),
    }
}

fn file(uri: Option<String>, mime_type: String, data: &str) -> Result<File, String> {
    let blob = decode(mime_type, data).map_err(|reason| format!("the server sent {reason}"))?;
    Ok(File { uri, blob })
}

#[cfg(test)]
mod tests {
    use rmcp::model::{EmbeddedResource, ImageContent, Resource, TextContent};

    use super::*;

    fn result(value: Value) -> CallToolResult {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn texts_that_are_objects_become_objects() {
        let converted = convert(result(json!({"content": [
            {"type": "text", "text": "{\"a\": 1}"}, {"type": "text", "text": "[1]"}, {"type": "text", "text": "sunny"}
        ]})));
        let expected = json!({"text_output": [{"a": 1}, {"text": "[1]"}, {"text": "sunny"}]});
        assert_eq!(Value::Object(converted.unwrap().response), expected);
        assert_eq!(convert(result(json!({"content": []}))).unwrap(), ConvertedResult::default());
    }

    #[test]
    fn structured_content_is_not_repeated_as_text() {
        let converted = convert(result(json!({
            "content": [{"type": "text", "text": "{\"degrees\": 21}"}, {"type": "text", "text": "in Oslo"}],
            "structuredContent": {"degrees": 21},
        })));
        let expected = json!({"text_output": [{"text": "in Oslo"}], "structured_output": {"degrees": 21}});
        assert_eq!(Value::Object(converted.unwrap().response), expected);
    }

    #[test]
    fn files_and_links_are_kept_with_their_types() {
        let content = vec![
            ContentBlock::Text(TextContent::new("a map")),
            ContentBlock::Image(ImageContent::new("aGk=", "image/png")),
            ContentBlock::Resource(EmbeddedResource::new(ResourceContents::blob("aGk=", "file:///x.bin"))),
            ContentBlock::Resource(EmbeddedResource::new(ResourceContents::text("hello", "file:///x.txt"))),
            ContentBlock::ResourceLink(Resource::new("file:///big", "big")),
        ];
        let converted = convert(CallToolResult::success(content)).unwrap();
        let files: Vec<_> =
            converted.files.iter().map(|file| (file.uri.as_deref(), &*file.blob.mime_type, &*file.blob.data)).collect();
        let expected: [(_, _, &[u8]); 2] =
            [(None, "image/png", b"hi"), (Some("file:///x.bin"), "application/octet-stream", b"hi")];
        assert_eq!(files, expected);
        let text = json!([{"text": "a map"}, {"uri": "file:///x.txt", "text": "hello"}]);
        assert_eq!(converted.response["text_output"], text);
        assert_eq!(converted.response["resource_links"][0]["uri"], "file:///big");
    }

    #[test]
    fn errors_of_the_tool_are_sent_to_the_model() {
        let failed = convert(result(json!({"content": [{"type": "text", "text": "no such city"}], "isError": true})));
        assert_eq!(failed, Err("Tool execution failed. Details: no such city".into()));
        let image = json!({"content": [{"type": "image", "data": "%", "mimeType": "image/png"}]});
        assert!(convert(result(image)).unwrap_err().starts_with("the server sent invalid base64: "));
    }
}
