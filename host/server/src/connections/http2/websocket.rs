//! WebSockets over HTTP/2 (RFC 8441): the extended `CONNECT` of a client becomes the `GET` with `Upgrade` of HTTP/1.1.
//! Routes and checks therefore handle one kind of request.

use std::sync::Arc;

use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::ext::Protocol;

use super::Window;
use crate::connections::stream_limit::StreamPermit;

/// A key for the handshake of HTTP/1.1. Its answer is removed.
const KEY: HeaderValue = HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAA==");

/// The window of the stream of a WebSocket. When this is dropped, the client has the write timeout to read the rest.
pub(crate) struct StreamWindow {
    window: Arc<Window>,
    /// Held until the WebSocket is closed.
    _permit: Arc<StreamPermit>,
}

impl StreamWindow {
    /// Begins a message: its client has the write timeout to make room for it.
    pub(crate) fn begin_message(&self) {
        self.window.close();
    }

    /// Ends a message.
    pub(crate) fn end_message(&self) {
        self.window.open();
    }
}

impl Drop for StreamWindow {
    fn drop(&mut self) {
        self.window.close();
    }
}

/// Translates a request for a WebSocket. Returns true if it is one. Requests for other protocols match no route.
pub(super) fn translate_request<B>(request: &mut Request<B>, window: &Arc<Window>, permit: &Arc<StreamPermit>) -> bool {
    if request.method() != Method::CONNECT {
        return false;
    }
    let protocol = request.extensions_mut().remove::<Protocol>();
    if protocol.is_none_or(|protocol| protocol.as_str() != "websocket") {
        return false;
    }
    *request.method_mut() = Method::GET;
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_KEY, KEY);
    let window = StreamWindow { window: window.clone(), _permit: permit.clone() };
    request.extensions_mut().insert(Arc::new(window));
    true
}

/// Translates the response to a request for a WebSocket. The one that opens it is a success without a body.
pub(super) fn translate_response<B>(response: &mut Response<B>, window: &Window) {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        *response.status_mut() = StatusCode::OK;
        response.headers_mut().remove(header::CONTENT_LENGTH);
        // No body waits for the client.
        window.open();
    }
    for name in [header::CONNECTION, header::UPGRADE, header::SEC_WEBSOCKET_ACCEPT] {
        response.headers_mut().remove(name);
    }
}
