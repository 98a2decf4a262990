//! The end of a live run, and its close frame.

use axum::extract::ws::{CloseFrame, close_code};
use axum::http::StatusCode;
use hatchery_core::{RunError, StoreError};

use crate::error::{self, ApiError};
use crate::websocket::{SocketEnd, close_frame};

/// The reason for the end of a live run.
#[derive(Debug)]
pub(crate) enum LiveEnd {
    /// The client has closed the queue, and everything is answered.
    Finished,
    /// The connection has ended.
    Socket(SocketEnd),
    /// A turn has failed, or the run could not begin.
    Failed(RunError),
    /// The app or the parameters are wrong, or the server is busy.
    Refused(u16, String),
    /// Nothing happened for this many seconds.
    Idle(f64),
    /// The server stops.
    Stopped,
}

impl LiveEnd {
    /// Returns the end for an app that is not available.
    pub(crate) fn no_app(error: &ApiError) -> Self {
        Self::Refused(close_code::ERROR, format!("Runner unavailable: {}", error.detail))
    }

    /// Returns the end for a request that its sender may not send, or not now.
    pub(crate) fn refused(error: ApiError) -> Self {
        match error.status {
            StatusCode::NOT_FOUND => Self::no_app(&error),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                Self::Refused(close_code::AGAIN, error.detail)
            }
            _ => Self::Refused(close_code::POLICY, error.detail),
        }
    }

    /// Returns the close frame; `None` if the client is gone.
    pub(crate) fn frame(&self) -> Option<CloseFrame> {
        let (code, reason) = match self {
            Self::Finished => (close_code::NORMAL, String::new()),
            Self::Socket(SocketEnd::Disconnected) => return None,
            Self::Socket(SocketEnd::NotText) => {
                (close_code::UNSUPPORTED, "send text frames with the JSON of a LiveRequest".into())
            }
            Self::Socket(SocketEnd::TooLarge(limit)) => {
                (close_code::SIZE, format!("a frame has at most {limit} bytes"))
            }
            Self::Failed(RunError::Store(StoreError::SessionNotFound(_))) => {
                (close_code::PROTOCOL, "Session not found".into())
            }
            Self::Failed(error @ (RunError::BadInput(_) | RunError::InvalidMessage(_))) => {
                (close_code::POLICY, error::detail(error))
            }
            Self::Failed(error) => (close_code::ERROR, error::detail(error)),
            Self::Refused(code, reason) => (*code, reason.clone()),
            Self::Idle(seconds) => (close_code::AWAY, format!("nothing was sent for {seconds} s")),
            Self::Stopped => (close_code::AWAY, "the server stops; connect again".into()),
        };
        Some(close_frame(code, &reason))
    }
}

impl From<SocketEnd> for LiveEnd {
    fn from(end: SocketEnd) -> Self {
        Self::Socket(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_reads_the_reason_of_a_broken_connection() {
        assert!(LiveEnd::from(SocketEnd::Disconnected).frame().is_none());
        assert_eq!(
            LiveEnd::from(SocketEnd::TooLarge(7)).frame().unwrap().reason.as_str(),
            "a frame has at most 7 bytes"
        );
    }
}
