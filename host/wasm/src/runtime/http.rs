//! Outgoing HTTP (`wasi:http`) of guests: the host checks, counts and sends each request, or refuses it.
//!
//! A request passes, in this order: the counters of its call, the grant `network` by name, `idempotency_keys`, `secrets`,
//! and, when a connection is made, `private_network` by address. Connections are reused by later requests of the same component
//! under the same grants. A request ends with its call.
//!
//! Non-goals: redirects are not followed, nothing is decompressed, no proxy is used. A request is sent as the guest
//! made it, and a response arrives as it was received. Guests have no sockets.
//!
//! Errors of the policy and of limits reach the guest as `internal-error` with their text, such as `DENIED: component
//! …`. That is the only error of `wasi:http` with a text that every language shows; `HTTP-request-denied` carries
//! none.

mod body;
mod connect;
mod egress;
mod error;
mod guard;
mod recorded;

use std::sync::Arc;

use hatchery_core::{CallContext, Invocation};
use http::{Request, Response};
use tracing::Instrument;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceTable};
use wasmtime_wasi_http::p2::add_only_http_to_linker_async;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView};

pub(crate) use egress::Egress;
use error::HttpFault;
pub use recorded::{RecordedHttp, RecordedResponse};

use crate::guest_log::GuestLog;
use crate::runtime::limits::MAX_HEADERS;
use crate::runtime::store::call_usage::CallUsage;
use crate::runtime::store::{Caller, HostState};

/// Adds `wasi:http` to the linker.
///
/// An interrupted body is an `error` of `wasi:io`, which the functions of wasmtime-wasi describe badly: one shows the
/// backtrace of the host if backtraces are enabled, and one does not know errors of bodies. The functions here
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

/// Most bytes of a request's body that the host buffers before they are sent.
const MAX_UNSENT: usize = 64 << 10;

/// The HTTP client of one call.
pub(crate) struct Http {
    ctx: WasiHttpCtx,
    hooks: Hooks,
}

struct Hooks {
    egress: Arc<Egress>,
    usage: Arc<CallUsage>,
    log: GuestLog,
    /// The run of the call; `None` outside of runs.
    invocation: Option<Arc<Invocation>>,
    /// The context of the call, if its requests may get idempotency keys.
    caller: Option<CallContext>,
    /// True while a component describes itself: loading must not depend on a network.
    is_describing: bool,
}

impl Http {
    pub(crate) fn new(egress: Arc<Egress>, caller: &Caller, log: GuestLog, usage: Arc<CallUsage>) -> Self {
        let invocation = caller.context().map(|cx| cx.invocation.clone());
        let is_describing = matches!(caller, Caller::Loader);
        let caller = caller.context().filter(|_| egress.has_idempotency_keys()).cloned();
        let hooks = Hooks { egress, usage, log, invocation, caller, is_describing };
        let mut ctx = WasiHttpCtx::new();
        ctx.set_field_size_limit(MAX_HEADERS);
        Self { ctx, hooks }
    }

    /// Drops the run of the call, before the instance is pooled.
    pub(crate) fn drop_invocation(&mut self) {
        self.hooks.invocation = None;
        self.hooks.caller = None;
    }

    /// Returns true if requests may be sent to any host.
    pub(crate) fn may_send(&self) -> bool {
        !self.hooks.is_describing && self.hooks.egress.has_network()
    }

    pub(crate) fn view<'a>(&'a mut self, table: &'a mut ResourceTable) -> WasiHttpCtxView<'a> {
        WasiHttpCtxView { hooks: &mut self.hooks, table, ctx: &mut self.ctx }
    }
}

/// Work that remains after a response; there is none.
type Rest = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for Hooks {
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
        _: Rest,
    ) -> Box<dyn Future<Output = Result<(Response<WasiBody>, Rest), Error>> + Send> {
        let (egress, usage, is_describing) = (self.egress.clone(), self.usage.clone(), self.is_describing);
        let (log, invocation, caller) = (self.log.clone(), self.invocation.clone(), self.caller.clone());
        let response = async move {
            if is_describing {
                return Err(HttpFault::Describing.into());
            }
            if let Some(invocation) = invocation {
                invocation.ensure_turn().await.map_err(|error| HttpFault::TurnLost(error.to_string()))?;
            }
            let result = egress.send(&usage, request, options.unwrap_or_default(), caller.as_ref()).await;
            if let Err(HttpFault::Denied(denial)) = &result {
                denial.report(&log);
            }
            let response = result?;
            Ok((response, Box::new(async { Ok(()) }) as Rest))
        };
        Box::new(response.in_current_span())
    }
}
