//! A component that is replaced again and again while a host serves it.

use anyhow::Context;

use crate::event::texts;
use crate::host::entry;
use crate::paths::{Swap, swap};
use crate::{Folder, Host};
use serde_json::Value;

/// The number of what is loaded.
pub fn generation(components: &Value) -> u64 {
    components.get("generation").and_then(Value::as_u64).unwrap_or_default()
}

/// True when nothing that was replaced is in use any more.
pub fn is_drained(components: &Value) -> bool {
    components.get("draining").and_then(Value::as_array).is_some_and(Vec::is_empty)
}

/// Replaces `swap.wasm` by its other version each time that it is asked to.
pub struct Swapper<'a> {
    host: &'a Host,
    folder: &'a Folder,
    versions: [(Swap, Vec<u8>); 2],
    turn: usize,
}

impl<'a> Swapper<'a> {
    /// For a host that serves the older version in this folder.
    ///
    /// # Errors
    /// When the component has not been built.
    pub fn new(host: &'a Host, folder: &'a Folder) -> anyhow::Result<Self> {
        let versions = [(Swap::Older, swap(Swap::Older)?), (Swap::Newer, swap(Swap::Newer)?)];
        Ok(Self { host, folder, versions, turn: 0 })
    }

    /// Replaces it, waits until the other version is loaded, and gives which one that is.
    ///
    /// # Errors
    /// When it is not loaded.
    pub async fn swap(&mut self) -> anyhow::Result<Swap> {
        self.turn += 1;
        let (version, bytes) = self.versions.get(self.turn % 2).context("one of two")?;
        let before = generation(&self.host.components().await?);
        self.folder.put("swap.wasm", bytes)?;
        let serves = |components: &Value| {
            let state = entry(components, "swap.wasm").and_then(|entry| entry.get("state"));
            generation(components) > before && state.is_some_and(|state| state == "loaded")
        };
        self.host.until("the other version serves", serves).await?;
        Ok(*version)
    }
}

/// What its agent says in a new session: which version it is of.
///
/// # Errors
/// When the run fails, or is of both versions.
pub async fn version_that_answers(host: &Host, session: &str) -> anyhow::Result<Swap> {
    let said = texts(&host.ask("swap", session, "Who are you?").await?);
    let found = [Swap::Older, Swap::Newer].into_iter().find(|version| said == version.words());
    found.with_context(|| format!("a run is of one version, not of both: {said:?}"))
}
