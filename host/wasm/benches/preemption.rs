//! Preemption latency: how soon a spinning guest is interrupted, alone and among two hundred others, and how long
//! other tasks wait for the network meanwhile. Targets: 20 ms from a cancel or a deadline to the end, 100 ms for an
//! answer over the network.
//!
//! `cargo build --profile guest --target wasm32-wasip2 -p misbehaver`, then `cargo bench -p hatchery-wasm --bench
//! preemption`.

#![allow(clippy::indexing_slicing, missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/components/support.rs"]
#[allow(dead_code)]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hatchery_wasm::{Catalog, Engine, EngineOptions, Limits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use support::{TestCatalog, call_in, context};

/// Spinning guests beside the measured one.
const OTHERS: usize = 200;

/// Number of measurements.
const TIMES: usize = 100;

/// The measured deadline.
const DEADLINE: Duration = Duration::from_millis(50);

const HOURS: Duration = Duration::from_secs(36_000);

async fn catalog(wall: Duration) -> Arc<Catalog> {
    let limits = Limits { cpu: HOURS, wall, ..Limits::default() };
    let mut test_catalog = TestCatalog::new().with("misbehaver").with_limits(limits);
    test_catalog.options.engine = Engine::new(&EngineOptions { instances: 300, ..EngineOptions::default() }).unwrap();
    test_catalog.catalog().await
}

/// Prints the median and the 99th percentile.
fn print(what: &str, mut times: Vec<Duration>, target: Duration) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    let (p50, p99) = (at(50), at(99));
    println!(
        "{what}: p50 {p50:?}, p99 {p99:?}; target {target:?}, ratio {:.2}",
        p99.as_secs_f64() / target.as_secs_f64()
    );
}

/// Returns the time from a cancel to the end of a spinning guest.
async fn cancel_latency(catalog: &Arc<Catalog>) -> Duration {
    let cx = context(catalog);
    let (spinning, cancel) = (catalog.clone(), cx.invocation.cancel.clone());
    let before = catalog.components["misbehaver"].running_calls();
    let call = tokio::spawn(async move { call_in(&cx, &spinning, "spin", json!({})).await });
    while catalog.components["misbehaver"].running_calls() == before {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    let began = Instant::now();
    cancel.cancel();
    call.await.unwrap().unwrap_err();
    began.elapsed()
}

/// Returns the time from the deadline of a spinning guest to its end.
async fn deadline_latency(catalog: &Arc<Catalog>) -> Duration {
    let (spinning, cx) = (catalog.clone(), context(catalog));
    let began = Instant::now();
    tokio::spawn(async move { call_in(&cx, &spinning, "spin", json!({})).await }).await.unwrap().unwrap_err();
    began.elapsed().saturating_sub(DEADLINE)
}

/// Returns the time to send a byte to another task and back.
async fn round_trip(listener: &TcpListener) -> Duration {
    let began = Instant::now();
    let answer = async {
        let (mut server, _) = listener.accept().await.unwrap();
        let mut byte = [0];
        server.read_exact(&mut byte).await.unwrap();
        server.write_all(&byte).await.unwrap();
    };
    let ask = async {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(b"?").await.unwrap();
        client.read_exact(&mut [0]).await.unwrap();
    };
    tokio::join!(answer, ask);
    began.elapsed()
}

async fn measure(among: &str, endless: &Arc<Catalog>, timed: &Arc<Catalog>) {
    let (mut cancels, mut deadlines, mut trips) = (Vec::new(), Vec::new(), Vec::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..TIMES {
        cancels.push(cancel_latency(endless).await);
        deadlines.push(deadline_latency(timed).await);
        trips.push(round_trip(&listener).await);
    }
    print(&format!("from cancel to end, {among}"), cancels, Duration::from_millis(20));
    print(&format!("from deadline to end, {among}"), deadlines, Duration::from_millis(20));
    print(&format!("a byte over the network and back, {among}"), trips, Duration::from_millis(100));
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    tokio::spawn(async {
        let (endless, timed) = (catalog(HOURS).await, catalog(DEADLINE).await);
        measure("alone", &endless, &timed).await;
        let cx = context(&endless);
        let mut others = JoinSet::new();
        for _ in 0..OTHERS {
            let (endless, cx) = (endless.clone(), cx.clone());
            others.spawn(async move { call_in(&cx, &endless, "spin", json!({})).await });
        }
        let began = Instant::now();
        while endless.components["misbehaver"].running_calls() < OTHERS {
            tokio::task::yield_now().await;
        }
        println!("{OTHERS} guests have begun to spin after {:?}", began.elapsed());
        measure(&format!("among {OTHERS} that spin"), &endless, &timed).await;
        cx.invocation.cancel.cancel();
        while others.join_next().await.is_some() {}
    })
    .await
    .unwrap();
}
