//! Overhead of Hatchery over bare Wasmtime: a tool call in a fresh and in a pooled instance, an agent's run of three
//! events, and one event of a long run. Both sides use the same engine and the same components, so the ratio is the
//! cost of everything around the guest.
//!
//! `cargo build --profile guest --target wasm32-wasip2 -p gallery -p misbehaver -p swap`, then `cargo bench -p
//! hatchery-wasm`.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "calls/bare.rs"]
mod bare;
#[path = "../tests/components/support.rs"]
#[allow(dead_code)]
mod support;

use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use criterion::Criterion;
use hatchery_core::{AgentContext, EventSink, ItemResolver, RunError};
use hatchery_wasm::{Catalog, ComponentSettings, InstancePoolConfig};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use wasmtime::StoreContextMut;
use wasmtime::component::{InstancePre, Source, StreamConsumer, StreamResult};

use bare::bindings::exports::hatchery::agent::{guest_agents, guest_tools};
use bare::bindings::hatchery::agent::types::Event;
use bare::{MinimalState, bare_pre, bare_store, bare_tool};
use support::{TestCatalog, context, context_of, run_custom_in};

/// Events of the long run.
const EVENTS: u32 = 1000;

/// Counts the events of a stream.
struct Counter {
    count: Arc<std::sync::atomic::AtomicUsize>,
    _open: oneshot::Sender<()>,
}

impl<D> StreamConsumer<D> for Counter {
    type Item = Event;

    fn poll_consume(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        store: StoreContextMut<D>,
        mut source: Source<'_, Event>,
        _: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        let mut event = None;
        source.read(store, &mut event)?;
        self.count.fetch_add(usize::from(event.is_some()), std::sync::atomic::Ordering::Relaxed);
        Poll::Ready(Ok(StreamResult::Completed))
    }
}

async fn bare_agent(
    pre: &InstancePre<MinimalState>,
    indices: &guest_agents::GuestIndices,
    agent: &str,
    text: &str,
) -> usize {
    let mut store = bare_store(text);
    let instance = pre.instantiate_async(&mut store).await.unwrap();
    let guest = indices.load(&mut store, &instance).unwrap();
    let count = Arc::default();
    let agent = agent.to_owned();
    let (open, closed) = oneshot::channel();
    let counter = Counter { count: Arc::clone(&count), _open: open };
    let run = store.run_concurrent(async move |accessor| {
        let stream = guest.call_run(accessor, agent).await.unwrap().unwrap();
        accessor.with(|access| stream.pipe(access, counter)).unwrap();
        let _ = closed.await;
    });
    run.await.unwrap();
    count.load(std::sync::atomic::Ordering::Relaxed)
}

/// Discards events.
struct Sink;

#[async_trait::async_trait]
impl EventSink for Sink {
    async fn emit(&self, event: Arc<hatchery_core::Event>) -> Result<Arc<hatchery_core::Event>, RunError> {
        Ok(black_box(event))
    }
}

async fn agent(catalog: &Arc<Catalog>, agent: &str, text: &str) {
    let cx = AgentContext { call: context_of(catalog, text), sink: Arc::new(Sink) };
    run_custom_in(catalog, agent, cx).await.unwrap();
}

/// Returns the average time over one second.
fn time<F: Future>(runtime: &Runtime, mut work: impl FnMut() -> F) -> Duration {
    runtime.block_on(async {
        let (began, mut count) = (Instant::now(), 0_u32);
        while began.elapsed() < Duration::from_secs(1) {
            work().await;
            count += 1;
        }
        began.elapsed() / count
    })
}

fn ratio(what: &str, ours: Duration, bare: Duration) {
    println!("{what}: {ours:?}, bare wasmtime {bare:?}, ratio {:.2}", ours.as_secs_f64() / bare.as_secs_f64());
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let mut criterion = Criterion::default().configure_from_args();
    let catalog = runtime.block_on(TestCatalog::new().with("gallery").with("misbehaver").with("swap").catalog());
    tool_call(&runtime, &mut criterion, &catalog);
    pooled_instance(&runtime, &mut criterion, &catalog);
    three_events(&runtime, &mut criterion, &catalog);
    long_run(&runtime, &mut criterion, &catalog);
}

fn tool_call(runtime: &Runtime, criterion: &mut Criterion, catalog: &Arc<Catalog>) {
    let pre = bare_pre("misbehaver");
    let indices = guest_tools::GuestIndices::new(&pre).unwrap();
    let args = json!({"value": {"city": "Paris", "unit": "c"}});
    let text = args.to_string();
    let tool = catalog.tool("echo").unwrap();
    let cx = context(catalog);
    let map = args.as_object().unwrap().clone();

    let mut group = criterion.benchmark_group("tool call, fresh instance");
    group.bench_function("hatchery", |b| b.to_async(runtime).iter(|| tool.call(map.clone(), &cx)));
    group.bench_function("bare wasmtime", |b| b.to_async(runtime).iter(|| bare_tool(&pre, &indices, &text)));
    group.finish();
    let ours = time(runtime, || tool.call(map.clone(), &cx));
    ratio("tool call in a fresh instance", ours, time(runtime, || bare_tool(&pre, &indices, &text)));
}

/// Measures a guest that starts fast, and one that builds a table of 8 MiB in its first call.
fn pooled_instance(runtime: &Runtime, criterion: &mut Criterion, fresh: &Arc<Catalog>) {
    let settings = ComponentSettings { warm: Some(InstancePoolConfig::default()), ..ComponentSettings::default() };
    let pooled =
        runtime.block_on(TestCatalog::new().with("misbehaver").with_settings("misbehaver", settings).catalog());
    for (tool, args, what) in
        [("echo", json!({"value": {"city": "Paris"}}), "small"), ("lookup", json!({}), "with a dear start")]
    {
        let (cx, args) = (context(&pooled), args.as_object().unwrap().clone());
        let (fresh, pooled) = (fresh.tool(tool).unwrap(), pooled.tool(tool).unwrap());
        let mut group = criterion.benchmark_group(format!("tool call, guest {what}"));
        group.bench_function("fresh instance", |b| b.to_async(runtime).iter(|| fresh.call(args.clone(), &cx)));
        group.bench_function("pooled instance", |b| b.to_async(runtime).iter(|| pooled.call(args.clone(), &cx)));
        group.finish();
        let (fresh, pooled) =
            (time(runtime, || fresh.call(args.clone(), &cx)), time(runtime, || pooled.call(args.clone(), &cx)));
        let ratio = pooled.as_secs_f64() / fresh.as_secs_f64();
        println!("guest {what}: pooled instance {pooled:?}, fresh instance {fresh:?}, ratio {ratio:.3}");
    }
}

fn three_events(runtime: &Runtime, criterion: &mut Criterion, catalog: &Arc<Catalog>) {
    let pre = bare_pre("swap");
    let indices = guest_agents::GuestIndices::new(&pre).unwrap();
    let bare = || bare_agent(&pre, &indices, "swap", "hello");
    let ours = || agent(catalog, "swap", "hello");
    assert_eq!(runtime.block_on(bare()), 3);

    let mut group = criterion.benchmark_group("agent run of three events, fresh instance");
    group.bench_function("hatchery", |b| b.to_async(runtime).iter(ours));
    group.bench_function("bare wasmtime", |b| b.to_async(runtime).iter(bare));
    group.finish();
    ratio("agent run of three events", time(runtime, ours), time(runtime, bare));
}

/// The start of an instance is subtracted: one event is the difference between a long and an empty run.
fn long_run(runtime: &Runtime, criterion: &mut Criterion, catalog: &Arc<Catalog>) {
    let pre = bare_pre("gallery");
    let indices = guest_agents::GuestIndices::new(&pre).unwrap();
    let many = EVENTS.to_string();
    let partial = format!("{EVENTS} partial");
    let bare = || bare_agent(&pre, &indices, "streamer", &many);
    let bare_empty = || bare_agent(&pre, &indices, "streamer", "0");
    let ours = || agent(catalog, "streamer", &many);
    let ours_partial = || agent(catalog, "streamer", &partial);
    let ours_empty = || agent(catalog, "streamer", "0");
    assert_eq!(runtime.block_on(bare()), EVENTS as usize);
    assert_eq!(runtime.block_on(bare_empty()), 0);

    let mut group = criterion.benchmark_group("agent run of a thousand events, fresh instance");
    group.sample_size(20);
    group.bench_function("hatchery", |b| b.to_async(runtime).iter(ours));
    group.bench_function("bare wasmtime", |b| b.to_async(runtime).iter(bare));
    group.finish();
    let empty = time(runtime, ours_empty);
    let bare = (time(runtime, bare) - time(runtime, bare_empty)) / EVENTS;
    ratio("streamed event through a guest", (time(runtime, ours) - empty) / EVENTS, bare);
    ratio("streamed partial event through a guest", (time(runtime, ours_partial) - empty) / EVENTS, bare);
}
