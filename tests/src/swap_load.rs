//! Swaps of a component under constant load: every run must end well and be of one revision, and when all is quiet again the host must
//! hold no more than before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::{Context, ensure};
use futures::future::{try_join, try_join_all};

use crate::soak::Usage;
use crate::swapping::{Swapper, is_drained, version_that_answers};
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

impl Churn {
    /// Replaces `swap.wasm` in the folder that the host serves, while clients run its agent.
    ///
    /// # Errors
    /// When a run fails or mixes two revisions, or when a new run does not use the new one.
    pub async fn run(self, host: &Host, folder: &Folder) -> anyhow::Result<Churned> {
        let (swapped, sessions) = (AtomicUsize::new(0), AtomicU64::new(0));
        let answers = async || {
            let session = sessions.fetch_add(1, Ordering::Relaxed);
            version_that_answers(host, &format!("churn-{session}")).await
        };
        let process = host.process().context("the host has ended")?;
        let warm = (self.swaps / 4).max(1);
        let swaps = async {
            let mut swapper = Swapper::new(host, folder)?;
            let mut before = Usage::of(process)?;
            for turn in 1..=self.swaps {
                let version = swapper.swap().await?;
                ensure!(answers().await? == version, "a new run uses new code");
                if turn == warm {
                    before = Usage::of(process)?;
                }
                swapped.store(turn, Ordering::Relaxed);
            }
            anyhow::Ok(before)
        };
        let clients = (0..self.clients).map(async |_| {
            let mut said = BTreeMap::new();
            while swapped.load(Ordering::Relaxed) < self.swaps {
                *said.entry(answers().await?.text()).or_insert(0) += 1;
            }
            anyhow::Ok(said)
        });
        let (before, said) = try_join(swaps, try_join_all(clients)).await?;
        host.until("nothing drains any more", is_drained).await?;
        let mut runs = BTreeMap::new();
        for (version, count) in said.into_iter().flatten() {
            *runs.entry(version).or_insert(0) += count;
        }
        Ok(Churned { runs, before, after: Usage::of(process)? })
    }
}
