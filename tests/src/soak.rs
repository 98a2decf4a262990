//! A host under everything at once for as long as one likes: good components, swapped ones, and some that trap, spin, eat memory or ask for
//! what they were not granted. It counts what came of each request, and watches memory and file handles of the process.
//!
//! What must hold: good requests are answered, bad ones fail in the way that they must, and neither memory nor handles grow.

mod load;
mod usage;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

use crate::churn::generation;
use crate::host::entry;
use crate::paths::{Swap, swap};
use crate::{Folder, Host};
use load::Load;
pub use usage::Usage;

/// What a soak is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How long it goes on.
    pub lasts: Duration,
    /// How many clients ask at the same time.
    pub clients: usize,
    /// How often a component is replaced.
    pub swap_every: Duration,
    /// How often numbers are taken.
    pub look_every: Duration,
}

/// The numbers at one moment.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// Requests that ended as they must, by kind, so far.
    pub good: BTreeMap<&'static str, u64>,
    /// Other requests, by kind and reason, so far.
    pub failed: BTreeMap<String, u64>,
    /// Swaps so far.
    pub swaps: u64,
    /// What the host's process uses.
    pub usage: Usage,
}

impl Sample {
    /// All requests so far.
    pub fn requests(&self) -> u64 {
        self.good.values().sum::<u64>() + self.failed.values().sum::<u64>()
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed: u64 = self.failed.values().sum();
        let rate = self.requests() as f64 / self.at.max(0.001);
        write!(
            f,
            "{:>6.0} s  {:>8} requests ({rate:>5.0}/s)  {failed:>4} failed  {:>5} swaps  {}",
            self.at,
            self.requests(),
            self.swaps,
            self.usage,
        )
    }
}

/// What a soak came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The numbers over time; the last are those of the end.
    pub samples: Vec<Sample>,
    /// What does not hold, a sentence each.
    pub complaints: Vec<String>,
}

#[derive(Default)]
struct Counts {
    good: BTreeMap<&'static str, u64>,
    failed: BTreeMap<String, u64>,
    swaps: u64,
}

/// Runs a soak in a folder of its own, and tells each sample as it is taken.
///
/// # Errors
/// When the host does not start, or dies.
pub async fn run(plan: &Plan, mut tell: impl FnMut(&Sample)) -> anyhow::Result<Outcome> {
    let folder = Folder::empty()?;
    load::prepare(&folder)?;
    let host = Host::serve(&folder).await?;
    let soak = Soak { host, folder, counts: Mutex::default(), is_over: AtomicBool::new(false), began: Instant::now() };
    let clients = (0..plan.clients).map(|client| soak.client(client));
    let watch = async {
        let samples = soak.watch(plan, &mut tell).await;
        soak.is_over.store(true, Ordering::SeqCst);
        samples
    };
    let (samples, (), _) = tokio::join!(watch, soak.swapper(plan.swap_every), futures::future::join_all(clients));
    let mut samples = samples?;
    soak.host.get("/health").await?.json(200).context("the host does not answer at the end")?;
    samples.push(soak.sample()?);
    let complaints = complaints(&samples);
    Ok(Outcome { samples, complaints })
}

struct Soak {
    host: Host,
    folder: Folder,
    counts: Mutex<Counts>,
    is_over: AtomicBool,
    began: Instant,
}

impl Soak {
    /// Asks for one thing after the other, each kind in turn.
    async fn client(&self, client: usize) {
        for (number, load) in Load::ALL.into_iter().cycle().skip(client).enumerate() {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let asked = load.ask(&self.host, &format!("soak-{client}-{number}")).await;
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            match asked {
                Ok(()) => *counts.good.entry(load.name()).or_default() += 1,
                Err(error) => *counts.failed.entry(format!("{}: {error:#}", load.name())).or_default() += 1,
            }
        }
    }

    /// Replaces a component by its other version again and again, each time once the last one serves.
    async fn swapper(&self, every: Duration) {
        let mut ticks = tokio::time::interval(every);
        for version in [Swap::Newer, Swap::Older].into_iter().cycle() {
            ticks.tick().await;
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let replaced = self.replace(version).await;
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            match replaced {
                Ok(()) => counts.swaps += 1,
                Err(error) => *counts.failed.entry(format!("swap: {error:#}")).or_default() += 1,
            }
        }
    }

    async fn replace(&self, version: Swap) -> anyhow::Result<()> {
        let before = generation(&self.host.components().await?);
        self.folder.put("swap.wasm", swap(version)?)?;
        let serves = |components: &serde_json::Value| {
            generation(components) > before && entry(components, "swap.wasm").is_some_and(|it| it["state"] == "loaded")
        };
        self.host.until("the other version serves", serves).await?;
        Ok(())
    }

    async fn watch(&self, plan: &Plan, tell: &mut impl FnMut(&Sample)) -> anyhow::Result<Vec<Sample>> {
        let mut ticks = tokio::time::interval(plan.look_every);
        let mut samples = Vec::new();
        ticks.tick().await;
        while self.began.elapsed() < plan.lasts {
            ticks.tick().await;
            let sample = self.sample()?;
            tell(&sample);
            samples.push(sample);
        }
        Ok(samples)
    }

    fn sample(&self) -> anyhow::Result<Sample> {
        let usage = Usage::of(self.host.process().context("the host has died")?)?;
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Sample {
            at: self.began.elapsed().as_secs_f64(),
            good: counts.good.clone(),
            failed: counts.failed.clone(),
            swaps: counts.swaps,
            usage,
        })
    }
}

/// What does not hold. Growth is judged between the first third, in which caches fill, and the end.
fn complaints(samples: &[Sample]) -> Vec<String> {
    let Some(last) = samples.last() else { return vec!["nothing was measured".into()] };
    let mut complaints: Vec<String> =
        last.failed.iter().map(|(reason, count)| format!("{count} requests failed: {reason}")).collect();
    let unasked = Load::ALL.into_iter().filter(|load| !last.good.contains_key(load.name()));
    complaints.extend(unasked.map(|load| format!("no request of the kind `{}` ended well", load.name())));
    if let Some(early) = samples.get(samples.len() / 3) {
        complaints.extend(last.usage.growth_since(&early.usage));
    }
    complaints
}
