//! Load test: closed-loop clients that create a session and run one turn in it, over keep-alive connections, against
//! the real host, a bare axum server that answers with bodies of the same size, and other agent servers.
//!
//! Each row reports the throughput, the CPU time of the server for each pair of requests, and latencies. Rows of one
//! report ran on the same machine in sequence, so their ratios mean more than their values.

mod bare_tool;
mod chart;
mod client;
pub mod floor;
pub mod idle;
mod latencies;
mod program;
mod report;
mod scenario;
pub mod slopes;
mod slow_readers;
pub mod startup;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use futures::future::try_join_all;
use serde::Serialize;

use crate::soak::Usage;
use client::Client;
pub use latencies::Latencies;
pub use program::Program;
pub use report::Report;
use scenario::{DICE, NATIVE, PRIMES, SCENARIOS, STREAMS, Scenario, Sessions};
use slow_readers::SlowReaders;

/// The parameters of a load test.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How long each row is measured, after a fifth of that time as warm-up.
    pub duration: Duration,
    /// The number of connections of each row that does not have its own.
    pub connections: usize,
    /// Rows of the host are measured if their names contain this text.
    pub filter: String,
    /// Other servers with the apps `native` (one step) and `dice` (two steps, one tool).
    pub rivals: Vec<Program>,
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

/// Measures the bare server, other servers and then the host. Calls `on_row` with each row.
///
/// # Errors
/// If a server does not start, or dies.
pub async fn run(plan: &Plan, mut on_row: impl FnMut(&Row)) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut add = |row: Row| {
        on_row(&row);
        rows.push(row);
    };
    let floor = floor::program()?.start().await?;
    for (name, turn) in [(report::FLOOR, NATIVE), (report::TOOL_FLOOR, PRIMES)] {
        add(measure(&Scenario::new(name, turn, Sessions::Memory), name, &floor.url, floor.process()?, plan).await?);
    }
    drop(floor);
    for rival in &plan.rivals {
        for (what, turn) in [("one step", NATIVE), ("two steps, native tool", DICE)] {
            let server = rival.start().await?;
            let name = format!("{}, {what}, sessions in memory", rival.name);
            let scenario = Scenario::new("", turn, Sessions::Memory);
            add(measure(&scenario, &name, &server.url, server.process()?, plan).await?);
        }
    }
    if STREAMS.name.contains(&plan.filter) {
        let events = recorded_stream(&STREAMS).await?;
        let floor = floor::streaming_program(events.path())?.start().await?;
        add(measure(&STREAMS, report::STREAM_FLOOR, &floor.url, floor.process()?, plan).await?);
    }
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.name.contains(&plan.filter)) {
        let host = scenario.serve().await?;
        let process = host.process().context("the host has ended")?;
        let readers = SlowReaders::open(&host.url, scenario.slow_readers).await?;
        add(measure(scenario, scenario.name, &host.url, process, plan).await?);
        readers.check()?;
        ensure!(host.stop().await?, "the host has not stopped cleanly after `{}`", scenario.name);
    }
    Ok(rows)
}

/// Returns a file with the event stream of the host for a scenario.
async fn recorded_stream(scenario: &Scenario) -> anyhow::Result<tempfile::NamedTempFile> {
    let host = scenario.serve().await?;
    let (mut client, session) = (Client::connect(&host.url).await?, SessionName::new(0));
    client.create_session(scenario, &session).await?.map_err(|answer| anyhow!("{answer}"))?;
    let (_, events) = client.answer(scenario, &session).await?.map_err(|answer| anyhow!("{answer}"))?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), events)?;
    Ok(file)
}

async fn measure(scenario: &Scenario, name: &str, url: &str, process: u32, plan: &Plan) -> anyhow::Result<Row> {
    let connections = scenario.connections.unwrap_or(plan.connections);
    let next = AtomicU64::new(0);
    let mut clients = try_join_all((0..connections).map(|_| Client::connect(url))).await?;
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
        first_event: Latencies::new(measured.first_event),
        run: Latencies::new(measured.run),
        failed: measured.failed,
        memory: Usage::read(process)?.memory,
    })
}

/// A user and a session of theirs.
struct SessionName {
    user: String,
    id: String,
}

impl SessionName {
    /// Returns the name of a numbered session. A user has far fewer sessions than the default quota allows.
    fn new(number: u64) -> Self {
        Self { user: format!("user-{}", number / 1000), id: format!("load-{number}") }
    }
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
            let number = next.fetch_add(1, Ordering::Relaxed);
            match client.pair(scenario, &SessionName::new(number)).await? {
                Ok(times) => {
                    measured.first_event.push(times.first_event);
                    measured.run.push(times.end);
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
