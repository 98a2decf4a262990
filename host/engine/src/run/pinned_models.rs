//! The models of one run: a name keeps its model from the beginning of the run to its end, also if a component is
//! replaced meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{AgentKind, AgentTree, Embedder, Model, ModelCapabilities, ModelError, ModelRef, ModelResolver};

/// A [`ModelResolver`] that asks another one once for each name.
pub(crate) struct PinnedModels {
    models: Arc<dyn ModelResolver>,
    pinned: Mutex<HashMap<String, Arc<dyn Model>>>,
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

impl ModelResolver for PinnedModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        if let Some(model) = self.pinned.lock_unpoisoned().get(name) {
            return Ok(model.clone());
        }
        let model = self.models.model(name)?;
        Ok(self.pinned.lock_unpoisoned().entry(name.into()).or_insert(model).clone())
    }

    fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        self.models.embedder(name)
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        let pinned = self.pinned.lock_unpoisoned().get(name).cloned();
        pinned.map_or_else(|| self.models.capabilities(name), |model| model.capabilities())
    }
}
