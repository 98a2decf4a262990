//! Limits on the `wasi:http` objects of guests before anything is sent. A guest without network gets no body to write
//! into; headers, texts and bodies count as memory of the instance.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::p2::DynOutputStream;
use wasmtime_wasi_http::p2::HeaderResult;
use wasmtime_wasi_http::p2::bindings::http::types::{self, HeaderError, Method};
use wasmtime_wasi_http::p2::body::{HostOutgoingBody, HyperOutgoingBody};
use wasmtime_wasi_http::p2::types::{HostOutgoingRequest, HostOutgoingResponse};
use wasmtime_wasi_http::{FieldMap, WasiHttpView};

use crate::runtime::store::meter::header_size;
use crate::runtime::store::{HostState, file_stream};

/// Maximum length in bytes of the method of a request.
pub(super) const MAX_METHOD: usize = 64;

/// Maximum size in bytes of the path with its query, and of the authority.
pub(super) const MAX_PATH: usize = 16 << 10;

/// Replaces the functions by which a guest makes the host hold data.
pub(super) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut types = linker.instance("wasi:http/types@0.2.12")?;
    types.func_wrap("[method]outgoing-request.body", request_body)?;
    types.func_wrap("[method]outgoing-response.body", response_body)?;
    types.func_wrap("[method]outgoing-request.set-method", set_method)?;
    types.func_wrap("[method]outgoing-request.set-path-with-query", set_path)?;
    types.func_wrap("[method]outgoing-request.set-authority", set_authority)?;
    types.func_wrap("[method]outgoing-body.write", body_stream)?;
    types.func_wrap("[static]fields.from-list", fields_from_list)?;
    types.func_wrap("[method]fields.set", set_field)?;
    types.func_wrap("[method]fields.append", append_field)?;
    types.func_wrap("[method]fields.clone", clone_fields)?;
    Ok(())
}

type Store<'a> = StoreContextMut<'a, HostState>;

/// The WIT type `result`.
type UnitResult = (Result<(), ()>,);

/// Opens the body of a request. For a guest without network the stream is closed immediately, and sending the request
/// reports why.
fn request_body(
    mut store: Store<'_>,
    (request,): (Resource<HostOutgoingRequest>,),
) -> wasmtime::Result<(Result<Resource<HostOutgoingBody>, ()>,)> {
    let state = store.data_mut();
    let borrowed = Resource::<HostOutgoingRequest>::new_borrow(request.rep());
    let opened = types::HostOutgoingRequest::body(&mut state.http(), request)?;
    if opened.is_ok() && !state.can_send() {
        let request = state.resources().get_mut(&borrowed)?;
        request.body = Some(empty());
    }
    Ok((opened,))
}

/// Opens the body of a response. Components do not answer HTTP requests, so the stream is closed immediately.
fn response_body(
    mut store: Store<'_>,
    (response,): (Resource<HostOutgoingResponse>,),
) -> wasmtime::Result<(Result<Resource<HostOutgoingBody>, ()>,)> {
    let state = store.data_mut();
    let borrowed = Resource::<HostOutgoingResponse>::new_borrow(response.rep());
    let opened = types::HostOutgoingResponse::body(&mut state.http(), response)?;
    if opened.is_ok() {
        state.resources().get_mut(&borrowed)?.body = Some(empty());
    }
    Ok((opened,))
}

/// Returns an empty body. It replaces the body that a guest opened, which closes the guest's stream.
fn empty() -> HyperOutgoingBody {
    Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync()
}

fn set_method(
    mut store: Store<'_>,
    (request, method): (Resource<HostOutgoingRequest>, Method),
) -> wasmtime::Result<UnitResult> {
    if matches!(&method, Method::Other(name) if name.len() > MAX_METHOD) {
        return Ok((Err(()),));
    }
    Ok((types::HostOutgoingRequest::set_method(&mut store.data_mut().http(), request, method)?,))
}

fn set_path(
    mut store: Store<'_>,
    (request, path): (Resource<HostOutgoingRequest>, Option<String>),
) -> wasmtime::Result<UnitResult> {
    if is_too_long(&path) {
        return Ok((Err(()),));
    }
    Ok((types::HostOutgoingRequest::set_path_with_query(&mut store.data_mut().http(), request, path)?,))
}

fn set_authority(
    mut store: Store<'_>,
    (request, authority): (Resource<HostOutgoingRequest>, Option<String>),
) -> wasmtime::Result<UnitResult> {
    if is_too_long(&authority) {
        return Ok((Err(()),));
    }
    Ok((types::HostOutgoingRequest::set_authority(&mut store.data_mut().http(), request, authority)?,))
}

fn is_too_long(text: &Option<String>) -> bool {
    text.as_ref().is_some_and(|text| text.len() > MAX_PATH)
}

fn body_stream(
    mut store: Store<'_>,
    (body,): (Resource<HostOutgoingBody>,),
) -> wasmtime::Result<(Result<Resource<DynOutputStream>, ()>,)> {
    let state = store.data_mut();
    let opened = types::HostOutgoingBody::write(&mut state.http(), body)?;
    if let Ok(stream) = &opened {
        file_stream::count(state, stream)?;
    }
    Ok((opened,))
}

fn fields_from_list(
    mut store: Store<'_>,
    (entries,): (Vec<(String, Vec<u8>)>,),
) -> wasmtime::Result<(Result<Resource<FieldMap>, HeaderError>,)> {
    let size = entries.iter().map(|(name, value)| header_size(name, value)).sum();
    let state = store.data_mut();
    let fields = types::HostFields::from_list(&mut state.http(), entries);
    charge(state, fields, size)
}

fn set_field(
    mut store: Store<'_>,
    (fields, name, values): (Resource<FieldMap>, String, Vec<Vec<u8>>),
) -> wasmtime::Result<(Result<(), HeaderError>,)> {
    let size = values.iter().map(|value| header_size(&name, value)).sum();
    let state = store.data_mut();
    let set = types::HostFields::set(&mut state.http(), fields, name, values);
    charge(state, set, size)
}

fn append_field(
    mut store: Store<'_>,
    (fields, name, value): (Resource<FieldMap>, String, Vec<u8>),
) -> wasmtime::Result<(Result<(), HeaderError>,)> {
    let size = header_size(&name, &value);
    let state = store.data_mut();
    let appended = types::HostFields::append(&mut state.http(), fields, name, value);
    charge(state, appended, size)
}

fn clone_fields(mut store: Store<'_>, (fields,): (Resource<FieldMap>,)) -> wasmtime::Result<(Resource<FieldMap>,)> {
    let state = store.data_mut();
    let size =
        state.resources().get(&fields)?.iter().map(|(name, value)| header_size(name.as_str(), value.as_bytes())).sum();
    let copy = types::HostFields::clone(&mut state.http(), fields)?;
    state.charge_resources(size)?;
    Ok((copy,))
}

fn charge<T>(state: &mut HostState, result: HeaderResult<T>, size: u64) -> wasmtime::Result<(Result<T, HeaderError>,)> {
    match result {
        Ok(result) => {
            state.charge_resources(size)?;
            Ok((Ok(result),))
        }
        Err(error) => Ok((Err(error.downcast()?),)),
    }
}
