//! Access tokens that expire.

use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use reqwest::Url;
use serde::Deserialize;

use crate::Secret;

/// A token is replaced this long before it expires.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);

/// An access token, until shortly before it expires.
#[derive(Debug, Default)]
pub struct TokenCache {
    /// Held while a token is fetched, so that concurrent calls fetch one.
    refresh: tokio::sync::Mutex<()>,
    token: RwLock<Option<(Secret, Instant)>>,
}

impl TokenCache {
    /// Returns the token that was fetched last, if there is one.
    pub fn last(&self) -> Option<Secret> {
        self.token.read().unwrap_or_else(PoisonError::into_inner).clone().map(|(token, _)| token)
    }

    fn fresh(&self) -> Option<Secret> {
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner).clone();
        token.filter(|(_, expires)| Instant::now() + EXPIRY_MARGIN < *expires).map(|(token, _)| token)
    }

    /// Returns the token, which is fetched if there is none or it expires soon. Concurrent calls fetch one.
    ///
    /// # Errors
    /// Those of `fetch`.
    pub async fn get_or_fetch<E>(&self, fetch: impl Future<Output = Result<TokenResponse, E>>) -> Result<Secret, E> {
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let _refresh = self.refresh.lock().await;
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let TokenResponse { access_token, expires_in } = fetch.await?;
        let lifetime = Duration::from_secs(expires_in.unwrap_or_default());
        let expires = Instant::now().checked_add(lifetime).unwrap_or_else(Instant::now);
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = Some((access_token.clone(), expires));
        Ok(access_token)
    }

    /// Forgets a token that was not accepted. Another one that was fetched meanwhile stays.
    pub fn forget(&self, refused: &Secret) {
        let mut token = self.token.write().unwrap_or_else(PoisonError::into_inner);
        if token.as_ref().is_some_and(|(token, _)| token == refused) {
            *token = None;
        }
    }
}

/// The answer of a token server.
#[derive(Debug, Clone, Deserialize)]
pub struct TokenResponse {
    /// The token.
    pub access_token: Secret,
    /// Its lifetime in seconds. `None` means that it must not be kept.
    pub expires_in: Option<u64>,
}

/// A request to a token server.
#[derive(Debug, Clone)]
pub struct TokenRequest {
    /// Where the form is posted to.
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
