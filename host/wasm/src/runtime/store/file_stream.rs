//! Output streams of guests, whose buffers in the host count towards the memory of the instance.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceTable};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::filesystem::types::{ErrorCode, HostDescriptor};
use wasmtime_wasi::p2::pipe::ClosedOutputStream;
use wasmtime_wasi::p2::{DynOutputStream, FsResult, OutputStream, Pollable, StreamError, StreamResult};

use super::HostState;
use super::memory::{InstanceMemory, MemoryReservation};

/// Smaller writes are not counted: each stream buffers at most one.
const UNCOUNTED: usize = 1024;

/// Replaces the functions that open streams into files by ones that count.
pub(crate) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut files = linker.instance("wasi:filesystem/types@0.2.12")?;
    files.func_wrap("[method]descriptor.write-via-stream", write_via_stream)?;
    files.func_wrap("[method]descriptor.append-via-stream", append_via_stream)?;
    linker.allow_shadowing(false);
    Ok(())
}

type OpenResult = (Result<Resource<DynOutputStream>, ErrorCode>,);

fn write_via_stream(
    mut store: StoreContextMut<'_, HostState>,
    (file, offset): (Resource<Descriptor>, u64),
) -> wasmtime::Result<OpenResult> {
    let state = store.data_mut();
    let opened = state.filesystem().write_via_stream(file, offset);
    count_opened(state, opened)
}

fn append_via_stream(
    mut store: StoreContextMut<'_, HostState>,
    (file,): (Resource<Descriptor>,),
) -> wasmtime::Result<OpenResult> {
    let state = store.data_mut();
    let opened = state.filesystem().append_via_stream(file);
    count_opened(state, opened)
}

fn count_opened(state: &mut HostState, opened: FsResult<Resource<DynOutputStream>>) -> wasmtime::Result<OpenResult> {
    match opened {
        Ok(stream) => {
            count(state, &stream)?;
            Ok((Ok(stream),))
        }
        Err(error) => Ok((Err(error.downcast()?),)),
    }
}

/// Wraps a stream so that its buffer is counted.
pub(crate) fn count(state: &mut HostState, stream: &Resource<DynOutputStream>) -> wasmtime::Result<()> {
    let memory = state.memory.clone();
    let table: &mut ResourceTable = state.resources();
    let slot = table.get_mut(stream)?;
    let inner = mem::replace(slot, Box::new(ClosedOutputStream));
    *slot = Box::new(CountedStream { inner, memory });
    Ok(())
}

struct CountedStream {
    inner: DynOutputStream,
    memory: Arc<InstanceMemory>,
}

/// Bytes that count to the memory of an instance until the last reference to them is dropped.
struct CountedBytes {
    bytes: Bytes,
    _reservation: MemoryReservation,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Attaches a reservation to bytes. It lasts as long as the bytes are referenced.
pub(crate) fn counted_bytes(bytes: Bytes, reservation: MemoryReservation) -> Bytes {
    Bytes::from_owner(CountedBytes { bytes, _reservation: reservation })
}

#[wasmtime_wasi::async_trait]
impl Pollable for CountedStream {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

#[wasmtime_wasi::async_trait]
impl OutputStream for CountedStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() <= UNCOUNTED {
            return self.inner.write(bytes);
        }
        let reservation = self.memory.reserve(bytes.len() as u64).map_err(|error| StreamError::Trap(error.into()))?;
        self.inner.write(counted_bytes(bytes, reservation))
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.inner.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.inner.check_write()
    }

    /// Not counted: it waits until the bytes are written, so at most one write is buffered.
    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.inner.blocking_write_and_flush(bytes).await
    }

    async fn write_ready(&mut self) -> StreamResult<usize> {
        self.inner.write_ready().await
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}
