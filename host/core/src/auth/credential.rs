//! Credentials, in the JSON of ADK. Their `Debug` output shows no value.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A credential, or a part of one.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthCredential {
    /// The kind of the credential.
    #[serde(alias = "auth_type")]
    pub auth_type: AuthCredentialType,
    #[serde(alias = "api_key", skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// The value of the header `Authorization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpAuth>,
    /// A service account of Google Cloud.
    #[serde(alias = "service_account", skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountAuth>,
    /// The client of an OAuth server, a login, or tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth2: Option<OAuth2Auth>,
}

/// The kind of a credential.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthCredentialType {
    /// [`field@AuthCredential::api_key`].
    #[default]
    #[serde(rename = "apiKey")]
    ApiKey,
    /// [`field@AuthCredential::http`].
    #[serde(rename = "http")]
    Http,
    /// [`field@AuthCredential::oauth2`].
    #[serde(rename = "oauth2")]
    OAuth2,
    /// [`field@AuthCredential::oauth2`], of an OpenID provider.
    #[serde(rename = "openIdConnect")]
    OpenIdConnect,
    /// [`AuthCredential::service_account`].
    #[serde(rename = "serviceAccount")]
    ServiceAccount,
}

/// The value of the header `Authorization`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpAuth {
    /// `basic` or `bearer`.
    pub scheme: String,
    /// The user name and the password, or the token.
    pub credentials: HttpCredentials,
    /// Headers in addition to `Authorization`.
    #[serde(alias = "additional_headers", skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_headers: BTreeMap<String, String>,
}

/// A user name with its password, or a token.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpCredentials {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// An OAuth 2.0 client, a user's login, and the tokens of that login.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OAuth2Auth {
    #[serde(alias = "client_id", skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(alias = "client_secret", skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// URL of the login. The client adds its `redirect_uri` unless there is one.
    #[serde(alias = "auth_uri", skip_serializing_if = "Option::is_none")]
    pub auth_uri: Option<String>,
    /// A random string, which the server repeats in its redirect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// URL that the server redirects the user to.
    #[serde(alias = "redirect_uri", skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// The complete URL to which the server has redirected the user, with the code in its query.
    #[serde(alias = "auth_response_uri", skip_serializing_if = "Option::is_none")]
    pub auth_response_uri: Option<String>,
    /// The authorization code in that URL.
    #[serde(alias = "auth_code", skip_serializing_if = "Option::is_none")]
    pub auth_code: Option<String>,
    /// The token that authorizes requests.
    #[serde(alias = "access_token", skip_serializing_if = "Option::is_none")]
    pub access_token: Option<String>,
    /// The token with which new access tokens are requested.
    #[serde(alias = "refresh_token", skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// When the access token expires, in seconds since 1970.
    #[serde(alias = "expires_at", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// A service account of Google Cloud.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAccountAuth {
    /// The content of its key file.
    #[serde(alias = "service_account_credential", skip_serializing_if = "Option::is_none")]
    pub service_account_credential: Option<Value>,
    /// The scopes of the tokens.
    pub scopes: Vec<String>,
    /// True for the account of the machine.
    #[serde(alias = "use_default_credential")]
    pub use_default_credential: bool,
}

impl fmt::Debug for AuthCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthCredential").field("auth_type", &self.auth_type).finish_non_exhaustive()
    }
}

impl AuthCredential {
    /// Returns a credential with a key.
    pub fn api_key(key: impl Into<String>) -> Self {
        Self { api_key: Some(key.into()), ..Self::default() }
    }

    /// Returns a credential for the header `Authorization`.
    pub fn http(scheme: impl Into<String>, credentials: HttpCredentials) -> Self {
        let http = HttpAuth { scheme: scheme.into(), credentials, ..HttpAuth::default() };
        Self { auth_type: AuthCredentialType::Http, http: Some(http), ..Self::default() }
    }

    /// Returns the client credentials or the tokens of an OAuth server.
    pub fn oauth2(oauth2: OAuth2Auth) -> Self {
        Self { auth_type: AuthCredentialType::OAuth2, oauth2: Some(oauth2), ..Self::default() }
    }

    /// Returns the public part: the login URL, the client id and the scheme.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let oauth2 = self.oauth2.as_ref().map(|oauth2| OAuth2Auth {
            client_id: oauth2.client_id.clone(),
            auth_uri: oauth2.auth_uri.clone(),
            state: oauth2.state.clone(),
            redirect_uri: oauth2.redirect_uri.clone(),
            ..OAuth2Auth::default()
        });
        let http = self.http.as_ref().map(|http| HttpAuth { scheme: http.scheme.clone(), ..HttpAuth::default() });
        Self { auth_type: self.auth_type, http, oauth2, ..Self::default() }
    }

    /// Returns the user's part of an answer, without the fields that repeat the request.
    pub(super) fn into_user_part(self) -> Self {
        let oauth2 =
            self.oauth2.map(|oauth2| OAuth2Auth { client_id: None, client_secret: None, auth_uri: None, ..oauth2 });
        Self { service_account: None, oauth2, ..self }
    }

    /// Returns true if it has no key, token, password or code.
    pub(super) fn is_empty(&self) -> bool {
        let has = |value: &Option<String>| value.as_deref().is_some_and(|value| !value.is_empty());
        let http = self.http.as_ref().map(|http| &http.credentials);
        let has_http = http.is_some_and(|it| has(&it.token) || has(&it.username) || has(&it.password));
        let has_oauth2 = self.oauth2.as_ref().is_some_and(|it| {
            [&it.auth_response_uri, &it.auth_code, &it.access_token, &it.refresh_token].into_iter().any(has)
        });
        !has(&self.api_key) && !has_http && !has_oauth2
    }
}
