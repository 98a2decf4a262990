//! Authorization at MCP servers: OAuth 2.1 with discovery, PKCE and registration, which the library implements. Tokens
//! stay in the host: components and models never see them.

mod http;
mod tokens;

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Url;
use rmcp::transport::auth::{
    AuthClient, AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession, ClientCredentialsConfig,
    CredentialStore, OAuthClientConfig, WWWAuthenticateParams,
};

use super::McpError;
use super::connection::describe_causes;
use crate::config::{Limits, OAuthConfig, OAuthGrant};
use http::CheckedHttpClient;
use tokens::TokenStore;

/// The name under which the host registers itself at authorization servers.
const CLIENT_NAME: &str = "Hatchery";

/// Lets a person grant access: opens a URL of the authorization server, and returns the URL to which it redirects.
#[async_trait]
pub trait Browser: Send + Sync {
    /// Returns the URL to which the authorization server redirects in the end.
    fn redirect_uri(&self) -> String;

    /// Shows a URL to a person. Returns the whole URL of the redirect, with the code.
    ///
    /// # Errors
    /// The reason why the person has not granted access.
    async fn authorize(&self, url: &str) -> Result<String, String>;
}

/// The authorization of one server.
pub(super) struct Authorization<'a> {
    pub(super) config: &'a OAuthConfig,
    /// The endpoint of the server.
    pub(super) endpoint: &'a str,
    pub(super) limits: &'a Limits,
}

impl Authorization<'_> {
    async fn manager(&self) -> Result<AuthorizationManager, McpError> {
        let http =
            Arc::new(CheckedHttpClient { egress: self.config.egress.clone(), timeout: self.limits.call_timeout });
        let manager = AuthorizationManager::new_with_oauth_http_client(self.endpoint, http).await;
        let mut manager = manager.map_err(authorization_error)?;
        manager.set_credential_store(self.store());
        Ok(manager)
    }

    fn store(&self) -> TokenStore {
        TokenStore { tokens: self.config.tokens.clone(), memory: self.config.memory.clone() }
    }

    fn client_id(&self) -> Result<Option<String>, McpError> {
        let id = self.config.client_id.as_ref().map(|value| value.read()).transpose();
        id.map_err(|missing| McpError::variable("oauth.client_id", missing))
    }

    fn client_secret(&self) -> Result<Option<String>, McpError> {
        let secret = self.config.client_secret.as_ref().map(|value| value.read()).transpose();
        secret.map_err(|missing| McpError::variable("oauth.client_secret", missing))
    }

    /// Returns a client whose requests have the stored token. Without one the server answers with a challenge.
    pub(super) async fn client(&self, client: reqwest::Client) -> Result<AuthClient<reqwest::Client>, McpError> {
        let mut manager = self.manager().await?;
        match self.config.grant {
            OAuthGrant::ClientCredentials => self.fetch_token(&mut manager).await?,
            OAuthGrant::AuthorizationCode => {
                let is_known = manager.initialize_from_store().await.map_err(authorization_error)?;
                if let (true, Some(secret)) = (is_known, self.client_secret()?) {
                    // The stored credentials have no client secret, which a refresh needs.
                    let (id, _) = manager.get_credentials().await.map_err(authorization_error)?;
                    let config = OAuthClientConfig::new(id, self.endpoint).with_client_secret(secret);
                    manager.configure_client(config).map_err(authorization_error)?;
                }
            }
        }
        Ok(AuthClient::new(client, manager))
    }

    /// Gets a token for the host itself.
    async fn fetch_token(&self, manager: &mut AuthorizationManager) -> Result<(), McpError> {
        let (Some(client_id), Some(client_secret)) = (self.client_id()?, self.client_secret()?) else {
            let message = "the grant `client_credentials` needs `client_id` and `client_secret`";
            return Err(McpError::Authorization(message.into()));
        };
        let (scopes, resource) = (self.config.scopes.clone(), Some(self.endpoint.to_owned()));
        let credentials = ClientCredentialsConfig::ClientSecret { client_id, client_secret, scopes, resource };
        let resolution = manager.resolve_metadata().await.map_err(authorization_error)?;
        manager.set_metadata(resolution.metadata);
        manager.validate_client_credentials_metadata(&credentials).map_err(authorization_error)?;
        manager.configure_client_credentials(&credentials).map_err(authorization_error)?;
        manager.exchange_client_credentials(&credentials).await.map(drop).map_err(authorization_error)
    }

    /// Lets a person grant access, and stores the tokens. `challenge` is the header `WWW-Authenticate` of the server's
    /// last refusal.
    pub(super) async fn login(&self, challenge: &str, browser: &dyn Browser) -> Result<(), McpError> {
        if self.config.grant == OAuthGrant::ClientCredentials {
            let message = "the server has refused the host's own credentials, for which no person logs in";
            return Err(McpError::Authorization(message.into()));
        }
        let mut manager = self.manager().await?;
        let resolution = manager.resolve_metadata_from_challenge(Some(challenge)).await.map_err(authorization_error)?;
        manager.set_metadata(resolution.metadata);
        let mut request = AuthorizationRequest::new(browser.redirect_uri())
            .with_client_name(CLIENT_NAME)
            .with_scopes(self.scopes(challenge).await);
        if let Some(id) = self.client_id()? {
            request = request.with_preregistered_client(id);
        }
        if let Some(secret) = self.client_secret()? {
            request = request.with_client_secret(secret);
        }
        if let Some(url) = &self.config.client_metadata_url {
            request = request.with_client_metadata_url(url);
        }
        let session =
            AuthorizationSession::new(manager, request).await.map_err(|(_, error)| authorization_error(error))?;
        let redirected = browser.authorize(session.get_authorization_url()).await.map_err(McpError::Authorization)?;
        session.handle_callback_url(&redirected).await.map(drop).map_err(authorization_error)
    }

    /// Returns the scopes to ask for: the configured scopes, or the challenge's scopes in addition to those already
    /// granted. Empty if the server's metadata decides.
    async fn scopes(&self, challenge: &str) -> Vec<String> {
        let mut scopes = self.config.scopes.clone();
        let demanded = Url::parse(self.endpoint).ok().map(|base| WWWAuthenticateParams::parse(challenge, &base));
        let Some(demanded) = demanded.filter(WWWAuthenticateParams::is_insufficient_scope) else { return scopes };
        let granted = self.store().load().await.ok().flatten().map(|stored| stored.granted_scopes).unwrap_or_default();
        let demanded = demanded.scope.unwrap_or_default();
        for scope in granted.iter().map(String::as_str).chain(demanded.split_whitespace()) {
            if !scopes.iter().any(|known| known == scope) {
                scopes.push(scope.into());
            }
        }
        scopes
    }
}

/// Describes an error without the tokens and codes of its requests.
fn authorization_error(error: AuthError) -> McpError {
    McpError::Authorization(describe_causes(&error))
}
