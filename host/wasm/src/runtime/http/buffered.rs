//! Requests and responses whose bodies are in memory, for the contract's `http` interface.

use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use wasmtime_wasi_http::{DEFAULT_FORBIDDEN_HEADERS, RequestOptions, WasiBody};

use super::error::HttpError;
use super::guard::{MAX_METHOD, MAX_PATH};
use super::{RequestSender, body::ResponseBody};
use crate::runtime::limits::{Limit, MAX_HEADERS};
use crate::runtime::store::call_usage::CallUsage;
use crate::runtime::store::file_stream::counted_bytes;
use crate::runtime::store::memory::MemoryReservation;
use crate::runtime::store::meter::header_size;

/// Smaller frames of a response's body are joined: a server can send single bytes, each of which would take a hundred.
const MIN_PIECE: usize = 16 << 10;

/// A request. Header values are Latin-1: each character is one byte.
pub(crate) struct BufferedRequest {
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) timeout: Option<Duration>,
}

/// A response. Header values are as in [`BufferedRequest`].
pub(crate) struct BufferedResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// The pieces of the body, which count to the memory of the instance.
    pub(crate) body: Vec<Bytes>,
    /// The memory of the headers.
    _headers: MemoryReservation,
}

impl RequestSender {
    /// Sends a request and waits for the whole response.
    pub(crate) async fn exchange(self, request: BufferedRequest) -> Result<BufferedResponse, HttpError> {
        let options = RequestOptions {
            connect_timeout: request.timeout,
            first_byte_timeout: request.timeout,
            between_bytes_timeout: request.timeout,
        };
        let size: u64 = request.headers.iter().map(|(name, value)| header_size(name, value.as_bytes())).sum();
        if size > MAX_HEADERS as u64 {
            return Err(self.usage.limit_exceeded(Limit::Headers).into());
        }
        let (head, body) = self.send(request.into_http()?, options).await?.into_parts();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), latin_1(value.as_bytes())));
        let headers: Vec<(String, String)> = headers.collect();
        let size = headers.iter().map(|(name, value)| header_size(name, value.as_bytes())).sum();
        let reservation = self.usage.reserve(size)?;
        let body = read(body, &self.usage).await?;
        Ok(BufferedResponse { status: head.status.as_u16(), headers, body, _headers: reservation })
    }
}

impl BufferedRequest {
    fn into_http(self) -> Result<Request<WasiBody>, HttpError> {
        let Ok(url) = Uri::from_str(&self.url) else {
            return Err(HttpError::Request(format!("`{}` is not a URL; write it as `https://host/path`", self.url)));
        };
        if self.url.len() > MAX_PATH || !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err(HttpError::Url);
        }
        let body = Full::new(Bytes::from(self.body)).map_err(|never| match never {}).boxed_unsync();
        let mut request = Request::new(body);
        if self.method.len() > MAX_METHOD {
            return Err(HttpError::Method);
        }
        *request.method_mut() = Method::from_str(&self.method).map_err(|_| HttpError::Method)?;
        *request.uri_mut() = url;
        *request.headers_mut() = headers(self.headers)?;
        Ok(request)
    }
}

fn headers(list: Vec<(String, String)>) -> Result<HeaderMap, HttpError> {
    let mut headers = HeaderMap::with_capacity(list.len());
    for (name, value) in list {
        let invalid = || HttpError::Request(format!("`{name}` with its value is not a header"));
        let bytes: Option<Vec<u8>> = value.chars().map(|character| u8::try_from(character).ok()).collect();
        let value = HeaderValue::try_from(bytes.ok_or_else(invalid)?).map_err(|_| invalid())?;
        let key = HeaderName::try_from(&name).map_err(|_| invalid())?;
        if DEFAULT_FORBIDDEN_HEADERS.contains(&key) {
            return Err(HttpError::Request(format!("the header `{name}` is set by the host")));
        }
        // The HTTP client sets it from the body.
        if key != CONTENT_LENGTH {
            headers.append(key, value);
        }
    }
    Ok(headers)
}

/// Decodes bytes that are one character each.
fn latin_1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Reads a body to its end. Joins small frames.
async fn read(mut body: ResponseBody, usage: &CallUsage) -> Result<Vec<Bytes>, HttpError> {
    let (mut pieces, mut joined) = (Vec::new(), Vec::<u8>::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if data.len() < MIN_PIECE {
            joined.extend_from_slice(&data);
        }
        if joined.len() >= MIN_PIECE || data.len() >= MIN_PIECE {
            pieces.extend(take_joined(&mut joined, usage)?);
        }
        if data.len() >= MIN_PIECE {
            pieces.push(data);
        }
    }
    pieces.extend(take_joined(&mut joined, usage)?);
    Ok(pieces)
}

/// Removes the joined bytes. From then on they count to the memory of the instance.
fn take_joined(joined: &mut Vec<u8>, usage: &CallUsage) -> Result<Option<Bytes>, HttpError> {
    if joined.is_empty() {
        return Ok(None);
    }
    let reservation = usage.reserve(joined.len() as u64)?;
    // Without the room that it has for more, which is not counted.
    let piece = std::mem::take(joined).into_boxed_slice();
    Ok(Some(counted_bytes(piece.into(), reservation)))
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use crate::guest_log::GuestLog;
    use crate::runtime::limits::Limits;
    use crate::runtime::store::memory::{EngineMemory, InstanceMemory};

    fn body(frames: impl Iterator<Item = Bytes> + Send + 'static) -> ResponseBody {
        StreamBody::new(stream::iter(frames.map(|data| Ok(Frame::data(data))))).boxed_unsync()
    }

    #[tokio::test]
    async fn single_bytes_of_a_body_are_joined_and_counted() {
        const SIZE: usize = 10 * MIN_PIECE + 1;
        let engine = EngineMemory::new(1 << 30, 1 << 30);
        let limits = Limits::default();
        let memory = InstanceMemory::new(limits.clone(), engine.clone(), None);
        let usage = CallUsage::new(limits.clone(), GuestLog::new("tester".into(), None, &limits), memory);
        let bytes: Vec<u8> = (0..SIZE).map(|index| (index % 251) as u8).collect();
        let single = bytes.clone().into_iter().map(|byte| Bytes::from(vec![byte]));
        let pieces = read(body(single), &usage).await.unwrap();
        let whole: Vec<u8> = pieces.concat();
        assert_eq!((pieces.len(), whole == bytes), (11, true));
        assert_eq!(engine.used_bytes(), SIZE as u64);
        drop(pieces);
        assert_eq!(engine.used_bytes(), 0);
    }

    #[tokio::test]
    async fn small_and_large_frames_of_a_body_keep_their_order() {
        let limits = Limits::default();
        let memory = InstanceMemory::new(limits.clone(), EngineMemory::new(1 << 30, 1 << 30), None);
        let usage = CallUsage::new(limits.clone(), GuestLog::new("tester".into(), None, &limits), memory);
        let frames = [("a", 1), ("b", 1), ("c", MIN_PIECE), ("d", 1), ("e", MIN_PIECE - 1), ("f", 1), ("", 0)];
        let frames = frames.map(|(letter, count)| Bytes::from(letter.repeat(count)));
        let pieces = read(body(frames.clone().into_iter()), &usage).await.unwrap();
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [2, MIN_PIECE, MIN_PIECE, 1]);
        let (whole, sent): (Vec<u8>, Vec<u8>) = (pieces.concat(), frames.concat());
        assert!(whole == sent);
        assert!(read(body(std::iter::empty()), &usage).await.unwrap().is_empty());
    }

    fn request(url: &str, headers: &[(&str, &str)]) -> Result<Request<WasiBody>, String> {
        let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let request =
            BufferedRequest { method: "POST".into(), url: url.into(), headers, body: b"x".into(), timeout: None };
        request.into_http().map_err(|error| format!("{}: {error}", error.code()))
    }

    #[test]
    fn headers_are_checked_and_their_values_are_bytes() {
        let made = request("https://a.com/x?y#z", &[("X-Name", "Zo\u{eb}"), ("Content-Length", "9")]).unwrap();
        assert_eq!((made.uri().to_string().as_str(), made.headers().len()), ("https://a.com/x?y", 1));
        assert_eq!(made.headers()["x-name"].as_bytes(), b"Zo\xeb");
        for (name, value, message) in [
            ("host", "b.com", "the header `host` is set by the host"),
            ("Transfer-Encoding", "chunked", "the header `Transfer-Encoding` is set by the host"),
            ("x", "日", "`x` with its value is not a header"),
            ("x", "a\r\nb: c", "`x` with its value is not a header"),
            ("x y", "a", "`x y` with its value is not a header"),
        ] {
            assert_eq!(request("https://a.com", &[(name, value)]).unwrap_err(), format!("HTTP_FAILED: {message}"));
        }
    }

    #[test]
    fn a_method_has_at_most_64_bytes() {
        let made = |method: String| {
            let (url, headers) = ("https://a.com/".into(), Vec::new());
            let request = BufferedRequest { method, url, headers, body: Vec::new(), timeout: None };
            request.into_http().map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(made("X".repeat(64)), Ok(()));
        assert_eq!(made("X".repeat(65)), Err("requests with this method are not sent".to_owned()));
    }

    #[test]
    fn a_url_has_a_scheme_that_can_be_sent() {
        let no_url = "HTTP_FAILED: `a b` is not a URL; write it as `https://host/path`";
        assert_eq!(request("a b", &[]).unwrap_err(), no_url);
        for url in ["a.com", "ftp://a.com/", &format!("https://a.com/{}", "x".repeat(MAX_PATH))] {
            assert_eq!(request(url, &[]).unwrap_err(), "HTTP_FAILED: the URL has no usable host");
        }
    }
}
