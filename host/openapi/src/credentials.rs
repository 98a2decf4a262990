//! Credentials of APIs. The host adds them to requests; neither models nor components see them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hatchery_egress::{Secret, Setting};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};

use crate::document::Location;
use crate::error::ApiError;

/// How the host proves to an API who it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Not at all.
    #[default]
    None,
    /// With a key.
    ApiKey {
        /// Where the key is.
        location: KeyLocation,
        /// The name of the header, of the parameter or of the cookie.
        name: String,
        /// The key.
        value: Setting,
    },
    /// With a token in the header `Authorization`.
    Bearer(Setting),
    /// With a user name and a password in the header `Authorization`.
    Basic {
        /// The user name.
        username: Setting,
        /// The password.
        password: Setting,
    },
}

/// Where an API key is in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLocation {
    /// In a header.
    Header,
    /// In the query of the URL.
    Query,
    /// In a cookie.
    Cookie,
}

/// What is added to a request.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    pub(crate) header: Option<(HeaderName, HeaderValue)>,
    pub(crate) query: Option<(String, Secret)>,
    pub(crate) cookie: Option<(String, Secret)>,
    /// Texts that must not be shown.
    pub(crate) secrets: Vec<Secret>,
}

impl Credentials {
    /// Returns true if the host adds what this parameter would hold.
    pub(crate) fn fill(&self, location: Location, parameter: &str) -> bool {
        match (self, location) {
            (Self::ApiKey { location: KeyLocation::Header, name, .. }, Location::Header) => {
                name.eq_ignore_ascii_case(parameter)
            }
            (Self::ApiKey { location: KeyLocation::Query, name, .. }, Location::Query)
            | (Self::ApiKey { location: KeyLocation::Cookie, name, .. }, Location::Cookie) => name == parameter,
            _ => false,
        }
    }

    /// Returns what to add to a request.
    ///
    /// # Errors
    /// If a variable is not set, or a value cannot be in a header.
    pub(crate) fn place(&self) -> Result<Placement, ApiError> {
        let mut placement = Placement::default();
        match self {
            Self::None => {}
            Self::ApiKey { location, name, value } => {
                let key = Secret::from(value.value("auth.api_key.value")?);
                placement.secrets.push(key.clone());
                match location {
                    KeyLocation::Header => {
                        let name = HeaderName::from_bytes(name.as_bytes())
                            .map_err(|_| setting("auth.api_key.name", "it is not the name of a header"))?;
                        placement.header = Some((name, header(key.expose(), "auth.api_key.value")?));
                    }
                    KeyLocation::Query => placement.query = Some((name.clone(), key)),
                    KeyLocation::Cookie => placement.cookie = Some((name.clone(), key)),
                }
            }
            Self::Bearer(token) => {
                let token = Secret::from(token.value("auth.bearer")?);
                placement.bearer(token, "auth.bearer")?;
            }
            Self::Basic { username, password } => {
                let (username, password) =
                    (username.value("auth.basic.username")?, password.value("auth.basic.password")?);
                let encoded = STANDARD.encode(format!("{username}:{password}"));
                placement.header = Some((AUTHORIZATION, header(&format!("Basic {encoded}"), "auth.basic")?));
                placement.secrets.extend([Secret::from(password), Secret::from(encoded)]);
            }
        }
        Ok(placement)
    }
}

impl Placement {
    fn bearer(&mut self, token: Secret, key: &str) -> Result<(), ApiError> {
        self.header = Some((AUTHORIZATION, header(&format!("Bearer {}", token.expose()), key)?));
        self.secrets.push(token);
        Ok(())
    }
}

fn setting(key: &str, reason: &str) -> ApiError {
    ApiError::Setting { key: key.into(), reason: reason.into() }
}

/// Returns the value of a header, which is never shown.
fn header(text: &str, key: &str) -> Result<HeaderValue, ApiError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| setting(key, "it has a line break or the like"))?;
    value.set_sensitive(true);
    Ok(value)
}
