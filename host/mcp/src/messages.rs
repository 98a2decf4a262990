//! Conversion between content and the messages of sampling, which both roles send.

#![expect(deprecated, reason = "revision 2026-07-28 deprecates sampling, and servers use it")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hatchery_core::{Blob, Content, Part, PartData};
use rmcp::model::{AudioContent, ImageContent, Role, SamplingMessage, SamplingMessageContentBlock};

/// Decodes a file.
///
/// # Errors
/// If `data` is not base64. The text names no peer.
pub(crate) fn decode(mime_type: String, data: &str) -> Result<Blob, String> {
    let data = STANDARD.decode(data).map_err(|error| format!("invalid base64: {error}"))?;
    Ok(Blob { mime_type, data: Bytes::from(data), display_name: None })
}

/// Converts a message to content.
///
/// # Errors
/// If it has parts other than texts, images and audio.
pub(crate) fn to_content(message: &SamplingMessage) -> Result<Content, String> {
    let role = if message.role == Role::Assistant { "model" } else { "user" };
    let parts = message.content.iter().map(to_part).collect::<Result<_, _>>()?;
    Ok(Content::new(role, parts))
}

fn to_part(block: &SamplingMessageContentBlock) -> Result<Part, String> {
    let blob = |mime_type: &str, data| decode(mime_type.into(), data).map(|blob| PartData::InlineData(blob).into());
    match block {
        SamplingMessageContentBlock::Text(text) => Ok(Part::text(text.text.as_str())),
        SamplingMessageContentBlock::Image(image) => blob(&image.mime_type, &image.data),
        SamplingMessageContentBlock::Audio(audio) => blob(&audio.mime_type, &audio.data),
        _ => Err("a message has texts, images and audio only".into()),
    }
}

/// Converts parts to a message. `None` if none of them is a text, an image or audio. A single content is in no list, as
/// revisions before 2025-11-25 require.
pub(crate) fn from_parts(role: Role, parts: impl IntoIterator<Item = Part>) -> Option<SamplingMessage> {
    let mut blocks: Vec<_> = parts.into_iter().filter_map(from_part).collect();
    match blocks.len() {
        0 => None,
        1 => blocks.pop().map(|block| SamplingMessage::new(role, block)),
        _ => Some(SamplingMessage::new_multiple(role, blocks)),
    }
}

/// Returns a text, an image or audio. `None` for thoughts and other parts.
fn from_part(part: Part) -> Option<SamplingMessageContentBlock> {
    match part.data {
        PartData::Text(text) if !part.thought => Some(SamplingMessageContentBlock::text(text)),
        PartData::InlineData(blob) => {
            let data = STANDARD.encode(&blob.data);
            match blob.mime_type.split('/').next() {
                Some("image") => Some(SamplingMessageContentBlock::Image(ImageContent::new(data, blob.mime_type))),
                Some("audio") => Some(SamplingMessageContentBlock::Audio(AudioContent::new(data, blob.mime_type))),
                _ => None,
            }
        }
        _ => None,
    }
}
