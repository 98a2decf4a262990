//! The end of a live run, and the close frame that tells it.

use axum::extract::ws::{CloseFrame, close_code};
use hatchery_core::{RunError, StoreError};

use crate::error::{self, ApiError};

/// Maximum size of the reason in a close frame.
const MAX_REASON_BYTES: usize = 123;

/// Why a live run ends.
#[derive(Debug)]
pub(crate) enum LiveEnd {
    /// The client has closed the queue, and everything is answered.
    Finished,
    /// The client has closed the connection, or it broke.
    Disconnected,
    /// A turn has failed, or the run could not begin.
    Failed(RunError),
    /// The app or the parameters are wrong, or the server is busy.
    Refused(u16, String),
    /// A frame is not text.
    NotText,
    /// A frame is larger than this many bytes.
    TooLarge(usize),
    /// Nothing happened for this many seconds.
    Idle(f64),
    /// The server stops.
    Stopped,
}

impl LiveEnd {
    /// Returns the end for an app that cannot be had.
    pub(crate) fn no_app(error: &ApiError) -> Self {
        Self::Refused(close_code::ERROR, format!("Runner unavailable: {}", error.detail))
    }

    /// Returns the close frame; `None` if nobody reads it.
    pub(crate) fn frame(&self) -> Option<CloseFrame> {
        let (code, reason) = match self {
            Self::Finished => (close_code::NORMAL, String::new()),
            Self::Disconnected => return None,
            Self::Failed(RunError::Store(StoreError::SessionNotFound(_))) => {
                (close_code::PROTOCOL, "Session not found".into())
            }
            Self::Failed(error @ (RunError::BadInput(_) | RunError::InvalidMessage(_))) => {
                (close_code::POLICY, error::detail(error))
            }
            Self::Failed(error) => (close_code::ERROR, error::detail(error)),
            Self::Refused(code, reason) => (*code, reason.clone()),
            Self::NotText => (close_code::UNSUPPORTED, "send text frames with the JSON of a LiveRequest".into()),
            Self::TooLarge(limit) => (close_code::SIZE, format!("a frame has at most {limit} bytes")),
            Self::Idle(seconds) => (close_code::AWAY, format!("nothing was sent for {seconds} s")),
            Self::Stopped => (close_code::AWAY, "the server stops; connect again".into()),
        };
        Some(CloseFrame { code, reason: cut(&reason).into() })
    }
}

/// Returns as much of a reason as a close frame can have.
fn cut(reason: &str) -> &str {
    reason.get(..reason.floor_char_boundary(MAX_REASON_BYTES)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        let long = LiveEnd::Refused(close_code::ERROR, "ä".repeat(100));
        let frame = long.frame().unwrap();
        assert_eq!((frame.code, frame.reason.as_str()), (1011, "ä".repeat(61).as_str()));
        assert!(LiveEnd::Disconnected.frame().is_none());
    }
}
