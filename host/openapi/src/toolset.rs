//! The operations of an API as a toolset of an agent.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, ItemKind, OPENAPI_UNAVAILABLE, RunError, Tool, Toolset};
use tokio::sync::OnceCell;

use crate::api::Api;
use crate::config::{ApiConfig, Confirmation, Selection};
use crate::document::{Operation, UniqueNames};
use crate::error::ApiError;
use crate::tool::OperationTool;

/// Selection of an API's operations for an agent, with its settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolsetOptions {
    /// The operations to include, of those that the settings of the API allow.
    pub selection: Selection,
    /// Text before the names of tools, as models see them.
    pub prefix: String,
    /// The operations whose calls a person must confirm, in addition to the operations of the API's settings.
    pub confirmation: Confirmation,
}

/// The operations of an API. Files that it sends are stored as artifacts.
pub struct OpenApiToolset {
    name: String,
    api: Arc<Api>,
    options: ToolsetOptions,
    tools: OnceCell<Vec<Arc<dyn Tool>>>,
}

impl OpenApiToolset {
    /// Creates a toolset of an API, for agents in code.
    pub fn new(api: impl Into<String>, config: ApiConfig, options: ToolsetOptions) -> Self {
        Self::with_api(Api::new("openapi", api, config), options)
    }

    /// Creates a toolset of an API that others use too.
    pub(crate) fn with_api(api: Arc<Api>, options: ToolsetOptions) -> Self {
        Self { name: format!("{}:{}", api.prefix, api.name), api, options, tools: OnceCell::new() }
    }

    async fn create(&self) -> Result<Vec<Arc<dyn Tool>>, ApiError> {
        let ToolsetOptions { selection, confirmation, .. } = self.options.clone();
        let operations = self.api.operations(selection, confirmation).await?;
        let mut names = UniqueNames::default();
        let tools = operations.into_iter().map(|operation| Arc::new(self.tool(operation, &mut names)) as Arc<dyn Tool>);
        Ok(tools.collect())
    }

    fn tool(&self, operation: Arc<Operation>, names: &mut UniqueNames) -> OperationTool {
        let name = names.add(&format!("{}{}", self.options.prefix, operation.name));
        let is_write = !operation.method.is_safe();
        let is_required = |confirmation: &Confirmation| confirmation.is_required(&operation.name, is_write);
        OperationTool {
            declaration: Arc::new(FunctionDeclaration {
                name,
                description: operation.text.clone(),
                parameters: Some(operation.schema.clone()),
                response: None,
            }),
            requires_confirmation: is_required(&self.api.config.confirmation)
                || is_required(&self.options.confirmation),
            api: self.api.clone(),
            operation,
        }
    }
}

#[async_trait]
impl Toolset for OpenApiToolset {
    fn name(&self) -> &str {
        &self.name
    }

    async fn tools(&self, _: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        let tools = self.tools.get_or_try_init(|| self.create()).await;
        tools.cloned().map_err(|error| RunError::Extension {
            kind: ItemKind::Toolset,
            name: self.name.clone(),
            code: OPENAPI_UNAVAILABLE.into(),
            message: format!("the API `{}` is not available: {error}", self.api.name),
        })
    }
}
