//! Resolution of the models of components.

use std::sync::Arc;

use hatchery_core::{ItemKind, Model, ModelError, ModelErrorKind};

use super::NameResolver;
use crate::contract::component::MODEL_PREFIX;

impl NameResolver<'_> {
    /// Returns the model `component:NAME/model`.
    pub(crate) fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let path = name.strip_prefix(MODEL_PREFIX).and_then(|path| path.split_once('/'));
        let model = path.and_then(|(component, model)| self.components.get(component)?.model(model));
        model.ok_or_else(|| {
            let message = format!("no component offers it; available: {}", self.known_models());
            ModelError::new(ModelErrorKind::UnknownModel, name, message)
        })
    }

    fn known_models(&self) -> String {
        let all = self.components.values().flat_map(|component| {
            component.names(ItemKind::Model).map(|model| format!("`{MODEL_PREFIX}{}/{model}`", component.name()))
        });
        let all = all.collect::<Vec<_>>().join(", ");
        if all.is_empty() { "none".into() } else { all }
    }
}
