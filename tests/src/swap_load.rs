//! Replaces a component repeatedly under constant load: every run must succeed on one revision, and the host must not
//! leak.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::{Context, ensure};
use futures::future::{try_join, try_join_all};

use crate::soak::Usage;
use crate::swapper::{Swapper, is_drained, running_version};
use crate::{Folder, Host};

/// The number of swaps, and the load.
#[derive(Debug, Clone, Copy)]
pub struct SwapLoad {
    /// The number of times that the file is replaced.
    pub swaps: usize,
    /// The number of concurrent clients.
    pub clients: usize,
}

/// The result of [`SwapLoad::run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapLoadOutcome {
    /// The number of runs by version.
    pub runs: BTreeMap<&'static str, u64>,
    /// The resource usage of the host after the first swaps.
    pub before: Usage,
    /// The resource usage after the last swap.
    pub after: Usage,
}

impl SwapLoad {
    /// Replaces `swap.wasm` in the served folder while clients run its agent.
    ///
    /// # Errors
    /// If a run fails or mixes two revisions, or if a new run does not use the new revision.
    pub async fn run(self, host: &Host, folder: &Folder) -> anyhow::Result<SwapLoadOutcome> {
        let (swapped, sessions) = (AtomicUsize::new(0), AtomicU64::new(0));
        let run = async || {
            let session = sessions.fetch_add(1, Ordering::Relaxed);
            running_version(host, &format!("churn-{session}")).await
        };
        let process = host.process().context("the host has ended")?;
        let warm_up = (self.swaps / 4).max(1);
        let swaps = async {
            let mut swapper = Swapper::new(host, folder)?;
            let mut before = Usage::read(process)?;
            for swap in 1..=self.swaps {
                let version = swapper.swap().await?;
                ensure!(run().await? == version, "a new run uses new code");
                if swap == warm_up {
                    before = Usage::read(process)?;
                }
                swapped.store(swap, Ordering::Relaxed);
            }
            anyhow::Ok(before)
        };
        let clients = (0..self.clients).map(async |_| {
            let mut runs = BTreeMap::new();
            while swapped.load(Ordering::Relaxed) < self.swaps {
                *runs.entry(run().await?.text()).or_insert(0) += 1;
            }
            anyhow::Ok(runs)
        });
        let (before, counts) = try_join(swaps, try_join_all(clients)).await?;
        host.wait_until("no old revision is in use", is_drained).await?;
        let mut runs = BTreeMap::new();
        for (version, count) in counts.into_iter().flatten() {
            *runs.entry(version).or_insert(0) += count;
        }
        Ok(SwapLoadOutcome { runs, before, after: Usage::read(process)? })
    }
}
