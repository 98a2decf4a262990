//! Live connections to Gemini. A connection that the server ends is continued with the newest handle, which the agent
//! does not notice.

use backon::BackoffBuilder;
use hatchery_core::{
    HttpOptions, JsonMap, LiveConnection, LiveRequest, LiveResponse, LlmRequest, ModelError, ModelErrorKind,
};
use reqwest::Url;

use super::wire::live::{ServerFrame, check_input, history_frame, request_frame, setup_frame};
use crate::failure::Origin;
use crate::http::{Endpoint, WebSocket, backoff};
use crate::live_socket::{LiveProtocol, SocketConnection, next_setup_frame, send_frame, within_setup_time};

/// Maximum number of consecutive continuations without a message of the model.
const MAX_RESUMPTIONS: u32 = 3;

/// The URL and the authentication of a connection.
pub(super) struct Dialer {
    pub(super) endpoint: Endpoint,
    pub(super) url: Url,
    pub(super) setup: JsonMap,
    pub(super) options: HttpOptions,
}

impl Dialer {
    /// Connects, and sends the conversation so far.
    pub(super) async fn open(self, request: &LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        let origin = self.endpoint.origin.clone();
        let history = history_frame(request).map_err(|reason| origin.error(ModelErrorKind::BadRequest, reason))?;
        let mut socket = self.dial(None).await?;
        if let Some(history) = history {
            send_frame(&mut socket, history, &origin).await?;
        }
        Ok(SocketConnection::spawn(GeminiProtocol::new(self), socket, origin))
    }

    /// Connects, and waits until the setup is complete. `handle` continues an earlier connection.
    async fn dial(&self, handle: Option<&str>) -> Result<WebSocket, ModelError> {
        let origin = &self.endpoint.origin;
        let dialing = async {
            let mut socket = self.endpoint.connect(&self.url, &self.options).await?;
            send_frame(&mut socket, setup_frame(&self.setup, handle), origin).await?;
            loop {
                let frame = parse(&next_setup_frame(&mut socket, origin).await?, origin)?;
                if frame.setup_complete.is_some() {
                    return Ok(socket);
                }
            }
        };
        within_setup_time(dialing, origin).await
    }
}

/// The state of a connection.
struct GeminiProtocol {
    dialer: Dialer,
    /// Continues the connection.
    handle: Option<String>,
    /// True once the server has announced that it will close the connection.
    is_leaving: bool,
    /// True while the model speaks.
    is_in_turn: bool,
    /// Number of continuations since the model's last message.
    resumptions: u32,
}

impl GeminiProtocol {
    fn new(dialer: Dialer) -> Self {
        Self { dialer, handle: None, is_leaving: false, is_in_turn: false, resumptions: 0 }
    }
}

impl LiveProtocol for GeminiProtocol {
    fn check(request: &LiveRequest) -> Result<(), String> {
        check_input(request)
    }

    fn encode(&mut self, request: &LiveRequest) -> Result<Vec<String>, String> {
        Ok(request_frame(request)?.into_iter().collect())
    }

    fn decode(&mut self, json: &[u8]) -> Result<Vec<LiveResponse>, ModelError> {
        let mut frame = parse(json, &self.dialer.endpoint.origin)?;
        self.is_leaving |= frame.go_away.is_some();
        if let Some(update) = frame.session_resumption_update.take() {
            self.handle = update.handle().or(self.handle.take());
        }
        let responses = frame.into_responses();
        for response in &responses {
            if !matches!(response, LiveResponse::Usage(_)) {
                self.resumptions = 0;
            }
            match response {
                LiveResponse::TurnComplete | LiveResponse::Interrupted => self.is_in_turn = false,
                LiveResponse::Content(_) | LiveResponse::OutputTranscription(_) | LiveResponse::ToolCalls(_) => {
                    self.is_in_turn = true;
                }
                LiveResponse::InputTranscription(_) | LiveResponse::ToolCallsCancelled(_) | LiveResponse::Usage(_) => {}
            }
        }
        Ok(responses)
    }

    /// Returns true if the server is about to close the connection, and no turn is in progress.
    fn is_leaving(&self) -> bool {
        self.is_leaving && !self.is_in_turn
    }

    /// Opens a new connection with the newest handle. `None` without one; then the old connection is used while it
    /// lasts.
    async fn resume(&mut self) -> Result<Option<WebSocket>, ModelError> {
        let Some(handle) = self.handle.as_deref().filter(|_| self.resumptions < MAX_RESUMPTIONS) else {
            return Ok(None);
        };
        // Immediately the first time.
        if let Some(earlier) = self.resumptions.checked_sub(1) {
            let retry = self.dialer.options.retry_options.clone().unwrap_or_default();
            let Some(delay) = backoff(&retry).build().nth(earlier as usize) else { return Ok(None) };
            tokio::time::sleep(delay).await;
        }
        self.resumptions += 1;
        self.is_leaving = false;
        let socket = self.dialer.dial(Some(handle)).await?;
        self.is_in_turn = false;
        Ok(Some(socket))
    }
}

fn parse(json: &[u8], origin: &Origin) -> Result<ServerFrame, ModelError> {
    serde_json::from_slice(json).map_err(|error| origin.bad_response(error))
}
