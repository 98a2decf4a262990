//! How long a host with many components takes to start, how much memory it uses, and how much processor time while it
//! is idle.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

use super::cpu_time;
use crate::soak::Usage;
use crate::{Folder, Host, paths};

/// Numbers of components.
const COUNTS: [usize; 3] = [1, 20, 300];

/// How long the idle host is observed.
const IDLE: Duration = Duration::from_secs(3);

/// The start of a host whose components are compiled already.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Startup {
    /// Number of different components.
    pub components: usize,
    /// Milliseconds until it listened.
    pub listening: f64,
    /// Milliseconds until it had answered a run of an agent.
    pub first_answer: f64,
    /// Milliseconds until all components were loaded.
    pub loaded: f64,
    /// Resident memory in bytes when it was idle.
    pub memory: u64,
    /// The part of it that is not mapped from files, in bytes.
    pub anonymous: u64,
    /// Share of a processor that it used when it was idle.
    pub idle_cpu: f64,
}

/// Measures hosts with different numbers of components. Calls `on_start` with each.
///
/// # Errors
/// If a host does not start.
pub async fn run(mut on_start: impl FnMut(&Startup)) -> anyhow::Result<Vec<Startup>> {
    let mut starts = Vec::new();
    for components in COUNTS {
        let start = measure(components).await?;
        on_start(&start);
        starts.push(start);
    }
    Ok(starts)
}

async fn measure(components: usize) -> anyhow::Result<Startup> {
    let folder = folder(components)?;
    let compiled = Host::serve(&folder).await?;
    compiled.stop().await?;
    let start = Instant::now();
    let host = Host::serve_while_loading(&folder, &[]).await?;
    let listening = start.elapsed();
    host.wait_for_app("hello").await?;
    host.create_session("hello", "first").await?;
    host.run("hello", "first", "Hi").await?;
    let first_answer = start.elapsed();
    host.wait_until("all components", |listed| served(listed) == components).await?;
    let loaded = start.elapsed();
    let process = host.process().context("the host has ended")?;
    let before = cpu_time(process)?;
    tokio::time::sleep(IDLE).await;
    let idle_cpu = cpu_time(process)?.saturating_sub(before).as_secs_f64() / IDLE.as_secs_f64();
    let Usage { memory, anonymous, .. } = Usage::read(process)?;
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    let (listening, first_answer, loaded) = (millis(listening), millis(first_answer), millis(loaded));
    Ok(Startup { components, listening, first_answer, loaded, memory, anonymous, idle_cpu })
}

/// Returns the number of components that are served.
fn served(listed: &serde_json::Value) -> usize {
    let components = listed.get("components").and_then(serde_json::Value::as_array);
    components.map_or(0, Vec::len)
}

/// Creates a folder with a YAML agent and different components of the same code.
fn folder(components: usize) -> anyhow::Result<Folder> {
    let folder = Folder::empty()?;
    folder.write("hello/root_agent.yaml", "name: hello\nmodel: scripted:hello/answers.yaml\ninstruction: Answer.\n")?;
    folder.write("hello/answers.yaml", "turns:\n  - reply: Hello\n")?;
    let tools = paths::component("trip_tools")?;
    for number in 0..components {
        folder.put(&format!("tools-{number}.wasm"), with_custom_section(&tools, number as u32))?;
    }
    Ok(folder)
}

/// Appends a custom section with a number, which makes a component a different one.
fn with_custom_section(component: &[u8], number: u32) -> Vec<u8> {
    const NAME: &[u8; 6] = b"number";
    let mut changed = component.to_vec();
    changed.extend([0, 1 + NAME.len() as u8 + 4, NAME.len() as u8]);
    changed.extend_from_slice(NAME);
    changed.extend(number.to_le_bytes());
    changed
}
