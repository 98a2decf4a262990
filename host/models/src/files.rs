//! Files that a provider does not accept are named in text. Otherwise one file in a session would make every request
//! fail.

use std::borrow::Cow;

use hatchery_core::{Blob, FileData};

/// Returns the text of a file if it has a type of text and is UTF-8.
pub(crate) fn text_of(blob: &Blob) -> Option<Cow<'_, str>> {
    let is_text = is_text_type(&blob.mime_type);
    std::str::from_utf8(&blob.data).ok().filter(|_| is_text).map(Cow::Borrowed)
}

/// Returns true for types of text, whatever their case and their parameters, such as `charset`.
fn is_text_type(mime_type: &str) -> bool {
    let mime_type = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let kind = mime_type.strip_prefix("application/").unwrap_or_default();
    mime_type.starts_with("text/")
        || matches!(kind, "json" | "xml" | "yaml" | "x-yaml" | "javascript" | "x-javascript" | "x-ndjson")
        || mime_type.ends_with("+json")
        || mime_type.ends_with("+xml")
}

/// Returns the proper name of a type of image that OpenAI and Anthropic accept. `None` for others.
pub(crate) fn common_image(mime_type: &str) -> Option<&'static str> {
    match mime_type.to_ascii_lowercase().as_str() {
        "image/jpeg" | "image/jpg" => Some("image/jpeg"),
        "image/png" => Some("image/png"),
        "image/gif" => Some("image/gif"),
        "image/webp" => Some("image/webp"),
        _ => None,
    }
}

/// Returns true for the address of a file that a provider can fetch.
pub(crate) fn is_web_address(uri: &str) -> bool {
    ["https://", "http://", "data:"].iter().any(|scheme| uri.starts_with(scheme))
}

/// Names an omitted file.
pub(crate) fn name_of_blob(blob: &Blob) -> String {
    let name = blob.display_name.as_deref().unwrap_or("without a name");
    left_out(name, Some(&blob.mime_type))
}

/// Names an omitted file at an address.
pub(crate) fn name_of_file(file: &FileData) -> String {
    left_out(&file.file_uri, file.mime_type.as_deref())
}

fn left_out(name: &str, mime_type: Option<&str>) -> String {
    let kind = mime_type.map(|mime_type| format!(" of type {mime_type}")).unwrap_or_default();
    format!("[file {name}{kind}: left out, this model does not accept it]")
}
