//! HTTP options of a model call: the setting `httpOptions`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::json::JsonMap;

/// Headers that only the host sets: the credentials of all providers and gateways, and the headers of the
/// connection.
const RESERVED_HEADERS: [&str; 12] = [
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "x-apikey",
    "x-goog-api-key",
    "cookie",
    "host",
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
];

/// Maximum number of attempts of one call.
const MAX_ATTEMPTS: u32 = 10;

/// HTTP settings of a model call. The base URL is the operator's.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct HttpOptions {
    /// Milliseconds until a response must begin.
    pub timeout: Option<u64>,
    /// Headers of the request.
    pub headers: BTreeMap<String, String>,
    /// Retries of a failed request.
    pub retry_options: Option<RetryOptions>,
    /// Keys that are added to the body of the request.
    pub extra_body: JsonMap,
}

/// Retries of a failed request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RetryOptions {
    /// Attempts, the first included.
    pub attempts: Option<u32>,
    /// Seconds before the first retry.
    pub initial_delay: Option<f64>,
    /// Maximum number of seconds before a retry.
    pub max_delay: Option<f64>,
    /// Factor by which the delay grows.
    pub exp_base: Option<f64>,
    /// Randomness of the delay; 0 is none.
    pub jitter: Option<f64>,
    /// HTTP statuses after which a request is retried.
    pub http_status_codes: Option<Vec<u16>>,
}

impl HttpOptions {
    /// Checks the headers and the numbers.
    pub(crate) fn check(&self) -> Result<(), String> {
        let reserved = |name: &&String| RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str());
        if let Some(name) = self.headers.keys().find(reserved) {
            return Err(format!("`httpOptions.headers` cannot set `{name}`, which the host sets"));
        }
        let retry = self.retry_options.clone().unwrap_or_default();
        if retry.attempts.is_some_and(|attempts| attempts == 0 || attempts > MAX_ATTEMPTS) {
            return Err(format!("`httpOptions.retryOptions.attempts` is between 1 and {MAX_ATTEMPTS}"));
        }
        let delays = [retry.initial_delay, retry.max_delay, retry.exp_base, retry.jitter];
        if delays.into_iter().flatten().any(|delay| !(0.0..=3_600.0).contains(&delay)) {
            return Err("the numbers of `httpOptions.retryOptions` are between 0 and 3600".into());
        }
        Ok(())
    }
}
