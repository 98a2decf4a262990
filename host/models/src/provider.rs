//! The trait of model providers: factories of models and embedders by name.

use std::sync::Arc;

use hatchery_core::{Embedder, Model, ModelCapabilities, ModelError, ModelErrorKind};

use crate::settings::Connection;

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
    /// Returns the provider's display name.
    fn label(&self) -> &'static str {
        "custom"
    }

    /// Returns the names of models that this provider serves. A trailing `*` matches any suffix.
    fn patterns(&self) -> &[&'static str];

    /// Creates the model of this name, which matches one of the patterns.
    ///
    /// # Errors
    /// If the name is incomplete or a setting is missing.
    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError>;

    /// Creates a model whose connection is overridden in code. The default supports none.
    ///
    /// # Errors
    /// The errors of [`ModelProvider::create`], and an error if the provider has no connections.
    fn create_with(&self, name: &str, _connection: &Connection) -> Result<Arc<dyn Model>, ModelError> {
        let message = format!("models of the provider `{}` take no key or URL of their own", self.label());
        Err(ModelError::new(ModelErrorKind::BadRequest, name, message))
    }

    /// Returns the capabilities of this model. Providers that know them without a key should override it: see
    /// [`ModelResolver::capabilities`].
    fn capabilities(&self, name: &str) -> ModelCapabilities {
        self.create(name).map(|model| model.capabilities()).unwrap_or_default()
    }

    /// Returns the names of embedders that this provider serves, in the form of [`ModelProvider::patterns`].
    fn embedder_patterns(&self) -> &[&'static str] {
        &[]
    }

    /// Creates the embedder of this name, which matches one of the patterns.
    ///
    /// # Errors
    /// If a setting is missing.
    fn create_embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, ModelError> {
        let message = format!("the provider `{}` has no embedders", self.label());
        Err(ModelError::new(ModelErrorKind::UnknownModel, name, message))
    }

    /// Returns the variables to set before a model can be used, as text. `None` if nothing is missing.
    fn missing_variables(&self) -> Option<String> {
        None
    }

    /// Returns the URL of requests. `None` if the provider sends none.
    fn base_url(&self) -> Option<String> {
        None
    }
}
