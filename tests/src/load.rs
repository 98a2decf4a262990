//! Load test: closed-loop clients that create a session and run one turn in it, over keep-alive connections, against
//! the real host and against a bare axum server that answers with bodies of the same size.
//!
//! Each row reports the throughput, the CPU time of the server for each pair of requests, and latencies. Rows of one
//! report ran on the same machine one after the other, so their ratios mean more than their values.

mod client;
pub mod floor;
mod latencies;
mod report;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use serde::Serialize;

use crate::soak::Usage;
use crate::{Folder, Host, paths};
use client::Client;
use floor::Floor;
pub use latencies::Latencies;
pub use report::Report;

/// The parameters of a load test.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How long each row is measured, after a fifth of that time as warm-up.
    pub duration: Duration,
    /// The number of connections of each row that does not have its own.
    pub connections: usize,
}

/// A kind of load. A report has one row for each.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    name: &'static str,
    app: &'static str,
    text: &'static str,
    /// A text of the answer, without which it is a failure.
    expected: &'static str,
    route: Route,
    sessions: Sessions,
    /// `None` for the plan's number.
    connections: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Run,
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sessions {
    Memory,
    Sqlite,
}

const SCENARIOS: [Scenario; 8] = [
    Scenario::new("native agent, one step, sessions in memory", NATIVE, Sessions::Memory),
    Scenario::new("`greeter`, one call into a component, memory", GREETER, Sessions::Memory),
    Scenario::new("`dice`, two steps, tool and callback in components, memory", DICE, Sessions::Memory),
    Scenario::new("native agent, one step, SQLite", NATIVE, Sessions::Sqlite),
    Scenario::new("`greeter`, SQLite", GREETER, Sessions::Sqlite),
    Scenario::new("`dice`, SQLite", DICE, Sessions::Sqlite),
    Scenario::new("native agent, `/run_sse`, memory", NATIVE, Sessions::Memory).streamed(None),
    Scenario::new("native agent, `/run_sse`, memory, 1,000 streams", NATIVE, Sessions::Memory).streamed(Some(1000)),
];

/// App, message, and a text of the answer.
type Turn = (&'static str, &'static str, &'static str);

const NATIVE: Turn = ("native", "Hello", "You said Hello.");
const GREETER: Turn = ("greeter", "Hello", "Hello");
const DICE: Turn = ("dice", "Roll a die with 20 sides", "You rolled");

impl Scenario {
    const fn new(name: &'static str, (app, text, expected): Turn, sessions: Sessions) -> Self {
        Self { name, app, text, expected, route: Route::Run, sessions, connections: None }
    }

    const fn streamed(self, connections: Option<usize>) -> Self {
        Self { route: Route::Stream, connections, ..self }
    }
}

/// The measurements of one scenario.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The measured quantity.
    pub name: String,
    /// Number of connections.
    pub connections: usize,
    /// Sessions with one run each, per second.
    pub pairs_per_second: f64,
    /// CPU time of the server for each pair, in microseconds.
    pub cpu_per_pair: f64,
    /// From a run's request to its first event or, without streaming, to the end of the answer.
    pub first_event: Latencies,
    /// From a run's request to the end of the answer.
    pub run: Latencies,
    /// Pairs with an unexpected answer.
    pub failed: u64,
    /// Resident memory of the server at the end, in bytes.
    pub memory: u64,
}

/// Runs all scenarios whose names contain `filter`, after the bare server. Calls `on_row` with each row.
///
/// # Errors
/// If a server does not start, or dies.
pub async fn run(plan: &Plan, filter: &str, mut on_row: impl FnMut(&Row)) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut add = |row: Row| {
        on_row(&row);
        rows.push(row);
    };
    let floor = Floor::start().await?;
    add(measure("bare axum, bodies of the same size", &NATIVE_RUN, floor.address, floor.process()?, plan).await?);
    drop(floor);
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.name.contains(filter)) {
        let folder = folder()?;
        let host = match scenario.sessions {
            Sessions::Sqlite => Host::serve(&folder).await?,
            Sessions::Memory => Host::serve_with_args(&folder, &[], &["--session-service", "memory:"]).await?,
        };
        host.wait_for_app(scenario.app).await?;
        let address = host.url.trim_start_matches("http://").parse().with_context(|| host.url.clone())?;
        let process = host.process().context("the host has ended")?;
        add(measure(scenario.name, scenario, address, process, plan).await?);
    }
    Ok(rows)
}

/// The request to the bare server.
const NATIVE_RUN: Scenario = Scenario::new("", NATIVE, Sessions::Memory);

/// Creates a folder with the apps of all scenarios.
fn folder() -> anyhow::Result<Folder> {
    let folder = Folder::empty()?;
    folder
        .write("native/root_agent.yaml", "name: native\nmodel: scripted:native/answers.yaml\ninstruction: Answer.\n")?;
    folder.write("native/answers.yaml", "turns:\n  - reply: \"You said {user}.\"\n")?;
    folder.put("greeter.wasm", paths::component("greeter")?)?;
    folder.put("dice/dice.wasm", paths::component("dice")?)?;
    let answers = paths::repository().join("sample-agents/dice/answers.yaml");
    folder.write("dice/answers.yaml", std::fs::read(&answers).with_context(|| answers.display().to_string())?)?;
    Ok(folder)
}

async fn measure(
    name: &str,
    scenario: &Scenario,
    address: SocketAddr,
    process: u32,
    plan: &Plan,
) -> anyhow::Result<Row> {
    let connections = scenario.connections.unwrap_or(plan.connections);
    let next = AtomicU64::new(0);
    let mut clients = try_join_all((0..connections).map(|_| Client::connect(address))).await?;
    let _warm_up = drive(&mut clients, scenario, &next, plan.duration / 5).await?;
    let (cpu_before, start) = (cpu_time(process)?, Instant::now());
    let measured = drive(&mut clients, scenario, &next, plan.duration).await?;
    let (elapsed, cpu) = (start.elapsed(), cpu_time(process)?.saturating_sub(cpu_before));
    let pairs = measured.run.len();
    ensure!(pairs > 0, "{name}: no run succeeded, {} failed: {}", measured.failed, measured.failure);
    Ok(Row {
        name: name.to_owned(),
        connections,
        pairs_per_second: pairs as f64 / elapsed.as_secs_f64(),
        cpu_per_pair: cpu.as_secs_f64() * 1e6 / pairs as f64,
        first_event: Latencies::of(measured.first_event),
        run: Latencies::of(measured.run),
        failed: measured.failed,
        memory: Usage::of(process)?.memory,
    })
}

/// The runs of all clients.
#[derive(Default)]
struct RunMeasurements {
    first_event: Vec<Duration>,
    run: Vec<Duration>,
    failed: u64,
    /// The last unexpected answer.
    failure: String,
}

/// Lets all clients send one pair after the other for some time.
async fn drive(
    clients: &mut [Client],
    scenario: &Scenario,
    next: &AtomicU64,
    duration: Duration,
) -> anyhow::Result<RunMeasurements> {
    let end = Instant::now() + duration;
    let loops = clients.iter_mut().map(async |client| {
        let mut measured = RunMeasurements::default();
        while Instant::now() < end {
            let session = format!("load-{}", next.fetch_add(1, Ordering::Relaxed));
            match client.pair(scenario, &session).await? {
                Ok((first_event, run)) => {
                    measured.first_event.push(first_event);
                    measured.run.push(run);
                }
                Err(failure) => {
                    measured.failed += 1;
                    measured.failure = failure;
                }
            }
        }
        anyhow::Ok(measured)
    });
    let mut all = RunMeasurements::default();
    for measured in try_join_all(loops).await? {
        all.first_event.extend(measured.first_event);
        all.run.extend(measured.run);
        all.failed += measured.failed;
        if !measured.failure.is_empty() {
            all.failure = measured.failure;
        }
    }
    Ok(all)
}

/// Returns the CPU time of a process so far: user and system time of all its threads.
fn cpu_time(process: u32) -> anyhow::Result<Duration> {
    /// Linux reports these times in hundredths of a second on all architectures.
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).context("the server's CPU time")?;
    // The name of the program is in parentheses and may contain spaces.
    let (_, fields) = stat.rsplit_once(')').context("no name in /proc/PID/stat")?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let (user, system) = (fields.next().context("no user time")?, fields.next().context("no system time")?);
    Ok(TICK * (user.parse::<u32>()? + system.parse::<u32>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_process_grows_while_it_computes() {
        let before = cpu_time(std::process::id()).unwrap();
        while cpu_time(std::process::id()).unwrap() == before {
            std::hint::black_box((0..1000).sum::<u64>());
        }
    }
}
