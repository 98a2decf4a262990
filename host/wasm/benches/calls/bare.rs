//! Components called with bare Wasmtime: the floor of the benches, with the engine of the host and only the imports
//! that the measured guests use.

use wasmtime::component::types::{ComponentInstance, ComponentItem};
use wasmtime::component::{Component, InstancePre, Linker, LinkerInstance, ResourceTable};
use wasmtime::{Store, StoreContextMut};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::support::{ENGINE, component};

pub mod bindings {
    #![allow(missing_docs, dead_code, unused_qualifications, clippy::all)]
    wasmtime::component::bindgen!({ path: "../../wit", world: "component", exports: { default: async } });
}
use bindings::exports::hatchery::agent::guest_tools;
use bindings::hatchery::agent::session::Info;
use bindings::hatchery::agent::types::{Content, Error, Part, PartData};

/// The minimal store data of the guests.
pub struct MinimalState {
    wasi: WasiCtx,
    table: ResourceTable,
    /// The user message.
    text: String,
}

impl WasiView for MinimalState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// Loads a component.
pub fn bare_pre(name: &str) -> InstancePre<MinimalState> {
    let code = Component::from_file(ENGINE.wasm(), component(name)).unwrap();
    let mut linker = Linker::new(ENGINE.wasm());
    wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
    for (name, import) in code.component_type().imports(ENGINE.wasm()) {
        if let (true, ComponentItem::ComponentInstance(interface)) = (name.starts_with("hatchery:"), import.ty) {
            link_session(&mut linker.instance(name).unwrap(), &interface);
        }
    }
    linker.instantiate_pre(&code).unwrap()
}

/// Links the user message for agents, and an error for `describe`. The other imports are not used here.
fn link_session(linker: &mut LinkerInstance<'_, MinimalState>, interface: &ComponentInstance) {
    let refused = || wasmtime::format_err!("not offered here");
    for (name, export) in interface.exports(ENGINE.wasm()) {
        match export.ty {
            ComponentItem::ComponentFunc(_) if name == "user-content" => {
                let user_content =
                    |store: StoreContextMut<'_, MinimalState>, ()| Ok((Ok::<_, Error>(content(&store.data().text)),));
                linker.func_wrap(name, user_content).unwrap();
            }
            ComponentItem::ComponentFunc(_) if name == "current" => {
                let nowhere = || Error { code: "NO_SESSION".into(), message: "not offered here".into() };
                linker.func_wrap(name, move |_, ()| Ok((Err::<Info, _>(nowhere()),))).unwrap();
            }
            ComponentItem::ComponentFunc(function) if function.async_() => {
                linker.func_new_concurrent(name, move |_, _, _, _| Box::pin(async move { Err(refused()) })).unwrap();
            }
            ComponentItem::ComponentFunc(_) => linker.func_new(name, move |_, _, _, _| Err(refused())).unwrap(),
            _ => {}
        }
    }
}

fn content(text: &str) -> Content {
    let part = Part { data: PartData::Text(text.into()), thought: false, thought_signature: None, extra: None };
    Content { role: Some("user".into()), parts: vec![part] }
}

/// Returns the store of one instance, with the user message `text`.
pub fn bare_store(text: &str) -> Store<MinimalState> {
    let wasi = WasiCtxBuilder::new().build();
    let mut store = Store::new(ENGINE.wasm(), MinimalState { wasi, table: ResourceTable::new(), text: text.into() });
    store.set_epoch_deadline(1 << 40);
    store
}

/// Calls the tool `echo` in a new instance.
pub async fn bare_tool(pre: &InstancePre<MinimalState>, indices: &guest_tools::GuestIndices, args: &str) -> String {
    let mut store = bare_store("");
    let instance = pre.instantiate_async(&mut store).await.unwrap();
    let guest = indices.load(&mut store, &instance).unwrap();
    let args = args.to_owned();
    let call = store.run_concurrent(async move |accessor| guest.call_call(accessor, "echo".into(), args).await);
    call.await.unwrap().unwrap().unwrap()
}
