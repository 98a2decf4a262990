//! HTTP client of one component under its grants, with its secrets and its connection pool. Dropped with the
//! revision.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hatchery_core::{CallContext, TraceParent};
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{sleep, sleep_until};
use wasmtime_wasi_http::{RequestOptions, WasiBody};

use super::body::{Download, Progress, ResponseBody, Upload};
use super::connect::{Connector, connector};
use super::error::{HttpError, ReadTimeout};
use super::recorded::RecordedHttp;
use crate::policy::{Denial, Grants, ResolvedSecret, Target};
use crate::runtime::limits::{Limit, Limits};
use crate::runtime::store::call_usage::CallUsage;

/// Maximum idle time of a connection.
const IDLE: Duration = Duration::from_secs(30);

/// Idle connections per host.
const MAX_IDLE_PER_HOST: usize = 8;

/// Maximum size in bytes of an HTTP/1 response that are buffered before the guest reads them, and of the headers of
/// any response.
const MAX_BUFFER: usize = 256 << 10;

/// Maximum size in bytes of an HTTP/2 response that are buffered before the guest reads them.
const STREAM_WINDOW: u32 = 512 << 10;

/// Maximum number of buffered bytes of all HTTP/2 responses on one connection.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// The header by which a service recognizes repeated requests.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Bytes that a header adds to its name and value: colon, space and line end.
const HEADER_FRAME: usize = 4;

/// The headers that the host may add to a request.
pub(super) struct RequestContext<'a> {
    /// The context of the call that sends it, if it may get an idempotency key.
    pub(super) caller: Option<&'a CallContext>,
    /// The header `traceparent`, if the trace is exported.
    pub(super) trace_parent: Option<String>,
}

/// Sends the requests of one component.
pub(crate) struct Egress {
    component: Arc<str>,
    grants: Arc<Grants>,
    pub(super) limits: Limits,
    secrets: Vec<ResolvedSecret>,
    /// Replaces the network, in tests.
    recorded: Option<RecordedHttp>,
    /// Created for the first request, because most components send none.
    client: OnceLock<Client<Connector, Upload>>,
}

impl Egress {
    /// Reads the secrets of the component. They are not read, and so cannot leak, if responses are `recorded`.
    ///
    /// # Errors
    /// If a secret cannot be read; the message names it.
    pub(crate) fn new(
        component: Arc<str>,
        grants: Arc<Grants>,
        limits: Limits,
        recorded: Option<RecordedHttp>,
    ) -> Result<Self, String> {
        let secrets = match recorded {
            Some(_) => Vec::new(),
            None => grants.secrets.iter().map(|secret| secret.read(&grants)).collect::<Result<_, _>>()?,
        };
        Ok(Self { component, grants, limits, secrets, recorded, client: OnceLock::new() })
    }

    /// Returns true if the component may send requests to any host.
    pub(super) fn has_network(&self) -> bool {
        !self.grants.network.is_empty()
    }

    /// Sends a request if the grants and limits allow it, and waits for the head of its response.
    pub(super) async fn send(
        &self,
        usage: &Arc<CallUsage>,
        request: Request<WasiBody>,
        options: RequestOptions,
        context: RequestContext<'_>,
    ) -> Result<Response<ResponseBody>, HttpError> {
        let guard = usage.begin_request()?;
        let (mut parts, body) = request.into_parts();
        let target = self.admit(&parts)?;
        // Counted before secrets are added: the remaining bytes must not reveal their length.
        usage.count_bytes(
            headers_len(&parts.headers) + parts.uri.path().len() + parts.uri.query().map_or(0, str::len),
        )?;
        if let Some(recorded) = &self.recorded {
            return recorded.answer(&parts);
        }
        if let Some(parent) = context.trace_parent
            && let Ok(parent) = HeaderValue::try_from(parent)
        {
            parts.headers.entry(TraceParent::HEADER).or_insert(parent);
        }
        if let Some(key) = context.caller.and_then(|cx| self.idempotency_key(&target, &parts, cx)) {
            parts.headers.insert(IDEMPOTENCY_KEY, key);
        }
        for secret in &self.secrets {
            secret.apply(&target, &mut parts.headers);
        }
        let agent = HeaderValue::from_static(concat!("hatchery/", env!("CARGO_PKG_VERSION")));
        parts.headers.entry(USER_AGENT).or_insert(agent);
        let progress = Progress::new();
        let upload = Upload { body, usage: usage.clone(), progress: progress.clone() };
        let response = self.exchange(Request::from_parts(parts, upload), &options, &progress).await?;
        usage.count_bytes(headers_len(response.headers()))?;
        let time = self.limits.between_bytes_timeout;
        let timeout = ReadTimeout::new(&self.limits, Limit::BetweenBytesTimeout, time, options.between_bytes_timeout);
        let limits = self.limits.clone();
        Ok(response.map(|body| Download::new(body, guard, usage.clone(), limits, timeout).boxed_unsync()))
    }

    /// Returns true if the component is granted idempotency keys for requests to any host.
    pub(super) fn has_idempotency_keys(&self) -> bool {
        !self.grants.idempotency_keys.is_empty()
    }

    /// Returns the idempotency key of a request. `None` if it needs none or has one, and without a grant.
    fn idempotency_key(&self, target: &Target, parts: &Parts, cx: &CallContext) -> Option<HeaderValue> {
        let is_granted = self.grants.idempotency_keys.iter().any(|pattern| pattern.allows(target));
        if !is_granted || parts.method.is_safe() || parts.headers.contains_key(IDEMPOTENCY_KEY) {
            return None;
        }
        HeaderValue::try_from(cx.next_request_key(parts.method.as_str(), &parts.uri.to_string())?).ok()
    }

    /// Checks the method, the URL and the grants `network` and `private_network` by name.
    fn admit(&self, parts: &Parts) -> Result<Target, HttpError> {
        // CONNECT opens a tunnel, and TRACE echoes secrets.
        if parts.method == Method::CONNECT || parts.method == Method::TRACE {
            return Err(HttpError::Method);
        }
        let target = Target::from_uri(&parts.uri).ok_or(HttpError::Url)?;
        if let Some(pattern) = self.grants.network.iter().find(|pattern| pattern.allows(&target)) {
            self.grants.uses.count("network", &pattern.to_string());
            return Ok(target);
        }
        self.grants.uses.count_refusal("network");
        let mut grant = format!("network: [\"{target}\"]");
        let is_granted = |address| self.grants.private_network.iter().any(|entry| entry.allows(&target, address));
        if target.is_known_private() && !is_granted(target.address) {
            grant.push_str(&format!("\n      private_network: [\"{}\"]", target.host_and_port()));
        }
        let scheme = if target.is_plain { "" } else { "https://" };
        Err(Denial::new(&self.component, format!("send requests to `{scheme}{target}`"), grant).into())
    }

    async fn exchange(
        &self,
        mut request: Request<Upload>,
        options: &RequestOptions,
        progress: &Progress,
    ) -> Result<Response<Incoming>, HttpError> {
        let client = self.client()?;
        let mut connection = capture_connection(&mut request);
        let mut response_future = std::pin::pin!(client.request(request));
        let to_error = |error: ClientError| HttpError::from_client(&error);
        let guest_timeout = options.connect_timeout.unwrap_or(Duration::MAX);
        tokio::select! {
            biased;
            response = &mut response_future => return response.map_err(to_error),
            _ = connection.wait_for_connection_metadata() => progress.touch(),
            () = sleep(guest_timeout) => return Err(HttpError::GuestConnectTimeout),
        }
        let time = self.limits.first_byte_timeout;
        let timeout = ReadTimeout::new(&self.limits, Limit::FirstByteTimeout, time, options.first_byte_timeout);
        loop {
            let last_sent = progress.last();
            tokio::select! {
                biased;
                response = &mut response_future => return response.map_err(to_error),
                () = sleep_until(last_sent + timeout.after) => {
                    if progress.last() == last_sent {
                        return Err(timeout.error);
                    }
                }
            }
        }
    }

    fn client(&self) -> Result<&Client<Connector, Upload>, HttpError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let connector = connector(self.component.clone(), self.grants.clone(), &self.limits)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .http1_max_buf_size(MAX_BUFFER)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(MAX_BUFFER as u32)
            .build(connector);
        Ok(self.client.get_or_init(|| client))
    }
}

/// Returns the bytes of headers in HTTP/1 form.
fn headers_len(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER_FRAME).sum()
}
