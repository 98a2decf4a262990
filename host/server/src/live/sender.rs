//! The sender of the requests of a connection.

use hatchery_core::LiveRequest;

use crate::auth::Credentials;
use crate::error::ApiError;
use crate::state::AppState;

/// The sender of the requests of a connection, whose permissions may change while it is open.
pub(crate) struct LiveSender {
    pub(crate) state: AppState,
    /// `None` if the connection was opened without authentication.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) app: String,
    pub(crate) user: String,
}

impl LiveSender {
    /// Checks that the sender may send the requests of a frame. A message, and the end of speech, counts as a request
    /// to the server. The chunks of speech are not checked, because there are many.
    ///
    /// # Errors
    /// As for a request, and 403 if a message sets state that only operators may set.
    pub(super) async fn check(&self, requests: &[LiveRequest]) -> Result<(), ApiError> {
        let is_checked =
            |request: &LiveRequest| matches!(request, LiveRequest::Content { .. } | LiveRequest::ActivityEnd);
        if !requests.iter().any(is_checked) {
            return Ok(());
        }
        let principal = self.state.admit_message(self.credentials.as_ref()).await?;
        principal.check_app(&self.app)?;
        principal.check_user(&self.user)?;
        for request in requests {
            if let LiveRequest::Content { state_delta, .. } = request {
                principal.check_state(state_delta)?;
            }
        }
        Ok(())
    }
}
