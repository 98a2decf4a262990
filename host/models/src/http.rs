//! HTTP client of the providers: retries with exponential backoff, timeouts and size limits.
//!
//! A request is only retried until the first byte of a response arrives. Redirects are not followed, because a key in a
//! header must not go to another host.

mod address;
mod json;
mod retries;
mod web_socket;

use std::collections::BTreeMap;
use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, Stream, StreamExt};
use hatchery_core::{GenerateContentConfig, HttpOptions, ModelCallProgress, ModelError, ModelErrorKind, TraceParent};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, StatusCode, Url, redirect};

use self::address::{check_key_destination, endpoint_url};
pub(crate) use self::json::to_json;
pub(crate) use self::retries::retry_after;
use self::retries::{RetriedCall, retry};
pub(crate) use self::web_socket::WebSocket;
use crate::Secret;
use crate::failure::Origin;
use crate::google_credentials::GoogleCredentials;
use crate::service::{Service, ServiceInfo};
use crate::settings::Connection;
pub(crate) use retries::backoff;

/// Anthropic's header for features that are not generally available: a list, to which an agent may add its own.
pub(crate) const BETA_HEADER: &str = "anthropic-beta";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time until the first byte of a response.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum time between two chunks of a body. Models that think may send nothing for minutes after a response has
/// begun.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum size of a response that is not streamed.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// Maximum size of an error body. The rest is not read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// The remedy in an error about a missing setting of a model.
pub(crate) const MODEL_WITHOUT_SETTINGS: &str = "or use a model without one, `scripted:<file>`";

/// The client that all providers share, created on first use.
#[derive(Clone, Default)]
pub(crate) struct Http {
    client: Arc<OnceLock<Client>>,
    /// The client for WebSockets, which only connections of HTTP/1.1 can become.
    http1: Arc<OnceLock<Client>>,
}

impl Http {
    /// Uses a client of the caller. It must not follow redirects. Live models need one that is limited to HTTP/1.1,
    /// which WebSockets are opened with.
    pub(crate) fn with_client(client: Client) -> Self {
        let client = Arc::new(OnceLock::from(client));
        Self { http1: client.clone(), client }
    }

    /// Returns the client, and creates it if needed.
    pub(crate) fn client(&self, origin: &Origin) -> Result<Client, ModelError> {
        Self::get_or_build(&self.client, origin, |builder| builder)
    }

    /// Returns the client for WebSockets, and creates it if needed.
    fn upgrading_client(&self, origin: &Origin) -> Result<Client, ModelError> {
        Self::get_or_build(&self.http1, origin, ClientBuilder::http1_only)
    }

    fn get_or_build(
        cell: &OnceLock<Client>,
        origin: &Origin,
        configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Client, ModelError> {
        if let Some(client) = cell.get() {
            return Ok(client.clone());
        }
        // Fails if the process has a crypto provider already; any will do.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("hatchery/", env!("CARGO_PKG_VERSION")));
        let client = configure(builder)
            .build()
            .map_err(|error| origin.error(ModelErrorKind::Network, format!("cannot set up HTTP: {}", chain(&error))))?;
        Ok(cell.get_or_init(|| client).clone())
    }
}

/// Authentication of a request.
pub(crate) enum Authentication {
    /// The key, if there is one, as a bearer token.
    Bearer,
    /// The key, if there is one, in the header of this name.
    Header(&'static str),
    /// An access token of Google Cloud.
    Google(Arc<GoogleCredentials>),
    /// By a library, which gets the key.
    #[cfg(any(feature = "genai", feature = "rig"))]
    Library,
}

/// The base URL of one provider, with the headers of its requests.
#[derive(Clone)]
pub(crate) struct Endpoint {
    client: Client,
    http: Http,
    base_url: String,
    headers: HeaderMap,
    pub(crate) origin: Arc<Origin>,
}

impl Endpoint {
    /// Creates the endpoint of the model of this name. Does not connect.
    pub(crate) fn new(
        model: &str,
        service: Service,
        connection: &Connection,
        authentication: Authentication,
        http: &Http,
    ) -> Result<Self, ModelError> {
        Self::for_service(model, service.info(), connection, authentication, http)
    }

    /// Creates the endpoint of a model of this service. Does not connect.
    pub(crate) fn for_service(
        model: &str,
        info: &'static ServiceInfo,
        connection: &Connection,
        authentication: Authentication,
        http: &Http,
    ) -> Result<Self, ModelError> {
        let Connection { base_url, api_key, headers: fixed_headers } = connection;
        let mut origin = Origin {
            model: model.to_owned(),
            service: info,
            secrets: fixed_headers.values().chain(api_key).cloned().collect(),
            credentials: None,
        };
        if let Some(missing) = info.missing_variables(connection) {
            let noun = if info.base_url(connection).is_none() { "URL" } else { "key" };
            let message = format!("no {noun}: set {missing}, {MODEL_WITHOUT_SETTINGS}");
            return Err(origin.error(ModelErrorKind::Auth, message));
        }
        let mut headers = secret_headers(fixed_headers, &origin)?;
        match (authentication, api_key) {
            (Authentication::Bearer, Some(key)) => {
                headers.insert(AUTHORIZATION, key_header("Bearer ", key, &origin)?);
            }
            (Authentication::Header(name), Some(key)) => {
                headers.insert(name, key_header("", key, &origin)?);
            }
            (Authentication::Google(credentials), _) => origin.credentials = Some(credentials),
            (Authentication::Bearer | Authentication::Header(_), None) => {}
            #[cfg(any(feature = "genai", feature = "rig"))]
            (Authentication::Library, _) => {}
        }
        let endpoint = Self {
            client: http.client(&origin)?,
            http: http.clone(),
            base_url: info.base_url(connection).unwrap_or_default(),
            headers,
            origin: Arc::new(origin),
        };
        let url = endpoint.url([""; 0])?;
        if endpoint.origin.credentials.is_some() || !endpoint.origin.secrets.is_empty() {
            check_key_destination(&url, base_url.as_ref(), &endpoint.origin)?;
        }
        Ok(endpoint)
    }

    /// Returns the endpoint with another default URL, which is used if none is set.
    pub(crate) fn with_default_url(self, connection: &Connection, url: String) -> Self {
        if connection.base_url.is_some() { self } else { Self { base_url: url, ..self } }
    }

    /// Returns the endpoint with a header of every request.
    pub(crate) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    /// Appends percent-encoded path segments to the base URL.
    pub(crate) fn url<'a>(&self, segments: impl IntoIterator<Item = &'a str>) -> Result<Url, ModelError> {
        endpoint_url(&self.base_url, segments, &self.origin)
    }

    /// Sends a POST request with a JSON body. Returns a response with a success status, before its body is read.
    pub(crate) async fn post(
        &self,
        url: &Url,
        body: Bytes,
        options: &HttpOptions,
        progress: &ModelCallProgress,
    ) -> Result<Response, ModelError> {
        let headers = self.request_headers(options, progress)?;
        let timeout = self.timeout(options);
        let status = |response: &Response| Some(response.status().as_u16());
        self.retry(options, progress, status, || self.send(url, body.clone(), headers.clone(), timeout)).await
    }

    /// Sends a request up to the number of times in the options, until an attempt succeeds or fails for good. `status`
    /// returns the HTTP status of a response, if it is known.
    pub(crate) async fn retry<T, F: Future<Output = Result<T, ModelError>>>(
        &self,
        options: &HttpOptions,
        progress: &ModelCallProgress,
        status: impl Fn(&T) -> Option<u16>,
        send: impl FnMut() -> F,
    ) -> Result<T, ModelError> {
        progress.set_provider(self.origin.service.provider);
        let options = options.retry_options.clone().unwrap_or_default();
        retry(RetriedCall { model: &self.origin.model, options: &options, progress }, status, send).await
    }

    /// Returns the time in which a response must begin.
    pub(crate) fn timeout(&self, options: &HttpOptions) -> Duration {
        options.timeout.map_or(FIRST_BYTE_TIMEOUT, Duration::from_millis)
    }

    /// Returns the client of the requests.
    #[cfg(any(feature = "genai", feature = "rig"))]
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the headers of a request.
    pub(crate) fn request_headers(
        &self,
        options: &HttpOptions,
        progress: &ModelCallProgress,
    ) -> Result<HeaderMap, ModelError> {
        let mut headers = self.headers.clone();
        for (name, value) in &options.headers {
            let header = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
            let (name, value) = header.ok_or_else(|| {
                self.origin.error(ModelErrorKind::BadRequest, format!("`httpOptions.headers`: `{name}` cannot be sent"))
            })?;
            if name == BETA_HEADER {
                headers.append(name, value);
            } else {
                // Keys of the provider are never replaced.
                headers.entry(name).or_insert(value);
            }
        }
        if let Some(value) = progress.trace_parent().and_then(|parent| HeaderValue::try_from(parent).ok()) {
            headers.entry(TraceParent::HEADER).or_insert(value);
        }
        Ok(headers)
    }

    async fn send(
        &self,
        url: &Url,
        body: Bytes,
        headers: HeaderMap,
        timeout: Duration,
    ) -> Result<Response, ModelError> {
        let request = || {
            self.client
                .post(url.clone())
                .headers(headers.clone())
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .body(body.clone())
        };
        let response = self.send_authorized(&request, timeout).await?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response, &self.origin).await) }
    }

    /// Sends a request, with an access token if there are credentials. Returns a response with any status, before its
    /// body is read. A token that is refused is replaced once.
    async fn send_authorized(
        &self,
        request: &(dyn Fn() -> RequestBuilder + Send + Sync),
        timeout: Duration,
    ) -> Result<Response, ModelError> {
        let Some(credentials) = &self.origin.credentials else {
            return respond(request(), timeout, &self.origin).await;
        };
        let token = credentials.token(&self.client, &self.origin).await?;
        let authorized = request().header(AUTHORIZATION, key_header("Bearer ", &token, &self.origin)?);
        let response = respond(authorized, timeout, &self.origin).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        // The token was withdrawn before it expired.
        credentials.forget(&token);
        let token = credentials.token(&self.client, &self.origin).await?;
        let authorized = request().header(AUTHORIZATION, key_header("Bearer ", &token, &self.origin)?);
        respond(authorized, timeout, &self.origin).await
    }

    /// Returns the HTTP options of a request.
    pub(crate) fn options(&self, config: &GenerateContentConfig) -> Result<HttpOptions, ModelError> {
        let options = config.http_options().map_err(|reason| self.origin.error(ModelErrorKind::BadRequest, reason))?;
        Ok(options.unwrap_or_default())
    }

    /// Reads a body to the end.
    pub(crate) async fn read_body(&self, response: Response) -> Result<Bytes, ModelError> {
        read_limited(response, MAX_BODY_BYTES, &self.origin).await
    }

    /// Returns the bytes of an event stream.
    pub(crate) fn event_stream(
        &self,
        response: Response,
    ) -> Result<impl Stream<Item = Result<Bytes, ModelError>> + Send + use<>, ModelError> {
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !media_type.is_empty() && !media_type.starts_with("text/event-stream") {
            return Err(self.origin.bad_response(format!("expected an event stream, got {media_type}")));
        }
        Ok(body_stream(response, self.origin.clone()))
    }
}

/// Sends a request. Returns a response with a success status, before its body is read.
pub(crate) async fn send(
    request: RequestBuilder,
    timeout: Duration,
    origin: &Arc<Origin>,
) -> Result<Response, ModelError> {
    let response = respond(request, timeout, origin).await?;
    if response.status().is_success() { Ok(response) } else { Err(refusal(response, origin).await) }
}

/// Sends a request. Returns a response with any status, before its body is read.
async fn respond(request: RequestBuilder, timeout: Duration, origin: &Origin) -> Result<Response, ModelError> {
    first_byte(request.send(), timeout, origin).await?.map_err(|error| unreachable(error, origin))
}

/// Returns the error of a request without a response.
pub(crate) fn unreachable(error: reqwest::Error, origin: &Origin) -> ModelError {
    let address = error.url().map(address).unwrap_or_default();
    let (provider, remedy) = (origin.provider_name(), origin.unreachable_remedy());
    let message = format!("cannot reach {provider} at {address}: {}{remedy}", chain(&error.without_url()));
    origin.error(ModelErrorKind::Network, message)
}

/// Returns the host of a URL, with its port unless that is the default one.
fn address(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Returns the error of a response whose body has no end.
pub(crate) fn body_error(error: reqwest::Error, origin: &Origin) -> ModelError {
    let message = format!("the connection to {} broke: {}", origin.provider_name(), chain(&error.without_url()));
    origin.error(ModelErrorKind::Network, message)
}

/// Returns the error of a response with an error status.
async fn refusal(response: Response, origin: &Arc<Origin>) -> ModelError {
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers());
    let (body, _) = collect(body_stream(response, origin.clone()), MAX_ERROR_BODY_BYTES).await;
    origin.status_error(status, &body, retry_after)
}

/// Reads a body of at most `max_bytes` bytes to the end.
pub(crate) async fn read_limited(
    response: Response,
    max_bytes: usize,
    origin: &Arc<Origin>,
) -> Result<Bytes, ModelError> {
    match collect(body_stream(response, origin.clone()), max_bytes).await {
        (body, BodyEnd::Complete) => Ok(body),
        (_, BodyEnd::TooLong) => Err(origin.bad_response(format!("it is longer than {max_bytes} bytes"))),
        (_, BodyEnd::Failed(error)) => Err(error),
    }
}

fn secret_headers(headers: &BTreeMap<String, Secret>, origin: &Origin) -> Result<HeaderMap, ModelError> {
    let header = |(name, value): (&String, &Secret)| {
        let name = HeaderName::try_from(name).map_err(|_| {
            let message = format!("the header `{name}` of {} cannot be sent", origin.provider_name());
            origin.error(ModelErrorKind::BadRequest, message)
        })?;
        Ok((name, key_header("", value, origin)?))
    };
    headers.iter().map(header).collect()
}

/// Returns the value of a header that holds a key, marked as sensitive so that it is not logged.
fn key_header(prefix: &str, key: &Secret, origin: &Origin) -> Result<HeaderValue, ModelError> {
    let mut value = HeaderValue::try_from(format!("{prefix}{}", key.expose())).map_err(|_| {
        let message = format!("the key in {} has invalid characters", origin.service.key_variables());
        origin.error(ModelErrorKind::Auth, message)
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Waits for a response to begin, for at most `timeout`.
pub(crate) async fn first_byte<T>(
    response: impl Future<Output = T>,
    timeout: Duration,
    origin: &Origin,
) -> Result<T, ModelError> {
    tokio::time::timeout(timeout, response).await.map_err(|_| {
        let message = format!("{} did not answer within {} s", origin.provider_name(), timeout.as_secs_f64());
        origin.error(ModelErrorKind::Timeout, message)
    })
}

/// Returns the bytes of a body. An error is the last item.
fn body_stream(
    response: Response,
    origin: Arc<Origin>,
) -> impl Stream<Item = Result<Bytes, ModelError>> + Send + use<> {
    let error_origin = origin.clone();
    let bytes = response.bytes_stream().map(move |chunk| chunk.map_err(|error| body_error(error, &error_origin)));
    with_idle_timeout(Box::pin(bytes), origin)
}

type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, ModelError>> + Send>>;

/// Ends a stream with an error if no chunk arrives for [`IDLE_TIMEOUT`].
fn with_idle_timeout(
    bytes: ByteStream,
    origin: Arc<Origin>,
) -> impl Stream<Item = Result<Bytes, ModelError>> + Send + use<> {
    stream::unfold(Some((bytes, origin)), |state| async move {
        let (mut bytes, origin) = state?;
        match tokio::time::timeout(IDLE_TIMEOUT, bytes.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(chunk))) => Some((Ok(chunk), Some((bytes, origin)))),
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Err(_) => {
                let seconds = IDLE_TIMEOUT.as_secs();
                let message = format!("{} sent nothing for {seconds} s while it was answering", origin.provider_name());
                Some((Err(origin.error(ModelErrorKind::Timeout, message)), None))
            }
        }
    })
}

enum BodyEnd {
    Complete,
    TooLong,
    Failed(ModelError),
}

/// Reads at most `max_bytes` bytes.
async fn collect(bytes: impl Stream<Item = Result<Bytes, ModelError>>, max_bytes: usize) -> (Bytes, BodyEnd) {
    let mut bytes = std::pin::pin!(bytes);
    let mut body = BytesMut::new();
    while let Some(chunk) = bytes.next().await {
        match chunk {
            Ok(chunk) if body.len() + chunk.len() <= max_bytes => body.extend_from_slice(&chunk),
            Ok(mut chunk) => {
                chunk.truncate(max_bytes - body.len());
                body.extend_from_slice(&chunk);
                return (body.freeze(), BodyEnd::TooLong);
            }
            Err(error) => return (body.freeze(), BodyEnd::Failed(error)),
        }
    }
    (body.freeze(), BodyEnd::Complete)
}

/// Returns an error with its causes in one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests;
