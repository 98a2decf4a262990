//! Authentication: who sends a request. API keys, tokens of an issuer, and logins of browsers.
//!
//! The [service](crate::service) asks before the route of a request is known, so that a refusal does not reveal clients
//! whether the route exists.

mod api_keys;
mod concurrency;
mod credential;
mod jwks;
mod login_page;
mod logins;
mod principal;
mod rate_limit;
mod refusal;
mod requirement;
mod tokens;

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hatchery::ServerAuthConfig;
use hatchery_core::pluralize;

use crate::error::ApiError;
use crate::log_throttle::LogThrottle;
use crate::peer::Peer;
use api_keys::ApiKeys;
use concurrency::{ConcurrencyLimit, LimitReached};
use credential::Credential;
use logins::{LoginCredential, Logins};
use principal::ClientLimits;
use rate_limit::RateLimit;
use refusal::Refusal;
use tokens::Tokens;

pub(crate) use concurrency::RequestPermit;
pub(crate) use credential::Credentials;
pub(crate) use login_page::login_page;
pub(crate) use logins::{cleared_cookie, cookie};
pub(crate) use principal::Principal;
pub(crate) use requirement::Requirement;

/// Longest time for which a browser stays logged in.
const MAX_LOGIN: Duration = Duration::from_secs(12 * 3600);

/// Returns the error of a message over a connection that was opened before the server had authentication.
pub(crate) fn missing_credentials() -> ApiError {
    Refusal::Missing.into()
}

/// Authenticates requests, and authorizes them by path.
pub(crate) struct Authentication {
    clients: ArcSwap<Clients>,
    logins: Logins,
    rate_limit: RateLimit,
    concurrency: ConcurrencyLimit,
    refused: AtomicU64,
    log: LogThrottle,
}

/// The clients of a configuration.
struct Clients {
    keys: ApiKeys,
    tokens: Option<Arc<Tokens>>,
}

impl Clients {
    /// Reads the API keys. The issuer of `known` is kept with its keys if its settings are the same.
    fn open(config: &ServerAuthConfig, known: Option<&Self>) -> Result<Self, String> {
        let limits = ClientLimits { per_minute: config.requests_per_minute, concurrent: config.concurrent_requests };
        let keys = ApiKeys::open(config, limits)?;
        let tokens = config.oidc.as_ref().map(|oidc| {
            let tokens = known.and_then(|known| known.tokens.as_ref());
            match tokens.filter(|tokens| tokens.has_settings(oidc, limits)) {
                Some(tokens) => Ok(tokens.clone()),
                None => Tokens::new(oidc, limits).map(Arc::new),
            }
        });
        Ok(Self { keys, tokens: tokens.transpose()? })
    }
}

/// The part of a request that decides about it.
pub(crate) struct RequestHead<'a> {
    method: &'a Method,
    path: &'a str,
    query: Option<&'a str>,
    headers: &'a HeaderMap,
    peer: Option<Peer>,
    accepts_login: bool,
}

impl<'a> RequestHead<'a> {
    /// Returns the head of a request, whose cookie counts if `accepts_login`.
    pub(crate) fn new(request: &'a Request, accepts_login: bool) -> Self {
        let peer = Peer::from_extensions(request.extensions());
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        Self { method, path: uri.path(), query: uri.query(), headers, peer, accepts_login }
    }
}

/// A request that its sender may send.
pub(crate) struct Admission {
    pub(crate) principal: Principal,
    /// Held until the request has ended; `None` if the requests of its sender are not limited.
    pub(crate) permit: Option<RequestPermit>,
}

/// The owner of a credential, and its expiry.
struct IdentifiedSender {
    principal: Principal,
    /// The credential for the login of a browser.
    credential: LoginCredential,
    /// `None` if it does not expire.
    expires_in: Option<Duration>,
}

impl Authentication {
    /// Reads the API keys. The keys of an issuer are read when the first token arrives.
    ///
    /// # Errors
    /// The problem, without the text of a key.
    pub(crate) fn open(config: &ServerAuthConfig) -> Result<Self, String> {
        Ok(Self {
            clients: ArcSwap::from_pointee(Clients::open(config, None)?),
            logins: Logins::default(),
            rate_limit: RateLimit::default(),
            concurrency: ConcurrencyLimit::default(),
            refused: AtomicU64::new(0),
            log: LogThrottle::default(),
        })
    }

    /// Reads the keys of a changed configuration. Returns a function that replaces the clients: from the next request
    /// on, removed keys, tokens under other settings, and logins with them are rejected.
    ///
    /// # Errors
    /// The problem, without the text of a key.
    pub(crate) fn prepare(self: &Arc<Self>, config: &ServerAuthConfig) -> Result<impl FnOnce() + Send + use<>, String> {
        let (clients, auth) = (Clients::open(config, Some(&self.clients.load()))?, self.clone());
        Ok(move || auth.clients.store(Arc::new(clients)))
    }

    /// Returns the number of requests without valid credentials.
    pub(crate) fn refused_requests(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the sender of a request after checking that the sender may use its path. `None` for a public path.
    ///
    /// # Errors
    /// The response that refuses it.
    pub(crate) async fn admit(&self, request: RequestHead<'_>) -> Result<Option<Admission>, Box<Response>> {
        let requirement = Requirement::for_path(request.path);
        if requirement == Requirement::None {
            return Ok(None);
        }
        let identified = match Credential::from_headers(request.headers, request.accepts_login) {
            Some(credential) => self.identify(credential).await,
            None => Err(Refusal::Missing),
        };
        match identified {
            Ok(IdentifiedSender { principal, .. }) => match self.check(&principal, &requirement) {
                Ok(()) => match self.acquire(&principal) {
                    Ok(permit) => Ok(Some(Admission { principal, permit })),
                    Err(error) => Err(error.into_response().into()),
                },
                Err(error) => Err(error.into_response().into()),
            },
            Err(refusal) => {
                self.record(&refusal, request.path, request.peer);
                let response = if !login_page::opens_page(&request) || !refusal.is_client_error() {
                    ApiError::from(refusal).into_response()
                } else if let Some(query) = login_page::oauth_response(&request) {
                    login_page::reload_page(query)
                } else {
                    login_page(request.path, None)
                };
                Err(response.into())
            }
        }
    }

    /// Returns the sender of a message over a connection that was admitted with these credentials. They may have
    /// expired or been withdrawn since. The message counts as a request, but not as one in progress.
    ///
    /// # Errors
    /// As for a request.
    pub(crate) async fn admit_message(&self, credentials: &Credentials) -> Result<Principal, ApiError> {
        let identified = match credentials.credential() {
            Some(credential) => self.identify(credential).await,
            None => Err(Refusal::Missing),
        };
        let IdentifiedSender { principal, .. } = identified.map_err(|refusal| {
            self.record(&refusal, credentials.path(), credentials.peer());
            ApiError::from(refusal)
        })?;
        self.check(&principal, &Requirement::Client)?;
        Ok(principal)
    }

    fn check(&self, principal: &Principal, requirement: &Requirement) -> Result<(), ApiError> {
        let per_minute = principal.limits().per_minute;
        self.rate_limit.count(principal.name(), per_minute, Instant::now()).map_err(|wait| {
            let requests = pluralize(per_minute, "request", "requests");
            let detail = format!("these credentials are for {requests} per minute; send fewer");
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", detail);
            ApiError { retry_after: Some(wait), ..error }
        })?;
        principal.check(requirement)
    }

    /// Returns a permit for a request in progress of this sender. `None` if the number of requests is not limited.
    ///
    /// # Errors
    /// 429 if the sender has as many as it may have.
    pub(crate) fn acquire(&self, principal: &Principal) -> Result<Option<RequestPermit>, ApiError> {
        let concurrent = principal.limits().concurrent;
        self.concurrency.acquire(principal.name(), concurrent).map_err(|LimitReached| {
            let requests = pluralize(concurrent, "request", "requests");
            let detail = format!("these credentials are for {requests} at a time; wait until one has ended");
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "CONCURRENCY_LIMITED", detail);
            ApiError { retry_after: Some(Duration::from_secs(1)), ..error }
        })
    }

    /// Logs a browser in with an API key or a token of an operator. Returns the text of its cookie and how long it is
    /// valid.
    ///
    /// # Errors
    /// If the secret is not valid, or does not belong to an operator.
    pub(crate) async fn log_in(&self, secret: &str, peer: Option<Peer>) -> Result<(String, Duration), ApiError> {
        let identified = self.identify(Credential::Secret(secret)).await;
        let IdentifiedSender { principal, credential, expires_in } = identified.map_err(|refusal| {
            self.record(&refusal, "/login", peer);
            ApiError::from(refusal)
        })?;
        principal.check(&Requirement::Operator)?;
        let lifetime = expires_in.unwrap_or(MAX_LOGIN).min(MAX_LOGIN);
        tracing::info!(target: "hatchery::audit", client = principal.name(), decision = "accepted", "login");
        Ok((self.logins.add(credential, Instant::now() + lifetime), lifetime))
    }

    /// Logs the browser of a request out.
    pub(crate) fn log_out(&self, headers: &HeaderMap) {
        if let Some(login) = credential::login(headers) {
            self.logins.remove(login);
        }
    }

    async fn identify(&self, credential: Credential<'_>) -> Result<IdentifiedSender, Refusal> {
        let clients = self.clients.load_full();
        let secret = match credential {
            Credential::Secret(secret) => secret,
            Credential::Login(id) => {
                let credential = self.logins.find(id).ok_or(Refusal::LoggedOut)?;
                let principal = match &credential {
                    LoginCredential::Key(hash) => clients.keys.find(hash),
                    LoginCredential::Token(principal, verified_by) => {
                        let tokens = clients.tokens.as_ref();
                        let is_verifier = |it: &&Arc<Tokens>| ptr::eq(Arc::as_ptr(it), verified_by.as_ptr());
                        tokens.filter(is_verifier).map(|_| principal.clone())
                    }
                };
                let principal = principal.ok_or(Refusal::LoggedOut)?;
                return Ok(IdentifiedSender { principal, credential, expires_in: None });
            }
        };
        let hash = api_keys::hash(secret);
        if let Some(principal) = clients.keys.find(&hash) {
            return Ok(IdentifiedSender { principal, credential: LoginCredential::Key(hash), expires_in: None });
        }
        match &clients.tokens {
            Some(tokens) if tokens::is_token(secret) => tokens.verify(secret).await,
            _ => Err(Refusal::UnknownKey),
        }
    }

    /// Counts a request without valid credentials, and logs it without them.
    fn record(&self, refusal: &Refusal, path: &str, peer: Option<Peer>) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        // A browser that opens the page has none yet, and a client may ask first.
        if *refusal == Refusal::Missing {
            return;
        }
        self.log.log(|times| {
            let peer = peer.map(|peer| peer.to_string());
            tracing::warn!(
                target: "hatchery::audit", decision = "refused", detail = %refusal, path, peer, times, "authentication"
            );
        });
    }
}
