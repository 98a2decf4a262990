//! Errors of outgoing HTTP, and their mapping to `wasi:http`.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use thiserror::Error;
use wasmtime_wasi_http::Error as WasiError;

use crate::policy::{DENIED, Denial};
use crate::runtime::limits::{Limit, LimitExceeded, Limits};
use crate::runtime::store::memory::MemoryError;

pub(super) type AnyError = Box<dyn StdError + Send + Sync>;

#[derive(Debug, Clone, Error)]
pub(crate) enum HttpError {
    #[error("there is no network access in `describe`")]
    InDescribe,
    #[error("{0}")]
    TurnLost(String),
    #[error("{0}")]
    Denied(#[from] Denial),
    #[error("{}", .0.for_callers())]
    Limit(#[from] LimitExceeded),
    #[error("{}", .0.for_callers())]
    Memory(#[from] MemoryError),
    /// A timeout set by the guest.
    #[error("the connection was not established within the component's timeout")]
    GuestConnectTimeout,
    /// A timeout set by the guest.
    #[error("no data was received within the component's timeout")]
    GuestReadTimeout,
    #[error("the URL has no usable host")]
    Url,
    #[error("requests with this method are not sent")]
    Method,
    #[error("{0}")]
    Request(String),
    #[error("`{host}` has no address: {reason}")]
    NoAddress { host: String, reason: String },
    #[error("cannot connect to `{host}`: {reason}")]
    Unreachable { host: String, kind: io::ErrorKind, reason: String },
    #[error("TLS failed: {0}")]
    Tls(rustls::Error),
    #[error("no response to `{method} {url}` is recorded; add it to `http` of the conversation")]
    NotRecorded { method: String, url: String },
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl From<HttpError> for WasiError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Url => Self::HttpRequestUriInvalid,
            HttpError::Method => Self::HttpRequestMethodInvalid,
            HttpError::GuestConnectTimeout => Self::ConnectionTimeout,
            HttpError::GuestReadTimeout => Self::ConnectionReadTimeout,
            HttpError::NoAddress { reason, .. } => Self::DnsError { rcode: Some(reason), info_code: None },
            HttpError::Unreachable { kind: io::ErrorKind::ConnectionRefused, .. } => Self::ConnectionRefused,
            HttpError::Unreachable { kind: io::ErrorKind::TimedOut, .. } => Self::ConnectionTimeout,
            HttpError::Tls(rustls::Error::InvalidCertificate(_)) => Self::TlsCertificateError,
            error @ (HttpError::InDescribe
            | HttpError::TurnLost(_)
            | HttpError::Denied(_)
            | HttpError::Limit(_)
            | HttpError::Memory(_)
            | HttpError::Request(_)
            | HttpError::Unreachable { .. }
            | HttpError::Tls(_)
            | HttpError::NotRecorded { .. }
            | HttpError::Broken(_)) => Self::InternalError(Some(match error.policy_code() {
                Some(code) => format!("{code}: {error}"),
                None => error.to_string(),
            })),
        }
    }
}

/// Code of errors that are neither denials nor limits.
const HTTP_FAILED: &str = "HTTP_FAILED";

impl HttpError {
    /// Returns the code for guests.
    pub(crate) fn code(&self) -> &'static str {
        self.policy_code().unwrap_or(HTTP_FAILED)
    }

    /// Returns the code of an error of the host's policy.
    fn policy_code(&self) -> Option<&'static str> {
        match self {
            Self::TurnLost(_) => Some("TURN_TAKEN_OVER"),
            Self::Denied(_) => Some(DENIED),
            Self::Limit(_) | Self::Memory(_) => Some("LIMIT_REACHED"),
            _ => None,
        }
    }

    /// Returns the error for an error of the HTTP client: its innermost known cause, or the texts of all causes.
    pub(super) fn from_client(error: &(dyn StdError + 'static)) -> Self {
        let (mut next, mut texts) = (Some(error), Vec::new());
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<Self>() {
                return error.clone();
            }
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return Self::Tls(tls.clone());
            }
            texts.push(error.to_string());
            // The error inside of an `io::Error` is only available through `get_ref`.
            let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = wrapped.map(|inner| inner as &(dyn StdError + 'static)).or_else(|| error.source());
        }
        texts.dedup();
        Self::Broken(texts.join(": "))
    }
}

/// A timeout and its error.
#[derive(Clone)]
pub(super) struct ReadTimeout {
    pub(super) after: Duration,
    pub(super) error: HttpError,
}

impl ReadTimeout {
    /// Uses the shorter one of the limit and the guest's timeout.
    pub(super) fn new(limits: &Limits, limit: Limit, limit_time: Duration, guest_timeout: Option<Duration>) -> Self {
        match guest_timeout.filter(|timeout| *timeout < limit_time) {
            Some(timeout) => Self { after: timeout, error: HttpError::GuestReadTimeout },
            None => Self { after: limit_time, error: limits.exceeded(limit).into() },
        }
    }
}
