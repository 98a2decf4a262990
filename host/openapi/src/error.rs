//! Errors of APIs.

use std::path::PathBuf;
use std::time::Duration;

use hatchery_core::{ConfigValue, MissingVariable};
use thiserror::Error;

/// Reasons why an API cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApiError {
    /// A setting needs a variable of the host's environment.
    #[error("`{key}` needs the environment variable {name} of the host, which is not set")]
    Variable {
        /// The key of the setting.
        key: String,
        /// The name of the variable.
        name: String,
    },
    /// A setting cannot be used.
    #[error("`{key}` is invalid: {reason}")]
    Setting {
        /// The key of the setting.
        key: String,
        reason: String,
    },
    /// The document cannot be read.
    #[error("its document cannot be read: {0}")]
    Unreadable(String),
    /// The file with the document cannot be read.
    #[error("its document cannot be read: {}: {reason}", .file.display())]
    UnreadableFile { file: PathBuf, reason: String },
    #[error("its document is larger than {0} bytes; raise `max_document` to allow more")]
    DocumentTooLarge(usize),
    /// The document is not one of OpenAPI 3.
    #[error("its document cannot be used: {0}")]
    Invalid(String),
    /// There are too many operations for a model.
    #[error(
        "{count} operations are selected, of at most {max}; choose some of them by name (`tools`) or by tag (`tags`), or \
         raise `max_tools`"
    )]
    TooManyOperations {
        /// The number of operations.
        count: usize,
        /// The maximum number.
        max: usize,
    },
    /// An operation whose calls must be confirmed does not exist.
    #[error("`require_confirmation` lists `{name}`, which is not an operation of the document; it has {known}")]
    UnknownConfirmation {
        /// The listed name.
        name: String,
        /// Names of the document.
        known: String,
    },
    /// The document has no operation that can be used.
    #[error("{0}")]
    NoOperations(String),
    /// A connection is not allowed.
    #[error("{0}")]
    Refused(String),
    /// There is no connection, or it was lost.
    #[error("the request failed: {0}")]
    Communication(String),
    /// There was no answer in time.
    #[error("it did not answer within {} s, so the request was given up; it may have had an effect", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("its answer is larger than {0} bytes; ask for less, such as one page or fewer fields")]
    AnswerTooLarge(usize),
    /// It answers with a redirect that is not followed.
    #[error("it redirects to `{0}`; the host follows redirects only for read requests to the same server")]
    Redirect(String),
    /// The host has no credentials for it.
    #[error("the host gets no credentials for it: {0}")]
    Credentials(String),
    /// The user has been asked for credentials.
    #[error("it waits for credentials of the user")]
    CredentialRequested,
    /// The user has granted no access.
    #[error("{0}")]
    User(String),
}

impl ApiError {
    /// Returns the error for reports about the host, which name files without their folders.
    pub(crate) fn for_reports(&self) -> String {
        match self {
            Self::UnreadableFile { file, reason } => {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                format!("its document cannot be read: {name}: {reason}")
            }
            error => error.to_string(),
        }
    }

    /// Returns the error for models. Settings, addresses and paths of the host are only in its log.
    pub(crate) fn for_models(&self) -> String {
        match self {
            Self::Variable { .. } | Self::Setting { .. } => {
                "its configuration is incomplete; the operator must fix it".into()
            }
            Self::Credentials(_) => "the host gets no credentials for it; the log of the host holds the cause".into(),
            Self::Refused(_) => "the host may not connect there; the log of the host holds the cause".into(),
            Self::Unreadable(_) | Self::UnreadableFile { .. } => {
                "its document cannot be read; the log of the host holds the cause".into()
            }
            Self::DocumentTooLarge(limit) => format!("its document is larger than {limit} bytes"),
            Self::TooManyOperations { count, max } => format!("{count} operations are selected, of at most {max}"),
            Self::UnknownConfirmation { .. } => {
                "an operation whose calls must be confirmed is not in its document".into()
            }
            Self::Invalid(_)
            | Self::NoOperations(_)
            | Self::CredentialRequested
            | Self::User(_)
            | Self::Communication(_)
            | Self::Timeout(_)
            | Self::AnswerTooLarge(_)
            | Self::Redirect(_) => self.to_string(),
        }
    }
}

/// Returns a value. `key` is the setting that an error names.
///
/// # Errors
/// If its variable is not set.
pub(crate) fn read(value: &ConfigValue, key: &str) -> Result<String, ApiError> {
    value.read().map_err(|MissingVariable(name)| ApiError::Variable { key: key.into(), name })
}
