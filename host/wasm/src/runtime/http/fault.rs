//! Why a request fails, and as what the guest sees it.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use thiserror::Error;
use wasmtime_wasi_http::Error as WasiError;

use crate::policy::Denial;
use crate::runtime::limits::{Limit, LimitHit, Limits};
use crate::runtime::store::memory::MemoryError;

/// Any error, as HTTP clients hand it on.
pub(super) type AnyError = Box<dyn StdError + Send + Sync>;

/// Why a request fails.
#[derive(Debug, Clone, Error)]
pub(super) enum Fault {
    #[error("there is no network while a component describes itself")]
    Describing,
    /// The policy refuses it.
    #[error("{}: {}", crate::policy::DENIED, .0)]
    Denied(#[from] Denial),
    #[error("LIMIT_REACHED: {0}")]
    Limit(#[from] LimitHit),
    #[error("LIMIT_REACHED: {0}")]
    Memory(#[from] MemoryError),
    /// A time that the guest itself has set.
    #[error("the connection was not made in the time that the component gives it")]
    OwnConnectTimeout,
    /// The same.
    #[error("nothing came in the time that the component gives it")]
    OwnReadTimeout,
    #[error("the URL has no usable host")]
    Url,
    #[error("requests with this method are not sent")]
    Method,
    #[error("`{host}` has no address: {reason}")]
    NoAddress { host: String, reason: String },
    #[error("cannot connect to `{host}`: {reason}")]
    Unreachable { host: String, kind: io::ErrorKind, reason: String },
    #[error("TLS fails: {0}")]
    Tls(rustls::Error),
    #[error("no response to `{method} {url}` is recorded; add it to `http` of the conversation")]
    NotRecorded { method: String, url: String },
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl From<Fault> for WasiError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Url => Self::HttpRequestUriInvalid,
            Fault::Method => Self::HttpRequestMethodInvalid,
            Fault::OwnConnectTimeout => Self::ConnectionTimeout,
            Fault::OwnReadTimeout => Self::ConnectionReadTimeout,
            Fault::NoAddress { reason, .. } => Self::DnsError { rcode: Some(reason), info_code: None },
            Fault::Unreachable { kind: io::ErrorKind::ConnectionRefused, .. } => Self::ConnectionRefused,
            Fault::Unreachable { kind: io::ErrorKind::TimedOut, .. } => Self::ConnectionTimeout,
            Fault::Tls(rustls::Error::InvalidCertificate(_)) => Self::TlsCertificateError,
            fault @ (Fault::Describing
            | Fault::Denied(_)
            | Fault::Limit(_)
            | Fault::Memory(_)
            | Fault::Unreachable { .. }
            | Fault::Tls(_)
            | Fault::NotRecorded { .. }
            | Fault::Broken(_)) => Self::InternalError(Some(fault.to_string())),
        }
    }
}

impl Fault {
    /// What is at the bottom of a client's error.
    pub(super) fn of(error: &(dyn StdError + 'static)) -> Self {
        let (mut next, mut texts) = (Some(error), Vec::new());
        while let Some(error) = next {
            if let Some(fault) = error.downcast_ref::<Self>() {
                return fault.clone();
            }
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return Self::Tls(tls.clone());
            }
            texts.push(error.to_string());
            // An `io::Error` shows what it wraps as its own, and only by this.
            let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = wrapped.map(|inner| inner as &(dyn StdError + 'static)).or_else(|| error.source());
        }
        texts.dedup();
        Self::Broken(texts.join(": "))
    }
}

/// How long to wait for something, and what it is when that was too long.
#[derive(Clone)]
pub(super) struct Patience {
    pub(super) time: Duration,
    pub(super) fault: Fault,
}

impl Patience {
    /// As long as the operator allows, or less if the guest wants so.
    pub(super) fn new(limits: &Limits, limit: Limit, time: Duration, own: Option<Duration>) -> Self {
        match own.filter(|own| *own < time) {
            Some(own) => Self { time: own, fault: Fault::OwnReadTimeout },
            None => Self { time, fault: limits.hit(limit).into() },
        }
    }
}
