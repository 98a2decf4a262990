//! `hatchery:development/program`: the program of a development component.

use wasmtime::StoreContextMut;
use wasmtime::component::Linker;

use crate::runtime::store::HostState;

/// The interface, which has the function `read: func() -> list<u8>`. It belongs to no version of the contract, because
/// only this host reads the files that `hatchery dev` builds.
pub(crate) const INTERFACE: &str = "hatchery:development/program@0.1.0";

/// Links the interface. A component without a program reads nothing.
pub(crate) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.instance(INTERFACE)?.func_wrap("read", |store: StoreContextMut<'_, HostState>, (): ()| {
        Ok((store.data().program.as_deref().unwrap_or_default().to_vec(),))
    })
}
