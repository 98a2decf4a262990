//! Idle sessions: the memory of a host with many of them, and the latency of the next turn in one.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, anyhow};
use futures::future::try_join_all;
use serde::Serialize;

use super::client::{Client, Times};
use super::scenario::{self, NATIVE, Scenario, Sessions};
use super::{Latencies, Plan, SessionName};
use crate::soak::Usage;

/// Numbers of sessions.
const COUNTS: [u64; 2] = [100, 10_000];

/// Number of turns that are measured.
const TURNS: u64 = 1000;

/// A prime number, so that successive turns are in different sessions.
const STRIDE: u64 = 7919;

/// A host with many sessions of one turn each.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleSessions {
    /// Where they are stored.
    pub name: String,
    /// Number of sessions.
    pub sessions: u64,
    /// Resident memory of the host in bytes.
    pub memory: u64,
    /// The growth of anonymous memory per session, in bytes.
    pub memory_per_session: f64,
    /// From a run's request to its first event, in one of the sessions.
    pub first_event: Latencies,
    /// From a run's request to the end of its stream.
    pub run: Latencies,
}

/// Measures hosts with few and many sessions, in memory and in SQLite. Calls `on_measured` with each.
///
/// # Errors
/// If a host does not start, or dies, or gives an unexpected answer.
pub async fn run(plan: &Plan, mut on_measured: impl FnMut(&IdleSessions)) -> anyhow::Result<Vec<IdleSessions>> {
    let mut measured = Vec::new();
    for (name, sessions) in [("memory", Sessions::Memory), ("SQLite", Sessions::Sqlite)] {
        let scenario = Scenario::new(name, NATIVE, sessions).streamed(None);
        let host = scenario::serve(sessions).await?;
        host.wait_for_app(NATIVE.app).await?;
        let process = host.process().context("the host has ended")?;
        let mut clients = try_join_all((0..plan.connections).map(|_| Client::connect(&host.url))).await?;
        let (empty, mut created) = (Usage::read(process)?, 0);
        for count in COUNTS {
            drive(&mut clients, &scenario, created..count, Turn::First).await?;
            created = count;
            let usage = Usage::read(process)?;
            let times =
                drive(&mut clients, &scenario, (0..TURNS).map(|turn| turn * STRIDE % count), Turn::Next).await?;
            let idle = IdleSessions {
                name: name.to_owned(),
                sessions: count,
                memory: usage.memory,
                memory_per_session: usage.anonymous.saturating_sub(empty.anonymous) as f64 / count as f64,
                first_event: latencies(&times, |times| times.first_event),
                run: latencies(&times, |times| times.end),
            };
            on_measured(&idle);
            measured.push(idle);
        }
    }
    Ok(measured)
}

/// Which turn of their sessions clients run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The session is created before it.
    First,
    Next,
}

/// Runs a turn in each of these sessions, over all connections.
async fn drive(
    clients: &mut [Client],
    scenario: &Scenario,
    sessions: impl Iterator<Item = u64>,
    turn: Turn,
) -> anyhow::Result<Vec<Times>> {
    let sessions = RefCell::new(sessions);
    let loops = clients.iter_mut().map(async |client| {
        let mut measured = Vec::new();
        loop {
            let Some(number) = sessions.borrow_mut().next() else { return anyhow::Ok(measured) };
            let session = SessionName::new(number);
            let answer = match turn {
                Turn::First => client.pair(scenario, &session).await?,
                Turn::Next => client.run(scenario, &session).await?,
            };
            measured.push(answer.map_err(|answer| anyhow!("session {number}: {answer}"))?);
        }
    });
    Ok(try_join_all(loops).await?.into_iter().flatten().collect())
}

fn latencies(times: &[Times], duration: impl Fn(&Times) -> Duration) -> Latencies {
    Latencies::new(times.iter().map(duration).collect())
}
