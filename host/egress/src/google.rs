//! Credentials files of Google Cloud: keys of service accounts, and authorized users.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::{Secret, TokenRequest, is_loopback};

const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
/// Maximum lifetime that Google accepts for the assertion of a service account.
const ASSERTION_LIFETIME: Duration = Duration::from_secs(3_600);

/// The content of a credentials file.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum GoogleCredentials {
    /// A key of a service account.
    ServiceAccount {
        /// The email address of the account.
        client_email: String,
        /// The key in PEM.
        private_key: Secret,
        private_key_id: Option<String>,
        /// The token server.
        token_uri: Option<String>,
    },
    /// A person who has signed in.
    AuthorizedUser {
        /// The OAuth client with which the person has signed in.
        client_id: String,
        /// The secret of the program.
        client_secret: Secret,
        /// The refresh token, which is exchanged for access tokens.
        refresh_token: Secret,
        /// The token server.
        token_uri: Option<String>,
    },
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    scope: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

impl GoogleCredentials {
    /// Parses a credentials file.
    ///
    /// # Errors
    /// If the file is not a credentials file. The error does not contain its content.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        // The error of the parser may show a part of the file.
        serde_json::from_slice(json).map_err(|_| NOT_CREDENTIALS.to_owned())
    }

    /// Returns the request for an access token with these scopes. The scopes of an authorized user are those that the
    /// person has agreed to.
    ///
    /// # Errors
    /// If the key cannot sign, or the token server is not reached by https.
    pub fn token_request(&self, scopes: &str) -> Result<TokenRequest, String> {
        match self {
            Self::ServiceAccount { client_email, private_key, private_key_id, token_uri } => {
                let url = token_url(token_uri.as_deref())?;
                let assertion = assertion(client_email, private_key, private_key_id.clone(), scopes, url.as_str())?;
                let grant_type = "urn:ietf:params:oauth:grant-type:jwt-bearer".into();
                Ok(TokenRequest { url, form: vec![("grant_type", grant_type), ("assertion", assertion.into())] })
            }
            Self::AuthorizedUser { client_id, client_secret, refresh_token, token_uri } => Ok(TokenRequest {
                url: token_url(token_uri.as_deref())?,
                form: vec![
                    ("grant_type", "refresh_token".into()),
                    ("client_id", client_id.as_str().into()),
                    ("client_secret", client_secret.clone()),
                    ("refresh_token", refresh_token.clone()),
                ],
            }),
        }
    }
}

/// The reason why a text is not a credentials file.
const NOT_CREDENTIALS: &str = "it is not the JSON of a `service_account` or an `authorized_user`";

/// Returns the signed assertion that a service account exchanges for a token.
fn assertion(
    email: &str,
    private_key: &Secret,
    key_id: Option<String>,
    scope: &str,
    audience: &str,
) -> Result<String, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let claims = Claims { iss: email, scope, aud: audience, iat: now, exp: now + ASSERTION_LIFETIME.as_secs() };
    let key = EncodingKey::from_rsa_pem(private_key.expose().as_bytes())
        .map_err(|_| "its `private_key` is not an RSA key in PEM".to_owned())?;
    let header = Header { kid: key_id, ..Header::new(Algorithm::RS256) };
    jsonwebtoken::encode(&header, &claims, &key).map_err(|_| "its `private_key` cannot sign".to_owned())
}

/// Returns the URL of the token server, which gets the assertion or the refresh token.
fn token_url(url: Option<&str>) -> Result<Url, String> {
    let url = Url::parse(url.unwrap_or(TOKEN_URL)).ok().filter(|url| url.scheme() == "https" || is_loopback(url));
    url.ok_or_else(|| "its `token_uri` is not an https URL".to_owned())
}
