//! Grants of OAuth 2.0: authorization codes with PKCE, refresh tokens, client credentials and service accounts.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hatchery_core::{CallContext, OAuth2Auth, OAuthFlow, ServiceAccountAuth, generate_secret};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::endpoints::{Endpoints, MAX_ANSWER, host};
use super::{AuthError, ClientAuthentication, DEFAULT_LIFETIME, TIMEOUTS, now, server_url, within_time};
use crate::{Egress, GoogleCredentials, Secret, TokenRequest, TokenResponse, client, describe, read_body, refusal};

/// Length of a `state` in characters: 124 random bits.
const STATE_LENGTH: usize = 32;

/// Error codes for a user's grant that is not valid or has been withdrawn. Others, such as `invalid_client`, are about
/// the host, or pass.
const REFUSALS: [&str; 6] = [
    "invalid_grant",
    "access_denied",
    "consent_required",
    "interaction_required",
    "login_required",
    // Of an answer of the user, which contains the redirect URI.
    "redirect_uri_mismatch",
];

/// Maximum length of an error code that is shown. Standard error codes are shorter.
const MAX_ERROR_CODE: usize = 64;

/// A client of an OAuth server.
pub(super) struct Grant<'a> {
    pub(super) client: Option<&'a OAuth2Auth>,
    pub(super) client_authentication: ClientAuthentication,
    pub(super) egress: &'a Arc<dyn Egress>,
}

/// Tokens of a server.
#[derive(Deserialize)]
struct Tokens {
    #[serde(flatten)]
    access: TokenResponse,
    refresh_token: Option<String>,
}

/// An error of a server.
#[derive(Deserialize)]
struct ErrorResponse {
    error: String,
}

impl Grant<'_> {
    /// Returns the URL where the user logs in, and its `state`.
    pub(super) fn authorization(
        &self,
        endpoints: &Endpoints,
        client: &OAuth2Auth,
        cx: &CallContext,
    ) -> Result<(String, String), AuthError> {
        let id = client.client_id.as_deref().unwrap_or_default();
        if id.is_empty() {
            return Err(AuthError::Setting { setting: "clientId", reason: "it is missing" });
        }
        let state: String = generate_secret().chars().take(STATE_LENGTH).collect();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier(cx, &state)));
        let mut url = endpoints.authorization.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", id)
            .append_pair("state", &state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        if !endpoints.scopes.is_empty() {
            url.query_pairs_mut().append_pair("scope", &endpoints.scopes.join(" "));
        }
        if let Some(redirect_uri) = &client.redirect_uri {
            url.query_pairs_mut().append_pair("redirect_uri", redirect_uri);
        }
        // Without these two, Google grants no refresh token. Others ignore them.
        url.query_pairs_mut().append_pair("access_type", "offline").append_pair("prompt", "consent");
        Ok((url.into(), state))
    }

    /// Exchanges a code for tokens.
    pub(super) async fn code(
        &self,
        endpoints: &Endpoints,
        code: &str,
        verifier: &str,
        redirect_uri: Option<&str>,
    ) -> Result<OAuth2Auth, AuthError> {
        let mut form = vec![
            ("grant_type", "authorization_code".into()),
            ("code", code.into()),
            ("code_verifier", verifier.into()),
        ];
        form.extend(redirect_uri.map(|uri| ("redirect_uri", uri.into())));
        self.request(&endpoints.token, form).await.map(|tokens| tokens.into_oauth2(None))
    }

    /// Exchanges a refresh token for tokens.
    pub(super) async fn refresh(&self, endpoints: &Endpoints, refresh_token: &str) -> Result<OAuth2Auth, AuthError> {
        let form = vec![("grant_type", "refresh_token".into()), ("refresh_token", refresh_token.into())];
        self.request(&endpoints.token, form).await.map(|tokens| tokens.into_oauth2(Some(refresh_token)))
    }

    /// Requests a token for the host itself.
    pub(super) async fn client_credentials(&self, flow: &OAuthFlow) -> Result<TokenResponse, AuthError> {
        let mut form = vec![("grant_type", "client_credentials".into())];
        if !flow.scopes.is_empty() {
            let scopes: Vec<_> = flow.scopes.keys().map(String::as_str).collect();
            form.push(("scope", scopes.join(" ").into()));
        }
        self.request(&server_url("tokenUrl", &flow.token_url)?, form).await.map(|tokens| tokens.access)
    }

    /// Requests a token for a service account.
    pub(super) async fn service_account(&self, account: &ServiceAccountAuth) -> Result<TokenResponse, AuthError> {
        let unusable = AuthError::ServiceAccount;
        if account.use_default_credential {
            return Err(unusable("`useDefaultCredential` is not supported; give the content of a key file".into()));
        }
        let json = account.service_account_credential.as_ref().map(Value::to_string).unwrap_or_default();
        let credentials = GoogleCredentials::parse(json.as_bytes()).map_err(unusable)?;
        let TokenRequest { url, form } = credentials.token_request(&account.scopes.join(" ")).map_err(unusable)?;
        // Its assertion identifies the client.
        let grant = Grant { client: None, ..*self };
        grant.request(&url, form).await.map(|tokens| tokens.access)
    }

    async fn request(&self, url: &Url, form: Vec<(&'static str, Secret)>) -> Result<Tokens, AuthError> {
        within_time(url, self.send(url, form)).await
    }

    async fn send(&self, url: &Url, mut form: Vec<(&'static str, Secret)>) -> Result<Tokens, AuthError> {
        let header = self.identify(&mut form);
        let failed = |reason: String| AuthError::Server { host: host(url), reason };
        let request = client(self.egress, url, TIMEOUTS).map_err(AuthError::Egress)?.post(url.clone());
        let body = TokenRequest { url: url.clone(), form }.body();
        let mut request = request
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .body(body);
        if let Some(header) = header {
            request = request.header(AUTHORIZATION, header);
        }
        let response = request.send().await.map_err(|error| match refusal(&error) {
            Some(reason) => AuthError::Egress(reason),
            None => failed(describe(error)),
        })?;
        let status = response.status();
        let body = read_body(response, MAX_ANSWER).await.map_err(|error| failed(error.to_string()))?;
        if status.is_success() {
            // The error of the parser may show a part of the token.
            return serde_json::from_slice(&body).map_err(|_| failed("it answered without a token".into()));
        }
        let error = serde_json::from_slice::<ErrorResponse>(&body).ok().map(|response| response.error);
        let can_refuse = matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        Err(match error {
            Some(error) if can_refuse && REFUSALS.contains(&error.as_str()) => AuthError::Refused { reason: error },
            Some(error) => failed(format!("it answered with the status {status}: {}", error_code(&error))),
            None => failed(format!("it answered with the status {status}")),
        })
    }

    /// Adds the id and the secret of the client to the form. Returns a header instead if the secret belongs there.
    fn identify(&self, form: &mut Vec<(&'static str, Secret)>) -> Option<HeaderValue> {
        let client = self.client?;
        let id = client.client_id.as_deref().unwrap_or_default();
        match (&client.client_secret, self.client_authentication) {
            (Some(secret), ClientAuthentication::Header) => {
                // RFC 6749 encodes both as in a form before they are joined.
                let pair = format!("{}:{}", form_encode(id), form_encode(secret));
                let mut header = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair))).ok()?;
                header.set_sensitive(true);
                Some(header)
            }
            (secret, _) => {
                form.push(("client_id", id.into()));
                form.extend(secret.as_deref().map(|secret| ("client_secret", secret.into())));
                None
            }
        }
    }
}

impl Tokens {
    /// Returns the tokens. A server that sends no new refresh token still accepts the earlier one.
    fn into_oauth2(self, refresh_token: Option<&str>) -> OAuth2Auth {
        OAuth2Auth {
            access_token: Some(self.access.access_token.expose().to_owned()),
            refresh_token: self.refresh_token.or_else(|| refresh_token.map(ToOwned::to_owned)),
            expires_at: Some(now().saturating_add(self.access.expires_in.unwrap_or(DEFAULT_LIFETIME))),
            ..OAuth2Auth::default()
        }
    }
}

/// Returns the verifier of a login (PKCE). It is derived from the key of the host, so it need not be kept.
pub(super) fn verifier(cx: &CallContext, state: &str) -> String {
    let key = &cx.invocation.session_key;
    URL_SAFE_NO_PAD.encode(cx.invocation.signer.derive_key("oauth verifier", &[&key.app, &key.user, state]))
}

/// Returns the code in an answer.
pub(super) fn code(answer: &OAuth2Auth, expected_state: &str) -> Result<String, AuthError> {
    let Some(uri) = &answer.auth_response_uri else {
        let code =
            answer.auth_code.clone().ok_or(AuthError::Answer("it has neither `authResponseUri` nor `authCode`"))?;
        return if answer.state.as_deref() == Some(expected_state) {
            Ok(code)
        } else {
            Err(AuthError::Answer("its `state` does not match the request"))
        };
    };
    let url = Url::parse(uri).map_err(|_| AuthError::Answer("its `authResponseUri` is not a URL"))?;
    let parameter = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    // Checked first: the other parameters of another login's response are meaningless here.
    if parameter("state").as_deref() != Some(expected_state) {
        return Err(AuthError::Answer("the `state` of its `authResponseUri` does not match the request"));
    }
    if let Some(error) = parameter("error") {
        return Err(AuthError::Refused { reason: error_code(&error) });
    }
    parameter("code").ok_or(AuthError::Answer("its `authResponseUri` has no `code`"))
}

/// Returns the code of an error, if it is one: other texts of a server may repeat a secret.
fn error_code(text: &str) -> String {
    let is_code = text.len() <= MAX_ERROR_CODE
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-'));
    if is_code { text.into() } else { "it gives no reason".into() }
}

fn form_encode(text: &str) -> String {
    let form = vec![("x", text.into())];
    // Any URL will do: only its query is used.
    let Ok(url) = Url::parse("http://localhost") else { return String::new() };
    TokenRequest { url, form }.body().split_off(2)
}
