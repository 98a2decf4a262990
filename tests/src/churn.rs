//! Swaps of a component under constant load: every run must end well and be of one revision, and when all is quiet again the host must
//! hold no more than before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::{Context, ensure};
use futures::future::{try_join, try_join_all};
use serde_json::Value;

use crate::event::texts;
use crate::paths::{Swap, swap};
use crate::soak::Usage;
use crate::{Folder, Host};

/// How much is swapped, and under which load.
#[derive(Debug, Clone, Copy)]
pub struct Churn {
    /// How often the file is replaced.
    pub swaps: usize,
    /// Clients that make one run after the other all the time.
    pub clients: usize,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Churned {
    /// Runs that the clients made, by what they said.
    pub runs: BTreeMap<&'static str, u64>,
    /// What the host's process held after the first swaps.
    pub before: Usage,
    /// The same after the last.
    pub after: Usage,
}

/// The number of what is loaded.
pub fn generation(components: &Value) -> u64 {
    components.get("generation").and_then(Value::as_u64).unwrap_or_default()
}

/// True when nothing that was replaced is in use any more.
pub fn is_drained(components: &Value) -> bool {
    components.get("draining").and_then(Value::as_array).is_some_and(Vec::is_empty)
}

impl Churn {
    /// Replaces `swap.wasm` in the folder that the host serves, while clients run its agent.
    ///
    /// # Errors
    /// When a run fails or mixes two revisions, or when a new run does not use the new one.
    pub async fn run(self, host: &Host, folder: &Folder) -> anyhow::Result<Churned> {
        let versions = [(Swap::Older, swap(Swap::Older)?), (Swap::Newer, swap(Swap::Newer)?)];
        let (swapped, sessions) = (AtomicUsize::new(0), AtomicU64::new(0));
        let says = async || {
            let session = sessions.fetch_add(1, Ordering::Relaxed);
            anyhow::Ok(texts(&host.ask("swap", &format!("churn-{session}"), "Who are you?").await?))
        };
        let process = host.process().context("the host has ended")?;
        let warm = (self.swaps / 4).max(1);
        let swapper = async {
            let mut before = Usage::of(process)?;
            for (turn, (version, bytes)) in versions.iter().cycle().skip(1).take(self.swaps).enumerate() {
                let loaded = generation(&host.components().await?);
                folder.put("swap.wasm", bytes)?;
                host.until("there is a newer generation", |components| generation(components) > loaded).await?;
                ensure!(says().await? == version.words(), "a new run uses new code");
                if turn + 1 == warm {
                    before = Usage::of(process)?;
                }
                swapped.store(turn + 1, Ordering::Relaxed);
            }
            anyhow::Ok(before)
        };
        let clients = (0..self.clients).map(async |_| {
            let mut said = BTreeMap::new();
            while swapped.load(Ordering::Relaxed) < self.swaps {
                let words = says().await?;
                let version = versions.iter().find(|(version, _)| words == version.words());
                let (version, _) =
                    version.with_context(|| format!("a run is of one version, not of both: {words:?}"))?;
                *said.entry(version.text()).or_insert(0) += 1;
            }
            anyhow::Ok(said)
        });
        let (before, said) = try_join(swapper, try_join_all(clients)).await?;
        host.until("nothing drains any more", is_drained).await?;
        let mut runs = BTreeMap::new();
        for (version, count) in said.into_iter().flatten() {
            *runs.entry(version).or_insert(0) += count;
        }
        Ok(Churned { runs, before, after: Usage::of(process)? })
    }
}
