//! Delivery of one notification over HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hatchery_core::sync::MutexExt;
use reqwest::header::HeaderValue;
use reqwest::{Client, Url};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::error::{A2aError, excerpt};
use crate::model::PushConfig;
use hatchery_egress::{self as egress, Egress, Timeouts};

/// Maximum number of attempts to send a notification.
const MAX_ATTEMPTS: u32 = 3;

/// Maximum number of clients that are kept.
const MAX_CLIENTS: usize = 64;

/// The header with the token of a configuration.
const TOKEN_HEADER: &str = "x-a2a-notification-token";

/// Maximum size in bytes of the texts of a configuration.
const MAX_ID: usize = 128;
const MAX_URL: usize = 2048;
const MAX_TOKEN: usize = 4096;
const MAX_SCHEME: usize = 64;
const MAX_CREDENTIALS: usize = 8192;

/// Limits of push notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushLimits {
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Delay before the second attempt, doubled each time.
    pub retry_delay: Duration,
    /// Maximum number of requests at a time.
    pub max_in_flight: usize,
}

impl Default for PushLimits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), retry_delay: Duration::from_secs(1), max_in_flight: 64 }
    }
}

/// Sends notifications to where a policy allows it.
pub(super) struct Delivery {
    egress: Arc<dyn Egress>,
    limits: PushLimits,
    in_flight: Semaphore,
    /// By the URLs of their requests, because a policy may allow an address for one URL only.
    clients: Mutex<HashMap<String, Client>>,
}

/// Checks the sizes of a configuration, and that its texts can be sent.
///
/// # Errors
/// The text, and its limit.
pub(super) fn check(config: &PushConfig) -> Result<(), A2aError> {
    let PushConfig { id, url, token, authentication, version: _ } = config;
    let scheme = authentication.as_ref().map(|it| it.scheme.as_str());
    let credentials = authentication.as_ref().and_then(|it| it.credentials.as_deref());
    let sized = [
        ("id", id.as_deref(), MAX_ID),
        ("url", Some(url.as_str()), MAX_URL),
        ("token", token.as_deref(), MAX_TOKEN),
        ("authentication.scheme", scheme, MAX_SCHEME),
        ("authentication.credentials", credentials, MAX_CREDENTIALS),
    ];
    if let Some((key, _, max)) = sized.iter().find(|(_, text, max)| text.is_some_and(|text| text.len() > *max)) {
        let message = format!("`{key}` of a push notification has at most {max} bytes");
        return Err(A2aError::invalid_params(message));
    }
    let sent = [("token", token.as_deref()), ("authentication", scheme), ("authentication", credentials)];
    match sent.iter().find(|(_, text)| text.is_some_and(|text| HeaderValue::from_str(text).is_err())) {
        Some((key, _)) => {
            let message =
                format!("`{key}` of a push notification is sent in a header, so it is ASCII without line breaks");
            Err(A2aError::invalid_params(message))
        }
        None => Ok(()),
    }
}

impl Delivery {
    pub(super) fn new(egress: Arc<dyn Egress>, limits: PushLimits) -> Self {
        Self { egress, limits, in_flight: Semaphore::new(limits.max_in_flight.max(1)), clients: Mutex::default() }
    }

    /// Returns the delay before a retry, where `retries` is 0 for the first one.
    pub(super) fn retry_delay(&self, retries: u32) -> Duration {
        self.limits.retry_delay.saturating_mul(2_u32.saturating_pow(retries))
    }

    /// Returns the client for a URL, which keeps its connections, if the policy allows the URL.
    fn client(&self, url: &Url) -> Result<Client, String> {
        egress::check(&self.egress, url)?;
        let mut clients = self.clients.lock_unpoisoned();
        if let Some(client) = clients.get(url.as_str()) {
            return Ok(client.clone());
        }
        let timeout = self.limits.timeout;
        let client = egress::client(&self.egress, url, Timeouts { connect: timeout, read: timeout })?;
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        clients.insert(url.as_str().to_owned(), client.clone());
        Ok(client)
    }

    /// Checks that notifications may be sent to the URL of a configuration.
    ///
    /// # Errors
    /// If the URL is invalid or refused. The setting that would allow it is only in the log.
    pub(super) fn check_url(&self, config: &PushConfig) -> Result<(), A2aError> {
        let url = Url::parse(&config.url).map_err(|error| {
            let message = format!("the URL of a push notification is invalid: `{}`: {error}", excerpt(&config.url));
            A2aError::invalid_params(message)
        })?;
        egress::check(&self.egress, &url).map_err(|reason| {
            tracing::info!("a client may not have push notifications sent to its URL: {reason}");
            A2aError::invalid_params("this host may not send push notifications to that URL; its log has the reason")
        })
    }

    /// Sends one notification. A failure is logged.
    pub(super) async fn deliver(&self, config: &PushConfig, body: Value) {
        for attempt in 1..=MAX_ATTEMPTS {
            match self.post(config, &body).await {
                Ok(()) => return,
                Err(reason) => tracing::info!(attempt, "a push notification was not delivered: {reason}"),
            }
            if attempt < MAX_ATTEMPTS {
                tokio::time::sleep(self.retry_delay(attempt - 1)).await;
            }
        }
    }

    async fn post(&self, config: &PushConfig, body: &Value) -> Result<(), String> {
        let _permit = self.in_flight.acquire().await.map_err(|error| error.to_string())?;
        let url = Url::parse(&config.url).map_err(|error| error.to_string())?;
        let mut request = self.client(&url)?.post(url).json(body).timeout(self.limits.timeout);
        if let Some(token) = &config.token {
            request = request.header(TOKEN_HEADER, token);
        }
        if let Some(authentication) = &config.authentication {
            let credentials = authentication.credentials.as_deref().unwrap_or_default();
            request = request.header("authorization", format!("{} {credentials}", authentication.scheme).trim());
        }
        let response = request.send().await.map_err(egress::describe)?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("the answer has the status {status}")),
        }
    }
}
