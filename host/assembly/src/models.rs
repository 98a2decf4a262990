//! The models of the configuration, and models of apps that cannot be used, for example because their key is missing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hatchery_core::{
    Agent, AgentKind, Embedder, ItemResolver, Model, ModelCapabilities, ModelError, ModelRef, ModelResolver,
    ResolveError,
};
use hatchery_engine::App;
use hatchery_models::ModelProviders;

use crate::config::Config;

/// The model providers of the configuration in force. Runs keep the models that they have started with.
pub(crate) struct LiveModels(ArcSwap<ModelProviders>);

impl LiveModels {
    pub(crate) fn new(providers: ModelProviders) -> Self {
        Self(ArcSwap::from_pointee(providers))
    }

    pub(crate) fn providers(&self) -> Arc<ModelProviders> {
        self.0.load_full()
    }

    pub(crate) fn replace(&self, providers: Arc<ModelProviders>) {
        self.0.store(providers);
    }
}

impl ModelResolver for LiveModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.0.load().model(name)
    }

    fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        self.0.load().embedder(name)
    }

    fn capabilities(&self, name: &str) -> ModelCapabilities {
        self.0.load().capabilities(name)
    }
}

/// A model that is named and cannot be used.
#[derive(Debug)]
pub struct UnusableModel {
    pub model: String,
    /// The apps whose agents name it, or the keys of the configuration that do.
    pub users: Vec<String>,
    pub error: ModelError,
}

impl fmt::Display for UnusableModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users: Vec<_> = self.users.iter().map(|user| format!("`{user}`")).collect();
        write!(f, "{} (used by {})", self.error, users.join(", "))
    }
}

/// The users of models, by the name of the model.
pub type ModelUsers = BTreeMap<String, Vec<String>>;

/// Returns the models that cannot be used, by name. No model is called.
pub fn unusable_models(users: ModelUsers, models: &dyn ModelResolver) -> Vec<UnusableModel> {
    let failed = users.into_iter().filter_map(|(model, users)| {
        let error = models.model(&model).err()?;
        Some(UnusableModel { model, users, error })
    });
    failed.collect()
}

/// Returns the models that a configuration names, each with its keys: fallback models, and models that summarize for
/// compaction. The name of a summarizer in `items` is not a model.
pub fn models_of_config(config: &Config, items: &dyn ItemResolver) -> ModelUsers {
    let fallbacks = config.models.fallback.values().flatten().map(|name| (name, "models.fallback".to_owned()));
    let apps = config.apps.iter().map(|(name, app)| (format!("apps.{name}.compaction"), app));
    let apps = std::iter::once(("app_defaults.compaction".to_owned(), &config.app_defaults)).chain(apps);
    let summarizers = apps.filter_map(|(key, app)| Some((app.compaction.as_ref()?.summarizer.as_ref()?, key)));
    let is_model = |name: &str| matches!(items.summarizer(name), Err(ResolveError::Unknown { .. }));
    let mut users = ModelUsers::new();
    for (name, key) in fallbacks.chain(summarizers.filter(|(name, _)| is_model(name))) {
        let keys = users.entry(name.clone()).or_default();
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    users
}

/// Returns the models that the agents of apps name, and the agents that are called as tools, each with the apps.
pub fn models_of(apps: &[Arc<App>]) -> ModelUsers {
    let mut users = ModelUsers::new();
    for app in apps {
        let agents = app.trees().into_iter().flat_map(|tree| tree.iter());
        let models = agents.filter_map(|(_, agent)| model_of(agent));
        for name in models.flat_map(|model| std::iter::once(model.name()).chain(model.names().skip(1))) {
            let users = users.entry(name.to_owned()).or_default();
            if !users.contains(&app.name) {
                users.push(app.name.clone());
            }
        }
    }
    users
}

/// Returns the model that an agent names. `None` if it inherits one, or needs none.
pub fn model_of(agent: &Agent) -> Option<&ModelRef> {
    match &agent.kind {
        AgentKind::Llm(llm) => llm.model.as_ref(),
        AgentKind::Custom(custom) => custom.model.as_ref(),
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => None,
    }
}
