//! Registry of model providers: resolves a model by name and caches one instance per name and connection.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock};

use hatchery_core::suggestion::similar_name;
use hatchery_core::sync::RwLockExt;
use hatchery_core::{Embedder, FallbackModel, Model, ModelCapabilities, ModelError, ModelErrorKind, ModelResolver};

use crate::anthropic::AnthropicProvider;
use crate::apigee::ApigeeProvider;
use crate::gemini::GeminiProvider;
use crate::hashed_ngrams::HashedNgrams;
use crate::http::{Http, MODEL_WITHOUT_SETTINGS};
use crate::openai::ChatProvider;
use crate::provider::ModelProvider;
use crate::responses::ResponsesProvider;
use crate::scripted::ScriptedProvider;
use crate::settings::{Connection, Settings};
use crate::vertex::VertexProvider;

/// Maximum number of cached instances. Beyond it a model is created per look-up, which is cheap because models share
/// their connections.
const MAX_CACHED_MODELS: usize = 1_000;

/// Returns the length of the longest pattern that matches a name. An exact pattern is longer than any other.
fn specificity(patterns: &[&str], name: &str) -> Option<usize> {
    let length = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start).then_some(start.len()),
        None => (name == *pattern).then_some(usize::MAX),
    };
    patterns.iter().filter_map(length).max()
}

/// A provider as `hatchery models` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderStatus {
    /// The provider's display name.
    pub label: &'static str,
    /// The names of its models.
    pub patterns: Vec<&'static str>,
    /// The names of its embedders.
    pub embedder_patterns: Vec<&'static str>,
    /// The base URL of requests.
    pub base_url: Option<String>,
    /// The variables to set before a model can be used, as text.
    pub missing: Option<String>,
}

type Cache<T> = RwLock<HashMap<(String, Connection), Arc<T>>>;

/// The model providers of a process. A provider that was registered takes precedence over earlier ones and over all
/// built-in ones; of these, the one with the most specific pattern is used.
#[derive(Default)]
pub struct ModelProviders {
    built_in: Vec<Box<dyn ModelProvider>>,
    registered: Vec<Arc<dyn ModelProvider>>,
    http: Http,
    fallbacks: BTreeMap<String, Vec<String>>,
    models: Cache<dyn Model>,
    embedders: Cache<dyn Embedder>,
}

impl ModelProviders {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a registry of the built-in providers. Settings are checked when a model is resolved, and connections are
    /// opened when it is called.
    #[must_use]
    pub fn with_defaults(settings: Settings) -> Self {
        Self::with_http(settings, Http::default())
    }

    /// Creates a registry of the built-in providers, which send their requests by `client`. It should neither follow
    /// redirects, because keys are in headers, nor limit the time of a response.
    #[must_use]
    pub fn with_client(settings: Settings, client: reqwest::Client) -> Self {
        Self::with_http(settings, Http::with_client(client))
    }

    fn with_http(settings: Settings, http: Http) -> Self {
        let scripted = ScriptedProvider::new(&settings.scripts_dir).excluding(settings.writable_folders.clone());
        let vertex = VertexProvider::new(&settings, http.clone());
        let mut built_in: Vec<Box<dyn ModelProvider>> = vec![
            Box::new(scripted),
            Box::new(GeminiProvider::new(&settings, http.clone(), vertex.clone())),
            Box::new(vertex.clone()),
            Box::new(AnthropicProvider::new(&settings, http.clone())),
            Box::new(ResponsesProvider::new(&settings, http.clone())),
        ];
        built_in.extend(ChatProvider::all(&settings, &http).map(|provider| Box::new(provider) as _));
        #[cfg(feature = "genai")]
        built_in.push(Box::new(crate::libraries::genai::GenaiProvider::new(&settings, http.clone())));
        #[cfg(feature = "rig")]
        built_in.push(Box::new(crate::libraries::rig::RigProvider::new(&settings, http.clone())));
        built_in.push(Box::new(ApigeeProvider::new(&settings, http.clone(), vertex)));
        Self { built_in, fallbacks: settings.fallbacks, http, ..Self::default() }
    }

    /// Creates a registry with other settings of the built-in providers. It shares the providers that were registered,
    /// and the connections.
    #[must_use]
    pub fn with_settings(&self, settings: Settings) -> Self {
        Self { registered: self.registered.clone(), ..Self::with_http(settings, self.http.clone()) }
    }

    /// Registers a provider. It takes precedence over earlier ones for the same names.
    pub fn register(&mut self, provider: Box<dyn ModelProvider>) {
        self.registered.push(provider.into());
        self.models.write_unpoisoned().clear();
        self.embedders.write_unpoisoned().clear();
    }

    /// Returns the model of a name, with a connection that overrides the settings. Models without fallbacks are cached
    /// by name and connection.
    ///
    /// # Errors
    /// [`ModelError`] of kind `UnknownModel`, or of kind `Auth` if a key is missing.
    pub fn model_with(&self, name: &str, connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        get_or_create(&self.models, name, connection, || {
            let provider = self.find(name, |provider| provider.patterns());
            let matter = "no provider serves this name";
            let provider = provider.ok_or_else(|| self.unknown(name, matter, &[], |provider| provider.patterns()))?;
            if *connection == Connection::default() {
                provider.create(name)
            } else {
                provider.create_with(name, connection)
            }
        })
    }

    /// Returns all providers, the built-in ones first.
    pub fn providers(&self) -> impl Iterator<Item = ProviderStatus> {
        self.all().map(|provider| ProviderStatus {
            label: provider.label(),
            patterns: provider.patterns().to_vec(),
            embedder_patterns: provider.embedder_patterns().to_vec(),
            base_url: provider.base_url(),
            missing: provider.missing_variables(),
        })
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = &dyn ModelProvider> {
        self.built_in.iter().map(AsRef::as_ref).chain(self.registered.iter().map(AsRef::as_ref))
    }

    /// Returns the provider that serves a name by the patterns that `patterns` returns.
    fn find(&self, name: &str, patterns: fn(&dyn ModelProvider) -> &[&'static str]) -> Option<&dyn ModelProvider> {
        let serves = |provider: &&dyn ModelProvider| specificity(patterns(*provider), name).is_some();
        let built_in = || {
            let providers = self.built_in.iter().map(AsRef::as_ref).filter(serves);
            providers.max_by_key(|provider| specificity(patterns(*provider), name))
        };
        self.registered.iter().rev().map(AsRef::as_ref).find(serves).or_else(built_in)
    }

    /// Returns the error for a name that no provider serves: the problem, and the prefix that was probably meant, or else
    /// all names and the missing settings of each. `known` are names that need no provider.
    fn unknown(
        &self,
        name: &str,
        matter: &str,
        known: &[&'static str],
        patterns: fn(&dyn ModelProvider) -> &[&'static str],
    ) -> ModelError {
        if let Some(pattern) = similar_pattern(name, self.all().flat_map(patterns).copied()) {
            let message = format!("{matter}; did you mean `{pattern}`?");
            return ModelError::new(ModelErrorKind::UnknownModel, name, message);
        }
        let providers = self.all().filter(|provider| !patterns(*provider).is_empty());
        let (unusable, usable): (Vec<_>, Vec<_>) =
            providers.partition(|provider| provider.missing_variables().is_some());
        let usable: Vec<_> = known.iter().chain(usable.into_iter().flat_map(patterns)).copied().collect();
        let mut message = matter.to_owned();
        if usable.is_empty() && unusable.is_empty() {
            message.push_str(", and none is registered");
        }
        if !usable.is_empty() {
            message.push_str(&format!("; known names: {}", usable.join(", ")));
        }
        if !unusable.is_empty() {
            let names = |provider: &dyn ModelProvider| {
                format!("{} (set {})", patterns(provider).join(", "), provider.missing_variables().unwrap_or_default())
            };
            let unusable: Vec<_> = unusable.into_iter().map(names).collect();
            message.push_str(&format!("; usable with a setting: {}", unusable.join("; ")));
        }
        ModelError::new(ModelErrorKind::UnknownModel, name, message)
    }
}

/// Returns the pattern, such as `gemini-*`, whose prefix is most like the beginning of a name, if a typing error is likely.
fn similar_pattern(name: &str, patterns: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let end = name.find(['-', '/', ':'])?;
    let head = name.get(..=end)?;
    let prefixes: Vec<_> = patterns.filter_map(|pattern| Some((pattern.strip_suffix('*')?, pattern))).collect();
    let similar = similar_name(head, prefixes.iter().map(|(prefix, _)| *prefix))?;
    prefixes.iter().find(|(prefix, _)| *prefix == similar).map(|(_, pattern)| *pattern)
}

/// Returns the cached instance, or creates it.
fn get_or_create<T: ?Sized>(
    cache: &Cache<T>,
    name: &str,
    connection: &Connection,
    create: impl FnOnce() -> Result<Arc<T>, ModelError>,
) -> Result<Arc<T>, ModelError> {
    let key = (name.to_owned(), connection.clone());
    if let Some(instance) = cache.read_unpoisoned().get(&key) {
        return Ok(instance.clone());
    }
    let instance = create()?;
    let mut cache = cache.write_unpoisoned();
    if let Some(earlier) = cache.get(&key) {
        return Ok(earlier.clone());
    }
    if cache.len() < MAX_CACHED_MODELS {
        cache.insert(key, instance.clone());
    }
    Ok(instance)
}

impl ModelResolver for ModelProviders {
    fn capabilities(&self, name: &str) -> ModelCapabilities {
        let find = |name: &str| {
            let provider = self.find(name, |provider| provider.patterns());
            provider.map(|provider| provider.capabilities(name)).unwrap_or_default()
        };
        let others = self.fallbacks.get(name).into_iter().flatten();
        others.fold(find(name), |common, other| FallbackModel::common_capabilities(common, find(other)))
    }

    fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        if name == HashedNgrams::NAME {
            return Ok(Arc::new(HashedNgrams));
        }
        get_or_create(&self.embedders, name, &Connection::default(), || {
            let provider = self.find(name, |provider| provider.embedder_patterns());
            let provider = provider.ok_or_else(|| {
                let known = [HashedNgrams::NAME];
                self.unknown(name, "no embedder has this name", &known, |provider| provider.embedder_patterns())
            })?;
            // Scripts have no embeddings.
            let remedy = format!("or use the embedder without one, `{}`", HashedNgrams::NAME);
            provider.create_embedder(name).map_err(|error| ModelError {
                message: error.message.replace(MODEL_WITHOUT_SETTINGS, &remedy),
                ..error
            })
        })
    }

    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let connection = Connection::default();
        match self.fallbacks.get(name) {
            Some(others) => {
                let names = std::iter::once(name).chain(others.iter().map(String::as_str));
                FallbackModel::new(names.map(|name| (name.to_owned(), self.model_with(name, &connection))))
                    .map(|model| Arc::new(model) as _)
            }
            None => self.model_with(name, &connection),
        }
    }
}

impl std::fmt::Debug for ModelProviders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let patterns: Vec<_> = self.all().flat_map(|provider| provider.patterns()).collect();
        f.debug_struct("ModelProviders").field("patterns", &patterns).finish_non_exhaustive()
    }
}
