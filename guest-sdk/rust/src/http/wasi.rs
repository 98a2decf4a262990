//! HTTP transport through `wasi:http`.
//!
//! `wasi:http` 0.2 predates asynchronous functions: waiting blocks the whole instance. To run requests concurrently, a
//! future that must wait first lets the others start their requests, and then waits for all of them at once.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest,
    RequestOptions, Scheme, http_error_code,
};
use wasip2::io::poll::{self, Pollable};
use wasip2::io::streams::{InputStream, StreamError};

use super::{Call, Reply, from_host_text, http_error};
use crate::error::Error;

/// Number of bytes to read at a time.
const CHUNK_SIZE: u64 = 64 * 1024;

pub(super) async fn exchange(call: Call<'_>) -> Result<Reply, Error> {
    let request = outgoing_request(&call)?;
    let body = if call.body.is_empty() {
        None
    } else {
        Some(request.body().map_err(|()| http_error("the request has a body already"))?)
    };
    let pending = outgoing_handler::handle(request, options(call.timeout)).map_err(from_error_code)?;
    if let Some(body) = body {
        upload(body, call.body).await;
    }
    let response = response(&pending).await?;
    let (status, headers) = (response.status(), response.headers().entries());
    let body = response.consume().map_err(|()| http_error("the response has no body"))?;
    let stream = body.stream().map_err(|()| http_error("the response's body is being read"))?;
    Ok(Reply { status, headers, body: Body { stream, _body: body, _response: response } })
}

fn outgoing_request(call: &Call<'_>) -> Result<OutgoingRequest, Error> {
    let headers = Fields::new();
    let append = |name: &str, value: &[u8]| {
        headers.append(name, value).map_err(|error| http_error(format!("the header `{name}` cannot be set: {error}")))
    };
    for (name, value) in call.headers {
        append(name, value)?;
    }
    if !call.body.is_empty() {
        append("content-length", call.body.len().to_string().as_bytes())?;
    }
    let request = OutgoingRequest::new(headers);
    let scheme = if call.url.is_https { Scheme::Https } else { Scheme::Http };
    let wrong = |what: &str| http_error(format!("`{}` is not a URL: its {what} is not one", call.url));
    request.set_method(&method(call.method)).map_err(|()| http_error(format!("`{}` is not a method", call.method)))?;
    request.set_scheme(Some(&scheme)).map_err(|()| wrong("scheme"))?;
    request.set_authority(Some(&call.url.authority)).map_err(|()| wrong("host"))?;
    request.set_path_with_query(Some(&call.url.path_and_query())).map_err(|()| wrong("path"))?;
    Ok(request)
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        other => Method::Other(other.into()),
    }
}

fn options(timeout: Option<Duration>) -> Option<RequestOptions> {
    let nanoseconds = u64::try_from(timeout?.as_nanos()).unwrap_or(u64::MAX);
    let options = RequestOptions::new();
    // A host without these timeouts uses its own.
    let _ = options.set_connect_timeout(Some(nanoseconds));
    let _ = options.set_first_byte_timeout(Some(nanoseconds));
    let _ = options.set_between_bytes_timeout(Some(nanoseconds));
    Some(options)
}

/// Sends a body until it is complete or refused. In the latter case the response reports the reason.
async fn upload(body: OutgoingBody, mut rest: &[u8]) {
    let Ok(stream) = body.write() else { return };
    while !rest.is_empty() {
        let Ok(room) = stream.check_write() else { return };
        let (chunk, after) = rest.split_at(usize::try_from(room).unwrap_or(usize::MAX).min(rest.len()));
        if chunk.is_empty() {
            ready(stream.subscribe()).await;
            continue;
        }
        if stream.write(chunk).is_err() {
            return;
        }
        rest = after;
    }
    if stream.flush().is_err() {
        return;
    }
    while let Ok(0) = stream.check_write() {
        ready(stream.subscribe()).await;
    }
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
}

async fn response(pending: &FutureIncomingResponse) -> Result<IncomingResponse, Error> {
    loop {
        match pending.get() {
            Some(Ok(Ok(response))) => return Ok(response),
            Some(Ok(Err(code))) => return Err(from_error_code(code)),
            Some(Err(())) => return Err(http_error("the response was taken already")),
            None => ready(pending.subscribe()).await,
        }
    }
}

/// The body of a response. Fields are dropped in this order.
pub(super) struct Body {
    stream: InputStream,
    _body: IncomingBody,
    _response: IncomingResponse,
}

impl Body {
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            match self.stream.read(CHUNK_SIZE) {
                Ok(chunk) if chunk.is_empty() => ready(self.stream.subscribe()).await,
                Ok(chunk) => return Ok(Some(chunk)),
                Err(StreamError::Closed) => return Ok(None),
                Err(StreamError::LastOperationFailed(error)) => {
                    return Err(match http_error_code(&error) {
                        Some(code) => from_error_code(code),
                        None => from_host_text(&error.to_debug_string()),
                    });
                }
            }
        }
    }
}

fn from_error_code(code: ErrorCode) -> Error {
    match code {
        ErrorCode::InternalError(Some(text)) => from_host_text(&text),
        ErrorCode::HttpRequestDenied => Error::new("DENIED", "the host denies this request"),
        ErrorCode::DnsError(error) => {
            http_error(format!("the name of the host has no address: {}", error.rcode.unwrap_or_default()))
        }
        ErrorCode::ConnectionRefused => http_error("the host refuses connections at this port"),
        ErrorCode::ConnectionTimeout => http_error("the host cannot be reached in time"),
        ErrorCode::ConnectionReadTimeout => http_error("the host does not answer in time"),
        ErrorCode::TlsCertificateError => http_error("the host's certificate is not trusted"),
        ErrorCode::HttpRequestUriInvalid => http_error("the URL cannot be used"),
        ErrorCode::HttpRequestMethodInvalid => http_error("the method cannot be used"),
        code => http_error(format!("the request failed: {code:?}")),
    }
}

thread_local! {
    /// The pollables that futures of this instance wait for.
    static WAITING: RefCell<Vec<(Rc<Pollable>, Waker)>> = const { RefCell::new(Vec::new()) };
}

/// Waits for `pollable`.
async fn ready(pollable: Pollable) {
    ReadyFuture { pollable: Rc::new(pollable), is_waiting: false }.await;
}

struct ReadyFuture {
    pollable: Rc<Pollable>,
    is_waiting: bool,
}

impl Future for ReadyFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.pollable.ready() {
            return Poll::Ready(());
        }
        self.unregister();
        WAITING.with_borrow_mut(|waiting| waiting.push((self.pollable.clone(), cx.waker().clone())));
        if std::mem::replace(&mut self.is_waiting, true) {
            // All other futures have been polled.
            wait_for_any();
        }
        if self.pollable.ready() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Blocks the instance until a pollable is ready, and wakes the futures that wait for it.
fn wait_for_any() {
    WAITING.with_borrow(|waiting| {
        let pollables: Vec<&Pollable> = waiting.iter().map(|(pollable, _)| &**pollable).collect();
        for index in poll::poll(&pollables) {
            if let Some((_, waker)) = waiting.get(index as usize) {
                waker.wake_by_ref();
            }
        }
    });
}

impl ReadyFuture {
    fn unregister(&self) {
        WAITING.with_borrow_mut(|waiting| waiting.retain(|(other, _)| !Rc::ptr_eq(other, &self.pollable)));
    }
}

impl Drop for ReadyFuture {
    fn drop(&mut self) {
        self.unregister();
    }
}
