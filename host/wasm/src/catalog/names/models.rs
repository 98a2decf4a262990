//! Models of components by name.

use std::sync::Arc;

use hatchery_core::{ItemKind, Model, ModelError, ModelErrorKind};

use super::Names;
use crate::contract::component::MODEL_PREFIX;

impl Names<'_> {
    /// The model of this name, `component:NAME/model`.
    pub(crate) fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let path = name.strip_prefix(MODEL_PREFIX).and_then(|path| path.split_once('/'));
        let found = path.and_then(|(component, model)| self.0.get(component)?.model(model));
        found.ok_or_else(|| {
            let message = format!("no component offers it; there is {}", self.known_models());
            ModelError::new(ModelErrorKind::UnknownModel, name, message)
        })
    }

    fn known_models(&self) -> String {
        let all = self.0.values().flat_map(|component| {
            component.names(ItemKind::Model).map(|model| format!("`{MODEL_PREFIX}{}/{model}`", component.name()))
        });
        let all = all.collect::<Vec<_>>().join(", ");
        if all.is_empty() { "none".into() } else { all }
    }
}
