//! Credentials of tools: those that a user grants over the protocol of [`hatchery_core::REQUEST_CREDENTIAL`], and those
//! that the host gets itself.
//!
//! A tool asks its [`ToolAuthenticator`] before each request. If the user must be asked, the authenticator requests
//! that from the context of the call, and the tool returns [`pending_result`]. Tokens are refreshed shortly before they
//! expire.

mod endpoints;
mod error;
mod grant;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hatchery_core::sync::MutexExt;
use hatchery_core::{
    AuthConfig, AuthCredential, AuthScheme, CallContext, CredentialId, HttpCredentials, OAuth2Auth, StoreError,
    UserCredential,
};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tracing::Instrument;

pub use self::error::AuthError;

use self::endpoints::Endpoints;
use self::grant::Grant;
use crate::{Egress, Timeouts, TokenCache};

/// A token is refreshed this long before it expires.
const EXPIRY_MARGIN: u64 = 60;

/// Lifetime of a token if the server does not report one.
const DEFAULT_LIFETIME: u64 = 3_600;

/// Timeout of token servers.
const TIMEOUTS: Timeouts = Timeouts { connect: Duration::from_secs(10), read: Duration::from_secs(30) };

/// Maximum time for a whole answer of a token server.
const MAX_EXCHANGE: Duration = Duration::from_secs(60);

/// Returns the result of a call that waits for a user's credential.
pub fn pending_result() -> Value {
    json!({"pending": true, "message": "Needs your authorization to access your data."})
}

/// Place of the client credentials in token requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientAuthentication {
    /// In the header `Authorization`, which every server supports.
    #[default]
    Header,
    /// In the form.
    Body,
}

/// Gets the credentials for the requests of one tool or toolset.
pub struct ToolAuthenticator {
    config: AuthConfig,
    /// Egress policy of requests to token servers.
    egress: Arc<dyn Egress>,
    client_authentication: ClientAuthentication,
    /// The token of the host itself.
    own_token: TokenCache,
    endpoints: OnceCell<Endpoints>,
    /// Held while the credential of a user is exchanged or refreshed, so that concurrent calls do it once.
    exchanges: Mutex<HashMap<CredentialId, Arc<tokio::sync::Mutex<()>>>>,
}

impl fmt::Debug for ToolAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolAuthenticator").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ToolAuthenticator {
    /// Creates an authenticator. Requests to token servers may go where `egress` allows it.
    pub fn new(config: AuthConfig, egress: Arc<dyn Egress>) -> Self {
        Self {
            config,
            egress,
            client_authentication: ClientAuthentication::default(),
            own_token: TokenCache::default(),
            endpoints: OnceCell::new(),
            exchanges: Mutex::default(),
        }
    }

    /// Sets the location of the client credentials in token requests.
    #[must_use]
    pub fn with_client_authentication(self, client_authentication: ClientAuthentication) -> Self {
        Self { client_authentication, ..self }
    }

    /// Returns the credential for a request of this call. `None` if the user has been asked for it: the tool returns
    /// [`pending_result`], and is called again after the answer.
    ///
    /// # Errors
    /// If the user cannot be asked, an OAuth server refuses the answer, or it cannot be reached. The next call asks the
    /// user again if the answer was at fault.
    pub async fn credential(self: &Arc<Self>, cx: &CallContext) -> Result<Option<AuthCredential>, AuthError> {
        if let Some(own) = self.own_credential().await? {
            return Ok(Some(own));
        }
        let id = CredentialId::for_user(&cx.invocation.session_key, self.config.key());
        if let Some(UserCredential::Granted { credential }) = cx.user_credential(&id.key).await?
            && !expires_soon(&credential)
        {
            return Ok(Some(credential));
        }
        match self.exchange_to_completion(cx, id).await? {
            Some(credential) => Ok(Some(credential)),
            None => self.ask(cx).await.map(|()| None),
        }
    }

    /// Exchanges or refreshes a credential, one call of a user at a time. Continues if the call is cancelled: the
    /// server accepts a code, and often a refresh token, only once, so its tokens must be stored.
    async fn exchange_to_completion(
        self: &Arc<Self>,
        cx: &CallContext,
        id: CredentialId,
    ) -> Result<Option<AuthCredential>, AuthError> {
        let lock = self.exchanges.lock_unpoisoned().entry(id.clone()).or_default().clone();
        let exchanging = lock.lock_owned().await;
        let (authenticator, cx) = (self.clone(), cx.clone());
        let exchange = async move {
            let exchanged = authenticator.exchange(&cx, &id.key).await;
            drop(exchanging);
            authenticator.exchanges.lock_unpoisoned().retain(|_, lock| Arc::strong_count(lock) > 1);
            exchanged
        };
        tokio::spawn(exchange.in_current_span()).await.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(StoreError::backend("cannot exchange a credential", error).into()),
        })
    }

    /// Reports that a service has refused a credential. A token is refreshed for the next call; of anything else the
    /// user is asked again.
    ///
    /// # Errors
    /// If the credential service fails.
    pub async fn refuse(&self, cx: &CallContext, refused: &AuthCredential) -> Result<(), AuthError> {
        let token = refused.oauth2.as_ref().and_then(|oauth2| oauth2.access_token.as_deref());
        // The token of a service account.
        let bearer = refused.http.as_ref().and_then(|http| http.credentials.token.as_deref());
        if let Some(token) = token.or(bearer) {
            self.own_token.forget(&token.into());
        }
        let key = self.config.key();
        let Some(UserCredential::Granted { mut credential }) = cx.user_credential(&key).await? else { return Ok(()) };
        if credential != *refused {
            return Ok(());
        }
        match credential.oauth2.as_mut().filter(|oauth2| oauth2.refresh_token.is_some()) {
            Some(oauth2) => {
                oauth2.expires_at = Some(0);
                cx.set_user_credential(&key, Some(&UserCredential::Granted { credential })).await?;
            }
            None => cx.set_user_credential(&key, None).await?,
        }
        Ok(())
    }

    /// Returns the credential that needs no user; `None` if a user must grant it.
    async fn own_credential(&self) -> Result<Option<AuthCredential>, AuthError> {
        let Some(raw) = &self.config.raw_auth_credential else { return Ok(None) };
        if let Some(account) = &raw.service_account {
            let token = self.own_token.get_or_fetch(self.grant().service_account(account)).await?;
            let credentials = HttpCredentials { token: Some(token.expose().into()), ..HttpCredentials::default() };
            return Ok(Some(AuthCredential::http("bearer", credentials)));
        }
        if let AuthScheme::OAuth2 { flows } = &self.config.auth_scheme
            && let (Some(flow), None) = (&flows.client_credentials, &flows.authorization_code)
        {
            let token = self.own_token.get_or_fetch(self.grant().client_credentials(flow)).await?;
            return Ok(Some(AuthCredential::oauth2(OAuth2Auth {
                access_token: Some(token.expose().into()),
                ..OAuth2Auth::default()
            })));
        }
        let has_token = raw.oauth2.as_ref().is_some_and(|oauth2| oauth2.access_token.is_some());
        let is_complete = raw.api_key.is_some() || raw.http.is_some() || has_token;
        Ok(is_complete.then(|| raw.clone()))
    }

    /// Exchanges the user's answer for tokens, or refreshes stored ones. `None` if the user must be asked.
    async fn exchange(&self, cx: &CallContext, key: &str) -> Result<Option<AuthCredential>, AuthError> {
        let Some(stored) = cx.user_credential(key).await? else { return Ok(None) };
        let granted = match stored.clone() {
            UserCredential::Granted { credential } if !expires_soon(&credential) => return Ok(Some(credential)),
            UserCredential::Granted { credential } => match self.refresh(credential).await {
                Err(AuthError::Refused { .. }) => Ok(None),
                refreshed => refreshed,
            },
            UserCredential::Answer { credential, expected_state } => {
                self.accept(cx, credential, expected_state.as_deref()).await.map(Some)
            }
        };
        match granted {
            Ok(Some(credential)) => {
                cx.set_user_credential(key, Some(&UserCredential::Granted { credential: credential.clone() })).await?;
                Ok(Some(credential))
            }
            Ok(None) => discard(cx, key, &stored).await,
            // A code can be used once, and a wrong answer is wrong the next time too.
            Err(error @ (AuthError::Refused { .. } | AuthError::Answer(_))) => match discard(cx, key, &stored).await? {
                Some(credential) => Ok(Some(credential)),
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    async fn refresh(&self, credential: AuthCredential) -> Result<Option<AuthCredential>, AuthError> {
        let refresh_token = credential.oauth2.as_ref().and_then(|oauth2| oauth2.refresh_token.clone());
        let Some(refresh_token) = refresh_token else { return Ok(None) };
        let endpoints = self.endpoints().await?;
        let oauth2 = self.grant().refresh(endpoints, &refresh_token).await?;
        Ok(Some(AuthCredential { oauth2: Some(oauth2), ..credential }))
    }

    /// Turns an answer into a credential for requests.
    async fn accept(
        &self,
        cx: &CallContext,
        answer: AuthCredential,
        expected_state: Option<&str>,
    ) -> Result<AuthCredential, AuthError> {
        match &self.config.auth_scheme {
            AuthScheme::ApiKey { .. } => match answer.api_key {
                Some(key) => Ok(AuthCredential::api_key(key)),
                None => Err(AuthError::Answer("it has no `apiKey`")),
            },
            AuthScheme::Http { scheme } => match answer.http {
                Some(http) => Ok(AuthCredential::http(scheme.clone(), http.credentials)),
                None => Err(AuthError::Answer("it has no `http`")),
            },
            AuthScheme::OAuth2 { .. } | AuthScheme::OpenIdConnect { .. } => {
                let oauth2 = answer.oauth2.ok_or(AuthError::Answer("it has no `oauth2`"))?;
                if oauth2.access_token.is_some() {
                    return Ok(AuthCredential::oauth2(oauth2));
                }
                let state = expected_state.ok_or(AuthError::Answer("no login at the OAuth server was requested"))?;
                let code = grant::code(&oauth2, state)?;
                let verifier = grant::verifier(cx, state);
                let redirect_uri = oauth2.redirect_uri.or_else(|| self.redirect_uri());
                let endpoints = self.endpoints().await?;
                let tokens = self.grant().code(endpoints, &code, &verifier, redirect_uri.as_deref()).await?;
                Ok(AuthCredential::oauth2(tokens))
            }
        }
    }

    /// Requests the credential from the user.
    async fn ask(&self, cx: &CallContext) -> Result<(), AuthError> {
        let raw = self.config.raw_auth_credential.clone().unwrap_or_default();
        let exchanged = match &self.config.auth_scheme {
            AuthScheme::ApiKey { .. } => AuthCredential::default(),
            AuthScheme::Http { scheme } => AuthCredential::http(scheme.clone(), HttpCredentials::default()),
            AuthScheme::OAuth2 { .. } | AuthScheme::OpenIdConnect { .. } => {
                let endpoints = self.endpoints().await?;
                let oauth2 = raw.oauth2.clone().unwrap_or_default();
                let (auth_uri, state) = self.grant().authorization(endpoints, &oauth2, cx)?;
                let oauth2 = OAuth2Auth { auth_uri: Some(auth_uri), state: Some(state), ..oauth2 };
                AuthCredential { oauth2: Some(oauth2), ..raw }
            }
        };
        cx.request_credential(&self.config.for_client(exchanged)).map_err(AuthError::Unasked)
    }

    async fn endpoints(&self) -> Result<&Endpoints, AuthError> {
        self.endpoints.get_or_try_init(|| Endpoints::discover(&self.config.auth_scheme, &self.egress)).await
    }

    fn redirect_uri(&self) -> Option<String> {
        self.config.raw_auth_credential.as_ref()?.oauth2.as_ref()?.redirect_uri.clone()
    }

    fn grant(&self) -> Grant<'_> {
        let raw = self.config.raw_auth_credential.as_ref();
        Grant {
            client: raw.and_then(|raw| raw.oauth2.as_ref()),
            client_authentication: self.client_authentication,
            egress: &self.egress,
        }
    }
}

/// Deletes a credential that is not accepted. Keeps one that has replaced it, and returns it if it is for requests:
/// another host may have used the same code or refresh token, which servers accept once.
async fn discard(cx: &CallContext, key: &str, refused: &UserCredential) -> Result<Option<AuthCredential>, AuthError> {
    match cx.user_credential(key).await? {
        Some(current) if current == *refused => {
            cx.set_user_credential(key, None).await?;
            Ok(None)
        }
        Some(UserCredential::Granted { credential }) => Ok(Some(credential)),
        Some(UserCredential::Answer { .. }) | None => Ok(None),
    }
}

/// Returns true if a token has expired or is about to.
fn expires_soon(credential: &AuthCredential) -> bool {
    let expires_at = credential.oauth2.as_ref().and_then(|oauth2| oauth2.expires_at);
    expires_at.is_some_and(|expires_at| expires_at < now() + EXPIRY_MARGIN)
}

/// Awaits the whole answer of a server for a limited time.
async fn within_time<T>(url: &Url, answer: impl Future<Output = Result<T, AuthError>>) -> Result<T, AuthError> {
    let late = |_| {
        let reason = format!("it did not answer within {} s", MAX_EXCHANGE.as_secs());
        AuthError::Server { host: endpoints::host(url), reason }
    };
    tokio::time::timeout(MAX_EXCHANGE, answer).await.map_err(late)?
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Parses the URL of an OAuth server, whose traffic must be encrypted.
fn server_url(setting: &'static str, text: &str) -> Result<Url, AuthError> {
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "https" || crate::is_loopback(url));
    url.ok_or(AuthError::Setting { setting, reason: "it is not an https URL" })
}
