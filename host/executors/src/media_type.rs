//! Media types of files that code has written.

/// Media types by extension. Others are `application/octet-stream`.
const MEDIA_TYPES: [(&str, &str); 12] = [
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain"),
    ("xml", "application/xml"),
];

/// Returns the media type of a file by its extension.
pub(crate) fn media_type(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    let known = MEDIA_TYPES.iter().find(|(known, _)| Some(*known) == extension.as_deref());
    known.map_or("application/octet-stream", |(_, media_type)| media_type)
}
