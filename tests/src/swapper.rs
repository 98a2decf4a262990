//! Replaces a component repeatedly while a host serves it.

use anyhow::Context;

use crate::event::texts;
use crate::host::entry;
use crate::paths::{Swap, swap};
use crate::{Folder, Host};
use serde_json::Value;

/// Returns the generation of the catalog.
pub fn generation(components: &Value) -> u64 {
    components.get("generation").and_then(Value::as_u64).unwrap_or_default()
}

/// Returns true if no replaced revision is in use.
pub fn is_drained(components: &Value) -> bool {
    components.get("draining").and_then(Value::as_array).is_some_and(Vec::is_empty)
}

/// Replaces `swap.wasm` by its other version on each call.
pub struct Swapper<'a> {
    host: &'a Host,
    folder: &'a Folder,
    versions: [(Swap, Vec<u8>); 2],
    swaps: usize,
}

impl<'a> Swapper<'a> {
    /// Creates a swapper for a host that serves the older version in this folder.
    ///
    /// # Errors
    /// If the component has not been built.
    pub fn new(host: &'a Host, folder: &'a Folder) -> anyhow::Result<Self> {
        let versions = [(Swap::Older, swap(Swap::Older)?), (Swap::Newer, swap(Swap::Newer)?)];
        Ok(Self { host, folder, versions, swaps: 0 })
    }

    /// Replaces the component, waits until the other version is loaded, and returns that version.
    ///
    /// # Errors
    /// If it is not loaded.
    pub async fn swap(&mut self) -> anyhow::Result<Swap> {
        self.swaps += 1;
        let (version, bytes) = self.versions.get(self.swaps % 2).context("one of two")?;
        let before = generation(&self.host.components().await?);
        self.folder.put("swap.wasm", bytes)?;
        let is_loaded = |components: &Value| {
            let state = entry(components, "swap.wasm").and_then(|entry| entry.get("state"));
            generation(components) > before && state.is_some_and(|state| state == "loaded")
        };
        self.host.wait_until("the other version serves", is_loaded).await?;
        Ok(*version)
    }
}

/// Runs the agent in a new session, and returns its version.
///
/// # Errors
/// If the run fails, or mixes both versions.
pub async fn running_version(host: &Host, session: &str) -> anyhow::Result<Swap> {
    let texts = texts(&host.ask("swap", session, "Who are you?").await?);
    let version = [Swap::Older, Swap::Newer].into_iter().find(|version| texts == version.texts());
    version.with_context(|| format!("a run mixes both versions: {texts:?}"))
}
