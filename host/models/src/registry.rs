//! Registry of model providers: resolves a model by name and caches one instance per name.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use hatchery_core::sync::RwLockExt;
use hatchery_core::{Embedder, Model, ModelCapabilities, ModelError, ModelErrorKind, ModelResolver};

use crate::gemini::GeminiProvider;
use crate::hashed_ngrams::HashedNgrams;
use crate::http::Http;
use crate::openai::OpenAiProvider;
use crate::scripted::ScriptedProvider;
use crate::settings::Settings;

/// Maximum number of cached instances. Beyond it a model is created per look-up, which is cheap because models share
/// their connections.
const MAX_CACHED_MODELS: usize = 1_000;

/// A factory of models by name. [`ModelProvider::create`] is called once per name, from any task, and must not block.
///
/// ```
/// use std::sync::Arc;
/// use hatchery_core::{Model, ModelError, ModelResolver};
/// use hatchery_models::scripted::Scripted;
/// use hatchery_models::{ModelProvider, ModelProviders};
///
/// struct Echo;
///
/// impl ModelProvider for Echo {
///     fn patterns(&self) -> &[&'static str] {
///         &["echo/*"]
///     }
///
///     fn create(&self, _name: &str) -> Result<Arc<dyn Model>, ModelError> {
///         Ok(Arc::new(Scripted::new().default_reply("{user}")))
///     }
/// }
///
/// let mut models = ModelProviders::new();
/// models.register(Box::new(Echo));
/// assert!(models.model("echo/loud").is_ok());
/// assert!(models.model("gemini-2.5-flash").is_err());
/// ```
pub trait ModelProvider: Send + Sync {
    /// Returns the names that this provider serves. A trailing `*` matches any suffix.
    fn patterns(&self) -> &[&'static str];

    /// Creates the model of this name, which matches one of the patterns.
    ///
    /// # Errors
    /// If the name is incomplete or a setting is missing.
    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError>;

    /// Returns what the model of this name supports. A provider that knows this without a key should override it: see
    /// [`ModelResolver::capabilities`].
    fn capabilities(&self, name: &str) -> ModelCapabilities {
        self.create(name).map(|model| model.capabilities()).unwrap_or_default()
    }

    /// Returns true if a pattern matches the name.
    fn serves(&self, name: &str) -> bool {
        self.patterns().iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *pattern,
        })
    }
}

/// The model providers of a process. If several serve a name, the one that was registered last is used.
#[derive(Default)]
pub struct ModelProviders {
    providers: Vec<Box<dyn ModelProvider>>,
    cache: RwLock<HashMap<String, Arc<dyn Model>>>,
}

impl ModelProviders {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a registry of scripted models, Gemini and OpenAI. Settings are checked when a model is resolved, and
    /// connections are opened when it is called.
    #[must_use]
    pub fn with_defaults(settings: Settings) -> Self {
        let http = Http::default();
        let scripted = ScriptedProvider::new(&settings.scripts_dir).excluding(settings.writable_folders.clone());
        let mut providers = Self::new();
        providers.register(Box::new(scripted));
        providers.register(Box::new(GeminiProvider::new(&settings, http.clone())));
        providers.register(Box::new(OpenAiProvider::new(&settings, http)));
        providers
    }

    /// Registers a provider. It takes precedence over earlier ones for the same names.
    pub fn register(&mut self, provider: Box<dyn ModelProvider>) {
        self.providers.push(provider);
        self.cache.write_unpoisoned().clear();
    }

    fn provider(&self, name: &str) -> Option<&dyn ModelProvider> {
        self.providers.iter().rev().find(|provider| provider.serves(name)).map(AsRef::as_ref)
    }

    fn unknown_model(&self, name: &str) -> ModelError {
        let patterns: Vec<_> = self.providers.iter().flat_map(|provider| provider.patterns()).copied().collect();
        let message = match patterns.is_empty() {
            true => "no provider serves this name, and none is registered".to_owned(),
            false => format!("no provider serves this name; known names: {}", patterns.join(", ")),
        };
        ModelError::new(ModelErrorKind::UnknownModel, name, message)
    }
}

impl ModelResolver for ModelProviders {
    fn capabilities(&self, name: &str) -> ModelCapabilities {
        self.provider(name).map(|provider| provider.capabilities(name)).unwrap_or_default()
    }

    fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        match name {
            HashedNgrams::NAME => Ok(Arc::new(HashedNgrams)),
            _ => {
                let message = format!("no embedder has this name; known names: {}", HashedNgrams::NAME);
                Err(ModelError::new(ModelErrorKind::UnknownModel, name, message))
            }
        }
    }

    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        if let Some(model) = self.cache.read_unpoisoned().get(name) {
            return Ok(model.clone());
        }
        let model = self.provider(name).ok_or_else(|| self.unknown_model(name))?.create(name)?;
        let mut cache = self.cache.write_unpoisoned();
        if let Some(earlier) = cache.get(name) {
            return Ok(earlier.clone());
        }
        if cache.len() < MAX_CACHED_MODELS {
            cache.insert(name.to_owned(), model.clone());
        }
        Ok(model)
    }
}

impl std::fmt::Debug for ModelProviders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let patterns: Vec<_> = self.providers.iter().flat_map(|provider| provider.patterns()).collect();
        f.debug_struct("ModelProviders").field("patterns", &patterns).finish_non_exhaustive()
    }
}
