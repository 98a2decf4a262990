//! Helpers of the benches of stores: the costs of an operation, and concurrent sessions.

#![allow(dead_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use hatchery_core::{Event, JsonMap, SessionKey, SessionService};
use hatchery_test_support::typical_event;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

/// The sessions that append at the same time.
pub const SESSIONS: usize = 64;

/// The cost of one operation.
#[derive(Clone, Copy)]
pub struct Cost {
    pub wall: Duration,
    /// Of all threads of this process.
    pub cpu: Duration,
}

/// Measures what `work` costs for each of `count` operations.
pub fn measure(count: usize, work: impl FnOnce()) -> Cost {
    let cpu = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let (started, before) = (Instant::now(), cpu());
    work();
    let count = count as u32;
    Cost { wall: started.elapsed() / count, cpu: (cpu() - before) / count }
}

pub fn print_header(title: &str) {
    println!("{title:<58} {:>10} {:>10} {:>10} {:>10}", "wall", "CPU", "wall ratio", "CPU ratio");
}

/// Prints a cost and its ratios to another one.
pub fn print(name: &str, cost: Cost, floor: Cost) {
    let micros = |duration: Duration| format!("{:.1} µs", duration.as_secs_f64() * 1e6);
    let wall = cost.wall.as_secs_f64() / floor.wall.as_secs_f64();
    let cpu = cost.cpu.as_secs_f64() / floor.cpu.as_secs_f64();
    println!("{name:<58} {:>10} {:>10} {wall:>10.2} {cpu:>10.2}", micros(cost.wall), micros(cost.cpu));
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Returns events whose JSON exists already.
pub fn events(count: usize) -> Vec<Arc<Event>> {
    let events: Vec<_> = (0..count).map(typical_event).collect();
    events.iter().for_each(|event| drop(event.json().clone()));
    events
}

/// Splits events into one part for each of `concurrency` tasks.
pub fn split(events: &[Arc<Event>], concurrency: usize) -> impl Iterator<Item = Vec<Arc<Event>>> {
    events.chunks(events.len().div_ceil(concurrency)).map(<[_]>::to_vec)
}

/// Creates sessions of a user.
pub async fn create(sessions: &dyn SessionService, user: &str, count: usize) -> Vec<SessionKey> {
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(sessions.create("app", user, None, JsonMap::new()).await.expect("a session").key);
    }
    keys
}

/// Runs tasks until all have ended.
pub fn run_all<F>(runtime: &Runtime, tasks: impl IntoIterator<Item = F>)
where
    F: Future<Output = ()> + Send + 'static,
{
    runtime.block_on(async {
        let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
        for task in tasks {
            task.await.expect("a task");
        }
    });
}

/// Appends events to sessions concurrently, in each of them in sequence.
pub fn append(runtime: &Runtime, sessions: &Arc<dyn SessionService>, count: usize, concurrency: usize) -> Cost {
    let keys = runtime.block_on(create(&**sessions, "ann", concurrency));
    let events = events(count);
    let work: Vec<_> = keys.into_iter().zip(split(&events, concurrency)).collect();
    measure(count, || {
        run_all(
            runtime,
            work.into_iter().map(|(key, events)| {
                let sessions = sessions.clone();
                async move {
                    for event in &events {
                        sessions.append(&key, event).await.expect("a revision");
                    }
                }
            }),
        );
    })
}
