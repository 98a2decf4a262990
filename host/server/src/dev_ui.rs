//! The files of the developer UI, embedded in the program, and its content security policy.
//!
//! `host/ui/dist` is built by `cargo xtask ui` and committed. Debug builds read it from the disk at each request.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hatchery::DevUi;
use rust_embed::{EmbeddedFile, RustEmbed};

/// Allows files of this server only, and no code from strings.
pub(crate) const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; \
     connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);

/// The policy of a UI from a folder, such as ADK's, which has inline scripts and styles.
pub(crate) const FOLDER_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; \
     base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
);

const INDEX: &str = "index.html";

/// Files below this folder have a hash of their content in their name.
const HASHED: &str = "assets/";

#[derive(RustEmbed)]
#[folder = "../ui/dist"]
struct Files;

/// Returns the page for a path below `/dev-ui/`, with a base from which its relative links lead to its files, also
/// behind a proxy that adds a prefix.
pub(crate) fn page(path: &str, mode: DevUi) -> Option<Response> {
    let html = Files::get(INDEX)?;
    let html = std::str::from_utf8(&html.data).ok()?;
    let head = format!(
        "<head>\n    <base href=\"{}\">\n    <meta name=\"hatchery-mode\" content=\"{}\">",
        base(path),
        mode.label()
    );
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    Some((headers, html.replacen("<head>", &head, 1)).into_response())
}

/// Returns the relative path from a page to `/dev-ui/`.
fn base(path: &str) -> String {
    match path.matches('/').count() {
        0 => "./".into(),
        depth => "../".repeat(depth),
    }
}

/// Returns a file other than the page. `None` if there is none. `tag` is the `If-None-Match` header.
pub(crate) fn file(path: &str, tag: Option<&HeaderValue>) -> Option<Response> {
    let EmbeddedFile { data, metadata } = Files::get(path).filter(|_| path != INDEX)?;
    let hash: String = metadata.sha256_hash().iter().map(|byte| format!("{byte:02x}")).collect();
    let own_tag = HeaderValue::try_from(format!("\"{hash}\"")).ok()?;
    let cache = if path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let is_known = tag == Some(&own_tag);
    let headers = [
        (header::CONTENT_TYPE, content_type(path)),
        (header::CACHE_CONTROL, HeaderValue::from_static(cache)),
        (header::ETAG, own_tag),
    ];
    if is_known {
        return Some((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    Some((headers, Body::from(data.into_owned())).into_response())
}

fn content_type(path: &str) -> HeaderValue {
    let mime = mime_guess::from_path(path).first_or_octet_stream();
    let is_text = mime.type_() == mime_guess::mime::TEXT && mime.get_param("charset").is_none();
    let text = if is_text { format!("{mime}; charset=utf-8") } else { mime.to_string() };
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("application/octet-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_page_lead_to_the_folder_of_the_ui() {
        for (path, expected) in [("", "./"), ("components", "./"), ("apps/dice", "../"), ("a/b/c", "../../")] {
            assert_eq!(base(path), expected, "{path}");
        }
    }

    #[test]
    fn files_have_the_content_type_of_their_extension() {
        for (path, expected) in [
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.svg", "image/svg+xml"),
            ("a.unknown", "application/octet-stream"),
        ] {
            assert_eq!(content_type(path), expected);
        }
    }
}
