//! Access tokens: requested on demand, and cached until shortly before they expire.

use std::sync::Arc;

use bytes::Bytes;
use hatchery_core::{CallContext, excerpt};
use hatchery_egress::{Egress, GoogleCredentials, Secret, TokenCache, TokenRequest, TokenResponse, is_loopback};
use reqwest::header::HeaderValue;
use reqwest::{Method, Url};

use super::user::{UserAuthenticator, auth_error};
use super::{
    ClientCredentials, ClientPlacement, Credentials, KeySource, Placement, ReplaceableCredential, ServiceAccount,
    setting_error,
};
use crate::error::{ApiError, read};
use crate::http::{Transport, redact};
use crate::request::{Request, encode_form};

/// Maximum size of the answer of a token server in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// Maximum size in bytes of an answer in an error.
const MAX_EXCERPT: usize = 300;

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// The credentials of an API, with the access token that they have last led to.
#[derive(Debug)]
pub(crate) struct Authenticator {
    credentials: Credentials,
    cache: TokenCache,
    /// For credentials that users grant.
    user: Option<UserAuthenticator>,
}

impl Authenticator {
    /// Creates an authenticator for a toolset, such as `openapi:shop`.
    pub(crate) fn new(credentials: Credentials, toolset: String, egress: &Arc<dyn Egress>) -> Self {
        let user = match &credentials {
            Credentials::User(user) => Some(UserAuthenticator::new((**user).clone(), toolset, egress.clone())),
            _ => None,
        };
        Self { credentials, cache: TokenCache::default(), user }
    }

    /// Returns the placement of the credential for a request to `url`. A token is fetched if there is none or it
    /// expires soon. Requests outside of a call have no user's credential.
    ///
    /// # Errors
    /// If a variable is not set, a value cannot be in a header, or there is no token. [`ApiError::CredentialRequested`]
    /// if the user of the call has been asked.
    pub(crate) async fn resolve_placement(
        &self,
        transport: &Transport,
        url: &Url,
        cx: Option<&CallContext>,
    ) -> Result<Placement, ApiError> {
        let token = match &self.credentials {
            Credentials::None => return Ok(Placement::default()),
            Credentials::User(_) => {
                return match (&self.user, cx) {
                    (Some(user), Some(cx)) => user.resolve_placement(url, cx).await,
                    (_, _) => Ok(Placement::default()),
                };
            }
            Credentials::ApiKey { location, name, value } => return Placement::api_key(*location, name, value),
            Credentials::Bearer(token) => return Placement::bearer(read(token, "auth.bearer")?.into(), "auth.bearer"),
            Credentials::Basic { username, password } => {
                let (username, password) =
                    (read(username, "auth.basic.username")?, read(password, "auth.basic.password")?);
                return Placement::basic(&username, password.into(), "auth.basic");
            }
            Credentials::OAuth2(client) => self.cache.get_or_fetch(client.fetch(transport)).await?,
            Credentials::Google(account) => self.cache.get_or_fetch(account.fetch(transport)).await?,
        };
        Ok(Placement { replaceable: ReplaceableCredential::Token(token.clone()), ..Placement::bearer(token, "auth")? })
    }

    /// Forgets credentials that the API has refused. Returns false if there can be no others.
    ///
    /// # Errors
    /// If a user's credential cannot be deleted.
    pub(crate) async fn forget(
        &self,
        placement: &ReplaceableCredential,
        cx: Option<&CallContext>,
    ) -> Result<bool, ApiError> {
        match (placement, cx) {
            (ReplaceableCredential::User { authenticator, credential }, Some(cx)) => {
                authenticator.refuse(cx, credential).await.map_err(auth_error)?;
                Ok(true)
            }
            (ReplaceableCredential::Token(token), _) => {
                self.cache.forget(token);
                Ok(true)
            }
            (ReplaceableCredential::User { .. } | ReplaceableCredential::None, _) => Ok(false),
        }
    }
}

impl ClientCredentials {
    async fn fetch(&self, transport: &Transport) -> Result<TokenResponse, ApiError> {
        let url = Url::parse(&self.token_url).ok().filter(|url| url.scheme() == "https" || is_loopback(url));
        let url = url.ok_or_else(|| setting_error("auth.oauth2.token_url", "it is not an https URL"))?;
        let id = read(&self.client_id, "auth.oauth2.client_id")?;
        let secret = Secret::from(read(&self.client_secret, "auth.oauth2.client_secret")?);
        let mut form = vec![("grant_type", Secret::from("client_credentials"))];
        if !self.scopes.is_empty() {
            form.push(("scope", self.scopes.join(" ").into()));
        }
        form.extend(self.audience.as_deref().map(|audience| ("audience", audience.into())));
        let placement = match self.placement {
            ClientPlacement::Header => {
                // RFC 6749 encodes both as in a form before they are joined.
                Placement::basic(&encode_form(&id), encode_form(secret.expose()).into(), "auth.oauth2")?
            }
            ClientPlacement::Body => {
                form.extend([("client_id", id.into()), ("client_secret", secret.clone())]);
                Placement::default()
            }
        };
        let secrets = placement.secrets.iter().cloned().chain([secret]).collect();
        request_token(&TokenRequest { url, form }, &Placement { secrets, ..placement }, transport).await
    }
}

impl ServiceAccount {
    async fn fetch(&self, transport: &Transport) -> Result<TokenResponse, ApiError> {
        let unusable = |reason: String| ApiError::Credentials(format!("the credentials file is not usable: {reason}"));
        let json = match &self.key {
            KeySource::File(path) => tokio::fs::read(path).await.map_err(|error| unusable(error.to_string()))?,
            KeySource::Json(json) => read(json, "auth.service_account.json")?.into_bytes(),
        };
        let credentials = GoogleCredentials::parse(&json).map_err(unusable)?;
        let request = credentials.token_request(&self.scopes.join(" ")).map_err(unusable)?;
        let secrets = request.form.iter().map(|(_, value)| value.clone()).collect();
        request_token(&request, &Placement { secrets, ..Placement::default() }, transport).await
    }
}

async fn request_token(
    request: &TokenRequest,
    placement: &Placement,
    transport: &Transport,
) -> Result<TokenResponse, ApiError> {
    let body = Some((FORM, Bytes::from(request.body())));
    let post = Request { body, ..Request::new(Method::POST, request.url.clone()) };
    let failed = |reason: String| ApiError::Credentials(redact(reason, &placement.secrets));
    let answer = transport.follow(&post, placement, MAX_ANSWER).await;
    let answer = answer.map_err(|error| failed(format!("the token server: {error}")))?;
    if !answer.status.is_success() {
        // Shortened last, because the beginning of a secret would not be found.
        let text = redact(String::from_utf8_lossy(&answer.body).into_owned(), &placement.secrets);
        let text = excerpt(text.trim(), MAX_EXCERPT);
        return Err(failed(format!("the token server answered with the status {}: {text}", answer.status)));
    }
    // The error of the parser may show a part of the token.
    serde_json::from_slice(&answer.body).map_err(|_| failed("the token server answered without a token".into()))
}
