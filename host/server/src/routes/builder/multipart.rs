//! The files of a form (`multipart/form-data`, RFC 7578) in memory.

use axum::http::{HeaderMap, header};

use crate::error::ApiError;

/// Returns the names and texts of the files of a form.
///
/// # Errors
/// If the body is not such a form, or a file is not UTF-8.
pub(super) fn files(headers: &HeaderMap, body: &[u8]) -> Result<Vec<(String, String)>, ApiError> {
    let invalid = |detail: &str| ApiError::bad_input(format!("the body is not a form with files: {detail}"));
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let boundary = parameter(content_type, "boundary").filter(|_| content_type.starts_with("multipart/form-data"));
    let boundary = boundary.ok_or_else(|| invalid("send `Content-Type: multipart/form-data` with its boundary"))?;
    let body = std::str::from_utf8(body).map_err(|_| invalid("it is not UTF-8"))?;
    let delimiter = format!("--{boundary}");
    let mut parts = body.split(&*delimiter).skip(1);
    let mut files = Vec::new();
    loop {
        let part = parts.next().ok_or_else(|| invalid("its end is missing"))?;
        if part.starts_with("--") {
            return Ok(files);
        }
        let (head, content) = part.split_once("\r\n\r\n").ok_or_else(|| invalid("a part has no head"))?;
        let disposition = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
        });
        if let Some(name) = disposition.and_then(|value| parameter(value, "filename")) {
            files.push((name, content.strip_suffix("\r\n").unwrap_or(content).to_owned()));
        }
    }
}

/// Returns a parameter of a header's value.
fn parameter(value: &str, name: &str) -> Option<String> {
    value.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.trim().split_once('=')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim_matches('"').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(content_type: &'static str, body: &str) -> Result<Vec<(String, String)>, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        files(&headers, body.as_bytes()).map_err(|error| error.detail)
    }

    #[test]
    fn files_are_read_with_their_names_and_without_the_other_fields() {
        let body = "--x\r\nContent-Disposition: form-data; name=\"files\"; filename=\"a/root_agent.yaml\"\r\n\
                    Content-Type: application/x-yaml\r\n\r\nname: a\r\n\nmodel: b\r\n--x\r\n\
                    content-disposition: form-data; name=\"note\"\r\n\r\nhello\r\n--x--\r\n";
        let expected = vec![("a/root_agent.yaml".to_owned(), "name: a\r\n\nmodel: b".to_owned())];
        assert_eq!(read("multipart/form-data; boundary=x", body), Ok(expected));
        assert_eq!(read("multipart/form-data; boundary=\"x\"", "--x--"), Ok(vec![]));
    }

    #[test]
    fn other_bodies_are_errors() {
        for (content_type, body) in [
            ("application/json", "{}"),
            ("multipart/form-data", "--x--"),
            ("multipart/form-data; boundary=x", "--x\r\nno head"),
            ("multipart/form-data; boundary=x", "--x\r\nA: b\r\n\r\nno end"),
        ] {
            assert!(read(content_type, body).is_err(), "{content_type} {body}");
        }
    }
}
