//! Access tokens that expire.

use std::sync::RwLock;
use std::time::Duration;

use hatchery_core::UptimeInstant;
use hatchery_core::sync::RwLockExt;
use reqwest::Url;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::Secret;

/// A token is replaced this long before it expires, or a quarter of its lifetime if that is less.
const MAX_EXPIRY_MARGIN: Duration = Duration::from_secs(60);

/// Lifetime of a token if the server does not report one.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);

/// Maximum time for which a token is cached.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3_600);

/// An access token, until shortly before it expires.
#[derive(Debug, Default)]
pub struct TokenCache {
    /// Held while a token is fetched, so that concurrent calls fetch one.
    refresh: tokio::sync::Mutex<()>,
    /// The token, and when to replace it.
    token: RwLock<Option<(Secret, UptimeInstant)>>,
}

impl TokenCache {
    /// Returns the token that was fetched last, if there is one.
    pub fn last(&self) -> Option<Secret> {
        self.token.read_unpoisoned().clone().map(|(token, _)| token)
    }

    fn fresh(&self) -> Option<Secret> {
        let token = self.token.read_unpoisoned().clone();
        token.filter(|(_, stale)| UptimeInstant::now() < *stale).map(|(token, _)| token)
    }

    /// Returns the token, which is fetched if there is none or it expires soon. Concurrent calls fetch one.
    ///
    /// # Errors
    /// The errors of `fetch`.
    pub async fn get_or_fetch<E>(&self, fetch: impl Future<Output = Result<TokenResponse, E>>) -> Result<Secret, E> {
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let _refresh = self.refresh.lock().await;
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let TokenResponse { access_token, expires_in } = fetch.await?;
        let lifetime = expires_in.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(MAX_LIFETIME);
        let stale = UptimeInstant::now() + (lifetime - MAX_EXPIRY_MARGIN.min(lifetime / 4));
        *self.token.write_unpoisoned() = Some((access_token.clone(), stale));
        Ok(access_token)
    }

    /// Forgets a token that was not accepted. A newer token is kept.
    pub fn forget(&self, refused: &Secret) {
        let mut token = self.token.write_unpoisoned();
        if token.as_ref().is_some_and(|(token, _)| token == refused) {
            *token = None;
        }
    }
}

/// The response of a token server.
#[derive(Debug, Clone, Deserialize)]
pub struct TokenResponse {
    pub access_token: Secret,
    /// Its lifetime in seconds. `None` if the server does not report it.
    #[serde(default, deserialize_with = "seconds")]
    pub expires_in: Option<u64>,
}

/// Deserializes seconds. Some servers send them as a string or with a fraction.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Seconds {
        Integer(u64),
        Number(f64),
        Text(String),
    }
    match Option::<Seconds>::deserialize(deserializer)? {
        None => Ok(None),
        Some(Seconds::Integer(seconds)) => Ok(Some(seconds)),
        // The cast saturates: a negative number is 0.
        Some(Seconds::Number(seconds)) => Ok(Some(seconds as u64)),
        Some(Seconds::Text(text)) => text.trim().parse().map(Some).map_err(D::Error::custom),
    }
}

/// A request to a token server.
#[derive(Debug, Clone)]
pub struct TokenRequest {
    /// The URL that the form is posted to.
    pub url: Url,
    /// Names and values.
    pub form: Vec<(&'static str, Secret)>,
}

impl TokenRequest {
    /// Returns the form as `application/x-www-form-urlencoded`.
    pub fn body(&self) -> String {
        let mut encoded = self.url.clone();
        encoded.query_pairs_mut().clear().extend_pairs(self.form.iter().map(|(name, value)| (name, value.expose())));
        encoded.query().unwrap_or_default().to_owned()
    }
}
