//! Access tokens of Google Cloud for services that are not models.

use std::sync::Arc;

use hatchery_core::ModelError;

use crate::failure::Origin;
use crate::google_credentials::GoogleCredentials;
use crate::http::Http;
use crate::service::Service;
use crate::settings::GoogleCloud;

/// Returns access tokens of the application default credentials: a service account, a user, or the metadata server.
/// Tokens are cached until shortly before they expire.
pub struct GoogleTokens {
    credentials: GoogleCredentials,
    origin: Arc<Origin>,
    http: Http,
}

impl GoogleTokens {
    /// Creates the source of tokens. The credentials are read when the first token is needed. Errors name `user`, the
    /// service that needs the tokens.
    pub fn new(settings: GoogleCloud, user: &str) -> Self {
        let origin =
            Origin { model: user.to_owned(), service: Service::Vertex.info(), secrets: Vec::new(), credentials: None };
        Self { credentials: GoogleCredentials::new(settings), origin: Arc::new(origin), http: Http::default() }
    }

    /// Returns a token that is valid for at least a minute.
    ///
    /// # Errors
    /// If there are no credentials, or if they are rejected. The message names the setting.
    pub async fn token(&self) -> Result<String, ModelError> {
        let client = self.http.client(&self.origin)?;
        let token = self.credentials.token(&client, &self.origin).await?;
        Ok(token.expose().to_owned())
    }

    /// Forgets a token that was not accepted.
    pub fn forget(&self, token: &str) {
        self.credentials.forget(&token.into());
    }
}
