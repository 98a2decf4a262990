//! Credentials of APIs. The host adds them to requests; neither models nor components see them.

mod token;
mod user;

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hatchery_core::{AuthCredential, AuthKeyLocation, AuthScheme, ConfigValue};
use hatchery_egress::{Secret, ToolAuthenticator};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};

use crate::document::Location;
use crate::error::{ApiError, read};

pub(crate) use token::Authenticator;
pub use user::{UserClient, UserCredentials};

/// Authentication of the host at an API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Not at all.
    #[default]
    None,
    ApiKey {
        /// Place of the key.
        location: KeyLocation,
        /// The name of the header, of the parameter or of the cookie.
        name: String,
        /// The value of the key.
        value: ConfigValue,
    },
    /// With a token in the header `Authorization`.
    Bearer(ConfigValue),
    /// With a user name and a password in the header `Authorization`.
    Basic {
        /// The user name.
        username: ConfigValue,
        password: ConfigValue,
    },
    /// With access tokens that a server grants to the host itself (OAuth 2.0 client credentials).
    OAuth2(ClientCredentials),
    /// With access tokens of Google Cloud.
    Google(ServiceAccount),
    /// Credentials of the user on whose behalf the API is called.
    User(Box<UserCredentials>),
}

/// A client of an OAuth 2.0 token server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCredentials {
    /// URL of the token endpoint.
    pub token_url: String,
    pub client_id: ConfigValue,
    pub client_secret: ConfigValue,
    /// Scopes of the tokens.
    pub scopes: Vec<String>,
    /// The audience of the tokens, if the server requires one.
    pub audience: Option<String>,
    /// Place of the client id and secret in the request.
    pub placement: ClientPlacement,
}

/// Place of the client credentials in a token request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientPlacement {
    /// In the header `Authorization`, which every server supports.
    #[default]
    Header,
    /// In the form.
    Body,
}

/// A credentials file of Google Cloud, and the scopes of its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    /// The source of the file.
    pub key: KeySource,
    /// Scopes of the tokens.
    pub scopes: Vec<String>,
}

/// Location of a credentials file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    File(PathBuf),
    /// Its text.
    Json(ConfigValue),
}

/// Place of an API key in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLocation {
    Header,
    /// In the query of the URL.
    Query,
    Cookie,
}

/// The credential in a request: a header, a query parameter or a cookie.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    pub(crate) header: Option<(HeaderName, HeaderValue)>,
    pub(crate) query: Option<(String, Secret)>,
    pub(crate) cookie: Option<(String, Secret)>,
    /// Texts that must not be shown.
    pub(crate) secrets: Vec<Secret>,
    /// The credential to replace if the API refuses it.
    pub(crate) replaceable: ReplaceableCredential,
}

/// The credential of a request that can be replaced if the API rejects it.
#[derive(Debug, Clone, Default)]
pub(crate) enum ReplaceableCredential {
    #[default]
    None,
    /// The access token, by a newer one.
    Token(Secret),
    /// The user's credential, by asking the user again.
    User { authenticator: Arc<ToolAuthenticator>, credential: Box<AuthCredential> },
}

impl Credentials {
    /// Returns true if the host sets this parameter.
    pub(crate) fn supplies(&self, location: Location, parameter: &str) -> bool {
        match (self, location) {
            (Self::ApiKey { location: KeyLocation::Header, name, .. }, Location::Header) => {
                name.eq_ignore_ascii_case(parameter)
            }
            (Self::ApiKey { location: KeyLocation::Query, name, .. }, Location::Query)
            | (Self::ApiKey { location: KeyLocation::Cookie, name, .. }, Location::Cookie) => name == parameter,
            (Self::User(user), _) => match (&user.scheme, location) {
                (AuthScheme::ApiKey { location: AuthKeyLocation::Header, name }, Location::Header) => {
                    name.eq_ignore_ascii_case(parameter)
                }
                (AuthScheme::ApiKey { location: AuthKeyLocation::Query, name }, Location::Query)
                | (AuthScheme::ApiKey { location: AuthKeyLocation::Cookie, name }, Location::Cookie) => {
                    name == parameter
                }
                _ => false,
            },
            _ => false,
        }
    }
}

impl Placement {
    fn api_key(location: KeyLocation, name: &str, value: &ConfigValue) -> Result<Self, ApiError> {
        let key = Secret::from(read(value, "auth.api_key.value")?);
        let mut placement = Self { secrets: vec![key.clone()], ..Self::default() };
        match location {
            KeyLocation::Header => {
                let name = HeaderName::from_bytes(name.as_bytes())
                    .map_err(|_| setting_error("auth.api_key.name", "it is not the name of a header"))?;
                placement.header = Some((name, header(key.expose(), "auth.api_key.value")?));
            }
            KeyLocation::Query => placement.query = Some((name.to_owned(), key)),
            KeyLocation::Cookie => placement.cookie = Some((name.to_owned(), key)),
        }
        Ok(placement)
    }

    fn bearer(token: Secret, key: &str) -> Result<Self, ApiError> {
        let header = header(&format!("Bearer {}", token.expose()), key)?;
        Ok(Self { header: Some((AUTHORIZATION, header)), secrets: vec![token], ..Self::default() })
    }

    fn basic(username: &str, password: Secret, key: &str) -> Result<Self, ApiError> {
        let encoded = STANDARD.encode(format!("{username}:{}", password.expose()));
        let header = header(&format!("Basic {encoded}"), key)?;
        Ok(Self { header: Some((AUTHORIZATION, header)), secrets: vec![password, encoded.into()], ..Self::default() })
    }
}

fn setting_error(key: &str, reason: &str) -> ApiError {
    ApiError::Setting { key: key.into(), reason: reason.into() }
}

/// Returns the value of a header, which is never shown.
fn header(text: &str, key: &str) -> Result<HeaderValue, ApiError> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| setting_error(key, "it has a line break or another control character"))?;
    value.set_sensitive(true);
    Ok(value)
}
