//! Credentials that each user of an agent grants, which the host requests from the client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{AuthConfig, AuthCredential, AuthKeyLocation, AuthScheme, CallContext, ConfigValue, OAuth2Auth};
use hatchery_egress::{AuthError, ClientAuthentication, Egress, ToolAuthenticator};
use reqwest::Url;

use super::{ClientPlacement, KeyLocation, Placement, ReplaceableCredential};
use crate::error::{ApiError, read};

/// Credentials that each user grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCredentials {
    /// The security scheme of the API.
    pub scheme: AuthScheme,
    /// The host as a client of the OAuth server. `None` if the scheme has no server.
    pub client: Option<UserClient>,
}

/// The host as a client of an OAuth server where users log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserClient {
    pub id: ConfigValue,
    /// The secret. `None` for a client that has none.
    pub secret: Option<ConfigValue>,
    /// The redirect URI. `None` if the client of the run adds it.
    pub redirect_uri: Option<String>,
    /// Place of the client id and secret in token requests.
    pub placement: ClientPlacement,
}

/// Gets the credentials of users for one API.
pub(super) struct UserAuthenticator {
    credentials: UserCredentials,
    /// The toolset of the API, such as `openapi:shop`.
    toolset: String,
    egress: Arc<dyn Egress>,
    /// By origin of the API's server. Created when they are needed first, since their variables may be missing.
    authenticators: Mutex<BTreeMap<String, Arc<ToolAuthenticator>>>,
}

impl std::fmt::Debug for UserAuthenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserAuthenticator").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl UserAuthenticator {
    pub(super) fn new(credentials: UserCredentials, toolset: String, egress: Arc<dyn Egress>) -> Self {
        Self { credentials, toolset, egress, authenticators: Mutex::default() }
    }

    /// Returns the placement of the user's credential for a request of this call to `url`.
    ///
    /// # Errors
    /// [`ApiError::CredentialRequested`] if the user has been asked.
    pub(super) async fn resolve_placement(&self, url: &Url, cx: &CallContext) -> Result<Placement, ApiError> {
        let authenticator = self.authenticator(url)?;
        let credential = authenticator.credential(cx).await.map_err(auth_error)?;
        let credential = credential.ok_or(ApiError::CredentialRequested)?;
        let placement = self.placement(&credential)?;
        let replaceable = ReplaceableCredential::User { authenticator, credential: Box::new(credential) };
        Ok(Placement { replaceable, ..placement })
    }

    fn placement(&self, credential: &AuthCredential) -> Result<Placement, ApiError> {
        let AuthCredential { api_key, http, oauth2, .. } = credential;
        let http = http.as_ref().map(|http| &http.credentials);
        let token = oauth2.as_ref().and_then(|oauth2| oauth2.access_token.as_ref());
        let token = token.or_else(|| http.and_then(|http| http.token.as_ref()));
        match (&self.credentials.scheme, api_key, http, token) {
            (AuthScheme::ApiKey { location, name }, Some(key), _, _) => {
                Placement::api_key((*location).into(), name, &ConfigValue::Text(key.clone()))
            }
            (AuthScheme::Http { scheme }, _, Some(http), _) if scheme.eq_ignore_ascii_case("basic") => {
                let username = http.username.as_deref().unwrap_or_default();
                Placement::basic(username, http.password.clone().unwrap_or_default().into(), "auth.user")
            }
            (AuthScheme::ApiKey { .. }, None, _, _) | (_, _, _, None) => {
                Err(ApiError::Credentials("the user's credential does not match the security scheme of the API".into()))
            }
            (_, _, _, Some(token)) => Placement::bearer(token.as_str().into(), "auth.user"),
        }
    }

    fn authenticator(&self, url: &Url) -> Result<Arc<ToolAuthenticator>, ApiError> {
        let server = url.origin().ascii_serialization();
        let mut authenticators = self.authenticators.lock_unpoisoned();
        if let Some(known) = authenticators.get(&server) {
            return Ok(known.clone());
        }
        let created = Arc::new(self.create(&server)?);
        authenticators.insert(server, created.clone());
        Ok(created)
    }

    /// Creates an authenticator whose credentials are for one server, one scheme and one client only: with other
    /// settings under the same name, users are asked again.
    fn create(&self, server: &str) -> Result<ToolAuthenticator, ApiError> {
        let UserCredentials { scheme, client } = &self.credentials;
        let raw = client.as_ref().map(|client| -> Result<AuthCredential, ApiError> {
            let secret = client.secret.as_ref().map(|secret| read(secret, "auth.user.client_secret")).transpose()?;
            Ok(AuthCredential::oauth2(OAuth2Auth {
                client_id: Some(read(&client.id, "auth.user.client_id")?),
                client_secret: secret,
                redirect_uri: client.redirect_uri.clone(),
                ..OAuth2Auth::default()
            }))
        });
        let config = AuthConfig::new(scheme.clone(), raw.transpose()?);
        let key = format!("{}:{}:{server}", self.toolset, config.key());
        let config = AuthConfig { credential_key: Some(key), ..config };
        let client_authentication = match client.as_ref().map(|client| client.placement) {
            Some(ClientPlacement::Body) => ClientAuthentication::Body,
            Some(ClientPlacement::Header) | None => ClientAuthentication::Header,
        };
        let authenticator = ToolAuthenticator::new(config, self.egress.clone());
        Ok(authenticator.with_client_authentication(client_authentication))
    }
}

pub(super) fn auth_error(error: AuthError) -> ApiError {
    match error {
        AuthError::Refused { .. } | AuthError::Answer(_) | AuthError::Unasked(_) => ApiError::User(error.for_models()),
        AuthError::Egress(reason) => ApiError::Refused(reason),
        AuthError::Setting { .. } | AuthError::ServiceAccount(_) | AuthError::Server { .. } | AuthError::Store(_) => {
            ApiError::Credentials(error.to_string())
        }
    }
}

impl From<AuthKeyLocation> for KeyLocation {
    fn from(location: AuthKeyLocation) -> Self {
        match location {
            AuthKeyLocation::Header => Self::Header,
            AuthKeyLocation::Query => Self::Query,
            AuthKeyLocation::Cookie => Self::Cookie,
        }
    }
}
