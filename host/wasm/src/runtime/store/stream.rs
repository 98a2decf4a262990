//! Streams that guests write to: what the host buffers of them counts to the instance's memory.

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
use super::memory::{Held, InstanceMemory};

/// Smaller pieces are not worth counting: each stream buffers one.
const UNCOUNTED: usize = 1024;

/// Makes streams into files count what they buffer.
pub(crate) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut files = linker.instance("wasi:filesystem/types@0.2.12")?;
    files.func_wrap("[method]descriptor.write-via-stream", write_via_stream)?;
    files.func_wrap("[method]descriptor.append-via-stream", append_via_stream)?;
    linker.allow_shadowing(false);
    Ok(())
}

type Opened = (Result<Resource<DynOutputStream>, ErrorCode>,);

fn write_via_stream(
    mut store: StoreContextMut<'_, HostState>,
    (file, offset): (Resource<Descriptor>, u64),
) -> wasmtime::Result<Opened> {
    let state = store.data_mut();
    let opened = state.filesystem().write_via_stream(file, offset);
    counted(state, opened)
}

fn append_via_stream(
    mut store: StoreContextMut<'_, HostState>,
    (file,): (Resource<Descriptor>,),
) -> wasmtime::Result<Opened> {
    let state = store.data_mut();
    let opened = state.filesystem().append_via_stream(file);
    counted(state, opened)
}

fn counted(state: &mut HostState, opened: FsResult<Resource<DynOutputStream>>) -> wasmtime::Result<Opened> {
    match opened {
        Ok(stream) => {
            count(state, &stream)?;
            Ok((Ok(stream),))
        }
        Err(error) => Ok((Err(error.downcast()?),)),
    }
}

/// Makes a stream of the guest count what it buffers.
pub(crate) fn count(state: &mut HostState, stream: &Resource<DynOutputStream>) -> wasmtime::Result<()> {
    let memory = state.memory.clone();
    let table: &mut ResourceTable = state.resources();
    let place = table.get_mut(stream)?;
    let inner = mem::replace(place, Box::new(ClosedOutputStream));
    *place = Box::new(Counted { inner, memory });
    Ok(())
}

struct Counted {
    inner: DynOutputStream,
    memory: Arc<InstanceMemory>,
}

/// A piece of data that counts to an instance's memory until the last reference to it is dropped.
struct CountedBytes {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes, which `held` stands for as long as they are referenced.
pub(crate) fn counted_bytes(bytes: Bytes, held: Held) -> Bytes {
    Bytes::from_owner(CountedBytes { bytes, _held: held })
}

#[wasmtime_wasi::async_trait]
impl Pollable for Counted {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Counted {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() <= UNCOUNTED {
            return self.inner.write(bytes);
        }
        let held = self.memory.hold(bytes.len() as u64).map_err(|error| StreamError::Trap(error.into()))?;
        self.inner.write(counted_bytes(bytes, held))
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.inner.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.inner.check_write()
    }

    /// Waits until the bytes are written, so that no more than one piece is there.
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
