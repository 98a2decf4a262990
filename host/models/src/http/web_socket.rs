//! WebSockets over the HTTP client of the providers, with its TLS, proxies and timeouts.

use reqwest::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use reqwest::{StatusCode, Upgraded, Url};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use hatchery_core::{HttpOptions, ModelCallProgress, ModelError, ModelErrorKind};

use super::{Endpoint, FIRST_BYTE_TIMEOUT, MAX_BODY_BYTES, chain, refusal};

/// An open WebSocket.
pub(crate) type WebSocket = WebSocketStream<Upgraded>;

impl Endpoint {
    /// Opens a WebSocket at this URL, whose scheme is `http` or `https`.
    pub(crate) async fn connect(&self, url: &Url, options: &HttpOptions) -> Result<WebSocket, ModelError> {
        let origin = &self.origin;
        let client = self.http.upgrading_client(origin)?;
        let key = generate_key();
        let headers = self.request_headers(options, &ModelCallProgress::default())?;
        let request = || {
            client
                .get(url.clone())
                .headers(headers.clone())
                .header(CONNECTION, "Upgrade")
                .header(UPGRADE, "websocket")
                .header(SEC_WEBSOCKET_VERSION, "13")
                .header(SEC_WEBSOCKET_KEY, &key)
        };
        let response = self.send_authorized(&request, FIRST_BYTE_TIMEOUT).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refusal(response, origin).await);
        }
        let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT).and_then(|accept| accept.to_str().ok());
        if accepted != Some(derive_accept_key(key.as_bytes()).as_str()) {
            return Err(origin.bad_response("it does not accept the WebSocket"));
        }
        let upgraded = response.upgrade().await.map_err(|error| {
            let message = format!("the connection to {} broke: {}", origin.provider_name(), chain(&error));
            origin.error(ModelErrorKind::Network, message)
        })?;
        let config =
            WebSocketConfig::default().max_message_size(Some(MAX_BODY_BYTES)).max_frame_size(Some(MAX_BODY_BYTES));
        Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await)
    }
}
