//! The client of one API: egress policy, credentials, limits and redirects.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{CallContext, ConfigValue, excerpt};
use hatchery_egress::{BodyError, Egress, Secret, Timeouts, client, describe, read_body, refusal};
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde_json::Value;
use tokio::time::Instant;

use crate::config::Limits;
use crate::credentials::{Authenticator, Credentials, Placement};
use crate::error::{ApiError, read};
use crate::request::{Request, encode_component, encode_form};

/// Maximum number of redirects of one request.
const MAX_REDIRECTS: usize = 5;

/// Shortest secret that is looked for in answers. Shorter ones are found in everything.
const MIN_SECRET: usize = 4;

/// Placeholder of secrets in messages.
const HIDDEN: &str = "[hidden]";

/// Sends the requests of one API with its credentials.
pub(crate) struct Http {
    transport: Transport,
    authenticator: Authenticator,
    headers: BTreeMap<String, ConfigValue>,
}

/// Sends requests where the policy allows it.
pub(crate) struct Transport {
    egress: Arc<dyn Egress>,
    limits: Limits,
    /// Clients by the scheme, host and port of their requests.
    clients: Mutex<BTreeMap<String, Client>>,
}

/// A response without secrets.
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    /// The media type, in lower case and without parameters.
    pub(crate) media_type: String,
    pub(crate) body: Vec<u8>,
}

impl Http {
    /// Creates a client for the requests of a toolset, such as `openapi:shop`.
    pub(crate) fn new(
        toolset: String,
        egress: Arc<dyn Egress>,
        credentials: Credentials,
        headers: BTreeMap<String, ConfigValue>,
        limits: Limits,
    ) -> Self {
        let authenticator = Authenticator::new(credentials, toolset, &egress);
        let transport = Transport { egress, limits, clients: Mutex::default() };
        Self { transport, authenticator, headers }
    }

    /// Sends a request with credentials.
    ///
    /// # Errors
    /// If there is no whole answer within the limits.
    pub(crate) async fn send(&self, request: &Request) -> Result<ApiResponse, ApiError> {
        self.send_limited(request, None, self.deadline(), self.transport.limits.max_answer).await
    }

    /// Sends the request of a call with credentials. Fails at `deadline`.
    ///
    /// # Errors
    /// As [`Self::send`], and [`ApiError::CredentialRequested`] if the user has been asked for credentials.
    pub(crate) async fn send_by(
        &self,
        request: &Request,
        cx: &CallContext,
        deadline: Instant,
    ) -> Result<ApiResponse, ApiError> {
        self.send_limited(request, Some(cx), deadline, self.transport.limits.max_answer).await
    }

    /// Sends a request with credentials whose answer has a document.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(crate) async fn send_for_document(&self, request: &Request) -> Result<ApiResponse, ApiError> {
        let answer = self.send_limited(request, None, self.deadline(), self.transport.limits.max_document).await;
        answer.map_err(|error| match error {
            ApiError::AnswerTooLarge(limit) => ApiError::DocumentTooLarge(limit),
            error => error,
        })
    }

    async fn send_limited(
        &self,
        request: &Request,
        cx: Option<&CallContext>,
        deadline: Instant,
        limit: usize,
    ) -> Result<ApiResponse, ApiError> {
        self.until(deadline, async {
            let placement = self.authenticator.resolve_placement(&self.transport, &request.url, cx).await?;
            let replaceable = placement.replaceable.clone();
            let answer = self.exchange(request, placement, limit).await?;
            // A token may be withdrawn before it expires.
            let is_refused = answer.status == StatusCode::UNAUTHORIZED;
            if !is_refused || !self.authenticator.forget(&replaceable, cx).await? {
                return Ok(answer);
            }
            let placement = self.authenticator.resolve_placement(&self.transport, &request.url, cx).await?;
            self.exchange(request, placement, limit).await
        })
        .await
    }

    /// Reads a URL without credentials.
    ///
    /// # Errors
    /// As [`Self::send`], or if the status is not one of success.
    pub(crate) async fn read_document(&self, url: &Url) -> Result<Vec<u8>, ApiError> {
        let limit = self.transport.limits.max_document;
        let request = Request::new(Method::GET, url.clone());
        let answer = self.until(self.deadline(), self.transport.follow(&request, &Placement::default(), limit)).await;
        let answer = answer.map_err(|error| match error {
            ApiError::AnswerTooLarge(limit) => ApiError::DocumentTooLarge(limit),
            error @ (ApiError::Refused(_) | ApiError::Timeout(_)) => error,
            error => ApiError::Unreadable(error.to_string()),
        })?;
        if answer.status.is_success() {
            Ok(answer.body)
        } else {
            Err(ApiError::Unreadable(format!("the answer has the status {}", answer.status)))
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.transport.limits.call_timeout
    }

    async fn until<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let given_up = ApiError::Timeout(self.transport.limits.call_timeout);
        tokio::time::timeout_at(deadline, work).await.unwrap_or(Err(given_up))
    }

    async fn exchange(
        &self,
        request: &Request,
        mut placement: Placement,
        limit: usize,
    ) -> Result<ApiResponse, ApiError> {
        let mut request = request.clone();
        for (name, setting) in &self.headers {
            let key = format!("headers.{name}");
            let value = read(setting, &key)?;
            let invalid = || ApiError::Setting { key: key.clone(), reason: "it is not a valid header".into() };
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
            let mut header = HeaderValue::from_str(&value).map_err(|_| invalid())?;
            match setting {
                ConfigValue::Variable { prefix, .. } => {
                    header.set_sensitive(true);
                    placement.secrets.push(value.strip_prefix(prefix.as_str()).unwrap_or(&value).into());
                }
                ConfigValue::Text(_) if is_credential(name.as_str()) => {
                    header.set_sensitive(true);
                    // A server may repeat it without its scheme.
                    placement.secrets.extend(value.rsplit(' ').next().map(Secret::from));
                    placement.secrets.push(value.into());
                }
                ConfigValue::Text(_) => {}
            }
            request.headers.insert(name, header);
        }
        let answer = self.transport.follow(&request, &placement, limit).await;
        answer.map(|answer| answer.without_secrets(&placement.secrets)).map_err(|error| match error {
            ApiError::Communication(reason) => ApiError::Communication(redact(reason, &placement.secrets)),
            error => error,
        })
    }
}

impl Transport {
    /// Sends a request, and follows redirects of read requests to the same server.
    pub(crate) async fn follow(
        &self,
        request: &Request,
        placement: &Placement,
        limit: usize,
    ) -> Result<ApiResponse, ApiError> {
        // Shortened last, because the beginning of a secret would not be found.
        let refused = |target: &str| ApiError::Redirect(excerpt(&redact(target.to_owned(), &placement.secrets), 200));
        let mut url = request.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_once(request, &url, placement).await?;
            let status = response.status();
            if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
                let location =
                    response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
                let target = url.join(location).ok();
                let is_reading = matches!(request.method, Method::GET | Method::HEAD);
                match target.filter(|target| is_reading && target.origin() == url.origin()) {
                    Some(target) => url = target,
                    None => return Err(refused(location)),
                }
                continue;
            }
            let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let media_type = media_type.and_then(|value| value.split(';').next()).unwrap_or_default();
            let media_type = media_type.trim().to_ascii_lowercase();
            let body = read_body(response, limit).await.map_err(|error| match error {
                BodyError::TooLarge(limit) => ApiError::AnswerTooLarge(limit),
                BodyError::Connection(error) => ApiError::Communication(describe(error)),
            })?;
            return Ok(ApiResponse { status, media_type, body });
        }
        Err(refused(url.as_str()))
    }

    async fn send_once(&self, request: &Request, url: &Url, placement: &Placement) -> Result<Response, ApiError> {
        // The permission may have been withdrawn since the client was created.
        self.egress.check_url(url).map_err(ApiError::Refused)?;
        let mut url = url.clone();
        if let Some((name, value)) = &placement.query {
            let kept: Vec<_> = url.query_pairs().filter(|(other, _)| other != name).map(to_owned_pair).collect();
            let has_key = kept.len() < url.query_pairs().count();
            if has_key {
                url.query_pairs_mut().clear().extend_pairs(kept);
            }
            url.query_pairs_mut().append_pair(name, value.expose());
        }
        let mut headers = request.headers.clone();
        let mut cookies = request.cookies.clone();
        if let Some((name, value)) = &placement.cookie {
            cookies.push(format!("{name}={}", value.expose()));
        }
        Request::set_cookies(&mut headers, &cookies).map_err(ApiError::Communication)?;
        if let Some((name, value)) = &placement.header {
            headers.insert(name.clone(), value.clone());
        }
        let mut builder = self.client(&url)?.request(request.method.clone(), url);
        if let Some((media_type, body)) = &request.body {
            headers.insert(CONTENT_TYPE, media_type.clone());
            builder = builder.body(body.clone());
        }
        builder.headers(headers).send().await.map_err(|error| match refusal(&error) {
            Some(reason) => ApiError::Refused(reason),
            None => ApiError::Communication(describe(error)),
        })
    }

    /// Returns the client for the server of a URL. It checks the addresses of that server.
    fn client(&self, url: &Url) -> Result<Client, ApiError> {
        let origin = url.origin().ascii_serialization();
        if let Some(client) = self.clients.lock_unpoisoned().get(&origin) {
            return Ok(client.clone());
        }
        let timeouts = Timeouts { connect: self.limits.connect_timeout, read: self.limits.call_timeout };
        let client = client(&self.egress, url, timeouts).map_err(ApiError::Refused)?;
        self.clients.lock_unpoisoned().insert(origin, client.clone());
        Ok(client)
    }
}

fn to_owned_pair((name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)) -> (String, String) {
    (name.into_owned(), value.into_owned())
}

/// Returns true if a header of this name, in lower case, holds credentials.
fn is_credential(name: &str) -> bool {
    ["auth", "cookie", "key", "password", "secret", "session", "token"].iter().any(|word| name.contains(word))
}

impl ApiResponse {
    fn without_secrets(mut self, secrets: &[Secret]) -> Self {
        let spellings = spellings(secrets);
        let is_in = |secret: &String| self.body.windows(secret.len()).any(|window| window == secret.as_bytes());
        if spellings.iter().any(is_in) {
            self.body = replace_secrets(String::from_utf8_lossy(&self.body).into_owned(), &spellings).into_bytes();
        }
        self
    }
}

/// Returns a text without the secrets in it.
pub(crate) fn redact(text: String, secrets: &[Secret]) -> String {
    replace_secrets(text, &spellings(secrets))
}

fn replace_secrets(text: String, spellings: &[String]) -> String {
    spellings.iter().fold(text, |text, secret| if text.contains(secret) { text.replace(secret, HIDDEN) } else { text })
}

/// Returns the secrets unchanged, percent-encoded, as in a form, and as in a JSON string. A secret may be the beginning
/// of another one, so longer ones come first.
fn spellings(secrets: &[Secret]) -> Vec<String> {
    let secrets = secrets.iter().map(Secret::expose).filter(|secret| secret.len() >= MIN_SECRET);
    let mut all: Vec<String> = secrets
        .flat_map(|secret| {
            let json = Value::from(secret).to_string();
            let json = json.get(1..json.len() - 1).unwrap_or_default().to_owned();
            [secret.to_owned(), encode_component(secret), encode_form(secret), json]
        })
        .collect();
    all.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    all.dedup();
    all
}
