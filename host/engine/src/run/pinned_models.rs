//! The models of one run: a name keeps its model from the beginning of the run to the end, even if a component is
//! replaced in between.

use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{AgentKind, AgentTree, Embedder, Model, ModelCapabilities, ModelError, ModelRef, ModelResolver};

/// Maximum number of models of one run that are pinned.
const MAX_PINNED: usize = 1000;

/// Maximum length in bytes of a name that is pinned. Code can use any text that one of its grants matches.
const MAX_NAME: usize = 256;

/// A [`ModelResolver`] that asks another one once for each name. Models with very long names, and those beyond the
/// first 1,000, are not kept: it asks for them each time.
pub(crate) struct PinnedModels {
    models: Arc<dyn ModelResolver>,
    /// By name; a run has few.
    pinned: Mutex<Vec<(String, Arc<dyn Model>)>>,
}

impl PinnedModels {
    /// Pins the models of the agents in `tree` now, and others when they are first used.
    pub(crate) fn new(models: Arc<dyn ModelResolver>, tree: &AgentTree) -> Self {
        let pinned = Self { models, pinned: Mutex::default() };
        for (_, agent) in tree.iter() {
            let model = match &agent.kind {
                AgentKind::Llm(llm) => llm.model.as_ref(),
                AgentKind::Custom(custom) => custom.model.as_ref(),
                AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => None,
            };
            for name in model.into_iter().flat_map(ModelRef::names) {
                // An agent whose model is not available fails when it calls it.
                let _ = pinned.model(name);
            }
        }
        pinned
    }
}

fn find(pinned: &[(String, Arc<dyn Model>)], name: &str) -> Option<Arc<dyn Model>> {
    pinned.iter().find(|(pinned, _)| pinned == name).map(|(_, model)| model.clone())
}

impl ModelResolver for PinnedModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        if let Some(model) = find(&self.pinned.lock_unpoisoned(), name) {
            return Ok(model);
        }
        let model = self.models.model(name)?;
        let mut pinned = self.pinned.lock_unpoisoned();
        // A concurrent call may have pinned one.
        if let Some(model) = find(&pinned, name) {
            return Ok(model);
        }
        if pinned.len() < MAX_PINNED && name.len() <= MAX_NAME {
            pinned.push((name.into(), model.clone()));
        }
        Ok(model)
    }

    fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        self.models.embedder(name)
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        let pinned = find(&self.pinned.lock_unpoisoned(), name);
        pinned.map_or_else(|| self.models.capabilities(name), |model| model.capabilities())
    }
}
