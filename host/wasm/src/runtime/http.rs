//! `wasi:http` for guests: each request is looked at, counted and sent by the host, or refused.
//!
//! A request passes, in this order: the counters of its call, `network` by name, `secrets`, and, when a connection is made,
//! `private_network` by address. Connections are kept for later requests of the same component under the same grants. A request ends with
//! its call.
//!
//! Redirects are not followed, nothing is decompressed, no proxy is used: what a guest asks for is what is sent, and what it gets is what
//! came. Guests have no sockets.
//!
//! What the policy or a limit refuses reaches the guest as `internal-error` with the text, such as `DENIED: component …`: that is the one
//! error of `wasi:http` with a text that every language shows. `HTTP-request-denied` would say less.

mod body;
mod connect;
mod egress;
mod fault;
mod guard;
mod recorded;

use std::sync::Arc;

use http::{Request, Response};
use tracing::Instrument;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceTable};
use wasmtime_wasi_http::p2::add_only_http_to_linker_async;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView};

pub(crate) use egress::Egress;
use fault::Fault;
pub use recorded::{RecordedHttp, RecordedResponse};

use crate::runtime::limits::HEADERS;
use crate::runtime::store::output::Output;
use crate::runtime::store::tally::Tally;
use crate::runtime::store::{Caller, HostState};

/// Adds `wasi:http` to what guests can import.
///
/// What breaks a body off is an `error` of `wasi:io`, which the usual functions describe badly: one shows the host's backtrace if that is
/// switched on, and one knows no errors of bodies. These take their place.
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

/// Most bytes that the host takes of a request's body before they are sent.
const MAX_UNSENT: usize = 64 << 10;

/// What one call has of HTTP.
pub(crate) struct Http {
    ctx: WasiHttpCtx,
    hooks: Hooks,
}

struct Hooks {
    egress: Arc<Egress>,
    tally: Arc<Tally>,
    /// Where the operator reads of what was refused.
    output: Output,
    /// True while a component describes itself: whether it loads must not hang on a network.
    is_describing: bool,
}

impl Http {
    pub(crate) fn new(egress: Arc<Egress>, caller: &Caller, output: Output, tally: Arc<Tally>) -> Self {
        let hooks = Hooks { egress, tally, output, is_describing: matches!(caller, Caller::Loader) };
        let mut ctx = WasiHttpCtx::new();
        ctx.set_field_size_limit(HEADERS);
        Self { ctx, hooks }
    }

    /// True if there is any host that requests may be sent to.
    pub(crate) fn may_send(&self) -> bool {
        !self.hooks.is_describing && self.hooks.egress.has_network()
    }

    pub(crate) fn view<'a>(&'a mut self, table: &'a mut ResourceTable) -> WasiHttpCtxView<'a> {
        WasiHttpCtxView { hooks: &mut self.hooks, table, ctx: &mut self.ctx }
    }
}

/// The end of an exchange that needs no further work.
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
        let (egress, tally, is_describing) = (self.egress.clone(), self.tally.clone(), self.is_describing);
        let output = self.output.clone();
        let sent = async move {
            if is_describing {
                return Err(Fault::Describing.into());
            }
            let sent = egress.send(&tally, request, options.unwrap_or_default()).await;
            if let Err(Fault::Denied(denial)) = &sent {
                denial.report(&output);
            }
            let response = sent?;
            Ok((response, Box::new(async { Ok(()) }) as Rest))
        };
        Box::new(sent.in_current_span())
    }
}
