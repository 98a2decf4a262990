//! The REST interface of Vertex AI Agent Engine, which keeps sessions and memories in a project of Google Cloud.

mod address;

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::StoreError;
use hatchery_egress::is_loopback;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url, redirect};
use serde_json::Value;

use self::address::Address;
use crate::firestore::AccessTokens;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a request, with its body.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of attempts of a request with transient failures.
const MAX_ATTEMPTS: u32 = 3;
/// Delay before the second attempt, and between the first two polls of an operation. Doubles each time.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(2);
/// Maximum number of polls of an operation, about a minute.
const MAX_POLLS: u32 = 32;
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of characters of an error body in a message.
const MAX_SHOWN_CHARS: usize = 500;
/// Recommended delay before a client's retry.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// An engine, and access to it.
pub(crate) struct AgentEngine {
    client: Client,
    tokens: Arc<dyn AccessTokens>,
    address: Address,
}

/// The reason why a request has no result.
pub(crate) enum RequestError {
    /// The resource does not exist.
    NotFound(StoreError),
    /// A resource of this name exists.
    Exists(StoreError),
    /// Any other.
    Other(StoreError),
}

impl From<RequestError> for StoreError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NotFound(error) | RequestError::Exists(error) | RequestError::Other(error) => error,
        }
    }
}

/// A request to an engine.
pub(crate) struct Request<'a> {
    /// The purpose of the request, such as `read a session`.
    pub(crate) activity: &'static str,
    pub(crate) method: Method,
    /// The segments after the name of the engine. The last one may end with a method, as in `memories:retrieve`.
    pub(crate) path: &'a [&'a str],
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) body: Option<&'a Value>,
}

impl AgentEngine {
    /// Prepares access to the engine of a URI. `variable` returns environment variables. Does not connect.
    pub(crate) fn open(
        uri: &str,
        valid: &'static str,
        tokens: Arc<dyn AccessTokens>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, StoreError> {
        let address = Address::parse(uri, valid, &variable)?;
        // Fails if the program has installed one, which is then used.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("hatchery/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| StoreError::backend("cannot set up HTTP", error))?;
        Ok(Self { client, tokens, address })
    }

    /// Makes a request and returns the JSON of the answer.
    pub(crate) async fn call(&self, request: &Request<'_>) -> Result<Value, RequestError> {
        let Request { activity, ref method, path, query, body } = *request;
        let mut url = self.address.url(path).map_err(RequestError::Other)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.attempt(activity, method, &url, body).await
    }

    /// Makes a request. Repeats it if that is safe and the failure may be temporary.
    async fn attempt(
        &self,
        activity: &'static str,
        method: &Method,
        url: &Url,
        body: Option<&Value>,
    ) -> Result<Value, RequestError> {
        let mut delay = FIRST_DELAY;
        let mut attempt = 1;
        loop {
            let mut builder = self.client.request(method.clone(), url.clone());
            if let Some(body) = body {
                builder = builder.json(body);
            }
            match self.send(activity, builder).await {
                // A request that was refused with 429 was not carried out; any other one may have been.
                Err((error, Some(StatusCode::TOO_MANY_REQUESTS))) if attempt < MAX_ATTEMPTS => drop(error),
                // The token was withdrawn before it expired. It is forgotten.
                Err((error, Some(StatusCode::UNAUTHORIZED))) if attempt == 1 => drop(error),
                Err((error, status)) if attempt < MAX_ATTEMPTS && can_repeat(method, status) => drop(error),
                Err((error, _)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_DELAY);
            attempt += 1;
        }
    }

    /// Makes a request that begins an operation, waits for its end, and returns its result.
    pub(crate) async fn operate(&self, request: &Request<'_>) -> Result<Value, RequestError> {
        let mut operation = self.call(request).await?;
        let activity = request.activity;
        let mut delay = FIRST_DELAY;
        for _ in 0..MAX_POLLS {
            if operation.get("done").and_then(Value::as_bool) == Some(true) {
                return match operation.get("error") {
                    Some(error) => Err(self.operation_error(activity, error)),
                    None => Ok(operation.get_mut("response").map(Value::take).unwrap_or_default()),
                };
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_DELAY);
            let name = operation.get("name").and_then(Value::as_str).unwrap_or_default();
            let url = self.address.url_of(name).map_err(RequestError::Other)?;
            operation = self.attempt(activity, &Method::GET, &url, None).await?;
        }
        Err(RequestError::Other(self.error(activity, "the operation has not ended in time; try again later")))
    }

    async fn send(
        &self,
        activity: &'static str,
        request: RequestBuilder,
    ) -> Result<Value, (RequestError, Option<StatusCode>)> {
        let failed = |message: String| (RequestError::Other(self.error(activity, &message)), None);
        let token = self.tokens.token().await.map_err(|error| (RequestError::Other(error), None))?;
        let response = request.bearer_auth(&token).send().await;
        let response = response.map_err(|error| failed(format!("no answer: {}", causes(&error.without_url()))))?;
        let status = response.status();
        let body = read(response).await.map_err(failed)?;
        if status == StatusCode::UNAUTHORIZED {
            self.tokens.forget(&token);
        }
        if !status.is_success() {
            return Err((self.status_error(activity, status, &body, &token), Some(status)));
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|_| failed("the answer is not JSON".into()))
    }

    fn status_error(&self, activity: &str, status: StatusCode, body: &[u8], token: &str) -> RequestError {
        let reported = serde_json::from_slice::<Value>(body).ok();
        let reported = reported.as_ref().and_then(|body| body.pointer("/error/message")?.as_str());
        let reported = reported.map_or_else(|| String::from_utf8_lossy(body).trim().to_owned(), ToOwned::to_owned);
        let reported: String = reported.trim_end_matches('.').chars().take(MAX_SHOWN_CHARS).collect();
        let reported = if token.is_empty() { reported } else { reported.replace(token, "[token]") };
        let next_step = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; give the account the role roles/aiplatform.user",
            StatusCode::NOT_FOUND => "; check the project, the location and the engine",
            _ => "",
        };
        let separator = if reported.is_empty() { "" } else { ": " };
        let message = format!("HTTP {}{separator}{reported}{next_step}", status.as_u16());
        let error = self.error(activity, &message);
        match status {
            StatusCode::NOT_FOUND => RequestError::NotFound(error),
            StatusCode::CONFLICT => RequestError::Exists(error),
            StatusCode::TOO_MANY_REQUESTS => RequestError::Other(StoreError::Busy {
                context: "Vertex AI Agent Engine refuses so many requests".into(),
                retry_after: RETRY_AFTER,
            }),
            _ => RequestError::Other(error),
        }
    }

    /// Returns the error of an operation, whose code is a gRPC code.
    fn operation_error(&self, activity: &str, error: &Value) -> RequestError {
        let message = error.get("message").and_then(Value::as_str).unwrap_or("the operation has failed");
        let described = self.error(activity, message);
        match error.get("code").and_then(Value::as_u64) {
            Some(5) => RequestError::NotFound(described),
            Some(6) => RequestError::Exists(described),
            _ => RequestError::Other(described),
        }
    }

    /// Creates an error that names the engine.
    pub(crate) fn error(&self, activity: &str, message: &str) -> StoreError {
        StoreError::backend(format!("cannot {activity} in {}", self.address), message)
    }
}

/// Returns true if a request has no other effect when it is made twice, and its failure may pass.
fn can_repeat(method: &Method, status: Option<StatusCode>) -> bool {
    let is_idempotent = *method == Method::GET || *method == Method::DELETE;
    is_idempotent && status.is_none_or(|status| status.is_server_error())
}

async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        let chunk = response.chunk().await.map_err(|error| format!("no answer: {}", causes(&error.without_url())))?;
        let Some(chunk) = chunk else { return Ok(body) };
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(format!("the answer is longer than {MAX_BODY_BYTES} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
}

/// Returns an error with its causes in one line.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Returns the URL of a variable that replaces Google's servers, if it is encrypted or this machine's own.
fn base_url(name: &str, value: &str) -> Result<Url, StoreError> {
    let url = Url::parse(value).ok();
    let url = url.filter(|url| url.scheme() == "https" || is_loopback(url));
    url.ok_or_else(|| {
        StoreError::InvalidRequest(format!("{name} is not an https URL, so no access token is sent there; correct it"))
    })
}
