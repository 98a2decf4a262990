//! Outgoing HTTP of guests (`wasi:http`, and `http` of the contract): the host checks, counts and sends each request,
//! or refuses it.
//!
//! A request passes, in this order: the counters of its call, the grant `network` by name, `idempotency_keys`,
//! `secrets`, and, when a connection is made, `private_network` by address. Connections are reused by later requests of
//! the same component under the same grants. A request ends with its call.
//!
//! Non-goals: redirects are not followed, nothing is decompressed, no proxy is used. A request is sent as the guest
//! made it, and a response arrives as it was received. Guests have no sockets.
//!
//! In `wasi:http`, errors of the policy and of limits reach the guest as `internal-error` with their text, such as
//! `DENIED: component …`. That is its only error with a text that every language shows; `HTTP-request-denied` carries
//! none.

mod body;
mod buffered;
mod connect;
mod egress;
mod error;
mod guard;
mod recorded;

use std::sync::Arc;

use hatchery_core::{CallContext, Invocation, Span, SpanContext, SpanOperation};
use http::{Request, Response};
use http_body_util::BodyExt;
use tracing::Instrument;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceTable};
use wasmtime_wasi_http::p2::add_only_http_to_linker_async;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView};

use body::ResponseBody;
pub(crate) use buffered::{BufferedRequest, BufferedResponse};
pub(crate) use egress::Egress;
use egress::RequestContext;
pub(crate) use error::HttpError;
pub use recorded::{RecordedHttp, RecordedResponse};

use crate::guest_log::GuestLog;
use crate::runtime::limits::MAX_HEADERS;
use crate::runtime::store::call_usage::CallUsage;
use crate::runtime::store::{CallOrigin, HostState};

/// Adds `wasi:http` to the linker.
///
/// An interrupted body is an `error` of `wasi:io`, which the functions of wasmtime-wasi describe badly: one shows the
/// backtrace of the host if backtraces are enabled, another does not support errors of bodies. The functions here
/// replace them.
pub(crate) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    add_only_http_to_linker_async(linker)?;
    linker.allow_shadowing(true);
    linker.instance("wasi:io/error@0.2.12")?.func_wrap("[method]error.to-debug-string", debug_string)?;
    linker.instance("wasi:http/types@0.2.12")?.func_wrap("http-error-code", error_code)?;
    guard::link(linker)?;
    linker.allow_shadowing(false);
    Ok(())
}

fn debug_string(
    mut store: StoreContextMut<'_, HostState>,
    (error,): (Resource<wasmtime::Error>,),
) -> wasmtime::Result<(String,)> {
    let error = store.data_mut().http().table.get(&error)?;
    Ok((format!("{error:#}"),))
}

fn error_code(
    mut store: StoreContextMut<'_, HostState>,
    (error,): (Resource<wasmtime::Error>,),
) -> wasmtime::Result<(Option<ErrorCode>,)> {
    let error = store.data_mut().http().table.get(&error)?;
    Ok((error.downcast_ref().map(|error: &Error| match error {
        Error::ConnectionReadTimeout => ErrorCode::ConnectionReadTimeout,
        Error::InternalError(text) => ErrorCode::InternalError(text.clone()),
        other => ErrorCode::InternalError(Some(other.to_string())),
    }),))
}

/// Maximum size in bytes of a request's body that the host buffers before they are sent.
const MAX_UNSENT: usize = 64 << 10;

/// The HTTP client of one call.
pub(crate) struct Http {
    ctx: WasiHttpCtx,
    sender: RequestSender,
}

impl Http {
    pub(crate) fn new(egress: Arc<Egress>, origin: &CallOrigin, log: GuestLog, usage: Arc<CallUsage>) -> Self {
        let invocation = origin.context().map(|cx| cx.invocation.clone());
        let is_describing = matches!(origin, CallOrigin::Describe);
        let span = origin.context().map(CallContext::span).cloned().unwrap_or_default();
        let caller = origin.context().filter(|_| egress.has_idempotency_keys()).cloned();
        let sender = RequestSender { egress, usage, log, invocation, caller, span, is_describing };
        let mut ctx = WasiHttpCtx::new();
        ctx.set_field_size_limit(MAX_HEADERS);
        Self { ctx, sender }
    }

    /// Drops the run of the call, before the instance is pooled.
    pub(crate) fn drop_invocation(&mut self) {
        self.sender.invocation = None;
        self.sender.caller = None;
        self.sender.span = SpanContext::default();
    }

    /// Returns true if requests may be sent to any host.
    pub(crate) fn can_send(&self) -> bool {
        !self.sender.is_describing && self.sender.egress.has_network()
    }

    /// Returns the sender of the call's requests.
    pub(crate) fn sender(&self) -> RequestSender {
        self.sender.clone()
    }

    pub(crate) fn view<'a>(&'a mut self, table: &'a mut ResourceTable) -> WasiHttpCtxView<'a> {
        WasiHttpCtxView { hooks: &mut self.sender, table, ctx: &mut self.ctx }
    }
}

/// Sends the requests of one call under the policy.
#[derive(Clone)]
pub(crate) struct RequestSender {
    egress: Arc<Egress>,
    usage: Arc<CallUsage>,
    log: GuestLog,
    /// The run of the call; `None` outside of runs.
    invocation: Option<Arc<Invocation>>,
    /// The context of the call, if its requests may get idempotency keys.
    caller: Option<CallContext>,
    /// Parent of the spans of the requests.
    span: SpanContext,
    /// True while a component describes itself: loading must not depend on a network.
    is_describing: bool,
}

impl RequestSender {
    /// Sends a request and waits for the head of its response.
    async fn send(
        &self,
        request: Request<WasiBody>,
        options: RequestOptions,
    ) -> Result<Response<ResponseBody>, HttpError> {
        if self.is_describing {
            return Err(HttpError::InDescribe);
        }
        if let Some(invocation) = &self.invocation {
            invocation.ensure_turn().await.map_err(|error| HttpError::TurnLost(error.to_string()))?;
        }
        let mut span = self.start_span(&request);
        let context = RequestContext { caller: self.caller.as_ref(), trace_parent: span.context().header() };
        let result = self.egress.send(&self.usage, request, options, context).await;
        match &result {
            Ok(response) => {
                span.record(|data| data.set("http.response.status_code", u64::from(response.status().as_u16())));
            }
            Err(error) => span.fail(error.code(), || error.to_string()),
        }
        span.finish();
        match &result {
            Err(HttpError::Denied(denial)) => {
                denial.report(&self.log);
            }
            // Other limits are reported where they are counted.
            Err(HttpError::Limit(exceeded)) if exceeded.limit.is_http_timeout() => {
                self.log.report_limit(exceeded.limit.key().unwrap_or("fixed"), exceeded);
            }
            _ => {}
        }
        result
    }

    /// Begins the span of a request, which ends with the head of the response. Its URL may contain secrets, so it is
    /// omitted.
    fn start_span(&self, request: &Request<WasiBody>) -> Span {
        let host = request.uri().host().unwrap_or_default();
        let mut span = self.span.start(SpanOperation::Http, format_args!("{} {host}", request.method()));
        span.record(|data| {
            data.set("http.request.method", request.method().to_string());
            data.set("server.address", host.to_owned());
            data.set_some("server.port", request.uri().port_u16().map(u64::from));
        });
        span
    }
}

/// Work that remains after a response; there is none.
type RemainingWork = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for RequestSender {
    fn p2_outgoing_body_buffer_chunks(&mut self) -> usize {
        1
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        MAX_UNSENT
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: RemainingWork,
    ) -> Box<dyn Future<Output = Result<(Response<WasiBody>, RemainingWork), Error>> + Send> {
        let sender = self.clone();
        let response = async move {
            let response = sender.send(request, options.unwrap_or_default()).await?;
            let response = response.map(|body| body.map_err(Error::from).boxed_unsync());
            Ok((response, Box::new(async { Ok(()) }) as RemainingWork))
        };
        Box::new(response.in_current_span())
    }
}
