//! Finds models by name: factories in order of registration, newest first, and one instance per name.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use hatchery_core::{Model, ModelCapabilities, ModelError, ModelErrorKind, ModelResolver};

use crate::gemini::GeminiProvider;
use crate::http::Http;
use crate::openai::OpenAiProvider;
use crate::scripted::ScriptedProvider;
use crate::settings::Settings;

/// No more instances are kept. Past it models are made anew per look-up, which costs little: they share their connections.
const MOST_KEPT: usize = 1_000;

/// Makes the models whose names fit its patterns.
pub trait ModelProvider: Send + Sync {
    /// Names that it serves; a `*` at the end stands for any rest.
    fn patterns(&self) -> &[&'static str];

    /// The model of this name, which fits one of the patterns.
    ///
    /// # Errors
    /// When the name is incomplete or a setting is missing.
    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError>;

    /// Returns what the model of this name supports. A provider that knows this without a key should override it: see
    /// [`ModelResolver::capabilities`].
    fn capabilities(&self, name: &str) -> ModelCapabilities {
        self.create(name).map(|model| model.capabilities()).unwrap_or_default()
    }

    /// True when it serves this name.
    fn serves(&self, name: &str) -> bool {
        self.patterns().iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *pattern,
        })
    }
}

/// The models of a process.
#[derive(Default)]
pub struct ModelProviders {
    factories: Vec<Box<dyn ModelProvider>>,
    kept: RwLock<HashMap<String, Arc<dyn Model>>>,
}

impl ModelProviders {
    /// A registry that knows no model.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Scripted models, Gemini and OpenAI. Nothing is connected or checked before a model is asked for.
    #[must_use]
    pub fn with_defaults(settings: Settings) -> Self {
        let http = Http::default();
        let mut registry = Self::new();
        registry.register(Box::new(
            ScriptedProvider::new(&settings.scripts_dir).outside(settings.writable_folders.clone()),
        ));
        registry.register(Box::new(GeminiProvider::new(&settings, http.clone())));
        registry.register(Box::new(OpenAiProvider::new(&settings, http)));
        registry
    }

    /// Adds a factory, which goes before those that serve the same names.
    pub fn register(&mut self, factory: Box<dyn ModelProvider>) {
        self.factories.push(factory);
        self.kept.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn factory(&self, name: &str) -> Option<&dyn ModelProvider> {
        self.factories.iter().rev().find(|factory| factory.serves(name)).map(AsRef::as_ref)
    }

    fn unknown(&self, name: &str) -> ModelError {
        let patterns: Vec<_> = self.factories.iter().flat_map(|factory| factory.patterns()).copied().collect();
        let message = match patterns.is_empty() {
            true => "no provider serves this name, and none is registered".to_owned(),
            false => format!("no provider serves this name; known names: {}", patterns.join(", ")),
        };
        ModelError::new(ModelErrorKind::UnknownModel, name, message)
    }
}

impl ModelResolver for ModelProviders {
    fn capabilities(&self, name: &str) -> ModelCapabilities {
        self.factory(name).map(|factory| factory.capabilities(name)).unwrap_or_default()
    }

    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        if let Some(model) = self.kept.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(model.clone());
        }
        let model = self.factory(name).ok_or_else(|| self.unknown(name))?.create(name)?;
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = kept.get(name) {
            return Ok(earlier.clone());
        }
        if kept.len() < MOST_KEPT {
            kept.insert(name.to_owned(), model.clone());
        }
        Ok(model)
    }
}

impl std::fmt::Debug for ModelProviders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let patterns: Vec<_> = self.factories.iter().flat_map(|factory| factory.patterns()).collect();
        f.debug_struct("ModelProviders").field("patterns", &patterns).finish_non_exhaustive()
    }
}
