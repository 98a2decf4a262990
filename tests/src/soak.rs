//! Soak test: a host under load with harmless components, swapped ones, some that trap, spin, allocate memory or use
//! what they were not granted, and hostile ones. Counts the outcome of each request, and samples memory and file
//! handles of the process.
//!
//! Harmless requests must be answered, the others must fail in the expected way, and neither memory nor handles may
//! grow.

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

use crate::swapper::Swapper;
use crate::{Folder, Host};
use load::Load;
pub use report::Report;
pub use usage::Usage;

/// The parameters of a soak test.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The duration of the load.
    pub duration: Duration,
    /// The number of concurrent clients.
    pub clients: usize,
    /// The number of concurrent attackers.
    pub attackers: usize,
    /// The interval between replacements of a component.
    pub swap_interval: Duration,
    /// The interval between samples.
    pub sample_interval: Duration,
}

/// The counters and the resource usage at one time.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// Requests with the expected outcome so far, by kind.
    pub good: BTreeMap<&'static str, u64>,
    /// Other requests so far, by kind and reason.
    pub failed: BTreeMap<String, u64>,
    /// Attacks so far, by name and outcome.
    pub attacks: BTreeMap<&'static str, BTreeMap<String, u64>>,
    /// Swaps so far.
    pub swaps: u64,
    /// The resource usage of the host's process.
    pub usage: Usage,
}

impl Sample {
    /// Returns the number of requests so far, without attacks.
    pub fn requests(&self) -> u64 {
        self.good.values().sum::<u64>() + self.failed.values().sum::<u64>()
    }
}

/// The result of a soak test.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The samples. The first is taken before the load, the last at the end.
    pub samples: Vec<Sample>,
    /// The violated conditions, one sentence each.
    pub violations: Vec<String>,
}

#[derive(Default)]
struct Counts {
    good: BTreeMap<&'static str, u64>,
    failed: BTreeMap<String, u64>,
    attacks: BTreeMap<&'static str, BTreeMap<String, u64>>,
    swaps: u64,
}

/// Runs a soak test in a temporary folder. Calls `on_sample` with each sample.
///
/// # Errors
/// If the host does not start, or dies.
pub async fn run(plan: &Plan, mut on_sample: impl FnMut(&Sample)) -> anyhow::Result<Outcome> {
    let folder = Folder::empty()?;
    load::prepare(&folder)?;
    attacks::prepare(&folder)?;
    let host = Host::serve(&folder).await?;
    for app in ["caller", "greeter", "swap", crate::stage::ATTACKER] {
        host.wait_for_app(app).await?;
    }
    let soak =
        Soak { host, folder, counts: Mutex::default(), has_ended: AtomicBool::new(false), start: Instant::now() };
    let clients = (0..plan.clients).map(|client| soak.client(client));
    let attackers = (0..plan.attackers).map(|attacker| soak.attacker(attacker, plan.attackers));
    let watch = async {
        let samples = soak.watch(plan, &mut on_sample).await;
        soak.has_ended.store(true, Ordering::SeqCst);
        samples
    };
    let all = futures::future::join_all(clients);
    let (samples, (), _, _) =
        tokio::join!(watch, soak.swap(plan.swap_interval), all, futures::future::join_all(attackers));
    let mut samples = samples?;
    soak.host.get("/health").await?.json(200).context("the host does not answer at the end")?;
    samples.push(soak.sample()?);
    let violations = find_violations(&samples);
    Ok(Outcome { samples, violations })
}

struct Soak {
    host: Host,
    folder: Folder,
    counts: Mutex<Counts>,
    has_ended: AtomicBool,
    start: Instant,
}

impl Soak {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_failure(&self, what: &str, error: &anyhow::Error) {
        *self.counts().failed.entry(format!("{what}: {error:#}")).or_default() += 1;
    }

    /// Sends one request after the other, of each kind in turn.
    async fn client(&self, client: usize) {
        for (number, load) in Load::ALL.into_iter().cycle().skip(client).enumerate() {
            if self.has_ended.load(Ordering::SeqCst) {
                return;
            }
            match load.send(&self.host, &format!("soak-{client}-{number}")).await {
                Ok(()) => *self.counts().good.entry(load.name()).or_default() += 1,
                Err(error) => self.count_failure(load.name(), &error),
            }
        }
    }

    /// Runs one attack after the other. Attackers start at different positions of the list.
    async fn attacker(&self, attacker: usize, attackers: usize) {
        let attacks = attacks::all();
        let first = attacker * attacks.len() / attackers.max(1);
        for (number, attack) in attacks.iter().cycle().skip(first).enumerate() {
            if self.has_ended.load(Ordering::SeqCst) {
                return;
            }
            match attack.run(&self.host, &format!("attack-{attacker}-{number}")).await {
                Ok(outcome) => *self.counts().attacks.entry(attack.name).or_default().entry(outcome).or_default() += 1,
                Err(error) => self.count_failure(attack.name, &error),
            }
        }
    }

    /// Replaces a component repeatedly, each time after the last version has been loaded.
    async fn swap(&self, every: Duration) {
        let mut ticks = tokio::time::interval(every);
        let mut swapper = match Swapper::new(&self.host, &self.folder) {
            Ok(swapper) => swapper,
            Err(error) => return self.count_failure("swap", &error),
        };
        loop {
            ticks.tick().await;
            if self.has_ended.load(Ordering::SeqCst) {
                return;
            }
            match swapper.swap().await {
                Ok(_) => self.counts().swaps += 1,
                Err(error) => self.count_failure("swap", &error),
            }
        }
    }

    async fn watch(&self, plan: &Plan, on_sample: &mut impl FnMut(&Sample)) -> anyhow::Result<Vec<Sample>> {
        let mut ticks = tokio::time::interval(plan.sample_interval);
        let mut samples = vec![self.sample()?];
        ticks.tick().await;
        while self.start.elapsed() < plan.duration {
            ticks.tick().await;
            let sample = self.sample()?;
            on_sample(&sample);
            samples.push(sample);
        }
        Ok(samples)
    }

    fn sample(&self) -> anyhow::Result<Sample> {
        let usage = Usage::read(self.host.process().context("the host has died")?)?;
        let counts = self.counts();
        Ok(Sample {
            at: self.start.elapsed().as_secs_f64(),
            good: counts.good.clone(),
            failed: counts.failed.clone(),
            attacks: counts.attacks.clone(),
            swaps: counts.swaps,
            usage,
        })
    }
}

/// Returns the violated conditions. Growth is measured from the end of the first third, in which caches fill, to the
/// end.
fn find_violations(samples: &[Sample]) -> Vec<String> {
    let Some(last) = samples.last() else { return vec!["nothing was measured".into()] };
    let mut violations: Vec<String> =
        last.failed.iter().map(|(reason, count)| format!("{count} requests failed: {reason}")).collect();
    let missing = Load::ALL.into_iter().filter(|load| !last.good.contains_key(load.name()));
    violations.extend(missing.map(|load| format!("no request of the kind `{}` succeeded", load.name())));
    if last.swaps == 0 {
        violations.push("nothing was swapped".into());
    }
    if last.attacks.is_empty() {
        violations.push("nothing attacked".into());
    }
    if let Some(early) = samples.get(report::warm_up(samples)) {
        violations.extend(last.usage.growth_since(&early.usage));
    }
    violations
}
