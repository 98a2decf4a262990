//! A host under everything at once for as long as one likes: good components, swapped ones, some that trap, spin, eat memory or ask for what
//! they were not granted, and hostile ones. It counts what came of each request, and watches memory and file handles of the process.
//!
//! What must hold: good requests are answered, bad ones fail in the way that they must, and neither memory nor handles grow.

mod attacks;
mod load;
mod report;
mod usage;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

use crate::swapping::Swapper;
use crate::{Folder, Host};
use load::Load;
pub use report::Report;
pub use usage::Usage;

/// What a soak is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How long it goes on.
    pub lasts: Duration,
    /// How many clients ask at the same time.
    pub clients: usize,
    /// How many clients attack at the same time.
    pub attackers: usize,
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
    /// Attacks, by name and how they ended, so far.
    pub attacks: BTreeMap<&'static str, BTreeMap<String, u64>>,
    /// Swaps so far.
    pub swaps: u64,
    /// What the host's process uses.
    pub usage: Usage,
}

impl Sample {
    /// All requests so far, without attacks.
    pub fn requests(&self) -> u64 {
        self.good.values().sum::<u64>() + self.failed.values().sum::<u64>()
    }
}

/// What a soak came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The numbers over time; the first are those before any load, the last those of the end.
    pub samples: Vec<Sample>,
    /// What does not hold, a sentence each.
    pub complaints: Vec<String>,
}

#[derive(Default)]
struct Counts {
    good: BTreeMap<&'static str, u64>,
    failed: BTreeMap<String, u64>,
    attacks: BTreeMap<&'static str, BTreeMap<String, u64>>,
    swaps: u64,
}

/// Runs a soak in a folder of its own, and tells each sample as it is taken.
///
/// # Errors
/// When the host does not start, or dies.
pub async fn run(plan: &Plan, mut tell: impl FnMut(&Sample)) -> anyhow::Result<Outcome> {
    let folder = Folder::empty()?;
    load::prepare(&folder)?;
    attacks::prepare(&folder)?;
    let host = Host::serve(&folder).await?;
    for app in ["caller", "greeter", "swap", crate::stage::ATTACKER] {
        host.until_app(app).await?;
    }
    let soak = Soak { host, folder, counts: Mutex::default(), is_over: AtomicBool::new(false), began: Instant::now() };
    let clients = (0..plan.clients).map(|client| soak.client(client));
    let attackers = (0..plan.attackers).map(|attacker| soak.attacker(attacker, plan.attackers));
    let watch = async {
        let samples = soak.watch(plan, &mut tell).await;
        soak.is_over.store(true, Ordering::SeqCst);
        samples
    };
    let all = futures::future::join_all(clients);
    let (samples, (), _, _) =
        tokio::join!(watch, soak.swap(plan.swap_every), all, futures::future::join_all(attackers));
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
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_failure(&self, what: &str, error: &anyhow::Error) {
        *self.counts().failed.entry(format!("{what}: {error:#}")).or_default() += 1;
    }

    /// Asks for one thing after the other, each kind in turn.
    async fn client(&self, client: usize) {
        for (number, load) in Load::ALL.into_iter().cycle().skip(client).enumerate() {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            match load.ask(&self.host, &format!("soak-{client}-{number}")).await {
                Ok(()) => *self.counts().good.entry(load.name()).or_default() += 1,
                Err(error) => self.count_failure(load.name(), &error),
            }
        }
    }

    /// Tries one attack after the other; attackers begin at different places of the list.
    async fn attacker(&self, attacker: usize, attackers: usize) {
        let attacks = attacks::all();
        let first = attacker * attacks.len() / attackers.max(1);
        for (number, attack) in attacks.iter().cycle().skip(first).enumerate() {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            match attack.attempt(&self.host, &format!("attack-{attacker}-{number}")).await {
                Ok(ending) => *self.counts().attacks.entry(attack.name).or_default().entry(ending).or_default() += 1,
                Err(error) => self.count_failure(attack.name, &error),
            }
        }
    }

    /// Replaces a component by its other version again and again, each time once the last one serves.
    async fn swap(&self, every: Duration) {
        let mut ticks = tokio::time::interval(every);
        let mut swapper = match Swapper::new(&self.host, &self.folder) {
            Ok(swapper) => swapper,
            Err(error) => return self.count_failure("swap", &error),
        };
        loop {
            ticks.tick().await;
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            match swapper.swap().await {
                Ok(_) => self.counts().swaps += 1,
                Err(error) => self.count_failure("swap", &error),
            }
        }
    }

    async fn watch(&self, plan: &Plan, tell: &mut impl FnMut(&Sample)) -> anyhow::Result<Vec<Sample>> {
        let mut ticks = tokio::time::interval(plan.look_every);
        let mut samples = vec![self.sample()?];
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
        let counts = self.counts();
        Ok(Sample {
            at: self.began.elapsed().as_secs_f64(),
            good: counts.good.clone(),
            failed: counts.failed.clone(),
            attacks: counts.attacks.clone(),
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
    if last.swaps == 0 {
        complaints.push("nothing was swapped".into());
    }
    if last.attacks.is_empty() {
        complaints.push("nothing attacked".into());
    }
    if let Some(early) = samples.get(report::warm_up(samples)) {
        complaints.extend(last.usage.growth_since(&early.usage));
    }
    complaints
}
