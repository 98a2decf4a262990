//! A tool of a component called with bare Wasmtime: a new store and instance for each call, from a pool configured like
//! the host's, without limits, a clock, a session or imports of the contract.

use anyhow::{Context, anyhow};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentType, InstancePre, Lift, Linker, Lower, ResourceTable, TypedFunc,
};
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::paths;

/// Instances that can exist at one time, as in the host.
const INSTANCES: u32 = 1000;

pub(super) struct BareTool {
    instance: InstancePre<Wasi>,
    call: ComponentExportIndex,
}

/// `tool-error` of the contract.
#[derive(Debug, ComponentType, Lift, Lower)]
#[component(variant)]
enum ToolError {
    #[component(name = "recoverable")]
    Recoverable(String),
    #[component(name = "fatal")]
    Fatal(Error),
}

/// `error` of the contract.
#[derive(Debug, ComponentType, Lift, Lower)]
#[component(record)]
struct Error {
    code: String,
    message: String,
}

type Call = TypedFunc<(String, String), (Result<String, ToolError>,)>;

struct Wasi {
    context: WasiCtx,
    table: ResourceTable,
}

impl WasiView for Wasi {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.context, table: &mut self.table }
    }
}

impl BareTool {
    pub(super) fn load(component: &str) -> anyhow::Result<Self> {
        let engine = Engine::new(&config())?;
        let code = Component::new(&engine, paths::component(component)?)?;
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        refuse_contract(&mut linker, &code)?;
        let (_, tools) = code
            .component_type()
            .exports(&engine)
            .find_map(|(name, _)| name.starts_with("hatchery:agent/guest-tools").then(|| code.get_export(None, name)))
            .flatten()
            .with_context(|| format!("{component} has no tools"))?;
        let (_, call) = code.get_export(Some(&tools), "call").context("no function `call`")?;
        Ok(Self { instance: linker.instantiate_pre(&code)?, call })
    }

    pub(super) async fn call(&self, tool: &str, args: &str) -> anyhow::Result<String> {
        let wasi = Wasi { context: WasiCtxBuilder::new().build(), table: ResourceTable::new() };
        let mut store = Store::new(self.instance.engine(), wasi);
        store.set_epoch_deadline(1 << 40);
        let instance = self.instance.instantiate_async(&mut store).await?;
        let call: Call = instance.get_typed_func(&mut store, self.call)?;
        let params = (tool.to_owned(), args.to_owned());
        let called = store.run_concurrent(async move |accessor| call.call_concurrent(accessor, params).await).await??;
        called.0.map_err(|error| anyhow!("{error:?}"))
    }
}

/// Links the imports of the contract as functions that fail. The measured tool uses none of them.
fn refuse_contract(linker: &mut Linker<Wasi>, code: &Component) -> wasmtime::Result<()> {
    let engine = linker.engine().clone();
    for (interface, import) in code.component_type().imports(&engine) {
        let ComponentItem::ComponentInstance(functions) = import.ty else { continue };
        if !interface.starts_with("hatchery:") {
            continue;
        }
        let mut linker = linker.instance(interface)?;
        for (name, export) in functions.exports(&engine) {
            let refused = || wasmtime::format_err!("not offered here");
            match export.ty {
                ComponentItem::ComponentFunc(function) if function.async_() => {
                    linker.func_new_concurrent(name, move |_, _, _, _| Box::pin(async move { Err(refused()) }))?;
                }
                ComponentItem::ComponentFunc(_) => linker.func_new(name, move |_, _, _, _| Err(refused()))?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn config() -> Config {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(INSTANCES)
        .total_core_instances(INSTANCES * 8)
        .total_memories(INSTANCES)
        .total_tables(INSTANCES * 2)
        .total_stacks(INSTANCES * 2)
        .linear_memory_keep_resident(256 << 10)
        .table_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto);
    let mut config = Config::new();
    config.wasm_component_model_async(true).concurrency_support(true).epoch_interruption(true);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}
