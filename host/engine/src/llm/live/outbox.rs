//! The requests of a conversation that are not sent yet.

use std::collections::VecDeque;
use std::future::pending;

use futures::future::BoxFuture;
use hatchery_core::{LiveConnection, LiveRequest, ModelError, ModelErrorKind, Reservation, RunError};

/// Sends requests one by one. The conversation receives messages in the meantime: a model may take its next request only
/// when its messages were received.
pub(super) struct Outbox<'a> {
    connection: &'a dyn LiveConnection,
    waiting: VecDeque<OutgoingRequest>,
    sending: Option<Sending<'a>>,
}

struct OutgoingRequest {
    request: LiveRequest,
    /// Held until the request is sent.
    reservations: Vec<Reservation>,
    is_from_client: bool,
}

/// The request that is being sent.
struct Sending<'a> {
    sent: BoxFuture<'a, Result<(), ModelError>>,
    _reservations: Vec<Reservation>,
    is_from_client: bool,
}

impl<'a> Outbox<'a> {
    pub(super) fn new(connection: &'a dyn LiveConnection) -> Self {
        Self { connection, waiting: VecDeque::new(), sending: None }
    }

    /// Returns true if all requests are sent.
    pub(super) fn is_empty(&self) -> bool {
        self.sending.is_none() && self.waiting.is_empty()
    }

    /// Adds a request of the client.
    pub(super) fn push_from_client(&mut self, request: LiveRequest, reservations: Vec<Reservation>) {
        self.waiting.push_back(OutgoingRequest { request, reservations, is_from_client: true });
    }

    /// Adds a request of the host.
    pub(super) fn push(&mut self, request: LiveRequest) {
        self.waiting.push_back(OutgoingRequest { request, reservations: Vec::new(), is_from_client: false });
    }

    /// Returns once the first request is sent. Never returns if there is none. Cancel safe.
    ///
    /// # Errors
    /// The error of the model; [`RunError::BadInput`] if the model takes no such request of the client.
    pub(super) async fn send_first(&mut self) -> Result<(), RunError> {
        if self.sending.is_none()
            && let Some(OutgoingRequest { request, reservations, is_from_client }) = self.waiting.pop_front()
        {
            let sent = self.connection.send(request);
            self.sending = Some(Sending { sent, _reservations: reservations, is_from_client });
        }
        let Some(sending) = &mut self.sending else { return pending().await };
        let (result, is_from_client) = (sending.sent.as_mut().await, sending.is_from_client);
        self.sending = None;
        match result {
            Err(error) if is_from_client && error.kind == ModelErrorKind::BadRequest => {
                Err(RunError::BadInput(error.message))
            }
            result => Ok(result?),
        }
    }

    /// Drops all requests.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.sending = None;
    }
}
