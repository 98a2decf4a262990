//! Reasons why there is no credential.

use hatchery_core::{RunError, StoreError};
use thiserror::Error;

/// Reasons why there is no credential for a request. None of them shows a secret.
#[derive(Debug, Error)]
pub enum AuthError {
    /// A setting cannot be used.
    #[error("`{setting}` is invalid: {reason}")]
    Setting { setting: &'static str, reason: &'static str },
    /// The key of a service account cannot be used.
    #[error("the service account is not usable: {0}")]
    ServiceAccount(String),
    /// A connection is not allowed.
    #[error("{0}")]
    Egress(String),
    /// The server cannot be reached, refuses the host as a client, or violates the protocol.
    #[error("the OAuth server `{host}` cannot be used: {reason}")]
    Server {
        /// The host of the server.
        host: String,
        reason: String,
    },
    /// The server does not accept the grant of the user.
    #[error("the OAuth server refuses access: {reason}")]
    Refused {
        /// The code of the error, such as `access_denied`.
        reason: String,
    },
    /// The user's answer cannot be used.
    #[error("the answer to the request for a credential cannot be used: {0}; the next call asks again")]
    Answer(&'static str),
    /// The user cannot be asked.
    #[error(transparent)]
    Unasked(RunError),
    /// The storage of credentials has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AuthError {
    /// Returns the error for models. Settings and addresses of the host are only in its log.
    pub fn for_models(&self) -> String {
        match self {
            Self::Refused { .. } | Self::Answer(_) | Self::Unasked(_) => self.to_string(),
            Self::Setting { .. } | Self::ServiceAccount(_) | Self::Egress(_) | Self::Server { .. } | Self::Store(_) => {
                "the host gets no credentials for it; the log of the host holds the cause".into()
            }
        }
    }
}
