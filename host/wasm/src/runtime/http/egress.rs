//! The way out of one component under its grants: its secrets, its client, its connections. They go when it goes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

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

use super::body::{Download, Progress, Upload};
use super::connect::{Connector, connector};
use super::fault::{Fault, Patience};
use super::recorded::RecordedHttp;
use crate::policy::{Denial, Grants, ResolvedSecret, Target};
use crate::runtime::limits::{Limit, Limits};
use crate::runtime::store::tally::Tally;

/// How long a connection that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(30);

/// Connections to one host that are kept though nobody uses them.
const MOST_IDLE: usize = 8;

/// Most bytes of an HTTP/1 response that are taken before the guest reads them, and of the head of any response.
const MAX_BUFFER: usize = 256 << 10;

/// Most bytes of an HTTP/2 response that are taken before the guest reads them.
const STREAM_WINDOW: u32 = 512 << 10;

/// The same for all responses on one connection.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Bytes that a header adds to its name and value: the colon, a space and the line's end.
const HEADER_FRAME: usize = 4;

/// What a component needs to send requests.
pub(crate) struct Egress {
    component: Arc<str>,
    grants: Arc<Grants>,
    pub(super) limits: Limits,
    secrets: Vec<ResolvedSecret>,
    /// What answers in place of the network, in tests.
    recorded: Option<RecordedHttp>,
    /// Made for the first request: most components send none.
    client: OnceLock<Client<Connector, Upload>>,
}

impl Egress {
    /// Reads the component's secrets, which nobody gets when responses are `recorded`.
    ///
    /// # Errors
    /// When one cannot be had; the message names it.
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

    /// True if there is any host that the component may send requests to.
    pub(super) fn has_network(&self) -> bool {
        !self.grants.network.is_empty()
    }

    /// Sends a request if that is allowed, and waits until its response begins.
    pub(super) async fn send(
        &self,
        tally: &Arc<Tally>,
        request: Request<WasiBody>,
        options: RequestOptions,
    ) -> Result<Response<WasiBody>, Fault> {
        let open = tally.begin()?;
        let (mut parts, body) = request.into_parts();
        let target = self.admit(&parts)?;
        // Before the secrets are there: how many bytes are left must not tell how long they are.
        tally.bytes(head(&parts.headers) + parts.uri.path().len() + parts.uri.query().map_or(0, str::len))?;
        if let Some(recorded) = &self.recorded {
            return recorded.answer(&parts);
        }
        for secret in &self.secrets {
            secret.place(&target, &mut parts.headers);
        }
        let agent = HeaderValue::from_static(concat!("hatchery/", env!("CARGO_PKG_VERSION")));
        parts.headers.entry(USER_AGENT).or_insert(agent);
        let progress = Progress::new();
        let upload = Upload { body, tally: tally.clone(), progress: progress.clone() };
        let response = self.exchange(Request::from_parts(parts, upload), &options, &progress).await?;
        tally.bytes(head(response.headers()))?;
        let time = self.limits.between_bytes_timeout;
        let patience = Patience::new(&self.limits, Limit::BetweenBytesTimeout, time, options.between_bytes_timeout);
        let limits = self.limits.clone();
        Ok(response.map(|body| Download::new(body, open, tally.clone(), limits, patience).boxed_unsync()))
    }

    /// Asks the policy about a request, as far as its name goes.
    fn admit(&self, parts: &Parts) -> Result<Target, Fault> {
        // CONNECT opens a tunnel, and TRACE sends back secrets.
        if parts.method == Method::CONNECT || parts.method == Method::TRACE {
            return Err(Fault::Method);
        }
        let target = Target::of(&parts.uri).ok_or(Fault::Url)?;
        if self.grants.network.iter().any(|pattern| pattern.allows(&target)) {
            return Ok(target);
        }
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
    ) -> Result<Response<Incoming>, Fault> {
        let client = self.client()?;
        let mut connection = capture_connection(&mut request);
        let mut answered = std::pin::pin!(client.request(request));
        let failed = |error: ClientError| Fault::of(&error);
        let own_connect = options.connect_timeout.unwrap_or(Duration::MAX);
        tokio::select! {
            biased;
            response = &mut answered => return response.map_err(failed),
            _ = connection.wait_for_connection_metadata() => progress.note(),
            () = sleep(own_connect) => return Err(Fault::OwnConnectTimeout),
        }
        let time = self.limits.first_byte_timeout;
        let patience = Patience::new(&self.limits, Limit::FirstByteTimeout, time, options.first_byte_timeout);
        loop {
            let sent = progress.last();
            tokio::select! {
                biased;
                response = &mut answered => return response.map_err(failed),
                () = sleep_until(sent + patience.time) => {
                    if progress.last() == sent {
                        return Err(patience.fault);
                    }
                }
            }
        }
    }

    fn client(&self) -> Result<&Client<Connector, Upload>, Fault> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let connector = connector(self.component.clone(), self.grants.clone(), &self.limits)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MOST_IDLE)
            .http1_max_buf_size(MAX_BUFFER)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(MAX_BUFFER as u32)
            .build(connector);
        Ok(self.client.get_or_init(|| client))
    }
}

/// Bytes of headers.
fn head(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER_FRAME).sum()
}
